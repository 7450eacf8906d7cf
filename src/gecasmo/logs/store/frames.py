"""Tables and logs in memory, or made one after the other, as a stream of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.inputs import MAX_LINE
from gecasmo.logs.notes import Notebook
from gecasmo.logs.sources import open_table
from gecasmo.logs.store.batches import Batch, Place, Schema, Segment


class Frames:
    """Tables or logs, one or many; an iterator is used up.

    Parameters
    ----------
    source
        A table, a LazyFrame, a `ClickLog`, or an iterable of tables or of logs.
    """

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
        self.files: Sequence[str] = [self.label]

    @property
    def first(self) -> pl.DataFrame | ClickLog:
        """The first table or log."""
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

    def batches(self, columns: Sequence[str], rows: int, after: Place | None) -> Iterator[Batch]:
        """Read columns in batches."""
        done = 0
        for item in chain([self._first], self._items):
            if isinstance(item, ClickLog) != isinstance(self._first, ClickLog):
                raise ClickLogError("ingest: tables and logs cannot be mixed.")
            if isinstance(item, ClickLog):
                yield Batch(item, (Segment(0, done, item.n_results),), {}, item.notes)
                done += item.n_results
                continue
            self._check_columns(item, columns)
            for start in range(0, item.height, rows):
                part = item.select(columns).slice(start, rows)
                yield Batch(part, (Segment(0, done, part.height),), {})
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
    return open_table(item, (), MAX_LINE, Notebook())
