"""Rows that a whole page shares: a coin by query, by user, by device.

Such a row may be flipped at every result, so that its likelihood on a page is a polynomial of any
degree. But a page has only one row of the coin: all rows can be moved at once, and an E-step over
all pages evaluates one point of every row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.encoded import take_apart
from gecasmo.estimation.coins import as_weights
from gecasmo.estimation.expectation import Expectation
from gecasmo.estimation.posteriors.pages import run_apart, weights_apart

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_MOST_ROUNDS = 8
# Beyond this, in nats below the best point, a posterior is nothing.
_NOTHING = 18.0


def whole_page_values(
    expectation: Expectation,
    weights: Sequence[Floats],
    coin: int,
    prior: Floats,
    chunks: Sequence[Integers],
    n_points: int,
) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    """For each row its lowest logit, the step between points, the log-likelihood there, and
    whether it stands on any of the pages. Points are narrowed to where the posterior lives."""
    n_rows = prior.shape[1]
    low, step = np.full(n_rows, -14.0), np.full(n_rows, 28.0 / (n_points - 1))
    values = np.zeros((n_rows, n_points))
    known = np.zeros(n_rows, np.bool_)
    is_open = np.ones(n_rows, np.bool_)
    for round_ in range(_MOST_ROUNDS):
        values[is_open] = 0.0
        for pages in chunks:
            seen = _add(expectation, weights, coin, pages, low, step, values, is_open)
            known[seen] = True
        left, right = _lively(values, low, step, prior)
        narrow = is_open & known & (4 * (right - left) < 3 * (n_points - 1))
        if round_ == _MOST_ROUNDS - 1 or not narrow.any():
            break
        low = np.where(narrow, low + step * left, low)
        step = np.where(narrow, step * (right - left) / (n_points - 1), step)
        is_open = narrow
    values -= values.max(axis=1, keepdims=True)
    return low, step, values, known


def _add(
    expectation: Expectation,
    weights: Sequence[Floats],
    coin: int,
    pages: Integers,
    low: Floats,
    step: Floats,
    values: Floats,
    is_open: NDArray[np.bool_],
) -> Integers:
    """Add what some pages say of the rows that are still open; which rows these are."""
    encoded = expectation.encoded
    codes = encoded.codes[encoded.plan.coins[coin].codes]
    pages = pages[is_open[codes[pages]] & (encoded.weight[pages] > 0)]
    if not len(pages):
        return np.zeros(0, np.int64)
    apart = take_apart(encoded, pages)
    own = weights_apart(expectation, apart, weights)
    rows = codes[pages].astype(np.int64)
    for point in range(values.shape[1]):
        p = 1 / (1 + np.exp(-(low + step * point)))
        own[coin] = as_weights(p[rows])
        _, log_likelihood = run_apart(expectation, apart, own)
        np.add.at(values[:, point], rows, encoded.weight[pages] * log_likelihood)
    return rows


def _lively(values: Floats, low: Floats, step: Floats, prior: Floats) -> tuple[Integers, Integers]:
    """The first and the last point of each row at which its posterior is something."""
    x = low[:, None] + step[:, None] * np.arange(values.shape[1])
    log_p = -np.log1p(np.exp(-x))
    posterior = values + prior[0][:, None] * log_p + prior[1][:, None] * (log_p - x)
    alive = posterior >= posterior.max(axis=1, keepdims=True) - _NOTHING
    last = values.shape[1] - 1
    left = np.maximum(alive.argmax(axis=1) - 1, 0)
    right = np.minimum(last - alive[:, ::-1].argmax(axis=1) + 1, last)
    return left, right
