"""A market: users and items as points in the plane, and rankers that decide what a page shows.

Who is near likes. Rankers score items, and noise decides between them: a page has the items with
the highest score + noise * g, with g from the standard Gumbel law. At noise 1 that is the same as
drawing items one by one, without putting back, with probabilities proportional to exp(score).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST = 1e-5  # probabilities and popularities keep this far from 0, probabilities also from 1
_CELLS = 2**20  # numbers of a users by items matrix that are made at a time


@dataclass(frozen=True)
class Market:
    """Places of users and items, one row each, and how fast interest fades with distance."""

    user_places: Floats
    item_places: Floats
    distance_sensitivity: float = 1.0

    @classmethod
    def draw(
        cls,
        rng: np.random.Generator,
        n_users: int,
        n_items: int,
        distance_sensitivity: float = 1.0,
    ) -> Market:
        """All places from a standard normal law."""
        users, items = rng.standard_normal((n_users, 2)), rng.standard_normal((n_items, 2))
        return cls(users, items, distance_sensitivity)

    @property
    def n_users(self) -> int:
        """Number of users."""
        return len(self.user_places)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.item_places)

    def log_similarity(self, user: Ints, item: Ints) -> Floats:
        """Minus the log distance of users and items, times the sensitivity; indices broadcast."""
        gap = self.user_places[user] - self.item_places[item]
        distance = np.maximum(np.hypot(gap[..., 0], gap[..., 1]), 1e-12)
        similarity: Floats = -self.distance_sensitivity * np.log(distance)
        return similarity

    def probability(self, user: Ints, item: Ints, salience: float) -> Floats:
        """How likely users are drawn to items, in a logit choice among all items.

        The item at hand weighs exp(salience) times its similarity, all others theirs (after
        Fleder and Hosanagar, 2009).
        """
        with np.errstate(over="ignore"):  # an item too far to compare has probability LEAST
            others = np.expm1(self._log_total[user] - self.log_similarity(user, item))
            against = np.maximum(others, 0.0) * np.exp(-salience)
        chosen: Floats = np.clip(1 / (1 + against), LEAST, 1 - LEAST)
        return chosen

    @cached_property
    def _log_total(self) -> Floats:
        """Per user the logarithm of the similarities of all items together."""
        total = np.empty(self.n_users)
        every = np.arange(self.n_items)
        for users in in_pieces(np.arange(self.n_users), self.n_items):
            total[users] = logsumexp(self.log_similarity(users[:, None], every), axis=1)
        return total


def in_pieces(rows: Ints, n_columns: int) -> Iterator[Ints]:
    """Parts of the rows for which a matrix of so many columns stays small."""
    size = max(1, _CELLS // n_columns)
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


class Ranker(Protocol):
    """Anything with scores; its text (`repr`) is what the log calls it."""

    @property
    def noise(self) -> float:
        """The scale of the noise on the scores; without noise the best items come first."""

    def scores(self, market: Market, popularity: Floats, user: Ints) -> Floats:
        """A score per item, or a row of them per user; `popularity` is above 0, one per item."""


@dataclass(frozen=True)
class Uniform:
    """Every order of items is as likely as any other."""

    @property
    def noise(self) -> float:
        """Scale of the noise that is added to scores: with equal scores, any."""
        return 1.0

    def scores(self, market: Market, popularity: Floats, user: Ints) -> Floats:
        """Score all items alike."""
        return np.zeros(market.n_items)


@dataclass(frozen=True)
class Popularity:
    """Popular items first: the logarithm of their attraction as the warm-up sessions showed it.

    At noise 1, the default, this is the ranker of the paper.
    """

    noise: float = 1.0

    def scores(self, market: Market, popularity: Floats, user: Ints) -> Floats:
        """Score items by how popular they are."""
        scores: Floats = np.log(popularity)
        return scores


@dataclass(frozen=True)
class Nearest:
    """Items near to the user first, by the logarithm of their similarity: a ranker that knows."""

    noise: float = 1.0

    def scores(self, market: Market, popularity: Floats, user: Ints) -> Floats:
        """Score items by how near they are to the user."""
        return market.log_similarity(user[:, None], np.arange(market.n_items))


def draw_pages(
    rankers: Sequence[Ranker],
    market: Market,
    popularity: Floats,
    user: Ints,
    list_size: int,
    rng: np.random.Generator,
) -> tuple[Ints, Ints]:
    """For the user of each session, the items shown, best first, and which ranker chose them."""
    ranker = rng.integers(len(rankers), size=len(user))
    items = np.empty((len(user), list_size), np.int64)
    for number, each in enumerate(rankers):
        for rows in in_pieces(np.flatnonzero(ranker == number), market.n_items):
            noise = each.noise * rng.gumbel(size=(len(rows), market.n_items))
            score = each.scores(market, popularity, user[rows]) + noise
            top = np.argpartition(-score, list_size - 1, axis=1)[:, :list_size]
            order = np.argsort(-np.take_along_axis(score, top, axis=1), axis=1)
            items[rows] = np.take_along_axis(top, order, axis=1)
    return items, ranker
