"""SQUAREM: from two EM steps, guess where they are heading (Varadhan and Roland 2008).

Works on the vectors of forms, in which logits are linear; the step length is measured in the
Fisher norm of the logits, so a row counts by how often it is flipped. Rows at exactly 0 or 1 are
left where EM put them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.problem import Evaluation, Problem, is_vector
from gecasmo.forms import FormState

Floats = NDArray[np.float64]


class _Move(NamedTuple):
    """How one form moved: where its vector began, first and second difference, and their squared
    lengths in the Fisher norm."""

    origin: Floats
    first: Floats
    second: Floats
    step: float
    bend: float


class Extrapolation:
    """Keeps the longest step allowed, which grows with success and shrinks with failure."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.longest = 4.0
        self._used = 1.0

    def guess(
        self, start: Evaluation, once: Evaluation, twice: list[FormState]
    ) -> list[FormState] | None:
        """States beyond two EM steps, or None where there is nothing to gain."""
        problem = self.problem
        movable = [tie for tie in problem.ties if is_vector(problem.coins[tie[0]].form)]
        moves = {tie: self._move(tie, start, once, twice) for tie in movable}
        step = sum(move.step for move in moves.values())
        bend = sum(move.bend for move in moves.values())
        if not bend > 0 or not step > 0:
            return None
        self._used = min(np.sqrt(step / bend), self.longest)
        if self._used <= 1:
            return None
        guessed = list(twice)
        for tie, move in moves.items():
            form = problem.coins[tie[0]].form
            beyond = move.origin + 2 * self._used * move.first + self._used**2 * move.second
            settled = ~np.isfinite(beyond)
            if settled.any():
                beyond[settled] = form.vector(twice[tie[0]])[settled]  # type: ignore[attr-defined]
            state = form.from_vector(twice[tie[0]], beyond)  # type: ignore[attr-defined]
            for n in tie:
                guessed[n] = state
        return guessed

    def learn(self, accepted: bool) -> None:
        if accepted and self._used == self.longest:
            self.longest *= 4
        elif not accepted:
            # Halved where growth is fourfold: long steps are worth a failure now and then.
            self.longest = max(2.0, self.longest / 2)

    def _move(
        self, tie: tuple[int, ...], start: Evaluation, once: Evaluation, twice: list[FormState]
    ) -> _Move:
        coin = self.problem.coins[tie[0]]
        form: Any = coin.form
        three = [states[tie[0]] for states in (start.states, once.states, twice)]
        a, b, c = (form.vector(state) for state in three)
        if not len(a):
            return _Move(a, a, a, 0.0, 0.0)
        first, second, usable = _differences(a, b, c)
        origin = a if usable.all() else np.where(usable, a, np.inf)  # infinity: leave it alone
        flips = self.problem.counts(tie, once).sum(axis=0)
        probability = form.predict(three[1], coin.rows)
        weight = flips * probability * (1 - probability)
        moved, bent = first, second
        if hasattr(form, "logits"):
            moved, bent, finite = _differences(*(form.logits(s, coin.rows) for s in three))
            weight = np.where(finite, weight, 0.0)
        else:
            weight = np.where(usable, weight, 0.0)
        step, bend = float((weight * moved * moved).sum()), float((weight * bent * bent).sum())
        return _Move(origin, first, second, step, bend)


def _differences(a: Floats, b: Floats, c: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """First and second difference, zero where one of them is not finite."""
    with np.errstate(invalid="ignore"):
        first, second = b - a, (c - b) - (b - a)
    usable = np.isfinite(first) & np.isfinite(second)
    if not usable.all():
        first, second = np.where(usable, first, 0.0), np.where(usable, second, 0.0)
    return first, second, usable
