"""Draws from a posterior as data, for those who want them in the file of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import SavedModelError
from gecasmo.estimation.draws import Draws
from gecasmo.forms import saved

Floats = NDArray[np.float64]

_VALUES, _MEAN, _STRENGTH = "values", "mean", "strength"
_LIKELIHOOD = "log_likelihood"


def draws_to_data(draws: Draws) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
    """Describe draws by JSON and frames; arrays are laid out chain after chain."""
    coins, priors = list(draws.rows), list(draws.priors)
    frames = {
        f"rows{n}": pl.DataFrame({_VALUES: draws.rows[c].ravel()}) for n, c in enumerate(coins)
    }
    for n, coin in enumerate(priors):
        mean, strength = draws.priors[coin].reshape(-1, 2).T
        frames[f"priors{n}"] = pl.DataFrame({_MEAN: mean, _STRENGTH: strength})
    frames[_LIKELIHOOD] = pl.DataFrame({_VALUES: draws.log_likelihood.ravel()})
    frames["watched"] = pl.DataFrame({name: own.ravel() for name, own in draws.watched.items()})
    data = {"chains": draws.n_chains, "draws": draws.n_draws, "thin": draws.thin}
    return data | {"coins": coins, "priors": priors, "watched": list(draws.watched)}, frames


def draws_from_data(
    data: Mapping[str, Any], frames: Mapping[str, pl.DataFrame], n_rows: Mapping[str, int]
) -> Draws:
    """Make the draws that `draws_to_data` described, of coins with so many rows."""
    chains, draws, thin = (
        int(saved.number(data[name], f"'{name}' of the draws", least=1))
        for name in ("chains", "draws", "thin")
    )
    shape = (chains, draws)
    unknown = [c for c in (*data["coins"], *data["priors"]) if c not in n_rows]
    if unknown:
        raise SavedModelError(f"There are draws of '{unknown[0]}', which is no coin of the model.")
    rows = {
        coin: _read(frames[f"rows{n}"], _VALUES, (*shape, n_rows[coin]), least=0, most=1)
        for n, coin in enumerate(data["coins"])
    }
    priors = {
        coin: np.stack(
            [_read(frames[f"priors{n}"], side, shape, least=0) for side in (_MEAN, _STRENGTH)],
            axis=-1,
        )
        for n, coin in enumerate(data["priors"])
    }
    watched = {}
    for name in data["watched"]:
        n_sweeps = len(frames["watched"]) // chains
        watched[str(name)] = _read(frames["watched"], str(name), (chains, n_sweeps))
    likelihood = _read(frames[_LIKELIHOOD], _VALUES, shape)
    return Draws(rows, priors, likelihood, thin, watched)


def _read(frame: pl.DataFrame, name: str, shape: tuple[int, ...], **bounds: Any) -> Floats:
    values = saved.column(frame, name, "the draws", **bounds)
    if len(values) != int(np.prod(shape)):
        raise SavedModelError("The draws are not as many as they are said to be.")
    return values.reshape(shape)
