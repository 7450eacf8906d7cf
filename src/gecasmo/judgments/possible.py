"""Relevances as they might be: worlds that are drawn from what is believed of pairs.

Pairs err together, too. Slopes of learned priors, coins that all pages share, the trust in a judge
and the level of pairs that no page shows may be off; then all pairs that rest on them are wrong in
the same way. So these are drawn first, each by what is known of it (`forms/drawn_rows.py`,
`trust.py`), and then every pair given these.

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
_UNIT = 3.0  # angles are measured in thirds, about the spread of relevances
_CERTAIN = 0.005  # an angle that counts as zero
_WIDEST = 0.2  # no variance of an angle is larger: those of all angles alike have it


@dataclass
class Worlds:
    """Relevances of pairs as they might be.

    Attributes
    ----------
    query : the number of each pair's query, rising
    angle : [pair, world]
    mean, variance : of the angle of each pair, without what pairs have in common
    """

    query: Ints
    angle: Floats
    mean: Floats
    variance: Floats
    rng: np.random.Generator
    _scores: list[Floats] = field(default_factory=list)

    @classmethod
    def of(cls, frame: pl.DataFrame, panel: Panel | None, draws: Draws) -> Worlds:
        """Draw them from what clicks say of pairs, and judges; pairs of a query are neighbours."""
        rng = np.random.default_rng(43)
        means, spreads = draws(frame)
        if panel is not None:
            means, spreads = panel.moments(frame, (means, spreads))
        n_draws = means.shape[1]
        each = max(_WORLDS // n_draws, 1)
        angle = np.concatenate(
            [_drawn(means[:, d], spreads[:, d], each, rng) for d in range(n_draws)], axis=1
        )
        both = np.sqrt((spreads**2).mean(axis=1) + means.var(axis=1))
        mean, variance = _moments(means.mean(axis=1), both)
        query = np.zeros(len(frame), np.int64)
        if "query" in frame.columns:
            query = frame["query"].rle_id().to_numpy().astype(np.int64)
        return cls(query, angle, mean, np.maximum(variance, 1e-9), rng)

    def __post_init__(self) -> None:
        self.first = np.flatnonzero(np.diff(self.query, prepend=-1))
        self.size = np.diff(np.append(self.first, len(self.query)))

    def hear(self, place: Floats) -> None:
        """Let a ranker speak: the place that it gives each pair in its query, from 1."""
        score = self._centred(_normal_scores(place, self.size[self.query]))
        found, draws = self._learned(score)
        others = np.column_stack([np.zeros((len(score), 0)), *self._scores])
        n_worlds = self.angle.shape[1]
        slope, noise = _slope_and_noise(draws)
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

    def relevances(self) -> Floats:
        """The worlds: [pair, world]."""
        return np.asarray(np.sin(np.clip(self.angle, _CERTAIN, np.pi / 2)) ** 2)

    def _centred(self, values: Floats) -> Floats:
        """Values less the mean of their query."""
        wide = self.size if values.ndim == 1 else self.size[:, None]
        means = np.add.reduceat(values, self.first, axis=0) / wide
        return np.asarray(values - means[self.query])

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


def _drawn(mean: Floats, spread: Floats, n: int, rng: np.random.Generator) -> Floats:
    """Angles of relevances with these means and deviations."""
    beliefs = BetaBeliefs.from_moments(np.clip(mean, 1e-6, 1 - 1e-6), np.maximum(spread, 1e-6))
    strength = np.minimum(beliefs.strength, 1e9)
    a, b = beliefs.mean * strength, (1 - beliefs.mean) * strength
    return np.asarray(np.arcsin(np.sqrt(rng.beta(a[:, None], b[:, None], size=(len(mean), n)))))


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
