"""Plain files: CSV and Parquet with everything that is known of each pair, and TREC qrels.

CSV and Parquet hold insufficient pairs, too. Qrels hold grades, as trec_eval, pytrec_eval and
ir_measures read them: query 0 doc grade.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from gecasmo.judgments.formats.format import (
    JudgmentFormat,
    WriteOptions,
    as_text,
    join_tables,
    without_spaces,
)
from gecasmo.judgments.judged import Judgments


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
