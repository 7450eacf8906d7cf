"""Expectation-maximisation, accelerated, that never lowers its objective."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from gecasmo.errors import ConvergenceWarning, ModelError, either, option, tell
from gecasmo.estimation.coins import Evaluated, Lengths
from gecasmo.estimation.draws import Draws
from gecasmo.estimation.problem import Problem

DEFAULT_RESTARTS = 5
# A guess may be worse than the last evaluated point by rounding only.
_ROUNDING = 1e-12


class Record(NamedTuple):
    """One line of the history of a fit; objectives of different rounds are under other priors."""

    iteration: int
    objective: float
    log_likelihood: float
    seconds: float
    round: int = 1


@dataclass
class Solution:
    """Where a method ended."""

    best: Evaluated
    history: list[Record]
    converged: bool
    interrupted: bool = False
    stalled: bool = False  # no form could improve any more
    n_evaluations: int = 0
    draws: Draws | None = None  # from the posterior


# Iteration, at most, objective per page; and in words what else there is to say.
Progress = Callable[..., None]


class Method(Protocol):
    """A way to fit; `EM` and `Gradient` are some. It never learns which model it fits.

    A method may also have `validation`, pages to be judged by (a share, or a ClickLog), and then
    `seed`. One that tells itself how sure rows are, such as `VB` and `Gibbs`, has `is_bayes`.
    """

    @property
    def augmentation(self) -> str:
        """Which flips count as hidden data, "minimal" or "full"."""

    def solve(self, problem: Problem, progress: Progress | None = None) -> Solution:
        """Maximise the objective of a problem."""


@dataclass(frozen=True)
class EM:
    """Expectation-maximisation.

    Parameters
    ----------
    max_iter : int
        The most M-steps of one climb. With `tol=0, accelerate=False` exactly so many are made.
        While priors are learned there are several climbs, each from where the last one ended.
    tol : float
        Stop when a plain EM step gains less than this in objective per page and hardly moves the
        parameters either.
    accelerate : bool
        Extrapolate between EM steps (SQUAREM); a guess that would lower the objective is dropped.
    augmentation : "minimal" or "full"
        Which flips count as hidden data: those the likelihood depends on, or all that the program
        makes. The optimum is the same; minimal mostly gets there in fewer steps.
    restarts : int, optional
        Random starts, of which the best end counts. By default 1, and 5 for programs with parts
        that equal starts would never tell apart: mixtures, or two coins between which a third one
        chooses. Which part becomes which is then left to chance, unless forms begin apart, such as
        `Table(start=0.8)` and `Table(start=0.2)`; then one start is enough.
    seed : int
        Seed of the random starts.
    """

    title: ClassVar[str] = "EM"  # what messages call it

    max_iter: int = 500
    tol: float = 1e-6
    accelerate: bool = True
    augmentation: str = "minimal"
    restarts: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        name = self.title
        if self.max_iter != int(self.max_iter) or self.max_iter < 1:
            raise ModelError(
                f"{name}(max_iter={self.max_iter}): a whole number of at least one is needed."
            )
        if not self.tol >= 0:
            raise ModelError(f"{name}(tol={self.tol}) must not be negative.")
        if self.augmentation not in ("minimal", "full"):
            raise ModelError(
                f"{name}(augmentation={self.augmentation!r}): choose 'minimal' or 'full'."
            )
        if self.restarts is not None and self.restarts < 1:
            raise ModelError(f"{name}(restarts={self.restarts}): at least one start is needed.")

    def solve(self, problem: Problem, progress: Progress | None = None) -> Solution:
        """Maximise the objective of a problem."""
        is_given = problem.given_start is not None
        n_starts = self.restarts or (DEFAULT_RESTARTS if problem.is_exchangeable else 1)
        is_random = problem.is_exchangeable or (self.restarts or 1) > 1
        if is_given:
            n_starts, is_random = 1, False
        generators = np.random.default_rng(self.seed).spawn(n_starts)
        best: Solution | None = None
        for generator in generators:
            climb = _Climb(self, problem, progress)
            try:
                solution = climb.run(generator if is_random else None)
            except KeyboardInterrupt:
                if best is None:
                    raise  # not even the start has been looked at: there is nothing to keep
                best.interrupted = True
                break
            if best is None or solution.best.objective > best.best.objective:
                best = solution
            if solution.interrupted:
                best.interrupted = True
                break
        assert best is not None
        self.report(best, problem)
        return best

    def report(self, solution: Solution, problem: Problem) -> None:
        """Warn of an end that is none."""
        if solution.interrupted:
            done = solution.history[-1].iteration
            tell(
                f"{self.title} was interrupted after {done} iterations. The model has the best "
                "parameters so far; "
                f"continue with {either('fit(log, start=model)', '--start FIT')}.",
                ConvergenceWarning,
            )
        elif not (solution.converged or solution.stalled) and self.tol > 0:
            gain = 0.0
            if len(solution.history) > 1:
                last, before = solution.history[-1], solution.history[-2]
                gain = (last.objective - before.objective) / max(problem.n_pages, 1)
            tell(
                f"{self.title} stopped after {option('max_iter', self.max_iter)}; the last step "
                f"still gained {gain:.2g} in objective per page "
                f"({option('tol', self.tol, shown=f'{self.tol:g}')}). "
                f"{either('Continue with fit(log, start=model)', 'Continue with --start FIT')}, "
                f"or raise {either('max_iter', '--max-iter')}.",
                ConvergenceWarning,
            )


@dataclass
class _Climb:
    """One run from one start."""

    method: EM
    problem: Problem
    progress: Progress | None
    history: list[Record] = field(default_factory=list)
    n_steps: int = 0
    n_evaluations: int = 0
    stalled: bool = False

    def run(self, generator: np.random.Generator | None) -> Solution:
        self.began = time.perf_counter()
        self.best = self._evaluate(self.problem.begin(generator))
        self._accept(self.best)
        converged = interrupted = False
        try:
            converged = self._climb()
        except KeyboardInterrupt:
            interrupted = True
        return Solution(
            self.best, self.history, converged, interrupted, self.stalled, self.n_evaluations
        )

    def _climb(self) -> bool:
        step_length = StepLength()
        while self.n_steps < self.method.max_iter:
            start = self.best
            once = self._step(start, self._maximise(start), ahead=self.method.accelerate)
            if once is None:
                return False
            if self._is_settled(start, once):
                return True
            if not self.method.accelerate or self.n_steps >= self.method.max_iter:
                continue
            twice = self._maximise(once)
            move = self.problem.move(start, once, twice)
            length = step_length.choose(move.lengths)
            if length is not None:
                there = self._evaluate(self.problem.extrapolated(move, length))
                accepted = there.is_possible and not self._is_lower(there, once)
                step_length.learn(accepted)
                if accepted:
                    self._accept(there)
                    continue
            if self._step(once, twice) is None:
                return False
        return False

    def _step(self, start: Evaluated, states: Any, *, ahead: bool = False) -> Evaluated | None:
        """Take a plain EM step to `states`; None if nothing can be improved any more."""
        there = self._evaluate(states, ahead)
        if self.problem.has_opaque and self._is_lower(there, start):
            # A form fitted by other means may miss its own optimum: keep what it had.
            there = self._evaluate(self.problem.without_opaque(states, start), ahead)
            if self.problem.is_all_opaque or self._is_lower(there, start):
                tell(
                    "No form could improve the objective any more; the fit stops here.",
                    ConvergenceWarning,
                )
                self.stalled = True
                return None
        self._accept(there)
        return there

    def _maximise(self, at: Evaluated) -> Any:
        self.n_steps += 1
        return self.problem.maximise(at)

    def _evaluate(self, states: Any, ahead: bool = False) -> Evaluated:
        self.n_evaluations += 1
        return self.problem.evaluate(states, ahead)

    def _accept(self, evaluation: Evaluated) -> None:
        self.best = evaluation
        seconds = time.perf_counter() - self.began
        self.history.append(
            Record(self.n_steps, evaluation.objective, evaluation.log_likelihood, seconds)
        )
        if self.progress is not None:
            per_page = evaluation.objective / max(self.problem.n_pages, 1.0)
            self.progress(self.n_steps, self.method.max_iter, per_page)

    def _is_lower(self, a: Evaluated, b: Evaluated) -> bool:
        return bool(a.objective < b.objective - _ROUNDING * abs(b.objective))

    def _is_settled(self, start: Evaluated, once: Evaluated) -> bool:
        tol = self.method.tol
        gain = (once.objective - start.objective) / max(self.problem.n_pages, 1.0)
        if not gain < tol:
            return False
        return self.problem.distance(start, once) < math.sqrt(tol / 10)


class StepLength:
    """How far to follow a move: SQUAREM (Varadhan and Roland 2008).

    From two EM steps it guesses where they are heading. Works on the vectors of forms, in which
    logits are linear; the step length is measured in the Fisher norm of the logits, so a row counts
    by how often it is flipped. The longest allowed grows with success and shrinks with failure.
    """

    def __init__(self) -> None:
        self.longest = 4.0
        self._used = 1.0

    def choose(self, lengths: Lengths) -> float | None:
        """The step length, or None where there is nothing to gain."""
        if not lengths.bend > 0 or not lengths.step > 0:
            return None
        self._used = min(math.sqrt(lengths.step / lengths.bend), self.longest)
        return self._used if self._used > 1 else None

    def learn(self, accepted: bool) -> None:
        """Allow longer steps after the longest one succeeded, and shorter ones after a failure."""
        if accepted and self._used == self.longest:
            self.longest *= 4
        elif not accepted:
            # Halved where growth is fourfold: long steps are worth a failure now and then.
            self.longest = max(2.0, self.longest / 2)
