"""What a method of estimation climbs: coins, and the parts of a log that say how good they are.

Coins whose rows all parts may have are global: their states are here. Rows of local coins live with
the one part that has them, and are known here by the name of a point. In memory there is one part,
and all rows are here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from gecasmo.estimation.coins import Coin, Coins, Evaluated, Lengths, Moves, States
from gecasmo.estimation.expectation import Counts
from gecasmo.estimation.part import Part, Points
from gecasmo.estimation.passes import run_pass
from gecasmo.estimation.tasks import Answer, PointName, Prior, Recipe, RowsOfParts, Task, combined
from gecasmo.forms import FormState


class Parts(Protocol):
    """The parts of a log, wherever they are.

    A pass happens as a whole or not at all: afterwards every part has the new point, and those to
    be forgotten may be gone.
    """

    @property
    def n_parts(self) -> int:
        """How many there are."""

    def run(self, task: Task) -> Answer:
        """Run one pass, and add up the answers in the order of the parts."""


class MemoryParts:
    """A log in memory: one part."""

    def __init__(self, part: Part, points: Points | None = None) -> None:
        self.whole = part
        self.points: Points = dict(points or {})
        self.n_parts, self.numbers = 1, (part.number,)

    def run(self, task: Task) -> Answer:
        """Run one pass."""
        self.points, answer = run_pass(self.whole, self.points, task)
        return combined([answer])

    def part(self, number: int) -> Part:
        """The one part there is."""
        return self.whole


class Problem(Coins):
    """What a method of estimation works on; it never learns which model this is.

    Parameters
    ----------
    parts : who runs passes over the pages
    coins : all coins; those that are local have no rows here
    n_pages : total weight of the pages
    is_exchangeable : whether equal starts would never separate states
    local : numbers of the coins whose rows live with the parts
    priors : what these begin with
    begin : where forms begin, if that is given; local ones know it themselves
    """

    def __init__(
        self,
        parts: Parts,
        coins: Sequence[Coin],
        n_pages: float,
        is_exchangeable: bool,
        local: Collection[int] = (),
        priors: Mapping[int, Prior] | None = None,
        begin: Sequence[Any] | None = None,
    ) -> None:
        super().__init__(coins, local)
        self.parts: Any = parts
        self.n_pages, self.is_exchangeable = n_pages, is_exchangeable
        self.local, self.priors = tuple(local), dict(priors or {})
        self.given_start = None if begin is None else States(list(begin), self._begin_rows(None))
        self.held_out: Part | None = None  # pages that only judge
        self._forgotten: list[str] = []
        self._n_points = 0

    @classmethod
    def of(cls, part: Part, is_exchangeable: bool, begin: Sequence[Any] | None = None) -> Problem:
        """The problem of a log that is one part, in memory."""
        parts = MemoryParts(part)
        return cls(parts, part.coins, part.n_pages, is_exchangeable, begin=begin)

    # -- where to begin ------------------------------------------------------------------------
    def begin(self, generator: np.random.Generator | None) -> States:
        """States to start from; random ones if a generator is given."""
        if self.given_start is not None:
            return self.given_start
        return States(self.begun(generator), self._begin_rows(generator))

    def _begin_rows(self, generator: np.random.Generator | None) -> RowsOfParts | None:
        if not self.local:
            return None
        seed = None
        if generator is not None:
            sequence: Any = generator.bit_generator.seed_seq
            seed = (sequence.entropy, *sequence.spawn_key)
        return RowsOfParts(Recipe("begin", seed=seed), (), dict(self.priors))

    # -- passes --------------------------------------------------------------------------------
    def evaluate(
        self, states: Sequence[FormState], ahead: bool = False, **options: Any
    ) -> Evaluated:
        """Run one pass at these states; `options` say what else parts are to do.

        `ahead` says that an EM step from here will be measured.
        """
        states = states if isinstance(states, States) else States(list(states))
        point = None
        if self.local:
            point = PointName(f"p{self._n_points}", self._forgotten)
            self._n_points += 1
        answer = self.run(states, point.name if point else "", ahead=ahead, **options)
        if point is not None:
            assert states.rows is not None
            at = replace(states.rows, recipe=Recipe("same", of=point.name), needs=(point,))
            states = replace(states, rows=at)
        tables = [np.zeros((2, 0))] * len(self.coins)
        for number, own in answer.counts.items():
            tables[number] = own.table
        counts = Counts(tables, answer.log_likelihood, answer.n_impossible)
        log_likelihood = -math.inf
        if not answer.n_impossible:
            log_likelihood = answer.log_likelihood + self.left_out(states, counts)
        return Evaluated(
            states,
            counts,
            log_likelihood + (answer.penalty + self.penalty(states)),
            log_likelihood,
            answer,
        )

    def run(self, states: States, name: str = "", **options: Any) -> Answer:
        """Let the parts do something at these states."""
        forget = tuple(self._forgotten)
        answer: Answer = self.parts.run(self.task(states, name, forget=forget, **options))
        del self._forgotten[: len(forget)]
        return answer

    def task(self, states: States, name: str = "", **options: Any) -> Task:
        """A task at these states."""
        rows = states.rows or _NOWHERE
        weights = self.weights(states)
        shared = {number: weights[number] for number in self.numbers}
        return Task(rows.recipe, name, shared, rows.priors, **options)

    # -- EM steps and their extrapolation ------------------------------------------------------
    def maximise(self, at: Evaluated) -> States:
        """The M-step. That of local coins has been made where they are."""
        rows = at.states.rows
        if rows is not None:
            rows = replace(rows, recipe=Recipe("next", of=rows.recipe.of))
        return States(self.fitted(at), rows)

    def distance(self, a: Evaluated, b: Evaluated) -> float:
        """How far the probabilities moved from `a` to `b`, in the Fisher norm per page."""
        assert b.answer is not None
        total = self.squared_distance(a, b) + b.answer.squared_distance
        return math.sqrt(total / max(self.n_pages, 1.0))

    def move(self, start: Evaluated, once: Evaluated, twice: States) -> Moves:
        """How coins moved in two EM steps."""
        assert once.answer is not None
        here, there = self.moves(start, once, twice), once.answer.lengths
        lengths = Lengths(here.lengths.step + there.step, here.lengths.bend + there.bend)
        return replace(here, lengths=lengths)

    def extrapolated(self, move: Moves, length: float) -> States:
        """Where moves lead when they are followed further."""
        rows, start = move.once.states.rows, move.start.states.rows
        if rows is not None and start is not None:
            recipe = Recipe("beyond", rows.recipe.of, start.recipe.of, length)
            rows = replace(rows, recipe=recipe, needs=(*start.needs, *rows.needs))
        return States(self.followed(move, length), rows)

    # -- forms that cannot be moved ------------------------------------------------------------
    @property
    def _opaque(self) -> list[int]:
        return [n for n in self.numbers if not self.coins[n].form.has_vector]

    @property
    def has_opaque(self) -> bool:
        """Whether some forms are fitted by other means, which may miss their optimum."""
        return bool(self._opaque)

    @property
    def is_all_opaque(self) -> bool:
        """Whether no coin has a vector that acceleration could extrapolate."""
        return len(self._opaque) == len(self.coins)

    def without_opaque(self, states: States, start: Evaluated) -> States:
        """These states, with forms that are fitted by other means left as they were."""
        kept = list(states)
        for number in self._opaque:
            kept[number] = start.states[number]
        return replace(states, forms=kept)


_NOWHERE = RowsOfParts(Recipe("begin"), (), {})
