"""Calibration: of the results that a model gives 30 %, are 30 % clicked?

Brier score: the mean squared distance of click (0 or 1) and probability. Expected calibration
error (ECE): the mean distance of mean probability and click rate over bins of equal width.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]
N_BINS = 20


@dataclass(frozen=True)
class Calibration:
    """`bins` has a line per bin that is not empty: bin, low, high, results (their weight),
    predicted (mean probability) and observed (click rate)."""

    brier: float
    ece: float
    bins: pl.DataFrame


def calibration(
    click: NDArray[np.bool_], probability: Floats, weight: Floats, n_bins: int = N_BINS
) -> Calibration:
    """How well click probabilities agree with clicks, per shown result."""
    total = float(weight.sum())
    squares = float((weight * (click - probability) ** 2).sum())
    number = np.minimum((probability * n_bins).astype(np.int64), n_bins - 1)
    weights, predicted, observed = (
        np.bincount(number, weights=weight * values, minlength=n_bins)
        for values in (np.ones(len(click)), probability, click)
    )
    used = np.flatnonzero(weights > 0)
    results, predicted, observed = weights[used], predicted[used], observed[used]
    gaps = float(np.abs(predicted - observed).sum())
    bins = pl.DataFrame(
        {
            "bin": used + 1,
            "low": used / n_bins,
            "high": (used + 1) / n_bins,
            "results": results,
            "predicted": predicted / results,
            "observed": observed / results,
        }
    )
    return Calibration(brier=squares / total, ece=gaps / total, bins=bins)
