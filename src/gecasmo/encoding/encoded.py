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
        return len(self.weight)

    @property
    def n_results(self) -> int:
        return len(self.obs)

    @cached_property  # every run of a kernel asks for it
    def max_length(self) -> int:
        return int(np.diff(self.obs_start).max(initial=1))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many results each page has."""
        return np.diff(self.obs_start)

    def codes_arguments(self) -> list[object]:
        """Row numbers as kernels take them; `Plan.codes_arguments` has the names."""
        return [*self.codes, *(self.first_rows[array] for array in self.plan.based)]

    def page_arguments(self, first: int, last: int) -> list[object]:
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
        return len(self.pages)

    @property
    def lengths(self) -> Integers:
        return np.diff(self.obs_start)

    @property
    def max_length(self) -> int:
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
