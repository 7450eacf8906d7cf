"""Estimates as they might be: numbers that many rows rest on are drawn, and all rows follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.model.answers import asked_rows
from gecasmo.model.log_parts import part_view, parted_coins

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]

_SEED = 47
_WIDEST = 1.5  # no logit of a global coin is less certain


def possible_estimates(
    model: Model, coin: str, rows: pl.DataFrame, n_draws: int
) -> tuple[Floats, Floats]:
    """Means and deviations of a coin for rows of a frame, `[row, draw]`, as they might be when what
    rows have in common is drawn: slopes of learned priors, and global coins.

    Draws are the same whichever rows are asked about.
    """
    states = model.states(whole=False)
    form, state = model.forms[coin], states[coin]
    if form.in_files(state) is not None and "query" in rows.columns:
        table = parted_coins(model)[coin]
        mean, spread = np.zeros((2, len(rows), n_draws))
        for number, places in table.routed(rows["query"]):
            view = part_view(model, number, table.n_parts)
            some = rows[pl.Series(places)]
            mean[places], spread[places] = possible_estimates(view, coin, some, n_draws)
        return mean, spread
    asked = asked_rows(model, coin, rows)
    probability = form.probabilities(state, asked, coin)
    counts = None if model.report_ is None else model.report_.counts.get(coin)
    found = form.posterior(state, asked, probability, counts)
    names = list(model.forms)
    shared = {
        name: _drawn_logits(states[name], n_draws, (_SEED, names.index(name)))
        for name in getattr(state, "leans", None) or ()
        if getattr(states.get(name), "spread", None) is not None
    }
    return form.possible(state, asked, found, n_draws, (_SEED, names.index(coin)), shared)


def _drawn_logits(state: Any, n_draws: int, seed: tuple[int, ...]) -> Floats:
    """Logits of the rows of a global coin, less those that were found, `[row, draw]`."""
    p = np.clip(state.probability, 1e-6, 1 - 1e-6)
    deviation = np.minimum(np.nan_to_num(state.spread) / (p * (1 - p)), _WIDEST)
    drawn = np.random.default_rng(seed).normal(size=(len(p), n_draws))
    return np.asarray(deviation[:, None] * drawn)
