"""Shared coins, estimated with rows integrated out.

With a few flips a row, estimates of rows are far from the truth, and coins that all pages share
make up for it: the more rows, the more certain the error. So the shared coins are moved by the
difference that it makes, on the same pages, whether rows stand at their estimates or are drawn
from what is believed of them. A draw depends on the row's key and nothing else, so that the order
of a log plays no part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.row_hashes import key_hashes
from gecasmo.estimation.problem import Evaluation, Problem, as_weights
from gecasmo.forms import FormState, Table, TableState
from gecasmo.hashing import Hashes, mix

Floats = NDArray[np.float64]

_STEPS = 30
_AVERAGED = 15


def integrated(
    problem: Problem,
    best: Evaluation,
    believed: list[FormState],
    rows: list[int],
    n_buckets: int,
    factor: float,
) -> list[FormState]:
    """The states of `best`, with shared tables as they are when rows are integrated out.

    `rows` are the coins with beliefs in `believed`, as far as the first buckets tell; the
    whole log weighs `factor` as much as these.
    """
    shared = [
        number
        for number, coin in enumerate(problem.coins)
        if isinstance(coin.form, Table) and number not in rows and len(coin.rows)
    ]
    if not shared or not rows:
        return best.states
    weights = problem.weights(best.states)
    held = {number: weights[number] for number in rows}
    draws = _draws(problem, best, believed, rows, n_buckets)

    def estimates(step: int) -> dict[int, Floats]:
        return held

    def drawn(step: int) -> dict[int, Floats]:
        return {number: draws[number].weights(held[number], step) for number in rows}

    ends = [
        _climbed(problem, best.states, shared, weights_of_rows, n_buckets, factor)
        for weights_of_rows in (estimates, drawn)
    ]
    states = list(best.states)
    for number in shared:
        form: Any = problem.coins[number].form
        vector = form.vector(best.states[number])
        before, after = (np.clip(end[number], -40.0, 40.0) for end in ends)  # given rows: infinite
        shift = np.clip(after - before, -1.0, 1.0)
        inside = np.isfinite(vector)
        moved = np.where(inside, vector + np.where(inside, shift, 0.0), vector)
        states[number] = form.from_vector(best.states[number], moved)
    return states


@dataclass
class _Draws:
    """The beliefs of some rows as two values each: those with the mean, variance and skewness of
    the row's Beta distribution, which lie inside (0, 1) like all points of Gauss quadrature."""

    rows: NDArray[np.int64]
    low: Floats
    high: Floats
    share_of_high: Floats
    hashes: Hashes
    drawn: Floats | None = None  # the last weights: other rows stay as they are

    def weights(self, held: Floats, step: int) -> Floats:
        """The weights of a coin with these rows drawn, good until the next draw."""
        by_chance = mix(self.hashes ^ np.uint64(step + 1)) / np.float64(2**64)
        if self.drawn is None:
            self.drawn = held.copy()
        self.drawn[:, self.rows] = as_weights(
            np.where(by_chance < self.share_of_high, self.high, self.low)
        )
        return self.drawn


def _draws(
    problem: Problem,
    best: Evaluation,
    believed: list[FormState],
    rows: list[int],
    n_buckets: int,
) -> dict[int, _Draws]:
    """For each coin, draws of the rows that the chosen pages flip at all."""
    counts = problem.expectation.run(problem.weights(best.states), n_buckets)
    found = {}
    for place, number in enumerate(rows):
        read = np.flatnonzero(counts.tables[number].sum(axis=0) > 0)
        state: TableState = believed[number]
        assert state.spread is not None
        low, high, share = _two_points(state.probability[read], state.spread[read])
        hashes = key_hashes(problem.coins[number].rows.frame[read], place)
        found[number] = _Draws(read, low, high, share, hashes)
    return found


def _two_points(mean: Floats, spread: Floats) -> tuple[Floats, Floats, Floats]:
    """Two values with the first three moments of a Beta distribution, and the share of the
    higher one."""
    inside = np.clip(mean, 1e-9, 1 - 1e-9)
    share = np.clip(spread**2 / (inside * (1 - inside)), 1e-12, 0.999)
    strength = 1 / share - 1  # a + b
    skewness = 2 * (1 - 2 * inside) * np.sqrt(strength + 1)
    skewness /= (strength + 2) * np.sqrt(inside * (1 - inside))
    deviation = np.sqrt(share * inside * (1 - inside))
    root = np.sqrt(1 + (skewness / 2) ** 2)
    low = np.clip(inside + deviation * (skewness / 2 - root), 1e-9, 1 - 1e-9)
    high = np.clip(inside + deviation * (skewness / 2 + root), 1e-9, 1 - 1e-9)
    share_of_high = 0.5 * (1 - skewness / 2 / root)
    given = spread == 0  # rows that are given stay as they are
    return np.where(given, mean, low), np.where(given, mean, high), share_of_high


def _climbed(
    problem: Problem,
    states: list[FormState],
    shared: list[int],
    weights_of_rows: Callable[[int], dict[int, Floats]],
    n_buckets: int,
    factor: float,
) -> dict[int, Floats]:
    """Where EM takes the shared coins, as the mean of the last steps' logits."""
    states = list(states)
    total = dict.fromkeys(shared, 0.0)
    weights = problem.weights(states)
    for step in range(_STEPS):
        for number in shared:
            weights[number] = as_weights(problem.coins[number].predict(states[number]))
        for number, own in weights_of_rows(step).items():
            weights[number] = own
        counts = problem.expectation.run(weights, n_buckets)
        for number in shared:
            coin = problem.coins[number]
            form: Any = coin.form
            tails, heads = factor * counts.tables[number]
            states[number] = form.fit(coin.rows, heads, tails, states[number])
            if step >= _STEPS - _AVERAGED:
                total[number] = total[number] + form.vector(states[number]) / _AVERAGED
    return {number: np.asarray(vector) for number, vector in total.items()}
