"""The paper's matrices, made from an automaton: one state per edge, so that each cell is one
product of coins.

At result t (from 0) the columns are the edges over that result and the rows the edges over the
one before (for t = 0: the start edges). With theta the value of each coin,

    M_t = multiplicity * product over coins of theta ** heads_t * (1 - theta) ** tails_t

where `follows` says which edge can come after which, D keeps the edges that show what was seen,
and `heads` and `tails` are the paper's I+ and I-, as counts: a coin may fall twice on an edge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gecasmo.compiler.automaton import AtPosition, Automaton, Edge, Guard
from gecasmo.compiler.close import Staircase

Matrix = NDArray[np.float64]
Coin = tuple[str, int, int | None]


@dataclass(frozen=True)
class StepMatrices:
    """The matrices of one result."""

    edges: tuple[Edge, ...]
    follows: Matrix  # rows x columns: multiplicity where the edge can follow, else 0
    heads: dict[Coin, Matrix]
    tails: dict[Coin, Matrix]

    def transition(self, values: dict[Coin, float]) -> Matrix:
        """M_t for given values of the coins."""
        matrix = self.follows.copy()
        for coin, heads in self.heads.items():
            matrix = matrix * values[coin] ** heads
        for coin, tails in self.tails.items():
            matrix = matrix * (1 - values[coin]) ** tails
        return matrix

    def shown(self, symbol: tuple[str, ...]) -> Matrix:
        """The diagonal of D: 1 for edges that show exactly these signals."""
        return np.array([float(set(edge.symbol) == set(symbol)) for edge in self.edges])

    def possible(self, guards: dict[str, bool], position: int) -> Matrix:
        """1 for edges whose guards hold here."""
        return np.array([float(_holds(edge, guards, position)) for edge in self.edges])


@dataclass(frozen=True)
class PageMatrices:
    """All matrices for a page of a given length; `initial` are the start edges."""

    parameters: tuple[str, ...]
    initial: tuple[Edge, ...]
    steps: tuple[StepMatrices, ...]

    @classmethod
    def of(cls, automaton: Automaton, page_length: int) -> PageMatrices:
        """Minimise, merge and close the automaton, then expand it."""
        from gecasmo.compiler import minimal

        return cls.of_staircase(minimal(automaton), page_length)

    @classmethod
    def of_staircase(cls, staircase: Staircase, page_length: int) -> PageMatrices:
        """Write out a closed automaton, step by step, for pages of one length."""
        initial = staircase.initial_for(page_length)
        steps = []
        before: tuple[Edge, ...] = initial
        for position in range(page_length):
            edges = staircase.step(page_length - position).edges
            steps.append(_step(before, edges))
            before = edges
        return cls(staircase.body.parameters, initial, tuple(steps))

    def initial_vector(self, values: dict[Coin, float]) -> Matrix:
        """The probability of each start edge."""
        return np.array([_probability(edge, values) for edge in self.initial])


def _step(before: tuple[Edge, ...], edges: tuple[Edge, ...]) -> StepMatrices:
    follows = np.zeros((len(before), len(edges)))
    heads: dict[Coin, Matrix] = {}
    tails: dict[Coin, Matrix] = {}
    for column, edge in enumerate(edges):
        for row, previous in enumerate(before):
            if previous.target == edge.source:
                follows[row, column] = edge.multiplicity
        for literal in edge.literals:
            counts = heads if literal.heads else tails
            counts.setdefault(literal.coin, np.zeros_like(follows))
            counts[literal.coin][:, column] += 1
    return StepMatrices(edges, follows, heads, tails)


def _probability(edge: Edge, values: dict[Coin, float]) -> float:
    result = edge.multiplicity
    for literal in edge.literals:
        result *= values[literal.coin] if literal.heads else 1 - values[literal.coin]
    return result


def _holds(edge: Edge, guards: dict[str, bool], position: int) -> bool:
    for guard in edge.guards:
        if isinstance(guard, AtPosition) and guard.position != position:
            return False
        if isinstance(guard, Guard) and guards[guard.column] != guard.value:
            return False
    return True
