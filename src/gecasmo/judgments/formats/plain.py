"""Everything that is known of each pair, insufficient ones too: CSV and Parquet."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from gecasmo.judgments.counting import Told
from gecasmo.judgments.formats.joining import join_parquet, join_tables
from gecasmo.judgments.formats.writing import JudgmentFormat, Options, as_text


def write_csv(judgments: Told, pairs: pl.DataFrame, path: Path, options: Options) -> list[str]:
    names = [name for name in ("query", "doc") if name in pairs.columns]
    pairs.with_columns(as_text(pairs[name]) for name in names).write_csv(path)
    return []


def write_parquet(judgments: Told, pairs: pl.DataFrame, path: Path, options: Options) -> list[str]:
    pairs.write_parquet(path, metadata={"gecasmo": json.dumps(judgments.summary())})
    return []


CSV = JudgmentFormat("csv", "everything, CSV", (".csv",), write_csv, False, (), join_tables)
PARQUET = JudgmentFormat(
    "parquet", "everything, Parquet", (".parquet",), write_parquet, False, (), join_parquet
)
