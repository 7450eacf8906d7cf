"""Means and spreads of rows under their likelihood and a Beta prior."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.posteriors.few_rows import moments_of_few
from gecasmo.estimation.posteriors.likelihood import (
    Asked,
    RowLikelihood,
)
from gecasmo.kernels.static import static_kernel
from gecasmo.kernels.static.row_grid import row_moments
from gecasmo.kernels.threads import default_threads, run_jobs

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Fewer are not worth compiling.
_FEW_ROWS = 2_000
# A prior is narrow if its deviation is below so many steps between points; then so many points are
# put within so many deviations of its middle.
_FINE, _N_BETWEEN, _REACH = 1.0, 25, 5.5
_ROWS_AT_ONCE = 50_000


class Moments(NamedTuple):
    """Of each row: the logarithm of its integrated likelihood (without the Beta function), means of
    p, p^2, log p and log(1 - p), variances of the latter two and their covariance."""

    log_integral: Floats
    mean: Floats
    square: Floats
    log_p: Floats
    log_q: Floats
    var_p: Floats
    var_q: Floats
    covariance: Floats

    @property
    def deviation(self) -> Floats:
        """The standard deviation of p."""
        return np.sqrt(np.maximum(self.square - self.mean**2, 0.0))


def row_moments_of(
    likelihood: RowLikelihood, rows: Integers, prior: Floats, n_rows: int = 0
) -> Moments:
    """The moments of some rows; `prior` is `[heads or tails, row]` for just these, which are some
    of `n_rows` that will be asked for."""
    if max(len(rows), n_rows) < _FEW_ROWS:
        given = (likelihood.low, likelihood.step, likelihood.values)
        return Moments(*moments_of_few(rows, *given, prior))
    # One layout of arrays, so that the kernel is compiled once.
    rows, prior = np.ascontiguousarray(rows), np.ascontiguousarray(prior)
    moments = np.empty((8, len(rows)))
    pieces = 1 if default_threads() == 1 or len(rows) < _FEW_ROWS else 2 * default_threads()
    cuts = np.linspace(0, len(rows), pieces + 1).astype(int)
    jobs = [
        [int(a), int(b), rows, likelihood.low, likelihood.step, likelihood.values, prior, moments]
        for a, b in pairwise(cuts)
    ]
    run_jobs(static_kernel(row_moments, jobs[0]), jobs)
    return Moments(*moments)


def narrow_moments_of(likelihood: RowLikelihood, rows: Integers, prior: Floats) -> Moments:
    """As `row_moments_of`, for priors of any width: where a prior is narrower than the points of a
    row's likelihood lie apart, that likelihood is read between its points."""
    moments = row_moments_of(likelihood, rows, prior, len(likelihood))
    heads, tails = prior
    width = np.sqrt((heads + tails) / (heads * tails))  # of the logit, if the prior is strong
    narrow = np.flatnonzero(width < _FINE * likelihood.step[rows])
    if not len(narrow):
        return moments
    parts = np.array_split(narrow, -(-len(narrow) // _ROWS_AT_ONCE))
    for part in parts:
        found = _between(likelihood, rows[part], prior[:, part], width[part])
        for old, new in zip(moments, found, strict=True):
            old[part] = new
    return moments


def _between(likelihood: RowLikelihood, rows: Integers, prior: Floats, width: Floats) -> Moments:
    a, b = prior[:, :, None]
    x = np.log(a / b) + width[:, None] * np.linspace(-_REACH, _REACH, _N_BETWEEN)
    log_p = -np.log1p(np.exp(-x))
    log_q = log_p - x
    share = _read_between(likelihood, rows, x) + a * log_p + b * log_q
    best = share.max(axis=1)
    share = np.exp(share - best[:, None])
    total = share.sum(axis=1)
    share /= total[:, None]
    p = np.exp(log_p)
    means = [(share * one).sum(axis=1) for one in (p, p * p, log_p, log_q)]
    off_p, off_q = log_p - means[2][:, None], log_q - means[3][:, None]
    squares = [(share * one).sum(axis=1) for one in (off_p * off_p, off_q * off_q, off_p * off_q)]
    step = width * (2 * _REACH / (_N_BETWEEN - 1))
    return Moments(best + np.log(total * step), *means, *squares)


def _read_between(likelihood: RowLikelihood, rows: Integers, x: Floats) -> Floats:
    """The logarithm of each row's likelihood at its line of logits: cubic between points, and
    going on straight beyond the ends."""
    values = likelihood.values[rows]
    n = values.shape[1]
    place = (x - likelihood.low[rows, None]) / likelihood.step[rows, None]
    inside = np.clip(place, 0.0, n - 1.0)
    left = np.minimum(inside.astype(np.int64), n - 2)
    t = inside - left
    line = np.arange(len(rows))[:, None]
    before, after = np.maximum(left - 1, 0), np.minimum(left + 2, n - 1)
    y0, y1, y2, y3 = (values[line, k] for k in (before, left, left + 1, after))
    d1 = (y2 - y0) / (left + 1 - before)
    d2 = (y3 - y1) / (after - left)
    cubic = (2 * (y1 - y2) + d1 + d2) * t**3 + (3 * (y2 - y1) - 2 * d1 - d2) * t**2 + d1 * t + y1
    slope = np.where(place < 0, d1, d2)
    found: Floats = cubic + slope * (place - inside)
    return found


class Believing:
    """Collects the posterior mean and standard deviation of the rows of some coins."""

    def __init__(self, asked: Sequence[Asked]) -> None:
        self.asked = asked
        self.found = {one.coin: np.full((2, len(one.probability)), np.nan) for one in asked}

    def take(self, one: Asked, first: int, likelihood: RowLikelihood) -> None:
        """What is known of some rows."""
        rows = np.flatnonzero(likelihood.known)
        n_rows = len(one.probability)
        moments = row_moments_of(likelihood, rows, one.prior[:, first + rows], n_rows)
        self.found[one.coin][:, first + rows] = moments.mean, moments.deviation

    def finish(self) -> list[Floats]:
        """`[mean or deviation, row]` of each coin; the prior's where nothing is known of a row."""
        for one in self.asked:
            found = self.found[one.coin]
            left = np.isnan(found[0])
            heads, tails = one.prior[:, left]
            mean = heads / (heads + tails)
            found[:, left] = mean, np.sqrt(mean * (1 - mean) / (heads + tails + 1))
        return [self.found[one.coin] for one in self.asked]
