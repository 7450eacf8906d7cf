"""A fit without its model: coins with forms and rows, and an E-step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError
from gecasmo.estimation.expectation import Counts, Expectation
from gecasmo.forms import Form, FormState
from gecasmo.forms.protocol import columns_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Coin:
    """One coin of the problem."""

    name: str
    form: Form
    rows: Rows

    def predict(self, state: FormState) -> Floats:
        """The probabilities of its rows; what forms of other people answer is looked at."""
        answer = np.asarray(self.form.predict(state, self.rows), dtype=np.float64)
        if type(self.form).__module__.startswith("gecasmo."):
            return answer
        if answer.shape != (len(self.rows),):
            raise ModelError(
                f"The form {self.form!r} of '{self.name}' answers {len(self.rows):,} rows with an "
                f"array of shape {answer.shape}."
            )
        wrong = ~((answer >= 0) & (answer <= 1))
        if wrong.any():
            raise ModelError(
                f"The form {self.form!r} of '{self.name}' answers {int(wrong.sum()):,} rows with "
                f"something that is no probability (first: {answer[wrong][0]:g})."
            )
        return answer


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
        self.ties = _ties(self.coins)
        self.expectation = expectation
        self.n_pages = n_pages
        self.is_exchangeable = is_exchangeable
        self.constant = constant  # log-likelihood of observations that were floored
        self.given_start = begin
        self.held_out: Problem | None = None  # pages that only judge

    def begin(self, generator: np.random.Generator | None) -> list[FormState]:
        """States to start from; random ones if a generator is given."""
        if self.given_start is not None:
            return list(self.given_start)
        firsts = [self.coins[tie[0]] for tie in self.ties]
        return self.shared([coin.form.begin(coin.rows, generator) for coin in firsts])

    def shared(self, by_tie: Sequence[FormState]) -> list[FormState]:
        """One state per coin from one per form."""
        states: list[FormState] = [None] * len(self.coins)
        for tie, state in zip(self.ties, by_tie, strict=True):
            for number in tie:
                states[number] = state
        return states

    def evaluate(self, states: list[FormState]) -> Evaluation:
        """Run the E-step at these states."""
        counts = self.expectation.run(self.weights(states))
        log_likelihood = counts.log_likelihood + self.constant
        if counts.n_impossible:
            log_likelihood = -np.inf
        penalty = sum(self.coins[tie[0]].form.penalty(states[tie[0]]) for tie in self.ties)
        return Evaluation(states, counts, log_likelihood + penalty, log_likelihood)

    def weights(self, states: list[FormState]) -> list[Floats]:
        """Two weights per row: tails, heads."""
        return [
            as_weights(coin.predict(state)) for coin, state in zip(self.coins, states, strict=True)
        ]

    def maximise(self, at: Evaluation) -> list[FormState]:
        """The M-step: each form gets the expected heads and tails of its own rows."""
        return self.shared([self._fit(tie, at) for tie in self.ties])

    def _fit(self, tie: tuple[int, ...], at: Evaluation) -> FormState:
        coin = self.coins[tie[0]]
        tails, heads = self.counts(tie, at)
        return coin.form.fit(coin.rows, heads, tails, at.states[tie[0]])

    def counts(self, tie: tuple[int, ...], at: Evaluation) -> Floats:
        """Expected tails and heads of a form's rows, over all coins that share it."""
        first, *others = tie
        total = at.counts.tables[first]
        for number in others:
            total = total + at.counts.tables[number]
        return total

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


def _ties(coins: Sequence[Coin]) -> list[tuple[int, ...]]:
    """The coins by form. A form with weights has one state, whichever coins it stands behind; a
    table is a way to keep a coin's own rows, so each coin has its own."""
    ties: dict[int, list[int]] = {}
    for number, coin in enumerate(coins):
        is_shared = bool(columns_of(coin.form))
        ties.setdefault(id(coin.form) if is_shared else -number - 1, []).append(number)
    for first, *others in ties.values():
        for other in others:
            if coins[other].rows is not coins[first].rows:
                raise ModelError(
                    f"The coins '{coins[first].name}' and '{coins[other].name}' share a form but "
                    "have rows by different keys; give the form a key=, or each coin its own form."
                )
    return [tuple(numbers) for numbers in ties.values()]
