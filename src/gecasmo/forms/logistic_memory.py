"""The past of a logistic regression: its coefficients, and how sure they were."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError
from gecasmo.forms.coding import ByRows, FeatureCoding, learn_coding
from gecasmo.forms.form import Floats
from gecasmo.forms.linear import Past
from gecasmo.forms.logistic import MOST_WITH_ERRORS, Logistic, LogisticState
from gecasmo.forms.memory import Memory


class LogisticMemory(Memory):
    """The `Memory` of a logistic regression.

    Columns keep the scales of the first fit, so that coefficients go on to mean the same; levels
    that are new come after the old ones.
    """

    form: Logistic

    def __init__(self, form: Logistic, state: LogisticState, decay: float) -> None:
        if state.covariance is None:
            raise ModelError(
                "a regression remembers its past by the covariance of its coefficients, and this "
                f"one has none (only up to {MOST_WITH_ERRORS:,} coefficients have)"
            )
        self.form, self.before, self.decay = form, state, decay

    def begin(self, rows: Rows) -> LogisticState:
        """The old coefficients, with the old logs as their prior."""
        state, form = self.before, self.form
        coding = _extended(state.coding, rows, form)
        place = _places(state.coding, coding, len(state.coefficients))
        n = int(form.intercept) + len(coding.numeric) + sum(coding.n_levels.values())
        coefficients, slope, information = np.zeros(n), np.zeros(n), np.zeros((n, n))
        coefficients[place] = state.coefficients
        # At the end of a fit the slope of the likelihood and that of the prior cancel out.
        prior = form.precision(len(state.coefficients))
        slope[place] = self.decay * prior * state.coefficients
        information[np.ix_(place, place)] = self.decay * self._information(prior)
        return LogisticState(coding, coefficients, past=Past(coefficients, slope, information))

    def merged(self, state: LogisticState, counts: Floats) -> tuple[LogisticState, Floats]:
        """Coefficients whose covariance knows of old and new; counts are those of the new rows,
        since a regression keeps no rows."""
        return replace(state, past=None), counts

    def _information(self, prior: Floats) -> Floats:
        """What the logs said: the inverse of the covariance, without the prior."""
        assert self.before.covariance is not None
        both = np.linalg.pinv(self.before.covariance, rcond=1e-12, hermitian=True)
        values, vectors = np.linalg.eigh(both - np.diag(prior))
        information: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return information


def _extended(old: FeatureCoding, rows: Rows, form: Logistic) -> FeatureCoding:
    """The coding with levels that only these rows have."""
    new = learn_coding(rows, form.columns, form.categorical, centre=form.intercept)
    if set(new.numeric) != set(old.numeric):
        odd = sorted(set(new.numeric) ^ set(old.numeric))
        raise ModelError(
            f"The column '{odd[0]}' of {form!r} is numeric in the fit or in the new log, and text "
            "in the other."
        )
    levels = {}
    for name, values in old.levels.items():
        found = new.levels[name]
        fresh = found.filter(pl.Series(old.level_numbers(found, name) < 0))
        levels[name] = pl.concat([values, fresh.cast(values.dtype)])
    constant = tuple(n for n in old.constant if n in old.numeric or len(levels[n]) == 1)
    return replace(old, levels=levels, constant=constant, _known=ByRows())


def _places(old: FeatureCoding, new: FeatureCoding, n_old: int) -> list[int]:
    """Where the old coefficients stand among those of the new coding."""
    first = n_old - sum(old.n_levels.values())
    place = list(range(first))
    starts = first + np.cumsum([0, *new.n_levels.values()])
    for (start, _), size in zip(pairwise(starts), old.n_levels.values(), strict=True):
        place += range(int(start), int(start) + size)
    return place
