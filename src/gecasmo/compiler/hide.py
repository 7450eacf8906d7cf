"""Make a signal invisible: what a program emits, but nobody who predicts can have seen."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gecasmo.compiler.automaton import Automaton


def hide(automaton: Automaton, signals: Collection[str]) -> Automaton:
    """The same automaton without these signals; the automaton itself if it has none of them."""
    if not set(signals) & set(automaton.signals):
        return automaton
    edges = [
        replace(edge, symbol=tuple(name for name in edge.symbol if name not in signals))
        for edge in automaton.edges
    ]
    kept = tuple(name for name in automaton.signals if name not in signals)
    return replace(automaton, signals=kept, edges=tuple(edges))
