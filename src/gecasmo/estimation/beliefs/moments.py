"""Means and spreads of rows under their likelihood and a Beta prior."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.beliefs.few_rows import moments_of_few
from gecasmo.estimation.beliefs.likelihood import (
    Asked,
    RowLikelihood,
    nothing_known,
    stream_likelihoods,
)
from gecasmo.estimation.expectation import Expectation
from gecasmo.kernels.row_grid import row_moments
from gecasmo.kernels.running import default_threads, run_jobs
from gecasmo.kernels.static import static_kernel

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Fewer are not worth compiling.
_FEW_ROWS = 5_000


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


def row_beliefs(
    expectation: Expectation, weights: Sequence[Floats], asked: Sequence[Asked], n_buckets: int
) -> list[Floats]:
    """The posterior mean and standard deviation of the rows of some coins, `[which, row]`; the
    prior's where nothing is known of a row."""
    found = {one.coin: np.full((2, len(one.probability)), np.nan) for one in asked}

    def take(one: Asked, first: int, likelihood: RowLikelihood) -> None:
        rows = np.flatnonzero(likelihood.known)
        n_rows = len(one.probability)
        moments = row_moments_of(likelihood, rows, one.prior[:, first + rows], n_rows)
        found[one.coin][:, first + rows] = moments.mean, moments.deviation

    stream_likelihoods(expectation, weights, asked, n_buckets, take)
    for one in asked:
        left = np.flatnonzero(np.isnan(found[one.coin][0]))
        if len(left):
            moments = row_moments_of(
                nothing_known(1), np.zeros(len(left), np.int64), one.prior[:, left]
            )
            found[one.coin][:, left] = moments.mean, moments.deviation
    return [found[one.coin] for one in asked]
