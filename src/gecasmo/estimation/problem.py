"""A fit without its model: coins with forms and rows, and an E-step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError
from gecasmo.estimation.expectation import Counts, Expectation
from gecasmo.estimation.minibatches import Batch, Batches
from gecasmo.estimation.steps import (
    Lengths,
    Move,
    extrapolated,
    lengths_of,
    move_of,
    squared_distance,
)
from gecasmo.forms import Form, FormState

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
        # A stream for each, so that what one form draws does not depend on the rows of others.
        streams = [None] * len(self.ties) if generator is None else generator.spawn(len(self.ties))
        return self.shared(
            [
                self.coins[tie[0]].form.begin(self.coins[tie[0]].rows, stream)
                for tie, stream in zip(self.ties, streams, strict=True)
            ]
        )

    def shared(self, by_tie: Sequence[FormState]) -> list[FormState]:
        """One state per coin from one per form."""
        states: list[FormState] = [None] * len(self.coins)
        for tie, state in zip(self.ties, by_tie, strict=True):
            for number in tie:
                states[number] = state
        return states

    def evaluate(self, states: list[FormState], ahead: bool = False) -> Evaluation:
        """Run the E-step at these states.

        `ahead` says that an EM step from here will be measured, which is nothing to prepare for
        when everything is at hand.
        """
        counts = self.expectation.run(self.weights(states))
        log_likelihood = counts.log_likelihood + self.constant
        if counts.n_impossible:
            log_likelihood = -np.inf
        return Evaluation(states, counts, log_likelihood + self.penalty(states), log_likelihood)

    def penalty(self, states: list[FormState]) -> float:
        """The logarithm of the priors of all forms."""
        return sum(self.coins[tie[0]].form.penalty(states[tie[0]]) for tie in self.ties)

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

    # -- minibatches ---------------------------------------------------------------------------
    @property
    def max_length(self) -> int:
        """Results of the longest page."""
        return self.expectation.encoded.max_length

    @property
    def encoded_weight(self) -> float:
        """What all pages weigh as they are encoded."""
        return float(self.expectation.encoded.weight.sum())

    def n_minibatches(self, size: int) -> int:
        """How many batches of so many pages there are."""
        return max(1, -(-self.expectation.encoded.n_pages // size))

    def minibatches(self, size: int, generator: np.random.Generator) -> Iterator[Batch]:
        """All pages in batches of about so many, drawn anew."""
        batches = Batches(self.expectation.encoded, size)
        for pages in batches.shuffled(generator):
            yield batches.take(pages)._replace(of=self.expectation)

    # -- acceleration --------------------------------------------------------------------------
    def distance(self, a: Evaluation, b: Evaluation) -> float:
        """How far the probabilities moved from `a` to `b`, in the Fisher norm per page."""
        total = 0.0
        for number, coin in enumerate(self.coins):
            flips = b.counts.tables[number].sum(axis=0)
            total += squared_distance(
                coin.form, coin.rows, a.states[number], b.states[number], flips
            )
        return float(np.sqrt(total / max(self.n_pages, 1.0)))

    def move(self, start: Evaluation, once: Evaluation, twice: list[FormState]) -> Moves:
        """How forms moved in two EM steps."""
        moves = {}
        step = bend = 0.0
        for tie in self.ties:
            coin = self.coins[tie[0]]
            if not coin.form.has_vector:
                continue
            states = (start.states[tie[0]], once.states[tie[0]], twice[tie[0]])
            moves[tie] = move_of(coin.form, states)
            flips = self.counts(tie, once).sum(axis=0)
            lengths = lengths_of(coin.form, coin.rows, states, moves[tie], flips)
            step, bend = step + lengths.step, bend + lengths.bend
        return Moves(twice, moves, Lengths(step, bend))

    def extrapolated(self, move: Moves, length: float) -> list[FormState]:
        """Where the moves of forms lead when they are gone on with."""
        states = list(move.twice)
        for tie, own in move.by_tie.items():
            state = extrapolated(self.coins[tie[0]].form, states[tie[0]], own, length)
            for number in tie:
                states[number] = state
        return states

    # -- forms that cannot be moved -----------------------------------------------------------
    @property
    def _opaque(self) -> list[int]:
        return [n for n, coin in enumerate(self.coins) if not coin.form.has_vector]

    @property
    def has_opaque(self) -> bool:
        """Whether some forms are fitted by other means, which may miss their optimum."""
        return bool(self._opaque)

    @property
    def is_all_opaque(self) -> bool:
        return len(self._opaque) == len(self.coins)

    def without_opaque(self, states: list[FormState], start: Evaluation) -> list[FormState]:
        """These states, with forms that are fitted by other means left as they were."""
        kept = list(states)
        for number in self._opaque:
            kept[number] = start.states[number]
        return kept


@dataclass(frozen=True)
class Moves:
    """How all forms that can be moved did so in two EM steps, which ended in `twice`."""

    twice: list[FormState]
    by_tie: dict[tuple[int, ...], Move]
    lengths: Lengths


def as_weights(probability: Floats) -> Floats:
    """The weights of a coin, `[side, row]`: a side is read on its own more often than with the
    other, so each stands together."""
    weights = np.empty((2, len(probability)))
    weights[1] = probability
    np.subtract(1.0, probability, out=weights[0])
    return weights


def _ties(coins: Sequence[Coin]) -> list[tuple[int, ...]]:
    """The coins by form. A form with weights has one state, whichever coins it stands behind; a
    table is a way to keep a coin's own rows, so each coin has its own."""
    ties: dict[int, list[int]] = {}
    for number, coin in enumerate(coins):
        is_shared = bool(coin.form.columns)
        ties.setdefault(id(coin.form) if is_shared else -number - 1, []).append(number)
    for first, *others in ties.values():
        for other in others:
            if coins[other].rows is not coins[first].rows:
                raise ModelError(
                    f"The coins '{coins[first].name}' and '{coins[other].name}' share a form but "
                    "have rows by different keys; give the form a key=, or each coin its own form."
                )
    return [tuple(numbers) for numbers in ties.values()]
