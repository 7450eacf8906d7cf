"""Sources of an ingest: each is a stream of batches, in order, that can start in the middle.

Here are those that come in pieces anyway: tables and logs in memory, or made one after the other;
and logs in formats of their own, a file at a time. `ParquetFiles` and `TextFiles` have modules of
their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.formats import Format, ReadOptions
from gecasmo.logs.formats.table import TABLE
from gecasmo.logs.inputs import Opened
from gecasmo.logs.notes import Note, Notebook
from gecasmo.logs.reader import read_as
from gecasmo.logs.store.plan import Schema, Wishes

Place = dict[str, int]
# The queries of this format are in other files than its events.
READ_AT_ONCE = ("ubi",)


@dataclass(frozen=True)
class Segment:
    """Some rows of one file: which file, the first of the rows, and how many they are."""

    file: int
    first: int
    rows: int


@dataclass(frozen=True)
class SourceBatch:
    """Some rows of a source.

    Attributes
    ----------
    content
        A part of a table, or a log that was read already.
    segments
        Where the rows come from, in order.
    place
        Where the next batch starts.
    notes
        What a reader met in it.
    """

    content: pl.DataFrame | ClickLog
    segments: tuple[Segment, ...]
    place: Place
    notes: tuple[Note, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows (of a table) or results (of a log) it has."""
        return sum(segment.rows for segment in self.segments)


Batches = Iterator[SourceBatch]


class BatchSource(ABC):
    """What can be read batch by batch.

    Attributes
    ----------
    label
        How messages call all of it.
    files
        What its files (or parts) are called.
    can_resume
        Whether it can be read again from a place, and is then the same.
    notes
        What was met in all of it.
    """

    label: str
    files: Sequence[str]
    can_resume: bool = True
    notes: Sequence[Note] = ()

    @abstractmethod
    def schema(self) -> Schema | None:
        """The columns of a table, and their data types; None for logs that are read already."""

    @abstractmethod
    def n_rows(self) -> int | None:
        """How many rows there are, as far as can be told beforehand."""

    @abstractmethod
    def batches(self, columns: Sequence[str], rows: int, after: Place | None) -> Batches:
        """Read columns in batches of about so many rows, from a place on."""

    def first_log(self) -> ClickLog:
        """The first log of a source of logs."""
        raise NotImplementedError

    def row_name(self, segments: Iterable[Segment], row: int) -> str:
        """Name a row of some segments, by its file where there are several."""
        for segment in segments:
            if row < segment.rows:
                break
            row -= segment.rows
        where = f"row {segment.first + row}"
        return f"{where} of {self.files[segment.file]}" if len(self.files) > 1 else where


def joined(parts: Iterable[SourceBatch], rows: int) -> Batches:
    """Put small batches together, so that many small files do not make many small batches."""
    waiting: list[SourceBatch] = []
    for part in parts:
        waiting.append(part)
        if sum(each.rows for each in waiting) >= rows:
            yield _one(waiting)
            waiting = []
    if waiting:
        yield _one(waiting)


def _one(parts: list[SourceBatch]) -> SourceBatch:
    if len(parts) == 1:
        return parts[0]
    frames: list[Any] = [part.content for part in parts]
    segments = tuple(segment for part in parts for segment in part.segments)
    return SourceBatch(pl.concat(frames), segments, parts[-1].place)


class Frames(BatchSource):
    """Tables or logs, one or many (also a LazyFrame); an iterator is used up."""

    can_resume = False

    def __init__(self, source: Any) -> None:
        self._source = source
        self._items = _items(source)
        first = next(self._items, None)
        if first is None:
            raise ClickLogError("ingest: there is nothing in the source.")
        self._first = first
        self._is_one = _is_table(source) or isinstance(source, ClickLog | pl.LazyFrame)
        self.label = "the data frame" if self._is_one else "the data"
        self.files = [self.label]

    def first_log(self) -> ClickLog:
        """The first log."""
        assert isinstance(self._first, ClickLog)
        return self._first

    def schema(self) -> Schema | None:
        """The columns of the first table."""
        return None if isinstance(self._first, ClickLog) else dict(self._first.schema)

    def n_rows(self) -> int | None:
        """The rows, where all are in memory."""
        if isinstance(self._source, ClickLog):
            return self._source.n_results
        if isinstance(self._first, ClickLog) or not self._is_one or self._is_lazy:
            return None
        return self._first.height

    @property
    def _is_lazy(self) -> bool:
        return isinstance(self._source, pl.LazyFrame)

    def batches(self, columns: Sequence[str], rows: int, after: Place | None) -> Batches:
        """Read columns in batches."""
        done = 0
        for item in chain([self._first], self._items):
            if isinstance(item, ClickLog) != isinstance(self._first, ClickLog):
                raise ClickLogError("ingest: tables and logs cannot be mixed.")
            if isinstance(item, ClickLog):
                yield SourceBatch(item, (Segment(0, done, item.n_results),), {}, item.notes)
                done += item.n_results
                continue
            self._check_columns(item, columns)
            for start in range(0, item.height, rows):
                part = item.select(columns).slice(start, rows)
                yield SourceBatch(part, (Segment(0, done, part.height),), {})
                done += part.height

    def _check_columns(self, item: pl.DataFrame, columns: Sequence[str]) -> None:
        assert isinstance(self._first, pl.DataFrame)
        for name in columns:
            if item.schema.get(name) != self._first.schema[name]:
                has = f"holds {item.schema[name]}" if name in item.columns else "is not"
                raise ClickLogError(
                    f"ingest: the column {name!r} holds {self._first.schema[name]} in the first "
                    f"table, and {has} in a later one."
                )


def _items(source: Any) -> Iterator[pl.DataFrame | ClickLog]:
    if isinstance(source, ClickLog):
        yield source
    elif isinstance(source, pl.LazyFrame):
        yield from source.collect_batches(maintain_order=True, lazy=True)
    elif _is_table(source):
        yield _table(source)
    elif isinstance(source, Iterable):
        for item in source:
            yield item if isinstance(item, ClickLog) else _table(item)
    else:
        raise ClickLogError(
            f"ingest cannot read a {type(source).__name__}. It reads paths and globs, tables, "
            "logs, and iterables of tables or logs."
        )


def _is_table(source: Any) -> bool:
    return isinstance(source, pl.DataFrame | Mapping) or hasattr(source, "__arrow_c_stream__")


def _table(item: Any) -> pl.DataFrame:
    return TABLE.read(item, ReadOptions(id_columns=()), Notebook())


class FormatFiles(BatchSource):
    """Files of a format, or what else the format reads; each has whole pages."""

    def __init__(self, source: Any, format: Format, wishes: Wishes) -> None:
        self._format, self._wishes = format, wishes
        at_once = format.name in READ_AT_ONCE or not isinstance(source, Opened)
        self._parts = [source] if at_once else [Opened(file.name, [file]) for file in source]
        self.can_resume = isinstance(source, Opened) and all(f.path is not None for f in source)
        self.label = source.label if isinstance(source, Opened) else "the files"
        self.files = [getattr(part, "label", self.label) for part in self._parts]
        self._known: tuple[int, ClickLog] | None = None

    def first_log(self) -> ClickLog:
        """The log of the first file."""
        return self._log(0)

    def schema(self) -> None:
        """None: the logs are read already."""
        return

    def n_rows(self) -> int | None:
        """Unknown before all files are read."""
        return None

    def batches(self, columns: Sequence[str], rows: int, after: Place | None) -> Batches:
        """Read the files one after the other, from a place on."""
        for number in range(after["file"] if after else 0, len(self._parts)):
            log = self._log(number)
            segment = Segment(number, 0, log.n_results)
            yield SourceBatch(log, (segment,), {"file": number + 1}, log.notes)

    def _log(self, number: int) -> ClickLog:
        if self._known is not None and self._known[0] == number:
            return self._known[1]
        self._known = None
        wishes, label = self._wishes, self.files[number]
        log = read_as(self._format, self._parts[number], wishes.roles(), wishes.max_line, label)
        self._known = (number, log)
        return log
