"""Who takes part in a comparison: names, classes and models become models with names.

Models that tell more than clicks are scored by what they say of the clicks.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gecasmo.compiler.hide import hide
from gecasmo.encoding.observations import LAST_CLICK
from gecasmo.errors import GecasmoError, GecasmoWarning, ModelError
from gecasmo.estimation import Method
from gecasmo.evaluation.words import counted
from gecasmo.kernels.library import Structure
from gecasmo.logs import ClickLog
from gecasmo.model import ClickModel
from gecasmo.model.base import Impossible, Model
from gecasmo.model.fit import FitReport
from gecasmo.models import DCTR, RCTR, model_named


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
    for name, model in _named(models):
        _enter(entered, name, model)
    if not entered:
        raise ModelError('compare(models=...) needs at least one model, such as ["DBN"].')
    for baseline in (RCTR, DCTR):
        if not any(type(entry.model) is baseline for entry in entered):
            _enter(entered, baseline.__name__, baseline())
            entered[-1].is_asked_for = False
    if not log.has_query:
        for entry in entered:
            _do_without_query(entry, notes)
    return entered


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
        "compare(models=...) takes names of the zoo, classes or models, or a dictionary of them, "
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
    if entry.is_given:
        entry.seconds = _seconds(report)
        notes.append(
            f"{entry.name} came fitted and was left as it is: whether it has seen the test "
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
    so comparable with that of models which know clicks only.
    """
    others = other_signals(model)
    if not others:
        return model
    twin = model.copy()
    counting = model.counting_structure
    twin._structures = (Structure(hide(counting.traced, (*others, LAST_CLICK))), counting)
    twin._libraries = {}
    return twin
