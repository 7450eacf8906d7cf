"""Means and spreads of rows under their likelihood and a Beta prior."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.beliefs.few_rows import moments_of_few
from gecasmo.estimation.beliefs.likelihood import RowLikelihood
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


def row_moments_of(likelihood: RowLikelihood, rows: Integers, prior: Floats) -> Moments:
    """The moments of some rows; `prior` is `[heads or tails, row]` for just these."""
    if len(rows) < _FEW_ROWS:
        given = (likelihood.low, likelihood.step, likelihood.values)
        return Moments(*moments_of_few(rows, *given, prior))
    moments = np.empty((8, len(rows)))
    pieces = 1 if default_threads() == 1 else 2 * default_threads()
    cuts = np.linspace(0, len(rows), pieces + 1).astype(int)
    jobs = [
        [int(a), int(b), rows, likelihood.low, likelihood.step, likelihood.values, prior, moments]
        for a, b in pairwise(cuts)
    ]
    run_jobs(static_kernel(row_moments, jobs[0]), jobs)
    return Moments(*moments)
