"""What coins that all pages share leave open, and how that widens what is believed of rows.

A row's posterior holds everything else at its estimate. Coins such as continuation or examination
by rank are uncertain too, and rows lean on them. Their covariance comes from the profile
likelihood: a shared coin is moved a little, the rows answer, and the slope that is left gives a
column of the information. Directions in which rows can make up for the shared coins are flat there,
and so come out wide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.beliefs.rows import group_shifts, row_answers
from gecasmo.estimation.expectation import Counts
from gecasmo.estimation.information import score_of, small_ties
from gecasmo.estimation.problem import Evaluation, Problem
from gecasmo.forms import FormState, TableState
from gecasmo.forms.evidence import informed_evidence

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Tie = tuple[int, ...]

# The covariance of a few coins is learned from this many pages, scaled up.
_PAGES = 20_000
_STEP = 0.05
# Rows are moved along this many directions of the shared coins, the widest ones.
_DIRECTIONS = 12
# Nothing is less certain than this, in logits.
_WIDEST = 1.0


class Shared:
    """The small coins of a problem, apart from those whose rows have beliefs of their own."""

    def __init__(self, problem: Problem, states: Sequence[FormState], rows: set[int]) -> None:
        self.problem = problem
        self.ties = [t for t in small_ties(problem, states) if not rows & set(t)]
        self.rows = sorted(rows)
        self.sizes = [len(self._form(tie).vector(states[tie[0]])) for tie in self.ties]
        # The information on each number, all others held, of a part of the log.
        self.held, self.factor = np.zeros(self.size), 1.0

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def covariance(self, best: Evaluation) -> Floats:
        """Of all shared vectors together, when rows are fitted anew wherever these go."""
        if not self.size:
            return np.zeros((0, 0))
        n_buckets, factor = self.problem.expectation.sample(_PAGES)
        states = list(best.states)
        at = self._slopes(states, n_buckets)
        information = np.zeros((self.size, self.size))
        changes: dict[int, list[_Sparse]] = {number: [] for number in self.rows}
        for place in range(self.size):
            there = self._slopes(self.moved(states, np.eye(self.size)[place] * _STEP), n_buckets)
            information[:, place] = (at.shared - there.shared) / _STEP
            for number in self.rows:
                changes[number].append(at.rows[number].less(there.rows[number], _STEP))
        self.held, self.factor = np.diag(information).copy(), factor
        for number in self.rows:
            # Rows answer to what moves them, and take that much information away.
            precision = self._precision(states, number, at, n_buckets)
            read, touched = _columns(changes[number])
            shifts = group_shifts(states[number], touched, precision, read)
            information -= touched.T @ row_answers(states[number], touched, precision, shifts, read)
        # More pages have more rows of the same kind, and say so much more.
        return _covariance(factor * (information + information.T) / 2)

    def directions(self, covariance: Floats) -> list[Floats]:
        """The widest moves of the shared vectors, each as long as a standard deviation."""
        if not self.size:
            return []
        values, vectors = np.linalg.eigh(covariance)
        widest = np.argsort(values)[::-1][:_DIRECTIONS]
        return [np.sqrt(values[n]) * vectors[:, n] for n in widest if values[n] > 0]

    def row_slopes(self, best: Evaluation, direction: Floats, numbers: Iterable[int]) -> Any:
        """By coin, how the slope of each row changes when the shared vectors move."""
        moved = self.moved(list(best.states), direction)
        counts = self.problem.expectation.run(self.problem.weights(moved))
        return {
            number: slope_change(counts, best.counts, number, best.states[number].probability)
            for number in numbers
        }

    def widening(
        self, best: Evaluation, covariance: Floats, precision: dict[int, Floats]
    ) -> dict[int, Floats]:
        """By coin, the variance that each row's logit gains; `precision` is what rows have."""
        extra = {number: np.zeros(len(own)) for number, own in precision.items()}
        for direction in self.directions(covariance):
            for number, slopes in self.row_slopes(best, direction, precision).items():
                state, own = best.states[number], precision[number]
                shifts = group_shifts(state, slopes, own)
                extra[number] += row_answers(state, slopes, own, shifts)[:, 0] ** 2
        return extra

    def with_spreads(
        self, states: Sequence[FormState], covariance: Floats
    ) -> dict[int, TableState]:
        """The shared tables, with how sure their rows are."""
        found = {}
        held = self.by_coin(self.held)
        for number, deviation in self.spreads(states, covariance).items():
            state = states[number]
            if isinstance(state, TableState):
                slope = state.probability * (1 - state.probability)
                spread = np.minimum(slope * deviation, np.sqrt(slope))
                evidence = informed_evidence(state, held[number], self.factor)
                found[number] = replace(
                    state, spread=spread, centre=state.probability, evidence=evidence
                )
        return found

    def spreads(self, states: Sequence[FormState], covariance: Floats) -> dict[int, Floats]:
        """By coin, the standard deviation of each of its logits; NaN where nothing tells."""
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        deviation = np.where(deviation > 0, deviation, np.where(self._given(states), 0.0, np.nan))
        return self.by_coin(deviation)

    def by_coin(self, numbers: Floats) -> dict[int, Floats]:
        """One number per entry of all shared vectors, by coin."""
        starts = np.cumsum([0, *self.sizes])
        return {
            tie[0]: numbers[start : start + size]
            for tie, start, size in zip(self.ties, starts, self.sizes, strict=False)
        }

    def _given(self, states: Sequence[FormState]) -> NDArray[np.bool_]:
        """Which of the numbers are given, not estimated."""
        parts = []
        for tie, size in zip(self.ties, self.sizes, strict=True):
            fixed = getattr(states[tie[0]], "is_fixed", None)
            parts.append(np.zeros(size, bool) if fixed is None else fixed)
        return np.concatenate(parts) if parts else np.zeros(0, bool)

    def _form(self, tie: Tie) -> Any:
        return self.problem.coins[tie[0]].form

    def moved(self, states: list[FormState], by: Floats) -> list[FormState]:
        """The states with the shared vectors moved."""
        states = list(states)
        start = 0
        for tie, size in zip(self.ties, self.sizes, strict=True):
            form = self._form(tie)
            vector = np.clip(form.vector(states[tie[0]]), -20.0, 20.0) + by[start : start + size]
            state = form.from_vector(states[tie[0]], vector)
            for number in tie:
                states[number] = state
            start += size
        return states

    def _slopes(self, states: list[FormState], n_buckets: int) -> _Slopes:
        counts = self.problem.expectation.run(self.problem.weights(states), n_buckets)
        shared = [score_of(self.problem, states, tie, counts) for tie in self.ties]
        rows, flips = {}, {}
        for number in self.rows:
            tails, heads = counts.tables[number]
            flips[number] = heads + tails
            rows[number] = _Sparse.of(heads, flips[number], states[number].probability)
        return _Slopes(np.concatenate(shared), rows, flips)

    def _precision(
        self, states: list[FormState], number: int, at: _Slopes, n_buckets: int
    ) -> Floats:
        """The information on each row's logit, with that of its prior."""
        form: Any = self.problem.coins[number].form
        vector = np.clip(form.vector(states[number]), -20.0, 20.0)
        moved = list(states)
        moved[number] = form.from_vector(states[number], vector + _STEP)
        there = self._slopes(moved, n_buckets)
        p = states[number].probability
        complete = at.flips[number] * p * (1 - p)
        seen = at.rows[number].less(there.rows[number], _STEP).dense(len(p))
        a, b = states[number].pseudo
        precision: Floats = np.clip(seen, 1e-3 * complete, complete) + (a + b) * p * (1 - p) + 1e-9
        if states[number].is_fixed is not None:
            precision = np.where(states[number].is_fixed, np.inf, precision)
        return precision


def slope_change(counts: Counts, before: Counts, number: int, probability: Floats) -> Floats:
    """How other counts change the slope of the likelihood by each row's logit, as a column."""
    change = counts.tables[number] - before.tables[number]
    slope: Floats = change[1] - change.sum(axis=0) * probability
    return slope[:, None]


class _Sparse(NamedTuple):
    """Numbers of the rows `read`; those of all others are 0. A part of the log reads few rows."""

    read: Integers
    values: Floats

    @classmethod
    def of(cls, heads: Floats, flips: Floats, probability: Floats) -> _Sparse:
        """The slopes of the likelihood by rows' logits."""
        read = np.flatnonzero(flips)
        return cls(read, heads[read] - flips[read] * probability[read])

    def less(self, other: _Sparse, step: float) -> _Sparse:
        """The difference to others, per step."""
        if np.array_equal(self.read, other.read):
            return _Sparse(self.read, (self.values - other.values) / step)
        read, columns = _columns([self, other])
        return _Sparse(read, (columns[:, 0] - columns[:, 1]) / step)

    def dense(self, n_rows: int) -> Floats:
        values = np.zeros(n_rows)
        values[self.read] = self.values
        return values


def _columns(parts: Sequence[_Sparse]) -> tuple[Integers, Floats]:
    """The rows that any of some numbers are of, and the numbers as columns."""
    read = np.unique(np.concatenate([part.read for part in parts]))
    columns = np.zeros((len(read), len(parts)))
    for place, part in enumerate(parts):
        columns[np.searchsorted(read, part.read), place] = part.values
    return read, columns


class _Slopes(NamedTuple):
    """Derivatives of the objective by shared vectors, and of the likelihood by rows' logits."""

    shared: Floats
    rows: dict[int, _Sparse]
    flips: dict[int, Floats]


def _covariance(information: Floats) -> Floats:
    """The inverse; directions that nothing speaks for are as wide as can be, not infinitely wide.

    What has no information at all of its own (rows that are given, or never flipped) has no part in
    anything, and variance 0.
    """
    active = np.diag(information) > 1e-8
    covariance = np.zeros_like(information)
    values, vectors = np.linalg.eigh(information[np.ix_(active, active)])
    widths = np.minimum(1 / np.maximum(values, 1e-9), _WIDEST**2)
    covariance[np.ix_(active, active)] = (vectors * widths) @ vectors.T
    return covariance
