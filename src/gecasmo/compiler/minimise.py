"""Find the states that have the same future, and make them one.

Two states are the same if, for every condition, signal and group of target states, the total
probability of their edges is the same *polynomial* in the coins, with tails = 1 - heads. Edge
lists would be too weak a test: different flips can add up to the same thing. The polynomials are
compared by evaluating them at two pseudo-random points modulo a prime, which takes linear time.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from gecasmo.compiler.automaton import Automaton, Edge, Guard

Partition = tuple[int, ...]  # the block of each state, blocks numbered by first appearance

PRIME = 2**61 - 1
N_POINTS = 2


def refine(automaton: Automaton) -> tuple[Partition, ...]:
    """Every round of partition refinement, from one block to the stable partition.

    Round r tells states apart that differ within the next r results; `close` needs them all.
    """
    by_source = automaton.by_source()
    values = [[_value(edge, point) for point in range(N_POINTS)] for edge in automaton.edges]
    value_of = {id(edge): value for edge, value in zip(automaton.edges, values, strict=True)}
    rounds: list[Partition] = [(0,) * automaton.n_states]
    while True:
        blocks = rounds[-1]
        signatures = []
        for state, edges in enumerate(by_source):
            sums: dict[tuple[tuple[str, ...], int], list[int]] = defaultdict(lambda: [0] * N_POINTS)
            for edge in edges:
                total = sums[edge.symbol, blocks[edge.target]]
                for point in range(N_POINTS):
                    total[point] = (total[point] + value_of[id(edge)][point]) % PRIME
            seen = sorted((key, tuple(total)) for key, total in sums.items() if any(total))
            signatures.append((blocks[state], tuple(seen)))
        finer = _number(signatures)
        if max(finer, default=0) == max(blocks, default=0):
            return tuple(rounds)
        rounds.append(finer)


def quotient(automaton: Automaton, blocks: Partition) -> Automaton:
    """One state per block, with the edges of its first member."""
    first = _first_members(blocks)
    by_source = automaton.by_source()
    edges = [
        replace(edge, source=block, target=blocks[edge.target])
        for block, state in enumerate(first)
        for edge in by_source[state]
    ]
    initial = tuple(replace(edge, target=blocks[edge.target]) for edge in automaton.initial)
    return replace(
        automaton,
        states=tuple(automaton.states[state] for state in first),
        initial=initial,
        edges=tuple(edges),
        gone=None if automaton.gone is None else blocks[automaton.gone],
    )


def minimise(automaton: Automaton) -> Automaton:
    """The automaton with the fewest states that gives every page the same probability."""
    return quotient(automaton, refine(automaton)[-1])


def _first_members(blocks: Partition) -> list[int]:
    first: dict[int, int] = {}
    for state, block in enumerate(blocks):
        first.setdefault(block, state)
    return [first[block] for block in range(len(first))]


def _number(signatures: Sequence[tuple[object, ...]]) -> Partition:
    numbers: dict[tuple[object, ...], int] = {}
    return tuple(numbers.setdefault(signature, len(numbers)) for signature in signatures)


def _value(edge: Edge, point: int) -> int:
    """The edge's probability at a pseudo-random point, guards counted as coins of their own."""
    multiplicity = Fraction(edge.multiplicity)
    value = multiplicity.numerator * pow(multiplicity.denominator, -1, PRIME) % PRIME
    for literal in edge.literals:
        heads = _random(repr(literal.coin), point)
        value = value * (heads if literal.heads else 1 - heads) % PRIME
    for guard in edge.guards:
        if isinstance(guard, Guard):
            yes = _random(f"guard {guard.column!r}", point)
            value = value * (yes if guard.value else 1 - yes) % PRIME
        else:
            # Positions exclude each other; an edge at every position is the sum over positions.
            value = value * _random(f"position {guard.position}", point) % PRIME
    return value


def _random(name: str, point: int) -> int:
    digest = hashlib.blake2b(f"{point} {name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") % PRIME
