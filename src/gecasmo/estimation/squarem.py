"""SQUAREM: from two EM steps, guess where they are heading (Varadhan and Roland 2008).

Works on the vectors of forms, in which logits are linear; the step length is measured in the
Fisher norm of the logits, so a row counts by how often it is flipped.
"""

from __future__ import annotations

import math

from gecasmo.estimation.steps import Lengths


class StepLength:
    """How far to go on along a move; the longest allowed grows with success and shrinks with
    failure."""

    def __init__(self) -> None:
        self.longest = 4.0
        self._used = 1.0

    def choose(self, lengths: Lengths) -> float | None:
        """The step length, or None where there is nothing to gain."""
        if not lengths.bend > 0 or not lengths.step > 0:
            return None
        self._used = min(math.sqrt(lengths.step / lengths.bend), self.longest)
        return self._used if self._used > 1 else None

    def learn(self, accepted: bool) -> None:
        if accepted and self._used == self.longest:
            self.longest *= 4
        elif not accepted:
            # Halved where growth is fourfold: long steps are worth a failure now and then.
            self.longest = max(2.0, self.longest / 2)
