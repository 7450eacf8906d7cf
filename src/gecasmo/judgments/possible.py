"""Relevances as they might be: worlds that are drawn from what is believed of pairs.

Pairs err together, too. Slopes of learned priors, coins that all pages share, the trust in a judge
and the level of pairs that no page shows may be off; then all pairs that rest on them are wrong in
the same way. So these are drawn first, each by what is known of it (`forms/drawn_rows.py`,
`trust.py`), and then every pair given these.

That is not all of it: models hold roughly, and a ranker that knows what it shows makes attention
look like relevance. So a world has further errors: of the level of all pairs, of how far good ones
are from bad ones, of pairs that were never shown, of how unsure pairs are, and of how much a ranker
knows. They are as large as what is not known of a pair, times a share, and clicks make that share
smaller. These shares are constants, chosen by simulation (`benchmarks/judges.py`), and larger where
relevance is a product of coins: these are believed to be independent, but a ranker who knows the
product shows pairs in whom one makes up for the other.

Relevance is looked at as an angle, the arcsine of its root: on this scale a belief is nearly normal
and as wide in the middle as at the ends.

A ranker is a witness, too: with s the normal score of the place that it gives a pair in its query,
s = a x + noise, where x is the angle against the mean of the query. a and the noise are learned
from what is believed of all pairs, up to an error, which is drawn with the worlds; and what other
rankers say is known already. Each world is then moved by as much as such a measurement moves it.
Who left this out would take a ranker that knows more than clicks and judges for a worse one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.judgments.grades import BetaBeliefs
from gecasmo.judgments.panel import Draws, Panel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_WORLDS = 192
_MOST_PAIRS = 20_000  # that a ranker is learned from
# What is left open of errors that pairs have in common: so much without clicks, and the less the
# more pairs have more than so many examinations.
_OPEN, _EXAMINED = 1.4, 3.0
_UNIT = 3.0  # angles are measured in thirds, about the spread of relevances
_CERTAIN = 0.005  # an angle that counts as zero
_WIDEST = 0.2  # no variance of an angle is larger: those of all angles alike have it
_UNSURE = 0.3  # of the logarithm of how wide beliefs should be
_KNOWS = 0.3  # of the logarithm of how much a ranker knows


@dataclass(frozen=True)
class CommonErrors:
    """How large errors are that pairs have in common, in deviations of a pair."""

    level: float
    contrast: float  # of pairs as far from the mean of their query as a standard deviation
    unseen: float
    strays: float  # how much farther pairs may stray from what is believed
    knows: float  # the logarithm of how much more a ranker knows than it seems

    @classmethod
    def of(cls, n_coins: int) -> CommonErrors:
        """Where relevance is a product of so many coins; of products beliefs are too wide."""
        return cls(0.7, 0.25, 0.4, 0.1, 0.0) if n_coins < 2 else cls(0.9, 0.45, 0.5, 0.15, 0.2)


@dataclass
class Worlds:
    """Relevances of pairs as they might be.

    Attributes
    ----------
    query : the number of each pair's query, rising
    angle : [pair, world], without errors that pairs have in common
    mean, variance : of the angle of each pair
    by_clicks : its variance by clicks alone
    examinations : of each pair
    common : errors that pairs have in common
    """

    query: Ints
    angle: Floats
    mean: Floats
    variance: Floats
    by_clicks: Floats
    examinations: Floats
    common: CommonErrors
    rng: np.random.Generator
    _scores: list[Floats] = field(default_factory=list)

    @classmethod
    def of(cls, frame: pl.DataFrame, panel: Panel | None, draws: Draws, n_coins: int) -> Worlds:
        """Draw them from what clicks say of pairs, and judges; pairs of a query are neighbours.

        Relevance is the product of so many coins.
        """
        rng = np.random.default_rng(43)
        means, spreads = draws(frame)
        by_clicks = _over_draws(means, spreads)[1]
        if panel is not None:
            means, spreads = panel.moments(frame, (means, spreads))
        n_draws = means.shape[1]
        each = max(_WORLDS // n_draws, 1)
        angle = np.concatenate(
            [_drawn(means[:, d], spreads[:, d], each, rng) for d in range(n_draws)], axis=1
        )
        mean, variance = _over_draws(means, spreads)
        variance = np.maximum(variance, 1e-9)
        by_clicks = np.maximum(by_clicks, variance)
        query = np.zeros(len(frame), np.int64)
        if "query" in frame.columns:
            query = frame["query"].rle_id().to_numpy().astype(np.int64)
        examined = np.maximum(_numbers(frame, "examinations"), 0.0)
        common = CommonErrors.of(n_coins)
        return cls(query, angle, mean, variance, by_clicks, examined, common, rng)

    def __post_init__(self) -> None:
        self.first = np.flatnonzero(np.diff(self.query, prepend=-1))
        self.size = np.diff(np.append(self.first, len(self.query)))
        self.deviation = (self.variance * self.by_clicks) ** 0.25
        self.open = _OPEN * float((1 / (1 + self.examinations / _EXAMINED)).mean()) ** 1.5

    def hear(self, place: Floats) -> None:
        """Let a ranker speak: the place that it gives each pair in its query, from 1."""
        score = self._centred(_normal_scores(place, self.size[self.query]))
        found, draws = self._learned(score)
        others = np.column_stack([np.zeros((len(score), 0)), *self._scores])
        n_worlds = self.angle.shape[1]
        slope, noise = self._with_doubt(*_slope_and_noise(draws))
        said = slope * self._centred(self.angle) + others @ draws[:, 1:-1].T
        said += noise * self.rng.normal(size=(len(score), n_worlds))
        self.angle = self.angle + _gain(self.variance[:, None], slope, noise) * (
            score[:, None] - said
        )
        best, left = (float(value[0]) for value in _slope_and_noise(found[None]))
        gain = _gain(self.variance, best, left)
        expected = best * self._centred(self.mean) + others @ found[1:-1]
        self.mean = self.mean + gain * (score - expected)
        self.variance = self.variance * (1 - gain * best)
        self._scores.append(score)

    def relevances(self, with_level: bool = True) -> Floats:
        """The worlds, with errors that pairs have in common: [pair, world].

        That of the level only counts where relevance is held against numbers; nDCG does not ask.
        """
        common = self.common
        rng, n_worlds = np.random.default_rng(44), self.angle.shape[1]
        level, contrast, unseen, width, strays = rng.normal(size=(5, n_worlds))
        mean = self.angle.mean(axis=1, keepdims=True)
        good = self._centred(mean)
        good = good / max(float(good.std()), 1e-9)
        never = (self.examinations <= 0)[:, None]
        error = with_level * common.level * level + common.contrast * good * contrast
        error = error + common.unseen * never * unseen
        error = error + common.strays * np.abs(strays) * rng.normal(size=self.angle.shape)
        angle = mean + (self.angle - mean) * np.exp(_UNSURE * width)
        angle = angle + self.open * self.deviation[:, None] * error
        return np.asarray(np.sin(np.clip(angle, _CERTAIN, np.pi / 2)) ** 2)

    def _centred(self, values: Floats) -> Floats:
        """Values less the mean of their query."""
        wide = self.size if values.ndim == 1 else self.size[:, None]
        means = np.add.reduceat(values, self.first, axis=0) / wide
        return np.asarray(values - means[self.query])

    def _with_doubt(self, slope: Floats, noise: Floats) -> tuple[Floats, Floats]:
        """Rankers that may know more or less than was learned; what they say strays as far."""
        told = float((self.variance + self._centred(self.mean) ** 2).mean())
        whole = slope**2 * told + noise**2
        doubt = _KNOWS * self.open * self.rng.normal(size=len(slope))
        factor = np.exp(self.common.knows + doubt)
        most = np.sqrt(0.95 * whole / told)
        slope = np.sign(slope) * np.minimum(np.abs(slope) * factor, most)
        return slope, np.sqrt(whole - slope**2 * told)

    def _learned(self, score: Floats) -> tuple[Floats, Floats]:
        """Slope, those of others' scores, and the logarithm of the noise: the best, and draws."""
        some = np.arange(len(score))
        if len(some) > _MOST_PAIRS:
            some = np.random.default_rng(3).choice(some, _MOST_PAIRS, replace=False)
        by = np.column_stack([_UNIT * self._centred(self.mean), *self._scores])[some]
        found, root = _regressed(score[some], by, _UNIT**2 * self.variance[some])
        draws = self.rng.normal(size=(self.angle.shape[1], len(found))) @ root.T
        return found, found + draws


def _slope_and_noise(parameters: Floats) -> tuple[Floats, Floats]:
    """Slope by angle, and noise."""
    return _UNIT * parameters[:, 0], np.exp(parameters[:, -1])


def _gain(variance: Floats, slope: Floats | float, noise: Floats | float) -> Floats:
    """How far a belief moves with what is measured of it."""
    return np.asarray(slope * variance / (slope**2 * variance + noise**2))


def _regressed(score: Floats, by: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """The best slopes and logarithm of noise, and the root of their covariance.

    The first regressor is only known up to a variance; slopes and logarithm are held around 0 by a
    deviation of one.
    """
    from scipy.optimize import minimize

    n = by.shape[1]

    def target(parameters: Floats) -> tuple[float, Floats]:
        noise = np.exp(2 * parameters[-1])
        whole = parameters[0] ** 2 * variance + noise
        left = score - by @ parameters[:-1]
        value = float((np.log(whole) + left**2 / whole).sum() + (parameters**2).sum()) / 2
        by_whole = (1 / whole - left**2 / whole**2) / 2
        gradient = np.append(-by.T @ (left / whole), 2 * noise * by_whole.sum()) + parameters
        gradient[0] += 2 * parameters[0] * float(by_whole @ variance)
        return value, gradient

    start = np.zeros(n + 1)
    start[0] = 0.5
    found = np.asarray(minimize(target, start, jac=True, method="BFGS").x)
    step = 1e-4 * np.eye(n + 1)
    curved = np.stack([(target(found + d)[1] - target(found - d)[1]) / 2e-4 for d in step])
    values, vectors = np.linalg.eigh((curved + curved.T) / 2)
    return found, vectors / np.sqrt(np.maximum(values, 1.0))


def _numbers(frame: pl.DataFrame, name: str) -> Floats:
    return np.asarray(frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy())


def _drawn(mean: Floats, spread: Floats, n: int, rng: np.random.Generator) -> Floats:
    """Angles of relevances with these means and deviations."""
    beliefs = BetaBeliefs.from_moments(np.clip(mean, 1e-6, 1 - 1e-6), np.maximum(spread, 1e-6))
    strength = np.minimum(beliefs.strength, 1e9)
    a, b = beliefs.mean * strength, (1 - beliefs.mean) * strength
    return np.asarray(np.arcsin(np.sqrt(rng.beta(a[:, None], b[:, None], size=(len(mean), n)))))


def _over_draws(means: Floats, spreads: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of angles, whichever draw is right."""
    both = np.sqrt((spreads**2).mean(axis=1) + means.var(axis=1))
    return _moments(means.mean(axis=1), both)


def _moments(mean: Floats, spread: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of angles."""
    inside = np.clip(mean, 1e-4, 1 - 1e-4)
    variance = spread**2 / (4 * inside * (1 - inside))
    return np.arcsin(np.sqrt(inside)), np.minimum(variance, _WIDEST)


def _normal_scores(place: Floats, size: Ints) -> Floats:
    """Of places from 1, the first highest."""
    from scipy.special import ndtri

    return np.asarray(-ndtri((place - 0.375) / (size + 0.25)))


def places_in(query: Ints, place: pl.Series) -> Floats:
    """The place of each pair among all of its query; those without one share the last places."""
    frame = pl.DataFrame({"query": query, "place": place})
    middle = pl.col("place").rank("ordinal").fill_null((pl.col("place").count() + pl.len() + 1) / 2)
    return np.asarray(frame.select(place=middle.over("query"))["place"].to_numpy())
