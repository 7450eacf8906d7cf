"""Position propensities: how likely a rank is looked at, for learners that weigh clicks by it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ConvergenceWarning, GecasmoWarning
from gecasmo.files import whole_file
from gecasmo.judgments.errors import JudgmentsError
from gecasmo.judgments.examination import (
    Draws,
    Required,
    drawn,
    examination_coin,
    examined,
    loose_scale,
    mean_looks,
    required_coins,
    some_queries,
    some_stored_queries,
    stored_looks,
)
from gecasmo.logs import ClickLog
from gecasmo.model.streaming import is_stored

if TYPE_CHECKING:
    from gecasmo.logs.store import StoredLog
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]
Ends = tuple[Any, Any]  # of an interval, each a column

_DRAWS = 2000  # of a ratio of two estimates
_LEAST = 1e-12  # logarithms are taken of nothing smaller


def propensities(
    model: Model,
    log: ClickLog | StoredLog | None = None,
    *,
    level: float = 0.9,
    repeats: int = 20,
    seed: int = 0,
) -> pl.DataFrame:
    """How likely each rank is looked at, under a fitted model.

    A click needs an attractive document and a user who looks. So the probability of a click,
    with no click known, divided by that of the coins of relevance which every click requires, is
    the probability that the result is looked at. This is averaged over the pages of `log`. Where
    the model itself has one such probability for each rank (PBM), no log is needed, and intervals
    are then those of `model.estimates`.

    With a log, intervals come from users simulated on its pages: tables are drawn from what is
    believed of their rows, users of that truth click, and the model is fitted to them again.
    How far these fits are off, up and down, says how far this one may be off. Of a large log the
    pages of some random queries serve, about 20,000. Numbers that were given, not fitted, are
    certain.

    Parameters
    ----------
    model : fitted model that says what relevance is
    log : ClickLog or StoredLog, optional
        The log that the model was fitted to, or another with as many pages. Its clicks play no
        part.
    level : float
        The level of the intervals.
    repeats, seed : int
        How often to simulate, and the seed. With `repeats=0` there are no intervals (null).

    Returns
    -------
    A frame with `rank`, `examination` with `low` and `high`, and `propensity` with
    `propensity_low` and `propensity_high`: the same relative to the first rank, which is what
    learners want and does not depend on the scale of the model.

    Warns
    -----
    GecasmoWarning
        When only products of examination and attraction are observed and neither is anchored.
    """
    if not 0 < level < 1:
        raise JudgmentsError(f"level={level!r}: an interval's level lies between 0 and 1.")
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 0 or repeats == 1:
        raise JudgmentsError(f"repeats={repeats!r}: 0, or a whole number above 1, is wanted.")
    model.states(whole=False)
    required = required_coins(model)
    own = examination_coin(model, required)
    if own is None and log is None:
        raise JudgmentsError(
            f"Under {model.name} it depends on the pages how often a rank is looked at: give "
            "some, propensities(model, log)."
        )
    if log is not None and not is_stored(log) and not (isinstance(log, ClickLog) and len(log.rank)):
        raise JudgmentsError("propensities(model, log) wants a ClickLog with results.")
    loose = loose_scale(model, required)
    if loose is not None:
        what, cure = loose
        warnings.warn(
            f"{what}: read the column propensity, which is relative, or {cure}.",
            GecasmoWarning,
            stacklevel=2,
        )
    rng = np.random.default_rng(seed)
    if log is None:
        assert own is not None
        return _from_estimates(model.estimates(own, level=level).sort("rank"), level, rng)
    if isinstance(log, ClickLog):
        ranks, total = np.unique(log.rank).astype(np.int64), float(log.weight.sum())
        mean = examined(model, required.relevance, log, ranks)
    else:
        ranks, sums, total = stored_looks(model, required.relevance, log)
        mean = mean_looks(sums, ranks)
    relative = _relative(mean, ranks)
    ends: tuple[Ends, Ends] = _nothing(len(ranks)), _nothing(len(ranks))
    if model.report_ is None:
        ends = (mean, mean), (relative, relative)
    elif repeats:
        view, some = (
            (model, some_queries(log, rng))
            if isinstance(log, ClickLog)
            else some_stored_queries(model, log, rng)
        )
        errors = _simulated_errors(view, required, some, ranks, repeats, rng, total)
        ends = _around(mean, errors, level), _around(relative, errors - errors[:, :1], level)
    return _frame(ranks, mean, *ends)


def _simulated_errors(
    model: Model,
    required: Required,
    some: ClickLog,
    ranks: NDArray[Any],
    repeats: int,
    rng: np.random.Generator,
    total: float,
) -> Floats:
    """Logarithms of fitted over true examination, for simulated truths.

    `some` are pages of a log whose weight is `total`. A rank that they lack, as only some pages of
    a stored log may, is taken for the one above it.
    """
    draws, fit = Draws(model, rng), model.copy()
    known = np.unique(some.rank)
    ranks = known[np.maximum(np.searchsorted(known, ranks, side="right") - 1, 0)]
    errors = np.empty((repeats, len(ranks)))
    for number in range(repeats):
        truth = draws.draw()
        clicks = truth.simulate(some, seed=int(rng.integers(2**31)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # of fits that nobody looks at
            fit.fit(clicks, progress=False, impossible="floor")
        fitted, true = (examined(m, required.relevance, some, ranks) for m in (fit, truth))
        errors[number] = np.log(np.maximum(fitted, _LEAST)) - np.log(np.maximum(true, _LEAST))
    # Fits to more pages scatter less, but lean to the same side.
    bias = errors.mean(axis=0)
    share = float(some.weight.sum()) / total
    return np.asarray(bias + (errors - bias) * np.sqrt(share), dtype=np.float64)


def _around(mean: Floats, errors: Floats, level: float) -> Ends:
    """The interval of the truth around an estimate with such errors; it holds the estimate."""
    from scipy.special import ndtri  # not at the top: importing stays light

    bias, reach = errors.mean(axis=0), errors.std(axis=0, ddof=1) * ndtri((1 + level) / 2)
    low, high = mean * np.exp(-bias - reach), mean * np.exp(-bias + reach)
    return np.minimum(low, mean), np.maximum(np.minimum(high, 1.0), mean)


def _from_estimates(frame: pl.DataFrame, level: float, rng: np.random.Generator) -> pl.DataFrame:
    """The curve of a coin that has a row for each rank."""
    mean = frame["probability"].to_numpy()
    spread = frame["spread"].fill_null(0.0).to_numpy()
    ranks = frame["rank"].to_numpy()
    _relative(mean, ranks)
    values = np.stack([drawn(mean, spread, rng) for _ in range(_DRAWS)])
    ratios = values / np.maximum(values[:, :1], _LEAST)
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return _frame(ranks, mean, (frame["low"], frame["high"]), (low, high))


def _relative(mean: Floats, ranks: NDArray[Any]) -> Floats:
    if not mean[0] > 0:
        raise JudgmentsError(
            f"Rank {ranks[0]} is never looked at under this model: nothing can be relative to it."
        )
    relative: Floats = mean / mean[0]
    return relative


def _nothing(length: int) -> Ends:
    empty = pl.Series([None] * length, dtype=pl.Float64)
    return empty, empty


def _frame(ranks: NDArray[Any], mean: Floats, ends: Ends, relative_ends: Ends) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "rank": ranks.astype(np.int64),
            "examination": mean,
            "low": ends[0],
            "high": ends[1],
            "propensity": mean / mean[0],
            "propensity_low": relative_ends[0],
            "propensity_high": relative_ends[1],
        }
    )


def write_propensities(frame: pl.DataFrame, path: Any) -> None:
    """Write what `propensities` returned as a small file: .csv, or .json (a list by rank)."""
    end = Path(path).suffix.lower()
    if end not in (".csv", ".json"):
        raise JudgmentsError(f"{path}: propensities are written as .csv or .json.")
    with whole_file(path, JudgmentsError) as temporary:
        if end == ".csv":
            frame.write_csv(temporary)
        else:
            temporary.write_text(json.dumps({"propensities": frame.to_dicts()}, indent=1))
