"""From whatever holds a log (files, data frames, columns) to one Polars data frame."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.inputs import Opened, open_inputs
from gecasmo.logs.notes import Notebook
from gecasmo.logs.table_files import first_line, read_table_files


def source_label(source: object) -> str:
    """Say how messages call the source."""
    if isinstance(source, Opened):
        return source.label
    if isinstance(source, str | Path):
        return str(source)
    return "the dict" if isinstance(source, Mapping) else "the data frame"


def open_table(
    source: Any, id_columns: Sequence[str], max_line: int, notes: Notebook
) -> pl.DataFrame:
    """Read a source into memory.

    Parameters
    ----------
    source
        A path, a glob or opened files, a Polars LazyFrame, an object with the Arrow C stream
        protocol, or a dict of columns.
    id_columns
        Names of the columns that hold ids; in text files these keep their exact text.
    max_line
        The longest line allowed in a text file, in bytes.
    notes
        Where it is noted what was met in files.

    Returns
    -------
    pl.DataFrame

    Raises
    ------
    ClickLogError
        When there is no such file, or the source is not a table.
    """
    if isinstance(source, str | Path | Opened):
        return read_table_files(open_inputs(source), id_columns, max_line, notes)
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
            f"{source_label(source).capitalize()} cannot be read as a table: {first_line(error)}"
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
    is_mixed = {int, float} <= {type(value) for value in values}
    if is_mixed and all(isinstance(value, int | float) for value in values):
        return np.asarray(values, dtype=np.float64)
    return values
