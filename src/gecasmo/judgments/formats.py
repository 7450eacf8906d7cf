"""Judgment files, a writer for each kind of reader, and how a file of many parts is put together.

CSV and Parquet hold everything that is known of each pair, insufficient ones, too; all others hold
grades, or ratings. A new kind of file is a writer, a `JudgmentFormat`, and its place in `FORMATS`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

import polars as pl

from gecasmo.errors import either, option
from gecasmo.files import is_stream, scratch_folder, whole_file
from gecasmo.judgments.files import (
    JudgmentFormat,
    WriteOptions,
    Written,
    as_text,
    graded_pairs,
    join_tables,
    nothing_graded,
    without_breaks,
    without_spaces,
)
from gecasmo.judgments.grades import JudgmentsError
from gecasmo.judgments.judged import Judgments, pairs_name
from gecasmo.model.structured import as_frame

# What OpenSearch accepts as a name and as a description.
_NAME, _DESCRIPTION = 50, 250
_FORBIDDEN = '"\\<>'


# -- CSV, Parquet and TREC qrels -----------------------------------------------------------------
def write_csv(
    judgments: Judgments, pairs: pl.DataFrame, path: Path, options: WriteOptions
) -> list[str]:
    """Write everything that is known of each pair as text."""
    names = [name for name in ("query", "doc") if name in pairs.columns]
    pairs.with_columns(as_text(pairs[name]) for name in names).write_csv(path)
    return []


def write_parquet(
    judgments: Judgments, pairs: pl.DataFrame, path: Path, options: WriteOptions
) -> list[str]:
    """Write everything that is known of each pair, with the summary as metadata."""
    pairs.write_parquet(path, metadata={"gecasmo": json.dumps(judgments.summary())})
    return []


def join_parquet(pieces: Sequence[Path], target: Path, judgments: Judgments) -> None:
    """Parquet, with the summary of all."""
    metadata = {"gecasmo": json.dumps(judgments.summary())}
    scan = pl.scan_parquet(list(pieces), glob=False)
    scan.sink_parquet(target, metadata=metadata, row_group_size=250_000)


def write_qrels(
    judgments: Judgments, pairs: pl.DataFrame, path: Path, options: WriteOptions
) -> list[str]:
    """Write a line for each graded pair."""
    columns = [without_spaces(pairs[name], "qrels", options.ids) for name in ("query", "doc")]
    lines = pl.DataFrame([*columns, pairs["grade"]]).select(
        pl.format("{} 0 {} {}", "query", "doc", "grade").alias("line")
    )
    path.write_bytes("".join(f"{line}\n" for line in lines["line"]).encode())
    return []


CSV = JudgmentFormat("csv", "everything, CSV", (".csv",), write_csv, False, (), join_tables)
PARQUET = JudgmentFormat(
    "parquet", "everything, Parquet", (".parquet",), write_parquet, False, (), join_parquet
)
QRELS = JudgmentFormat(
    "qrels", "TREC qrels", (".qrels", ".qrel"), write_qrels, options=("query", "ids")
)


# -- Quepid: query, docid, rating ----------------------------------------------------------------
# OpenSearch Dashboards reads the same file when judgments are imported by hand.
def write_quepid(
    judgments: Judgments, pairs: pl.DataFrame, path: Path, options: WriteOptions
) -> list[str]:
    """Write a rating for each pair; remarks tell what Quepid will drop."""
    for name in ("query", "doc"):
        without_breaks(pairs[name], "quepid")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("query", "docid", "rating"))
        writer.writerows(pairs.select("query", "doc", "written").iter_rows())
    remarks = []
    for name in ("query", "doc"):
        texts = pairs[name].unique(maintain_order=True)
        quoted = texts.filter(texts.str.contains('"', literal=True))
        if len(quoted):
            remarks.append(
                f"{len(quoted):,} of {name} hold a quotation mark, such as {quoted[0]!r}; Quepid's "
                "import by hand drops these marks"
            )
        padded = texts.filter(texts.str.strip_chars() != texts)
        if len(padded):
            remarks.append(
                f"{len(padded):,} of {name} begin or end with white space, such as {padded[0]!r}; "
                "Quepid drops it"
            )
    return remarks


QUEPID = JudgmentFormat(
    "quepid",
    "Quepid ratings, CSV",
    (".quepid.csv",),
    write_quepid,
    options=("query", "ratings", "include"),
    join=join_tables,
)


# -- OpenSearch: PUT _plugins/_search_relevance/judgments ----------------------------------------
def write_opensearch(
    judgments: Judgments, pairs: pl.DataFrame, path: Path, options: WriteOptions
) -> list[str]:
    """Write the body of a request, with the ratings of each query."""
    name = f"{judgments.model} judgments"[:_NAME] if options.name is None else options.name
    if not name or len(name) > _NAME or any(c in _FORBIDDEN for c in name):
        raise JudgmentsError(
            f"{option('name', name)}: OpenSearch takes 1 to {_NAME} characters, without "
            f"{_FORBIDDEN}."
        )
    description = (
        f"gecasmo: relevance is {judgments.relevance_is}; rule {judgments.grading}; "
        f"{sum(options.left_out(judgments))} pairs left out for lack of data"
    )
    ratings: dict[str, list[dict[str, str]]] = {}
    for query, doc, rating in pairs.select("query", "doc", "written").iter_rows():
        ratings.setdefault(query, []).append({"docId": doc, "rating": f"{rating:.3f}"})
    body = {
        "name": name,
        "description": "".join(c for c in description if c not in _FORBIDDEN)[:_DESCRIPTION],
        "type": "IMPORT_JUDGMENT",
        "judgmentRatings": [{"query": query, "ratings": rated} for query, rated in ratings.items()],
    }
    path.write_text(json.dumps(body, ensure_ascii=False, indent=1), encoding="utf-8")
    return []


def join_opensearch(pieces: Sequence[Path], target: Path, judgments: Judgments) -> None:
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


OPENSEARCH = JudgmentFormat(
    "opensearch",
    "OpenSearch search-relevance judgments, JSON",
    (".json",),
    write_opensearch,
    options=("query", "name", "ratings", "include"),
    join=join_opensearch,
)


# -- RankLib, SVMrank and LibSVM -----------------------------------------------------------------
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
    write_ranklib,
    options=("query", "ids", "features"),
    join=join_ranklib,
)


# -- all of them ---------------------------------------------------------------------------------
FORMATS: dict[str, JudgmentFormat] = {
    format.name: format for format in (QUEPID, OPENSEARCH, RANKLIB, QRELS, CSV, PARQUET)
}


def format_of(path: Any, name: str | None = None) -> JudgmentFormat:
    """The format of this name, or else the one that the end of the path tells."""
    if name is not None:
        if name not in FORMATS:
            raise JudgmentsError(f"{option('format', name)}: choose one of {', '.join(FORMATS)}.")
        return FORMATS[name]
    end = Path(path).name.lower()
    suffixes = [(suffix, format) for format in FORMATS.values() for suffix in format.suffixes]
    # ".quepid.csv" before ".csv"
    for suffix, format in sorted(suffixes, key=lambda known: -len(known[0])):
        if end.endswith(suffix):
            return format
    if is_stream(path):
        return CSV  # names of pipes and devices tell nothing
    such = either('.write(path, format="quepid")', "--format quepid")
    raise JudgmentsError(
        f"{path}: the end of the name does not tell a format. Choose one of {', '.join(FORMATS)}, "
        f"as in {such}."
    )


def write_judgments(
    judgments: Judgments, path: Any, format: str | None, options: WriteOptions
) -> Written:
    """Write judgments as a whole file or not at all; several parts one by one, then together."""
    chosen = format_of(path, format)
    options.check(chosen)
    left_out = options.left_out(judgments) if chosen.is_graded else (0, 0)
    if chosen.is_graded and sum(left_out) == len(judgments):
        raise nothing_graded(judgments, chosen)
    target = Path(path).expanduser()
    n_written, pieces, remarks = 0, list[Path](), list[str]()
    with scratch_folder(target, JudgmentsError) as folder:
        for part in judgments.parts():
            pairs = graded_pairs(part.frame, chosen, options) if chosen.is_graded else part.frame
            if len(pairs) or len(judgments.numbers) == 1:
                pieces.append(folder / pairs_name(part.number))
                said = chosen.write(judgments, pairs, pieces[-1], options)
                remarks = remarks or said
                n_written += len(pairs)
        with whole_file(target, JudgmentsError) as temporary:
            if len(pieces) == 1:
                pieces[0].replace(temporary)
            else:
                chosen.join(pieces, temporary, judgments)
    if len(pieces) > 1:
        remarks = [f"{remark} (and perhaps more in other parts)" for remark in remarks]
    told = (*judgments.remarks, *remarks)
    return Written(Path(path), chosen.name, n_written, *left_out, told)
