"""Which model to take for a log of which nothing is known: a few candidates, cross-validated.

Every page is predicted once, by models that have not seen it. The best on average is taken, unless
a simpler one is not clearly behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError, ModelError, option
from gecasmo.estimation import Method
from gecasmo.evaluation.compare import compare, groups
from gecasmo.evaluation.contestants import as_model, clicks_only
from gecasmo.evaluation.evaluate import predictions
from gecasmo.logs import ClickLog
from gecasmo.model.base import Model
from gecasmo.report import Column, TextTable, counted

Floats = NDArray[np.float64]

# Simple ones that each read differently: by rank, by the last click, until satisfied, by the rates
# after clicks and skips, and the last with two kinds of users.
CANDIDATES = ("PBM", "UBM", "DBN", "TwoRate", "Picky")
MOST_SESSIONS = 20_000


@dataclass(frozen=True)
class Selection:
    """What `select_model` found; `model` is the one to fit.

    The table has a row a candidate, the best first: mean log-likelihood of clicks per page that was
    not seen, and how far it is behind the best, with an interval.
    """

    table: pl.DataFrame
    best: str
    chosen: str
    model: Model
    n_sessions: int
    folds: int
    level: float

    @property
    def reason(self) -> str:
        """Why this model, in a sentence."""
        n = len(self.table)
        if self.chosen == self.best:
            return f"{self.best} predicts pages that it has not seen best, of {n} candidates."
        row = self.table.row(by_predicate=pl.col("model") == self.chosen, named=True)
        return (
            f"{self.best} predicts unseen pages best, of {n} candidates; {self.chosen} is simpler, "
            f"and not clearly behind it ({row['behind']:.4f} a page, {100 * self.level:g} % "
            f"interval {row['behind_low']:.4f} to {row['behind_high']:.4f}), so it is taken."
        )

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "chosen": self.chosen,
            "best": self.best,
            "reason": self.reason,
            "sessions": self.n_sessions,
            "folds": self.folds,
            "candidates": self.table.to_dicts(),
        }

    def __str__(self) -> str:
        told = self.table.to_dicts()
        columns = [
            Column("model", [row["model"] for row in told], is_text=True),
            Column("log-likelihood\nper session", [f"{r['log_likelihood']:.4f}" for r in told]),
            Column("behind\nthe best", [f"{row['behind']:.4f}" for row in told]),
            Column(
                f"{100 * self.level:g} % interval",
                [f"{row['behind_low']:.4f} to {row['behind_high']:.4f}" for row in told],
            ),
        ]
        title = f"{self.folds} folds of {counted(self.n_sessions, 'session')}, each predicted once"
        return f"{TextTable(columns, title)}\n{self.reason}"

    __repr__ = __str__


def select_model(
    log: ClickLog,
    candidates: Sequence[Any] | Mapping[str, Any] = CANDIDATES,
    *,
    folds: int = 3,
    seed: int = 0,
    level: float = 0.9,
    most: int = MOST_SESSIONS,
    method: Method | None = None,
    tell: Callable[[str], None] | None = None,
) -> Selection:
    """Choose a model for a log by cross-validation.

    Parameters
    ----------
    log : ClickLog
    candidates : names of included models, classes or models, in a list or a dictionary by name
    folds : int
        Into how many parts sessions are put; each is predicted by fits to the others.
    seed : int
        Of the parts, and of the sample where the log is large.
    level : float
        Of the intervals that decide whether a simpler model is clearly behind.
    most : int
        Of larger logs all sessions of some queries are looked at, so many at most.
    method : how models are fitted
    tell : told of each step

    Returns
    -------
    Selection
        With `model`, not fitted yet: `select_model(log).model.fit(log)`.

    Examples
    --------
    >>> from gecasmo.evaluation import select_model
    >>> from gecasmo.simulation import demo_log
    >>> found = select_model(demo_log(300, seed=1)[0], ["PBM", "DBN"])
    >>> found.chosen in ("PBM", "DBN")
    True
    """
    if type(folds) is not int or folds < 2:
        raise ModelError(f"{option('folds', folds, of='select_model')}: a number from 2 on.")
    if not 0 < level < 1:
        raise ModelError(f"{option('level', level, of='select_model')}: between 0 and 1.")
    names = list(candidates)
    given = candidates.values() if isinstance(candidates, Mapping) else candidates
    models = {
        name if isinstance(name, str) else as_model(name).name: as_model(one)
        for name, one in zip(names, given, strict=True)
    }
    if not models:
        raise ModelError("select_model(candidates=...): at least one model is wanted.")
    rng = np.random.default_rng(seed)
    pages = _some_queries(log, most, rng)
    if pages.n_sessions < 2 * folds:
        raise ClickLogError(
            f"{counted(pages.n_sessions, 'session')} cannot be put into {folds} parts to choose a "
            "model by; name one instead, such as DBN."
        )
    part = rng.permutation(np.arange(pages.n_sessions) % folds)
    scores = {name: np.empty(pages.n_sessions) for name in models}
    for fold in range(folds):
        train, test = pages.take(part != fold), pages.take(part == fold)
        if tell is not None:
            tell(f"fold {fold + 1} of {folds}")
        fitted = compare(train, models, heldout=test, bootstrap=0, method=method, progress=False)
        for name in models:
            said = predictions(clicks_only(fitted.models[name]), test).log_likelihood
            scores[name][part == fold] = said
            # As it took part: without queries, say, its keys are others.
            models[name] = fitted.models[name].__sklearn_clone__()
    return _selected(pages, models, scores, folds, level)


def _some_queries(log: ClickLog, most: int, rng: np.random.Generator) -> ClickLog:
    """The log, or of a large one all sessions of some queries."""
    if log.n_sessions <= most:
        return log
    group, _ = groups(log, "query", False, [])
    order = rng.permutation(int(group.max()) + 1)
    sizes = np.bincount(group)[order]
    kept = order[: max(1, int(np.searchsorted(np.cumsum(sizes), most, side="right")))]
    return log.take(np.flatnonzero(np.isin(group, kept))[:most])


def _selected(
    log: ClickLog,
    models: Mapping[str, Model],
    scores: Mapping[str, Floats],
    folds: int,
    level: float,
) -> Selection:
    means = {name: float(np.average(own, weights=log.weight)) for name, own in scores.items()}
    order = sorted(means, key=lambda name: -means[name])
    best = order[0]
    group, _ = groups(log, "query", False, [])
    rows, near = [], []
    for name in order:
        low, high = _interval(scores[best] - scores[name], log.weight, group, level)
        behind = means[best] - means[name]
        told = {"behind": behind, "behind_low": low, "behind_high": high}
        near += [name] if low <= 0 else []
        rows.append({"model": name, "log_likelihood": means[name], **told})
    table = pl.DataFrame(rows)
    chosen = min(near, key=lambda name: (_size(models[name]), order.index(name)))
    return Selection(table, best, chosen, models[chosen], log.n_sessions, folds, level)


def _size(model: Model) -> int:
    """How simple a model is: by the ways that a user can go at a result."""
    return len(model.automaton.edges)


def _interval(
    difference: Floats, weight: Floats, group: NDArray[np.int64], level: float
) -> tuple[float, float]:
    """Of a mean difference, where all sessions of a query go together."""
    total = float(weight.sum())
    mean = float(weight @ difference) / total
    sums = np.bincount(group, weights=weight * (difference - mean))
    n = int((np.bincount(group, weights=weight) > 0).sum())
    if n < 2:
        return (-np.inf, np.inf) if difference.any() else (0.0, 0.0)
    from scipy.special import stdtrit  # not at the top: importing stays light

    error = float(np.sqrt((sums**2).sum() * n / (n - 1))) / total
    wide = error * float(stdtrit(n - 1, (1 + level) / 2))
    return mean - wide, mean + wide
