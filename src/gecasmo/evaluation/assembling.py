"""The scores of all models, put side by side."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.evaluation.bootstrap import METRICS, interval
from gecasmo.evaluation.comparison import Comparison, Setting
from gecasmo.evaluation.contestants import Contestant
from gecasmo.evaluation.differences import paired_differences
from gecasmo.evaluation.relevance import RELEVANCE_METRICS
from gecasmo.evaluation.scoring import Score
from gecasmo.evaluation.words import counted

Floats = NDArray[np.float64]
GAINS = ("conditional", "marginal")


def assemble(
    entered: list[Contestant], scores: Mapping[str, Score], setting: Setting, notes: list[str]
) -> Comparison:
    """One comparison of many scores."""
    order = sorted(scores, key=lambda name: -scores[name].values["log_likelihood"])
    baseline = scores[setting.baseline]
    rows = [_row(name, scores[name], baseline, setting) for name in order]
    return Comparison(
        table=pl.DataFrame(rows, schema=_schema(setting), orient="row"),
        by_rank=_stacked({name: scores[name].by_rank for name in order}),
        differences=paired_differences(
            {name: scores[name].values for name in order},
            {name: scores[name].samples for name in order},
            list(dict.fromkeys((setting.best, setting.baseline))),
            setting.level,
            setting.n_clusters,
        ),
        calibration=_stacked({name: scores[name].calibration for name in order}),
        ctr_by_rank=_stacked({name: scores[name].ctr_by_rank for name in order}),
        models={entry.name: entry.model for entry in entered},
        notes=[*_added(entered), *_impossible(scores, setting), *notes],
        setting=setting,
        reasons={name: scores[name].reasons for name in order if scores[name].reasons},
    )


def _row(name: str, score: Score, baseline: Score, setting: Setting) -> dict[str, Any]:
    row: dict[str, Any] = {"model": name}
    level, n_clusters = setting.level, setting.n_clusters
    for metric in METRICS:
        low, high = interval(score.samples[metric], level, n_clusters)
        value: float | None = score.values[metric]
        if not np.isfinite(score.values[metric]):
            value, score.reasons[metric] = None, "it is too large a number"
        row |= {metric: value, f"{metric}_low": low, f"{metric}_high": high}
    for kind in GAINS:
        metric = f"{kind}_perplexity_pooled"
        gain = gain_over(np.array(baseline.values[metric]), np.array(score.values[metric]))
        gains = gain_over(baseline.samples[metric], score.samples[metric])
        low, high = interval(gains, level, n_clusters)
        is_defined = bool(np.isfinite(gain))
        row |= {f"{kind}_gain": float(gain) if is_defined else None}
        row |= {f"{kind}_gain_low": low, f"{kind}_gain_high": high}
        if not is_defined:
            is_perfect = baseline.values[metric] == 1
            score.reasons[f"{kind}_gain"] = (
                "the click rate by rank is perfect here"
                if is_perfect
                else "a perplexity is too large a number"
            )
    return row | score.row


def gain_over(baseline: Floats, own: Floats) -> Floats:
    """Which part of the way from the baseline's perplexity to a perfect 1 a model makes."""
    with np.errstate(divide="ignore", invalid="ignore"):
        gain: Floats = (baseline - own) / (baseline - 1)
    return gain


def _schema(setting: Setting) -> dict[str, Any]:
    measured = [*METRICS, *(f"{kind}_gain" for kind in GAINS)]
    schema: dict[str, Any] = {"model": pl.String}
    for metric in measured:
        schema |= dict.fromkeys((metric, f"{metric}_low", f"{metric}_high"), pl.Float64)
    schema |= {"ctr_rmse": pl.Float64, "ece": pl.Float64}
    if setting.ndcg_at is not None:
        schema |= dict.fromkeys(RELEVANCE_METRICS, pl.Float64)
    return schema | {"n_impossible": pl.Int64, "seconds": pl.Float64}


def _stacked(frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(
        [
            frame.select(pl.lit(name, dtype=pl.String).alias("model"), pl.all())
            for name, frame in frames.items()
        ]
    )


def _added(entered: list[Contestant]) -> list[str]:
    added = [entry.name for entry in entered if not entry.is_asked_for]
    if not added:
        return []
    verb = "takes" if len(added) == 1 else "take"
    return [f"{' and '.join(added)} always {verb} part, as the plainest rivals."]


def _impossible(scores: Mapping[str, Score], setting: Setting) -> list[str]:
    if setting.impossible != "floor":
        return []
    return [
        f"{name}: {score.row['n_impossible']:,} of "
        f"{counted(setting.n_test_sessions, 'test session')} "
        f"{'is' if score.row['n_impossible'] == 1 else 'are'} impossible under it; each impossible "
        "observation counts as 1e-8."
        for name, score in scores.items()
        if score.row["n_impossible"]
    ]
