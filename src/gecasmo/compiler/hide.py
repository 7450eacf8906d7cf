"""Make a signal invisible: what a program emits, but nobody who predicts can have seen.

Or only where a log has not recorded it. Such results are told by a guard, a yes/no column like any
other; what is not recorded there is then summed over, as all that is not seen.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gecasmo.compiler.automaton import OWN, Automaton, Guard

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


def unrecorded(automaton: Automaton) -> tuple[str, ...]:
    """The signals that an automaton takes to be unrecorded at some results."""
    columns = automaton.guard_columns(with_own=True)
    return tuple(
        column.removeprefix(begin)
        for column in columns
        for begin in (UNRECORDED, UNRECORDED_ON_PAGE)
        if column.startswith(begin)
    )
