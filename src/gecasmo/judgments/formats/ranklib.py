"""RankLib, SVMrank and LibSVM text: judgment lists for Elasticsearch LTR and friends.

    # qid:1: red shoes
    <empty line>
    3 qid:1 1:0.25 2:17 # doc	red shoes

Without features the lines hold grade and query number only, which is what feature logging starts
from. Readers of this kind of file take all lines up to the empty one as comments.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import polars as pl

from gecasmo.judgments.formats.format import (
    JudgmentFormat,
    WriteOptions,
    as_text,
    without_breaks,
    without_spaces,
)
from gecasmo.judgments.grades import JudgmentsError
from gecasmo.judgments.judged import Judgments
from gecasmo.model.structured import as_frame


def write(
    judgments: Judgments, pairs: pl.DataFrame, path: Path, options: WriteOptions
) -> list[str]:
    """Write a line for each graded pair, under comments that name the queries."""
    without_breaks(pairs["query"], "ranklib")
    doc = without_spaces(pairs["doc"], "ranklib", options.ids)
    queries = pairs["query"].unique(maintain_order=True).to_list()
    qid = pairs["query"].replace_strict(
        queries, list(range(1, len(queries) + 1)), return_dtype=pl.Int64
    )
    features = None if options.features is None else _features(pairs, options.features)
    head = [
        f"# gecasmo, {judgments.model}: relevance is {judgments.relevance_is}",
        f"# rule {judgments.grading}",
        f"# {sum(options.left_out(judgments))} pairs left out for lack of data",
    ]
    start = pl.format("{} qid:{}", "grade", "qid")
    columns = [pairs["grade"], qid.alias("qid"), doc, pairs["query"]]
    parts = [start]
    if features is not None:
        numbered = list(enumerate(features.columns, 1))
        head.append("# features: " + ", ".join(f"{number} = {name!r}" for number, name in numbered))
        columns += [features[name].cast(pl.String).alias(f"feature {n}") for n, name in numbered]
        parts += [pl.format(f"{n}:{{}}", f"feature {n}") for n, _ in numbered]
    parts.append(pl.format("# {}\t{}", "doc", "query"))
    head += [f"# qid:{number}: {query}" for number, query in enumerate(queries, 1)]
    lines = pl.DataFrame(columns).select(pl.concat_str(parts, separator=" ").alias("line"))
    path.write_bytes("".join(f"{line}\n" for line in [*head, "", *lines["line"]]).encode())
    return []


def _features(pairs: pl.DataFrame, given: Any) -> pl.DataFrame:
    """The features of each pair, in the order of the pairs."""
    frame = as_frame(given, "features")
    keys = [name for name in ("query", "doc") if name in frame.columns]
    names = [name for name in frame.columns if name not in keys]
    if "doc" not in keys or not names:
        raise JudgmentsError(
            "features= wants the columns query and doc (or doc alone) and at least one with "
            f"numbers; it has: {', '.join(frame.columns)}."
        )
    for name in names:
        dtype = frame[name].dtype
        if not (dtype.is_numeric() or dtype == pl.Boolean):
            raise JudgmentsError(f"The feature '{name}' holds {dtype}; features are numbers.")
    for key in keys:
        if frame[key].null_count():
            raise JudgmentsError(f"features= has rows without {key}.")
    frame = frame.with_columns(as_text(frame[key]) for key in keys)
    twice = frame.select(keys).is_duplicated()
    if twice.any():
        pair = frame.select(keys).filter(twice).row(0)
        raise JudgmentsError(f"features= has more than one row for {pair}.")
    frame = frame.with_columns(
        pl.col(name).cast(pl.Int8) for name in names if frame[name].dtype == pl.Boolean
    ).with_columns(pl.lit(True).alias("*found*"))
    found = pairs.select(keys).join(frame, on=keys, how="left", maintain_order="left")
    lost = found.filter(pl.col("*found*").is_null())
    if len(lost):
        raise JudgmentsError(
            f"features= has no row for {len(lost):,} of {len(pairs):,} judged pairs, such as "
            f"{lost.select(keys).row(0)}. Add them, or judge the pairs that have features: "
            "judge(model, pairs=features)."
        )
    for name in names:
        numbers = found[name]
        odd = numbers.is_null() | ~numbers.cast(pl.Float64).is_finite().fill_null(False)
        if odd.any():
            pair = found.select(keys).filter(odd).row(0)
            raise JudgmentsError(
                f"The feature '{name}' has no finite number for {int(odd.sum()):,} judged pairs, "
                f"such as {pair}."
            )
    return found.select(names)


def join_ranklib(pieces: Sequence[Path], target: Path, judgments: Judgments) -> None:
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


RANKLIB = JudgmentFormat(
    "ranklib",
    "RankLib / LibSVM text for Elasticsearch LTR",
    (".txt", ".ranklib", ".libsvm", ".svm"),
    write,
    options=("query", "ids", "features"),
    join=join_ranklib,
)
