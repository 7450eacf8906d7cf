"""Judgment files that learners train on: RankLib, XGBoost, LightGBM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import polars as pl

from gecasmo.errors import option
from gecasmo.judgments.files import (
    Companion,
    JudgmentFormat,
    WriteOptions,
    as_text,
    join_tables,
    without_breaks,
    without_spaces,
)
from gecasmo.judgments.grades import JudgmentsError
from gecasmo.judgments.judged import Judgments
from gecasmo.model.structured import as_frame

# A column of this name is no feature for LightGBM, but where the document was shown.
_POSITION = "position"


def numbered_queries(pairs: pl.DataFrame) -> pl.Series:
    """A number for each query, from 1, in their order."""
    queries = pairs["query"].unique(maintain_order=True).to_list()
    numbers = list(range(1, len(queries) + 1))
    return pairs["query"].replace_strict(queries, numbers, return_dtype=pl.Int64)


def _numbered(features: pl.DataFrame) -> list[tuple[int, str]]:
    return list(enumerate(features.columns))


# -- RankLib, Elasticsearch LTR ------------------------------------------------------------------
#     # qid:1: red shoes
#     <empty line>
#     3 qid:1 1:0.25 2:17 # doc	red shoes
#
# Without features the lines hold grade and query number only, which is what feature logging starts
# from. Readers of this kind of file take all lines up to the empty one as comments.
def write_ranklib(
    judgments: Judgments, pairs: pl.DataFrame, path: Path, options: WriteOptions
) -> list[str]:
    """Write a line for each graded pair, under comments that name the queries."""
    without_breaks(pairs["query"], "ranklib")
    doc = without_spaces(pairs["doc"], "ranklib", options.ids)
    queries = pairs["query"].unique(maintain_order=True).to_list()
    qid = numbered_queries(pairs)
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
    "RankLib text, for RankLib and Elasticsearch LTR",
    (".txt", ".ranklib"),
    write_ranklib,
    options=("query", "ids", "features"),
    join=join_ranklib,
)


# -- XGBoost, scikit-learn: LibSVM lines with qid, and nothing else -------------------------------
#     3 qid:1 0:0.25 1:17
#
# XGBoost takes no comments, so that which pair a line is about is told by a table beside the file.
def write_xgboost(
    judgments: Judgments, pairs: pl.DataFrame, path: Path, options: WriteOptions
) -> list[str]:
    """Write a line for each graded pair; features are numbered from 0."""
    features = _features(pairs, options.features)
    qid = pl.Series("qid", numbered_queries(pairs))
    columns = [features[name].cast(pl.String).alias(f"f{n}") for n, name in _numbered(features)]
    parts = [pl.format("{} qid:{}", "grade", "qid")]
    parts += [pl.format(f"{n}:{{}}", f"f{n}") for n, _ in _numbered(features)]
    frame = pl.DataFrame([pairs["grade"], qid, *columns])
    lines = frame.select(pl.concat_str(parts, separator=" ").alias("line"))["line"]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return [f"features: {', '.join(f'{n} = {name!r}' for n, name in _numbered(features))}"]


def join_xgboost(pieces: Sequence[Path], target: Path, judgments: Judgments) -> None:
    """The lines of all files, with queries numbered anew."""
    before = 0
    with target.open("w", encoding="utf-8", newline="\n") as out:
        for piece in pieces:
            last = 0
            with piece.open(encoding="utf-8", newline="\n") as file:
                for line in file:
                    grade, query, rest = line.split(" ", 2)
                    last = int(query.removeprefix("qid:"))
                    out.write(f"{grade} qid:{last + before} {rest}")
            before += last


def _pairs_table(pairs: pl.DataFrame, options: WriteOptions) -> str:
    """Which pair each line of a training file is about."""
    return pairs.select("query", "doc", "grade").write_csv()


_PAIRS = Companion(".pairs.csv", _pairs_table, join_tables)

XGBOOST = JudgmentFormat(
    "xgboost",
    "LibSVM text with qid, for XGBoost and scikit-learn",
    (".xgboost", ".libsvm", ".svm"),
    write_xgboost,
    options=("query", "features"),
    required=("features",),
    join=join_xgboost,
    companions=(_PAIRS,),
)


# -- LightGBM: grades and features, and beside them the sizes of groups ---------------------------
def write_lightgbm(
    judgments: Judgments, pairs: pl.DataFrame, path: Path, options: WriteOptions
) -> list[str]:
    """Write a line for each graded pair: its grade, then its features, with tabs between."""
    features = _features(pairs, options.features)
    names = [name for _, name in _numbered(features) if name != _POSITION]
    if not names:
        raise JudgmentsError(f"{option('features')} has no column but {_POSITION}.")
    columns = [features[name].alias(f"f{number}") for number, name in enumerate(names)]
    table = pl.DataFrame([pairs["grade"], *columns])
    table.write_csv(path, separator="\t", include_header=False)
    told = ", ".join(f"{number} = {name!r}" for number, name in enumerate(names))
    return [f"features: {told}"]


def _group_sizes(pairs: pl.DataFrame, options: WriteOptions) -> str:
    """How many lines each query has, in their order."""
    sizes = pairs.select(pl.col("query").rle().struct.field("len")).to_series()
    return "".join(f"{size}\n" for size in sizes)


def _positions(pairs: pl.DataFrame, options: WriteOptions) -> str | None:
    """The column `position` of the features, if they have one."""
    features = _features(pairs, options.features)
    if _POSITION not in features.columns:
        return None
    return "".join(f"{place}\n" for place in features[_POSITION])


LIGHTGBM = JudgmentFormat(
    "lightgbm",
    "LightGBM training data, with .query and .position files",
    (".lightgbm", ".train"),
    write_lightgbm,
    options=("query", "features"),
    required=("features",),
    companions=(
        Companion(".query", _group_sizes),
        Companion(".position", _positions),
        _PAIRS,
    ),
)
