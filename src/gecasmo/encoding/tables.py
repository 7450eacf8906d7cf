"""The rows of coins: which rows a key has, who uses them, and what features they carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.columns import coded, dense, in_chain
from gecasmo.encoding.features import Wanted, looked_up, refuse_disagreement, usable
from gecasmo.encoding.rows import ONE_ROW, LazyRows, Rows
from gecasmo.errors import ModelError
from gecasmo.language.parameter import HISTORY_KEYS
from gecasmo.logs import ClickLog

Codes = NDArray[np.uint32]
Integers = NDArray[np.int64]

# Tables that pages of several buckets add to are kept per bucket up to this many bytes in all.
_MAX_TABLE_BYTES = 64 * 2**20
_MIN_TABLES_LOG2 = 2


@dataclass(frozen=True)
class Places:
    """Where results stand in chain order, for the pages that kernels read.

    `by_pattern` has the results of every page; pages that show the same, whatever was clicked, are
    a group and share those of `by_page_shown`.
    """

    kept: Integers  # the sessions that stand for themselves and their likes
    lengths: Integers
    by_pattern: Integers
    buckets: NDArray[np.uint8]
    group_lengths: Integers
    by_page_shown: Integers
    group_buckets: NDArray[np.uint8]


class RowTable(NamedTuple):
    """The rows of a key and who uses them.

    `codes` has a row number for each of `places` (results in chain order, or one result a page);
    `example` says for each row at which of them it occurs.
    """

    rows: Rows
    codes: Codes
    shift: int
    places: NDArray[np.int64]
    example: NDArray[np.int64]


class RowTables:
    """Makes the tables of one log.

    `nullable` are the keys in which a missing value is a value like others.
    """

    def __init__(
        self,
        log: ClickLog,
        places: Places,
        keys: Mapping[str, tuple[str, ...]],
        wanted: Mapping[str, Wanted],
        nullable: set[str],
    ) -> None:
        self.log, self.places, self.keys = log, places, keys
        self.wanted, self.nullable = wanted, nullable

    def table(self, coin: str, keys: Sequence[str], scope: str) -> RowTable:
        """The row numbers of a key per result (or page), and the rows."""
        if scope == "page":
            # Any result of the page will do; pages without results never read their code.
            starts = self.log.starts[:-1][self.places.kept]
            places = np.minimum(starts, max(self.log.n_results - 1, 0))
            buckets = self.places.buckets
        elif any(key in HISTORY_KEYS for key in keys):
            places, buckets = (
                self.places.by_pattern,
                np.repeat(self.places.buckets, self.places.lengths),
            )
        else:
            places = self.places.by_page_shown
            buckets = np.repeat(self.places.group_buckets, self.places.group_lengths)
        if not keys or not self.log.n_results:
            one = np.zeros(min(len(places), 1), np.int64)
            return RowTable(ONE_ROW, np.zeros(len(places), np.uint32), 0, places, one)
        parts = [coded(self.log, key, coin, key in self.nullable) for key in keys]
        chosen = [in_chain(self.log, part.codes)[places] for part in parts]
        combined = chosen[0].astype(np.int64)
        size = len(parts[0].values)
        for part, codes in zip(parts[1:], chosen[1:], strict=True):
            if size * len(part.values) >= 2**62:
                combined = dense(combined)[0].astype(np.int64)
                size = int(combined.max()) + 1
            combined = combined * len(part.values) + codes
            size *= len(part.values)
        numbers, distinct = dense(combined)
        n_rows = len(distinct)
        example = np.empty(n_rows, np.int64)  # some place where each row occurs
        example[numbers] = np.arange(len(numbers))
        values = [(p.values, codes[example]) for p, codes in zip(parts, chosen, strict=True)]
        spans = bool((buckets[example][numbers] != buckets).any())
        rows = LazyRows(keys, values, n_rows)
        return RowTable(rows, numbers, count_shift(n_rows, spans), places, example)

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
            row_of_log = pl.Series(self.log.order[table.places[table.example]])
            for name in columns:
                if name in self.log.columns:
                    column = usable(self.log.column(name), coin, need.allow_missing)
                else:
                    part = coded(self.log, name, coin)
                    column = part.values.gather(pl.Series(part.codes))
                attached[name] = column.gather(row_of_log)
        return rows.with_features(attached)

    def _check_agreement(
        self, coin: str, columns: Sequence[str], table: RowTable, scope: str
    ) -> None:
        """Refuse features that differ where the key is the same."""
        if "result" in table.rows.keys:
            return
        numbers, places = table.codes, table.places
        if scope == "page":
            numbers, places = np.repeat(numbers, self.places.lengths), self.places.by_pattern
        for name in columns:
            codes = chain_codes(self.log, name, coin, self._is_nullable(name))
            typical = codes[table.places[table.example]]
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


def chain_codes(log: ClickLog, name: str, coin: str, nullable: bool) -> Codes:
    """A column as codes, page by page and rank by rank."""
    codes: Codes = in_chain(log, coded(log, name, coin, nullable).codes)
    return codes


def count_shift(n_rows: int, spans_buckets: bool) -> int:
    """How many of the 256 buckets share a table of counts, as a power of two.

    Rows of one bucket only need a single table. Others get as many as fit, a number that depends
    on the log alone, so that sums are taken in the same order on any number of threads.
    """
    if not spans_buckets:
        return 8
    shift = 0
    while (256 >> shift) * n_rows * 16 > _MAX_TABLE_BYTES and shift < 8 - _MIN_TABLES_LOG2:
        shift += 1
    return shift
