"""Metrics as functions of sums over clusters, so that a bootstrap sample is one matrix product.

Sessions of one query (or user) are not independent, so whole clusters are drawn. What each model
is judged by is summed per cluster first; a sample weighs the clusters by how often they were
drawn, and every metric is computed anew from the weighted sums (a perplexity is no mean). The
same samples serve all models, which is what makes differences between them paired, and tells
whether one model is better than another or only looks so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.evaluation.evaluate import Predictions
from gecasmo.logs import ClickLog

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

HIGHER_IS_BETTER = {
    "log_likelihood": True,
    "conditional_perplexity_pooled": False,
    "conditional_perplexity_arithmetic": False,
    "marginal_perplexity_pooled": False,
    "marginal_perplexity_arithmetic": False,
    "brier": False,
}
METRICS = tuple(HIGHER_IS_BETTER)
KINDS = ("conditional", "marginal")
_NUMBERS_AT_ONCE = 20_000_000
NO_DIFFERENCE, NOT_TESTED = "no clear difference", "not tested"
# Differences this small are rounding, however consistently they point one way.
ROUNDING = 1e-9
# And these, in nats a page, are real but do not matter: a page is less than half a percent more or
# less probable.
TINY = 0.005

_SCHEMA = {
    "model": pl.String,
    "against": pl.String,
    "metric": pl.String,
    "difference": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "verdict": pl.String,
    "is_tiny": pl.Boolean,
}


@dataclass(frozen=True)
class Clusters:
    """Which cluster each session belongs to, and which of the `ranks` each result has."""

    session: Ints
    n_clusters: int
    result_rank: Ints
    ranks: Ints


def clusters_of(log: ClickLog, group: Ints) -> Clusters:
    """Number the clusters of sessions that weigh something; the others get -1."""
    weighs = log.weight > 0
    used, number = np.unique(group[weighs], return_inverse=True)
    session = np.full(log.n_sessions, -1, np.int64)
    session[weighs] = number
    ranks, result_rank = np.unique(log.rank.astype(np.int64), return_inverse=True)
    return Clusters(session, len(used), result_rank, ranks)


def cluster_sums(log: ClickLog, clusters: Clusters, said: Predictions) -> Floats:
    """One line per cluster: log-likelihood, sessions, squared errors, and per rank the results,
    the bits of conditional and those of marginal probabilities; all of it weighted."""
    n, n_ranks = clusters.n_clusters, len(clusters.ranks)
    counted = clusters.session >= 0
    per_cluster = [
        np.bincount(clusters.session[counted], weights=values[counted], minlength=n)
        for values in (log.weight * said.log_likelihood, log.weight)
    ]
    result_cluster = clusters.session[log.page]
    rows = result_cluster >= 0
    cluster, rank = result_cluster[rows], clusters.result_rank[rows]
    click, weight = log.click[rows], log.weight[log.page[rows]]
    conditional, marginal = said.conditional[rows], said.marginal[rows]
    squares = np.bincount(cluster, weights=weight * (click - marginal) ** 2, minlength=n)
    place = cluster * n_ranks + rank
    per_rank = [
        np.bincount(place, weights=weight * values, minlength=n * n_ranks).reshape(n, n_ranks)
        for values in (np.ones(len(click)), bits(click, conditional), bits(click, marginal))
    ]
    return np.column_stack([*per_cluster, squares, *per_rank])


def bits(click: NDArray[np.bool_], probability: Floats) -> Floats:
    """By how much each result surprises."""
    surprise: Floats = -np.log2(np.where(click, probability, 1 - probability))
    return surprise


def metrics(sums: Floats) -> dict[str, Floats]:
    """Each metric for each line of summed-up clusters; NaN where a sample has nothing to say."""
    log_likelihood, sessions, squares = sums[:, :3].T
    results, conditional, marginal = np.split(sums[:, 3:], 3, axis=1)
    total = results.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = {"log_likelihood": log_likelihood / sessions, "brier": squares / total}
        for name, surprise in (("conditional", conditional), ("marginal", marginal)):
            by_rank = np.exp2(surprise / results)
            there = (results > 0).sum(axis=1)
            mean = np.where(results > 0, by_rank, 0.0).sum(axis=1) / there
            found[f"{name}_perplexity_pooled"] = np.exp2(surprise.sum(axis=1) / total)
            found[f"{name}_perplexity_arithmetic"] = mean
    return {name: found[name] for name in METRICS}


def table_by_rank(
    ranks: Ints, own: Floats, baseline: Floats, level: float, n_clusters: int
) -> pl.DataFrame:
    """Perplexities by rank, and by how much they differ from those of a baseline, with intervals.

    Of both, the first line has the sums of all clusters, the others those of bootstrap samples.
    """
    (results, *mine), (_, *its) = (np.split(sums[:, 3:], 3, axis=1) for sums in (own, baseline))
    used = np.flatnonzero(results[0] > 0)
    columns: dict[str, Any] = {"rank": ranks[used], "results": results[0, used]}
    gaps = {}
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        for kind, *bits in zip(KINDS, mine, its, strict=True):
            here, there = (np.exp2(each / results)[:, used] for each in bits)
            columns[kind], gaps[kind] = here[0], here - there
    for kind, gap in gaps.items():
        ends = [interval(drawn, level, n_clusters) for drawn in gap[1:].T]
        columns[f"{kind}_difference"] = np.where(np.isfinite(gap[0]), gap[0], np.nan)
        for number, end in enumerate(("low", "high")):
            columns[f"{kind}_{end}"] = pl.Series([each[number] for each in ends], dtype=pl.Float64)
    return pl.DataFrame(columns).with_columns(pl.col("^.*_difference$").fill_nan(None))


def with_samples(sums: Floats, n_samples: int, seed: int) -> Floats:
    """The sums of all clusters, and below those of bootstrap samples."""
    # One cluster alone cannot say how much clusters differ.
    n_samples = n_samples if len(sums) > 1 else 0
    return np.concatenate([sums.sum(axis=0)[None], resampled(sums, n_samples, seed)])


def resampled(sums: Floats, n_samples: int, seed: int) -> Floats:
    """The sums of bootstrap samples of the clusters; for one seed always the same samples."""
    if not n_samples:
        return np.zeros((0, sums.shape[1]))
    return np.concatenate([drawn @ sums for drawn in _samples(len(sums), n_samples, seed)])


def _samples(n_clusters: int, n_samples: int, seed: int) -> Iterator[Floats]:
    """How often each cluster is drawn in each sample, a few samples at a time."""
    generator = np.random.default_rng([seed, 20])
    at_once = max(1, _NUMBERS_AT_ONCE // max(n_clusters, 1))
    for first in range(0, n_samples, at_once):
        drawn = np.empty((min(at_once, n_samples - first), n_clusters))
        for line in drawn:
            line[:] = np.bincount(
                generator.integers(n_clusters, size=n_clusters), minlength=n_clusters
            )
        yield drawn


def interval(values: Floats, level: float, n_clusters: int) -> tuple[float | None, float | None]:
    """The central part of the samples' values, a little wider where clusters are few.

    Quantiles of samples behave like a normal interval that divides by n, too narrow if n is small.
    Taking them where a Student interval would end mends most of it (Hesterberg 2015, "expanded
    percentiles").
    """
    values = values[np.isfinite(values)]
    if not len(values) or n_clusters < 2:
        return None, None
    from scipy.special import ndtr, stdtrit  # not at the top: importing gecasmo stays light

    student = stdtrit(n_clusters - 1, (1 + level) / 2)
    tail = float(ndtr(-student * np.sqrt(n_clusters / (n_clusters - 1))))
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def paired_differences(
    values: Mapping[str, Mapping[str, float]],
    samples: Mapping[str, Mapping[str, Floats]],
    references: list[str],
    level: float,
    n_clusters: int,
) -> pl.DataFrame:
    """Every model against each reference: metric by metric, on the same bootstrap samples.

    `difference` is the model's value minus that of `against`; of log-likelihoods, `is_tiny` says
    whether it matters to anybody.
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
                is_tiny = abs(gap) < TINY if metric == "log_likelihood" else None
                rows.append((model, against, metric, difference, low, high, verdict, is_tiny))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def verdict_of(low: float | None, high: float | None, higher_is_better: bool) -> str:
    """Better or worse only if the interval of the difference excludes zero."""
    if low is None or high is None:
        return NOT_TESTED
    if low <= ROUNDING and high >= -ROUNDING:
        return NO_DIFFERENCE
    return "better" if (low > 0) == higher_is_better else "worse"
