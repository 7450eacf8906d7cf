"""Is one model better than another, or does it only look so?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.evaluation.bootstrap import HIGHER_IS_BETTER, METRICS, interval

Floats = NDArray[np.float64]
NO_DIFFERENCE, NOT_TESTED = "no clear difference", "not tested"
# Differences this small are rounding, however consistently they point one way.
ROUNDING = 1e-9

_SCHEMA = {
    "model": pl.String,
    "against": pl.String,
    "metric": pl.String,
    "difference": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "verdict": pl.String,
}


def paired_differences(
    values: Mapping[str, Mapping[str, float]],
    samples: Mapping[str, Mapping[str, Floats]],
    references: list[str],
    level: float,
    n_clusters: int,
) -> pl.DataFrame:
    """Every model against each reference: metric by metric, on the same bootstrap samples.

    `difference` is the model's value minus that of `against`.
    """
    rows = []
    for against in references:
        for model in values:
            if model == against:
                continue
            for metric in METRICS:
                with np.errstate(invalid="ignore"):  # perplexities can be beyond all numbers
                    drawn = samples[model][metric] - samples[against][metric]
                low, high = interval(drawn, level, n_clusters)
                gap = values[model][metric] - values[against][metric]
                difference = gap if np.isfinite(gap) else None
                verdict = verdict_of(low, high, HIGHER_IS_BETTER[metric])
                rows.append((model, against, metric, difference, low, high, verdict))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def verdict_of(low: float | None, high: float | None, higher_is_better: bool) -> str:
    """Better or worse only if the interval of the difference excludes zero."""
    if low is None or high is None:
        return NOT_TESTED
    if low <= ROUNDING and high >= -ROUNDING:
        return NO_DIFFERENCE
    return "better" if (low > 0) == higher_is_better else "worse"
