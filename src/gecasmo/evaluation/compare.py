"""Fit several models to the same sessions and judge them by the same others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gecasmo.errors import GecasmoError, ModelError
from gecasmo.estimation import Method
from gecasmo.evaluation.assembling import assemble
from gecasmo.evaluation.bootstrap import clusters_of
from gecasmo.evaluation.comparison import Comparison, Setting
from gecasmo.evaluation.contestants import contestants, fit_contestant, rank_baseline
from gecasmo.evaluation.ctr_prediction import top_pairs
from gecasmo.evaluation.grades import grades
from gecasmo.evaluation.parts import groups, require_something, tell_unseen, train_and_test
from gecasmo.evaluation.scoring import Task, score, without_impossible
from gecasmo.logs import ClickLog
from gecasmo.model.base import Impossible

Tell = Callable[[str, int, int], None]


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
    tell: Tell | None = None,
    progress: bool | None = None,
) -> Comparison:
    """Fit models to one part of a log and compare them on the other.

    The click rates by rank (RCTR) and by document (DCTR) always take part. All figures are about
    clicks alone: other signals of a model (`user.emit`) are fitted, but not scored.

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
    notes: list[str] = []
    train, tested, how = train_and_test(
        log, heldout, test=test, by=by, seed=seed, time=time, notes=notes
    )
    entered = contestants(models, train, notes)
    judged = None if judgments is None else grades(judgments, train, notes)
    steps = _Steps(tell, 2 * len(entered) + 1)
    if progress is None and tell is not None:
        progress = False
    for entry in entered:
        steps.next(f"fitting {entry.name}")
        fit_contestant(entry, train, method, impossible, progress, notes)
    counts: dict[str, int] = {}
    if impossible == "drop":
        tested, counts = without_impossible(entered, tested, notes)
    require_something(tested)
    group, over = groups(tested, over, bootstrap > 0, notes)
    task = Task(
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
            scores[entry.name] = score(entry, task, notes)
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
        n_clusters=task.clusters.n_clusters,
        level=level,
        baseline=rank_baseline(entered),
        best=max(scores, key=lambda name: scores[name].values["log_likelihood"]),
        ndcg_at=None if judged is None else ndcg_at,
        n_judged_queries=None if judged is None else judged.n_queries,
    )
    comparison = assemble(entered, scores, setting, notes)
    steps.done()
    return comparison


def _check(bootstrap: int, level: float, ndcg_at: int, impossible: str) -> None:
    if isinstance(bootstrap, bool) or not isinstance(bootstrap, int) or bootstrap < 0:
        raise ModelError(f"compare(bootstrap={bootstrap!r}): a number of samples, 0 for none.")
    if not 0 < level < 1:
        raise ModelError(f"compare(level={level!r}): a level lies between 0 and 1.")
    if isinstance(ndcg_at, bool) or not isinstance(ndcg_at, int) or ndcg_at < 1:
        raise ModelError(f"compare(ndcg_at={ndcg_at!r}): a rank, at least 1.")
    if impossible not in ("raise", "drop", "floor"):
        raise ModelError(f"compare(impossible={impossible!r}): 'raise', 'drop' or 'floor'.")


class _Steps:
    """Counts steps for whoever shows them."""

    def __init__(self, tell: Tell | None, total: int) -> None:
        self._tell, self._total, self._number = tell, total, 0

    def next(self, words: str) -> None:
        if self._tell is not None:
            self._tell(words, self._number, self._total)
        self._number += 1

    def done(self) -> None:
        if self._tell is not None:
            self._tell("done", self._total, self._total)
