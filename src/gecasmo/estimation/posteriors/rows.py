"""What is asked about the rows of some tables, and the Beta priors that they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.posteriors.likelihood import Asked
from gecasmo.forms import TableState

Floats = NDArray[np.float64]


def asked_of(weights: Sequence[Floats], states: Mapping[int, TableState]) -> list[Asked]:
    """Questions about the rows of some coins, at these weights of all."""
    asked = []
    for number, state in states.items():
        wanted = np.ones(len(state.probability), bool)
        if state.is_fixed is not None:
            wanted &= ~state.is_fixed
        asked.append(Asked(number, weights[number][1], beta_prior(state), wanted))
    return asked


def beta_prior(state: TableState) -> Floats:
    """The Beta prior of each row; pseudo-counts of less than half a flip count as that much, since
    otherwise a single click would be certainty."""
    counts = np.asarray(state.pseudo, np.float64)
    if counts.ndim < 2:  # the same for all rows
        counts = np.repeat(counts[:, None], len(state.probability), axis=1)
    prior: Floats = np.maximum(counts, 1e-3 if state.priors is not None else 0.5)
    return prior
