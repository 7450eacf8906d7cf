"""Who takes part in a comparison, and all that it wants to know of them once they are fitted.

Names, classes and models become models with names.

Models that tell more than clicks are scored by what they say of the clicks.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.compiler.hide import hide
from gecasmo.encoding.observations import LAST_CLICK
from gecasmo.errors import GecasmoError, GecasmoWarning, ImpossibleSessionError, ModelError, option
from gecasmo.estimation import Method
from gecasmo.evaluation.bootstrap import (
    Clusters,
    cluster_sums,
    metrics,
    with_samples,
)
from gecasmo.evaluation.evaluate import Predictions, impossible_sessions, predictions
from gecasmo.evaluation.leaks import leak_test
from gecasmo.evaluation.metrics import TopPairs, calibration, ctr_rmse
from gecasmo.evaluation.relevance import (
    RELEVANCE_METRICS,
    HumanGrades,
    relevance_metrics,
    relevance_of,
)
from gecasmo.forms import Fixed, Table
from gecasmo.kernels.library import Structure
from gecasmo.logs import ClickLog
from gecasmo.logs.views import as_view
from gecasmo.model import ClickModel
from gecasmo.model.base import Impossible, Model
from gecasmo.model.fit import FitReport
from gecasmo.models import CATALOGUE, DCTR, RCTR, model_named
from gecasmo.report import counted, listed

Floats = NDArray[np.float64]
_LEAK_SESSIONS, _LEAK_PLACES = 50, 5


@dataclass
class Contestant:
    """A model under the name it has in the table."""

    name: str
    model: Model
    is_given: bool  # it came with its probabilities and is left as it is
    is_asked_for: bool = True
    seconds: float | None = None

    @cached_property
    def scored(self) -> Model:
        """The fitted model as it is scored: by what it says of clicks, and nothing else."""
        return clicks_only(self.model)


def contestants(models: Any, log: ClickLog, notes: list[str]) -> list[Contestant]:
    """All models that were asked for, and the two baselines if they are not among them."""
    entered: list[Contestant] = []
    left_out: list[str] = []
    for name, model in _named(models):
        view = as_view(model.view)
        if model.foreseen:
            left_out.append(name or model.name)
            continue
        _enter(entered, name, model)
        if view.is_sequential:
            notes.append(
                f"{entered[-1].name} is of the order of clicks, which is not scored: only which "
                "results of a page are clicked, the sum over all orders."
            )
        if view.spans_pages:
            notes.append(
                f"{entered[-1].name} reads the log by {view.name}: what it says about a page "
                f"depends on the pages before it, which other models do not use."
            )
    if left_out:
        notes.append(
            f"{listed(left_out)} {'is' if len(left_out) == 1 else 'are'} left out: given where the "
            "next click is, there is no probability of clicks that others could be held against."
        )
    if not entered:
        why = f" {notes[-1]}" if left_out else ""
        raise ModelError(f'compare(models=...) needs at least one model, such as ["DBN"].{why}')
    for baseline in (RCTR, DCTR):
        if not any(type(entry.model) is baseline for entry in entered):
            _enter(entered, baseline.__name__, baseline())
            entered[-1].is_asked_for = False
    if not log.has_query:
        for entry in entered:
            _do_without_query(entry, notes)
    return entered


def kept_together(models: Any, log: ClickLog, by: str, notes: list[str]) -> str:
    """What a split of the log keeps together: more than sessions, if a model wants to."""
    for _, model in _named(models):
        together = as_view(model.view).together(log.columns)
        if together != by:
            notes.append(
                f"Split by {together}, not by {by}, since {model.name} reads the log by "
                f"{as_view(model.view).name}."
            )
            return together
    return by


def rank_baseline(entered: Iterable[Contestant]) -> str:
    """The name of the click rate by rank, which others are measured against."""
    return next(entry.name for entry in entered if type(entry.model) is RCTR)


def _named(models: Any) -> Iterable[tuple[str | None, Model]]:
    if isinstance(models, Mapping):
        return [(str(name), as_model(model)) for name, model in models.items()]
    if isinstance(models, str | type | Model) or not isinstance(models, Iterable):
        models = [models]
    return [(None, as_model(model)) for model in models]


def as_model(given: Any) -> Model:
    """A model of the zoo by its name, a class, or a model."""
    if isinstance(given, str):
        return model_named(given)()
    if isinstance(given, type) and issubclass(given, ClickModel):
        return given()
    if isinstance(given, Model):
        return given
    raise ModelError(
        "compare(models=...) takes names of included models, classes or models, or a dictionary "
        "of them, "
        f"not {given!r}."
    )


def _enter(entered: list[Contestant], name: str | None, model: Model) -> None:
    """Names stay unique: a second DBN is "DBN (2)"."""
    name = name or model.name
    taken = {entry.name for entry in entered}
    unique, number = name, 2
    while unique in taken:
        unique, number = f"{name} ({number})", number + 1
    # A copy, since what the user gave should not be fitted behind his back.
    entered.append(Contestant(unique, model.copy(), model.is_fitted))


def _do_without_query(entry: Contestant, notes: list[str]) -> None:
    """Rows by (query, doc) become rows by doc where the log has no queries."""
    model = entry.model
    if entry.is_given:
        return
    replaced: dict[tuple[int, tuple[str, ...]], Any] = {}
    told = []
    for coin, keys in model.keys.items():
        form = model.forms[coin]
        if "query" not in keys or "query" in form.columns or form.fixed:
            continue  # what cannot be helped is told by the fit
        rest = tuple(key for key in keys if key != "query")
        if (id(form), rest) not in replaced:  # coins that share a form go on sharing it
            twin = copy.copy(form)
            twin.key = rest
            replaced[id(form), rest] = twin
        model.forms[coin] = replaced[id(form), rest]
        told.append(f"{coin} by {', '.join(rest) or 'nothing'}")
    if told:
        notes.append(f"The log has no queries, so {entry.name} has {'; '.join(told)}.")


def _seconds(report: FitReport | None) -> float | None:
    """How long a fit took; of one from an older file that is what its iterations took."""
    if report is None:
        return None
    whole: float | None = getattr(report, "seconds", None)
    if whole is None and report.history:
        return report.history[-1].seconds
    return whole


def fit_contestant(
    entry: Contestant,
    log: ClickLog,
    method: Method | None,
    impossible: Impossible,
    progress: bool | None,
    notes: list[str],
) -> None:
    """Fit, unless the model came fitted; what a fit warns of becomes a note."""
    report = entry.model.report_
    others = other_signals(entry.model)
    if others:
        notes.append(f"{entry.name}: its other signals ({', '.join(others)}) are not scored.")
    numbers = entry.model.structure.traced.observed_columns()
    if numbers:
        notes.append(
            f"{entry.name}: it foretells clicks also from {', '.join(numbers)} above them, which "
            "is not scored itself."
        )
    if entry.is_given:
        entry.seconds = _seconds(report)
        notes.append(
            f"{entry.name} was already fitted and is used as it is: whether it has seen the test "
            "sessions is not known here."
        )
        return
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            entry.model.fit(log, method, impossible=impossible, progress=progress)
        except GecasmoError as problem:
            raise type(problem)(f"{entry.name}: {problem}") from problem
    entry.seconds = time.perf_counter() - began
    for warning in caught:
        if issubclass(warning.category, GecasmoWarning):
            notes.append(f"{entry.name}, fitting: {warning.message}")
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    report = entry.model.report_
    if report and report.n_dropped:
        notes.append(
            f"{entry.name}, fitting: "
            f"{counted(report.n_dropped, 'impossible training session')} left out."
        )
    if report and report.n_floored:
        notes.append(
            f"{entry.name}, fitting: {counted(report.n_floored, 'impossible observation')} of the "
            "training part counted as 1e-8."
        )


def other_signals(model: Model) -> tuple[str, ...]:
    """What a model's answers are about beside clicks, such as purchases."""
    return tuple(name for name in model.structure.traced.signals if name != "click")


def clicks_only(model: Model) -> Model:
    """A copy that answers as if nobody saw any signal but clicks; the model itself if it has none.

    Its log-likelihood is log P(clicks), the sum over all that the other signals may have been, and
    so comparable with that of models which know clicks only. What the view of the model makes of
    the log, such as that another page follows, is seen: all know of the pages that are there.
    """
    made = as_view(model.view).signals
    others = tuple(name for name in other_signals(model) if name not in made)
    if not others:
        return model
    twin = model.copy()
    counting = model.counting_structure
    twin._structures = (Structure(hide(counting.traced, (*others, LAST_CLICK))), counting)
    twin._libraries = {}
    return twin


@dataclass(frozen=True)
class Trial:
    """What every model is asked, the same for all."""

    test: ClickLog
    clusters: Clusters
    pairs: TopPairs
    impossible: Impossible
    bootstrap: int
    seed: int
    judged: HumanGrades | None
    ndcg_at: int


@dataclass
class Score:
    """The answers of one model: `values` and `samples` by metric, the rest of its table row."""

    values: dict[str, float]
    samples: dict[str, Floats]
    sums: Floats  # of all clusters, and of every bootstrap sample
    ctr_by_rank: pl.DataFrame
    calibration: pl.DataFrame
    row: dict[str, Any]
    reasons: dict[str, str] = field(default_factory=dict)


def score(entry: Contestant, trial: Trial, notes: list[str]) -> Score:
    """Ask one model everything."""
    test = trial.test
    said = predictions(entry.scored, test, "raise" if trial.impossible == "raise" else "floor")
    if said.lost > 0:
        notes.append(
            f"{entry.name}: unlikely orders of clicks are left out, at most {said.lost:.2g} of the "
            "probability of a page; that of the clicks that were seen has all of theirs."
        )
    sums = with_samples(cluster_sums(test, trial.clusters, said), trial.bootstrap, trial.seed)
    weight = test.weight[test.page]
    calibrated = calibration(test.click, said.marginal, weight)
    row: dict[str, Any] = {
        "ctr_rmse": ctr_rmse(trial.pairs, said.marginal),
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
    if trial.judged is not None:
        _judge(entry, trial, trial.judged, row, reasons)
    _look_for_leaks(entry, test, notes)
    found = metrics(sums)
    return Score(
        values={name: float(values[0]) for name, values in found.items()},
        samples={name: values[1:] for name, values in found.items()},
        sums=sums,
        ctr_by_rank=_ctr_by_rank(test, trial.clusters, said),
        calibration=calibrated.bins,
        row=row,
        reasons=reasons,
    )


def _judge(
    entry: Contestant,
    trial: Trial,
    judged: HumanGrades,
    row: dict[str, Any],
    reasons: dict[str, str],
) -> None:
    row.update(dict.fromkeys(RELEVANCE_METRICS))
    relevance, reason = relevance_of(entry.model, judged.frame)
    if relevance is None:
        reasons.update(dict.fromkeys(RELEVANCE_METRICS, reason))
        return
    for name, (value, why) in relevance_metrics(
        judged, relevance, trial.ndcg_at, trial.seed
    ).items():
        row[name] = value
        if value is None:
            reasons[name] = why


def _look_for_leaks(entry: Contestant, test: ClickLog, notes: list[str]) -> None:
    """A short leak test of all models but ours: users' own models and forms can get this wrong."""
    # What is said of all orders of clicks looks at none of them.
    if _is_ours(entry.model) or as_view(entry.model.view).is_sequential:
        return
    found = leak_test(entry.scored, test, most_sessions=_LEAK_SESSIONS, most_places=_LEAK_PLACES)
    if not found.passed:
        notes.append(
            f"Do not trust the scores of {entry.name}, which uses clicks that it should "
            f"not know yet. {found}"
        )


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
            f"{option('impossible', 'drop', of='compare')}: every test session is impossible under "
            f"one of the models; leave that model out, or choose {option('impossible', 'floor')}."
        )
    return (test.take(kept) if n_left_out else test), counts
