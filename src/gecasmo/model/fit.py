"""Fit a model: put a problem together from its coins and a log, solve it, keep the answer.

A log is an ordered set of parts: one in memory, several on disk or on a cluster. Who has them
(`FitSource`) says what differs; all else is the same.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError, GecasmoWarning, ModelError, either, option, tell
from gecasmo.estimation import EM, Method, Problem, Record, Solution
from gecasmo.estimation.coins import Evaluated
from gecasmo.estimation.constraints import Kept, Prefer, check_constraints
from gecasmo.estimation.part import Part
from gecasmo.estimation.posteriors.learner import Posteriors
from gecasmo.estimation.posteriors.sample import SampledPages
from gecasmo.forms import FormState
from gecasmo.kernels.threads import using_threads
from gecasmo.logs import ClickLog
from gecasmo.logs.store.stored_log import StoredLog
from gecasmo.logs.views import as_view
from gecasmo.model.fit_pairs import pairs_of_fit
from gecasmo.model.informed import tell_informed
from gecasmo.model.log_parts import as_log
from gecasmo.model.page_run import check_impossible
from gecasmo.model.part_builder import Builder, Settings
from gecasmo.model.solution import progress_bar, solve

if TYPE_CHECKING:
    from gecasmo.model.base import Impossible, Model


@dataclass(repr=False)
class FitReport:
    """How a fit went; prints as a few lines."""

    history: list[Record]
    converged: bool
    interrupted: bool
    n_sessions: int
    total_weight: float
    n_dropped: int
    n_floored: int
    n_evaluations: int
    objective: float
    log_likelihood: float
    counts: dict[str, NDArray[np.float64]]
    constraints: list[Kept] = field(default_factory=list)  # how each was kept
    seconds: float | None = None  # of the whole fit, with encoding and learning of priors

    @property
    def summary(self) -> str:
        """How the fit went, in a sentence."""
        state = "converged" if self.converged else "not converged"
        text = (
            f"fitted to {self.n_sessions:,} sessions in {self.history[-1].iteration} iterations "
            f"({'interrupted' if self.interrupted else state}), log-likelihood per session "
            f"{self.log_likelihood / max(self.total_weight, 1e-300):.4f}"
        )
        if self.n_dropped:
            text += f"; {self.n_dropped:,} impossible sessions left out"
        if self.n_floored:
            text += f"; {self.n_floored:,} impossible observations floored"
        return text

    def __repr__(self) -> str:
        took = "" if self.seconds is None else f", {self.seconds:.1f} seconds"
        lines = [
            f"FitReport: {self.summary}",
            f"  objective {self.objective:.6g}, {self.n_evaluations:,} evaluations{took}",
        ]
        for coin, sides in self.counts.items():
            rows, flips = f"{sides.shape[1]:,} rows", f"{sides.sum():,.1f} expected flips"
            lines.append(f"  {coin}: {rows}, {flips}, {sides[1].sum():,.1f} of them heads")
        lines += [f"  {kept}" for kept in self.constraints]
        return "\n".join(lines)


FitRows = dict[str, tuple[FormState, NDArray[np.float64] | None]]  # by coin: state and counts


class FitSource(Protocol):
    """The parts of a log, ready to be fitted.

    Attributes
    ----------
    problem : coins and parts
    n_sessions, n_dropped, n_floored : pages that count, that were left out, results floored
    """

    problem: Problem
    n_sessions: int
    n_dropped: int
    n_floored: int

    def sample(self) -> tuple[SampledPages, Mapping[str, dict[str, pl.Series]]] | None:
        """Some pages in memory, and by coin what the priors of their rows depend on; None where
        nothing is to be learned from them."""

    def local_rows(self, best: Evaluated) -> FitRows:
        """The rows that are with the parts, as the fitted model keeps them."""


def fit_source(
    model: Model, source: FitSource, method: Any, show: Any, intervals: bool = True
) -> Solution:
    """Solve the problem of a source, and give the model its states and its report."""
    problem = source.problem
    sampled = source.sample()
    posteriors = None if sampled is None else Posteriors(problem, *sampled)
    solution = solve(problem, method, show, posteriors, intervals)
    best = solution.best
    rows = source.local_rows(best)
    states, counts = {}, {}
    for number, coin in enumerate(model.forms):
        if number in problem.local:
            states[coin], own = rows[coin]
        else:
            states[coin], own = best.states[number], best.counts.tables[number]
        if own is not None:
            counts[coin] = own
    model.states_, model.draws_ = states, solution.draws
    model.errors_ = None if posteriors is None else posteriors.errors
    model.report_ = FitReport(
        history=solution.history,
        converged=solution.converged,
        interrupted=solution.interrupted,
        n_sessions=source.n_sessions,
        total_weight=problem.n_pages,
        n_dropped=source.n_dropped,
        n_floored=source.n_floored,
        n_evaluations=solution.n_evaluations,
        objective=best.objective,
        log_likelihood=best.log_likelihood,
        counts=counts,
    )
    return solution


def fit_model(
    model: Model,
    log: ClickLog | StoredLog,
    method: Method | None,
    start: Model | None,
    features: Mapping[str, Any] | None,
    threads: int | None,
    progress: bool | None,
    impossible: Impossible,
    intervals: bool = True,
    checkpoint: Any = None,
    constraints: Any = (),
) -> None:
    """Fit `model` in place; it keeps its old fit if anything goes wrong."""
    log = as_log(log)
    asked = check_constraints(constraints, list(model.forms))
    settings = Settings(EM() if method is None else method, start, impossible, asked)
    is_stored = isinstance(log, StoredLog)
    if not isinstance(log, ClickLog) and not is_stored:
        raise ClickLogError(
            "fit() takes a ClickLog, which gecasmo.read_log(source) makes, a data frame that it "
            "reads, or a StoredLog, which gecasmo.open_log(path) opens."
        )
    if checkpoint is not None and not is_stored:
        raise ModelError(
            f"{option('checkpoint')} is for stored logs "
            f"({either('ClickLog.ingest', '`gecasmo ingest`')} makes one); a fit in memory can be "
            f"resumed by {either('start=model', '--start FIT')}."
        )
    if log.n_results == 0:
        raise ClickLogError("There is nothing to fit: the log has no results.")
    if not log.total_weight > 0:
        raise ClickLogError("There is nothing to fit: all pages of the log weigh 0.")
    check_settings(settings, features, threads)
    if asked:
        _check_constrained(model, settings, is_stored)
    began = time.perf_counter()
    work = model.with_features(**features) if features else model
    with progress_bar(model.name, progress) as show, using_threads(threads):
        if isinstance(log, StoredLog):
            from gecasmo.model.stored_fit import fit_stored

            fit_stored(model, work, log, settings, threads, show, intervals, checkpoint)
        else:
            source = MemorySource(work, log, settings, threads)
            solution = fit_source(model, source, settings.method, show, intervals)
            if asked:
                _report_constraints(model, source.problem, solution)
            tell_remarks(model)
            tell_informed(model, source.problem.parts.whole.expectation.encoded)
    model.features_, model.pairs_ = work.features_, None
    if isinstance(log, ClickLog):
        model.pairs_ = pairs_of_fit(model, log)
    assert model.report_ is not None
    model.report_.seconds = time.perf_counter() - began


def check_settings(settings: Settings, features: Any, threads: int | None = None) -> None:
    """Refuse what no fit can do."""
    method, start, impossible = settings.method, settings.start, settings.impossible
    if not hasattr(method, "solve") or isinstance(method, type):
        raise ModelError(f"method={method!r}: a method is an object such as EM(max_iter=50).")
    check_impossible(impossible)
    if threads is not None and threads < 1:
        raise ModelError(f"{option('threads', threads)}: at least one is needed.")
    if start is not None and (isinstance(start, type) or not hasattr(start, "states")):
        raise ModelError(f"start={start!r}: a fitted model is wanted, or with_values(...).")
    if features is not None and not isinstance(features, Mapping):
        raise ModelError('features are given by coin: features={"attraction": frame}.')


def _check_constrained(model: Model, settings: Settings, is_stored: bool) -> None:
    """Refuse constraints where they cannot be kept."""
    if is_stored:
        raise ModelError(
            f"{option('constraints')}: pages of a stored log are fitted part by part, and "
            "constraints need them together. Fit the files that were ingested, or some of them."
        )
    if not isinstance(settings.method, EM):
        raise ModelError(
            f"{option('constraints')}: these are kept by EM(); {settings.method!r} does not know "
            "of them."
        )
    together = as_view(model.view).name
    if together in ("tasks", "walks") and any(isinstance(c, Prefer) for c in settings.constraints):
        raise ModelError(
            f"Prefer(...) compares results of one page, and {model.name} walks over {together}: "
            "there, results of several pages or passes follow each other."
        )


def _report_constraints(model: Model, problem: Problem, solution: Solution) -> None:
    """Say how constraints were kept; the log-likelihood is that of the clicks as such."""
    part: Part = problem.parts.whole
    expectation: Any = part.expectation
    report = model.report_
    assert report is not None
    assert model.states_ is not None
    weights = part.weights([model.states_[coin.name] for coin in part.coins])
    plain = expectation.plain_log_likelihood(weights) + part.constant
    report.log_likelihood, report.constraints = plain, expectation.kept(weights)


class MemorySource:
    """A log in memory: one part, with all rows at hand."""

    def __init__(
        self, model: Model, log: ClickLog, settings: Settings, threads: int | None
    ) -> None:
        log, held_out = _set_apart(model, log, settings.method)
        build = Builder(model, log, settings, threads)
        part = build.part()
        begin = None if settings.start is None else build.begun(part)
        self.problem = Problem.of(part, model.is_exchangeable, begin)
        if held_out is not None:
            self.problem.held_out = Builder(model, held_out, settings, threads).part()
        self._sample = SampledPages(part, is_all=True)
        self._typical = build.typical
        self.n_sessions = build.log.n_sessions
        self.n_dropped, self.n_floored = build.n_dropped, build.n_floored

    def sample(self) -> tuple[SampledPages, Mapping[str, dict[str, pl.Series]]]:
        """All pages."""
        return self._sample, self._typical

    def local_rows(self, best: Evaluated) -> FitRows:
        """None: all rows are states of the fit."""
        return {}


def _set_apart(model: Model, log: ClickLog, method: Any) -> tuple[ClickLog, ClickLog | None]:
    """The pages to fit, and those that a method wants to be judged by."""
    validation = getattr(method, "validation", None)
    if validation is None:
        return log, None
    if isinstance(validation, ClickLog):
        return log, validation
    by = as_view(model.view).together(log.columns)
    return log.split(test=validation, by=by, seed=method.seed)


def tell_remarks(model: Model) -> None:
    """Tell what a user should know about a finished fit."""
    assert model.states_ is not None
    assert model.report_ is not None
    by_form: dict[Any, list[str]] = {}
    for coin, form in model.forms.items():
        # Coins that share the state of a form share its remarks.
        by_form.setdefault((id(form), id(model.states_[coin])), []).append(coin)
    for coins in by_form.values():
        form, state = model.forms[coins[0]], model.states_[coins[0]]
        which = f"The coin '{coins[0]}'"
        if len(coins) > 1:
            which = "The coins " + " and ".join(f"'{coin}'" for coin in coins)
        # Counts of rows that are in files are there, too.
        nothing = np.zeros((2, 0))
        tails, heads = np.sum([model.report_.counts.get(coin, nothing) for coin in coins], axis=0)
        for remark in form.remarks(state, heads, tails):
            tell(f"{which}: {remark}.", GecasmoWarning)
