"""A fit without its model: coins with forms and rows, and an E-step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.estimation.expectation import Counts, Expectation
from gecasmo.forms import Form, FormState

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Coin:
    """One coin of the problem."""

    name: str
    form: Form
    rows: Rows


@dataclass(frozen=True)
class Evaluation:
    """States with everything that one E-step says about them."""

    states: list[FormState]
    counts: Counts
    objective: float
    log_likelihood: float

    @property
    def is_possible(self) -> bool:
        return self.counts.n_impossible == 0


class Problem:
    """What a method of estimation works on; it never learns which model this is."""

    def __init__(
        self,
        coins: Sequence[Coin],
        expectation: Expectation,
        n_pages: float,
        is_exchangeable: bool,
        constant: float = 0.0,
        begin: list[FormState] | None = None,
    ) -> None:
        self.coins = list(coins)
        self.expectation = expectation
        self.n_pages = n_pages
        self.is_exchangeable = is_exchangeable
        self.constant = constant  # log-likelihood of observations that were floored
        self.given_start = begin

    def begin(self, generator: np.random.Generator | None) -> list[FormState]:
        """States to start from; random ones if a generator is given."""
        if self.given_start is not None:
            return list(self.given_start)
        return [coin.form.begin(coin.rows, generator) for coin in self.coins]

    def evaluate(self, states: list[FormState]) -> Evaluation:
        """Run the E-step at these states."""
        counts = self.expectation.run(self.weights(states))
        log_likelihood = counts.log_likelihood + self.constant
        if counts.n_impossible:
            log_likelihood = -np.inf
        penalty = sum(
            coin.form.penalty(state) for coin, state in zip(self.coins, states, strict=True)
        )
        return Evaluation(states, counts, log_likelihood + penalty, log_likelihood)

    def weights(self, states: list[FormState]) -> list[Floats]:
        """Two weights per row: tails, heads."""
        return [
            as_weights(coin.form.predict(state, coin.rows))
            for coin, state in zip(self.coins, states, strict=True)
        ]

    def maximise(self, at: Evaluation) -> list[FormState]:
        """The M-step: each form gets the expected heads and tails of its own rows."""
        return [
            coin.form.fit(coin.rows, at.counts.heads(number), at.counts.tails(number), state)
            for number, (coin, state) in enumerate(zip(self.coins, at.states, strict=True))
        ]

    def distance(self, a: Evaluation, b: list[FormState]) -> float:
        """How far the probabilities moved, in the Fisher norm per page.

        A row counts by how often it is flipped: moving a row by one standard error of what is
        known about it has length one.
        """
        total = 0.0
        for number, coin in enumerate(self.coins):
            before = coin.form.predict(a.states[number], coin.rows)
            after = coin.form.predict(b[number], coin.rows)
            flips = a.counts.tables[number].sum(axis=0)
            spread = np.maximum(before * (1 - before), 1e-12)
            total += float((flips * (after - before) ** 2 / spread).sum())
        return float(np.sqrt(total / max(self.n_pages, 1.0)))


def as_weights(probability: Floats) -> Floats:
    """The weights of a coin, `[side, row]`: a side is read on its own more often than with the
    other, so each stands together."""
    weights = np.empty((2, len(probability)))
    weights[1] = probability
    np.subtract(1.0, probability, out=weights[0])
    return weights


def is_vector(form: Any) -> bool:
    """Whether acceleration can move this form."""
    return hasattr(form, "vector") and hasattr(form, "from_vector")
