"""Held-out log-likelihood in plain NumPy: a judge that shares no code with any contestant.

Both functions go down the page with the probability that the next result is examined, given the
clicks so far.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def dbn_log_likelihood(
    docs: NDArray[np.int32],
    clicks: NDArray[np.bool_],
    attraction: Floats,
    satisfaction: Floats,
    continuation: float,
) -> float:
    """Mean over pages; `attraction` and `satisfaction` by pair."""
    examined = np.ones(len(docs))
    total = np.zeros(len(docs))
    for rank in range(docs.shape[1]):
        pair, clicked = docs[:, rank], clicks[:, rank].astype(bool)
        by_click = examined * attraction[pair]
        total += np.log(np.where(clicked, by_click, 1 - by_click))
        after_skip = examined * (1 - attraction[pair]) / (1 - by_click)
        examined = continuation * np.where(clicked, 1 - satisfaction[pair], after_skip)
    return float(total.mean())


def ubm_log_likelihood(
    docs: NDArray[np.int32],
    clicks: NDArray[np.bool_],
    attraction: Floats,
    examination: Floats,
) -> float:
    """Mean over pages; `examination[rank - 1, rank of the last click above, 0 if none]`."""
    last = np.zeros(len(docs), np.int64)
    total = np.zeros(len(docs))
    for rank in range(docs.shape[1]):
        clicked = clicks[:, rank].astype(bool)
        by_click = examination[rank, last] * attraction[docs[:, rank]]
        total += np.log(np.where(clicked, by_click, 1 - by_click))
        last[clicked] = rank + 1
    return float(total.mean())
