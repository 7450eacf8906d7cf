"""A glance at a log before it is read: its format and its columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from gecasmo.logs.formats import detect_format, format_named
from gecasmo.logs.inputs import Input, open_inputs
from gecasmo.logs.separated import separator_of
from gecasmo.logs.table_files import kind_of_content, kind_of_name


@dataclass(frozen=True)
class Peek:
    """What a glance at a log shows.

    Attributes
    ----------
    source
        The source, which `read_log` takes; what came through a pipe is kept in it.
    format
        The name of its format.
    columns
        The names of its columns, for a table; empty for the other formats, whose readers know.
    """

    source: Any
    format: str
    columns: tuple[str, ...]


def peek(source: Any, format: str | None = None) -> Peek:
    """Look at a log without reading all of it.

    Parameters
    ----------
    source
        What `read_log` takes.
    format
        The format, where it is known.

    Returns
    -------
    Peek

    Raises
    ------
    ClickLogError
        When there is no such file or format.
    """
    if format is not None:
        format_named(format)
    if isinstance(source, str | Path):
        source = open_inputs(source, folders=format not in (None, "table"))
    found = format if format is not None else detect_format(source)
    return Peek(source, found, _columns(source) if found == "table" else ())


def _columns(source: Any) -> tuple[str, ...]:
    if isinstance(source, pl.LazyFrame):
        return tuple(source.collect_schema())
    if isinstance(source, Mapping):
        return tuple(map(str, source))
    columns = getattr(source, "columns", None)
    if columns is not None:
        return tuple(map(str, getattr(source, "column_names", columns)))
    try:
        return _columns_of_file(source[0])
    except (pl.exceptions.PolarsError, OSError, IndexError, TypeError):
        return ()  # reading it will tell what is wrong


def _columns_of_file(file: Input) -> tuple[str, ...]:
    kind = kind_of_content(file) if file.path is None else kind_of_name(file.name)
    if kind == "parquet":
        return tuple(file.parquet_schema())
    head = file.head[: file.head.rfind(b"\n") + 1] or file.head
    if kind == "json":
        return tuple(pl.read_ndjson(head, infer_schema_length=None).columns)
    separator = separator_of(file, "tsv" if kind == "tsv" else "csv")
    return tuple(pl.read_csv(head, separator=separator, n_rows=0).columns)
