"""From whatever holds a log (files, data frames, columns) to one Polars data frame."""

from __future__ import annotations

import glob
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.text_ids import integers_where_exact

PARQUET_SUFFIXES = (".parquet", ".pq")
CSV_SUFFIXES = (".csv", ".csv.gz", ".csv.zst")
TSV_SUFFIXES = (".tsv", ".tsv.gz", ".tsv.zst")


def source_label(source: object) -> str:
    """Say how messages call the source."""
    if isinstance(source, str | Path):
        return str(source)
    return "the dict" if isinstance(source, Mapping) else "the data frame"


def open_table(source: Any, id_columns: Sequence[str]) -> pl.DataFrame:
    """Read a source into memory.

    Parameters
    ----------
    source
        A path or glob, a Polars LazyFrame, an object with the Arrow C stream protocol, or a dict
        of columns.
    id_columns
        Names of the columns that hold ids; in text files these keep their exact text.

    Returns
    -------
    pl.DataFrame

    Raises
    ------
    ClickLogError
        When there is no such file, or the source is not a table.
    """
    if isinstance(source, str | Path):
        return _read_files(str(source), id_columns)
    try:
        if isinstance(source, pl.DataFrame):
            return source
        if isinstance(source, pl.LazyFrame):
            return source.collect()
        if isinstance(source, Mapping):
            return _from_columns(source)
        if hasattr(source, "__arrow_c_stream__"):
            if type(source).__module__.startswith("pandas") and not _has_pyarrow():
                # pandas speaks Arrow only through PyArrow; plain lists say the same, slower.
                return _from_columns({str(name): source[name].tolist() for name in source})
            return pl.DataFrame(source)
    except Exception as error:
        # Each producer has its own errors (Polars, Arrow, DuckDB); none of them knows the task.
        raise ClickLogError(
            f"{source_label(source).capitalize()} cannot be read as a table: {_first_line(error)}"
        ) from error
    raise ClickLogError(
        f"read_log cannot read a {type(source).__name__}. It reads a Parquet or CSV path or glob, "
        "a Polars, pandas, PyArrow or DuckDB table (anything with __arrow_c_stream__), "
        "or a dict of columns."
    )


def _has_pyarrow() -> bool:
    return importlib.util.find_spec("pyarrow") is not None


def _from_columns(columns: Mapping[str, Any]) -> pl.DataFrame:
    try:
        return pl.DataFrame(dict(columns))
    except TypeError:
        return pl.DataFrame({name: _loose_numbers(values) for name, values in columns.items()})


def _loose_numbers(values: Any) -> Any:
    """Read a list such as [1, 0.5] as floats; Polars refuses to mix the two."""
    if not isinstance(values, list | tuple):
        return values
    if all(isinstance(value, int | float) for value in values):
        return np.asarray(values, dtype=np.float64)
    return values


def _read_files(pattern: str, id_columns: Sequence[str]) -> pl.DataFrame:
    paths = _matching_files(pattern)
    formats = {_format(path) for path in paths}
    if len(formats) > 1 or None in formats:
        raise ClickLogError(
            f"{pattern} does not look like one kind of log file; "
            f"the name should end in {', '.join(PARQUET_SUFFIXES + CSV_SUFFIXES + TSV_SUFFIXES)}."
        )
    try:
        if formats == {"parquet"}:
            return pl.scan_parquet(paths, glob=False, hive_partitioning=False).collect()
        table = pl.scan_csv(
            paths,
            glob=False,
            separator="\t" if formats == {"tsv"} else ",",
            schema_overrides=dict.fromkeys(id_columns, pl.String),
            infer_schema_length=None,
            infer_schema_files=len(paths),
        ).collect()
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ClickLogError(f"{pattern} cannot be read: {_first_line(error)}") from error
    return table.with_columns(
        integers_where_exact(table[name]) for name in id_columns if name in table.columns
    )


def _matching_files(pattern: str) -> list[str]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        raise ClickLogError(
            f"{pattern} is a folder; name its files, such as {str(path / '*.parquet')!r}."
        )
    if path.exists():
        # A file may have brackets in its name, which a glob would read as a set of letters.
        return [str(path)]
    if not glob.has_magic(pattern):
        raise ClickLogError(f"{pattern} cannot be read: there is no such file.")
    paths = sorted(p for p in glob.glob(str(path), recursive=True) if Path(p).is_file())
    if not paths:
        raise ClickLogError(f"{pattern} cannot be read: no file matches the pattern.")
    return paths


def _format(path: str) -> str | None:
    name = path.lower()
    for kind, suffixes in (
        ("parquet", PARQUET_SUFFIXES),
        ("csv", CSV_SUFFIXES),
        ("tsv", TSV_SUFFIXES),
    ):
        if name.endswith(suffixes):
            return kind
    return None


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
