"""From relevance to grades, by rules that anybody can check.

What is believed of a pair is a Beta distribution with its relevance and spread. Each pair is
judged, ordered or insufficient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import GecasmoError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# What is said of a pair.
JUDGED, ORDERED, INSUFFICIENT = "judged", "ordered", "insufficient"

RULES = {
    "informative": "grades tell as much about the pairs as their intervals allow",
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


def check_rule(rule: str, grades: int, thresholds: Sequence[float] | None) -> None:
    """Refuse rules that make no sense, before anything is computed."""
    if rule not in RULES:
        raise JudgmentsError(f"rule={rule!r}: choose one of {', '.join(RULES)}.")
    if isinstance(grades, bool) or not isinstance(grades, (int, np.integer)):
        raise JudgmentsError(f"grades={grades!r}: a whole number is wanted.")
    if not 2 <= grades <= MOST_GRADES:
        raise JudgmentsError(
            f"grades={grades}: between 2 and {MOST_GRADES} grades are possible; 4 means 0 to 3."
        )
    if thresholds is None:
        return
    if rule not in FIXED_CUTS:
        raise JudgmentsError(
            f"rule={rule!r} finds its own cut points; thresholds belong to 'threshold' and "
            "'interval'."
        )
    cuts = np.asarray(thresholds, dtype=float)
    if cuts.shape != (grades - 1,):
        raise JudgmentsError(
            f"thresholds={list(thresholds)!r}: {grades} grades want {grades - 1} cut points."
        )
    if not (np.all(cuts > 0) and np.all(cuts < 1) and np.all(np.diff(cuts) > 0)):
        raise JudgmentsError(
            f"thresholds={list(thresholds)!r}: cut points ascend and lie between 0 and 1."
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
        raise JudgmentsError("rule='quantile-per-query': these judgments know no queries.")
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
        return ~np.isnan(self.strength)

    @property
    def is_certain(self) -> Flags:
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
