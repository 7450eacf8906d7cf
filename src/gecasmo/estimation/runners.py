"""Who runs passes over the parts of a log, and where points are kept meanwhile."""

from __future__ import annotations

from typing import Protocol

from gecasmo.estimation.part import Part, Points
from gecasmo.estimation.passes import run_pass
from gecasmo.estimation.tasks import Answer, Task, combined


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
    """A log in memory: one part."""

    def __init__(self, part: Part, points: Points | None = None) -> None:
        self.whole = part
        self.points: Points = dict(points or {})
        self.n_parts, self.numbers = 1, (part.number,)

    def run(self, task: Task) -> Answer:
        """Run one pass."""
        self.points, answer = run_pass(self.whole, self.points, task)
        return combined([answer])

    def part(self, number: int) -> Part:
        """The one part there is."""
        return self.whole
