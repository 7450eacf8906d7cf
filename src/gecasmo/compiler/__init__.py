"""Model -> trace -> automaton -> the staircase that kernels are generated from.

    trace      a program, run under every outcome of its flips, becomes an automaton
    prune      states that cannot be reached go
    minimise   states with the same future become one
    merge      flips that change nothing are forgotten
    close      towards the end of a page even more is the same

`trace` needs a program; all else works on automata, so the paper's matrices take the same road.
"""

from __future__ import annotations

from gecasmo.compiler.automaton import AtPosition, Automaton, Edge, Guard, Literal
from gecasmo.compiler.close import Staircase, close, unclosed
from gecasmo.compiler.merge import merge
from gecasmo.compiler.minimise import minimise, refine
from gecasmo.compiler.prune import prune
from gecasmo.compiler.trace import trace


def minimal(traced: Automaton) -> Staircase:
    """The smallest hidden data with the likelihood of `traced`."""
    pruned = prune(traced)
    return close(pruned, refine(pruned))


def full(traced: Automaton) -> Staircase:
    """Every flip the program makes is hidden data."""
    return unclosed(prune(traced))


__all__ = [
    "AtPosition",
    "Automaton",
    "Edge",
    "Guard",
    "Literal",
    "Staircase",
    "close",
    "full",
    "merge",
    "minimal",
    "minimise",
    "prune",
    "refine",
    "trace",
    "unclosed",
]
