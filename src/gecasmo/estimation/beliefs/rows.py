"""What is believed of each row of some tables, everything else held where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.folding import N_BUCKETS
from gecasmo.estimation.beliefs.likelihood import Asked
from gecasmo.estimation.beliefs.moments import row_beliefs
from gecasmo.estimation.expectation import Expectation
from gecasmo.forms import TableState

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def asked_of(weights: Sequence[Floats], states: Mapping[int, TableState]) -> list[Asked]:
    """Questions about the rows of some coins, at these weights of all."""
    asked = []
    for number, state in states.items():
        wanted = np.ones(len(state.probability), bool)
        if state.is_fixed is not None:
            wanted &= ~state.is_fixed
        asked.append(Asked(number, weights[number][1], beta_prior(state), wanted))
    return asked


def believed(
    expectation: Expectation,
    weights: Sequence[Floats],
    states: Mapping[int, TableState],
    forms: Mapping[int, Any],
    n_buckets: int = N_BUCKETS,
) -> dict[int, TableState]:
    """The states of some coins with the posterior mean and standard deviation of every row."""
    if not states:
        return {}
    beliefs = row_beliefs(expectation, weights, asked_of(weights, states), n_buckets)
    return {
        number: forms[number].with_beliefs(state, mean, deviation)
        for (number, state), (mean, deviation) in zip(states.items(), beliefs, strict=True)
    }


def precision_of(state: TableState) -> Floats:
    """How much is known about the logit of each row, from what is believed of it."""
    assert state.centre is not None
    assert state.spread is not None
    slope = np.maximum(state.centre * (1 - state.centre), 1e-12)
    precision: Floats = (slope / np.maximum(state.spread, 1e-9)) ** 2
    return precision


def widened(state: TableState, extra: Floats) -> TableState:
    """The state when the logit of each row has so much more variance."""
    assert state.centre is not None
    assert state.spread is not None
    slope = state.centre * (1 - state.centre)
    # No probability strays more than one that is either 0 or 1.
    spread = np.minimum(np.sqrt(state.spread**2 + slope**2 * extra), np.sqrt(slope))
    return replace(state, spread=spread)


def beta_prior(state: TableState) -> Floats:
    """The Beta prior of each row; pseudo-counts of less than half a flip count as that much, since
    otherwise a single click would be certainty."""
    n_rows = len(state.probability)
    counts = [np.broadcast_to(np.asarray(side, float), (n_rows,)) for side in state.pseudo]
    floor = 0.0 if state.priors is not None else 0.5
    prior: Floats = np.maximum(np.stack(counts), max(floor, 1e-3))
    return prior
