"""Cut points between grades for any number of pairs, with bounded memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gecasmo.judgments.grading import quantile_cuts

Floats = NDArray[np.float64]

# Up to so many relevances are kept as they are; of more, a histogram with so many steps.
MOST_EXACT = 10_000_000
_STEPS = 1 << 20
# So many of its values, evenly spread over their order, stand for all.
_STAND_INS = 1 << 20


class Relevances:
    """The relevance of all pairs that are to be graded.

    Cut points are exact for up to `most` pairs. Beyond that they are right to about a millionth,
    in relevance and in the share of pairs.
    """

    def __init__(self, most: int = MOST_EXACT) -> None:
        self.most = most
        self.kept: list[Floats] = []
        self.n = 0
        self._counts: NDArray[np.int64] | None = None
        self._sums: Floats | None = None

    @property
    def is_exact(self) -> bool:
        return self._counts is None

    def add(self, values: Floats) -> None:
        """Take in more of them."""
        self.n += len(values)
        self.kept.append(np.array(values))
        if self.n > self.most:
            self._count()

    def cuts(self, grades: int) -> Floats:
        """The points that part them into equal shares, as `quantile_cuts` does."""
        if self._counts is None or self._sums is None:
            return quantile_cuts(np.concatenate(self.kept), grades)
        self._count()
        used = np.flatnonzero(self._counts)
        means = self._sums[used] / self._counts[used]
        places = (np.arange(_STAND_INS) + 0.5) * (self.n / _STAND_INS)
        return quantile_cuts(means[np.searchsorted(np.cumsum(self._counts[used]), places)], grades)

    def _count(self) -> None:
        if self._counts is None or self._sums is None:
            self._counts, self._sums = np.zeros(_STEPS, np.int64), np.zeros(_STEPS)
        for values in self.kept:
            step = np.minimum((values * _STEPS).astype(np.int64), _STEPS - 1)
            self._counts += np.bincount(step, minlength=_STEPS)
            self._sums += np.bincount(step, weights=values, minlength=_STEPS)
        self.kept = []
