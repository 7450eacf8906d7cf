"""The rows of coins: which rows a key has, who uses them, and what features they carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.columns import coded, combined, in_chain
from gecasmo.encoding.features import Wanted, looked_up, refuse_disagreement, usable
from gecasmo.encoding.layout import Layout, PageLevel
from gecasmo.encoding.rows import ONE_ROW, LazyRows, RowPages, Rows
from gecasmo.errors import ModelError
from gecasmo.language.parameter import HISTORY_KEYS
from gecasmo.logs import ClickLog
from gecasmo.logs.arrays import dense, is_large, narrowest, number_runs
from gecasmo.logs.runs import Integers, offsets

Numbers = NDArray[np.unsignedinteger[Any]]

# Tables that pages of several buckets add to are kept per bucket up to this many bytes in all.
_MAX_TABLE_BYTES = 64 * 2**20
_MIN_TABLES_LOG2 = 2
# Of a large log, whether rows of a key without the query happen to keep to their buckets is looked
# at only where a table for each bucket would be dear.
_MANY_ROWS = 1024
NOTHING: NDArray[np.uint32] = np.zeros(0, np.uint32)
NO_ROWS: Integers = np.zeros(0, np.int64)


@dataclass(frozen=True)
class RowTable:
    """The rows of a key and who uses them.

    `codes` has a number for each place of a level. If `first_rows` is not empty it has a row for
    each page, from which the numbers on this page count; else the numbers are rows.
    `bucket_rows` says where the rows of each of the 256 buckets begin; it is empty where buckets
    share rows.
    """

    rows: Rows
    codes: Numbers
    shift: int
    level: PageLevel
    first_rows: NDArray[np.uint32]
    bucket_rows: Integers
    run_rows: Integers  # where the rows of each query begin, if rows are of queries

    @cached_property
    def numbers(self) -> NDArray[Any]:
        """The row at each place."""
        if not len(self.first_rows):
            return self.codes
        sizes = np.diff(self.level.run_start)
        return np.repeat(self.run_rows[:-1].astype(np.uint32), sizes) + self.codes

    @cached_property
    def example(self) -> Integers:
        """Some place where each row occurs."""
        example = np.empty(len(self.rows), np.int64)
        example[self.numbers] = np.arange(len(self.numbers))
        return example


class RowTables:
    """Makes the tables of one log.

    `nullable` are the keys in which a missing value is a value like others.
    """

    def __init__(
        self,
        log: ClickLog,
        layout: Layout,
        keys: Mapping[str, tuple[str, ...]],
        wanted: Mapping[str, Wanted],
        nullable: set[str],
    ) -> None:
        self.log, self.layout, self.keys = log, layout, keys
        self.wanted, self.nullable = wanted, nullable

    def table(self, coin: str, keys: Sequence[str], scope: str) -> RowTable:
        """The row numbers of a key per result (or page), and the rows."""
        level = self.layout.level(keys, scope)
        if not keys or not self.log.n_results:
            n_codes = len(self.layout.kept) if scope == "page" else level.n_places
            codes = np.zeros(n_codes, np.uint32)
            return RowTable(ONE_ROW, codes, 0, level, NOTHING, NO_ROWS, NO_ROWS)
        if self.log.has_query and "query" in keys:
            return self._by_query(coin, keys, level)
        return self._by_value(coin, keys, level)

    def _by_query(self, coin: str, keys: Sequence[str], level: PageLevel) -> RowTable:
        """Rows that belong to queries are numbered query by query, as they appear."""
        others = [key for key in keys if key != "query"]
        if others:
            parts = [self.layout.at(key, coin, key in self.nullable, level) for key in others]
            found, values = combined(parts)
            runs = number_runs(found, level.run_start)
            columns = dict(zip(others, values(found[runs.first_at]), strict=True))
            local, n_distinct = runs.numbers, runs.n_distinct
        else:
            local = np.zeros(level.n_places, np.uint32)
            n_distinct = (np.diff(level.run_start) > 0).astype(np.int64)
            columns = {}
        run_rows = offsets(n_distinct)
        columns["query"] = self._queries(n_distinct)
        rows = Rows(keys, [columns[key] for key in keys], int(run_rows[-1]))
        codes, first_rows = self._narrowed(local, n_distinct, run_rows, level)
        bucket_rows = run_rows[self.layout.bucket_runs]
        return RowTable(rows, codes, 8, level, first_rows, bucket_rows, run_rows)

    def _narrowed(
        self, local: NDArray[np.uint32], n_distinct: Integers, run_rows: Integers, level: PageLevel
    ) -> tuple[Numbers, NDArray[np.uint32]]:
        """Row numbers as small as may be: by themselves, or counted from a row of each page."""
        by_itself = narrowest(int(run_rows[-1]))
        from_first = narrowest(int(n_distinct.max(initial=0)))
        narrow = is_large(level.n_places) and not level.is_by_page
        first_of_run = run_rows[:-1].astype(np.uint32)
        if narrow and np.dtype(from_first).itemsize < np.dtype(by_itself).itemsize:
            sizes = np.diff(self.layout.run_start)
            return local.astype(from_first), np.repeat(first_of_run, sizes)
        local += np.repeat(first_of_run, np.diff(level.run_start))
        return (local.astype(by_itself) if narrow else local), NOTHING

    def _queries(self, n_distinct: Integers) -> pl.Series:
        """The query of each row."""
        log, layout = self.log, self.layout
        has_rows = n_distinct > 0
        first = log.starts[layout.kept[layout.run_start[:-1][has_rows]]]
        row = first if log.is_sorted else log.order[first]
        values = log.column("query").gather(pl.Series(row))
        return values.gather(pl.Series(np.repeat(np.arange(len(row)), n_distinct[has_rows])))

    def _by_value(self, coin: str, keys: Sequence[str], level: PageLevel) -> RowTable:
        """Rows that several queries may share are numbered by their values."""
        parts = [self.layout.at(key, coin, key in self.nullable, level) for key in keys]
        found, values = combined(parts)
        codes, distinct = dense(found)
        n_rows = len(distinct)
        if not is_large(level.n_places) or level.is_by_page:
            codes = codes.astype(np.uint32, copy=False)
        is_dear = n_rows > _MANY_ROWS or not is_large(level.n_places)
        spans = not is_dear or self._spans_buckets(codes, n_rows, level)
        rows = LazyRows(keys, lambda: values(distinct), n_rows)
        shift = count_shift(n_rows, spans, len(codes))
        return RowTable(rows, codes, shift, level, NOTHING, NO_ROWS, NO_ROWS)

    def _spans_buckets(self, codes: Numbers, n_rows: int, level: PageLevel) -> bool:
        """Whether pages of several buckets use a row."""
        buckets = self.layout.buckets(level)
        of_row = np.zeros(n_rows, np.uint8)
        of_row[codes] = buckets
        return bool((of_row[codes] != buckets).any())

    def with_features(self, coin: str, rows: Rows, table: RowTable | None, scope: str) -> Rows:
        """The rows with the columns that the coin's form reads."""
        need = self.wanted[coin]
        if not self.log.n_results:
            return rows.with_features(self._nothing(need))
        attached = looked_up(rows, coin, need)
        columns = need.from_log(self.keys[coin])
        if columns and table is None:
            raise ModelError(
                f"The coin '{coin}' has {len(rows)} row{'s' if len(rows) != 1 else ''} for the "
                f"whole log, which cannot have '{columns[0]}' as a feature."
            )
        if columns and table is not None:
            static = tuple(key for key in rows.keys if key not in HISTORY_KEYS)
            if static != rows.keys:
                # What clicks say may not decide a feature: predictions without clicks need it too.
                self._check_agreement(coin, columns, self.table(coin, static, scope), scope)
            self._check_agreement(coin, columns, table, scope)
            in_chain_order = self.layout.places(table.level)[table.example]
            row_of_log = pl.Series(self.log.order[in_chain_order])
            for name in columns:
                if name in self.log.columns:
                    column = usable(self.log.column(name), coin, need.allow_missing)
                else:
                    part = coded(self.log, name, coin)
                    column = part.values.gather(pl.Series(part.codes))
                attached[name] = column.gather(row_of_log)
        pages = self._pages(table) if need.pages and table is not None else None
        return rows.with_features(attached, pages)

    def _pages(self, table: RowTable) -> RowPages:
        """On which page each result is, and whether that just above it was clicked."""
        log = self.log
        rows = np.empty(log.n_results, np.int64)
        rows[self.layout.places(table.level)] = table.numbers  # nothing is folded by result
        above = np.append(False, in_chain(log, log.click)[:-1])
        above[log.starts[:-1][log.lengths > 0]] = False
        return RowPages(rows, log.starts, above)

    def _check_agreement(
        self, coin: str, columns: Sequence[str], table: RowTable, scope: str
    ) -> None:
        """Refuse features that differ where the key is the same."""
        if "result" in table.rows.keys:
            return
        numbers, table_places = table.numbers, self.layout.places(table.level)
        places = table_places
        if scope == "page":
            numbers = np.repeat(numbers, self.log.lengths[table.level.sessions])
            places = self.layout.places(self.layout.by_pattern)
        for name in columns:
            codes = in_chain(self.log, coded(self.log, name, coin, self._is_nullable(name)).codes)
            typical = codes[table_places[table.example]]
            differs = codes[places] != typical[numbers]
            if differs.any():
                place = int(np.argmax(differs))
                row = int(numbers[place])
                values = coded(self.log, name, coin, True).values
                pair = values[int(typical[row])], values[int(codes[places[place]])]
                refuse_disagreement(coin, name, table.rows, row, pair)

    def _nothing(self, need: Wanted) -> dict[str, pl.Series]:
        """Features of the one row that a log without results has: none is known."""
        frames = [self.log.to_frame(), *([] if need.frame is None else [need.frame])]
        types = {name: dtype for frame in frames for name, dtype in frame.schema.items()}
        return {
            name: pl.Series(name, [None], dtype=types.get(name, pl.Float64))
            for name in need.columns
        }

    def _is_nullable(self, name: str) -> bool:
        return name in self.nullable or all(name not in listed for listed in self.keys.values())


def count_shift(n_rows: int, spans_buckets: bool, n_places: int = 0) -> int:
    """How many of the 256 buckets share a table of counts, as a power of two.

    Rows of one bucket only need a single table. Others get as many as fit, a number that depends
    on the log alone, so that sums are taken in the same order on any number of threads. Many rows
    that stand at few places get fewer: tables are emptied and added up at every E-step, which
    should not take longer than to look at the places.
    """
    if not spans_buckets:
        return 8
    most = _MAX_TABLE_BYTES // 16
    if n_rows > _MANY_ROWS:
        most = min(most, n_places // 2)
    shift = 0
    while (256 >> shift) * n_rows > most and shift < 8 - _MIN_TABLES_LOG2:
        shift += 1
    return shift
