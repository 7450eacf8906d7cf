"""What a format of logs is: how it is recognised, read and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.logs.inputs import MAX_LINE, Input
from gecasmo.logs.notes import Notebook

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog


@dataclass(frozen=True)
class ReadOptions:
    """What a reader may need to know.

    Attributes
    ----------
    max_line
        The longest line allowed in a text file, in bytes.
    id_columns
        Names of the columns that hold ids, for tables.
    """

    max_line: int = MAX_LINE
    id_columns: Sequence[str] = ("session", "query", "doc")


class Head:
    """The beginning of a file, to recognise its format by.

    Parameters
    ----------
    file
        The file.
    """

    def __init__(self, file: Input) -> None:
        self.name = file.name
        self.schema: dict[str, pl.DataType] = _schema(file) if file.is_parquet else {}
        self.start = b"" if file.is_parquet else file.head
        self.line = _first_line(self.start)

    @property
    def is_parquet(self) -> bool:
        """Whether the file is a Parquet table."""
        return bool(self.schema)

    def has_fields(self, *names: str) -> bool:
        """Whether the columns (or the keys of the first JSON object) have all these names."""
        found = self.schema or self.first_record
        return all(name in found for name in names)

    @property
    def first_record(self) -> dict[str, Any]:
        """The first JSON object of the file, or an empty one."""
        try:
            record = json.loads(self.line)
        except (ValueError, RecursionError):
            return {}
        return record if isinstance(record, dict) else {}


@dataclass(frozen=True)
class Format:
    """One format of logs.

    Attributes
    ----------
    name
        What ``format=`` takes.
    title
        What people call it.
    description
        What a file looks like, in a sentence.
    sniff
        Says whether the beginning of a file looks like this format.
    read
        Reads a source, and notes what was met on the way. The table has one row a result, or one
        row a page with lists of results, in columns that carry the names of the roles.
    write
        Writes a log, or None when the format is only read.
    """

    name: str
    title: str
    description: str
    sniff: Callable[[Head], bool]
    read: Callable[[Any, ReadOptions, Notebook], pl.DataFrame]
    write: Callable[[ClickLog, Path], None] | None = None


def _schema(file: Input) -> dict[str, pl.DataType]:
    try:
        return file.parquet_schema()
    except (pl.exceptions.PolarsError, OSError):
        return {}  # whoever reads it will tell


def _first_line(head: bytes) -> str:
    """Find the first line that is not blank."""
    text = head.decode("utf-8", errors="replace").removeprefix("\ufeff")
    return next((line.rstrip("\r") for line in text.split("\n") if line.strip()), "")
