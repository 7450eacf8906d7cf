"""Fit several models to the same sessions, judge them by the same others, and tell how they did."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError, GecasmoError, ModelError, option
from gecasmo.estimation import Method
from gecasmo.evaluation.bootstrap import (
    KINDS,
    METRICS,
    cluster_sums,
    clusters_of,
    interval,
    paired_differences,
    table_by_rank,
    with_samples,
)
from gecasmo.evaluation.comparison import Comparison, Setting
from gecasmo.evaluation.contestants import (
    Contestant,
    Score,
    Trial,
    clicks_only,
    contestants,
    fit_contestant,
    kept_together,
    rank_baseline,
    score,
    without_impossible,
)
from gecasmo.evaluation.evaluate import predictions
from gecasmo.evaluation.metrics import comparable, top_pairs
from gecasmo.evaluation.nested import NestedTests, Nesting, Pairs, nestings, pages_to_test
from gecasmo.evaluation.relevance import RELEVANCE_METRICS, grades
from gecasmo.logs import ClickLog
from gecasmo.logs.pages import number_by_first_appearance
from gecasmo.model.base import Impossible, Model
from gecasmo.model.log_parts import is_stored
from gecasmo.model.page_run import FLOOR
from gecasmo.report import counted, percent

Floats = NDArray[np.float64]
Tell = Callable[[str, int, int], None]

FEW_CLUSTERS = 20


def compare(
    log: ClickLog,
    models: Any,
    *,
    test: float = 0.2,
    by: str = "session",
    time: str | None = None,
    seed: int = 0,
    heldout: ClickLog | None = None,
    bootstrap: int = 200,
    over: str = "query",
    level: float = 0.9,
    judgments: Any = None,
    ndcg_at: int = 10,
    method: Method | None = None,
    impossible: Impossible = "floor",
    nested: Pairs = False,
    replicates: int = 200,
    loo: bool = False,
    tell: Tell | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Fit models to one part of a log and compare them on the other.

    The click rates by rank (RCTR) and by document (DCTR) always take part. All figures are about
    clicks alone, as those of a page: other signals of a model (`user.emit`) are fitted, but not
    scored, nor are numbers (`user.observe`), from which clicks below may be foretold. Of models of
    the order of clicks it is scored which results are clicked, in whatever order; models that are
    told where the next click is are left out. Notes say so.

    Parameters
    ----------
    log : ClickLog
    models : names of the zoo ("DBN"), classes or models, in a list or a dictionary by name
        Models that come fitted are left as they are; all others are fitted, as copies.
    test, by, time, seed
        How the log is split: see `ClickLog.split`. `time="day"` trains on the past.
    heldout : ClickLog, optional
        A test part of its own; all of `log` is for training then.
    bootstrap : int
        Number of bootstrap samples behind intervals and verdicts; 0 for none.
    over : str
        What the bootstrap draws: "query", "session", or a column with one value a page.
    level : float
        Level of the intervals.
    judgments : data frame or path, optional
        Grades by people, with columns query, doc and grade (0: not relevant): a frame, a .csv,
        .tsv or .parquet file, or TREC qrels. The frame may hold features that models read.
    ndcg_at : int
        Where nDCG is cut off.
    method : EM or Gradient, optional
        How models are fitted.
    impossible : "floor", "drop" or "raise"
        What to do with sessions of probability zero. "floor" counts the impossible observation as
        1e-8; "drop" leaves out, for all models, what is impossible under any of them.
    nested : bool, or a list of pairs of names
        Also test, on all of `log`, whether models are better than special cases of them by more
        than chance: likelihood-ratio tests, by simulation from the smaller model. True finds out
        which models are special cases of others; pairs name them, the smaller one first.
    replicates : int
        How many logs are simulated for each such test; fewer where the answer is clear before.
    loo : bool
        Beside these tests, also fit by Gibbs and score each page by all others (extra `bayes`).
    tell : function of (words, done, total), optional
        Told of each step, for progress bars.
    progress : bool, optional
        Whether each fit shows a bar; by default on a terminal, unless there is a `tell`.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> from gecasmo.evaluation import compare
    >>> from gecasmo.simulation import demo_log
    >>> log, truth = demo_log(400, seed=1)
    >>> found = compare(log, ["DBN"], bootstrap=50)
    >>> sorted(found.table["model"])
    ['DBN', 'DCTR', 'RCTR']
    >>> found.verdict("DBN", "RCTR") in ("better", "worse", "no clear difference")
    True
    """
    _check(bootstrap, level, ndcg_at, impossible)
    if loo and not nested:
        raise ModelError(f"{option('loo', of='compare')} goes with {option('nested')}.")
    notes: list[str] = []
    if isinstance(log, ClickLog) and heldout is None and time is None and by == "session":
        by = kept_together(models, log, by, notes)
    train, tested, how = train_and_test(
        log, heldout, test=test, by=by, seed=seed, time=time, notes=notes
    )
    entered = contestants(models, train, notes)
    judged = None if judgments is None else grades(judgments, train, notes)
    if progress is None and tell is not None:
        progress = False
    pairs: list[Nesting] = []
    if nested:
        asked = {entry.name: entry.model for entry in entered if entry.is_asked_for}
        tests = NestedTests(pages_to_test(log), replicates, seed, method, progress=progress)
        pairs = nestings(asked, log, nested, notes)
    steps = _Steps(tell, 2 * len(entered) + 1 + replicates * len(pairs))
    for entry in entered:
        steps.next(f"fitting {entry.name}")
        fit_contestant(entry, train, method, impossible, progress, notes)
    counts: dict[str, int] = {}
    if impossible == "drop":
        tested, counts = without_impossible(entered, tested, notes)
    require_something(tested)
    group, over = groups(tested, over, bootstrap > 0, notes)
    trial = Trial(
        test=tested,
        clusters=clusters_of(tested, group),
        pairs=top_pairs(train, tested),
        impossible=impossible,
        bootstrap=bootstrap,
        seed=seed,
        judged=judged,
        ndcg_at=ndcg_at,
    )
    scores = {}
    for entry in entered:
        steps.next(f"scoring {entry.name}")
        try:
            scores[entry.name] = score(entry, trial, notes)
        except GecasmoError as problem:
            raise type(problem)(f"{entry.name}: {problem}") from problem
        if entry.name in counts:
            scores[entry.name].row["n_impossible"] = counts[entry.name]
    steps.next("comparing")
    tell_unseen(train, tested, notes)
    setting = Setting(
        split=how,
        n_train_sessions=train.n_sessions,
        n_train_results=train.n_results,
        n_test_sessions=tested.n_sessions,
        n_test_results=tested.n_results,
        seed=seed,
        impossible=impossible,
        bootstrap=bootstrap,
        over=over,
        n_clusters=trial.clusters.n_clusters,
        level=level,
        baseline=rank_baseline(entered),
        best=max(scores, key=lambda name: scores[name].values["log_likelihood"]),
        ndcg_at=None if judged is None else ndcg_at,
        n_judged_queries=None if judged is None else judged.n_queries,
    )
    found = tests.table(asked, pairs, loo, steps.next, notes) if pairs else None
    comparison = assemble(entered, scores, trial.clusters.ranks, setting, notes, found)
    steps.done()
    return comparison


def _check(bootstrap: int, level: float, ndcg_at: int, impossible: str) -> None:
    if isinstance(bootstrap, bool) or not isinstance(bootstrap, int) or bootstrap < 0:
        raise ModelError(
            f"{option('bootstrap', bootstrap, of='compare')}: a number of samples, 0 for none."
        )
    if not 0 < level < 1:
        raise ModelError(f"{option('level', level, of='compare')}: a level lies between 0 and 1.")
    if isinstance(ndcg_at, bool) or not isinstance(ndcg_at, int) or ndcg_at < 1:
        raise ModelError(f"compare(ndcg_at={ndcg_at!r}): a rank, at least 1.")
    if impossible not in ("raise", "drop", "floor"):
        raise ModelError(
            f"{option('impossible', impossible, of='compare')}: 'raise', 'drop' or 'floor'."
        )


def train_and_test(
    log: ClickLog,
    heldout: ClickLog | None,
    *,
    test: float,
    by: str,
    seed: int,
    time: str | None,
    notes: list[str],
) -> tuple[ClickLog, ClickLog, str]:
    """Both parts, and how they came about in words."""
    for name, given in (("log", log), ("heldout", heldout)):
        if is_stored(given):
            raise ClickLogError(
                f"compare({name}=...) works in memory. Give it some partitions of the stored log, "
                "such as log.partition(0), which has all pages of some queries; or fit and "
                "evaluate each model on stored logs."
            )
        if given is not None and not isinstance(given, ClickLog):
            raise ClickLogError(
                f"compare({name}=...) takes a ClickLog, not {type(given).__name__}: "
                "read_log(source) makes one."
            )
    if heldout is not None:
        if time is not None or by != "session":
            raise ClickLogError(
                f"{option('heldout', of='compare')}: a held-out log is the test part as it is; "
                f"leave out {option('by')} and {option('time')}."
            )
        _check_heldout(log, heldout, notes)
        return log, heldout, "tested on a log of its own"
    try:
        train, tested = log.split(test=test, by=by, seed=seed, time=time)
    except ClickLogError as problem:
        words = str(problem)
        if words.startswith("--"):
            raise
        if words.startswith("split("):
            raise ClickLogError(f"compare({words.removeprefix('split(')}") from problem
        name, value = ("by", by) if time is None else ("time", time)
        raise ClickLogError(f"{option(name, value, of='compare')}: {words}") from problem
    how = f"split by {by}, seed {seed}" if time is None else f"trained on the past by {time!r}"
    return train, tested, how


def _check_heldout(log: ClickLog, heldout: ClickLog, notes: list[str]) -> None:
    if log.has_query and not heldout.has_query:
        raise ClickLogError(
            f"{option('heldout', of='compare')}: the held-out log has no column 'query'."
        )
    both = set(log.sessions.to_list()) & set(heldout.sessions.to_list())
    if both:
        notes.append(
            f"{counted(len(both), 'session id occurs', 'session ids occur')} in both logs: if "
            "these are the same sessions, the "
            "scores are too good."
        )


def require_something(log: ClickLog) -> None:
    """Refuse a mean over nothing."""
    if not log.n_results or not log.weight[log.page].sum() > 0:
        raise ClickLogError(
            "There is nothing to compare models on: the test part has no results, or all its "
            "pages weigh 0."
        )


def groups(
    log: ClickLog, over: str, has_bootstrap: bool, notes: list[str]
) -> tuple[NDArray[np.int64], str]:
    """The bootstrap's group of each session, and what it is a group by."""
    told: list[str] = []
    if over == "query" and not log.has_query:
        told.append("The log has no queries, so intervals are over sessions.")
        over = "session"
    try:
        values = log.session_column(over)
    except ClickLogError as problem:
        raise ClickLogError(f"{option('over', over, of='compare')}: {problem}") from problem
    number = number_by_first_appearance(values)[0].astype(np.int64)
    n_groups = len(np.unique(number[log.weight > 0]))
    n_sessions = int((log.weight > 0).sum())
    if n_groups < 2 and over != "session" and n_sessions > 1:
        told.append(
            f"The test part has one {over} only, so intervals are over sessions: they say nothing "
            f"about another {over}."
        )
        number, over, n_groups = np.arange(log.n_sessions), "session", n_sessions
    if n_groups < 2:
        told.append("The test part has one session only, so there are no intervals.")
    elif n_groups < FEW_CLUSTERS:
        told.append(
            f"The intervals rest on {n_groups} groups (by {over}) only: too few to trust their "
            "width."
        )
    if has_bootstrap:
        notes += told
    return number, over


def rank_perplexities(
    model: Model, log: ClickLog, *, bootstrap: int = 200, level: float = 0.9, seed: int = 0
) -> pl.DataFrame:
    """Measure the perplexity of a model by rank, beside that of the log's click rate by rank.

    The click rates are those of these very pages, so that they are as hard to beat as can be.

    Parameters
    ----------
    model : fitted model
    log : ClickLog
    bootstrap, level, seed
        As for `compare`; samples are drawn over queries, or over sessions if there are none.

    Returns
    -------
    The columns of `Comparison.by_rank` without the model.
    """
    said = predictions(clicks_only(model), log)
    group, _ = groups(log, "query", False, [])
    clusters = clusters_of(log, group)
    weight, place = log.weight[log.page], clusters.result_rank
    results, clicks = (np.bincount(place, weights=w) for w in (weight, weight * log.click))
    rates = np.clip(clicks / np.maximum(results, 1e-300), FLOOR, 1 - FLOOR)[place]
    rivals = (said, replace(said, conditional=rates, marginal=rates))
    own, its = (with_samples(cluster_sums(log, clusters, r), bootstrap, seed) for r in rivals)
    return table_by_rank(clusters.ranks, own, its, level, clusters.n_clusters)


def tell_unseen(train: ClickLog, test: ClickLog, notes: list[str]) -> None:
    """Note which share of the test results shows what was never shown in training."""
    weight = test.weight[test.page]
    total = float(weight.sum())
    for names, what in ((["doc"], "documents"), (["query", "doc"], "pairs of query and document")):
        if not all(name in part.columns for name in names for part in (train, test)):
            continue
        here, there = comparable(test, train, names)
        seen = here.join(
            there.unique().with_columns(is_seen=True), on=names, how="left", maintain_order="left"
        )["is_seen"].fill_null(False)
        part = float(weight[~seen.to_numpy()].sum()) / total
        if part > 0:
            told = percent(part, decimals=1, in_words=True)
            notes.append(
                f"{told[0].upper()}{told[1:]} of the test results show {what} that were never in "
                "training: for these a model can only answer from its prior."
            )


class _Steps:
    """Counts steps for whoever shows them."""

    def __init__(self, tell: Tell | None, total: int) -> None:
        self._tell, self._total, self._number = tell, total, 0

    def next(self, words: str, by: int = 1) -> None:
        if self._tell is not None:
            self._tell(words, self._number, self._total)
        self._number += by

    def done(self) -> None:
        if self._tell is not None:
            self._tell("done", self._total, self._total)


def assemble(
    entered: list[Contestant],
    scores: Mapping[str, Score],
    ranks: NDArray[np.int64],
    setting: Setting,
    notes: list[str],
    nested: pl.DataFrame | None = None,
) -> Comparison:
    """One comparison of many scores."""
    order = sorted(scores, key=lambda name: -scores[name].values["log_likelihood"])
    baseline = scores[setting.baseline]
    rows = [_row(name, scores[name], baseline, setting) for name in order]
    return Comparison(
        table=pl.DataFrame(rows, schema=_schema(setting), orient="row"),
        by_rank=_stacked(
            {
                name: table_by_rank(
                    ranks, scores[name].sums, baseline.sums, setting.level, setting.n_clusters
                )
                for name in order
            }
        ),
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
        nested=nested,
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
    for kind in KINDS:
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
    measured = [*METRICS, *(f"{kind}_gain" for kind in KINDS)]
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
    return [f"{' and '.join(added)} always {verb} part, as the simplest baselines."]


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
