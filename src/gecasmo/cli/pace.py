"""How long a fit still takes, told from how its gains shrink."""

from __future__ import annotations

import math
from itertools import pairwise

_GAINS = 10  # so many of the last gains are looked at
_FEWEST = 4  # and of fewer nothing is concluded


class Pace:
    """Follows one climb of a fit that stops when an iteration gains less than `tol`.

    Near the optimum the gains of EM shrink by the same factor each iteration, so a line through
    their logarithms says when they will fall below `tol`.
    """

    def __init__(self, tol: float) -> None:
        self.tol = tol
        self.n_climbs = 0
        self._points: list[tuple[int, float, float]] = []

    def note(self, iteration: int, objective: float, seconds: float) -> None:
        """The fit is at this iteration now, so many seconds after it began."""
        if not self._points or iteration < self._points[-1][0]:
            self.n_climbs += 1  # another start, or another round with a better prior
            self._points = []
        self._points.append((iteration, objective, seconds))

    def iterations_left(self) -> float | None:
        """How many iterations are left until convergence; None if nothing can be said yet."""
        points = self._points[-_GAINS - 1 :]
        gains = [
            (after[0], math.log((after[1] - before[1]) / (after[0] - before[0])))
            for before, after in pairwise(points)
            if after[0] > before[0] and after[1] > before[1]
        ]
        if self.tol <= 0 or len(gains) < _FEWEST:
            return None
        x = [float(iteration) for iteration, _ in gains]
        y = [gain for _, gain in gains]
        middle_x, middle_y = sum(x) / len(x), sum(y) / len(y)
        spread = sum((each - middle_x) ** 2 for each in x)
        slope = sum((a - middle_x) * (b - middle_y) for a, b in zip(x, y, strict=True)) / spread
        if slope >= 0:
            return None
        end = middle_x + (math.log(self.tol) - middle_y) / slope
        return max(end - self._points[-1][0], 1.0)

    def seconds_left(self, most: int) -> tuple[float, bool] | None:
        """Seconds until the end, and whether that is only the most it can take."""
        if len(self._points) < 2:
            return None
        first, last = self._points[0], self._points[-1]
        done = last[0] - first[0]
        if done <= 0:
            return None
        each = (last[2] - first[2]) / done
        at_most = float(max(most - last[0], 0))
        left = self.iterations_left()
        if left is None or left >= at_most:
            return each * at_most, True
        return each * left, False
