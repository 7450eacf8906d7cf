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
_MOST_ROUNDS = 16  # that are kept, the last one among them


def refine(automaton: Automaton) -> tuple[Partition, ...]:
    """The first rounds of partition refinement, from one block on, and the stable partition.

    Round r tells states apart that differ within the next r results; `close` needs a few of them.
    A state is only looked at again when one that it leads to has left its block, so that automata
    of thousands of rounds take no longer than others.
    """
    ways, before = _ways(automaton)
    blocks = [0] * automaton.n_states
    members: list[set[int]] = [set(range(automaton.n_states))]
    # The signature of all states of a block: those which nobody looks at again still have it.
    known: list[tuple[object, ...]] = [()]
    rounds: list[Partition] = [(0,) * automaton.n_states]
    n_rounds, restless = 1, list(range(automaton.n_states))
    while True:
        groups: dict[int, dict[tuple[object, ...], list[int]]] = {}
        for state in restless:
            signature = _signature(ways[state], blocks)
            groups.setdefault(blocks[state], {}).setdefault(signature, []).append(state)
        moved: list[int] = []
        for block, found in groups.items():
            if len(members[block]) == sum(map(len, found.values())):
                known[block] = max(found, key=lambda signature: len(found[signature]))
            for signature, states in found.items():
                if signature != known[block]:
                    members[block].difference_update(states)
                    for state in states:
                        blocks[state] = len(members)
                    members.append(set(states))
                    known.append(signature)
                    moved += states
        if not moved:
            return (*rounds[: n_rounds - 1], _number(blocks))
        n_rounds += 1
        if n_rounds < _MOST_ROUNDS:
            rounds.append(_number(blocks))
        restless = sorted({source for state in moved for source in before[state]})


Way = tuple[tuple[str, ...], int, list[int]]  # symbol and target of an edge, and its values


def _ways(automaton: Automaton) -> tuple[list[list[Way]], list[set[int]]]:
    """The edges of each state, and the states that lead to it."""
    ways: list[list[Way]] = [[] for _ in automaton.states]
    before: list[set[int]] = [set() for _ in automaton.states]
    for edge in automaton.edges:
        values = [_value(edge, point) for point in range(N_POINTS)]
        ways[edge.source].append((edge.symbol, edge.target, values))
        before[edge.target].add(edge.source)
    return ways, before


def _signature(ways: list[Way], blocks: Sequence[int]) -> tuple[object, ...]:
    """The total probability of a state's edges, by symbol and block of targets."""
    sums: dict[tuple[tuple[str, ...], int], list[int]] = defaultdict(lambda: [0] * N_POINTS)
    for symbol, target, values in ways:
        total = sums[symbol, blocks[target]]
        for point in range(N_POINTS):
            total[point] = (total[point] + values[point]) % PRIME
    return tuple(sorted((key, tuple(total)) for key, total in sums.items() if any(total)))


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


def _number(blocks: Sequence[int]) -> Partition:
    numbers: dict[int, int] = {}
    return tuple(numbers.setdefault(block, len(numbers)) for block in blocks)


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
