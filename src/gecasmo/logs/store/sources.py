"""Sources of an ingest: each is a stream of batches, in order, that can start in the middle.

Tables and logs in memory, or made one after the other; logs in formats of their own, a file at a
time; and Parquet files. `TextFiles` has a module of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from itertools import chain
from typing import Any

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.frames import batches_of
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.formats import Format, ReadOptions
from gecasmo.logs.formats.table import TABLE
from gecasmo.logs.inputs import Opened, naming
from gecasmo.logs.notes import Note, Notebook
from gecasmo.logs.reader import read_as
from gecasmo.logs.roles import Roles
from gecasmo.logs.store.plan import Schema, Wishes
from gecasmo.parquet import largest_row_group

Place = dict[str, int]
# Queries may be in other files than events, and events of a page far apart.
READ_AT_ONCE = ("ubi", "events")
# What Polars needs to read a byte of a row group, measured: the pages, and what is made of them.
MEMORY_OF_A_BYTE = 2


@dataclass(frozen=True)
class Segment:
    """Some rows of one file: which file, the first of the rows, and how many they are."""

    file: int
    first: int
    rows: int


@dataclass(frozen=True)
class SourceBatch:
    """Some rows of a source."""

    content: pl.DataFrame | ClickLog  # a part of a table, or a log that was read already
    segments: tuple[Segment, ...]  # where the rows come from, in order
    place: Place  # where the next batch starts
    notes: tuple[Note, ...] = ()  # what a reader met in it

    @property
    def rows(self) -> int:
        """How many rows (of a table) or results (of a log) it has."""
        return sum(segment.rows for segment in self.segments)


Batches = Iterator[SourceBatch]


class BatchSource(ABC):
    """What can be read batch by batch."""

    label: str  # how messages call all of it
    files: Sequence[str]  # what its files (or parts) are called
    can_resume: bool = True  # whether it can be read again from a place, and is then the same
    notes: Sequence[Note] = ()  # what was met in all of it

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
    """Put small batches together, so that many small files do not make many small batches.

    What is wrong with a part is raised after those before it were worked on.
    """
    waiting: list[SourceBatch] = []
    try:
        for part in parts:
            waiting.append(part)
            if sum(each.rows for each in waiting) >= rows:
                whole, waiting = waiting, []
                yield _one(whole)
    except ClickLogError:
        if waiting:
            yield _one(waiting)
        raise
    if waiting:
        yield _one(waiting)


def _one(parts: list[SourceBatch]) -> SourceBatch:
    if len(parts) == 1:
        return parts[0]
    frames: list[Any] = [part.content for part in parts]
    segments = tuple(segment for part in parts for segment in part.segments)
    return SourceBatch(pl.concat(frames), segments, parts[-1].place)


def read_ahead(batches: Batches) -> Batches:
    """The same batches, each read while the one before it is worked on.

    What goes wrong is raised where the batch would have come. This is for files: an iterator of
    somebody else's may have to stay in the thread that made it.
    """
    settings = copy_context()  # such as the language of messages, which threads do not inherit

    def following() -> SourceBatch | None:
        return settings.run(lambda: next(batches, None))

    with ThreadPoolExecutor(1, "gecasmo-reader") as reader:
        coming = reader.submit(following)
        while (batch := coming.result()) is not None:
            coming = reader.submit(following)
            yield batch


class Frames(BatchSource):
    """Tables or logs, one or many (also a LazyFrame); an iterator is used up."""

    can_resume = False

    def __init__(self, source: Any, label: str | None = None) -> None:
        self._source = source
        self._items = _items(source, label or "the data frame")
        first = next(self._items, None)
        if first is None:
            raise ClickLogError("ingest: there is nothing in the source.")
        self._first = first
        self._is_one = _is_table(source) or isinstance(source, ClickLog | pl.LazyFrame)
        self.label = label or ("the data frame" if self._is_one else "the data")
        self.files = [self.label]

    def first_log(self) -> ClickLog:
        assert isinstance(self._first, ClickLog)
        return self._first

    def schema(self) -> Schema | None:
        return None if isinstance(self._first, ClickLog) else dict(self._first.schema)

    def n_rows(self) -> int | None:
        if isinstance(self._source, ClickLog):
            return self._source.n_results
        is_known = self._is_one and not isinstance(self._source, pl.LazyFrame)
        return self._first.height if is_known and isinstance(self._first, pl.DataFrame) else None

    def batches(self, columns: Sequence[str], rows: int, after: Place | None) -> Batches:
        found = self._parts(columns, rows)
        return found if isinstance(self._first, ClickLog) else joined(found, rows)

    def _parts(self, columns: Sequence[str], rows: int) -> Batches:
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


def _items(source: Any, label: str) -> Iterator[pl.DataFrame | ClickLog]:
    if isinstance(source, ClickLog):
        yield source
    elif isinstance(source, pl.LazyFrame):
        with naming(label):
            yield from batches_of(source)
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
        return self._log(0)

    def schema(self) -> None:
        return

    def n_rows(self) -> None:
        return  # unknown before all files are read

    def batches(self, columns: Sequence[str], rows: int, after: Place | None) -> Batches:
        for number in range(after["file"] if after else 0, len(self._parts)):
            log = self._log(number)
            segment = Segment(number, 0, log.n_results)
            yield SourceBatch(log, (segment,), {"file": number + 1}, log.notes)

    def _log(self, number: int) -> ClickLog:
        if self._known is not None and self._known[0] == number:
            return self._known[1]
        self._known = None
        wishes, label = self._wishes, self.files[number]
        log = read_as(
            self._format, self._parts[number], Roles(wishes.given), wishes.max_line, label
        )
        self._known = (number, log)
        return log


class ParquetFiles(BatchSource):
    """Parquet files with the same columns."""

    def __init__(self, inputs: Opened) -> None:
        self.label = inputs.label
        self.files = [file.name for file in inputs]
        self._inputs = inputs

    def schema(self) -> Schema:
        return self._schema(0)

    def n_rows(self) -> int:
        total = 0
        for number in range(len(self.files)):
            with naming(self.files[number], quietly=True):
                total += int(self._scan(number).select(pl.len()).collect().item())
        return total

    def largest_row_group(self, columns: Sequence[str]) -> tuple[str, int]:
        """About what it takes to read some columns of a row group, of the largest file."""
        paths = [file.path for file in self._inputs if file.path is not None]
        sizes = [(path.stat().st_size, path) for path in paths if path.is_file()]
        if not sizes:
            return self.label, 0
        path = max(sizes)[1]
        return str(path), MEMORY_OF_A_BYTE * largest_row_group(path, columns)

    def batches(self, columns: Sequence[str], rows: int, after: Place | None) -> Batches:
        return joined(self._parts(columns, rows, after or {"file": 0, "row": 0}), rows)

    def _parts(self, columns: Sequence[str], rows: int, start: Place) -> Batches:
        wanted = {name: dtype for name, dtype in self.schema().items() if name in columns}
        for number in range(start["file"], len(self.files)):
            first = start["row"] if number == start["file"] else 0
            self._check_columns(number, wanted)
            while True:
                # Slices take less memory than a stream, which reads many row groups ahead.
                with naming(self.files[number], quietly=True):
                    frame = self._scan(number).select(columns).slice(first, rows).collect()
                if not frame.height:
                    break
                segment = Segment(number, first, frame.height)
                first += frame.height
                yield SourceBatch(frame, (segment,), {"file": number, "row": first})

    def _scan(self, number: int) -> pl.LazyFrame:
        # A name such as a[1].parquet is a name, and no pattern.
        content = self._inputs[number].for_parquet()
        return pl.scan_parquet(content, glob=False, hive_partitioning=False)

    def _schema(self, number: int) -> Schema:
        with naming(self.files[number], quietly=True):
            return dict(self._scan(number).collect_schema())

    def _check_columns(self, number: int, wanted: Schema) -> None:
        there = self._schema(number)
        for name, dtype in wanted.items():
            if there.get(name) != dtype:
                has = f"holds {there[name]} there" if name in there else "is not there"
                raise ClickLogError(
                    f"{self.files[number]} has other columns than {self.files[0]}: {name!r} "
                    f"holds {dtype} in the first, and {has}."
                )
