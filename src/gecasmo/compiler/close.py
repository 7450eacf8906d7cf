"""Towards the end of a page less can still be observed, so fewer states need telling apart.

The result at distance d from the end (the last one has d = 1) comes from a state known up to
refinement round d and leads to one known up to round d - 1. For the cascade models that is one
special step: no satisfaction or continuation is counted at the last result. Flips in `start`
that a page of this length cannot reveal vanish too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gecasmo.compiler.automaton import Automaton, Edge
from gecasmo.compiler.merge import merge_edges
from gecasmo.compiler.minimise import Partition, quotient

# More steps would shrink the hidden data a little further and the generated source not at all.
MAX_CLOSING_STEPS = 4


@dataclass(frozen=True)
class ClosedStep:
    """The edges over one result near the end; sources and targets are numbered apart."""

    n_sources: int
    n_targets: int
    edges: tuple[Edge, ...]


@dataclass(frozen=True)
class Staircase:
    """An automaton with its special last steps.

    Attributes
    ----------
    body : the automaton used at every other result
    closing : the step of the last result, of the one before it, ...
    initial : the start edges for a page of 0, 1, ... results; the last entry is for all longer
    """

    body: Automaton
    closing: tuple[ClosedStep, ...]
    initial: tuple[tuple[Edge, ...], ...]

    def step(self, distance: int) -> ClosedStep:
        """The step of the result at this distance from the end (1: the last result)."""
        if distance <= len(self.closing):
            return self.closing[distance - 1]
        return ClosedStep(self.body.n_states, self.body.n_states, self.body.edges)

    def initial_for(self, page_length: int) -> tuple[Edge, ...]:
        """Initial edges of pages of this length: short pages cannot reveal all start flips."""
        return self.initial[min(page_length, len(self.initial) - 1)]


def close(
    automaton: Automaton, rounds: tuple[Partition, ...], max_steps: int = MAX_CLOSING_STEPS
) -> Staircase:
    """Minimise, merge and close: the automaton that the E-step runs on.

    `automaton` is the pruned one, `rounds` its refinement.
    """
    n_steps = min(len(rounds) - 1, max_steps)
    # Any partition finer than round d will do at distance d; past the cap the stable one is used.
    partitions = (*rounds[:n_steps], rounds[-1])
    closing = tuple(
        _step(automaton, partitions[distance], partitions[distance - 1])
        for distance in range(1, n_steps + 1)
    )
    initial = tuple(
        tuple(merge_edges(_initial(automaton, partition), automaton)) for partition in partitions
    )
    body = quotient(automaton, rounds[-1])
    edges = [edge for edges in body.by_source() for edge in merge_edges(edges, body)]
    return Staircase(body.with_edges(edges, initial[-1]), closing, initial)


def unclosed(automaton: Automaton) -> Staircase:
    """The automaton as it is: every flip of the program is counted."""
    return Staircase(automaton, (), (automaton.initial,))


def _step(automaton: Automaton, sources: Partition, targets: Partition) -> ClosedStep:
    by_source: dict[int, list[Edge]] = {}
    for state, edges in enumerate(automaton.by_source()):
        by_source.setdefault(
            sources[state],
            [replace(e, source=sources[state], target=targets[e.target]) for e in edges],
        )
    merged = [edge for edges in by_source.values() for edge in merge_edges(edges, automaton)]
    return ClosedStep(max(sources) + 1, max(targets) + 1, tuple(merged))


def _initial(automaton: Automaton, blocks: Partition) -> list[Edge]:
    return [replace(edge, target=blocks[edge.target]) for edge in automaton.initial]
