"""A fit over parts, as the same kind of problem that a method solves in memory.

Local coins live with the parts, and are known here by the name of a point. Shared coins are a
problem of their own, with rows in memory, which lacks nothing but an E-step.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.expectation import Counts
from gecasmo.estimation.parts.running import Parts
from gecasmo.estimation.parts.tasks import Answer, Recipe, Task
from gecasmo.estimation.problem import Coin, Evaluation, Moves, Problem
from gecasmo.estimation.steps import Lengths
from gecasmo.forms import FormState
from gecasmo.forms.priors import Priors

Floats = NDArray[np.float64]
Prior = Priors | tuple[float, float]


class PointName:
    """The name of a point that parts keep for as long as somebody holds this."""

    def __init__(self, name: str, forgotten: list[str]) -> None:
        self.name = name
        weakref.finalize(self, forgotten.append, name)


@dataclass(frozen=True)
class PartedStates:
    """States of all coins: those of shared coins, and a recipe for local ones."""

    recipe: Recipe
    needs: tuple[PointName, ...]  # the points of the recipe, so that they are kept
    shared: list[FormState]
    priors: Mapping[int, Prior]


@dataclass(frozen=True)
class PartedEvaluation:
    """States with everything that one pass says about them."""

    states: PartedStates
    point: PointName
    driver: Evaluation  # of the shared coins alone
    answer: Answer
    objective: float
    log_likelihood: float

    @property
    def is_possible(self) -> bool:
        return self.answer.n_impossible == 0


@dataclass(frozen=True)
class PartedMove:
    """How all coins moved in two EM steps."""

    start: PartedEvaluation
    once: PartedEvaluation
    twice: PartedStates
    driver: Moves
    lengths: Lengths


@dataclass
class PartedProblem:
    """What a method of estimation works on when the log is in parts.

    Parameters
    ----------
    parts : who runs passes
    coins : all coins; those that are local have no rows here
    local : numbers of the local coins
    n_pages : total weight of the pages
    is_exchangeable : whether equal starts would never separate states
    priors : what local coins begin with
    """

    parts: Parts
    coins: Sequence[Coin]
    local: Sequence[int]
    n_pages: float
    is_exchangeable: bool
    priors: Mapping[int, Prior]
    given_start: Any = None
    held_out: None = None
    _forgotten: list[str] = field(default_factory=list)
    _n_points: int = 0

    def __post_init__(self) -> None:
        self.shared = [n for n in range(len(self.coins)) if n not in set(self.local)]
        no_e_step: Any = None
        self.driver = Problem(
            [self.coins[n] for n in self.shared], no_e_step, self.n_pages, self.is_exchangeable
        )

    def begin(self, generator: np.random.Generator | None) -> PartedStates:
        """States to start from; random ones if a generator is given."""
        if self.given_start is not None:
            given: PartedStates = self.given_start
            return given
        seed = None
        if generator is not None:
            sequence: Any = generator.bit_generator.seed_seq
            seed = (sequence.entropy, *sequence.spawn_key)
        shared = self._begin_shared(generator)
        return PartedStates(Recipe("begin", seed=seed), (), shared, dict(self.priors))

    def _begin_shared(self, generator: np.random.Generator | None) -> list[FormState]:
        """Draws of the streams that these coins would have among all coins."""
        if self.driver.given_start is not None or generator is None:
            return self.driver.begin(None)
        everything = Problem(self.coins, self.driver.expectation, self.n_pages, False)
        states = everything.begin(generator)
        return [states[n] for n in self.shared]

    def evaluate(
        self, states: PartedStates, ahead: bool = False, **options: Any
    ) -> PartedEvaluation:
        """Run one pass at these states; `options` say what else parts are to do."""
        point = PointName(f"p{self._n_points}", self._forgotten)
        self._n_points += 1
        answer = self.run(states, point.name, ahead=ahead, **options)
        tables = [answer.counts[number].table for number in self.shared]
        log_likelihood = -math.inf if answer.n_impossible else answer.log_likelihood
        penalty = self.driver.penalty(states.shared)
        counts = Counts(tables, answer.log_likelihood, answer.n_impossible)
        objective = log_likelihood + answer.penalty + penalty
        return PartedEvaluation(
            replace(states, recipe=Recipe("same", of=point.name), needs=(point,)),
            point,
            Evaluation(states.shared, counts, objective, log_likelihood),
            answer,
            objective,
            log_likelihood,
        )

    def run(self, states: PartedStates, name: str = "", **options: Any) -> Answer:
        """Let the parts do something at these states."""
        forget = tuple(self._forgotten)
        answer = self.parts.run(self.task(states, name, forget=forget, **options))
        del self._forgotten[: len(forget)]
        return answer

    def task(self, states: PartedStates, name: str = "", **options: Any) -> Task:
        """A task at these states."""
        weights = self.driver.weights(states.shared)
        shared = dict(zip(self.shared, weights, strict=True))
        return Task(states.recipe, name, shared, states.priors, **options)

    def maximise(self, at: PartedEvaluation) -> PartedStates:
        """The M-step. That of local coins has been made where they are."""
        return PartedStates(
            Recipe("next", of=at.point.name),
            (at.point,),
            self.driver.maximise(at.driver),
            at.states.priors,
        )

    def distance(self, a: PartedEvaluation, b: PartedEvaluation) -> float:
        """How far the probabilities moved from `a` to `b`, in the Fisher norm per page."""
        shared = self.driver.distance(a.driver, b.driver) ** 2
        return math.sqrt(b.answer.squared_distance / max(self.n_pages, 1.0) + shared)

    def move(
        self, start: PartedEvaluation, once: PartedEvaluation, twice: PartedStates
    ) -> PartedMove:
        """How coins moved in two EM steps."""
        driver = self.driver.move(start.driver, once.driver, twice.shared)
        local = once.answer.lengths
        lengths = Lengths(local.step + driver.lengths.step, local.bend + driver.lengths.bend)
        return PartedMove(start, once, twice, driver, lengths)

    def extrapolated(self, move: PartedMove, length: float) -> PartedStates:
        """Where moves lead when they are gone on with."""
        start, once = move.start.point, move.once.point
        return PartedStates(
            Recipe("beyond", of=once.name, start=start.name, length=length),
            (start, once),
            self.driver.extrapolated(move.driver, length),
            move.twice.priors,
        )

    # -- forms that cannot be moved -----------------------------------------------------------
    @property
    def has_opaque(self) -> bool:
        """Whether some forms are fitted by other means, which may miss their optimum."""
        return self.driver.has_opaque

    @property
    def is_all_opaque(self) -> bool:
        return not any(coin.form.has_vector for coin in self.coins)

    def without_opaque(self, states: PartedStates, start: PartedEvaluation) -> PartedStates:
        """These states, with forms that are fitted by other means left as they were."""
        return replace(states, shared=self.driver.without_opaque(states.shared, start.driver))
