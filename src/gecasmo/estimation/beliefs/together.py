"""Directions in which shared coins and rows move together.

What is remembered of the past speaks for every number by itself. Where a log cannot tell whether
pages are looked at more or results are less attractive, that holds on to both: the past is too sure
of what it never knew. So the past may also move as a whole, along directions in which shared coins
are much less certain than with all rows held, with the rows answering as they do on the new log.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.beliefs.learning import Beliefs
from gecasmo.estimation.beliefs.rows import group_shifts, precision_of, row_answers
from gecasmo.estimation.problem import Evaluation, Problem

Floats = NDArray[np.float64]

# A direction counts if rows leave so many times the variance open that is there with rows held.
_LOOSE = 1.5
_MOST = 8


@dataclass(frozen=True)
class Direction:
    """Moves of the vectors of coins, by number, as far as one log leaves open beyond what it leaves
    open with all else held; `information` is what that log says on them, at most 1."""

    moves: dict[int, Floats]
    information: float


def directions_of(problem: Problem, alone: Evaluation) -> tuple[list[Direction], dict[int, Floats]]:
    """The loose directions of a problem, and the information on each shared number, all else
    held."""
    beliefs = Beliefs(problem)
    shared, covariance, believed = beliefs.apart(alone)
    held = shared.factor * shared.held
    by_coin = shared.by_coin(held)
    active = np.flatnonzero((held > 1e-8) & (np.diag(covariance) > 0)) if shared.size else []
    if not len(active) or not shared.rows:
        return [], by_coin
    root = np.sqrt(held[active])
    values, vectors = np.linalg.eigh(covariance[np.ix_(active, active)] * root * root[:, None])
    found = []
    for place in np.argsort(values)[::-1][:_MOST]:
        if values[place] < _LOOSE:
            break
        along = np.zeros(shared.size)
        along[active] = np.sqrt(values[place] - 1) * vectors[:, place] / root
        moves = shared.by_coin(along)
        for number, slopes in shared.row_slopes(alone, along, shared.rows).items():
            state, precision = alone.states[number], precision_of(believed[number])
            shifts = group_shifts(state, slopes, precision)
            moves[number] = row_answers(state, slopes, precision, shifts)[:, 0]
        found.append(Direction(moves, float((values[place] - 1) / values[place])))
    return found, by_coin
