"""The likelihood of every row of a coin, as a function of that row's probability alone.

Everything else is held at its estimate. On one page the likelihood is linear in the probability of
a row that can be flipped once there, and an E-step over the pages taken apart gives that line;
where a row can be flipped several times it is a polynomial (`polynomials.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.encoded import Apart, EncodedLog
from gecasmo.estimation.expectation import Expectation
from gecasmo.estimation.posteriors.few_rows import elsewhere_of_few, grid_of_few
from gecasmo.estimation.posteriors.polynomials import Polynomials, elevated, polynomials
from gecasmo.forms import TableState
from gecasmo.kernels.static import static_kernel
from gecasmo.kernels.static.row_grid import group_by_row, means_elsewhere, row_grid

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]

N_POINTS = 32
# Pages are taken apart a few at a time, which bounds the memory that takes.
_RESULTS_AT_ONCE = 240_000
# Fewer are not worth compiling.
_FEW_PLACES = 5_000
_WORTH_A_THREAD, _FEWEST_PIECES = 50_000, 4


@dataclass
class RowLikelihood:
    """The logarithm of each row's likelihood on points of its own, evenly spaced in the logit.

    `values[row]` belongs to the logits `low[row] + step[row] * (0, 1, 2, ...)`; its largest is 0.
    """

    low: Floats
    step: Floats
    values: Floats
    known: Bools  # of which rows any of the pages says something

    def __len__(self) -> int:
        return len(self.low)

    def of_rows(self, rows: Integers) -> RowLikelihood:
        """That of some of the rows."""
        return RowLikelihood(self.low[rows], self.step[rows], self.values[rows], self.known[rows])


@dataclass
class Asked:
    """A coin whose rows' likelihood is wanted: its number, the current probability of its rows,
    the prior under which points are placed, `[heads or tails, row]`, and which rows count."""

    coin: int
    probability: Floats
    prior: Floats
    wanted: Bools


def asked_of(weights: Sequence[Floats], states: Mapping[int, TableState]) -> list[Asked]:
    """Questions about the rows of some coins, at these weights of all."""
    asked = []
    for number, state in states.items():
        wanted = np.ones(len(state.probability), bool)
        if state.is_fixed is not None:
            wanted &= ~state.is_fixed
        asked.append(Asked(number, weights[number][1], beta_prior(state), wanted))
    return asked


def beta_prior(state: TableState) -> Floats:
    """The Beta prior of each row; pseudo-counts of less than half a flip count as that much, since
    otherwise a single click would be certainty."""
    counts = np.asarray(state.pseudo, np.float64)
    if counts.ndim < 2:  # the same for all rows
        counts = np.repeat(counts[:, None], len(state.probability), axis=1)
    prior: Floats = np.maximum(counts, 1e-3 if state.priors is not None else 0.5)
    return prior


class ByRow(NamedTuple):
    """Places by row: those of row `first` + r are `order[start[r]:start[r + 1]]`."""

    first: int
    start: Integers
    order: Integers


@dataclass
class Places:
    """What pages say of a coin, place by place: expected heads and tails if its probability there
    is `at`, or polynomials (see `polynomials.py`)."""

    rows: NDArray[np.uint32]
    heads: Floats
    tails: Floats
    at: Floats
    weight: Floats
    exact: NDArray[np.int32]
    coefficients: Floats
    known: dict[str, ByRow] = field(default_factory=dict)  # the same for other coins by such rows

    @property
    def by_row(self) -> ByRow:
        """The places by row."""
        if "by_row" not in self.known:
            first = int(self.rows.min())
            start = np.zeros(int(self.rows.max()) - first + 2, np.int64)
            order = np.empty(len(self.rows), np.int64)
            _call(group_by_row, self.rows, first, start, order)
            self.known["by_row"] = ByRow(first, start, order)
        return self.known["by_row"]


def nothing_known(n_rows: int) -> RowLikelihood:
    """Rows about which nothing is known."""
    step = np.full(n_rows, 28.0 / (N_POINTS - 1))
    values = np.zeros((n_rows, N_POINTS))
    return RowLikelihood(np.full(n_rows, -14.0), step, values, np.zeros(n_rows, np.bool_))


def is_spread(expectation: Expectation, coin: int) -> bool:
    """Whether rows of a coin stand in several chunks."""
    return expectation.encoded.shifts[coin] < 8


def places_of(
    expectation: Expectation, apart: Apart, weights: list[Floats], tables: list[Floats], coin: int
) -> Places:
    """What pages say of a coin by their expected counts at these weights, all by place."""
    array = expectation.encoded.plan.coins[coin].codes
    tails, heads = tables[coin]
    found = polynomials(expectation, apart, weights, coin)
    if found is None:
        found = Polynomials(np.zeros(len(heads), np.int32), np.zeros((1, 1)))
    else:
        alone = found.exact != 0  # what the polynomial says is not to be said again
        heads, tails = np.where(alone, 0.0, heads), np.where(alone, 0.0, tails)
    weight = expectation.encoded.weight[apart.pages]
    if not expectation.encoded.is_by_page(array):
        weight = np.repeat(weight, apart.lengths)
    at = weights[coin][1]
    known = apart.known.setdefault(("by row", array), {})
    told = (found.exact, found.coefficients)
    return Places(apart.rows[array], heads, tails, at, weight, *told, known)


def joined(parts: list[Places]) -> Places:
    """What several chunks say of a coin."""
    degree = max(part.coefficients.shape[1] for part in parts)
    offsets = np.cumsum([0, *(len(part.coefficients) for part in parts)])
    exact = [
        np.where(part.exact > 0, part.exact + before, part.exact).astype(np.int32)
        for part, before in zip(parts, offsets, strict=False)
    ]
    return Places(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.heads for part in parts]),
        np.concatenate([part.tails for part in parts]),
        np.concatenate([part.at for part in parts]),
        np.concatenate([part.weight for part in parts]),
        np.concatenate(exact),
        np.concatenate([elevated(part.coefficients, degree - 1) for part in parts]),
    )


def multiplied(places: Places, one: Asked) -> tuple[int, RowLikelihood]:
    """What all places say of each row, for the rows from some first one on."""
    if len(places.rows) < _FEW_PLACES:
        first = int(places.rows.min())
        found = nothing_known(int(places.rows.max()) - first + 1)
        grid_of_few(places, one.prior, one.wanted, found, first)
        return first, found
    first, start, order = places.by_row
    found = nothing_known(len(start) - 1)
    _call(
        row_grid,
        *[first, start, order, places.heads, places.tails, places.weight],
        *[places.exact, places.coefficients, places.at, one.prior, one.wanted],
        *[found.known, found.low, found.step, found.values],
    )
    return first, found


def elsewhere(places: Places, one: Asked, first: int, known: RowLikelihood) -> Floats:
    """For every place the means of p and p^2 of its row in view of the prior and of all other
    pages, `[which, place]`; `known` is what all pages say together of the rows from `first` on."""
    if len(places.rows) < _FEW_PLACES:
        return elsewhere_of_few(places, one.prior, known, first)
    means = np.empty((2, len(places.rows)))
    _call(
        means_elsewhere,
        *[*places.by_row, places.heads, places.tails, places.exact, places.coefficients],
        *[places.at, one.prior, known.low, known.step, known.values, means],
    )
    return means


def _call(function: Any, *arguments: Any) -> None:
    static_kernel(function, arguments)(*arguments)


def chunks_of(encoded: EncodedLog, n_buckets: int) -> list[NDArray[np.int64]]:
    """The pages in pieces of whole buckets, so that a query's rows stay together."""
    starts = encoded.obs_start[encoded.bucket_start[: n_buckets + 1]]
    pieces = max(1, int(starts[-1]) // _RESULTS_AT_ONCE)
    if starts[-1] > _WORTH_A_THREAD:
        pieces = max(pieces, _FEWEST_PIECES)
    cuts = np.searchsorted(starts, np.linspace(0, starts[-1], pieces + 1)[1:-1])
    borders = sorted({0, len(starts) - 1, *map(int, cuts)})
    pages = encoded.bucket_start
    return [np.arange(pages[a], pages[b]) for a, b in pairwise(borders) if pages[b] > pages[a]]
