"""Put a problem together from a model and a log, solve it, and keep the answer in the model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.compiler.symmetry import has_exchangeable_states
from gecasmo.errors import (
    ClickLogError,
    ConvergenceWarning,
    GecasmoWarning,
    ImpossibleSessionError,
    ModelError,
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
from gecasmo.estimation.information import row_information, with_errors
from gecasmo.estimation.problem import Evaluation
from gecasmo.forms.protocol import columns_of
from gecasmo.kernels.running import using_threads
from gecasmo.logs import ClickLog
from gecasmo.model.impossible import FLOOR, find_impossible, refuse
from gecasmo.model.progress import progress_bar

if TYPE_CHECKING:
    from gecasmo.model.base import Impossible, Model

# Rounds in which forms may find a better prior.
MOST_ROUNDS = 20


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


def fit_model(
    model: Model,
    log: ClickLog,
    method: Method | None,
    start: Model | None,
    features: Mapping[str, Any] | None,
    threads: int | None,
    progress: bool | None,
    impossible: Impossible,
) -> None:
    """Fit `model` in place; it keeps its old fit if anything goes wrong."""
    method = EM() if method is None else method
    if not hasattr(method, "solve") or isinstance(method, type):
        raise ModelError(f"method={method!r}: a method is an object such as EM(max_iter=50).")
    if not isinstance(log, ClickLog):
        raise ClickLogError("fit() takes a ClickLog: gecasmo.read_log(source) makes one.")
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
    work = model.with_features(**features) if features else model
    log, held_out = _set_apart(log, method)
    build = _Builder(work, log, method, start, threads, impossible)
    problem = build.problem()
    if held_out is not None:
        problem.held_out = _Builder(work, held_out, method, start, threads, impossible).problem()
    with progress_bar(model.name, progress) as show, using_threads(threads):
        solution = _solve(problem, method, show)
    model.features_ = work.features_
    _keep(model, problem, solution, build)


def _set_apart(log: ClickLog, method: Any) -> tuple[ClickLog, ClickLog | None]:
    """The pages to fit, and those that a method wants to be judged by."""
    validation = getattr(method, "validation", None)
    if validation is None:
        return log, None
    if isinstance(validation, ClickLog):
        return log, validation
    return log.split(test=validation, by="session", seed=method.seed)


def _solve(problem: Problem, method: Any, show: Any) -> Solution:
    """Solve; and solve again for as long as forms find a better prior for themselves.

    A prior is fixed while the objective climbs, so every round is monotone by itself.
    """
    solution: Solution = method.solve(problem, show)
    for number in range(MOST_ROUNDS + 1):
        # A prior can only be judged at the optimum, and who asks for n steps gets n.
        states = _tuned(problem, solution.best) if solution.converged else None
        if states is None:
            break
        if number == MOST_ROUNDS:
            warnings.warn(
                f"The priors of forms had not settled after {MOST_ROUNDS} rounds.",
                ConvergenceWarning,
                stacklevel=5,
            )
            break
        problem.given_start = states
        following: Solution = method.solve(problem, show)
        done = solution.history[-1]
        # Objectives under different priors are no series: the history is that of the last round.
        following.history = [
            record._replace(
                iteration=record.iteration + done.iteration, seconds=record.seconds + done.seconds
            )
            for record in following.history
        ]
        following.n_evaluations += solution.n_evaluations
        solution = following
    if solution.interrupted:
        return solution
    if not solution.converged:
        _tell_untuned(problem, method)
    # Who asks for a number of steps, or is judged by other pages, gets just what he asked for.
    polish = solution.converged and problem.held_out is None
    best = with_errors(problem, solution.best, polish)
    if best.objective > solution.best.objective:
        solution.n_evaluations += 1
        last = solution.history[-1]
        solution.history.append(
            last._replace(objective=best.objective, log_likelihood=best.log_likelihood)
        )
    solution.best = best
    return solution


def _tell_untuned(problem: Problem, method: Any) -> None:
    """Say which priors were left as they began, if the method itself says nothing."""
    open_forms = [
        problem.coins[tie[0]].name
        for tie in problem.ties
        if getattr(problem.coins[tie[0]].form, "learns_prior", False)
    ]
    if open_forms and not isinstance(method, EM):
        warnings.warn(
            f"The spread of {', '.join(open_forms)} was left as it began: only EM that converges "
            "learns it. Give Sum(..., spread=...), or fit with EM first and go on with start=.",
            GecasmoWarning,
            stacklevel=5,
        )


def _tuned(problem: Problem, best: Evaluation) -> list[Any] | None:
    """The states with better priors, or None if all are content."""
    states = list(best.states)
    is_changed = False
    for tie in problem.ties:
        coin = problem.coins[tie[0]]
        tune = getattr(coin.form, "tuned", None)
        if tune is None:
            continue
        tails, heads = problem.counts(tie, best)
        information = row_information(problem, best, tie)
        state = tune(best.states[tie[0]], coin.rows, heads, tails, information)
        is_changed |= state is not best.states[tie[0]]
        for number in tie:
            states[number] = state
    return states if is_changed else None


class _Builder:
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

    def problem(self) -> Problem:
        problem = self._make(None)
        counts = self._at_start(problem)
        if not counts.n_impossible:
            return problem
        states = dict(zip(self.model.forms, problem.begin(None), strict=True))
        if self.policy == "raise":
            refuse(self.model, self.log, states, self.threads)
        missing, sessions = find_impossible(self.model, self.log, states, self.threads)
        if self.policy == "drop":
            self.n_dropped = int(sessions.sum())
            self.log = self.log.take(~sessions)
            if not self.log.n_results:
                raise ImpossibleSessionError(
                    f"All {self.n_dropped:,} sessions are impossible under {self.model.name}: "
                    "nothing is left to fit."
                )
            return self._make(None)
        self.n_floored = int(missing.sum())
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
        begin = None if self.start is None else self._begin(coins)
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

    def _begin(self, coins: list[Coin]) -> list[Any]:
        """Start at another model's probabilities, row by row."""
        by_form: dict[int, Any] = {}
        begin = []
        for coin in coins:
            is_shared = bool(columns_of(coin.form))
            if not (is_shared and id(coin.form) in by_form):
                by_form[id(coin.form)] = self._begin_coin(coin)
            begin.append(by_form[id(coin.form)])
        return begin

    def _begin_coin(self, coin: Coin) -> Any:
        from gecasmo.forms import Table, TableState

        assert self.start is not None
        others = self.start.states()
        state = coin.form.begin(coin.rows, None)
        if coin.name not in others:
            return state
        other, form = self.start.forms[coin.name], coin.form
        if columns_of(form) and type(other) is type(form) and columns_of(other) == columns_of(form):
            adopted = getattr(form, "adopted", None)
            if adopted is not None:
                return adopted(others[coin.name], coin.rows)
        known = np.asarray(other.predict(others[coin.name], coin.rows), dtype=float)
        if isinstance(form, Table):
            keep = state.is_fixed
            values = known if keep is None else np.where(keep, state.probability, known)
            return TableState(coin.rows, values, form.otherwise, keep)
        # Whatever the form: the closest it comes to those probabilities, if it comes closer.
        near = form.fit(coin.rows, known, 1 - known, state)
        errors = [
            float(np.abs(np.asarray(form.predict(it, coin.rows)) - known).sum())
            for it in (near, state)
        ]
        return near if errors[0] <= errors[1] else state


def _keep(model: Model, problem: Problem, solution: Solution, build: _Builder) -> None:
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
        remarks = getattr(model.forms[shared[0]], "remarks", None)  # other people's may lack it
        for remark in remarks(best.states[tie[0]], heads, tails) if remarks else ():
            warnings.warn(f"{which}: {remark}.", GecasmoWarning, stacklevel=4)
