"""Users and items as points in the plane: who is near likes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

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
        return len(self.user_places)

    @property
    def n_items(self) -> int:
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
