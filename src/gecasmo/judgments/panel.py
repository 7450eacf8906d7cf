"""A panel of judges beside clicks: who is trusted how far, and what is believed of each pair then.

Judges are heard one after the other, who has most pairs in common with clicks first. Each is
learned twice: alone, which is what is told of it, and given what those before it said, which is
what it adds. Judges that are noise, or add nothing, change nothing; of whom clicks say nothing is
believed as judges usually can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.judgments.grade_tables import Judge
from gecasmo.judgments.grades import BetaBeliefs
from gecasmo.judgments.trust import N_DRAWS, RELEVANCE, Scale, Trust, learn, masses
from gecasmo.model.answers import beta_interval
from gecasmo.model.fit_pairs import PAIR

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_MOST_PAIRS = 20_000  # to learn from
_MOST_OTHERS = 4_000  # pairs that no page shows
# What these are worth together, in pairs that were shown: for how often grades are given, and for
# how they go with those of another judge.
_WORTH_ALONE, _WORTH_AFTER = 20.0, 200.0
_OPEN = 0.1  # a doubt that is worth a word
_FEWEST = 10  # pairs in common of two judges that are compared
_AT_ONCE = 20_000  # pairs whose beliefs are in memory, cell by cell
BY_JUDGES = "*by judges*"  # a column: whether somebody who is trusted graded the pair


def said_column(number: int) -> str:
    """The column with what a judge said, by its number in the order given; null for nothing."""
    return f"*judge {number}*"


def with_grades(frame: pl.DataFrame, judges: Sequence[Judge]) -> pl.DataFrame:
    """Add what each judge said of the pairs."""
    keys = [name for name in PAIR if name in frame.columns]
    for number, judge in enumerate(judges):
        said = judge.frame.rename({"grade": said_column(number)})
        frame = frame.join(said, on=keys, how="left", maintain_order="left")
    return frame


def is_checked(frame: pl.DataFrame) -> pl.Series:
    """Which pairs clicks tell something about, so that judges can be held against them."""
    has_clicks = (frame["examinations"] > 0) & frame["low"].is_not_null()
    return has_clicks & frame["spread"].is_not_null()


class _Learning(NamedTuple):
    """What judges are learned from: pairs that were shown, then others."""

    frame: pl.DataFrame
    mass: Floats
    n_shown: int


class Heard(NamedTuple):
    """A judge, and what was learned of it alone and after others.

    `alone` and `after` are None if nothing can be learned: the order of words takes clicks.
    """

    number: int  # in the order given
    judge: Judge
    alone: Trust | None
    after: Trust | None
    follows: int | None = None  # the number of the judge that it is compared with
    is_checked: bool = True  # whether it has pairs in common with clicks

    @property
    def is_told(self) -> bool:
        """Whether it says something by itself."""
        return self.alone is not None and not self.alone.is_noise

    @property
    def counts(self) -> bool:
        """Whether it changes anything."""
        return self.after is not None and not self.after.is_noise

    @property
    def verdict(self) -> str:
        """What becomes of it, in words."""
        if self.alone is None:
            return "unchecked: no clicks tell the order of its words; changes nothing"
        if not self.is_checked:
            return "unchecked: no pair in common with clicks; believed as judges usually can be"
        if self.alone.is_noise:
            return "no better than noise, by clicks; changes nothing"
        if not self.counts:
            return "repeats another judge; adds nothing"
        if self.alone.doubt > _OPEN:
            return f"believed in part: it is noise with a probability of {self.alone.doubt:.0%}"
        if self.judge.is_ordered and self.alone.found[-2] < 0:
            return "trusted, inverted: its low grades are the good ones"
        return "trusted"


@dataclass(frozen=True)
class Panel:
    """All judges in the order in which they are heard."""

    heard: tuple[Heard, ...]
    scale: Scale
    crowd: Floats  # what is believed of pairs with clicks, on average
    sample: pl.DataFrame  # the pairs that it was learned from

    @classmethod
    def learned(cls, judges: Sequence[Judge], frame: pl.DataFrame) -> Panel:
        """Learn it from pairs: their relevance and spread by clicks, and what judges said."""
        names = [said_column(number) for number in range(len(judges))]
        known = frame.filter(frame["spread"].is_not_null())
        if names:
            known = known.filter(pl.any_horizontal(pl.col(names).is_not_null()))
        # Parts come in another order than all at once.
        known = known.sort([name for name in PAIR if name in known.columns])
        sample, others = known.filter(is_checked(known)), known.filter(~is_checked(known))
        if len(sample) > _MOST_PAIRS:
            sample = sample.sample(_MOST_PAIRS, seed=1)
        if len(others) > _MOST_OTHERS:
            others = others.sample(_MOST_OTHERS, seed=1)
        mass, unseen = masses(BetaBeliefs.of(sample)), masses(BetaBeliefs.of(others))
        told = mass if len(mass) else unseen
        told = told if len(told) else masses(BetaBeliefs(np.array([0.5]), np.array([1.0])))
        counts = [sample[name].count() for name in names]
        order = sorted(range(len(judges)), key=lambda number: -counts[number])
        panel = cls((), Scale.of(told), told.mean(axis=0), sample)
        if len(unseen):  # none of them tells how judges go with relevance
            unseen[:] = unseen.mean(axis=0)
        pairs = _Learning(pl.concat([sample, others]), np.concatenate([mass, unseen]), len(sample))
        for number in order:
            panel = panel._hear(number, judges[number], pairs)
        return panel

    def _hear(self, number: int, judge: Judge, pairs: _Learning) -> Panel:
        """Hear one more judge, who is learned from these pairs."""
        said = pairs.frame[said_column(number)]
        graded = said.is_not_null()
        grade = said.drop_nulls().to_numpy().astype(np.int64)
        shown = (np.arange(len(said)) < pairs.n_shown)[graded.to_numpy()]
        alone = after = None
        follows = None
        if shown.any() or (len(grade) and judge.is_ordered):
            own, mass = pairs.frame.filter(graded), pairs.mass[graded.to_numpy()]
            n_grades = len(judge.labels)
            order = np.arange(n_grades) if judge.is_ordered else None
            weight = _weight(shown, _WORTH_ALONE)
            alone = after = learn(mass, grade, n_grades, self.scale, order, None, weight)
            follows = None if alone.is_noise else self._nearest(own, grade)
            if follows is not None:
                # What others said is known of the pairs by then, beside clicks.
                mass = mass * self.likelihoods(own)
                mass /= mass.sum(axis=1, keepdims=True)
                other, weight = _said(own, follows), _weight(shown, _WORTH_AFTER)
                after = learn(mass, grade, n_grades, self.scale, alone.order, other, weight)
        one = Heard(number, judge, alone, after, follows, bool(shown.any()))
        return replace(self, heard=(*self.heard, one))

    def _nearest(self, frame: pl.DataFrame, grade: Ints) -> int | None:
        """The judge heard before whose grades tell most about these, if any does."""
        best, found = 0.0, None
        for one in self.heard:
            other = _said(frame, one.number)
            both = other > 0
            if one.is_told and both.sum() >= _FEWEST:
                told = _information(other[both], grade[both])
                if told > best:
                    best, found = told, one.number
        return found

    @property
    def judges(self) -> list[Heard]:
        """In the order given."""
        return sorted(self.heard, key=lambda one: one.number)

    def trusted(self, frame: pl.DataFrame) -> NDArray[np.bool_]:
        """Which pairs somebody graded who changes something."""
        found = np.zeros(len(frame), bool)
        for one in self.heard:
            if one.counts:
                found |= frame[said_column(one.number)].is_not_null().to_numpy()
        return found

    def likelihoods(self, frame: pl.DataFrame, draw: int | None = None) -> Floats:
        """How probable what judges said of each pair is, by point."""
        found = np.ones((len(frame), len(RELEVANCE)))
        for one in self.heard:
            if one.after is None or not one.counts:
                continue
            grade = _said(frame, one.number) - 1
            graded = np.flatnonzero(grade >= 0)
            other = np.zeros(len(graded), np.int64)
            chances = one.after.chances(draw)
            if one.follows is not None:
                other = _said(frame, one.follows)[graded]
                other = np.where(other < len(chances), other, 0)  # what nobody learned from
            found[graded] *= chances[other, grade[graded]]
        return found

    def moments(
        self, frame: pl.DataFrame, draws: Sequence[int | None] = (None,)
    ) -> list[tuple[Floats, Floats]]:
        """Means and standard deviations of the relevance of pairs, from what clicks say of them.

        Of each draw, of `N_DRAWS`, as if judges were known to be as in it; None is for all.
        """
        mean = frame["relevance"].to_numpy()
        spread = frame["spread"].cast(pl.Float64).fill_null(np.nan).to_numpy()
        found = [(mean.copy(), spread.copy()) for _ in draws]
        places = np.flatnonzero(self.trusted(frame) & np.isfinite(spread) & (spread > 0))
        for some in _pieces(places):
            part = frame[some]
            before = masses(BetaBeliefs.of(part))
            old, old_square = _squares(before)
            for (own_mean, own_spread), draw in zip(found, draws, strict=True):
                after = before * self.likelihoods(part, draw)
                after /= after.sum(axis=1, keepdims=True)
                new, new_square = _squares(after)
                # Beliefs that are narrower than a cell keep their place in it, and their width.
                ratio = np.clip(new_square / np.maximum(old_square, 1e-15), 1e-6, 1e6)
                place = new + (mean[some] - old) * np.minimum(ratio, 1.0)
                own_mean[some] = np.clip(place, 1e-9, 1 - 1e-9)
                own_spread[some] = spread[some] * np.sqrt(ratio)
        return found

    def blended(self, frame: pl.DataFrame, level: float) -> pl.DataFrame:
        """Believe both, clicks and judges: relevance, spread, interval, and what they rest on."""
        counts = self.trusted(frame)
        ((mean, spread),) = self.moments(frame)
        low, high = beta_interval(mean, spread, level)
        changed = pl.Series("changed", counts) & frame["low"].is_not_null()
        names = [
            pl.when(pl.col(said_column(one.number)).is_not_null()).then(pl.lit(one.judge.name))
            for one in self.judges
            if one.counts
        ]
        rests_on = frame["rests_on"]
        if names:
            both = pl.concat_str(["rests_on", *names], separator=" + ", ignore_nulls=True)
            rests_on = frame.select(both.alias("rests_on"))["rests_on"]
        told = {"relevance": mean, "spread": spread, "low": low, "high": high}
        return frame.with_columns(
            *(
                pl.when(changed)
                .then(pl.Series(name, own).fill_nan(None))
                .otherwise(name)
                .alias(name)
                for name, own in told.items()
            ),
            rests_on,
            changed.alias(BY_JUDGES),
        )

    def of_judge_alone(self, one: Heard) -> tuple[Floats, Floats, Floats]:
        """By grade of one judge: beliefs without clicks, a row of points each; mean and deviation
        of their logits."""
        from gecasmo.judgments.trust import POINTS

        assert one.alone is not None
        chance = one.alone.chances()[0]
        belief = self.crowd * chance
        belief /= belief.sum(axis=1, keepdims=True)
        mean = belief @ POINTS
        return belief, mean, np.sqrt(np.maximum(belief @ POINTS**2 - mean**2, 1e-12))


def _weight(shown: NDArray[np.bool_], worth: float) -> Floats:
    """How much pairs count: one each if they were shown, others so much together, at most."""
    n_others = int((~shown).sum())
    return np.where(shown, 1.0, min(1.0, worth / max(n_others, 1)))


def _said(frame: pl.DataFrame, number: int) -> Ints:
    """What a judge said of each pair: 1 and more, or 0 for nothing."""
    return (frame[said_column(number)].cast(pl.Int64) + 1).fill_null(0).to_numpy()


def _information(one: Ints, other: Ints) -> float:
    """The mutual information of two grades of each pair, less what chance makes of it."""
    table = np.zeros((one.max() + 1, other.max() + 1))
    np.add.at(table, (one, other), 1.0)
    share = table / table.sum()
    apart = share.sum(axis=1, keepdims=True) * share.sum(axis=0)
    used = share > 0
    told = float((share[used] * np.log(share[used] / apart[used])).sum())
    free = (np.count_nonzero(table.sum(axis=1)) - 1) * (np.count_nonzero(table.sum(axis=0)) - 1)
    return told - free / (2 * len(one))


def _pieces(places: Ints) -> Iterator[Ints]:
    return (places[first : first + _AT_ONCE] for first in range(0, len(places), _AT_ONCE))


def _squares(mass: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of relevance, by row."""
    mean = mass @ RELEVANCE
    return mean, np.maximum(mass @ RELEVANCE**2 - mean**2, 0.0)


def draws_of(panel: Panel) -> Sequence[int | None]:
    """The draws that stand for what is not known of judges."""
    return range(N_DRAWS) if any(one.counts for one in panel.heard) else (None,)
