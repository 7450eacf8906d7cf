"""Probabilities and their logits. SciPy has both, but importing it takes longer than many a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def logit(probability: Any) -> Floats:
    """The logit of probabilities: infinite where one is 0 or 1."""
    p = np.asarray(probability, np.float64)
    with np.errstate(divide="ignore"):
        # Near a half the logarithm of a quotient would lose digits, this does not.
        twice = 2.0 * (p - 0.5)
        is_near = np.abs(twice) < 0.4
        middle = np.where(is_near, twice, 0.0)
        found: Floats = np.where(
            is_near, np.log1p(middle) - np.log1p(-middle), np.log(p / (1.0 - p))
        )
    return found


def expit(logits: Any) -> Floats:
    """The probabilities of logits."""
    with np.errstate(over="ignore"):
        found: Floats = 1.0 / (1.0 + np.exp(-np.asarray(logits, np.float64)))
    return found
