"""Who runs passes over parts, and where points are kept meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gecasmo.estimation.parts.part import Part, Points
from gecasmo.estimation.parts.passes import run_pass
from gecasmo.estimation.parts.tasks import Answer, Task, combined


class Parts(Protocol):
    """The parts of a log, wherever they are.

    A pass happens as a whole or not at all: afterwards every part has the new point, and those to
    be forgotten may be gone.
    """

    @property
    def n_parts(self) -> int:
        """How many there are."""

    def run(self, task: Task) -> Answer:
        """Run one pass, and add up the answers in the order of the parts."""


class MemoryParts:
    """Parts in memory, one after the other."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = list(parts)
        self.points: list[Points] = [{} for _ in self.parts]

    @property
    def n_parts(self) -> int:
        return len(self.parts)

    def run(self, task: Task) -> Answer:
        answers = []
        for number, part in enumerate(self.parts):
            self.points[number], answer = run_pass(part, self.points[number], task)
            answers.append(answer)
        return combined(answers)
