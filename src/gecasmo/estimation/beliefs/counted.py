"""Learn priors from counts: rows whose logs are gone, but not what they were worth."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.beliefs.likelihood import N_POINTS, RowLikelihood
from gecasmo.estimation.beliefs.prior import learned
from gecasmo.forms.priors import Priors

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# What many rows say of a prior, some of them say as well.
_MOST_ROWS, _MOST_ROWS_IN_GROUPS = 20_000, 200_000
# A posterior is looked at where it is above exp(-18) of its highest, and not beyond these logits.
_DEPTH, _FARTHEST = 18.0, 14.0


def priors_from_counts(
    evidence: Floats, group: Integers, before: Priors, is_fixed: NDArray[np.bool_] | None
) -> Priors:
    """Better priors than `before` for rows with these heads and tails, `[heads or tails, row]`.

    The same as learning them from a log on which nothing is hidden and these were counted.
    """
    counted = np.abs(evidence).sum(axis=0) > 1e-9
    if is_fixed is not None:
        counted &= ~is_fixed
    rows = np.flatnonzero(counted)
    most = _MOST_ROWS if len(before.logit) == 1 else _MOST_ROWS_IN_GROUPS
    rows = rows[:: max(1, -(-len(rows) // most))]
    own = group[rows]
    curves = _curves(evidence[:, rows], before.pseudo_counts(own))
    return learned(curves, own, before)


def _curves(evidence: Floats, prior: Floats) -> RowLikelihood:
    """The likelihood of heads and tails on points that cover each row's posterior."""
    a, b = np.maximum(evidence + prior, 1e-3)
    low, high = _edge(a, b, -_FARTHEST), _edge(a, b, _FARTHEST)
    step = (high - low) / (N_POINTS - 1)
    at = low[:, None] + step[:, None] * np.arange(N_POINTS)
    log_q = -np.logaddexp(0.0, at)
    values = evidence[0][:, None] * (log_q + at) + evidence[1][:, None] * log_q
    values -= values.max(axis=1, keepdims=True)
    return RowLikelihood(low, step, values, np.ones(len(low), bool))


def _edge(a: Floats, b: Floats, farthest: float) -> Floats:
    """The logit on one side where a Beta density in the logit has fallen far enough."""

    def height(at: Floats) -> Floats:
        heights: Floats = a * at - (a + b) * np.logaddexp(0.0, at)
        return heights

    near = np.clip(np.log(a / b), -_FARTHEST, _FARTHEST)
    far = np.full(len(a), farthest)
    lowest = height(near) - _DEPTH
    for _ in range(30):
        middle = (near + far) / 2
        inside = height(middle) > lowest
        near, far = np.where(inside, middle, near), np.where(inside, far, middle)
    return far
