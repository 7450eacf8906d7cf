"""Sums of weights by number, and the rows that results use."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding import EncodedLog

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def totals(numbers: NDArray[Any], weights: NDArray[Any], size: int) -> Floats:
    """The sum of the weights that belong to each of the numbers 0 to size - 1."""
    return np.bincount(numbers, weights=weights, minlength=size).astype(np.float64)


def times_met(encoded: EncodedLog, coin: int) -> Floats:
    """How often each row of a coin could have been flipped: results (or pages) that use it."""
    n_rows = len(encoded.rows[coin])
    plan = encoded.plan.coins[coin]
    lengths = np.diff(encoded.obs_start)
    if plan.scope == "page":
        return totals(encoded.codes[plan.codes], encoded.weight * (lengths > 0), n_rows)
    weight = np.repeat(encoded.weight, lengths)
    if plan.scope == "global":
        # Without a key there is one row; rows that a model numbers itself are met as it says.
        return np.full(n_rows, weight.sum())
    return totals(rows_at_results(encoded, coin), weight, n_rows)


def rows_at_results(encoded: EncodedLog, coin: int) -> Integers:
    """The row of a coin at every result of the encoded pages, page by page."""
    plan = encoded.plan.coins[coin]
    lengths = np.diff(encoded.obs_start)
    if plan.scope == "global":
        return np.zeros(encoded.n_results, np.int64)
    if plan.scope == "page":
        return np.repeat(encoded.page_rows(plan.codes).astype(np.int64), lengths)
    return encoded.result_rows(plan.codes, bool(plan.history)).astype(np.int64)
