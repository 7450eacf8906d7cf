"""Cut points between grades for any number of pairs, with bounded memory.

`Relevances` part pairs into equal shares. A `Crowd` finds the cut points where grades tell most
about pairs. A grade tells something about a pair if it is more probable for this pair than for
others. With p(i, g) the probability that the truth of pair i lies in grade g, and p(g) its mean
over all pairs, what grades tell about pairs is their mutual information,

    mean over i of the sum over g of  p(i, g) log2( p(i, g) / p(g) )   bits.

Pairs that rest on the prior alone look alike, and count for little. If all pairs are known exactly,
the best cut points make equal shares; the wider the intervals, the farther apart they are. The sum
goes grade by grade, so the best cut points of all are found, by dynamic programming. Where pairs
cannot be told apart, equal steps are as good as any, and taken.

Pairs are counted in cells of equal belief. Counts add up over parts in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.judgments.grading import BetaBeliefs, quantile_cuts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Cells are so wide on the logit scale, which is 2.5 % of the odds, and reach so far.
_STEP, _REACH = 0.025, 12.0
_EDGES = np.asarray(
    np.arange(-round(_REACH / _STEP), round(_REACH / _STEP) + 1) * _STEP, dtype=np.float64
)
_N_CELLS = len(_EDGES) - 1
# Strengths go by factors of the square root of 2; the last level is for what is certain.
_LEVELS = 64
_WEAKEST = -10.0  # as a power of 2
_CANDIDATES = 64  # cut points to choose from have equal shares of the truth between them
_COARSE = 8  # to place them, every so many edges are looked at
_EVEN = 1e-6  # among cut points that tell the same, bands of equal width are preferred

# Up to so many relevances are kept as they are; of more, a histogram with so many steps.
MOST_EXACT = 10_000_000
_STEPS = 1 << 20
# So many of its values, evenly spread over their order, stand for all.
_STAND_INS = 1 << 20


class Crowd:
    """How many pairs there are of which belief."""

    def __init__(self) -> None:
        self.counts = np.zeros(_N_CELLS * _LEVELS, np.int64)

    @property
    def n(self) -> int:
        return int(self.counts.sum())

    def add(self, found: Ints) -> None:
        """Take in more of them, as `cells` counted them."""
        np.add.at(self.counts, found[0], found[1])

    def cuts(self, grades: int) -> Floats:
        """The cut points where so many grades tell most."""
        used = np.flatnonzero(self.counts)
        cell, level = np.divmod(used, _LEVELS)
        weight: Floats = self.counts[used] / self.n
        beliefs = BetaBeliefs(_expit((_EDGES[cell] + _EDGES[cell + 1]) / 2), _strength(level))
        coarse = np.arange(_COARSE, _N_CELLS, _COARSE)
        share = np.asarray(weight @ beliefs.below(_expit(_EDGES[coarse])))
        wanted = np.arange(1, _CANDIDATES) / _CANDIDATES
        places = np.rint(np.interp(wanted, share, coarse)).astype(np.int64)
        points = np.union1d(_expit(_EDGES[places]), np.arange(1, grades) / grades)
        return points[_best(_told(weight, beliefs, points), grades)]


def cells(beliefs: BetaBeliefs) -> Ints:
    """Which cells the known ones are in, and how many in each."""
    known = beliefs.take(beliefs.is_known)
    inside = np.clip(known.mean, 1e-9, 1 - 1e-9)
    cell = np.searchsorted(_EDGES, np.log(inside / (1 - inside)), side="right") - 1
    power = np.log2(np.where(known.is_certain, 1.0, known.strength))
    level = np.clip(np.rint(2 * (power - _WEAKEST)), 0, _LEVELS - 2)
    level = np.where(known.is_certain, _LEVELS - 1, level).astype(np.int64)
    codes = np.clip(cell, 0, _N_CELLS - 1) * _LEVELS + level
    return np.stack(np.unique(codes, return_counts=True))


def _strength(level: Ints) -> Floats:
    return np.where(level == _LEVELS - 1, np.inf, 2.0 ** (level / 2 + _WEAKEST))


def _expit(values: Any) -> Floats:
    return np.asarray(1 / (1 + np.exp(-values)))


def _told(weight: Floats, beliefs: BetaBeliefs, points: Floats) -> Floats:
    """What a grade from one point to another tells: rows from, columns to, ends included."""
    from scipy.special import xlogy

    below = beliefs.below(points)
    ends = np.zeros((len(weight), 1))
    edges = np.hstack([ends, below, ends + 1])
    width = np.diff(np.concatenate([[0.0], points, [1.0]]))
    until = np.concatenate([[0.0], np.cumsum(width)])
    told = np.full((edges.shape[1],) * 2, -np.inf)
    for first in range(edges.shape[1] - 1):
        own = np.maximum(edges[:, first + 1 :] - edges[:, [first]], 0.0)
        share, wide = weight @ own, until[first + 1 :] - until[first]
        told[first, first + 1 :] = weight @ xlogy(own, own) - xlogy(share, share)
        told[first, first + 1 :] -= _EVEN * xlogy(wide, wide)
    return told


def _best(told: Floats, grades: int) -> Ints:
    """Which points part the line into so many grades that tell most together."""
    best, steps = told[0], []
    for _ in range(grades - 1):
        total = best[:, None] + told
        steps.append(np.argmax(total, axis=0))
        best = np.max(total, axis=0)
    place, found = len(told) - 1, []
    for step in reversed(steps):
        place = int(step[place])
        found.append(place - 1)  # the first edge is 0, which is no candidate
    return np.array(found[::-1], np.int64)


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
