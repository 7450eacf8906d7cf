"""Would equal starting values keep parts of a model equal for ever?

A fit from equal values stays there where that is a point of balance: the components of a mixture
remain copies of each other, and so do two coins between which a third one chooses. Such programs
need random starts.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

from gecasmo.compiler.automaton import Automaton, Edge
from gecasmo.compiler.merge import merge
from gecasmo.compiler.minimise import minimise, refine


def is_exchangeable(automaton: Automaton, kinds: Mapping[str, Hashable]) -> bool:
    """Whether a fit from equal values would never tell parts of the hidden data apart.

    Coins of one kind (`kinds`, by name) begin with the same values for the same keys.
    """
    return has_exchangeable_states(automaton) or has_exchangeable_coins(automaton, kinds)


def has_exchangeable_states(automaton: Automaton) -> bool:
    """Whether calling all coins by one name makes different states the same."""
    one_coin = _renamed(automaton, dict.fromkeys(automaton.parameters, "coin"))
    return max(refine(one_coin)[-1]) < max(refine(automaton)[-1])


def has_exchangeable_coins(automaton: Automaton, kinds: Mapping[str, Hashable]) -> bool:
    """Whether calling coins of one kind by one name makes another coin vanish.

    As long as these coins are equal no page tells anything of the one that chooses between them, so
    that it stays where it is, and they get equal shares of everything. A coin of which only some
    flips vanish is moved by its others, and takes the rest along.
    """
    first: dict[Hashable, str] = {}
    names = {coin: first.setdefault(kinds[coin], coin) for coin in automaton.parameters}
    if len(first) == len(names):
        return False
    told = {names[coin] for coin in _coins_that_matter(automaton)}
    return not told <= _coins_that_matter(_renamed(automaton, names))


def mixing_coins(automaton: Automaton) -> list[str]:
    """Coins flipped before the first result that clicks can tell something of: kinds of pages."""
    merged = merge(minimise(automaton))
    started = {literal.parameter for edge in merged.initial for literal in edge.literals}
    return [coin for coin in automaton.parameters if coin in started]


def _renamed(automaton: Automaton, names: Mapping[str, str]) -> Automaton:
    def rename(edge: Edge) -> Edge:
        literals = (x._replace(parameter=names[x.parameter]) for x in edge.literals)
        return replace(edge, literals=tuple(literals))

    return automaton.with_edges(map(rename, automaton.edges), map(rename, automaton.initial))


def _coins_that_matter(automaton: Automaton) -> set[str]:
    merged = merge(minimise(automaton))
    edges = (*merged.initial, *merged.edges)
    return {literal.parameter for edge in edges for literal in edge.literals}
