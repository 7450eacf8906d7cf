"""A panel of judges beside clicks: who is trusted how far, and what is believed of each pair then.

Judges are heard one after the other, who has most pairs in common with clicks first. Each is
learned twice: alone, which is what is told of it, and given what those before it said, which is
what it adds. Judges that are noise, or add nothing, change nothing; of whom clicks say nothing is
believed as judges usually can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.judgments.grade_tables import Judge
from gecasmo.judgments.grades import BetaBeliefs
from gecasmo.judgments.trust import (
    LEVEL,
    POINTS,
    RELEVANCE,
    SLOPE,
    STEP,
    Scale,
    Trust,
    UnseenLevel,
    learn,
    masses,
)
from gecasmo.model.answers import beta_interval
from gecasmo.model.fit_pairs import PAIR

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
# Means and deviations of pairs, [pair, draw], when what pairs have in common is drawn.
Draws = Callable[[pl.DataFrame], tuple[Floats, Floats]]

_MOST_PAIRS = 20_000  # to learn from
_MOST_OTHERS = 4_000  # pairs that no page shows
# These are worth no more together than those that were shown; but at least so much.
_LEAST_WORTH = 20.0
_FOR_LEVEL = 500  # pairs that tell the level of those that no page shows
# The share of the fit's own doubt about the level of pairs that no page shows that is left to
# judges. With all of it, judges of simulated logs lifted these pairs, and the order got worse.
_LEFT_TO_JUDGES = 0.1
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


class UnseenPairs(NamedTuple):
    """What the fit believes of pairs that no page shows: mean logits, theirs and of those shown;
    the same by draw of what pairs have in common; and the shape of their beliefs, around the mean
    of the scale."""

    now: float
    drawn: Floats
    shown: Floats
    shape: Floats

    @classmethod
    def of(
        cls, sample: pl.DataFrame, others: pl.DataFrame, scale: Scale, ask: Draws
    ) -> UnseenPairs:
        """Ask about some of both."""
        levels, shapes = [], []
        for frame in (sample, others):
            some = frame.sample(_FOR_LEVEL, seed=4) if len(frame) > _FOR_LEVEL else frame
            drawn = zip(*(own.T for own in ask(some)), strict=True)
            crowds = [masses(BetaBeliefs.from_moments(*own)).mean(axis=0) for own in drawn]
            levels.append(np.array([crowd @ POINTS for crowd in crowds]))
            shapes.append(crowds)
        moved = [
            _moved(crowd, scale.mean - level)
            for crowd, level in zip(shapes[1], levels[1], strict=True)
        ]
        now = float(masses(BetaBeliefs.of(others)).mean(axis=0) @ POINTS)
        return cls(now, levels[1], levels[0], np.mean(moved, axis=0))

    def level(self, scale: Scale) -> UnseenLevel:
        """Their level as z: where the fit has put it, with little doubt left to judges."""
        above = (self.drawn - self.shown) / scale.spread
        return UnseenLevel(float(above.mean()), _LEFT_TO_JUDGES * max(float(above.std()), 1.0))


class _Learning(NamedTuple):
    """What judges are learned from: pairs that were shown, then others."""

    frame: pl.DataFrame
    mass: Floats
    n_shown: int
    level: UnseenLevel | None


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
        if self.judge.is_ordered and self.alone.found[SLOPE] < 0:
            return "trusted, inverted: its low grades are the good ones"
        return "trusted"


@dataclass(frozen=True)
class Panel:
    """All judges in the order in which they are heard."""

    heard: tuple[Heard, ...]
    scale: Scale
    crowd: Floats  # what is believed of pairs with clicks, on average
    sample: pl.DataFrame  # the pairs that it was learned from
    unseen: UnseenPairs | None = None  # of pairs that no page shows, if there are any beside others

    @classmethod
    def learned(cls, judges: Sequence[Judge], frame: pl.DataFrame, ask: Draws) -> Panel:
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
        level = None
        if len(unseen):  # none of them tells how judges go with relevance
            unseen[:] = unseen.mean(axis=0)
        if len(unseen) and len(mass):
            panel = replace(panel, unseen=UnseenPairs.of(sample, others, panel.scale, ask))
            assert panel.unseen is not None
            unseen[:], level = panel.unseen.shape, panel.unseen.level(panel.scale)
        both = pl.concat([sample, others]), np.concatenate([mass, unseen])
        pairs = _Learning(*both, len(sample), level)
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
            weight = _weight(shown)
            by = (grade, n_grades, self.scale)
            alone = after = learn(mass, *by, order, None, weight, ~shown, pairs.level)
            follows = None if alone.is_noise else self._nearest(own, grade)
            if follows is not None:
                # What others said is known of the pairs by then, beside clicks.
                levels = self.levels
                if levels is not None:
                    above = float(levels.mean()) * self.scale.spread
                    mass = np.where(shown[:, None], mass, _moved(mass, above))
                mass = mass * self.likelihoods(own)
                mass /= mass.sum(axis=1, keepdims=True)
                after = learn(mass, *by, alone.order, _said(own, follows), weight)
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

    @property
    def levels(self) -> Floats | None:
        """The levels of pairs that no page shows, as z, by draw; None if judges tell nothing."""
        if self.unseen is None:
            return None
        first = next((one.after for one in self.heard if one.counts and one.follows is None), None)
        return None if first is None else first.draws[:, LEVEL]

    def trusted(self, frame: pl.DataFrame) -> NDArray[np.bool_]:
        """Which pairs somebody graded who changes something."""
        found = np.zeros(len(frame), bool)
        for one in self.heard:
            if one.counts:
                found |= frame[said_column(one.number)].is_not_null().to_numpy()
        return found

    def changed(self, frame: pl.DataFrame) -> NDArray[np.bool_]:
        """Which pairs judges change: those that they graded, and all that no page shows, of whose
        level judges tell something."""
        found = self.trusted(frame)
        if self.levels is not None:
            found |= ~is_checked(frame).to_numpy()
        is_unsure: NDArray[np.bool_] = (
            frame["spread"].cast(pl.Float64).fill_null(0.0) > 0
        ).to_numpy()
        return found & is_unsure

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
        self, frame: pl.DataFrame, drawn: tuple[Floats, Floats] | None = None
    ) -> tuple[Floats, Floats]:
        """Means and standard deviations of the relevance of pairs, from what clicks say of them.

        With `drawn`, `[pair, draw]`, these are what clicks say, and what is not known of judges is
        drawn, too: the answer has the same shape.
        """
        if drawn is None:
            mean = frame["relevance"].to_numpy().copy()
            spread = frame["spread"].cast(pl.Float64).fill_null(np.nan).to_numpy().copy()
            for some in _pieces(np.flatnonzero(self.changed(frame))):
                own = self._moved_by_all(frame[some])
                mean[some], spread[some] = _placed(mean[some], spread[some], *own)
            return mean, spread
        means, spreads = np.array(drawn[0]), np.array(drawn[1])
        for some in _pieces(np.flatnonzero(self.changed(frame))):
            part, unseen = frame[some], ~is_checked(frame[some]).to_numpy()
            for draw in range(means.shape[1]):
                mean, spread = means[some, draw], spreads[some, draw]
                before = masses(BetaBeliefs.from_moments(mean, np.maximum(spread, 1e-6)))
                after = before
                if self.levels is not None and self.unseen is not None:
                    target = self.unseen.shown[draw] + self.levels[draw] * self.scale.spread
                    after = before.copy()
                    after[unseen] = _moved(before[unseen], target - self.unseen.drawn[draw])
                after = _normed(after * self.likelihoods(part, draw))
                means[some, draw], spreads[some, draw] = _placed(mean, spread, before, after)
        return means, spreads

    def _moved_by_all(self, frame: pl.DataFrame) -> tuple[Floats, Floats]:
        """What is believed of pairs by clicks, by point, and by all."""
        before = masses(BetaBeliefs.of(frame))
        after = before * self.likelihoods(frame)
        unseen = np.flatnonzero(~is_checked(frame).to_numpy())
        if self.levels is not None and self.unseen is not None and len(unseen):
            # Trust and level go together, so they are averaged over together.
            total, part = np.zeros((len(unseen), len(POINTS))), frame[unseen]
            for draw, level in enumerate(self.levels):
                above = self.scale.mean + level * self.scale.spread - self.unseen.now
                total += _moved(before[unseen], above) * self.likelihoods(part, draw)
            after[unseen] = total
        return before, _normed(after)

    def blended(self, frame: pl.DataFrame, level: float) -> pl.DataFrame:
        """Believe both, clicks and judges: relevance, spread, interval, and what they rest on."""
        mean, spread = self.moments(frame)
        low, high = beta_interval(mean, spread, level)
        has_interval = frame["low"].is_not_null()
        changed = pl.Series("changed", self.changed(frame)) & has_interval
        graded = pl.Series("graded", self.trusted(frame)) & has_interval
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
            graded.alias(BY_JUDGES),
        )

    def of_judge_alone(self, one: Heard) -> tuple[Floats, Floats, Floats]:
        """By grade of one judge: beliefs without clicks, a row of points each; mean and deviation
        of their logits."""
        assert one.alone is not None
        chance = one.alone.chances()[0]
        belief = self.crowd * chance
        belief /= belief.sum(axis=1, keepdims=True)
        mean = belief @ POINTS
        return belief, mean, np.sqrt(np.maximum(belief @ POINTS**2 - mean**2, 1e-12))


def _weight(shown: NDArray[np.bool_]) -> Floats:
    """How much pairs count: one each if they were shown; others at most as much together."""
    n_shown, n_others = int(shown.sum()), int((~shown).sum())
    worth = max(float(n_shown), _LEAST_WORTH)
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


def _normed(mass: Floats) -> Floats:
    return np.asarray(mass / mass.sum(axis=1, keepdims=True))


def _moved(mass: Floats, by: float) -> Floats:
    """Beliefs that lie so much higher, to the next cell; the outer cells hold what is beyond."""
    cells = int(np.clip(np.rint(by / STEP), 1 - len(POINTS), len(POINTS) - 1))
    found = np.zeros_like(mass)
    if cells >= 0:
        found[..., cells:] = mass[..., : mass.shape[-1] - cells]
        found[..., -1] += mass[..., mass.shape[-1] - cells :].sum(axis=-1)
    else:
        found[..., :cells] = mass[..., -cells:]
        found[..., 0] += mass[..., :-cells].sum(axis=-1)
    return found


def _placed(mean: Floats, spread: Floats, before: Floats, after: Floats) -> tuple[Floats, Floats]:
    """Mean and deviation by how cells have changed. Beliefs that are narrower than a cell keep
    their place in it, and their width."""
    old, old_square = _squares(before)
    new, new_square = _squares(after)
    ratio = np.clip(new_square / np.maximum(old_square, 1e-15), 1e-6, 1e6)
    place = new + (mean - old) * np.minimum(ratio, 1.0)
    return np.clip(place, 1e-9, 1 - 1e-9), spread * np.sqrt(ratio)
