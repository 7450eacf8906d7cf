"""Everything that a comparison wants to know of one fitted model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ImpossibleSessionError
from gecasmo.evaluation.bootstrap import (
    Clusters,
    cluster_sums,
    metrics,
    perplexity_by_rank,
    resampled,
)
from gecasmo.evaluation.contestants import Contestant
from gecasmo.evaluation.evaluate import Predictions, impossible_sessions, predictions
from gecasmo.evaluation.leaks import leak_test
from gecasmo.evaluation.metrics import TopPairs, calibration, ctr_rmse
from gecasmo.evaluation.relevance import RELEVANCE_METRICS, Grades, relevance_metrics, relevance_of
from gecasmo.forms import Fixed, Table
from gecasmo.logs import ClickLog
from gecasmo.model.base import Impossible, Model
from gecasmo.models import CATALOGUE
from gecasmo.report import counted

Floats = NDArray[np.float64]
_LEAK_SESSIONS, _LEAK_PLACES = 50, 5


@dataclass(frozen=True)
class Task:
    """What every model is asked, the same for all."""

    test: ClickLog
    clusters: Clusters
    pairs: TopPairs
    impossible: Impossible
    bootstrap: int
    seed: int
    judged: Grades | None
    ndcg_at: int


@dataclass
class Score:
    """The answers of one model: `values` and `samples` by metric, the rest of its table row."""

    values: dict[str, float]
    samples: dict[str, Floats]
    by_rank: pl.DataFrame
    ctr_by_rank: pl.DataFrame
    calibration: pl.DataFrame
    row: dict[str, Any]
    reasons: dict[str, str] = field(default_factory=dict)


def score(entry: Contestant, task: Task, notes: list[str]) -> Score:
    """Ask one model everything."""
    test = task.test
    said = predictions(entry.scored, test, "raise" if task.impossible == "raise" else "floor")
    sums = cluster_sums(test, task.clusters, said)
    weight = test.weight[test.page]
    calibrated = calibration(test.click, said.marginal, weight)
    row: dict[str, Any] = {
        "ctr_rmse": ctr_rmse(task.pairs, said.marginal),
        "ece": calibrated.ece,
        "n_impossible": int(said.is_impossible.sum()),
        "seconds": entry.seconds,
    }
    reasons = {}
    if row["ctr_rmse"] is None:
        reasons["ctr_rmse"] = (
            "nothing is shown at rank 1 in the test part and at another rank in training"
        )
    if entry.seconds is None:
        reasons["seconds"] = "the model came with its probabilities"
    if task.judged is not None:
        _judge(entry, task, task.judged, row, reasons)
    _look_for_leaks(entry, test, notes)
    # One cluster alone cannot say how much clusters differ.
    n_samples = task.bootstrap if task.clusters.n_clusters > 1 else 0
    return Score(
        values={name: float(value[0]) for name, value in metrics(sums.sum(axis=0)[None]).items()},
        samples=metrics(resampled(sums, n_samples, task.seed)),
        by_rank=_by_rank(task.clusters, sums),
        ctr_by_rank=_ctr_by_rank(test, task.clusters, said),
        calibration=calibrated.bins,
        row=row,
        reasons=reasons,
    )


def _judge(
    entry: Contestant, task: Task, judged: Grades, row: dict[str, Any], reasons: dict[str, str]
) -> None:
    row.update(dict.fromkeys(RELEVANCE_METRICS))
    relevance, reason = relevance_of(entry.model, judged.frame)
    if relevance is None:
        reasons.update(dict.fromkeys(RELEVANCE_METRICS, reason))
        return
    for name, (value, why) in relevance_metrics(judged, relevance, task.ndcg_at, task.seed).items():
        row[name] = value
        if value is None:
            reasons[name] = why


def _look_for_leaks(entry: Contestant, test: ClickLog, notes: list[str]) -> None:
    """A short leak test of all models but ours: users' own models and forms can get this wrong."""
    if _is_ours(entry.model):
        return
    found = leak_test(entry.scored, test, most_sessions=_LEAK_SESSIONS, most_places=_LEAK_PLACES)
    if not found.passed:
        notes.append(f"Do not trust the scores of {entry.name}, which foresees clicks. {found}")


def _is_ours(model: Model) -> bool:
    """Whether this is a model of the zoo with plain tables by what its class names.

    Such cannot know clicks that it should foretell, and our tests see to that.
    """
    if type(model) not in CATALOGUE.values():
        return False
    return all(
        type(form) in (Table, Fixed) and set(model.keys[coin]) <= set(model.declared_keys[coin])
        for coin, form in model.forms.items()
    )


def _by_rank(clusters: Clusters, sums: Floats) -> pl.DataFrame:
    results, conditional, marginal = perplexity_by_rank(sums)
    used = results > 0
    return pl.DataFrame(
        {
            "rank": clusters.ranks[used],
            "results": results[used],
            "conditional": conditional[used],
            "marginal": marginal[used],
        }
    )


def _ctr_by_rank(log: ClickLog, clusters: Clusters, said: Predictions) -> pl.DataFrame:
    weight = log.weight[log.page]
    n_ranks = len(clusters.ranks)
    results, clicks, foretold = (
        np.bincount(clusters.result_rank, weights=weight * values, minlength=n_ranks)
        for values in (np.ones(log.n_results), log.click, said.marginal)
    )
    used = results > 0
    return pl.DataFrame(
        {
            "rank": clusters.ranks[used],
            "results": results[used],
            "observed": clicks[used] / results[used],
            "predicted": foretold[used] / results[used],
        }
    )


def without_impossible(
    entered: list[Contestant], test: ClickLog, notes: list[str]
) -> tuple[ClickLog, dict[str, int]]:
    """Leave out, for all models alike, the sessions that are impossible under any of them."""
    kept = np.ones(test.n_sessions, bool)
    counts = {}
    for entry in entered:
        found = impossible_sessions(entry.scored, test)
        counts[entry.name] = int(found.sum())
        kept &= ~found
    n_left_out = int((~kept).sum())
    if n_left_out:
        notes.append(
            f"{n_left_out:,} of {counted(test.n_sessions, 'test session')} "
            f"{'is' if n_left_out == 1 else 'are'} impossible under at least one model and left "
            "out for all."
        )
    if not kept.any():
        raise ImpossibleSessionError(
            "compare(impossible='drop'): every test session is impossible under one of the models; "
            "leave that model out, or choose impossible='floor'."
        )
    return (test.take(kept) if n_left_out else test), counts
