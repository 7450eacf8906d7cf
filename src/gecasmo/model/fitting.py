"""Put a problem together from a model and a log, solve it, and keep the answer in the model."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.compiler.symmetry import has_exchangeable_states
from gecasmo.errors import ClickLogError, GecasmoWarning, ImpossibleSessionError, ModelError
from gecasmo.estimation import EM, Coin, Counts, Expectation, Problem, Record, Solution
from gecasmo.logs import ClickLog
from gecasmo.model.impossible import FLOOR, find_impossible, refuse

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


def fit_model(
    model: Model,
    log: ClickLog,
    method: EM | None,
    start: Model | None,
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
    build = _Builder(model, log, method, start, threads, impossible)
    problem = build.problem()
    with _bar(model.name, progress) as show:
        solution = method.solve(problem, show)
    _keep(model, problem, solution, build)


class _Builder:
    """Makes the problem, and deals with pages that the model says cannot happen."""

    def __init__(
        self,
        model: Model,
        log: ClickLog,
        method: EM,
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
        from gecasmo.forms import Table, TableState

        assert self.start is not None
        other = self.start.states()
        begin = []
        for coin in coins:
            state = coin.form.begin(coin.rows, None)
            if coin.name in other and isinstance(coin.form, Table):
                form = self.start.forms[coin.name]
                known = form.predict(other[coin.name], coin.rows)
                keep = state.is_fixed
                values = known if keep is None else np.where(keep, state.probability, known)
                state = TableState(coin.rows, values.astype(float), coin.form.otherwise, keep)
            begin.append(state)
        return begin


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

    for number, (name, form) in enumerate(model.forms.items()):
        heads, tails = best.counts.heads(number), best.counts.tails(number)
        remarks = getattr(form, "remarks", None)  # forms of other people need not have any
        for remark in remarks(best.states[number], heads, tails) if remarks else ():
            warnings.warn(f"The coin '{name}': {remark}.", GecasmoWarning, stacklevel=4)


class _bar:
    """A progress bar, if one is wanted."""

    def __init__(self, name: str, wanted: bool | None) -> None:
        import sys

        self.name = name
        self.wanted = sys.stderr.isatty() if wanted is None else wanted

    def __enter__(self) -> Any:
        if not self.wanted:
            return None
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("iteration {task.completed}/{task.total}"),
            TextColumn("objective per page {task.fields[objective]:.6f}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self.bar.start()
        task = self.bar.add_task(f"Fitting {self.name}", total=None, objective=float("nan"))

        def show(iteration: int, most: int, objective: float) -> None:
            self.bar.update(task, completed=iteration, total=most, objective=objective)

        return show

    def __exit__(self, *_: object) -> None:
        if self.wanted:
            self.bar.stop()
