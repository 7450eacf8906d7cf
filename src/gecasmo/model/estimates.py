"""Estimates with their uncertainty: every row of a coin, also rows that no fit has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding import Rows
from gecasmo.encoding.matching import match
from gecasmo.errors import ModelError, option
from gecasmo.forms import Fixed, Table
from gecasmo.forms.parted_table import PartedTable
from gecasmo.model.answers import coin_probability
from gecasmo.model.streaming import routed, whole_view

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]
Texts = NDArray[np.str_]

NOT_IDENTIFIED = "not identified"
# The deviation of a probability of which hardly anything is known; that of one which may be
# anything between 0 and 1 is 0.29.
_ANYTHING = 0.24


def estimate_frame(
    model: Model, coin: str, rows: pl.DataFrame | None, level: float
) -> pl.DataFrame:
    """Key columns, probability, spread, low, high, trials and what each estimate rests on."""
    if not 0 < level < 1:
        raise ModelError(
            f"{option('level', level)}: the level of an interval lies between 0 and 1."
        )
    states = model.states(whole=False)
    if coin not in states:
        raise ModelError(
            f"{model.name} has no coin '{coin}'. Its coins are: {', '.join(model.forms)}."
        )
    form, state = model.forms[coin], states[coin]
    if isinstance(state, PartedTable):
        if rows is None:
            return estimate_frame(whole_view(model), coin, None, level)
        if "query" in rows.columns:
            return routed(model, coin, rows, lambda m, some: estimate_frame(m, coin, some, level))
    if rows is None:
        rows = _rows_of_fit(model, coin)
    keys = [key for key in model.keys[coin] if key in rows.columns]
    probability = coin_probability(model, coin, rows)
    trials, centre, spread, rests_on = _behind(model, coin, rows, probability)
    if isinstance(form, Fixed) or getattr(state, "is_constant", False):
        spread, rests_on = np.full(len(rows), np.nan), np.full(len(rows), "given")
    low, high = beta_interval(centre, spread, level)
    # Of a very lopsided belief both ends may lie on one side of its mean.
    low, high = np.minimum(low, probability), np.maximum(high, probability)
    numbers = {
        "probability": probability,
        "spread": spread,
        "low": low,
        "high": high,
        "trials": trials,
    }
    columns = [pl.Series(name, values, nan_to_null=True) for name, values in numbers.items()]
    told = pl.Series("rests_on", rests_on, dtype=pl.String)
    return pl.DataFrame([*rows.select(keys).get_columns(), *columns, told])


def _rows_of_fit(model: Model, coin: str) -> pl.DataFrame:
    frame = model.forms[coin].to_frame(model.states()[coin])
    if "probability" not in frame.columns:
        raise ModelError(
            f"The form {model.forms[coin]!r} of '{coin}' has no list of rows; name the rows to be "
            f"answered: estimates({coin!r}, frame)."
        )
    return frame


def _behind(
    model: Model, coin: str, rows: pl.DataFrame, probability: Floats
) -> tuple[Floats, Floats, Floats, Texts]:
    """Expected flips, posterior mean and deviation (NaN where nobody knows), and level of rows."""
    form, state = model.forms[coin], model.states()[coin]
    keys = model.keys[coin]
    n = len(rows)
    trials, spread = np.zeros(n), np.full(n, np.nan)
    if not isinstance(form, Table):
        return trials, probability, spread, np.full(n, "features")
    wanted = Rows(keys, [rows[key] for key in keys], n)
    found = np.zeros(n, np.int64) if not keys else np.full(n, -1, np.int64)
    if keys and len(state.rows):
        found = match(wanted.frame, state.rows.frame, tuple(keys))
    counts = None if model.report_ is None else model.report_.counts.get(coin)
    seen = found >= 0
    if counts is not None:
        trials[seen] = counts.sum(axis=0)[found[seen]]
    centre = probability.copy()
    if state.spread is not None and state.centre is not None:
        spread[seen] = state.spread[found[seen]]
        centre[seen] = state.centre[found[seen]]
    _, unseen_spread, rests_on = form.unseen(state, wanted)
    if unseen_spread is not None:
        spread[~seen] = unseen_spread[~seen]
    own = ", ".join(keys) or "all"
    is_fixed = np.zeros(n, bool)
    if state.is_fixed is not None:
        is_fixed[seen] = state.is_fixed[found[seen]]
    is_fixed |= form.is_given(wanted)  # also of rows that the log never showed
    spread[is_fixed] = 0.0
    told = np.where(trials > 0, own, rests_on)
    if state.spread is not None and not {"query", "doc"} & set(keys):
        # Of what all pages share: flipped, and still nothing tells how it came up.
        told = np.where((trials > 0) & ~(spread < _ANYTHING), NOT_IDENTIFIED, told)
    if model.report_ is None:  # the user's own numbers
        is_fixed |= seen
        spread[seen] = np.nan
    return trials, centre, spread, np.where(is_fixed, "given", told)


def beta_interval(mean: Any, spread: Any, level: float) -> tuple[Floats, Floats]:
    """The central interval of the Beta distribution with this mean and standard deviation.

    NaN where the deviation is unknown; a deviation of 0 gives the mean itself.
    """
    from scipy.special import betaincinv

    mean, spread = np.asarray(mean, float), np.asarray(spread, float)
    inside = np.clip(mean, 1e-12, 1 - 1e-12)
    ratio = np.clip(spread / np.sqrt(inside * (1 - inside)), 1e-6, 0.999)
    strength = 1 / ratio**2 - 1
    a, b = inside * strength, (1 - inside) * strength
    ends = [betaincinv(a, b, share) for share in ((1 - level) / 2, (1 + level) / 2)]
    low, high = (np.where(spread == 0, mean, end) for end in ends)
    return low, high
