"""Would equal starting values keep parts of the hidden state equal for ever?

If states that differ become indistinguishable once all coins have the same probability, then a
fit from equal values can never tell them apart: the components of a mixture stay copies of each
other. Such programs need random starts.
"""

from __future__ import annotations

from dataclasses import replace

from gecasmo.compiler.automaton import Automaton
from gecasmo.compiler.minimise import refine


def has_exchangeable_states(automaton: Automaton) -> bool:
    """Whether calling all coins by one name makes different states the same."""
    one_coin = automaton.with_edges(
        replace(edge, literals=tuple(lit._replace(parameter="coin") for lit in edge.literals))
        for edge in automaton.edges
    )
    return max(refine(one_coin)[-1]) < max(refine(automaton)[-1])
