"""What is typical of the rows of a table: their places on pages, and smooth functions of that."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.averages import EXPOSURE, IMPRESSIONS, PAGES
from gecasmo.encoding.rows import Rows
from gecasmo.forms.form import Floats
from gecasmo.kernels.static import static_kernel
from gecasmo.kernels.static.row_sums import fill_ramps

Integers = NDArray[np.int64]

# A smooth function bends at so many places at most, with at least so many rows in between; fewer
# rows than for a line have none.
_MOST_PIECES = 8
_ROWS_IN_PIECE = 100
_ROWS_FOR_LINE = 25
_FEW_ROWS = 10_000  # fewer are not worth compiling
OF_DOCUMENT = " of document"
PLACE = "place"  # among the results of a query
_FOR_PLACES = {"rank", IMPRESSIONS, PAGES}
_BEYOND = 0.7  # how far from the middle results are that a page does not show, in its lengths


@dataclass(frozen=True)
class SmoothFunction:
    """A piecewise linear function of a typical value, bent at the knots, level beyond the ends.

    It is a sum of a straight line over all pieces and of ramps, one for each piece, each less its
    mean over the rows of the fit. How steep the line is, only the log tells; bends are held. With
    `times`, it is multiplied by another typical value, `usual` of which is 0 and a deviation of
    `spread` 1: how the function changes with that.
    """

    name: str
    knots: Floats
    centre: Floats
    times: str = ""
    usual: float = 0.0
    spread: float = 1.0
    beyond: float = 0.0  # of places: see `with_place`

    @classmethod
    def of(cls, name: str, values: Floats) -> SmoothFunction | None:
        """Cut values into pieces of equally many rows; None if they hardly differ."""
        x = scaled(name, values)
        if len(x) < _ROWS_FOR_LINE:
            return None
        # How much a number of pages tells goes with its logarithm.
        most = 1 if name == PAGES else _MOST_PIECES
        n_pieces = int(np.clip(len(x) // _ROWS_IN_PIECE, 1, most))
        knots = np.unique(np.quantile(x, np.linspace(0, 1, n_pieces + 1)))
        if len(knots) < 2 or knots[-1] - knots[0] < 1e-9:
            return None
        return cls(name, knots, _ramps(x, knots).mean(axis=0))

    def with_times(self, times: str, values: Floats) -> SmoothFunction | None:
        """Multiply the function by another typical value, of which these are all."""
        x = scaled(times, values)
        usual, spread = float(x.mean()), float(x.std())
        if spread < 1e-6:
            return None
        return replace(self, times=times, usual=usual, spread=spread)

    @property
    def size(self) -> int:
        """Number of knots."""
        return len(self.knots)

    @property
    def is_open(self) -> NDArray[np.bool_]:
        """Whether the line of means, and that of strengths, is for the log alone to tell."""
        if self.name == PAGES:
            return np.array([False, True])
        return np.array([not self.times and not self.name.endswith(OF_DOCUMENT), False])

    def is_known_from(self, names: Container[str]) -> bool:
        """Whether it depends on nothing but these typical values."""
        return self.name in names and (not self.times or self.times in names)

    @property
    def steepest(self) -> Floats:
        """How far the lines of means and of strengths may rise or fall over all rows."""
        return np.array([4.0, 6.0 if self.name == PAGES else 1.0])

    def basis(self, typical: Mapping[str, Floats]) -> Floats:
        """Make the line and the ramps of some rows, `[row, which]`."""
        found = np.empty((len(typical[self.name]), self.size))
        self.fill(typical, found, 0)
        return found

    def fill(self, typical: Mapping[str, Floats], out: Floats, column: int) -> None:
        """Write them into some columns."""
        x = scaled(self.name, typical[self.name])
        factor = self._factor(typical) if self.times else np.zeros(0)
        if len(x) < _FEW_ROWS:
            own = out[:, column : column + self.size]
            np.subtract(_ramps(x, self.knots), self.centre, out=own[:, 1:])
            if self.times:
                own[:, 1:] *= factor[:, None]
            own[:, 0] = own[:, 1:].mean(axis=1)
            return
        arguments = (x, self.knots, self.centre, factor, out, column)
        static_kernel(fill_ramps, arguments)(*arguments)

    def at(self, typical: Mapping[str, Floats], slopes: Floats) -> Floats:
        """Work out the two functions with these slopes, `[which, slope]`, for some rows."""
        # In one order, and so the same to the last bit wherever slopes come from.
        slopes = np.ascontiguousarray(slopes[:, 1:] + slopes[:, :1] / (slopes.shape[1] - 1))
        heights = np.zeros((2, len(self.knots)))
        np.cumsum(slopes, axis=1, out=heights[:, 1:])
        x = scaled(self.name, typical[self.name])
        # As the parts of one complex function, so that each row is looked for once.
        both = np.interp(x, self.knots, heights[0] + 1j * heights[1])
        found: Floats = np.stack([both.real, both.imag])
        found -= (slopes * self.centre).sum(axis=1)[:, None]
        return found * self._factor(typical) if self.times else found

    def rise(self, slopes: Floats) -> float:
        """Tell how much the function of places, with these slopes, rises over all towards what
        pages do not show."""
        return self.beyond / _BEYOND * float(slopes[0] + slopes[1:].sum())

    def _factor(self, typical: Mapping[str, Floats]) -> Floats:
        # Beyond three deviations it goes on level, as the function itself does.
        off = (scaled(self.times, typical[self.times]) - self.usual) / self.spread
        return np.clip(off, -3.0, 3.0)


@dataclass(frozen=True)
class Levels:
    """Which rows share a value of a column: the distinct values, and the place of each row's."""

    name: str
    values: pl.Series
    index: Integers

    def of_rows(self, rows: Integers) -> Levels:
        """Choose some of the rows, with the values that they have."""
        present, index = np.unique(self.index[rows], return_inverse=True)
        return Levels(self.name, self.values.gather(pl.Series(present)), index)


def with_place(
    rows: Rows, typical: Mapping[str, Floats], beyond: float | None
) -> dict[str, Floats]:
    """Add to what is typical of rows their place among the results of a query: the mean rank,
    where pages that do not show a row count as so many of their lengths beyond the middle.

    Of rows that are seldom shown the rank alone says little: it is the last one, of what is just
    below the end of the page as of what is far below it.
    """
    found = dict(typical)
    if beyond is not None and "query" in rows.keys and typical.keys() >= _FOR_PLACES:
        share = np.clip(typical[IMPRESSIONS] / np.maximum(typical[PAGES], 1e-300), 0.0, 1.0)
        elsewhere = place_elsewhere(page_lengths(rows, typical), beyond)
        found[PLACE] = share * typical["rank"] + (1 - share) * elsewhere
    return found


def page_lengths(rows: Rows, typical: Mapping[str, Floats]) -> Floats:
    """Tell the mean number of results on the pages of each row's query."""
    query = levels_of("query", rows.frame["query"]).index
    results = np.bincount(query, typical[IMPRESSIONS])[query]
    length: Floats = results / np.maximum(typical[PAGES], 1e-300)
    return length


def place_elsewhere(length: Floats, beyond: float) -> Floats:
    """Tell the place of what a page of such a length does not show."""
    return (length + 1) / 2 + beyond * length


def beyond_pages(typical: Mapping[str, Floats]) -> float | None:
    """Tell where rows are when pages do not show them, in lengths from the page's middle: beyond
    the end if rows that are seldom shown are at the bottom then, as under any good ranker; beyond
    the top if they are there; in the middle if nothing tells."""
    if not typical.keys() >= _FOR_PLACES:
        return None
    rank, share = typical["rank"], typical[IMPRESSIONS] / np.maximum(typical[PAGES], 1e-300)
    if len(rank) < _ROWS_FOR_LINE or min(rank.std(), share.std()) < 1e-9:
        return 0.0
    alike = float(np.corrcoef(rank, share)[0, 1])
    return -_BEYOND * float(np.clip(3 * alike, -1.0, 1.0))


def level_means(level: Levels, typical: Mapping[str, Floats]) -> dict[str, Floats]:
    """Tell what is typical of all rows of a document, for each of them: where it is in other
    queries says something, too, and where documents are the same in all queries it says it all."""
    if level.name != "doc":
        return {}
    found = {}
    n_rows = np.bincount(level.index)
    for name, values in typical.items():
        x = scaled(name, values)
        means = (np.bincount(level.index, x) / np.maximum(n_rows, 1))[level.index]
        found[f"{name}{OF_DOCUMENT}"] = means
    return found


def levels_of(name: str, values: pl.Series) -> Levels:
    """Find the distinct values of a column, and where each row's is among them."""
    codes = values.rank("dense").to_numpy().astype(np.int64) - 1
    first = np.zeros(int(codes.max(initial=-1)) + 1, np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return Levels(name, values.gather(pl.Series(first)), codes)


def scaled(name: str, values: Floats) -> Floats:
    """Take numbers of which ratios matter by their logarithm."""
    if name in (EXPOSURE, IMPRESSIONS, PAGES):
        return np.log(np.maximum(values, 1e-12))
    return np.asarray(values, np.float64)


def _ramps(x: Floats, knots: Floats) -> Floats:
    ramps: Floats = np.clip((x[:, None] - knots[:-1]) / np.diff(knots), 0.0, 1.0)
    return ramps
