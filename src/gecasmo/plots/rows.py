"""Fewer rows where a chart would hold too many; the same ones every time."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import GecasmoError

Floats = NDArray[np.float64]


def thinned(frame: pl.DataFrame, most: int) -> pl.DataFrame:
    """At most so many rows, evenly from the first to the last, both of them included."""
    if len(frame) <= most:
        return frame
    places = np.unique(np.linspace(0, len(frame) - 1, most).round().astype(np.int64))
    return frame[places]


def share_interval(share: Any, trials: Any, level: float = 0.9) -> tuple[Floats, Floats]:
    """Wilson's interval of a share that was seen in so many trials."""
    if not 0 < level < 1:
        raise GecasmoError(f"level={level!r}: an interval's level lies between 0 and 1.")
    z = NormalDist().inv_cdf((1 + level) / 2)
    p, n = np.asarray(share, np.float64), np.asarray(trials, np.float64)
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    low: Floats = np.clip(middle - reach, 0.0, 1.0)
    high: Floats = np.clip(middle + reach, 0.0, 1.0)
    return low, high
