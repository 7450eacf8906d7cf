"""The paper's Algorithms 1 and 2 on matrices, in plain NumPy: slow, readable, the specification.

With rows = from and columns = to (the paper mixes the two, see its slips 5 and 6):

    forward    A_t = D_t M_t' A_(t-1)       scaled to sum to one
    backward   L_(t-1) = M_t D_t L_t
    posterior  H_t = (A_(t-1) L_t') * M_t D_t

Kernels are held against this, and this against enumeration of every hidden path.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gecasmo.compiler.automaton import LAST_RESULT
from gecasmo.compiler.close import Staircase
from gecasmo.compiler.matrices import Coin, Matrix, PageMatrices, StepMatrices

Where = tuple[str, int | None, int | None]  # coin, result it belongs to (None: start), fixed row


@dataclass
class ReferencePage:
    """One page: what was shown, what the guards say, and every coin's value at every result.

    `values[coin][t]` is the coin at result t; `start[coin]` before the first result;
    `rows[coin][row]` where edges name a row by number.
    """

    shown: list[tuple[str, ...]]
    values: dict[str, NDArray[np.float64]]
    guards: list[dict[str, bool]] = field(default_factory=list)
    start: dict[str, float] = field(default_factory=dict)
    rows: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    def value(self, coin: Coin, position: int) -> float:
        """Probability of heads of a coin at a position: of a fixed row or by its key."""
        name, lag, row = coin
        return (
            float(self.rows[name][row])
            if row is not None
            else float(self.values[name][position - lag])
        )


@dataclass
class ReferenceCounts:
    """Expected heads and tails by coin and place, and the log-likelihood."""

    log_likelihood: float
    heads: dict[Where, float]
    tails: dict[Where, float]


def filter_page(staircase: Staircase, page: ReferencePage) -> NDArray[np.float64]:
    """P(what was shown at result t | what was shown above), for every t."""
    return _forward(*_matrices(staircase, page))[1]


def e_step(staircase: Staircase, page: ReferencePage) -> ReferenceCounts:
    """Expected heads and tails of every coin at every result, given the whole page."""
    matrices, initial, transitions = _matrices(staircase, page)
    before, scales = _forward(matrices, initial, transitions)
    if (scales <= 0).any():
        return ReferenceCounts(-math.inf, {}, {})
    heads: dict[Where, float] = defaultdict(float)
    tails: dict[Where, float] = defaultdict(float)
    below = np.ones(transitions[-1].shape[1]) if transitions else np.ones(len(initial))
    for position in range(len(transitions) - 1, -1, -1):
        posterior = np.outer(before[position], below) * transitions[position] / scales[position]
        _count(matrices.steps[position], posterior, position, heads, tails)
        below = transitions[position] @ below / scales[position]
    for edge, share in zip(matrices.initial, initial * below, strict=True):
        for literal in edge.literals:
            where = (literal.parameter, None, literal.row)
            (heads if literal.heads else tails)[where] += float(share)
    return ReferenceCounts(float(np.log(scales).sum()), dict(heads), dict(tails))


def _matrices(
    staircase: Staircase, page: ReferencePage
) -> tuple[PageMatrices, Matrix, list[Matrix]]:
    matrices = PageMatrices.of_staircase(staircase, len(page.shown))
    start = {lit.coin: page.start[lit.parameter] for e in matrices.initial for lit in e.literals}
    transitions = []
    for position, step in enumerate(matrices.steps):
        coins = {lit.coin for edge in step.edges for lit in edge.literals}
        # A lag at the first result is never meant: no state that asks for it can be there yet.
        values = {coin: 0.5 if coin[1] > position else page.value(coin, position) for coin in coins}
        guards = {LAST_RESULT: position + 1 == len(matrices.steps)}
        guards |= page.guards[position] if page.guards else {}
        kept = step.shown(page.shown[position]) * step.possible(guards, position + 1)
        transitions.append(step.transition(values) * kept)
    return matrices, matrices.initial_vector(start), transitions


def _forward(
    matrices: PageMatrices, initial: Matrix, transitions: list[Matrix]
) -> tuple[list[Matrix], NDArray[np.float64]]:
    states, scales = [initial], []
    for transition in transitions:
        after = transition.T @ states[-1]
        scales.append(after.sum())
        states.append(after / scales[-1] if scales[-1] > 0 else after)
    return states, np.array(scales)


def _count(
    step: StepMatrices,
    posterior: Matrix,
    position: int,
    heads: dict[Where, float],
    tails: dict[Where, float],
) -> None:
    for counts, sides in ((heads, step.heads), (tails, step.tails)):
        for (name, lag, row), matrix in sides.items():
            place = None if row is not None else position - lag
            counts[name, place, row] += float((posterior * matrix).sum())
