"""Estimates with their uncertainty: every row of a coin, also rows that no fit has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ModelError
from gecasmo.model.answers import coin_probability

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]


def estimate_frame(
    model: Model, coin: str, rows: pl.DataFrame | None, level: float
) -> pl.DataFrame:
    """Key columns, probability, spread, low, high, trials and what each estimate rests on."""
    if not 0 < level < 1:
        raise ModelError(f"level={level!r}: an interval's level lies between 0 and 1.")
    frames = model.parameters
    if coin not in frames:
        raise ModelError(
            f"{model.name} has no coin '{coin}'. Its coins are: {', '.join(model.forms)}."
        )
    fitted = frames[coin]
    keys = list(model.keys[coin])
    if rows is not None:
        probability = coin_probability(model, coin, rows)
        found = rows.select(keys).join(
            fitted.select(*keys, "heads", "tails"), on=keys, how="left", maintain_order="left"
        )
        fitted = found.with_columns(
            probability=probability,
            heads=pl.col("heads").fill_null(0.0),
            tails=pl.col("tails").fill_null(0.0),
        )
    trials = (fitted["heads"] + fitted["tails"]).to_numpy()
    p = fitted["probability"].to_numpy()
    spread = np.sqrt(p * (1 - p) / (trials + 3))
    low, high = beta_interval(p, spread, level)
    return fitted.select(*keys, "probability").with_columns(
        spread=spread,
        low=low,
        high=high,
        trials=trials,
        rests_on=pl.Series(np.where(trials > 0, ", ".join(keys) or "all", "prior").tolist()),
    )


def beta_interval(mean: Any, spread: Any, level: float) -> tuple[Floats, Floats]:
    """The central interval of the Beta distribution with this mean and standard deviation."""
    from scipy.special import betaincinv

    mean = np.clip(np.asarray(mean, float), 1e-12, 1 - 1e-12)
    widest = np.sqrt(mean * (1 - mean))
    ratio = np.clip(np.asarray(spread, float) / widest, 1e-7, 0.999)
    strength = 1 / ratio**2 - 1
    a, b = mean * strength, (1 - mean) * strength
    return betaincinv(a, b, (1 - level) / 2), betaincinv(a, b, (1 + level) / 2)
