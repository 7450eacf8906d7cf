"""Put a problem together from a model and a log, solve it, and keep the answer in the model."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.compiler.symmetry import has_exchangeable_states
from gecasmo.encoding import EncodedLog
from gecasmo.encoding.averages import EXPOSURE, IMPRESSIONS, PAGES, row_averages
from gecasmo.errors import (
    ClickLogError,
    GecasmoWarning,
    ModelError,
    NothingLeftError,
    tell,
)
from gecasmo.estimation import (
    EM,
    Coin,
    Counts,
    Expectation,
    Method,
    Problem,
    Record,
    Solution,
)
from gecasmo.kernels.running import using_threads
from gecasmo.logs import ClickLog
from gecasmo.logs.store.stored_log import StoredLog
from gecasmo.model.page_run import FLOOR, find_impossible, refuse
from gecasmo.model.solution import progress_bar, solve

if TYPE_CHECKING:
    from gecasmo.model.base import Impossible, Model


@dataclass
class FitReport:
    """How a fit went."""

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
    seconds: float | None = None  # of the whole fit, with encoding and learning of priors


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
) -> None:
    """Fit `model` in place; it keeps its old fit if anything goes wrong."""
    method = EM() if method is None else method
    if not hasattr(method, "solve") or isinstance(method, type):
        raise ModelError(f"method={method!r}: a method is an object such as EM(max_iter=50).")
    is_stored = isinstance(log, StoredLog)
    if not isinstance(log, ClickLog) and not is_stored:
        raise ClickLogError(
            "fit() takes a ClickLog, which gecasmo.read_log(source) makes, or a StoredLog, which "
            "gecasmo.open_log(path) opens."
        )
    if checkpoint is not None and not is_stored:
        raise ModelError(
            "checkpoint= is for stored logs (ClickLog.ingest makes one); a fit in memory can be "
            "gone on with by start=model."
        )
    if log.n_results == 0:
        raise ClickLogError("There is nothing to fit: the log has no results.")
    if impossible not in ("raise", "drop", "floor"):
        raise ModelError(f"impossible={impossible!r}: choose 'raise', 'drop' or 'floor'.")
    if threads is not None and threads < 1:
        raise ModelError(f"threads={threads}: at least one is needed.")
    if start is not None and (isinstance(start, type) or not hasattr(start, "states")):
        raise ModelError(f"start={start!r}: a fitted model is wanted, or with_values(...).")
    if features is not None and not isinstance(features, Mapping):
        raise ModelError('features are given by coin: features={"attraction": frame}.')
    if isinstance(log, StoredLog):
        from gecasmo.model.parts import Settings
        from gecasmo.model.stored_fit import fit_stored

        fit_stored(
            model,
            log,
            Settings(method, start, impossible),
            features=features,
            threads=threads,
            progress=progress,
            intervals=intervals,
            checkpoint=checkpoint,
        )
        return
    began = time.perf_counter()
    work = model.with_features(**features) if features else model
    log, held_out = _set_apart(log, method)
    build = Builder(work, log, method, start, threads, impossible)
    problem = build.problem()
    if held_out is not None:
        problem.held_out = Builder(work, held_out, method, start, threads, impossible).problem()
    with progress_bar(model.name, progress) as show, using_threads(threads):
        solution = solve(problem, method, show, build.typical, intervals)
    model.features_ = work.features_
    _keep(model, problem, solution, build)
    assert model.report_ is not None
    model.report_.seconds = time.perf_counter() - began


def _set_apart(log: ClickLog, method: Any) -> tuple[ClickLog, ClickLog | None]:
    """The pages to fit, and those that a method wants to be judged by."""
    validation = getattr(method, "validation", None)
    if validation is None:
        return log, None
    if isinstance(validation, ClickLog):
        return log, validation
    return log.split(test=validation, by="session", seed=method.seed)


class Builder:
    """Makes the problem, and deals with pages that the model says cannot happen."""

    def __init__(
        self,
        model: Model,
        log: ClickLog,
        method: Method,
        start: Model | None,
        threads: int | None,
        impossible: Impossible,
    ) -> None:
        self.model, self.log, self.method = model, log, method
        self.start, self.threads, self.policy = start, threads, impossible
        self.n_dropped = self.n_floored = 0
        self.typical: dict[str, dict[str, pl.Series]] = {}

    def problem(self, with_missing: bool = False) -> Problem:
        """The problem; `with_missing` as if some results were not to be looked at."""
        problem = self._make(None)
        counts = self._at_start(problem)
        if not counts.n_impossible:
            return self._make(np.zeros(self.log.n_results, bool)) if with_missing else problem
        states = dict(zip(self.model.forms, problem.begin(None), strict=True))
        if self.policy == "raise":
            refuse(self.model, self.log, states, self.threads)
        missing, sessions = find_impossible(self.model, self.log, states, self.threads)
        if self.policy == "drop":
            self.n_dropped = self.log.n_sources(sessions)
            self.log = self.log.take(~sessions)
            if not self.log.n_results:
                raise NothingLeftError(
                    f"All {self.n_dropped:,} sessions are impossible under {self.model.name}: "
                    "nothing is left to fit."
                )
            return self._make(None)
        weight = self.log.weight[self.log.page[missing]]
        self.n_floored = round(float(weight.sum())) if self.log.is_folded else len(weight)
        return self._make(missing)

    def _at_start(self, problem: Problem) -> Counts:
        # Zeros and ones come from structure and fixed values, never from a random start.
        return problem.expectation.run(problem.weights(problem.begin(None)))

    def _make(self, missing: NDArray[np.bool_] | None) -> Problem:
        model, augmentation = self.model, self.method.augmentation
        with_missing = missing is not None
        encoded = model.encode(
            self.log,
            "e_step",
            augmentation,  # type: ignore[arg-type]
            with_missing,
            missing=missing,
        )
        library = model.library(encoded.plan, counting=True)
        expectation = Expectation(encoded, library, augmentation, with_missing, self.threads)
        coins = [
            Coin(name, form, rows)
            for (name, form), rows in zip(model.forms.items(), encoded.rows, strict=True)
        ]
        self.typical = _typical(model, encoded)
        begin = None if self.start is None else self.begin(coins)
        constant = 0.0
        if missing is not None:
            constant = float(np.log(FLOOR) * self.log.weight[self.log.page[missing]].sum())
        return Problem(
            coins,
            expectation,
            float(self.log.weight.sum()),
            has_exchangeable_states(model.structure.traced),
            constant,
            begin,
        )

    def begin(self, coins: list[Coin]) -> list[Any]:
        """Start at another model's probabilities, row by row."""
        by_form: dict[int, Any] = {}
        begin = []
        for coin in coins:
            is_shared = bool(coin.form.columns)
            if not (is_shared and id(coin.form) in by_form):
                by_form[id(coin.form)] = self._begin_coin(coin)
            begin.append(by_form[id(coin.form)])
        return begin

    def _begin_coin(self, coin: Coin) -> Any:
        assert self.start is not None
        others = self.start.states(whole=False)
        state = coin.form.begin(coin.rows, None)
        if coin.name not in others:
            return state
        other, form = self.start.forms[coin.name], coin.form
        if form.columns and type(other) is type(form) and other.columns == form.columns:
            adopted = form.adopted(others[coin.name], coin.rows)
            if adopted is not None:
                return adopted
        known = np.asarray(other.predict(others[coin.name], coin.rows), dtype=float)
        return form.starting_at(state, coin.rows, known)


def _typical(model: Model, encoded: EncodedLog) -> dict[str, dict[str, pl.Series]]:
    """What the learned priors of rows depend on, by coin; and how often they were shown, without
    which that of two logs cannot be joined."""
    found: dict[str, dict[str, pl.Series]] = {}
    known: dict[Any, dict[str, pl.Series]] = {}  # coins by the same key have the same rows
    for number, (coin, form) in enumerate(model.forms.items()):
        rows = encoded.rows[number]
        prior = form.learned_prior(rows.keys)
        names = () if prior is None else prior.typical(rows.keys)
        if EXPOSURE in names:
            names = (*names, PAGES)
        if names and IMPRESSIONS not in names:
            names = (*names, IMPRESSIONS)
        if names:
            same = (encoded.plan.coins[number].codes, names)
            if same not in known:
                known[same] = row_averages(encoded, coin, number, rows.keys, names)
            found[coin] = known[same]
    return found


def _keep(model: Model, problem: Problem, solution: Solution, build: Builder) -> None:
    best = solution.best
    names = list(model.forms)
    model.states_ = dict(zip(names, best.states, strict=True))
    model.report_ = FitReport(
        history=solution.history,
        converged=solution.converged,
        interrupted=solution.interrupted,
        n_sessions=build.log.n_sessions,
        total_weight=problem.n_pages,
        n_dropped=build.n_dropped,
        n_floored=build.n_floored,
        n_evaluations=solution.n_evaluations,
        objective=best.objective,
        log_likelihood=best.log_likelihood,
        counts=dict(zip(names, best.counts.tables, strict=True)),
    )

    for tie in problem.ties:
        shared = [names[number] for number in tie]
        which = f"The coin '{shared[0]}'"
        if len(shared) > 1:
            which = "The coins " + " and ".join(f"'{name}'" for name in shared)
        tails, heads = problem.counts(tie, best)
        for remark in model.forms[shared[0]].remarks(best.states[tie[0]], heads, tails):
            tell(f"{which}: {remark}.", GecasmoWarning)
