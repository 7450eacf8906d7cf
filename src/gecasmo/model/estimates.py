"""Estimates with their uncertainty: every row of a coin, also rows that no fit has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding import Rows
from gecasmo.errors import ModelError, option
from gecasmo.model.answers import coin_probability
from gecasmo.model.log_parts import routed, whole_view

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]


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
    if form.in_files(state) is not None:
        if rows is None:
            return estimate_frame(whole_view(model), coin, None, level)
        if "query" in rows.columns:
            return routed(model, coin, rows, lambda m, some: estimate_frame(m, coin, some, level))
    if rows is None:
        rows = _rows_of_fit(model, coin)
    keys = [key for key in model.keys[coin] if key in rows.columns]
    probability = coin_probability(model, coin, rows)
    counts = None if model.report_ is None else model.report_.counts.get(coin)
    asked = Rows(keys, [rows[key] for key in keys], len(rows))
    found = form.posterior(state, asked, probability, counts)
    low, high = beta_interval(found.mean, found.spread, level)
    # Of a very lopsided belief both ends may lie on one side of its mean.
    low, high = np.minimum(low, probability), np.maximum(high, probability)
    numbers = {
        "probability": probability,
        "spread": found.spread,
        "low": low,
        "high": high,
        "trials": found.trials,
    }
    columns = [pl.Series(name, values, nan_to_null=True) for name, values in numbers.items()]
    told = pl.Series("rests_on", found.rests_on, dtype=pl.String)
    return pl.DataFrame([*rows.select(keys).get_columns(), *columns, told])


def _rows_of_fit(model: Model, coin: str) -> pl.DataFrame:
    frame = model.forms[coin].to_frame(model.states()[coin])
    if "probability" not in frame.columns:
        raise ModelError(
            f"The form {model.forms[coin]!r} of '{coin}' has no list of rows; name the rows to be "
            f"answered: estimates({coin!r}, frame)."
        )
    return frame


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
