"""Writing a log so that no reader ever sees half a file."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.sources import PARQUET_SUFFIXES

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog

SEPARATORS = {".csv": ",", ".tsv": "\t"}


def write_log(log: ClickLog, pages: pl.DataFrame | None, path: Path) -> None:
    """Write a log; `ClickLog.write` explains the format.

    Parameters
    ----------
    log
        The log.
    pages
        Its columns with one value a session, if it came from a nested source.
    path
        Where to.

    Raises
    ------
    ClickLogError
        When the format cannot hold the log, or the file cannot be written.
    """
    path = path.expanduser()
    suffix = path.suffix.lower()
    if suffix not in (*PARQUET_SUFFIXES, *SEPARATORS):
        raise ClickLogError(f"{path}: write to a name that ends in .parquet, .csv or .tsv.")
    has_empty_pages = bool((log.lengths == 0).any())
    frame = _one_row_a_page(log, pages) if has_empty_pages else log.to_frame()
    if suffix in SEPARATORS:
        held_in_lists = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
        if has_empty_pages:
            raise ClickLogError(
                f"{path}: text files cannot hold pages without results; write to .parquet."
            )
        if held_in_lists:
            raise ClickLogError(
                f"{path}: text files cannot hold the columns {', '.join(held_in_lists)}, "
                "which have several values a row; write to .parquet."
            )
    try:
        _write_whole(frame, path, SEPARATORS.get(suffix))
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ClickLogError(f"{path} cannot be written: {error}") from error


def _write_whole(frame: pl.DataFrame, path: Path, separator: str | None) -> None:
    # Beside the target, since only a move within one file system is a single step.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with temporary.open("xb") as file:
            if separator is None:
                frame.write_parquet(file)
            else:
                frame.write_csv(file, separator=separator)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _one_row_a_page(log: ClickLog, pages: pl.DataFrame | None) -> pl.DataFrame:
    """Lay a log out with one row a page, because a page without results has no row of its own."""
    single = [] if pages is None else pages.get_columns()
    lists = log.to_frame().drop("session", "weight", *(c.name for c in single), strict=False)
    grouped = lists.with_columns(session=log.page).group_by("session").agg(pl.all())
    numbers = pl.DataFrame({"session": np.arange(log.n_sessions, dtype=np.uint32)})
    nested = numbers.join(grouped, on="session", how="left", maintain_order="left")
    nested = nested.with_columns(pl.col(lists.columns).fill_null([]))
    fixed = [log.sessions.alias("session"), *single]
    if not np.all(log.weight == 1):
        fixed.append(pl.Series("weight", log.weight))
    nested = nested.with_columns(fixed)
    return nested.select(name for name in (*log.columns, "weight") if name in nested.columns)
