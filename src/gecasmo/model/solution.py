"""Solve a problem, round after round while forms find better priors, and sum up what is known.

The progress bar that shows how it goes is here as well.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from threadpoolctl import threadpool_limits

from gecasmo.errors import ConvergenceWarning, GecasmoWarning, either, tell, without
from gecasmo.estimation import EM, Problem, Solution
from gecasmo.estimation.coins import Evaluated, States
from gecasmo.estimation.posteriors.learner import Posteriors
from gecasmo.estimation.variational import check_conjugate
from gecasmo.report import bar

# Rounds in which forms may find a better prior.
MOST_ROUNDS = 20
# Until priors have settled there is no point in more precise answers than this.
_ROUGH = 1e-4
# So often priors of tables are learned beside forms that only EM can move.
_LEARNED = 2


def solve(
    problem: Problem,
    method: Any,
    show: Any,
    posteriors: Posteriors | None,
    intervals: bool = True,
) -> Solution:
    """Solve; and solve again for as long as forms find a better prior for themselves.

    A prior is fixed while the objective climbs, so every round is monotone by itself. `posteriors`
    is what can be learned about rows; without it the method has the last word.
    """
    # Small matrices, many of them: threads of the library for these would only wait for each other,
    # and the order in which they add up decides the last bits.
    with threadpool_limits(1, "blas"):
        return _solve(problem, method, show, posteriors, intervals)


def _solve(
    problem: Problem, method: Any, show: Any, posteriors: Posteriors | None, intervals: bool
) -> Solution:
    if getattr(method, "is_bayes", False):
        return _believe(problem, method, show, posteriors)
    if posteriors is None:
        tell_untuned(problem, method)
        found: Solution = method.solve(problem, show)
        return found
    is_em = isinstance(method, EM)
    learns = is_em and posteriors.learns
    solution = _Rounds(problem, method, show, posteriors, learns).run()
    if solution.interrupted:
        return solution
    if not solution.converged:
        tell_untuned(problem, method)
    # Who asks for a number of steps, or is judged by other pages, gets just what he asked for.
    polish = solution.converged and problem.held_out is None
    best = posteriors.with_errors(solution.best, polish)
    if best.objective > solution.best.objective:
        solution.n_evaluations += 1
        last = solution.history[-1]
        solution.history.append(
            last._replace(objective=best.objective, log_likelihood=best.log_likelihood)
        )
    solution.best = best
    # Who asks for a number of steps gets these and nothing else.
    is_wanted = solution.converged or (is_em and method.tol > 0)
    if is_wanted and not learns:
        try:
            solution.best = best = posteriors.with_beliefs(best)
        except KeyboardInterrupt:
            _interrupted(solution, "how sure rows are was being worked out", method)
            return solution
    if is_em and is_wanted and (intervals or learns):
        try:
            summed_up = posteriors.summed_up(best)
            # Coefficients have moved along with priors, and so have their errors.
            if learns:
                summed_up = posteriors.with_beliefs(posteriors.with_errors(summed_up, False))
            # The objective is what was climbed, the likelihood that of the reported probabilities.
            solution.best = replace(summed_up, objective=best.objective)
        except KeyboardInterrupt:
            _interrupted(solution, "intervals were being computed", method)
    return solution


def _believe(problem: Problem, method: Any, show: Any, posteriors: Posteriors | None) -> Solution:
    """Let a method that tells itself how sure rows are have the last word.

    Priors are learned first, as after EM. Of a log on disk all rows of a coin have one prior, whose
    mean and strength the method finds, if it is asked to.
    """
    if posteriors is None and method.hyper == "fixed":
        tell_untuned(problem, method)
    if posteriors is not None and posteriors.learns:
        check_conjugate(problem, type(method).__name__)
        with without(ConvergenceWarning):
            rough = EM(tol=_ROUGH, augmentation=method.augmentation, seed=method.seed)
            found = rough.solve(problem, show)
        if found.interrupted:
            raise KeyboardInterrupt  # nothing is known of any row yet
        problem.given_start = posteriors.learn(found.best)
    solution: Solution = method.solve(problem, show)
    return solution


def _interrupted(solution: Solution, when: str, method: Any) -> None:
    """Keep what there is."""
    solution.interrupted = True
    if getattr(method, "is_kept", False):
        return  # a fit with a checkpoint is resumed there, of which others tell
    tell(
        f"The fit was interrupted while {when}. The model has the best parameters so far; "
        f"continue with {either('fit(log, start=model)', '--start FIT')}.",
        ConvergenceWarning,
    )


class _Rounds:
    """Climbs, with priors learned in between."""

    def __init__(
        self, problem: Problem, method: Any, show: Any, posteriors: Posteriors, learns: bool
    ) -> None:
        self.problem, self.method, self.show = problem, method, show
        self.posteriors, self.learns = posteriors, learns

    def run(self) -> Solution:
        is_rough = self.learns and 0 < self.method.tol < _ROUGH
        # Of a rough climb nobody wants to hear that it is rough.
        rough = (ConvergenceWarning,) if is_rough else ()
        method = replace(self.method, tol=_ROUGH) if is_rough else self.method
        with without(*rough):
            solution: Solution = method.solve(self.problem, self.show)
        if is_rough and not solution.converged:
            self.method.report(solution, self.problem)
            return solution
        # Rows, priors and global coins go on together afterwards; forms that only EM can move are
        # fitted to priors that were learned before.
        is_held = self.learns and self.posteriors.held(solution.best)
        for number in range(MOST_ROUNDS + 1):
            # A prior can only be judged at the optimum, and who asks for n steps gets n.
            try:
                learns = is_held and number < _LEARNED
                states = self._better(solution.best, learns) if solution.converged else None
            except KeyboardInterrupt:
                _interrupted(solution, "priors were being learned", self.method)
                return solution
            if states is None:
                break
            if number == MOST_ROUNDS:
                tell(
                    f"The priors of forms were still changing after {MOST_ROUNDS} rounds.",
                    ConvergenceWarning,
                )
                break
            with without(*rough):
                solution = self._again(method, states, solution)
        if is_rough and is_held and not solution.interrupted:
            solution = self._again(self.method, solution.best.states, solution)
        return solution

    def _again(self, method: Any, states: States, before: Solution) -> Solution:
        """Go on from other states."""
        self.problem.given_start = states
        following: Solution = method.solve(self.problem, self.show)
        done = before.history[-1]
        following.history = before.history + [
            record._replace(
                iteration=record.iteration + done.iteration,
                seconds=record.seconds + done.seconds,
                round=done.round + 1,
            )
            for record in following.history
        ]
        following.n_evaluations += before.n_evaluations
        return following

    def _better(self, best: Evaluated, learns: bool) -> States | None:
        """The states with better priors, or None if all are content."""
        states = self.posteriors.tuned(best)
        if not learns:
            return states
        if states is not None:
            best = self.problem.evaluate(states)
        return self.posteriors.learn(best)


def tell_untuned(problem: Problem, method: Any) -> None:
    """Say which priors were left as they began, unless the method has said that it did not end."""
    if isinstance(method, EM) and method.tol > 0:
        return
    forms = problem.coins
    spreads = [coin.name for coin in forms if coin.form.learns_prior]
    if spreads and not isinstance(method, EM):
        tell(
            f"The spread of {', '.join(spreads)} was not learned: that needs EM that converges. "
            f"Give Sum(..., spread=...), or fit with EM first and continue with start=.",
            GecasmoWarning,
        )
    tables = [coin.name for coin in forms if coin.form.prior is not None]
    if tables:
        tell(
            f"The prior of {', '.join(tables)} was not learned: that needs EM that converges. "
            "Pseudo-counts (1, 1) were used instead.",
            GecasmoWarning,
        )


class progress_bar:
    """A progress bar, if one is wanted: by default in a terminal and in a notebook.

    `words` are what is done, in which steps, and what is told of each.
    """

    def __init__(
        self,
        name: str,
        wanted: bool | None,
        words: tuple[str, str, str] = ("Fitting", "iteration", "objective per page"),
    ) -> None:
        self.name = name
        self.verb, self.step, self.value = words
        self.is_notebook = "ipykernel" in sys.modules and not sys.stderr.isatty()
        self.wanted = self.is_notebook or sys.stderr.isatty() if wanted is None else wanted
        self.bar: Any = None

    def __enter__(self) -> Any:
        if not self.wanted:
            return None
        if self.is_notebook and find_spec("ipywidgets") is None:
            return self._show_text
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn(f"{self.step} {{task.completed}}/{{task.total}}"),
            TextColumn(f"{self.value} {{task.fields[objective]:.6f}}"),
            TextColumn("{task.fields[words]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self.bar.start()
        words = f"{self.verb} {self.name}"
        task = self.bar.add_task(words, total=None, objective=float("nan"), words="")

        def show(iteration: int, most: int, objective: float, words: str = "") -> None:
            told = {"completed": iteration, "total": most, "objective": objective, "words": words}
            self.bar.update(task, **told)

        return show

    def _show_text(self, iteration: int, most: int, objective: float, words: str = "") -> None:
        """A line that is written again and again, for notebooks that have no widgets."""
        share = bar(iteration / max(most, 1), 20, "utf-8")
        told = f"{self.verb} {self.name} {share} {self.step} {iteration}/{most}"
        sys.stderr.write(f"\r{told}, {self.value} {objective:.6f} {words}")
        sys.stderr.flush()

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()
        elif self.wanted:
            sys.stderr.write("\n")
