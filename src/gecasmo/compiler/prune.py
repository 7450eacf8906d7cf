"""Drop the states that no page can reach, and nothing else.

Edges stay even where they cannot be taken at a given rank: dropping those makes states that
behave alike look different, and minimising would keep them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from gecasmo.compiler.automaton import START, AtPosition, Automaton, Edge


def prune(automaton: Automaton) -> Automaton:
    """The same automaton without unreachable states."""
    return keep_states(automaton, sorted(_reachable(automaton)))


def keep_states(automaton: Automaton, kept: list[int]) -> Automaton:
    """Renumber the `kept` states 0, 1, ... and drop the edges of all others."""
    if len(kept) == automaton.n_states:
        return automaton
    number = {old: new for new, old in enumerate(kept)} | {START: START}

    def renumber(edges: Iterable[Edge]) -> tuple[Edge, ...]:
        return tuple(
            replace(edge, source=number[edge.source], target=number[edge.target])
            for edge in edges
            if edge.source in number and edge.target in number
        )

    gone = number.get(automaton.gone) if automaton.gone is not None else None
    return replace(
        automaton,
        states=tuple(automaton.states[old] for old in kept),
        initial=renumber(automaton.initial),
        edges=renumber(automaton.edges),
        gone=gone,
    )


def _reachable(automaton: Automaton) -> set[int]:
    frontier = {edge.target for edge in automaton.initial}
    by_source = automaton.by_source()
    guards = (guard for edge in automaton.edges for guard in edge.guards)
    if automaton.page_length is None or not any(isinstance(g, AtPosition) for g in guards):
        seen = set(frontier)
        while frontier:
            frontier = {e.target for state in frontier for e in by_source[state]} - seen
            seen |= frontier
        return seen
    # By state, and by position (None where an edge is there at any).
    targets: list[dict[int | None, set[int]]] = [{} for _ in automaton.states]
    for edge in automaton.edges:
        at = next((g.position for g in edge.guards if isinstance(g, AtPosition)), None)
        targets[edge.source].setdefault(at, set()).add(edge.target)
    seen = set(frontier)
    for position in range(1, automaton.page_length + 1):
        reached = (targets[state].get(at, ()) for state in frontier for at in (position, None))
        frontier = {target for found in reached for target in found}
        seen |= frontier
        if not frontier:
            break
    return seen
