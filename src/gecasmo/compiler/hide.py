"""Make a signal invisible: what a program emits, but nobody who predicts can have seen.

Or only where a log has not recorded it. Such results are told by a guard, a yes/no column like any
other; what is not recorded there is then summed over, as all that is not seen. Numbers that users
are seen through (`user.observe`) are hidden in the same way where a log has none.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gecasmo.compiler.automaton import OWN, RECORDED, Automaton, Edge, Guard

# How the column is called that says where a signal was not recorded; no column of a log is.
UNRECORDED = OWN + "not recorded: "
UNRECORDED_ON_PAGE = OWN + "not recorded on the page: "


def hide(automaton: Automaton, signals: Collection[str]) -> Automaton:
    """The same automaton without these signals; the automaton itself if it has none of them."""
    if not set(signals) & set(automaton.signals):
        return automaton
    edges = [
        replace(edge, symbol=tuple(name for name in edge.symbol if name not in signals))
        for edge in automaton.edges
    ]
    kept = tuple(name for name in automaton.signals if name not in signals)
    of_page = tuple(name for name in automaton.page_signals if name not in signals)
    return replace(automaton, signals=kept, page_signals=of_page, edges=tuple(edges))


def hide_where_unrecorded(automaton: Automaton, signals: Collection[str]) -> Automaton:
    """The automaton for logs that have not recorded these signals at some results."""
    edges = list(automaton.edges)
    for signal in signals:
        is_of_page = signal in automaton.page_signals
        column = (UNRECORDED_ON_PAGE if is_of_page else UNRECORDED) + signal
        seen = [replace(edge, guards=(*edge.guards, Guard(column, False))) for edge in edges]
        unseen = [
            replace(
                edge,
                symbol=tuple(name for name in edge.symbol if name != signal),
                guards=(*edge.guards, Guard(column, True)),
            )
            for edge in edges
        ]
        edges = [*seen, *unseen]
    return automaton.with_edges(edges)


def hide_where_unobserved(automaton: Automaton, columns: Collection[str]) -> Automaton:
    """The automaton for logs that have numbers in these columns, at some results.

    Where there is none, a density is left out of its edges: flips that only it would tell of are
    then forgotten, as in a program that observes nothing. Where there is one, only those edges are
    possible that observe it, as far as others show the same signals; where no edge of a signal
    observes anything there is nothing to be told apart (and `recorded_where_unseen` finds numbers
    that have no business there).
    """
    edges = list(automaton.edges)
    for column in automaton.observed_columns():
        own = {parameter for parameter, name in automaton.observes if name == column}
        if column not in columns:
            edges = [_without(edge, own) for edge in edges]
            continue
        seen = [edge for edge in edges if any(lit.parameter in own for lit in edge.literals)]
        telling = {edge.symbol for edge in seen}
        yes, no = (Guard(RECORDED + column, value) for value in (True, False))
        found = []
        for edge in edges:
            if edge.symbol not in telling:
                found.append(edge)
                continue
            if edge in seen:
                found.append(replace(edge, guards=(*edge.guards, yes)))
            found.append(replace(_without(edge, own), guards=(*edge.guards, no)))
        edges = found
    return automaton.with_edges(edges)


def without_numbers(automaton: Automaton) -> Automaton:
    """The automaton of the same users, through no number of whom anybody looks."""
    observed = dict(automaton.observes)
    parameters = tuple(name for name in automaton.parameters if name not in observed)
    bare = hide_where_unobserved(automaton, ())
    return replace(bare, parameters=parameters, observes=())


def _without(edge: Edge, parameters: Collection[str]) -> Edge:
    kept = tuple(literal for literal in edge.literals if literal.parameter not in parameters)
    return edge if len(kept) == len(edge.literals) else replace(edge, literals=kept)


def unrecorded(automaton: Automaton) -> tuple[str, ...]:
    """The signals that an automaton takes to be unrecorded at some results."""
    columns = automaton.guard_columns(with_own=True)
    return tuple(
        column.removeprefix(begin)
        for column in columns
        for begin in (UNRECORDED, UNRECORDED_ON_PAGE)
        if column.startswith(begin)
    )
