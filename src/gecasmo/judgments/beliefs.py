"""What is believed of pairs: a Beta distribution with each one's relevance and spread."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_WEAKEST = 1e-3  # a Beta distribution whose parameters add up to less is as wide as there is
_STRONGEST = 1e12  # and above this there is no telling it from a number


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
