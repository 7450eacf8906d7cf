"""Writing a log as a table, so that no reader ever sees half a file."""

from __future__ import annotations

from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.files import whole_file
from gecasmo.logs.compression import packed
from gecasmo.logs.formats.writing import packing_of
from gecasmo.logs.separated import SEPARATORS
from gecasmo.logs.table_files import first_line, kind_of_name

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog


def write_table(log: ClickLog, path: Path) -> None:
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
