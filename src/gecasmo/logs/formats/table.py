"""Tables with columns of any name: long or nested, from files, pipes, data frames or dicts.

Written, a table appears whole, so that no reader ever sees half a file.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.files import whole_file
from gecasmo.logs.compression import packed
from gecasmo.logs.formats.format import Format, Options, Reading, Sample
from gecasmo.logs.formats.writing import packing_of
from gecasmo.logs.inputs import Opened, open_inputs
from gecasmo.logs.notes import Notebook
from gecasmo.logs.table_files import SEPARATORS, first_line, kind_of_name, read_table_files

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog


def sniff(sample: Sample) -> bool:
    """Say yes: what no other format claims is a table, or nothing."""
    return True


def read(source: Any, options: Options) -> Reading:
    """Read a table as it stands."""
    notes = Notebook()
    table = open_table(source, options.id_columns, options.max_line, notes)
    return Reading(table, notes.notes)


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


def write(log: ClickLog, path: Path) -> None:
    """Write a log as a table; `ClickLog.write` explains the kinds.

    Parameters
    ----------
    log
        The log.
    path
        Where to.

    Raises
    ------
    ClickLogError
        When the format cannot hold the log, or the file cannot be written.
    """
    kind = kind_of_name(path.name)
    if kind is None:
        raise ClickLogError(
            f"{path}: write to a name that ends in .parquet, .csv, .tsv or .jsonl (text also .gz "
            "or .zst), or name a format."
        )
    has_empty_pages = bool((log.lengths == 0).any())
    frame = _one_row_a_page(log) if has_empty_pages else log.to_frame()
    if kind in SEPARATORS:
        _refuse_nested(frame, has_empty_pages, path)
    if kind == "json":
        _refuse_odd_floats(frame, path)
    with whole_file(path, ClickLogError) as temporary:
        try:
            if kind == "parquet":
                frame.write_parquet(temporary)
                return
            with packed(temporary, packing_of(path)) as file:
                _write_text(frame, kind, file)
        except pl.exceptions.PolarsError as error:
            raise ClickLogError(f"{path} cannot be written: {first_line(error)}") from error


def _write_text(frame: pl.DataFrame, kind: str, file: IO[bytes]) -> None:
    if kind == "json":
        frame.write_ndjson(file)
    else:
        frame.write_csv(file, separator=SEPARATORS[kind])


def _refuse_nested(frame: pl.DataFrame, has_empty_pages: bool, path: Path) -> None:
    if has_empty_pages:
        raise ClickLogError(
            f"{path}: text files cannot hold pages without results; write to .parquet or .jsonl."
        )
    held_in_lists = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    if held_in_lists:
        raise ClickLogError(
            f"{path}: text files cannot hold the columns {', '.join(held_in_lists)}, "
            "which have several values a row; write to .parquet."
        )


def _refuse_odd_floats(frame: pl.DataFrame, path: Path) -> None:
    # JSON has no such numbers; they would come back as missing values.
    for name, dtype in frame.schema.items():
        flat = frame[name].explode() if isinstance(dtype, pl.List) else frame[name]
        if flat.dtype.is_float() and not flat.drop_nulls().is_finite().all():
            raise ClickLogError(
                f"{path}: JSON cannot hold the column {name!r}, which has numbers that are not "
                "finite; write to .parquet."
            )
        if flat.dtype == pl.Binary:
            raise ClickLogError(f"{path}: JSON cannot hold the column {name!r}, which is bytes.")


def _one_row_a_page(log: ClickLog) -> pl.DataFrame:
    """Lay a log out with one row a page, because a page without results has no row of its own."""
    single = [] if log.page_columns is None else log.page_columns.get_columns()
    weighted = not np.all(log.weight == 1)
    fixed = [log.sessions.alias("session"), *single]
    if weighted:
        fixed.append(pl.Series("weight", log.weight))
    lists = log.to_frame().drop((column.name for column in fixed), strict=False)
    grouped = lists.with_columns(session=log.page).group_by("session").agg(pl.all())
    numbers = pl.DataFrame({"session": np.arange(log.n_sessions, dtype=np.uint32)})
    nested = numbers.join(grouped, on="session", how="left", maintain_order="left")
    nested = nested.with_columns(pl.col(lists.columns).fill_null([]))
    nested = nested.with_columns(fixed)
    return nested.select(*log.columns, *(["weight"] if weighted else []))


TABLE = Format(
    "table",
    "a table",
    "Parquet, CSV, TSV or JSON lines with one row a result, or one row a page with lists",
    sniff,
    read,
    write,
)
