"""Who decides what a page shows: rankers score items, and noise decides between them.

A page has the items with the highest score + noise * g, with g from the standard Gumbel law. At
noise 1 that is the same as drawing items one by one, without putting back, with probabilities
proportional to exp(score).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gecasmo.simulation.market import Floats, Ints, Market, in_pieces


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
        return 1.0

    def scores(self, market: Market, popularity: Floats, user: Ints) -> Floats:
        return np.zeros(market.n_items)


@dataclass(frozen=True)
class Popularity:
    """Popular items first: the logarithm of their attraction as the warm-up sessions showed it.

    At noise 1, the default, this is the ranker of the paper.
    """

    noise: float = 1.0

    def scores(self, market: Market, popularity: Floats, user: Ints) -> Floats:
        scores: Floats = np.log(popularity)
        return scores


@dataclass(frozen=True)
class Nearest:
    """Items near to the user first, by the logarithm of their similarity: a ranker that knows."""

    noise: float = 1.0

    def scores(self, market: Market, popularity: Floats, user: Ints) -> Floats:
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
