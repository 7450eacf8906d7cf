"""How held-out likelihood rises while a method runs; the clock stands still while it is judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

TOLERANCE = 0.001


class Trajectory:
    """Seconds and held-out log-likelihood a page after every iteration."""

    def __init__(self) -> None:
        self.laps: list[float] = []
        self.seconds: list[float] = []
        self.held_out: list[float] = []
        self._so_far = 0.0
        self._began: float | None = None

    def start(self) -> None:
        """Start the clock; what ran since the last start without a stop counts in full."""
        now = time.perf_counter()
        if self._began is not None:
            self._so_far += now - self._began
        self._began = now

    def stop(self, judge: Callable[[], float]) -> None:
        """An iteration is over: stop the clock and judge it."""
        assert self._began is not None
        lap = time.perf_counter() - self._began
        self._began = None
        self._so_far += lap
        self.laps.append(lap)
        self.seconds.append(self._so_far)
        self.held_out.append(judge())

    def figures(self, n_pages: int) -> dict[str, Any]:
        place = place_of_limit(self.held_out)
        return {
            "n_pages": n_pages,
            "pages_per_second": n_pages / median(self.laps),
            "iterations": len(self.laps),
            "limit": self.held_out[-1],
            "held_out": self.held_out[-1],
            "iterations_to_limit": place + 1,
            "seconds_to_limit": self.seconds[place],
            "trajectory": list(zip(self.seconds, self.held_out, strict=True)),
        }


def place_of_limit(held_out: Sequence[float], limit: float | None = None) -> int:
    """From which iteration on the score never falls short of the limit by more than 0.001."""
    limit = held_out[-1] if limit is None else limit
    short = [n for n, score in enumerate(held_out) if score < limit - TOLERANCE]
    return short[-1] + 1 if short else 0
