"""Priors of tables that are learned from the log: a small regression over what tells rows apart.

A row has p ~ Beta(s m, s (1 - m)), where logit m is a level, plus smooth functions of what is
typical of the row (its mean rank, how often it is shown), plus an effect of each of its key columns
(its document in all queries, its query). How far effects and functions stray from zero is learned
too, and may be nothing at all. log s, the strength, is a level plus smooth functions likewise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.averages import EXPOSURE, IMPRESSIONS, PAGES, smoothed_share
from gecasmo.encoding.match import match
from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError
from gecasmo.forms.form import Floats
from gecasmo.forms.typical import (
    OF_DOCUMENT,
    PLACE,
    Levels,
    SmoothFunction,
    beyond_pages,
    level_means,
    levels_of,
    page_lengths,
    place_elsewhere,
    with_place,
)

Integers = NDArray[np.int64]

# Fewer levels with several rows say nothing of how far levels stray.
FEWEST_LEVELS = 6
FARTHEST = 9.0  # the logit of a mean
# Strengths, as logarithms of flips.
WEAKEST, STRONGEST = np.log(0.05), np.log(1e4)
_ENOUGH = 20_000  # rows
# Rows that no page ever shows go on where the function of places ends, for such a share of its
# rise, and as unsure.
_FURTHER = 0.35
# Three values with the mean, the variance and the kurtosis of a normal distribution.
NODES = np.array([-np.sqrt(3.0), 0.0, np.sqrt(3.0)])
NODE_WEIGHTS = np.array([1.0, 4.0, 1.0]) / 6.0


class Empirical:
    """A Beta prior for each row, learned from the log by integrated likelihood.

    Parameters
    ----------
    by : str or tuple of str, optional
        What the mean of a row's prior depends on. By default all that the log offers: an effect of
        each key column where there are several (of a pair its document, in all queries, and its
        query) and, of rows by document, "rank" (the mean rank at which it is shown; together with
        the exposure pages that do not show it count, too) and "exposure" (the share of its query's
        pages that show it). Others are "impressions" (how often it is
        shown) and columns of the log: numbers become smooth functions, anything else effects. With
        `by=()` all rows share one prior.
    """

    def __init__(self, by: str | Sequence[str] | None = None) -> None:
        names: Any = None
        if by is not None:
            names = tuple(by) if isinstance(by, Sequence) and not isinstance(by, str) else (by,)
            odd = [name for name in names if not isinstance(name, str)]
            if odd or len(set(names)) < len(names):
                raise ModelError(f"Empirical(by={by!r}): names of columns are wanted, each once.")
        self.by: tuple[str, ...] | None = names

    def __repr__(self) -> str:
        if self.by is None:
            return "Empirical()"
        return f"Empirical(by={self.by[0]!r})" if len(self.by) == 1 else f"Empirical(by={self.by})"

    def names(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Name what the prior of rows by these keys depends on."""
        if self.by is not None:
            return self.by
        effects = tuple(keys) if len(keys) > 1 else ()
        if "doc" not in keys:
            return effects
        return (*effects, *(name for name in ("rank", EXPOSURE) if name not in keys))

    def typical(self, keys: Sequence[str]) -> tuple[str, ...]:
        """Name what of that is no part of the key of rows."""
        return tuple(name for name in self.names(keys) if name not in keys)


@dataclass(frozen=True)
class Effect:
    """What the rows that share a value of a column have in common, in logits.

    `mean` and `variance` are the posterior of the effect of each of the `values`; effects of
    others are drawn from a normal distribution around 0 with the standard deviation `spread`.
    """

    name: str
    values: pl.Series
    mean: Floats
    variance: Floats
    spread: float

    def with_spread(self, spread: float) -> Effect:
        """Take the same evidence for effects that stray so far."""
        if spread == 0 or self.spread == 0:
            return self
        variance = 1 / (1 / self.variance - self.spread**-2 + spread**-2)
        return replace(self, variance=variance, spread=spread)

    def of(self, values: pl.Series) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Tell mean and variance of the effects of any values, and which of them are known."""
        mean, variance = np.zeros(len(values)), np.full(len(values), self.spread**2)
        if not len(self.values) or self.spread == 0:
            return mean, variance, np.zeros(len(values), bool)
        known = pl.DataFrame([self.values.alias(self.name)])
        found = match(pl.DataFrame([values.alias(self.name)]), known, (self.name,))
        has = found >= 0
        mean[has], variance[has] = self.mean[found[has]], self.variance[found[has]]
        return mean, variance, has


@dataclass(frozen=True)
class Unseen:
    """What stands for a row that was never shown.

    By query (without queries: one number each) `pages` says how many pages there are, and so what
    it means not to be shown, and `place` where rows are that no page shows; it is empty where
    nobody asks. What else priors depend on is taken from rows that are hardly shown: `slopes` of
    means and of strengths, `[which, level and ramps of exposure]`, fitted to the rows that were
    shown; `variance` is how far these stray.
    """

    slopes: Floats
    variance: float
    query: pl.Series | None
    pages: Floats
    place: Floats

    def in_general(self) -> Unseen:
        """Take the same for any query, with as many pages as that of a typical page has."""
        if not len(self.pages):
            return replace(self, query=None)
        weight = self.pages / max(float(self.pages.sum()), 1e-300)
        usual = np.exp((weight * np.log(np.maximum(self.pages, 1.0))).sum())
        place = np.array([weight @ self.place]) if len(self.place) else self.place
        return replace(self, query=None, pages=np.array([usual]), place=place)

    def typical(self, rows: Rows) -> dict[str, Floats]:
        """Tell what is known of such rows: that no page shows them. The place of a query that
        was never asked is NaN."""
        n_rows = len(rows)
        pages = np.zeros(n_rows)
        place = np.full(n_rows, np.nan)
        if self.query is None:
            pages[:] = self.pages[0] if len(self.pages) else 0.0
            place[:] = self.place[0] if len(self.place) else np.nan
        elif "query" in rows.keys:
            known = pl.DataFrame([self.query.alias("query")])
            found = match(rows.frame.select("query"), known, ("query",))
            # Queries that are not there read what is put last.
            pages = np.append(self.pages, 0.0)[found]
            if len(self.place):
                place = np.append(self.place, np.nan)[found]
        typical = {EXPOSURE: smoothed_share(0.0, pages), PAGES: pages}
        return typical | ({PLACE: place} if len(self.place) else {})


@dataclass(frozen=True)
class Priors:
    """The learned priors of all rows of a coin.

    Attributes
    ----------
    smooths : functions of typical values
    slopes : of the logits of means and of the logarithms of strengths, `[which, slope]`: a level,
        then the ramps of each smooth function
    spreads : how far these functions' bends stray, `[which, function]`
    steepness : how far their lines do, likewise
    effects : of key columns and other columns that are no numbers
    unseen : what stands for rows that were never shown
    information : how sure the slopes are (minus second derivatives), for updates
    """

    smooths: tuple[SmoothFunction, ...]
    slopes: Floats
    spreads: Floats
    steepness: Floats
    effects: tuple[Effect, ...] = ()
    unseen: Unseen | None = None
    information: Floats | None = None

    @classmethod
    def vague(cls, smooths: Sequence[SmoothFunction], effects: Sequence[Effect]) -> Priors:
        """Begin with about Beta(1, 2), whatever tells rows apart."""
        slopes = np.zeros((2, 1 + sum(smooth.size for smooth in smooths)))
        slopes[0, 0], slopes[1, 0] = -0.7, np.log(3.0)
        spreads = np.tile([[0.5], [0.05]], (1, len(smooths)))  # strengths hardly bend
        steepness = np.tile([[2.0], [0.5]], (1, len(smooths)))
        for number, smooth in enumerate(smooths):
            if smooth.name == PAGES:
                steepness[1, number] = 4.0
        return cls(tuple(smooths), slopes, spreads, steepness, tuple(effects))

    @property
    def mean(self) -> float:
        """The mean of a middling row."""
        return float(1 / (1 + np.exp(-self.slopes[0, 0])))

    @property
    def strength(self) -> float:
        """How many flips the prior of a middling row is worth, effects being known."""
        return float(np.exp(self.slopes[1, 0]))

    @property
    def of_documents(self) -> dict[str, str]:
        """The names of what is typical of a document, with what that is the mean of."""
        names = [smooth.name for smooth in self.smooths if smooth.name.endswith(OF_DOCUMENT)]
        return {name: name.removesuffix(OF_DOCUMENT) for name in names}

    @property
    def beyond(self) -> float | None:
        """Where rows are taken to be when a page does not show them, if that matters."""
        return next((smooth.beyond for smooth in self.smooths if smooth.name == PLACE), None)

    @property
    def last_place(self) -> float:
        """The place of rows that are hardly shown."""
        knots = next(smooth.knots for smooth in self.smooths if smooth.name == PLACE)
        if not self.beyond:
            return float(knots.mean())
        return float(knots[-1] if self.beyond > 0 else knots[0])

    def for_levels(self, levels: Sequence[Levels]) -> Priors:
        """Give priors the effects of just these values, by column."""
        effects = []
        for effect, level in zip(self.effects, levels, strict=True):
            mean, variance, _ = effect.of(level.values)
            effects.append(Effect(effect.name, level.values, mean, variance, effect.spread))
        return replace(self, effects=tuple(effects))

    def parts(self) -> list[slice]:
        """Tell which slopes belong to which function."""
        ends = np.cumsum([1, *(smooth.size for smooth in self.smooths)])
        return [slice(a, b) for a, b in pairwise(ends)]

    def basis(self, typical: Mapping[str, Floats], n_rows: int) -> Floats:
        """Make what slopes are multiplied with, `[row, slope]`."""
        found = np.ones((n_rows, self.slopes.shape[1]))
        for smooth, part in zip(self.smooths, self.parts(), strict=True):
            smooth.fill(typical, found, part.start)
        return found

    def linear(self, typical: Mapping[str, Floats], n_rows: int) -> Floats:
        """Tell logits of means and logarithms of strengths without effects, `[which, row]`."""
        return within_reach(self.sums(typical, n_rows))

    def sums(self, typical: Mapping[str, Floats], n_rows: int) -> Floats:
        """Sum slopes, `[which, row]`, whatever they mean."""
        found = np.repeat(self.slopes[:, :1], n_rows, axis=1)
        for smooth, part in zip(self.smooths, self.parts(), strict=True):
            found += smooth.at(typical, self.slopes[:, part])
        return found

    def of_unseen(self, rows: Rows) -> tuple[Floats, Floats, NDArray[np.str_]]:
        """Tell the Beta prior of rows that were never shown, `[heads or tails, row]`, its mean,
        and what it rests on."""
        believed = self.unseen_beliefs(rows)
        # How far down they are nobody knows, only which way it goes.
        variance = believed.variance + believed.further(self.slopes[0]) ** 2
        linear = within_reach(believed.linear)
        pseudo = pseudo_counts(linear[0], variance, linear[1])
        return pseudo, pseudo[0] / pseudo.sum(axis=0), believed.rests_on

    def unseen_beliefs(self, rows: Rows) -> UnseenBeliefs:
        """Tell what priors of rows that were never shown are made of."""
        n_rows = len(rows)
        linear, variance = np.repeat(self.slopes[:, :1], n_rows, axis=1), np.zeros(n_rows)
        basis = np.zeros((n_rows, self.slopes.shape[1]))
        basis[:, 0] = 1.0
        place = None
        if self.unseen is not None:
            typical = self.unseen.typical(rows)
            if PLACE in typical:
                typical[PLACE] = np.where(np.isnan(typical[PLACE]), self.last_place, typical[PLACE])
            linear += self.unseen.slopes[:, :1]
            variance[:] = self.unseen.variance
            for smooth, part in zip(self.smooths, self.parts(), strict=True):
                if smooth.is_known_from(typical):
                    linear += smooth.at(typical, self.slopes[:, part])
                    smooth.fill(typical, basis, part.start)
                if smooth.name == PLACE and not smooth.times:
                    place = smooth, part
                    linear[0] += _FURTHER * smooth.rise(self.slopes[0, part])
                if smooth.name == EXPOSURE and not smooth.times:
                    linear += smooth.at(typical, self.unseen.slopes[:, 1:])
        rests_on = np.full(n_rows, "prior", dtype=object)
        for effect in self.effects:
            if effect.name not in rows.keys:
                variance += effect.spread**2
                continue
            mean, own, known = effect.of(rows.frame[effect.name])
            linear[0] += mean
            variance += own
            better = known & (own < 0.9 * effect.spread**2)
            rests_on[better & (rests_on == "prior")] = effect.name
        return UnseenBeliefs(linear, variance, basis, rests_on.astype(str), place)


@dataclass(frozen=True)
class UnseenBeliefs:
    """What priors of rows that were never shown are made of.

    `linear` are logits of means and logarithms of strengths, `[which, row]`; `variance` is that of
    the former, without what all such rows have in common; `basis` is what slopes are multiplied
    with; `place` is the function of places, if there is one.
    """

    linear: Floats
    variance: Floats
    basis: Floats
    rests_on: NDArray[np.str_]
    place: tuple[SmoothFunction, slice] | None

    def further(self, slopes: Floats) -> float:
        """Tell how far they lie beyond the last place, with these slopes of means."""
        if self.place is None:
            return 0.0
        smooth, part = self.place
        return _FURTHER * smooth.rise(slopes[part])


def within_reach(linear: Floats) -> Floats:
    """Keep logits of means and logarithms of strengths, `[which, row]`, within bounds."""
    found: Floats = np.clip(linear, [[-FARTHEST], [WEAKEST]], [[FARTHEST], [STRONGEST]])
    return found


def pseudo_counts(logit: Floats, variance: Floats, log_strength: Floats) -> Floats:
    """Find the Beta distribution with the mean and variance of a row before its pages are seen,
    `[heads or tails, row]`, if the logit of its mean is only known up to a variance."""
    strength = np.exp(log_strength)
    if not np.any(variance > 0):
        mean = 1 / (1 + np.exp(-logit))
        return np.stack([strength * mean, strength * (1 - mean)])
    at = np.clip(logit + NODES[:, None] * np.sqrt(variance), -FARTHEST, FARTHEST)
    means = 1 / (1 + np.exp(-at))
    mean = _over_nodes(means)
    inside = _over_nodes(means * (1 - means)) / (strength + 1)
    between = _over_nodes((means - mean) ** 2)
    together = np.maximum(mean * (1 - mean) / (inside + between) - 1, np.exp(WEAKEST))
    return np.stack([together * mean, together * (1 - mean)])


def _over_nodes(values: Floats) -> Floats:
    """Average over the nodes, `[node, row]`: the same for a row whichever others there are, which
    a product of matrices is not, to the last bit."""
    low, middle, high = (weight * line for weight, line in zip(NODE_WEIGHTS, values, strict=True))
    found: Floats = low + middle + high
    return found


@dataclass(frozen=True)
class Design:
    """What tells the rows of a coin apart.

    `typical` has numbers by name: also how often rows were shown and how many pages could have
    shown them; of columns that are no part of the key and no numbers, the place among `levels`.
    """

    rows: Rows
    typical: dict[str, Floats]
    smooths: tuple[SmoothFunction, ...]
    levels: tuple[Levels, ...]

    @classmethod
    def of(cls, rows: Rows, prior: Empirical, typical: Mapping[str, pl.Series]) -> Design:
        """Make it from the values of the names that are no part of the key."""
        names = prior.names(rows.keys)
        smooths: list[SmoothFunction] = []
        levels: list[Levels] = []
        numbers: dict[str, Floats] = {}
        codes: dict[str, Floats] = {}
        for name, values in typical.items():
            if name in (*names, IMPRESSIONS, PAGES) and values.dtype.is_numeric():
                numbers[name] = values.to_numpy().astype(np.float64)
        beyond = beyond_pages(numbers)
        numbers = with_place(rows, numbers, beyond)
        for name in names:
            values = rows.frame[name] if name in rows.keys else typical[name]
            if name not in rows.keys and values.dtype.is_numeric():
                name = PLACE if name == "rank" and PLACE in numbers else name
                smooth = SmoothFunction.of(name, numbers[name])
                if smooth is not None:
                    smooths.append(
                        replace(smooth, beyond=beyond or 0.0) if name == PLACE else smooth
                    )
                continue
            found = levels_of(name, values)
            fewest = FEWEST_LEVELS if prior.by is None else 2
            if (np.bincount(found.index) > 1).sum() >= fewest:
                levels.append(found)
                if name not in rows.keys:
                    codes[name] = found.index.astype(np.float64)
        own = {smooth.name: numbers[smooth.name] for smooth in smooths}
        times = EXPOSURE
        if prior.by is None and PLACE in own:
            # A place that few pages tell is a place nobody knows.
            smooth = SmoothFunction.of(PAGES, numbers[PAGES])
            if smooth is not None:
                smooths.append(smooth)
                times = PAGES
        for level in levels:
            for name, means in level_means(level, own).items():
                numbers[name] = means
                smooth = SmoothFunction.of(name, means)
                smooths += [smooth] if smooth is not None else []
        for smooth in list(smooths):
            # A place on few pages says less than the same place on many.
            if smooth.name in ("rank", PLACE) and EXPOSURE in names:
                changing = smooth.with_times(times, numbers[times])
                smooths += [changing] if changing is not None else []
        return cls(rows, numbers | codes, tuple(smooths), tuple(levels))

    @classmethod
    def under(
        cls,
        rows: Rows,
        priors: Priors,
        typical: Mapping[str, Floats],
        values: Mapping[str, pl.Series],
    ) -> Design:
        """Make that of rows that priors learned from others apply to; `values` are those of columns
        that are no part of the key and no numbers. Means over documents are those of these rows,
        unless `typical` has others."""
        numbers, codes, levels = with_place(rows, typical, priors.beyond), {}, []
        for effect in priors.effects:
            is_key = effect.name in rows.keys
            found = levels_of(effect.name, (rows.frame if is_key else values)[effect.name])
            levels.append(found)
            if not is_key:
                codes[effect.name] = found.index.astype(np.float64)
        wanted = {smooth.name for smooth in priors.smooths} - numbers.keys()
        asked = {n: own for n, own in numbers.items() if f"{n}{OF_DOCUMENT}" in wanted}
        for level in levels:
            numbers |= level_means(level, asked)
        return cls(rows, numbers | codes, priors.smooths, tuple(levels))

    def of_rows(self, rows: Integers) -> Design:
        """Choose some of the rows."""
        chosen = pl.Series(rows)
        columns = [self.rows.frame[key].gather(chosen) for key in self.rows.keys]
        typical = {name: values[rows] for name, values in self.typical.items()}
        levels = tuple(level.of_rows(rows) for level in self.levels)
        for level in levels:
            if level.name not in self.rows.keys:
                typical[level.name] = level.index.astype(np.float64)
        return replace(
            self,
            rows=Rows(self.rows.keys, columns, len(rows)),
            typical=typical,
            levels=levels,
        )

    def logit(self, priors: Priors) -> Floats:
        """Tell the logit of the mean of each row's prior, effects included."""
        found: Floats = priors.linear(self.typical, len(self.rows))[0].copy()
        for effect, level in zip(priors.effects, self.levels, strict=True):
            if effect.spread > 0:
                found += effect.mean[level.index]
        return found

    def pseudo(self, priors: Priors, says: Floats, linear: Floats | None = None) -> Floats:
        """Tell the Beta prior of rows, if what each says itself of the logit of its mean (slope and
        precision, `[which, row]`) is left out of the effects; `linear` are means and strengths
        without these, if they are known already."""
        if linear is None:
            linear = priors.linear(self.typical, len(self.rows))
        linear = linear.copy()
        variance = np.zeros(linear.shape[1])
        for effect, level in zip(priors.effects, self.levels, strict=True):
            if effect.spread == 0:
                continue
            precision = 1 / effect.variance[level.index]
            others = np.maximum(precision - says[1], effect.spread**-2)
            mean = effect.mean[level.index] - says[0] / others
            # As long as nothing has settled, a row may say far too much.
            linear[0] += np.clip(mean, -2.5 * effect.spread, 2.5 * effect.spread)
            variance += 1 / others
        return pseudo_counts(linear[0], variance, linear[1])

    def vague(self) -> Priors:
        """Make the priors that learning begins with."""
        effects = [
            Effect(level.name, level.values, np.zeros(n), np.full(n, 0.25), 0.5)
            for level in self.levels
            for n in [len(level.values)]
        ]
        return Priors.vague(self.smooths, effects)

    def unseen(self, priors: Priors) -> Unseen:
        """Learn what stands for rows that were never shown, from those that were."""
        pages = self.typical.get(PAGES, np.zeros(0))
        query, place = None, np.zeros(0)
        if len(pages) and "query" in self.rows.keys:
            frame = self.rows.frame.select("query").with_columns(pl.Series(PAGES, pages))
            if priors.beyond is not None:
                length = page_lengths(self.rows, self.typical)
                elsewhere = place_elsewhere(length, priors.beyond)
                frame = frame.with_columns(pl.Series(PLACE, elsewhere))
            frame = frame.unique("query", maintain_order=True)
            query, pages = frame["query"], frame[PAGES].to_numpy()
            place = frame[PLACE].to_numpy() if PLACE in frame.columns else place
        unseen = Unseen(
            np.zeros((2, 1)), 0.0, query, pages if query is not None else pages[:1], place
        )
        # Of the rest rows that are hardly shown say something; what many say, some say as well.
        some = slice(None, None, max(1, len(self.rows) // _ENOUGH))
        typical = {name: values[some] for name, values in self.typical.items()}
        n_rows = len(range(*some.indices(len(self.rows))))
        known = {EXPOSURE, PAGES, *((PLACE,) if len(place) else ())}
        linear, blocks = np.zeros((2, n_rows)), [np.ones((n_rows, 1))]
        for smooth, part in zip(self.smooths, priors.parts(), strict=True):
            if smooth.name == EXPOSURE and not smooth.times:
                blocks.append(smooth.basis(typical))
            if not smooth.is_known_from(known):
                linear += smooth.at(typical, priors.slopes[:, part])
        basis = np.hstack(blocks)
        slopes = np.linalg.lstsq(basis, linear.T, rcond=None)[0].T.astype(np.float64)
        variance = float(np.var(linear[0] - basis @ slopes[0]))
        return replace(unseen, slopes=slopes, variance=variance)
