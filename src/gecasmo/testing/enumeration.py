"""Every way a page can go, by running the program itself for the whole page.

This uses neither automaton nor kernels: it is what the exam believes in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from gecasmo.language.flip import running
from gecasmo.language.parameter import Parameter
from gecasmo.language.user import Result, User
from gecasmo.model import ClickModel

# The row of a coin at a result, given the clicks above; position None means before the first.
Chance = Callable[[str, int | None, Sequence[bool]], float]


class Way(NamedTuple):
    """One way through a page."""

    probability: float
    signals: tuple[frozenset[str], ...]
    reached: tuple[bool, ...]
    flips: tuple[tuple[str, int | None, bool], ...]


class _Chooser:
    def __init__(
        self, parameters: dict[str, Parameter], outcomes: list[bool], chance: Chance
    ) -> None:
        self.parameters = parameters
        self.outcomes = outcomes
        self.chance = chance
        self.used = 0
        self.probability = 1.0
        self.position: int | None = None
        self.clicks: list[bool] = []
        self.guards: Mapping[str, bool] = {}
        self.flips: list[tuple[str, int | None, bool]] = []

    def flip(self, parameter: Parameter) -> bool:
        if self.used == len(self.outcomes):
            self.outcomes.append(True)
        outcome = self.outcomes[self.used]
        self.used += 1
        name = next(n for n, known in self.parameters.items() if known is parameter)
        heads = self.chance(name, self.position, self.clicks)
        self.probability *= heads if outcome else 1 - heads
        self.flips.append((name, self.position, outcome))
        return outcome

    def guard(self, column: str) -> bool:
        return self.guards[column]


def every_way(model: ClickModel, guards: Sequence[Mapping[str, bool]], chance: Chance) -> list[Way]:
    """All ways through a page of `len(guards)` results, with their probabilities."""
    ways = []
    outcomes: list[bool] = []
    while True:
        chooser = _Chooser(model.parameters_by_name, outcomes, chance)
        token = running.set(chooser)
        try:
            signals, reached = _play(model, guards, chooser)
        finally:
            running.reset(token)
        ways.append(Way(chooser.probability, signals, reached, tuple(chooser.flips)))
        while outcomes and not outcomes[-1]:
            outcomes.pop()
        if not outcomes:
            return ways
        outcomes[-1] = False


def _play(
    model: ClickModel, guards: Sequence[Mapping[str, bool]], chooser: _Chooser
) -> tuple[tuple[frozenset[str], ...], tuple[bool, ...]]:
    user = User({}, at_start=True)
    model.start(user)
    attributes: dict[str, Any] = user._state
    has_left: bool = user._has_left
    signals, reached = [], []
    for position, known in enumerate(guards):
        reached.append(not has_left)
        chooser.position, chooser.guards = position, known
        shown: frozenset[str] = frozenset()
        if not has_left:
            user = User(attributes)
            model.browse(user, Result(chooser))
            attributes, has_left, shown = user._state, user._has_left, frozenset(user._signals)
        signals.append(shown)
        chooser.clicks.append("click" in shown)
    return tuple(signals), tuple(reached)
