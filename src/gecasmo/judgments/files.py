"""What all judgment files share: options, ids as text, the pairs that may be written.

A file of many parts is put together without reading a whole one; each kind of file has its own way.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unicodedata import category
from urllib.parse import quote

import polars as pl

from gecasmo.errors import either, option
from gecasmo.judgments.grades import JUDGED, ORDERED, JudgmentsError
from gecasmo.judgments.judged import Judgments
from gecasmo.report import counted

# Why formats need an option.
_NEEDS = {
    "features": "hold features, so give a table with query and doc, or one of these, and numbers",
    "index": "name the index of each document, so say which",
}

# files of parts, where to, what is told of all
Join = Callable[[Sequence[Path], Path, Judgments], None]


@dataclass(frozen=True)
class WriteOptions:
    """What `Judgments.write` was asked for beside path and format."""

    features: Any = None
    query: str | None = None
    ids: str = "refuse"
    name: str | None = None
    ratings: str = "grade"
    include: str = "judged"
    index: str | None = None

    def check(self, format: JudgmentFormat) -> None:
        """Refuse options that the format would not heed."""
        if self.ids not in ("refuse", "encode"):
            raise JudgmentsError(f"{option('ids', self.ids)}: choose 'refuse' or 'encode'.")
        if self.ratings not in ("grade", "float"):
            raise JudgmentsError(f"{option('ratings', self.ratings)}: choose 'grade' or 'float'.")
        if self.include not in (JUDGED, ORDERED):
            raise JudgmentsError(
                f"{option('include', self.include)}: choose '{JUDGED}' or '{ORDERED}'."
            )
        for name, given in (
            ("ratings", self.ratings != "grade"),
            ("include", self.include != JUDGED),
            ("features", self.features is not None),
            ("name", self.name is not None),
            ("ids", self.ids != "refuse"),
            ("query", self.query is not None),
            ("index", self.index is not None),
        ):
            if given and name not in format.options:
                raise JudgmentsError(f"'{format.name}' files do not use {option(name)}.")
            if not given and name in format.required:
                raise JudgmentsError(f"'{format.name}' files {_NEEDS[name]}: {option(name)}.")
        if self.include == ORDERED and self.ratings != "float":
            raise JudgmentsError(
                f"{option('include', ORDERED)}: these pairs have a rating and no grade, so also "
                f"give {option('ratings', 'float')}."
            )

    def left_out(self, judgments: Judgments) -> tuple[int, int]:
        """How many pairs without a grade a graded file lacks: insufficient and ordered ones."""
        return judgments.n_insufficient, 0 if self.include == ORDERED else judgments.n_ordered


def join_lines(pieces: Sequence[Path], target: Path, judgments: Judgments) -> None:
    """Texts without a header."""
    _joined(pieces, target, 0)


def join_tables(pieces: Sequence[Path], target: Path, judgments: Judgments) -> None:
    """Texts whose first line is the header."""
    _joined(pieces, target, 1)


def _joined(pieces: Sequence[Path], target: Path, n_header: int) -> None:
    with target.open("wb") as out:
        for number, piece in enumerate(pieces):
            with piece.open("rb") as file:
                for _ in range(n_header if number else 0):
                    file.readline()
                shutil.copyfileobj(file, out)


def join_json(name: str, pieces: Sequence[Path], target: Path, judgments: Judgments) -> None:
    """JSON with one list, its last entry, as long as all lists, under the head of the first."""
    end = "[]\n}"
    with target.open("w", encoding="utf-8") as out:
        for number, piece in enumerate(pieces):
            body = json.loads(piece.read_text(encoding="utf-8"))
            if not number:
                head = json.dumps({**body, name: []}, ensure_ascii=False, indent=1)
                out.write(head.removesuffix(end) + "[")
            texts = [json.dumps(one, ensure_ascii=False, indent=1) for one in body[name]]
            out.write(("," if number else "") + "\n" + ",\n".join(texts))
        out.write("\n]\n}")


@dataclass(frozen=True)
class Companion:
    """A small file that belongs to another: how its name ends, and its text by the pairs; None
    where there is nothing to be told."""

    suffix: str
    write: Callable[[pl.DataFrame, WriteOptions], str | None]
    join: Join = join_lines


# judgments, the pairs to be written, where to, options -> remarks for the user
Writer = Callable[[Judgments, pl.DataFrame, Path, WriteOptions], list[str]]


@dataclass(frozen=True)
class JudgmentFormat:
    """A kind of judgment file.

    Graded ones have ids as texts, and hold judged pairs, with a column `written`: what is to be
    written of each, a grade or a rating.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    write: Writer
    is_graded: bool = True
    options: tuple[str, ...] = ("query",)
    join: Join = join_lines
    required: tuple[str, ...] = ()
    companions: tuple[Companion, ...] = ()


@dataclass(frozen=True)
class Written:
    """What became of a file: so many `insufficient` and `ordered` pairs are not in it."""

    path: Path
    format: str
    judgments: int
    insufficient: int
    ordered: int = 0
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"{self.path}: {counted(self.judgments, 'judgment')} ({self.format})"
        left_out = self.insufficient + self.ordered
        if left_out:
            text += f"; {counted(left_out, 'pair')} left out, for lack of data"
        if self.ordered:
            text += f" ({self.ordered:,} of them ordered)"
        return "\n".join([text, *(f"  {remark}" for remark in self.remarks)])


def graded_pairs(
    frame: pl.DataFrame, format: JudgmentFormat, options: WriteOptions
) -> pl.DataFrame:
    """The pairs of a frame that are to be written, with query and doc as texts."""
    wanted = [JUDGED] if options.include == JUDGED else [JUDGED, ORDERED]
    judged = frame.filter(pl.col("verdict").is_in(wanted))
    value = pl.col("rating").round(3) if options.ratings == "float" else pl.col("grade")
    return with_texts(judged.with_columns(value.alias("written")), format, options)


def with_texts(judged: pl.DataFrame, format: JudgmentFormat, options: WriteOptions) -> pl.DataFrame:
    """Pairs with query and doc as texts."""
    if "query" not in judged.columns:
        if options.query is None:
            such = option("query", shown='"*"')
            raise JudgmentsError(
                f"These judgments know documents only, and a {format.name} file wants a query. Say "
                f"which to write: {such}; or write csv or parquet."
            )
        query = pl.Series("query", [options.query] * len(judged), dtype=pl.String)
        judged = judged.with_columns(query)
    elif options.query is not None:
        raise JudgmentsError(
            f"{option('query', options.query)}: these judgments have queries of their own."
        )
    return judged.with_columns(as_text(judged["query"]), as_text(judged["doc"]))


def nothing_graded(judgments: Judgments, format: JudgmentFormat) -> JudgmentsError:
    """Why a file of grades would be empty."""
    return JudgmentsError(
        f"None of the {len(judgments):,} pairs has enough data for a grade, so a {format.name} "
        f"file would be empty. {_what_to_do(judgments)}"
    )


def _what_to_do(judgments: Judgments) -> str:
    if judgments.n_without_interval == len(judgments):
        why = judgments.why_no_interval
        if "features" in why:
            without = f"{option('max_width', None)}, {option('min_examinations', 0)}"
            return f"The reason: {why}. To judge without say {without}."
        return f"The reason: {why}. Fit the model again, by EM that converges."
    every = f"all pairs are graded with {option('every_pair', shown=either('True', ''))}"
    ordered = ""
    if judgments.n_ordered:
        ordered = (
            f"Of {judgments.n_ordered:,} the order within their query is sure enough: files of "
            f"ratings (quepid, opensearch) take them with {option('ratings', 'float')} and "
            f"{option('include', 'ordered')}. "
        )
    if judgments.n_undecided:
        why = f"Of {judgments.n_undecided:,} no grade is probable enough: collect"
        limits = f"{option('min_probability')} (now {judgments.min_probability:g}) or "
        limits += f"fewer {option('grades')} (now {judgments.grading.grades})"
    else:
        why = "Collect"
        width = "None" if judgments.max_width is None else f"{judgments.max_width:g}"
        limits = f"{option('max_width')} (now {width}) and "
        limits += f"{option('min_examinations')} (now {judgments.min_examinations:g})"
    return f"{ordered}{why} more pages, or ask for less with {limits}; {every}."


def as_text(ids: pl.Series) -> pl.Series:
    """Ids as non-empty texts, each its own."""
    dtype = ids.dtype
    if not (dtype in (pl.String, pl.Boolean) or dtype.is_integer() or dtype.is_temporal()):
        raise JudgmentsError(
            f"'{ids.name}' holds {dtype}, which has no place in a text file; write parquet."
        )
    texts = ids.cast(pl.String)
    if (texts == "").any():
        raise JudgmentsError(f"A {ids.name} is an empty text, which the file could not show.")
    return texts


def without_breaks(texts: pl.Series, format: str) -> None:
    """Refuse ids that would break a line."""
    for text in texts.unique(maintain_order=True):
        if text.splitlines() != [text]:
            raise JudgmentsError(
                f"The {texts.name} {text!r} holds a line break, which a {format} file cannot. "
                "Write csv or parquet, or rename it in the log."
            )


def without_spaces(texts: pl.Series, format: str, ids: str) -> pl.Series:
    """Ids without white space: as they are, percent-encoded, or refused."""
    known = texts.unique(maintain_order=True).to_list()
    if ids == "encode":
        coded = [encoded(text) for text in known]
        return texts.replace_strict(known, coded, return_dtype=pl.String)
    for text in known:
        if encoded(text) != text.replace("%", "%25"):
            raise JudgmentsError(
                f"The {texts.name} {text!r} holds white space, which a {format} file cannot. Write "
                f"it as {encoded(text)!r} with {option('ids', 'encode')}; urllib.parse.unquote "
                "reads it back."
            )
    return texts


def encoded(text: str) -> str:
    """Text with %-codes for white space, control characters and % itself."""
    return "".join(
        quote(c, safe="") if c == "%" or c.isspace() or category(c) == "Cc" else c for c in text
    )
