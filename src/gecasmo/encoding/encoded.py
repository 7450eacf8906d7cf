"""What kernels read: the arrays of one log for one machine and one choice of keys."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.kernels.plan import Plan
from gecasmo.logs import ClickLog
from gecasmo.logs.runs import Integers, offsets, rows_of_runs

Codes = NDArray[np.unsignedinteger[Any]]

_MOST_GLOBAL_ROWS = 1 << 20


@dataclass
class EncodedLog:
    """What kernels read. Pages are in the order of their query's hash, like pages folded.

    Everything but `log`, `plan` and `rows` is arrays and lists of these, so that it can be stored;
    a fit needs neither the log nor `page_of_session`.

    Attributes
    ----------
    codes
        Row numbers, an array for each that the plan speaks of.
    first_rows
        For each of these arrays, a row per page from which its numbers count; empty where they are
        rows themselves.
    bucket_rows
        For each coin, where the rows of each of the 256 buckets begin (257 numbers); empty where
        buckets share rows.
    """

    log: ClickLog | None
    plan: Plan
    rows: list[Rows]
    codes: list[Codes]
    first_rows: list[NDArray[np.uint32]]
    obs: NDArray[np.unsignedinteger]
    obs_start: NDArray[np.int64]
    row_start: NDArray[np.int64]
    weight: NDArray[np.float64]
    bucket_start: NDArray[np.int64]
    shifts: list[int]
    ranks: NDArray[np.int32]  # only where the kernel adds the click history
    page_of_session: NDArray[np.uint32]
    bucket_rows: list[NDArray[np.int64]]

    @property
    def n_pages(self) -> int:
        """Number of pages, identical ones folded into one."""
        return len(self.weight)

    @property
    def n_results(self) -> int:
        """Number of results on these pages."""
        return len(self.obs)

    @cached_property  # every run of a kernel asks for it
    def max_length(self) -> int:
        """Number of results of the longest page, at least 1."""
        return int(np.diff(self.obs_start).max(initial=1))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many results each page has."""
        return np.diff(self.obs_start)

    def codes_arguments(self) -> list[object]:
        """Row numbers as kernels take them; `Plan.codes_arguments` has the names."""
        return [*self.codes, *(self.first_rows[array] for array in self.plan.based)]

    def page_arguments(self, first: int, last: int) -> list[object]:
        """Arguments of kernels that go over the pages from `first` to before `last`."""
        return [first, last, self.obs_start, self.row_start, self.obs, *self.codes_arguments()]

    def is_by_page(self, array: int) -> bool:
        """Whether an array of codes has one number a page."""
        return any(coin.codes == array and coin.scope == "page" for coin in self.plan.coins)

    def has_history(self, array: int) -> bool:
        """Whether clicks above decide about the row numbers of an array of codes."""
        return any(coin.codes == array and coin.history for coin in self.plan.coins)

    def page_rows(self, array: int) -> NDArray[np.uint32]:
        """The row of each page, of an array of codes that has one number a page."""
        return self.codes[array].astype(np.uint32, copy=False)

    def rows_at(
        self, array: int, pages: NDArray[np.integer], places: NDArray[np.integer]
    ) -> NDArray[np.uint32]:
        """Rows at some places of an array of codes; `pages` are the pages they are on."""
        found: NDArray[np.uint32] = self.codes[array][places].astype(np.uint32, copy=False)
        if len(self.first_rows[array]):
            found += self.first_rows[array][pages]
        return found

    def result_rows(self, array: int, has_history: bool) -> NDArray[np.uint32]:
        """The row at every result of every page, page by page."""
        lengths = self.lengths
        page = np.repeat(np.arange(self.n_pages), lengths)
        places = np.arange(self.n_results)
        if not has_history:
            places += np.repeat(self.row_start - self.obs_start[:-1], lengths)
        return self.rows_at(array, page, places)

    def check(self, n_observations: int) -> None:
        """Refuse arrays that do not fit together, by a ValueError that names one.

        For arrays that come from outside, such as files: kernels index by them, and do not look.
        """
        n_pages, n_results, lengths = self.n_pages, self.n_results, self.lengths
        whole = ("obs_start", "row_start", "bucket_start")
        _require("weight", _is_floats(self.weight) and bool((self.weight >= 0).all()))
        _require("weight", bool(np.isfinite(self.weight).all()))
        for name in (*whole, "obs"):
            array = getattr(self, name)
            kind = array.dtype == np.int64 if name in whole else array.dtype.kind == "u"
            _require(name, kind and array.ndim == 1)
        _require("obs_start", _rises(self.obs_start, n_pages, n_results))
        _require("bucket_start", _rises(self.bucket_start, 256, n_pages))
        _require("obs", int(self.obs.max(initial=0)) < n_observations)
        _require("row_start", len(self.row_start) == n_pages and (self.row_start >= 0).all())
        n_shown = int((self.row_start + lengths).max(initial=0))
        _require("codes", len(self.codes) == len(self.first_rows) == self.plan.n_codes)
        sizes = len(self.plan.coins), len(self.rows), len(self.shifts), len(self.bucket_rows)
        _require("coins", len(set(sizes)) == 1)
        for number, (coin, rows) in enumerate(zip(self.plan.coins, self.rows, strict=True)):
            own = self.bucket_rows[number]
            _require("bucket_rows", not len(own) or _rises(own, 256, len(rows)))
            _require("shifts", self.shifts[number] in range(9))
            if coin.codes < 0:
                # Such a coin has no more rows than its program numbers.
                _require("rows", coin.scope == "global" and len(rows) <= _MOST_GLOBAL_ROWS)
                continue
            codes, first = self.codes[coin.codes], self.first_rows[coin.codes]
            _require("codes", codes.ndim == 1 and codes.dtype.kind == "u")
            _require("rows", 0 < len(rows) <= max(len(codes), 1))
            _require("first_rows", coin.based == bool(len(first)) and first.dtype == np.uint32)
            if coin.scope == "page" or coin.history:
                wanted = n_pages if coin.scope == "page" else n_results
                _require("codes", len(codes) == wanted)
            else:
                _require("codes", len(codes) >= n_shown)
            if len(first):
                _require("first_rows", len(first) == n_pages and coin.scope == "result")
                starts = self.obs_start[:-1] if coin.history else self.row_start
                places = np.stack([starts, starts + lengths], axis=1)[lengths > 0].ravel()
                largest = np.maximum.reduceat(np.append(codes, codes.dtype.type(0)), places)[::2]
                highest = largest.astype(np.int64) + first[lengths > 0]
                _require("codes", int(highest.max(initial=0)) < len(rows))
            else:
                _require("codes", int(codes.max(initial=0)) < len(rows))

    def without_log(self) -> EncodedLog:
        """What a fit needs: neither the log nor where its sessions are."""
        return replace(self, log=None, page_of_session=np.zeros(0, np.uint32))

    def result_places(self) -> NDArray[np.int64]:
        """Where the answer for each result stands, in the order of the log's rows."""
        log = self.log
        assert log is not None
        place = np.arange(log.n_results) - np.repeat(log.starts[:-1], log.lengths)
        place += np.repeat(self.obs_start[self.page_of_session], log.lengths)
        if log.is_sorted:
            return place
        places = np.empty(log.n_results, np.int64)
        places[log.order] = place
        return places


def _require(name: str, is_right: object) -> None:
    if not is_right:
        raise ValueError(f"its array {name!r} does not fit the others")


def _rises(starts: NDArray[Any], n: int, last: int) -> bool:
    """Whether these are the starts of `n` pieces, and the end of the last."""
    is_right = len(starts) == n + 1 and starts.dtype == np.int64 and starts.ndim == 1
    return is_right and starts[0] == 0 and starts[-1] == last and bool((np.diff(starts) >= 0).all())


def _is_floats(values: NDArray[Any]) -> bool:
    return values.dtype == np.float64 and values.ndim == 1


@dataclass
class Apart:
    """Some pages of an encoded log, each perhaps several times, with a row for every place.

    An E-step over such pages says what each page thinks of each of its rows, where that over the
    log itself only gives sums.

    `rows[array]` has the row in the log's table that stands at each place of an array of codes;
    the codes themselves just count up.
    """

    encoded: EncodedLog
    pages: Integers
    obs_start: Integers
    obs: NDArray[np.unsignedinteger]
    rows: list[NDArray[np.uint32]]
    codes: list[NDArray[np.unsignedinteger[Any]]]
    known: dict[Any, Any] = field(default_factory=dict)  # what others found out about rows

    @property
    def n_pages(self) -> int:
        """Number of pages that are kept apart."""
        return len(self.pages)

    @property
    def lengths(self) -> Integers:
        """Number of results of each page."""
        return np.diff(self.obs_start)

    @property
    def max_length(self) -> int:
        """Number of results of the longest page, at least 1."""
        return int(self.lengths.max(initial=1))

    def codes_arguments(self) -> list[object]:
        """Row numbers as kernels take them."""
        first_rows = self.obs_start[:-1].astype(np.uint32)
        return [*self.codes, *[first_rows] * len(self.encoded.plan.based)]

    def page_of(self, array: int) -> Integers:
        """The page, counted within these, of every place of an array of codes."""
        if self.encoded.is_by_page(array):
            return np.arange(self.n_pages)
        return np.repeat(np.arange(self.n_pages), self.lengths)


def take_apart(encoded: EncodedLog, pages: Integers) -> Apart:
    """These pages of a log with a row for every place."""
    lengths = encoded.lengths[pages]
    obs_start = offsets(lengths)
    by_pattern = rows_of_runs(encoded.obs_start[pages], lengths)
    by_page_shown = rows_of_runs(encoded.row_start[pages], lengths)
    page = np.repeat(pages, lengths)
    rows = []
    counting: list[NDArray[np.unsignedinteger[Any]]] = []
    for array in range(len(encoded.codes)):
        if encoded.is_by_page(array):
            rows.append(encoded.page_rows(array)[pages])
        else:
            places = by_pattern if encoded.has_history(array) else by_page_shown
            rows.append(encoded.rows_at(array, page, places))
        if array in encoded.plan.based:
            # Of the same type where that is wide enough: kernels need not be compiled again.
            type_ = encoded.codes[array].dtype
            fits = lengths.max(initial=0) <= np.iinfo(type_).max
            place = np.arange(obs_start[-1]) - np.repeat(obs_start[:-1], lengths)
            counting.append(place.astype(type_ if fits else np.uint32))
        else:
            counting.append(np.arange(len(rows[-1]), dtype=np.uint32))
    return Apart(encoded, pages, obs_start, encoded.obs[by_pattern], rows, counting)
