"""What relevance is made of: a product of coins, or of means of coins over a choice.

A model names its factors. One that is called `attraction[intent]` is the mean of the coins
`attraction[0]`, `attraction[1]`, ... over the values of the choice `intent`: what a user finds of
whom nobody knows what he wants.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]
Moments = tuple[Floats, Floats]  # mean and mean square


class Factor(NamedTuple):
    """A factor of relevance: one coin, or one for each value of a choice that `deciders` make."""

    name: str
    coins: tuple[str, ...]
    deciders: tuple[str, ...] = ()

    @property
    def reads(self) -> tuple[str, ...]:
        """All coins that take part."""
        return self.coins + self.deciders


def factor_named(name: str, coins: Iterable[str]) -> Factor | None:
    """The factor of this name, if there is one among these coins."""
    known = set(coins)
    if name in known:
        return Factor(name, (name,))
    coin, _, choice = name.removesuffix("]").partition("[")
    values, deciders = (
        tuple(takewhile(known.__contains__, (f"{own}[{place}]" for place in count())))
        for own in (coin, choice)
    )
    is_mean = name.endswith("]") and 1 < len(values) == len(deciders) + 1
    return Factor(name, values, deciders) if is_mean else None


def factors_of(model: Model) -> tuple[Factor, ...]:
    """The factors of what a model calls relevance; of names that it lacks none."""
    found = (factor_named(name, model.forms) for name in model.relevance)
    return tuple(factor for factor in found if factor is not None)


def coins_of_relevance(model: Model) -> tuple[str, ...]:
    """All coins that the relevance of a model reads."""
    return tuple(coin for factor in factors_of(model) for coin in factor.reads)


def factor_probability(model: Model, factor: Factor, rows: Any) -> Floats:
    """The probability of a factor for each row of a log or frame."""
    found = {coin: model.probability(coin, rows) for coin in factor.reads}
    return mean_over([found[c] for c in factor.coins], [found[c] for c in factor.deciders])


def mean_over(values: Sequence[Floats], shares: Sequence[Floats]) -> Floats:
    """The mean of values over a choice: coins are flipped in turn until one comes up heads."""
    mean = values[-1]
    for value, share in zip(values[-2::-1], shares[::-1], strict=True):
        mean = share * value + (1 - share) * mean
    return mean


def moments_over(values: Sequence[Moments], shares: Sequence[Moments]) -> Moments:
    """The same of what is not known for sure: all of these are taken to be independent."""
    mean, square = values[-1]
    for (own, own_square), (p, pp) in zip(values[-2::-1], shares[::-1], strict=True):
        square = pp * own_square + 2 * (p - pp) * own * mean + (1 - 2 * p + pp) * square
        mean = p * own + (1 - p) * mean
    return mean, square
