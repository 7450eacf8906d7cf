"""What is typical of a row: averages of columns over all places where the row stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.columns import coded
from gecasmo.encoding.encoded import EncodedLog
from gecasmo.encoding.pieces import RowPlaces
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.kernels.static import static_kernel
from gecasmo.kernels.static.row_sums import add_by_row, note_by_row

Floats = NDArray[np.float64]

EXPOSURE = "exposure"  # the share of pages on which a row is shown
IMPRESSIONS = "impressions"  # how often a row is shown
PAGES = "*pages*"  # how many pages could have shown it


def row_averages(
    encoded: EncodedLog, coin: str, number: int, keys: Sequence[str], names: Sequence[str]
) -> dict[str, pl.Series]:
    """For each of these names a value per row of a coin.

    "exposure" is the share of the pages that could have shown the row (those of its query, if the
    query is part of the key) on which it is shown, "impressions" how often that is. Of "rank" and
    of columns with numbers it is the mean; other columns must have one value wherever a row stands.
    """
    if encoded.plan.coins[number].scope == "global":
        raise ModelError(f"The coin '{coin}' has no rows of its own that {names[0]} could tell.")
    averages = _Averages(encoded, number, keys)
    return {name: averages.typical(coin, name) for name in names}


class _Averages:
    """Sums over the places where each row of a coin stands."""

    def __init__(self, encoded: EncodedLog, number: int, keys: Sequence[str]) -> None:
        assert encoded.log is not None  # whose columns these are averages of
        self.encoded, self.log, self.number = encoded, encoded.log, number
        self.keys = keys
        self.n_rows = len(encoded.rows[number])

    def typical(self, coin: str, name: str) -> pl.Series:
        """One value per row."""
        log = self.log
        if name == EXPOSURE:
            return pl.Series(name, smoothed_share(self.shown, self.pages))
        if name == PAGES:
            return pl.Series(name, self.pages)
        if name == IMPRESSIONS:
            return pl.Series(name, self.shown)
        if name == "rank":
            return pl.Series(name, self._means(log.rank))
        if name not in log.columns:
            raise ClickLogError(
                f"The prior of '{coin}' depends on '{name}', and the log has no such column.\n"
                f"  It has: {', '.join(log.columns)}; there are also {EXPOSURE} and {IMPRESSIONS}."
            )
        column = log.column(name)
        if column.null_count():
            raise ClickLogError(
                f"The prior of '{coin}' depends on '{name}', but {column.null_count():,} of "
                f"{len(column):,} results have no value there."
            )
        if column.dtype.is_numeric() or column.dtype == pl.Boolean:
            return pl.Series(name, self._means(column.cast(pl.Float64).to_numpy()))
        codes = coded(log, name, coin)
        example, is_one = self._examples(codes.codes)
        if not is_one:
            raise ModelError(
                f"The prior of '{coin}' depends on '{name}', which is not a number and has "
                f"several values for the same row."
            )
        return codes.values.gather(pl.Series(example)).alias(name)

    @cached_property
    def shown(self) -> Floats:
        """How often each row is shown."""
        found: Floats = self._sums(np.zeros(1))[0]
        return found

    @cached_property
    def pages(self) -> Floats:
        """How many pages could have shown each row."""
        log = self.log
        if "query" not in self.keys or not log.has_query:
            return np.full(self.n_rows, float(log.weight.sum()))
        query = coded(log, "query", "query").codes
        firsts = log.order[log.starts[:-1][log.lengths > 0]]
        of_query = np.bincount(query[firsts], weights=log.weight[log.lengths > 0])
        return of_query.astype(np.float64)[self._examples(query)[0]]

    def _means(self, values: NDArray[Any]) -> Floats:
        shown, total = self._sums(values)
        # Pages that weigh nothing say nothing; their rows stand in the middle.
        all_shown = shown.sum()
        middle = float(total.sum() / all_shown) if all_shown > 0 else 0.0
        return np.where(shown > 0, total / np.maximum(shown, 1e-300), middle)

    def _sums(self, values: NDArray[Any]) -> Floats:
        """How often each row is shown, and the sum of the values there."""
        found = np.zeros((2, self.n_rows))
        self._walk(add_by_row, values, self.log.weight, found)
        self.__dict__.setdefault("shown", found[0])  # known from now on
        return found

    def _examples(self, codes: NDArray[np.uint32]) -> tuple[NDArray[np.int64], bool]:
        """A code that each row has somewhere, and whether it has no other."""
        found, differ = np.full(self.n_rows, -1, np.int64), np.zeros(1, np.int64)
        self._walk(note_by_row, codes, found, differ)
        return np.maximum(found, 0), not differ[0]

    def _walk(self, kernel: Any, *given: NDArray[Any]) -> None:
        """Let a kernel see the row and the place in the log of every result."""
        encoded, log = self.encoded, self.log
        plan = encoded.plan.coins[self.number]
        is_by_page = plan.scope == "page"
        begins = encoded.obs_start if plan.history else encoded.row_start
        arguments = (
            *[log.starts, np.zeros(0, np.int64) if log.is_sorted else log.order],
            *[encoded.page_of_session, np.asarray(begins), encoded.codes[plan.codes]],
            *[encoded.first_rows[plan.codes], is_by_page, *given],
        )
        static_kernel(kernel, arguments)(*arguments)


def smoothed_share(shown: Floats | float, pages: Floats) -> Floats:
    """A share of pages, drawn to one half by one page."""
    share: Floats = (shown + 0.5) / (pages + 1.0)
    return share


class JoinedAverages:
    """Averages over all places of a row, wherever they are.

    Parameters
    ----------
    names : of what is wanted: "exposure", "impressions", pages, and others that are means
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self._shown: Floats = np.zeros(0)
        self._pages: Floats = np.zeros(0)  # of the query of each row
        self._all_pages = 0.0
        counted = (EXPOSURE, IMPRESSIONS, PAGES)
        self._means = {n: np.zeros(0) for n in names if n not in counted}

    def add(
        self, places: RowPlaces, means: Mapping[str, Floats], shown: Floats, pages: Floats
    ) -> None:
        """Add a piece: for each of its rows the means, how often it is shown, and on how many
        pages (of its query) it could have been."""
        index, k = places.index, places.n_continued
        n_rows = max(len(self._shown), int(index.max()) + 1)
        before = _longer(self._shown, n_rows)
        after = before.copy()
        after[index] += shown
        for name, old in self._means.items():
            mean = _longer(old, n_rows)
            both = mean[index] * before[index] + means[name] * shown
            # Pages that weigh nothing say nothing.
            weighs = after[index] > 0
            mean[index] = np.divide(both, after[index], out=means[name].copy(), where=weighs)
            self._means[name] = mean
        self._shown = after
        if not places.is_by_query:  # every page could have shown every row
            self._all_pages += float(pages.max(initial=0.0))
            self._pages = np.full(n_rows, self._all_pages)
            return
        of_query = self._pages[places.start] + pages[0] if k else 0.0
        self._pages = _longer(self._pages, n_rows)
        self._pages[index[k:]] = pages[k:]
        if k:
            last = int(index[k]) if k < len(index) else n_rows
            self._pages[places.start : last] = of_query  # also of rows that are not in this piece

    def finish(self) -> dict[str, Floats]:
        """What was wanted, for each row of all pieces."""
        found = {
            EXPOSURE: smoothed_share(self._shown, self._pages),
            IMPRESSIONS: self._shown,
            PAGES: self._pages,
            **self._means,
        }
        return {name: found[name] for name in self.names}


def _longer(values: Floats, n: int) -> Floats:
    return np.concatenate([values, np.zeros(n - len(values))])
