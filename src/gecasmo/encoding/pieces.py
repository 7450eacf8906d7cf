"""Join pieces of a partition, encoded one by one, into what encoding all of it would give.

Pages of a partition stand in the order of the hash of their query. So of two neighbouring pieces
only the last query of the one may go on in the other, and rows that belong to queries go on where
they ended. All other rows are the same if their keys are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.encoded import EncodedLog
from gecasmo.encoding.match import match
from gecasmo.encoding.rows import Rows
from gecasmo.encoding.shared_rows import SharedRows
from gecasmo.encoding.tables import NO_ROWS, NOTHING, count_shift
from gecasmo.kernels.plan import Plan
from gecasmo.logs.arrays import narrowest
from gecasmo.logs.runs import Integers, offsets


class NotJoinableError(Exception):
    """Pieces that were encoded in different ways; such a partition is encoded as a whole."""


class JoinedPieces:
    """The pieces of a partition, one after the other."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self._plan: Plan | None = None
        self._joiners: dict[int, RowsByQuery | RowsByValue] = {}
        self._arrays: dict[str, list[NDArray[Any]]] = {}
        self._totals: dict[str, Any] = {}
        self._row_starts: list[Integers | None] = []  # None where all pages show something else
        self._n_pages: list[int] = []
        self._spans: set[int] = set()  # coins with rows that several buckets share

    @property
    def n_results(self) -> int:
        """Number of results of the pieces so far."""
        return sum(len(obs) for obs in self._arrays.get("obs", []))

    def add(self, encoded: EncodedLog) -> dict[int, RowPlaces]:
        """Append a piece; where its rows are among all of each coin."""
        self._check(encoded)
        groups = _row_groups(encoded)
        for coin in set(groups):
            if coin not in self._joiners:
                kind = RowsByQuery if len(encoded.bucket_rows[coin]) else RowsByValue
                self._joiners[coin] = kind(self.names[coin])
        places = {coin: self._joiners[coin].add(encoded.rows[coin]) for coin in set(groups)}
        by_coin = {coin: places[group] for coin, group in enumerate(groups)}
        self._groups = groups
        self._add_pages(encoded)
        for array in range(encoded.plan.n_codes):
            coin = next(n for n, own in enumerate(encoded.plan.coins) if own.codes == array)
            self._add_codes(encoded, array, coin, by_coin[coin])
        for coin, own in by_coin.items():
            self._add_bucket_rows(coin, encoded.bucket_rows[coin], own)
            if encoded.shifts[coin] < 8 or own.has_old:
                self._spans.add(coin)
        return by_coin

    def encoded(self) -> EncodedLog:
        """All pieces as one; they are given up for it, array by array."""
        assert self._plan is not None
        by_group = {coin: joiner.rows() for coin, joiner in self._joiners.items()}
        rows = [by_group[group] for group in self._groups]
        codes, first_rows = [], []
        for array in range(self._plan.n_codes):
            first = self._joined(f"first_rows.{array}")
            first_rows.append(first if first.any() else NOTHING)
            codes.append(self._joined(f"codes.{array}"))
        obs_start = offsets(self._joined("lengths"))
        row_start = self._row_start(obs_start)
        based = [array for array, first in enumerate(first_rows) if len(first)]
        return EncodedLog(
            log=None,
            plan=self._plan.with_based(based),
            rows=rows,
            codes=codes,
            first_rows=first_rows,
            obs=self._joined("obs"),
            obs_start=obs_start,
            row_start=row_start,
            weight=self._joined("weight"),
            bucket_start=offsets(self._totals["bucket_pages"]),
            shifts=[
                self._shift(
                    coin, len(own), len(codes[own_plan.codes]) if own_plan.codes >= 0 else 0
                )
                for coin, (own, own_plan) in enumerate(zip(rows, self._plan.coins, strict=True))
            ],
            ranks=np.zeros(0, np.int32),
            page_of_session=NOTHING,
            bucket_rows=[self._bucket_rows(coin) for coin in range(len(rows))],
        )

    # -- pages ---------------------------------------------------------------------------------
    def _check(self, encoded: EncodedLog) -> None:
        plan = encoded.plan.with_based(())
        if self._plan is None:
            self._plan = plan
        elif plan != self._plan:
            raise NotJoinableError("a column has one value on every page of some pieces only")
        if not (encoded.lengths > 0).all():
            raise NotJoinableError("pages without results have no query that says where they stand")
        filled = np.flatnonzero(np.diff(encoded.bucket_start))
        if filled[0] < self._totals.get("last_bucket", 0):
            raise NotJoinableError("pages are not in order of their hash")
        self._totals["last_bucket"] = filled[-1]

    def _add_pages(self, encoded: EncodedLog) -> None:
        lengths = encoded.lengths
        self._n_pages.append(len(lengths))
        self._keep("lengths", lengths.astype(narrowest(int(lengths.max()) + 1)))
        self._keep("obs", encoded.obs)
        self._keep("weight", encoded.weight)
        self._add_up("bucket_pages", np.diff(encoded.bucket_start))
        is_grouped = not np.array_equal(encoded.row_start, encoded.obs_start[:-1])
        self._row_starts.append(encoded.row_start if is_grouped else None)

    def _row_start(self, obs_start: Integers) -> Integers:
        """Where the results of each page begin among those of groups of pages."""
        if all(own is None for own in self._row_starts):
            return obs_start[:-1]
        row_start = np.empty(len(obs_start) - 1, np.int64)
        page = n_shown = 0
        for own, n_pages in zip(self._row_starts, self._n_pages, strict=True):
            last = page + n_pages
            shown = obs_start[page:last] - obs_start[page] if own is None else own
            row_start[page:last] = shown + n_shown
            n_shown = int(row_start[last - 1] + obs_start[last] - obs_start[last - 1])
            page = last
        return row_start

    # -- rows ----------------------------------------------------------------------------------
    def _add_codes(self, encoded: EncodedLog, array: int, coin: int, places: RowPlaces) -> None:
        plan, codes = encoded.plan.coins[coin], encoded.codes[array]
        first_rows = NOTHING
        if plan.scope == "page":
            codes = _looked_up(places.index, codes).astype(np.uint32, copy=False)
        elif len(encoded.bucket_rows[coin]):
            codes, first_rows = _by_query(encoded, array, coin, places)
        else:
            codes = _narrow(_looked_up(places.index, codes))
        self._keep(f"codes.{array}", codes)
        self._keep(f"first_rows.{array}", first_rows)

    def _add_bucket_rows(self, coin: int, bucket_rows: Integers, places: RowPlaces) -> None:
        if not len(bucket_rows):
            return
        n_new = np.diff(bucket_rows)
        known = self._totals.get(f"bucket_rows.{coin}", np.zeros(len(n_new), np.int64))
        n_old = int((places.index < known.sum()).sum())
        n_new[np.flatnonzero(n_new)[0]] -= n_old  # all of them are of the first query
        self._totals[f"bucket_rows.{coin}"] = known + n_new

    def _bucket_rows(self, coin: int) -> Integers:
        counts = self._totals.get(f"bucket_rows.{coin}")
        return NO_ROWS if counts is None else offsets(counts)

    def _shift(self, coin: int, n_rows: int, n_places: int) -> int:
        if f"bucket_rows.{coin}" in self._totals:
            return 8
        return count_shift(n_rows, coin in self._spans, n_places)

    # -- arrays --------------------------------------------------------------------------------
    def _keep(self, name: str, array: NDArray[Any]) -> None:
        # What is a part of something larger would keep all of it in memory.
        of = getattr(array.base, "nbytes", 0) if array.base is not None else array.nbytes
        own = array if of == array.nbytes else array.copy()
        self._arrays.setdefault(name, []).append(own)

    def _add_up(self, name: str, value: Any) -> None:
        self._totals[name] = self._totals.get(name, 0) + value

    def _joined(self, name: str) -> NDArray[Any]:
        """An array of all pieces in the widest type of theirs."""
        pieces = self._arrays.pop(name)
        joined = np.empty(sum(map(len, pieces)), np.result_type(*{p.dtype for p in pieces}))
        first = 0
        while pieces:
            piece = pieces.pop(0)
            joined[first : first + len(piece)] = piece
            first += len(piece)
        return joined


def _by_query(
    encoded: EncodedLog, array: int, coin: int, places: RowPlaces
) -> tuple[NDArray[Any], NDArray[np.uint32]]:
    """Codes that count from a row of each page, and these rows."""
    codes, first_rows = encoded.codes[array], encoded.first_rows[array]
    starts = encoded.obs_start[:-1] if encoded.plan.coins[coin].history else encoded.row_start
    if not len(first_rows):
        first_of_row = _first_of_query(encoded.rows[coin].frame["query"])
        first_rows = first_of_row[codes[starts]]
        codes = codes - _looked_up(first_of_row, codes)
    # Only now is it clear how pages of the first query are told: theirs are the first rows.
    found = places.index[first_rows].astype(np.uint32)
    n_continued = places.n_continued
    if n_continued:
        n_pages = int(np.searchsorted(first_rows, n_continued))
        n_codes = int(starts[n_pages]) if n_pages < len(starts) else len(codes)
        found[:n_pages] = places.start
        own = places.index[:n_continued] - places.start
        if not np.array_equal(own, np.arange(n_continued)):
            codes = codes.astype(np.result_type(codes, narrowest(int(own.max()) + 1)))
            codes[:n_codes] = own[codes[:n_codes]]
    return _narrow(codes), found


def _first_of_query(query: pl.Series) -> NDArray[np.uint32]:
    """For each row the first row of its query."""
    is_first = np.ones(len(query), bool)
    is_first[1:] = (query[1:] != query[:-1]).to_numpy()
    numbers = np.where(is_first, np.arange(len(query)), 0)
    return np.maximum.accumulate(numbers).astype(np.uint32)


def _looked_up(index: NDArray[np.integer[Any]], codes: NDArray[Any]) -> NDArray[Any]:
    """`index[codes]`, in narrow numbers."""
    if np.array_equal(index, np.arange(len(index))):
        return codes
    narrow = index.astype(narrowest(int(index.max(initial=0)) + 1), copy=False)
    return np.asarray(narrow[codes])


def _narrow(codes: NDArray[Any]) -> NDArray[Any]:
    return codes.astype(narrowest(int(codes.max(initial=0)) + 1), copy=False)


def _row_groups(encoded: EncodedLog) -> list[int]:
    """For each coin the first one that has the very same rows."""
    first: dict[int, int] = {}
    return [first.setdefault(id(rows), coin) for coin, rows in enumerate(encoded.rows)]


# -- rows ------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class RowPlaces:
    """Where the rows of a piece are among those of all pieces.

    The first `n_continued` rows are of a query that was met before, whose rows begin at `start`.
    """

    index: Integers
    n_continued: int = 0
    start: int = 0
    has_old: bool = False  # whether some rows were met before
    is_by_query: bool = True


class RowsByQuery:
    """Rows query by query, of which only those of the last query may be met again."""

    def __init__(self, coin: str) -> None:
        self.coin = coin
        self._done: list[Rows] = []
        self._n_done = 0
        self._open = SharedRows(coin)  # the rows of the last query

    def add(self, rows: Rows) -> RowPlaces:
        """The places of the rows of the next piece."""
        query = rows.frame["query"]
        n_continued = 0
        if len(last := self._open.rows()) and _is_same(query, last.frame["query"]):
            n_continued = int((query == query[0]).sum())
        start, n_rows = self._n_done, len(rows)
        index = np.empty(n_rows, np.int64)
        if n_continued:
            index[:n_continued] = start + self._open.add(_slice(rows, 0, n_continued))
            n_old = len(last)
        else:
            n_old = 0
        if n_continued < n_rows:
            self._close()
            index[n_continued:] = self._n_done + np.arange(n_rows - n_continued)
            first_of_last = n_rows - int((query == query[-1]).sum())
            self._finish(_slice(rows, n_continued, first_of_last))
            self._open.add(_slice(rows, first_of_last, n_rows))
        has_old = bool((index[:n_continued] < start + n_old).any())
        return RowPlaces(index, n_continued, start, has_old)

    def rows(self) -> Rows:
        """All rows that were met."""
        pieces = [*self._done, self._open.rows()]
        frame = pl.concat([piece.frame for piece in pieces], how="vertical_relaxed")
        attached = {
            name: pl.concat([piece.attached[name] for piece in pieces])
            for name in pieces[-1].attached
        }
        return Rows(pieces[-1].keys, frame.rechunk().get_columns(), len(frame), attached)

    def _close(self) -> None:
        self._finish(self._open.rows())
        self._open = SharedRows(self.coin)

    def _finish(self, rows: Rows) -> None:
        if len(rows):
            self._done.append(rows)
            self._n_done += len(rows)


class RowsByValue:
    """Rows of any other key."""

    def __init__(self, coin: str) -> None:
        self._rows = SharedRows(coin)
        self._n_rows = 0

    def add(self, rows: Rows) -> RowPlaces:
        """The places of the rows of the next piece."""
        index = self._rows.add(rows)
        has_old = bool((index < self._n_rows).any())
        self._n_rows = max(self._n_rows, int(index.max(initial=-1)) + 1)
        return RowPlaces(index, has_old=has_old, is_by_query=False)

    def rows(self) -> Rows:
        """All rows that were met."""
        return self._rows.rows()


def _is_same(query: pl.Series, other: pl.Series) -> bool:
    """Whether the first values are the same."""
    found = match(query[:1].to_frame("query"), other[:1].to_frame("query"), ["query"])
    return bool(found[0] >= 0)


def _slice(rows: Rows, first: int, last: int) -> Rows:
    return Rows(
        rows.keys,
        rows.frame[first:last].get_columns(),
        last - first,
        {name: column[first:last] for name, column in rows.attached.items()},
    )
