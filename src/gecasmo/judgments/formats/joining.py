"""One judgment file of many: each kind of file has its own way, none reads a whole file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

import polars as pl

from gecasmo.judgments.counting import Told

# files of parts, where to, what is told of all
Join = Callable[[Sequence[Path], Path, Told], None]


def join_lines(pieces: Sequence[Path], target: Path, judgments: Told) -> None:
    """Texts without a header."""
    _joined(pieces, target, 0)


def join_tables(pieces: Sequence[Path], target: Path, judgments: Told) -> None:
    """Texts whose first line is the header."""
    _joined(pieces, target, 1)


def _joined(pieces: Sequence[Path], target: Path, n_header: int) -> None:
    with target.open("wb") as out:
        for number, piece in enumerate(pieces):
            with piece.open("rb") as file:
                for _ in range(n_header if number else 0):
                    file.readline()
                shutil.copyfileobj(file, out)


def join_parquet(pieces: Sequence[Path], target: Path, judgments: Told) -> None:
    """Parquet, with the summary of all."""
    metadata = {"gecasmo": json.dumps(judgments.summary())}
    scan = pl.scan_parquet(list(pieces), glob=False)
    scan.sink_parquet(target, metadata=metadata, row_group_size=250_000)


def join_opensearch(pieces: Sequence[Path], target: Path, judgments: Told) -> None:
    """The ratings of all queries under the head of the first file."""
    end = "[]\n}"
    with target.open("w", encoding="utf-8") as out:
        for number, piece in enumerate(pieces):
            body = json.loads(piece.read_text(encoding="utf-8"))
            ratings = body["judgmentRatings"]
            if not number:
                head = json.dumps({**body, "judgmentRatings": []}, ensure_ascii=False, indent=1)
                out.write(head.removesuffix(end) + "[")
            texts = [json.dumps(rated, ensure_ascii=False, indent=1) for rated in ratings]
            out.write(("," if number else "") + "\n" + ",\n".join(texts))
        out.write("\n]\n}")


def join_ranklib(pieces: Sequence[Path], target: Path, judgments: Told) -> None:
    """The comments of all files, then their lines, with queries numbered anew."""
    with target.open("w", encoding="utf-8", newline="\n") as out:
        n_queries: list[int] = []
        for number, piece in enumerate(pieces):
            n_queries.append(_copy_comments(piece, out, sum(n_queries), with_head=not number))
        out.write("\n")
        for number, piece in enumerate(pieces):
            _copy_judgments(piece, out, sum(n_queries[:number]))


def _copy_comments(piece: Path, out: TextIO, first: int, with_head: bool) -> int:
    n_queries = 0
    with piece.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            if line == "\n":
                break
            if line.startswith("# qid:"):
                _, number, query = line.split(":", 2)
                n_queries += 1
                out.write(f"# qid:{int(number) + first}:{query}")
            elif with_head:
                out.write(line)
    return n_queries


def _copy_judgments(piece: Path, out: TextIO, first: int) -> None:
    with piece.open(encoding="utf-8", newline="\n") as file:
        for line in file:
            if line == "\n":
                break
        for line in file:
            grade, query, rest = line.split(" ", 2)
            number = int(query.removeprefix("qid:")) + first
            out.write(f"{grade} qid:{number} {rest}")
