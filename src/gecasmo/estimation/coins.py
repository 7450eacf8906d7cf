"""The coins of a fit, each with a form and rows, and what every way of fitting does with them.

Nothing here knows where the pages are, or which model this is: only how forms begin, how they are
fitted to expected heads and tails, how far that moved them, and where their moves lead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError
from gecasmo.estimation.expectation import Counts
from gecasmo.forms import Form, FormState
from gecasmo.kernels.static import row_sweeps

if TYPE_CHECKING:
    from gecasmo.estimation.tasks import Answer, RowsOfParts

Floats = NDArray[np.float64]
Tie = tuple[int, ...]  # the numbers of coins that share a form


@dataclass(frozen=True)
class Coin:
    """One coin of a fit."""

    name: str
    form: Form
    rows: Rows

    def predict(self, state: FormState) -> Floats:
        """The probabilities of its rows."""
        return self.form.probabilities(state, self.rows, self.name)

    def weights(self, state: FormState) -> Floats:
        """Two weights per row, tails and heads."""
        own = self.form.weights(state, self.rows)
        return as_weights(self.predict(state)) if own is None else own


@dataclass(frozen=True)
class States(Sequence[FormState]):
    """The states of all forms, by coin.

    A coin whose rows are with the parts of a log has None; `rows` says how parts find them.
    """

    forms: list[FormState]
    rows: RowsOfParts | None = None

    def __len__(self) -> int:
        return len(self.forms)

    @overload
    def __getitem__(self, number: int) -> FormState: ...
    @overload
    def __getitem__(self, number: slice) -> list[FormState]: ...
    def __getitem__(self, number: int | slice) -> Any:
        return self.forms[number]

    def __iter__(self) -> Iterator[FormState]:
        return iter(self.forms)


@dataclass(frozen=True)
class Evaluated:
    """States with everything that one pass over the pages says about them.

    `counts` are those of the coins whose rows are here; `answer` is all that parts have told.
    """

    states: States
    counts: Counts
    objective: float
    log_likelihood: float
    answer: Answer | None = None

    @property
    def is_possible(self) -> bool:
        """Whether no page has probability 0."""
        return self.counts.n_impossible == 0

    def with_forms(self, forms: list[FormState]) -> Evaluated:
        """The same with other states of the forms whose rows are here."""
        return replace(self, states=replace(self.states, forms=forms))


class Lengths(NamedTuple):
    """The squared lengths of the first and the second difference, in the Fisher norm."""

    step: float
    bend: float


NO_LENGTHS = Lengths(0.0, 0.0)


class FormMove(NamedTuple):
    """How one form moved: where its vector began, and its first and second difference."""

    origin: Floats
    first: Floats
    second: Floats


@dataclass(frozen=True)
class Moves:
    """How all forms that can be moved did so in two EM steps, from `start` over `once` to
    `twice`."""

    start: Evaluated
    once: Evaluated
    twice: States
    by_tie: dict[Tie, FormMove]
    lengths: Lengths


class Coins:
    """The coins of a fit. Of those with the numbers `local` the rows are elsewhere."""

    def __init__(self, coins: Sequence[Coin], local: Collection[int] = ()) -> None:
        self.coins = list(coins)
        self._all_ties = _ties(self.coins)
        self.ties = [tie for tie in self._all_ties if tie[0] not in local]
        self.numbers = sorted(number for tie in self.ties for number in tie)

    # -- states ----------------------------------------------------------------------------------
    def begun(self, generator: np.random.Generator | None) -> list[FormState]:
        """Where forms start; somewhere random if a generator is given."""
        # A stream for each, so that what one form draws does not depend on the rows of others.
        n = len(self._all_ties)
        streams = [None] * n if generator is None else generator.spawn(n)
        drawn = dict(zip(self._all_ties, streams, strict=True))
        firsts = [(self.coins[tie[0]], drawn[tie]) for tie in self.ties]
        return self.spread([coin.form.begin(coin.rows, stream) for coin, stream in firsts])

    def spread(self, by_tie: Sequence[FormState]) -> list[FormState]:
        """One state per coin from one per form."""
        states: list[FormState] = [None] * len(self.coins)
        for tie, state in zip(self.ties, by_tie, strict=True):
            for number in tie:
                states[number] = state
        return states

    def penalty(self, states: Sequence[FormState]) -> float:
        """The logarithm of the priors of all forms."""
        return sum(self.coins[tie[0]].form.penalty(states[tie[0]]) for tie in self.ties)

    def weights(self, states: Sequence[FormState]) -> list[Floats]:
        """Two weights per row, tails and heads, by coin; nothing where rows are elsewhere."""
        found = [_NO_WEIGHTS] * len(self.coins)
        for number in self.numbers:
            found[number] = self.coins[number].weights(states[number])
        return found

    # -- the M-step --------------------------------------------------------------------------------
    def fitted(self, at: Evaluated) -> list[FormState]:
        """The M-step: each form gets the expected heads and tails of its own rows."""
        return self.spread([self._fit(tie, at) for tie in self.ties])

    def _fit(self, tie: Tie, at: Evaluated) -> FormState:
        coin = self.coins[tie[0]]
        if coin.form.is_joint:
            own = self.counts_by_coin(tie, at.counts)
            return coin.form.fit_together(coin.rows, own, at.states[tie[0]])
        tails, heads = self.counts(tie, at)
        return coin.form.fit(coin.rows, heads, tails, at.states[tie[0]])

    def counts(self, tie: Tie, at: Evaluated) -> Floats:
        """Expected tails and heads of a form's rows, over all coins that share it."""
        first, *others = tie
        total = at.counts.tables[first]
        for number in others:
            total = total + at.counts.tables[number]
        return total

    def counts_by_coin(self, tie: Tie, counts: Counts) -> dict[str, Floats]:
        """Expected tails and heads of the rows of each coin that shares a form, by name."""
        return {self.coins[number].name: counts.tables[number] for number in tie}

    def left_out(self, states: Sequence[FormState], counts: Counts) -> float:
        """What the weights of forms leave out of the log-likelihood that was found with them."""
        total = 0.0
        for tie in self.ties:
            coin = self.coins[tie[0]]
            scale = coin.form.log_scale(states[tie[0]], coin.rows) if coin.form.is_joint else None
            if scale is not None:
                # Every number that was seen is a head of one of the coins.
                heads: Floats = np.sum([counts.tables[number][1] for number in tie], axis=0)
                total += float((scale * heads).sum())
        return total

    # -- how far forms moved, and where that leads -------------------------------------------------
    def squared_distance(self, a: Evaluated, b: Evaluated) -> float:
        """How far the probabilities moved from `a` to `b`, in the Fisher norm."""
        total = 0.0
        for number in self.numbers:
            coin, flips = self.coins[number], b.counts.tables[number].sum(axis=0)
            total += squared_distance(
                coin.form, coin.rows, a.states[number], b.states[number], flips
            )
        return total

    def moves(self, start: Evaluated, once: Evaluated, twice: States) -> Moves:
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
        return Moves(start, once, twice, moves, Lengths(step, bend))

    def followed(self, moves: Moves, length: float) -> list[FormState]:
        """Where the moves of forms lead when they are followed further."""
        states = list(moves.twice)
        for tie, own in moves.by_tie.items():
            state = extrapolated(self.coins[tie[0]].form, states[tie[0]], own, length)
            for number in tie:
                states[number] = state
        return states


def as_weights(probability: Floats) -> Floats:
    """The weights of a coin, `[side, row]`: a side is read on its own more often than with the
    other, so each stands together."""
    weights = np.empty((2, len(probability)))
    weights[1] = probability
    np.subtract(1.0, probability, out=weights[0])
    return weights


_NO_WEIGHTS = np.zeros((2, 0))


def _ties(coins: Sequence[Coin]) -> list[Tie]:
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


# -- one form ------------------------------------------------------------------------------------
Three = tuple[FormState, FormState, FormState]  # a state, and the states one and two steps later


def move_of(form: Form, states: Three) -> FormMove:
    """The move of a form's vector; rows at exactly 0 or 1 begin at infinity, to be left alone."""
    if form.is_swept(*states):
        return FormMove(*row_sweeps.moves(*(state.probability for state in states)))
    a, b, c = (form.vector(state) for state in states)
    first, second, usable = _differences(a, b, c)
    return FormMove(a if usable.all() else np.where(usable, a, np.inf), first, second)


def lengths_of(form: Form, rows: Rows, states: Three, move: FormMove, flips: Floats) -> Lengths:
    """How long a move is; a row counts by how often it is flipped."""
    if not len(move.origin):
        return Lengths(0.0, 0.0)
    probability = form.predict(states[1], rows)
    if form.is_swept(*states):
        return Lengths(*row_sweeps.lengths(flips, probability, move.first, move.second))
    weight = flips * probability * (1 - probability)
    moved, bent, usable = move.first, move.second, np.isfinite(move.origin)
    if not form.row_by_row:
        moved, bent, usable = _differences(*(form.logits(state, rows) for state in states))
    weight = np.where(usable, weight, 0.0)
    return Lengths(float((weight * moved * moved).sum()), float((weight * bent * bent).sum()))


def extrapolated(form: Form, twice: FormState, move: FormMove, length: float) -> FormState:
    """The state that a move leads to when it is followed further."""
    if form.is_swept(twice):
        return form.moved_to(
            twice, row_sweeps.followed(move, length, twice.probability, twice.is_fixed)
        )
    beyond = move.origin + 2 * length * move.first + length**2 * move.second
    settled = ~np.isfinite(beyond)
    if settled.any():
        beyond[settled] = form.vector(twice)[settled]
    return form.from_vector(twice, beyond)


def squared_distance(
    form: Form, rows: Rows, before: FormState, after: FormState, flips: Floats
) -> float:
    """How far the probabilities of rows moved, in the Fisher norm.

    A row counts by how often it is flipped: moving a row by one standard error of what is known
    about it has length one.
    """
    was, now = form.predict(before, rows), form.predict(after, rows)
    if form.is_swept(before, after):
        return row_sweeps.squared_distance(was, now, flips)
    spread = np.maximum(was * (1 - was), 1e-12)
    return float((flips * (now - was) ** 2 / spread).sum())


def _differences(a: Floats, b: Floats, c: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """First and second difference, zero where one of them is not finite."""
    with np.errstate(invalid="ignore"):
        first, second = b - a, (c - b) - (b - a)
    usable = np.isfinite(first) & np.isfinite(second)
    if not usable.all():
        first, second = np.where(usable, first, 0.0), np.where(usable, second, 0.0)
    return first, second, usable
