"""What charts are drawn from: comparisons, models with a log and frames, all as frames.

Where a chart would hold too many rows there are fewer of them, the same ones every time.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError, GecasmoError, option
from gecasmo.evaluation import calibration
from gecasmo.logs import ClickLog
from gecasmo.model.base import Model

Floats = NDArray[np.float64]


def perplexity_frame(source: Any, log: ClickLog | None) -> pl.DataFrame:
    """Columns model, rank, marginal and conditional."""
    if isinstance(source, Model):
        by_rank = source.evaluate(wanted_log(source, log), impossible="floor").by_rank
        named = by_rank.with_columns(model=pl.lit(source.name))
        return named.select("model", "rank", "marginal", "conditional")
    return _frame_of(source, "by_rank", ("model", "rank", "marginal", "conditional"))


def ctr_frame(source: Any, log: ClickLog | None) -> pl.DataFrame:
    """Columns model, rank, observed and predicted."""
    if not isinstance(source, Model):
        return _frame_of(source, "ctr_by_rank", ("model", "rank", "observed", "predicted"))
    pages = wanted_log(source, log)
    weight = pages.weight[pages.page]
    ranks, number = np.unique(pages.rank, return_inverse=True)
    results = np.bincount(number, weights=weight)
    clicks = np.bincount(number, weights=weight * pages.click)
    expected = np.bincount(number, weights=weight * source.predict_clicks(pages))
    used = results > 0
    return pl.DataFrame(
        {
            "model": [source.name] * int(used.sum()),
            "rank": ranks[used].astype(np.int64),
            "observed": (clicks[used] / results[used]),
            "predicted": (expected[used] / results[used]),
        }
    )


def calibration_frame(source: Any, log: ClickLog | None) -> pl.DataFrame:
    """Columns model, results, predicted and observed, a row per bin of predictions."""
    columns = ("model", "results", "predicted", "observed")
    if not isinstance(source, Model):
        return _frame_of(source, "calibration", columns)
    pages = wanted_log(source, log)
    predicted = source.predict_clicks(pages)
    bins = calibration(pages.click, predicted, pages.weight[pages.page]).bins
    return bins.with_columns(model=pl.lit(source.name)).select(columns)


def wanted_log(model: Model, log: Any) -> ClickLog:
    """The log that a chart of a model needs, or a message that it does."""
    model.states(whole=False)
    if not isinstance(log, ClickLog):
        got = "none was given" if log is None else f"not {type(log).__name__}"
        raise ClickLogError(
            f"This chart of {model.name} needs a log ({got}): read_log(source) makes one."
        )
    if log.n_results == 0:
        raise ClickLogError("The log shows no results, so there is nothing to draw.")
    return log


def _frame_of(source: Any, attribute: str, columns: tuple[str, ...]) -> pl.DataFrame:
    frame = source if isinstance(source, pl.DataFrame) else getattr(source, attribute, None)
    if not isinstance(frame, pl.DataFrame):
        raise GecasmoError(
            f"A comparison is wanted (gecasmo.evaluation.compare makes one), a model with a log, "
            f"or a Polars frame with {', '.join(columns)}; not {type(source).__name__}."
        )
    lost = [name for name in columns if name not in frame.columns]
    if lost:
        raise GecasmoError(
            f"The frame lacks {', '.join(lost)}; it has: {', '.join(frame.columns)}."
        )
    return frame


def thinned(frame: pl.DataFrame, most: int) -> pl.DataFrame:
    """At most so many rows, evenly from the first to the last, both of them included."""
    if len(frame) <= most:
        return frame
    places = np.unique(np.linspace(0, len(frame) - 1, most).round().astype(np.int64))
    return frame[places]


def share_interval(share: Any, trials: Any, level: float = 0.9) -> tuple[Floats, Floats]:
    """Wilson's interval of a share that was seen in so many trials."""
    if not 0 < level < 1:
        raise GecasmoError(f"{option('level', level)}: an interval's level lies between 0 and 1.")
    z = NormalDist().inv_cdf((1 + level) / 2)
    p, n = np.asarray(share, np.float64), np.asarray(trials, np.float64)
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    low: Floats = np.clip(middle - reach, 0.0, 1.0)
    high: Floats = np.clip(middle + reach, 0.0, 1.0)
    return low, high
