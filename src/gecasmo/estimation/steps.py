"""What one form does between two E-steps: how far it moved, and where its moves lead.

Everything here is about a single form and its rows. Sums over forms, and over parts of a log that
does not fit into memory, are taken elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.forms import Form, FormState
from gecasmo.kernels.static import row_sweeps

Floats = NDArray[np.float64]
Three = tuple[FormState, FormState, FormState]  # a state, and the states one and two steps later


class Move(NamedTuple):
    """How one form moved: where its vector began, and its first and second difference."""

    origin: Floats
    first: Floats
    second: Floats


class Lengths(NamedTuple):
    """The squared lengths of the first and the second difference, in the Fisher norm."""

    step: float
    bend: float


NO_LENGTHS = Lengths(0.0, 0.0)


def move_of(form: Form, states: Three) -> Move:
    """The move of a form's vector; rows at exactly 0 or 1 begin at infinity, to be left alone."""
    if form.is_swept(*states):
        return Move(*row_sweeps.moves(*(state.probability for state in states)))
    a, b, c = (form.vector(state) for state in states)
    first, second, usable = _differences(a, b, c)
    return Move(a if usable.all() else np.where(usable, a, np.inf), first, second)


def lengths_of(form: Form, rows: Rows, states: Three, move: Move, flips: Floats) -> Lengths:
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


def extrapolated(form: Form, twice: FormState, move: Move, length: float) -> FormState:
    """The state that a move leads to when it is gone on with."""
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
