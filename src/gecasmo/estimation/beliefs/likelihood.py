"""The likelihood of every row of a coin, as a function of that row's probability alone.

Everything else is held at its estimate. On one page the likelihood is linear in the probability of
a row that can be flipped once there, and an E-step over the pages taken apart gives that line;
where a row can be flipped several times it is a polynomial (`polynomials.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.apart import Apart, is_by_page, take_apart
from gecasmo.encoding.encoded import EncodedLog
from gecasmo.encoding.folding import N_BUCKETS
from gecasmo.estimation.beliefs.few_rows import elsewhere_of_few, grid_of_few
from gecasmo.estimation.beliefs.pages import run_apart, weights_apart
from gecasmo.estimation.beliefs.polynomials import (
    Polynomials,
    elevated,
    is_flipped_all_over,
    polynomials,
)
from gecasmo.estimation.beliefs.whole_pages import whole_page_values
from gecasmo.estimation.expectation import Expectation
from gecasmo.kernels.row_grid import group_by_row, means_elsewhere, row_grid
from gecasmo.kernels.running import KERNEL_THREAD, default_threads
from gecasmo.kernels.static import static_kernel

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]

N_POINTS = 32
# Pages are taken apart a few at a time, which bounds the memory that takes.
_RESULTS_AT_ONCE = 120_000
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
    known: Bools  # which rows stand on any of the pages

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


# Takes what is known of the rows of a coin from some row on, as soon as that is all.
Taker = Callable[[Asked, int, RowLikelihood], None]


def row_likelihoods(
    expectation: Expectation,
    weights: Sequence[Floats],
    asked: Sequence[Asked],
    n_buckets: int = N_BUCKETS,
) -> list[RowLikelihood]:
    """The likelihood of the rows of some coins at these weights of all; on all pages, or on those
    of the first buckets."""
    found = {one.coin: nothing_known(len(one.probability)) for one in asked}

    def take(one: Asked, first: int, likelihood: RowLikelihood) -> None:
        rows = np.flatnonzero(likelihood.known)
        for name in ("low", "step", "values", "known"):  # other threads have other rows
            getattr(found[one.coin], name)[first + rows] = getattr(likelihood, name)[rows]

    stream_likelihoods(expectation, weights, asked, n_buckets, take)
    return [found[one.coin] for one in asked]


def stream_likelihoods(
    expectation: Expectation,
    weights: Sequence[Floats],
    asked: Sequence[Asked],
    n_buckets: int,
    take: Taker,
) -> None:
    """The same, some rows after the other: those of all take a quarter of a kilobyte each.

    `take` is called on several threads, for different rows; what it gets has the numbers of rows
    less that of the first, and only speaks for rows that are known.
    """
    chunks = chunks_of(expectation.encoded, n_buckets)
    by_place = []
    for one in asked:
        if is_flipped_all_over(expectation, one.coin):
            values = whole_page_values(expectation, weights, one.coin, one.prior, chunks, N_POINTS)
            found = RowLikelihood(*values)
            found.known &= one.wanted
            take(one, 0, found)
        else:
            by_place.append(one)
    if by_place:
        _ByPlace(expectation, weights, by_place, take).run(chunks)


class _ByPlace:
    """Likelihoods from what pages say at each place, pages being looked at a few at a time."""

    def __init__(
        self,
        expectation: Expectation,
        weights: Sequence[Floats],
        asked: Sequence[Asked],
        take: Taker,
    ) -> None:
        self.expectation, self.weights, self.asked, self.take = expectation, weights, asked, take

    def run(self, chunks: list[Integers]) -> None:
        threads = default_threads()
        if threads == 1 or len(chunks) == 1:
            parts = [self._look(pages) for pages in chunks]
        else:
            # Threads of a pool have settings of their own unless they are given these.
            contexts = [copy_context() for _ in chunks]
            with ThreadPoolExecutor(threads, KERNEL_THREAD) as pool:
                calls = [
                    pool.submit(context.run, self._look, pages)
                    for context, pages in zip(contexts, chunks, strict=True)
                ]
                parts = [call.result() for call in calls]
        for number, one in enumerate(self.asked):
            if self._is_spread(one):
                kept = [part[number] for part in parts]
                self._finish(joined([p for p in kept if p is not None]), one)

    def _is_spread(self, one: Asked) -> bool:
        return is_spread(self.expectation, one.coin)

    def _look(self, pages: Integers) -> list[Places | None]:
        """What some pages say; kept only of coins about whose rows other pages say more."""
        apart = take_apart(self.expectation.encoded, pages)
        own = weights_apart(self.expectation, apart, self.weights)
        tables, _ = run_apart(self.expectation, apart, own)
        kept: list[Places | None] = []
        for one in self.asked:
            here = places_of(self.expectation, apart, own, tables, one.coin)
            kept.append(here if self._is_spread(one) else None)
            if kept[-1] is None:
                self._finish(here, one)
        return kept

    def _finish(self, places: Places, one: Asked) -> None:
        if len(places.rows):
            self.take(one, *multiplied(places, one))


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
    if not is_by_page(expectation.encoded, array):
        weight = np.repeat(weight, apart.lengths)
    at = weights[coin][1]
    return Places(apart.rows[array], heads, tails, at, weight, found.exact, found.coefficients)


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
    first = int(places.rows.min())
    found = nothing_known(int(places.rows.max()) - first + 1)
    if len(places.rows) < _FEW_PLACES:
        grid_of_few(places, one.prior, one.wanted, found, first)
        return first, found
    start, order = _grouped(places, first, len(found))
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
    start, order = _grouped(places, first, len(known))
    means = np.empty((2, len(places.rows)))
    _call(
        means_elsewhere,
        *[first, start, order, places.heads, places.tails, places.exact, places.coefficients],
        *[places.at, one.prior, known.low, known.step, known.values, means],
    )
    return means


def _grouped(places: Places, first: int, n_rows: int) -> tuple[Integers, Integers]:
    """Places by row: where each row begins, and the places in that order."""
    start = np.zeros(n_rows + 1, np.int64)
    order = np.empty(len(places.rows), np.int64)
    _call(group_by_row, places.rows, first, start, order)
    return start, order


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
