"""Shared coins, estimated with rows integrated out.

With a few flips a row, estimates of rows are far from the truth, and coins that all pages share
make up for it: the more rows, the more certain the error. So the shared coins are moved by the
difference that it makes, on the same pages, whether rows stand at their estimates or are drawn
from what is believed of them. Draws are made from a fixed seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.problem import Evaluation, Problem, as_weights
from gecasmo.forms import FormState, Table, TableState

Floats = NDArray[np.float64]

_PAGES = 50_000
_STEPS = 30
_AVERAGED = 15
_SEED = 20_240


def integrated(
    problem: Problem, best: Evaluation, believed: list[FormState], rows: list[int]
) -> list[FormState]:
    """The states `believed`, with shared tables as they are when rows are integrated out.

    `best` has rows at the top of the objective; `rows` are the coins with beliefs in `believed`.
    """
    shared = [
        number
        for number, coin in enumerate(problem.coins)
        if isinstance(coin.form, Table) and number not in rows and len(coin.rows)
    ]
    if not shared or not rows:
        return believed
    n_buckets, factor = problem.expectation.sample(_PAGES)
    generator = np.random.default_rng(_SEED)
    held = {number: problem.weights(best.states)[number] for number in rows}
    read = _read_rows(problem, best, rows, n_buckets)

    def estimates() -> dict[int, Floats]:
        return held

    def drawn() -> dict[int, Floats]:
        return {
            number: _drawn(believed[number], held[number], read[number], generator)
            for number in rows
        }

    ends = [
        _climbed(problem, best.states, shared, weights_of_rows, n_buckets, factor)
        for weights_of_rows in (estimates, drawn)
    ]
    states = list(believed)
    for number in shared:
        form: Any = problem.coins[number].form
        vector = form.vector(best.states[number])
        before, after = (np.clip(end[number], -40.0, 40.0) for end in ends)  # given rows: infinite
        shift = np.clip(after - before, -1.0, 1.0)
        inside = np.isfinite(vector)
        moved = np.where(inside, vector + np.where(inside, shift, 0.0), vector)
        states[number] = form.from_vector(best.states[number], moved)
    return states


def _read_rows(
    problem: Problem, best: Evaluation, rows: list[int], n_buckets: int
) -> dict[int, NDArray[np.int64]]:
    """Which rows the chosen pages flip at all: only those need to be drawn."""
    counts = problem.expectation.run(problem.weights(best.states), n_buckets)
    return {number: np.flatnonzero(counts.tables[number].sum(axis=0) > 0) for number in rows}


def _drawn(
    state: TableState, held: Floats, read: NDArray[np.int64], generator: np.random.Generator
) -> Floats:
    """The weights of a coin with some of its rows drawn from their Beta beliefs."""
    assert state.spread is not None
    mean, spread = state.probability[read], state.spread[read]
    share = np.clip(spread**2 / np.maximum(mean * (1 - mean), 1e-12), 1e-9, 0.999)
    strength = 1 / share - 1
    free = spread > 0
    a = np.maximum(mean * strength, 1e-3)
    b = np.maximum((1 - mean) * strength, 1e-3)
    draws = np.where(free, np.clip(generator.beta(a, b), 1e-9, 1 - 1e-9), mean)
    weights = held.copy()
    weights[:, read] = as_weights(draws)
    return weights


def _climbed(
    problem: Problem,
    states: list[FormState],
    shared: list[int],
    weights_of_rows: Callable[[], dict[int, Floats]],
    n_buckets: int,
    factor: float,
) -> dict[int, Floats]:
    """Where EM takes the shared coins, as the mean of the last steps' logits."""
    states = list(states)
    total = dict.fromkeys(shared, 0.0)
    for step in range(_STEPS):
        weights = problem.weights(states)
        for number, own in weights_of_rows().items():
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
