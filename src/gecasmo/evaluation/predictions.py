"""What one model says of each session and each result of a log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gecasmo.evaluation.sums import floored
from gecasmo.logs import ClickLog
from gecasmo.model.answers import marginal_clicks, per_session
from gecasmo.model.base import Impossible, Model
from gecasmo.model.impossible import FLOOR, Filtered

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Predictions:
    """`log_likelihood` and `is_impossible` per session; click probabilities per result.

    Nothing that happened has probability 0 in them: it counts as 1e-8.
    """

    log_likelihood: Floats
    is_impossible: Bools
    conditional: Floats
    marginal: Floats


def predictions(model: Model, log: ClickLog, impossible: Impossible = "floor") -> Predictions:
    """Score every session; `impossible` is "raise" or "floor"."""
    filtered = Filtered(model, log, impossible, warn=False)
    marginal = np.asarray(marginal_clicks(model, log, encoded=filtered.encoded))
    return Predictions(
        log_likelihood=per_session(log, np.log(filtered.probability)),
        is_impossible=_sessions_with(filtered.is_impossible, log),
        conditional=floored(log.click, filtered.click, FLOOR),
        marginal=floored(log.click, marginal, FLOOR),
    )


def impossible_sessions(model: Model, log: ClickLog) -> Bools:
    """Which sessions the model says cannot happen."""
    return _sessions_with(Filtered(model, log, "floor", warn=False).is_impossible, log)


def _sessions_with(results: Bools, log: ClickLog) -> Bools:
    sessions = np.zeros(log.n_sessions, bool)
    sessions[log.page[results]] = True
    return sessions
