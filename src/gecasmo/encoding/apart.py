"""Pages taken apart: every place a coin is read at has a row of its own.

An E-step over such pages says what each page thinks of each of its rows, where that over the log
itself only gives sums.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.encoded import EncodedLog

Integers = NDArray[np.int64]


@dataclass
class Apart:
    """Some pages of an encoded log, each perhaps several times.

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
        if is_by_page(self.encoded, array):
            return np.arange(self.n_pages)
        return np.repeat(np.arange(self.n_pages), self.lengths)


def take_apart(encoded: EncodedLog, pages: Integers) -> Apart:
    """These pages of a log with a row for every place."""
    lengths = np.diff(encoded.obs_start)[pages]
    obs_start = np.zeros(len(pages) + 1, np.int64)
    np.cumsum(lengths, out=obs_start[1:])
    place = np.arange(obs_start[-1]) - np.repeat(obs_start[:-1], lengths)
    by_pattern = np.repeat(encoded.obs_start[pages], lengths) + place
    by_page_shown = np.repeat(encoded.row_start[pages], lengths) + place
    page = np.repeat(pages, lengths)
    rows = []
    counting: list[NDArray[np.unsignedinteger[Any]]] = []
    for array in range(len(encoded.codes)):
        if is_by_page(encoded, array):
            rows.append(encoded.page_rows(array)[pages])
        else:
            places = by_pattern if _has_history(encoded, array) else by_page_shown
            rows.append(encoded.rows_at(array, page, places))
        if array in encoded.plan.based:
            # Of the same type where that is wide enough: kernels need not be compiled again.
            type_ = encoded.codes[array].dtype
            fits = lengths.max(initial=0) <= np.iinfo(type_).max
            counting.append(place.astype(type_ if fits else np.uint32))
        else:
            counting.append(np.arange(len(rows[-1]), dtype=np.uint32))
    return Apart(encoded, pages, obs_start, encoded.obs[by_pattern], rows, counting)


def is_by_page(encoded: EncodedLog, array: int) -> bool:
    """Whether an array of codes has one number a page."""
    return any(coin.codes == array and coin.scope == "page" for coin in encoded.plan.coins)


def _has_history(encoded: EncodedLog, array: int) -> bool:
    return any(coin.codes == array and coin.history for coin in encoded.plan.coins)
