"""SQUAREM: from two EM steps, guess where they are heading (Varadhan and Roland 2008).

Works on logits; the step length is measured in the Fisher norm, so a row counts by how often it
is flipped. Rows at exactly 0 or 1 are left where EM put them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.problem import Evaluation, Problem, is_vector
from gecasmo.forms import FormState

Floats = NDArray[np.float64]


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
        movable = [n for n, coin in enumerate(problem.coins) if is_vector(coin.form)]
        moves = {n: self._move(n, start, once, twice) for n in movable}
        step = sum(float((w * r * r).sum()) for w, r, _, _ in moves.values())
        bend = sum(float((w * v * v).sum()) for w, _, v, _ in moves.values())
        if not bend > 0 or not step > 0:
            return None
        self._used = min(np.sqrt(step / bend), self.longest)
        if self._used <= 1:
            return None
        guessed = list(twice)
        for n in movable:
            _, r, v, first = moves[n]
            form = problem.coins[n].form
            beyond = first + 2 * self._used * r + self._used**2 * v
            settled = ~np.isfinite(beyond)
            if settled.any():
                beyond[settled] = form.vector(twice[n])[settled]  # type: ignore[attr-defined]
            guessed[n] = form.from_vector(twice[n], beyond)  # type: ignore[attr-defined]
        return guessed

    def learn(self, accepted: bool) -> None:
        if accepted and self._used == self.longest:
            self.longest *= 4
        elif not accepted:
            # Halved where growth is fourfold: long steps are worth a failure now and then.
            self.longest = max(2.0, self.longest / 2)

    def _move(
        self, n: int, start: Evaluation, once: Evaluation, twice: list[FormState]
    ) -> tuple[Floats, Floats, Floats, Floats]:
        """Fisher weights, first difference, second difference, and where it began."""
        coin = self.problem.coins[n]
        form = coin.form
        a, b, c = (
            form.vector(states[n])  # type: ignore[attr-defined]
            for states in (start.states, once.states, twice)
        )
        if not len(a):
            return a, a, a, a
        probability = form.predict(once.states[n], coin.rows)
        flips = once.counts.tables[n].sum(axis=0)
        with np.errstate(invalid="ignore"):
            first, second = b - a, (c - b) - (b - a)
        usable = np.isfinite(first) & np.isfinite(second)
        weight = np.where(usable, flips * probability * (1 - probability), 0.0)
        if not usable.all():
            first, second = np.where(usable, first, 0.0), np.where(usable, second, 0.0)
            a = np.where(usable, a, np.inf)  # an infinity marks rows to leave alone
        return weight, first, second, a
