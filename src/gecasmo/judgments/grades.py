"""From relevance to grades, by rules that anybody can check.

What is believed of a pair is a Beta distribution with its relevance and spread. Each pair is
judged, ordered or insufficient.

Cut points between grades are found for any number of pairs with bounded memory.
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

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import GecasmoError, option

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# What is said of a pair.
JUDGED, ORDERED, INSUFFICIENT = "judged", "ordered", "insufficient"

RULES = {
    "informative": "grades say as much about the pairs as their intervals allow",
    "quantile": "grades hold equal shares of the pairs with enough data",
    "quantile-per-query": "grades hold equal shares of the pairs with enough data of each query",
    "threshold": "relevance against fixed cut points",
    "interval": "lower end of the interval against fixed cut points",
}
FIXED_CUTS = ("threshold", "interval")  # the other rules find cut points of their own
_SAME = 1e-9  # relevances that differ by less are equal
MOST_GRADES = 10  # so that a grade is a single digit, which is all that some parsers read
_WEAKEST = 1e-3  # a Beta distribution whose parameters add up to less is as wide as there is
_STRONGEST = 1e12  # and above this there is no telling it from a number

# Cells are so wide on the logit scale, which is 2.5 % of the odds, and reach so far.
_STEP, _REACH = 0.025, 12.0
_EDGES = np.asarray(
    np.arange(-round(_REACH / _STEP), round(_REACH / _STEP) + 1) * _STEP, dtype=np.float64
)
_N_CELLS = len(_EDGES) - 1
# Strengths go by factors of the square root of 2; the last level is for what is certain.
_LEVELS = 64
_FAINTEST = -10.0  # as a power of 2
_CANDIDATES = 64  # cut points to choose from have equal shares of the truth between them
_COARSE = 8  # to place them, every so many edges are looked at
_EVEN = 1e-6  # among cut points that tell the same, bands of equal width are preferred

# Up to so many relevances are kept as they are; of more, a histogram with so many steps.
MOST_EXACT = 10_000_000
_STEPS = 1 << 20
# So many of its values, evenly spread over their order, stand for all.
_STAND_INS = 1 << 20


class JudgmentsError(GecasmoError, ValueError):
    """Judgments cannot be made from this model, or not be written in this way."""


@dataclass(frozen=True)
class Grading:
    """A rule with its cut points: a grade is the number of cut points that a value has reached.

    Attributes
    ----------
    rule : one of `RULES`
    grades : number of grades; the lowest is 0
    cuts : the cut points, ascending, one fewer than there are grades
    by_query : the cut points of queries that have their own ("query", then "cut_1", "cut_2", ...)
    """

    rule: str
    grades: int
    cuts: tuple[float, ...]
    by_query: pl.DataFrame | None = None

    def cuts_of(self, frame: pl.DataFrame) -> Floats:
        """The cut points for each row of a frame, one column each."""
        cuts = np.tile(np.array(self.cuts), (len(frame), 1))
        if self.by_query is not None and len(self.by_query):
            own = frame.select("query").join(
                self.by_query, on="query", how="left", maintain_order="left"
            )
            found = own["cut_1"].is_not_null().to_numpy()
            cuts[found] = own.drop("query").to_numpy()[found]
        return cuts

    def grade(self, values: Floats, frame: pl.DataFrame) -> Ints:
        """The grade of each value, under the cut points of its row."""
        reached: Ints = (values[:, None] >= self.cuts_of(frame)).sum(axis=1)
        return reached

    def chances(self, frame: pl.DataFrame) -> Floats:
        """The probability of each grade for each row, NaN where the spread is not known."""
        return BetaBeliefs.of(frame).chances(self.cuts_of(frame))

    def __str__(self) -> str:
        cuts = ", ".join(f"{cut:.4g}" for cut in self.cuts)
        text = f"{self.rule}: {RULES[self.rule]}; grades 0 to {self.grades - 1}, cut at {cuts}"
        if self.by_query is not None:
            text += f" (own cut points for {len(self.by_query):,} queries)"
        return text

    def to_dict(self) -> dict[str, Any]:
        """Rule, number of grades and cut points, ready for JSON."""
        return {"rule": self.rule, "grades": self.grades, "cuts": list(self.cuts)}


def most_likely(chances: Floats, otherwise: Ints) -> Ints:
    """The most probable grade of each row, the lowest among equals; or another if none is known."""
    return np.where(np.isnan(chances[:, 0]), otherwise, np.argmax(np.nan_to_num(chances), axis=1))


def check_rule(rule: str, grades: int, thresholds: Sequence[float] | None) -> None:
    """Refuse rules that make no sense, before anything is computed."""
    if rule not in RULES:
        raise JudgmentsError(f"{option('rule', rule)}: choose one of {', '.join(RULES)}.")
    if isinstance(grades, bool) or not isinstance(grades, (int, np.integer)):
        raise JudgmentsError(f"{option('grades', grades)}: a whole number is wanted.")
    if not 2 <= grades <= MOST_GRADES:
        raise JudgmentsError(
            f"{option('grades', grades)}: between 2 and {MOST_GRADES} grades are possible; 4 means "
            "0 to 3."
        )
    if thresholds is None:
        return
    if rule not in FIXED_CUTS:
        raise JudgmentsError(
            f"{option('rule', rule)} finds its own cut points; thresholds belong to 'threshold' "
            "and 'interval'."
        )
    cuts = np.asarray(thresholds, dtype=float)
    if cuts.shape != (grades - 1,):
        raise JudgmentsError(
            f"{option('thresholds', list(thresholds))}: {grades} grades want {grades - 1} cut "
            "points."
        )
    if not (np.all(cuts > 0) and np.all(cuts < 1) and np.all(np.diff(cuts) > 0)):
        raise JudgmentsError(
            f"{option('thresholds', list(thresholds))}: cut points ascend and lie between 0 and 1."
        )


def grading_of(
    rule: str, grades: int, cuts: Sequence[float] | None, judged: pl.DataFrame
) -> Grading:
    """The rule with its cut points, by default equal steps.

    `judged` are the pairs there is enough data for: queries may have cut points of their own.
    """
    steps = np.arange(1, grades) / grades
    if cuts is None:
        return Grading(rule, grades, tuple(steps.tolist()))
    cuts = tuple(float(cut) for cut in cuts)
    if rule != "quantile-per-query":
        return Grading(rule, grades, cuts)
    if "query" not in judged.columns:
        raise JudgmentsError(f"{option('rule', rule)}: these judgments know no queries.")
    own = [
        pl.col("relevance").quantile(float(step), interpolation="linear").alias(f"cut_{number}")
        for number, step in enumerate(steps, 1)
    ]
    # Among fewer pairs than grades, equal shares would call a lone document the best there is.
    table = judged.group_by("query", maintain_order=True).agg(pl.len().alias("pairs"), *own)
    table = table.filter(pl.col("pairs") >= grades).drop("pairs")
    return Grading(rule, grades, cuts, _with_fair_ties(table, judged, grades))


def quantile_cuts(values: Floats, grades: int) -> Floats:
    """Cut points that part values into equal shares; equal values go by their middle place.

    A cut point that falls among equal values would lift all of them above it. They only reach it if
    the middle one of them lies beyond it; else it moves up, between them and the next value.
    """
    steps = np.arange(1, grades) / grades
    ordered = np.sort(values)
    cuts: Floats = np.quantile(ordered, steps)
    is_new = np.diff(ordered, prepend=-np.inf) > _SAME
    for number, step in enumerate(steps):
        wanted = step * (len(ordered) - 1)
        place = min(int(np.ceil(wanted - _SAME)), len(ordered) - 1)
        first, last = _equal_values(is_new, place)
        if wanted <= first + _SAME:  # not among equal values
            continue
        if (first + last - 1) / 2 > wanted + _SAME:
            cuts[number] = ordered[first]
        elif last < len(ordered):
            cuts[number] = (ordered[last - 1] + ordered[last]) / 2
        else:
            cuts[number] = np.nextafter(ordered[-1], np.inf)
    return cuts


def _equal_values(is_new: NDArray[np.bool_], place: int) -> tuple[int, int]:
    """From where to before where values equal the one at a place."""
    first = place - int(np.argmax(is_new[place::-1]))
    after = is_new[place + 1 :]
    return first, place + 1 + (int(np.argmax(after)) if after.any() else len(after))


def _with_fair_ties(table: pl.DataFrame, judged: pl.DataFrame, grades: int) -> pl.DataFrame:
    """The cut points of queries, worked out anew for those that have equal relevances."""
    close = pl.col("relevance").sort().diff().min() <= _SAME
    tied = judged.group_by("query").agg(close=close, relevance=pl.col("relevance"))
    tied = tied.filter(pl.col("close")).join(table, on="query", how="semi")
    if tied.is_empty():
        return table
    cuts = [quantile_cuts(values.to_numpy(), grades) for values in tied["relevance"]]
    names = [name for name in table.columns if name != "query"]
    own = pl.DataFrame(np.array(cuts), schema=names, orient="row")
    return table.update(own.with_columns(tied["query"]), on="query")


class BetaBeliefs(NamedTuple):
    """Relevances with what is believed of them; NaN stands for a spread that nobody knows.

    `strength` is the sum of the two parameters of the Beta distribution: infinite for what is
    certain, NaN for what is unknown.
    """

    mean: Floats
    strength: Floats

    @classmethod
    def of(cls, frame: pl.DataFrame) -> BetaBeliefs:
        """The beliefs about each row of a frame with relevance and spread."""
        mean = np.clip(frame["relevance"].to_numpy(), 0.0, 1.0)
        spread = frame["spread"].cast(pl.Float64).fill_null(np.nan).to_numpy()
        return cls.from_moments(mean, spread)

    @classmethod
    def from_moments(cls, mean: Floats, spread: Floats) -> BetaBeliefs:
        """From means and standard deviations."""
        widest, squared = mean * (1 - mean), spread**2
        is_certain = squared * _STRONGEST <= widest
        is_certain |= (widest <= 0) & ~np.isnan(spread)
        strength = widest / np.where(is_certain, 1.0, squared) - 1
        strength = np.where(is_certain, np.inf, np.maximum(strength, _WEAKEST))
        return cls(mean, np.where(np.isnan(spread), np.nan, strength))

    @property
    def is_known(self) -> Flags:
        """Whose spread is known."""
        return ~np.isnan(self.strength)

    @property
    def is_certain(self) -> Flags:
        """Who has no spread at all."""
        return np.isposinf(self.strength)

    @property
    def parameters(self) -> tuple[Floats, Floats]:
        """Both parameters of the Beta distributions; of no use for what is certain."""
        return self.mean * self.strength, (1 - self.mean) * self.strength

    def take(self, places: Any) -> BetaBeliefs:
        """Those at these places, in any shape."""
        return BetaBeliefs(self.mean[places], self.strength[places])

    def below(self, points: Floats) -> Floats:
        """The probability that each is below each point of its row; NaN for what is unknown."""
        from scipy.special import betainc  # not at the top: importing stays light

        points = np.broadcast_to(points, (*self.mean.shape, np.shape(points)[-1]))
        chance = np.full(points.shape, np.nan)
        certain, unsure = self.is_certain, np.isfinite(self.strength)
        chance[certain] = self.mean[certain][..., None] < points[certain]
        a, b = self.take(unsure).parameters
        chance[unsure] = betainc(a[..., None], b[..., None], points[unsure])
        return chance

    def chances(self, cuts: Floats) -> Floats:
        """The probability of each grade: that the truth lies between its cut points."""
        below = self.below(cuts)
        ends = (*below.shape[:-1], 1)
        edges = np.concatenate([np.zeros(ends), below, np.ones(ends)], axis=-1)
        return np.asarray(np.maximum(np.diff(edges, axis=-1), 0.0))


class Crowd:
    """How many pairs there are of which belief."""

    def __init__(self) -> None:
        self.counts = np.zeros(_N_CELLS * _LEVELS, np.int64)

    @property
    def n(self) -> int:
        """How many pairs there are in all."""
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
    level = np.clip(np.rint(2 * (power - _FAINTEST)), 0, _LEVELS - 2)
    level = np.where(known.is_certain, _LEVELS - 1, level).astype(np.int64)
    codes = np.clip(cell, 0, _N_CELLS - 1) * _LEVELS + level
    return np.stack(np.unique(codes, return_counts=True))


def _strength(level: Ints) -> Floats:
    return np.where(level == _LEVELS - 1, np.inf, 2.0 ** (level / 2 + _FAINTEST))


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
        """Whether there are few enough to be kept as they are."""
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
