"""Forget flips that do not matter: shrink the hidden data without touching the likelihood.

Merging edges freely depends on the order in which it is done. So the program's own tree of flips
decides: for one source, condition, signal and target, cut the tree to the paths that end there
and remove, bottom up, each flip whose two subtrees are equal. The result is unique, and an eager
program (all coins first) ends with the edges of its lazy twin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from gecasmo.compiler.automaton import AtPosition, Automaton, Edge, Guard, Literal
from gecasmo.errors import ModelError

MAX_CASES = 1024
# Beyond what the trees of programs take, which is as much as they have flips.
_SPARE_EFFORT, _EFFORT_PER_FLIP = 2**19, 16


class Path(NamedTuple):
    literals: tuple[Literal, ...]
    multiplicity: float


Guards = tuple[Guard | AtPosition, ...]


class Effort:
    """How many more edges may be looked at.

    A program's edges are a tree, of which each is looked at once a flip. Edges that come from
    elsewhere may mention coins in any order: of 26 coins that is 2 ** 26 ways to fall.
    """

    def __init__(self, edges: Iterable[Edge]) -> None:
        n_flips = sum(len(edge.literals) + len(edge.guards) + 1 for edge in edges)
        self.left = _SPARE_EFFORT + _EFFORT_PER_FLIP * n_flips

    def spend(self, n_edges: int) -> None:
        """Count some edges that are looked at."""
        self.left -= n_edges
        if self.left < 0:
            raise ModelError(
                "Its edges mention so many coins and conditions in so many orders that all their "
                "outcomes cannot be looked at. The edges of a program are a tree: at each flip all "
                "of them that go on have the same coin."
            )


def check_effort(automaton: Automaton) -> None:
    """Refuse an automaton that would take forever to merge."""
    effort = Effort((*automaton.initial, *automaton.edges))
    order = {name: number for number, name in enumerate(automaton.parameters)}
    for edges in (list(automaton.initial), *automaton.by_source()):
        for _, possible in split_by_guards(edges, automaton.page_length, effort):
            condense([Path(e.literals, e.multiplicity) for e in possible], order, effort)


def merge(automaton: Automaton) -> Automaton:
    """The automaton with only those flips left that its likelihood depends on."""
    order = {name: number for number, name in enumerate(automaton.parameters)}
    edges = [
        edge for edges in automaton.by_source() for edge in merge_edges(edges, automaton, order)
    ]
    return automaton.with_edges(edges, merge_edges(automaton.initial, automaton, order))


def merge_edges(
    edges: Iterable[Edge], automaton: Automaton, order: dict[str, int] | None = None
) -> list[Edge]:
    """Merge the edges of one source."""
    order = order or {name: number for number, name in enumerate(automaton.parameters)}
    merged = []
    for guards, possible in split_by_guards(list(edges), automaton.page_length):
        groups: dict[tuple[tuple[str, ...], int], list[Edge]] = {}
        for edge in possible:
            groups.setdefault((edge.symbol, edge.target), []).append(edge)
        for group in groups.values():
            for path in condense([Path(e.literals, e.multiplicity) for e in group], order):
                merged.append(replace(group[0], guards=guards, **path._asdict()))
    return merged


def condense(paths: list[Path], order: dict[str, int], effort: Effort | None = None) -> list[Path]:
    """The paths of the cut tree after removing each flip whose two subtrees are equal."""
    if effort is not None:
        effort.spend(len(paths))
    coins = {path.literals[0].coin for path in paths if path.literals}
    if not coins:
        total = sum(path.multiplicity for path in paths)
        return [Path((), total)] if total else []
    # Paths of a program all start with the same flip. Matrices have no tree: there the declared
    # order decides, and a cell that does not mention the coin belongs to both of its sides.
    coin = min(coins, key=lambda c: (order[c[0]], c[1], -1 if c[2] is None else c[2]))
    heads, tails = (condense(_side(paths, coin, side), order, effort) for side in (True, False))
    if heads == tails:
        return heads
    name, lag, row = coin
    return [
        Path((Literal(name, side, lag, row), *path.literals), path.multiplicity)
        for side, subtree in ((True, heads), (False, tails))
        for path in subtree
    ]


def _side(paths: list[Path], coin: tuple[str, int, int | None], heads: bool) -> list[Path]:
    side = []
    for path in paths:
        if not path.literals or path.literals[0].coin != coin:
            side.append(path)
        elif path.literals[0].heads == heads:
            side.append(path._replace(literals=path.literals[1:]))
    return side


def split_by_guards(
    edges: list[Edge], page_length: int | None, effort: Effort | None = None
) -> list[tuple[Guards, list[Edge]]]:
    """The cases that the guards tell apart, each with the edges that exist in it."""
    # Whether there are numbers to be seen is asked last, when all else is known.
    asked = None
    for guard in (guard for edge in edges for guard in edge.guards):
        asked = asked or guard
        if isinstance(guard, AtPosition) or not guard.is_of_number:
            asked = guard
            break
    if asked is None:
        return [((), edges)]
    # By what an edge asks of it, with its place among all; None where it does not matter.
    by_value: dict[Guard | AtPosition | None, list[tuple[int, Edge]]] = {None: []}
    for place, edge in enumerate(edges):
        value = next((guard for guard in edge.guards if _is_about(guard, asked)), None)
        others = tuple(guard for guard in edge.guards if not _is_about(guard, asked))
        by_value.setdefault(value, []).append((place, replace(edge, guards=others)))
    cases: list[tuple[Guards, list[Edge]]] = []
    for value in _values(asked, page_length):
        both = sorted([*by_value[None], *by_value.get(value, [])], key=lambda one: one[0])
        possible = [edge for _, edge in both]
        if effort is not None:
            effort.spend(len(possible) + 1)
        for guards, rest in split_by_guards(possible, page_length, effort):
            cases.append(((value, *guards), rest))
        if len(cases) > MAX_CASES:
            raise ModelError(
                f"The yes/no columns that the program asks for make more than {MAX_CASES:,} "
                "different cases at a result. Fewer columns, or a coin with a key of them, will do."
            )
    return cases


def _values(asked: Guard | AtPosition, page_length: int | None) -> list[Guard | AtPosition]:
    if isinstance(asked, Guard):
        return [Guard(asked.column, True), Guard(asked.column, False)]
    assert page_length is not None
    return [AtPosition(position) for position in range(1, page_length + 1)]


def _is_about(guard: Guard | AtPosition, asked: Guard | AtPosition) -> bool:
    if isinstance(guard, Guard) and isinstance(asked, Guard):
        return guard.column == asked.column
    return isinstance(guard, AtPosition) and isinstance(asked, AtPosition)
