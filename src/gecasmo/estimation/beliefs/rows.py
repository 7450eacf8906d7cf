"""What is believed of each row of some tables, everything else held where it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.folding import N_BUCKETS
from gecasmo.estimation.beliefs.likelihood import Asked, RowLikelihood, row_likelihoods
from gecasmo.estimation.beliefs.moments import row_beliefs
from gecasmo.estimation.expectation import Expectation
from gecasmo.forms import TableState

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def likelihoods_of(
    expectation: Expectation,
    weights: Sequence[Floats],
    states: Mapping[int, TableState],
    n_buckets: int = N_BUCKETS,
) -> list[RowLikelihood]:
    """The likelihood of the rows of some coins, at these weights of all."""
    return row_likelihoods(expectation, weights, _asked(weights, states), n_buckets)


def _asked(weights: Sequence[Floats], states: Mapping[int, TableState]) -> list[Asked]:
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
    beliefs = row_beliefs(expectation, weights, _asked(weights, states), n_buckets)
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


def group_shifts(
    state: TableState, slopes: Floats, precision: Floats, read: Integers | None = None
) -> Floats:
    """How far the means of learned priors move along with their rows, `[group, column]`.

    The smaller of a prior's pseudo-counts stays as it is: a Beta distribution of small numbers then
    only changes its scale, which is just what shared coins may do to rows. `slopes` has a line for
    every row, or for the rows `read`, those of others being 0.
    """
    if state.priors is None or state.grouping is None:
        return np.zeros((1, slopes.shape[1]))
    p, group = state.probability, state.grouping.number
    n_groups = state.grouping.n_groups
    size = np.maximum(np.bincount(group, minlength=n_groups), 1)
    give = p * (1 - p) / precision
    echo = np.bincount(group, weights=give * _pull(state), minlength=n_groups) / size
    if read is not None:
        group, give = group[read], give[read]
    moved = [
        np.bincount(group, weights=give * column, minlength=n_groups) / size for column in slopes.T
    ]
    shifts: Floats = np.stack(moved, axis=1) / np.maximum(1 - echo, 0.05)[:, None]
    return shifts


def row_answers(
    state: TableState,
    slopes: Floats,
    precision: Floats,
    shifts: Floats,
    read: Integers | None = None,
) -> Floats:
    """How far rows' logits move when their slopes change by the columns of `slopes`; of all rows,
    or of the rows `read`.

    The mean of a learned prior moves along with its rows, or it would hold a scale that nothing
    else holds.
    """
    chosen = slice(None) if read is None else read
    alone: Floats = slopes / precision[chosen, None]
    if state.priors is None or state.grouping is None:
        return alone
    along = (_pull(state) / precision)[chosen]
    return alone + along[:, None] * shifts[state.grouping.number[chosen]]


def _pull(state: TableState) -> Floats:
    """How the slope of each row answers to the mean of its prior."""
    assert state.priors is not None
    assert state.grouping is not None
    p, group = state.probability, state.grouping.number
    mean, strength = state.priors.mean[group], state.priors.strength[group]
    pull: Floats = np.where(mean < 0.5, strength / mean * p, strength / (1 - mean) * (1 - p))
    return pull
