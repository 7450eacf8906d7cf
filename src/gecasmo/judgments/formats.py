"""Judgment files by name, and how a file of many parts is put together.

CSV, Parquet and Quepid's Book hold every pair, insufficient ones, too; all others hold grades, or
ratings. A new kind of file is a writer, a `JudgmentFormat`, and its place in `FORMATS`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from gecasmo.errors import either, option
from gecasmo.files import is_stream, scratch_folder, whole_file
from gecasmo.judgments.files import (
    Companion,
    JudgmentFormat,
    WriteOptions,
    Written,
    as_text,
    graded_pairs,
    join_tables,
    nothing_graded,
    without_spaces,
)
from gecasmo.judgments.grades import JudgmentsError
from gecasmo.judgments.judged import Judgments, pairs_name
from gecasmo.judgments.search_formats import BOOK, ELASTICSEARCH, OPENSEARCH, QUEPID
from gecasmo.judgments.training_formats import LIGHTGBM, RANKLIB, XGBOOST


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


# -- all of them ---------------------------------------------------------------------------------
_SEARCH = (QUEPID, OPENSEARCH, ELASTICSEARCH, BOOK)
_TRAINING = (RANKLIB, LIGHTGBM, XGBOOST)
FORMATS: dict[str, JudgmentFormat] = {
    format.name: format for format in (*_SEARCH, *_TRAINING, QRELS, CSV, PARQUET)
}
# Names that users of other tools look for.
ALIASES: dict[str, str] = {
    **dict.fromkeys(("trec", "trec_eval", "pytrec_eval", "ir_measures", "ranx"), "qrels"),
    **dict.fromkeys(("libsvm", "svmlight", "scikit-learn", "sklearn"), "xgboost"),
    **dict.fromkeys(("elasticsearch-ltr", "letor"), "ranklib"),
    "quepid-case": "quepid",
}


def format_of(path: Any, name: str | None = None) -> JudgmentFormat:
    """The format of this name, or else the one that the end of the path tells."""
    if name is not None:
        chosen = ALIASES.get(name, name)
        if chosen not in FORMATS:
            raise JudgmentsError(
                f"{option('format', name)}: choose one of {', '.join(FORMATS)}; or by the name of "
                f"a reader: {', '.join(ALIASES)}."
            )
        return FORMATS[chosen]
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
        f"{path}: the ending of the name is not that of a format. Choose one of "
        f"{', '.join(FORMATS)}, "
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
    if chosen.companions:
        _refuse_stream(path, chosen)
    n_written, pieces, remarks = 0, list[Path](), list[str]()
    beside: dict[Companion, list[Path]] = {one: [] for one in chosen.companions}
    with scratch_folder(target, JudgmentsError) as folder:
        for part in judgments.parts():
            pairs = graded_pairs(part.frame, chosen, options) if chosen.is_graded else part.frame
            if len(pairs) or len(judgments.numbers) == 1:
                pieces.append(folder / pairs_name(part.number))
                said = chosen.write(judgments, pairs, pieces[-1], options)
                remarks = remarks or said
                n_written += len(pairs)
                for companion, files in beside.items():
                    text = companion.write(pairs, options)
                    if text is not None:
                        files.append(folder / f"{pairs_name(part.number)}{companion.suffix}")
                        files[-1].write_text(text, encoding="utf-8", newline="")
        remarks += _write_beside(beside, target, judgments)
        with whole_file(target, JudgmentsError) as temporary:
            if len(pieces) == 1:
                pieces[0].replace(temporary)
            else:
                chosen.join(pieces, temporary, judgments)
    if len(pieces) > 1:
        remarks = [f"{remark} (and perhaps more in other parts)" for remark in remarks]
    told = (*judgments.remarks, *remarks)
    return Written(Path(path), chosen.name, n_written, *left_out, told)


def _refuse_stream(path: Any, format: JudgmentFormat) -> None:
    if is_stream(path):
        raise JudgmentsError(
            f"'{format.name}' files have others beside them, so give the name of a file."
        )


def _write_beside(
    beside: Mapping[Companion, list[Path]], target: Path, judgments: Judgments
) -> list[str]:
    """Write the files that belong to a file; they are there before it is."""
    remarks = []
    for companion, files in beside.items():
        place = target.with_name(target.name + companion.suffix)
        if files:
            with whole_file(place, JudgmentsError) as temporary:
                companion.join(files, temporary, judgments)
            remarks.append(f"beside it: {place.name}")
        elif place.exists():
            raise JudgmentsError(
                f"{place} is from before, and would be read as a part of {target.name}: remove it."
            )
    return remarks
