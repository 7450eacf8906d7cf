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


@dataclass(frozen=True)
class CalibrationSums:
    """What a calibration is made of; sums of several logs add up.

    `by_bin` has, `[which, bin]`, the weight of the results, of their probabilities and of clicks.
    """

    total: float
    squares: float
    by_bin: Floats

    @classmethod
    def of(
        cls,
        click: NDArray[np.bool_],
        probability: Floats,
        weight: Floats,
        n_bins: int = N_BINS,
    ) -> CalibrationSums:
        """The sums over shown results."""
        number = np.minimum((probability * n_bins).astype(np.int64), n_bins - 1)
        by_bin = [
            np.bincount(number, weights=weight * values, minlength=n_bins)
            for values in (np.ones(len(click)), probability, click)
        ]
        squares = float((weight * (click - probability) ** 2).sum())
        return cls(float(weight.sum()), squares, np.stack(by_bin))

    def __add__(self, other: CalibrationSums) -> CalibrationSums:
        return CalibrationSums(
            self.total + other.total, self.squares + other.squares, self.by_bin + other.by_bin
        )

    def finish(self) -> Calibration:
        """The calibration on all results together."""
        n_bins = self.by_bin.shape[1]
        used = np.flatnonzero(self.by_bin[0] > 0)
        results, predicted, observed = self.by_bin[:, used]
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
        return Calibration(brier=self.squares / self.total, ece=gaps / self.total, bins=bins)


def calibration(
    click: NDArray[np.bool_], probability: Floats, weight: Floats, n_bins: int = N_BINS
) -> Calibration:
    """How well click probabilities agree with clicks, per shown result."""
    return CalibrationSums.of(click, probability, weight, n_bins).finish()
