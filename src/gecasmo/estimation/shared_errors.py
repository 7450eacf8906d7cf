"""How the errors of all that pages and rows have in common go together.

Examinations of neighbouring ranks share a scale, continuation goes along with the slopes of priors.
Who draws such numbers one by one gets combinations that the log rules out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class SharedMoves(NamedTuple):
    """How far numbers are from where they were found, by coin."""

    numbers: dict[str, Floats]
    slopes: dict[str, Floats]


@dataclass(frozen=True)
class SharedErrors:
    """The covariance of numbers that all pages share, and of slopes of learned priors.

    Parameters
    ----------
    numbers : by coin, how many numbers all pages share: logits of a table, or the vector of another
        form; of coins that share a form, the first one has them
    slopes : by coin, how many slopes its learned prior has
    covariance : of all numbers in this order, then of all slopes; 0 where nothing is known
    """

    numbers: Mapping[str, int]
    slopes: Mapping[str, int]
    covariance: Floats

    @property
    def size(self) -> int:
        """How many numbers and slopes there are."""
        return sum(self.numbers.values()) + sum(self.slopes.values())

    def drawn(self, rng: np.random.Generator) -> SharedMoves:
        """Draw all of them together."""
        moved = self._root @ rng.normal(size=self.size)
        parts = iter(np.split(moved, np.cumsum(list(self._sizes()))[:-1]) if self.size else [])
        numbers = {coin: next(parts) for coin in self.numbers}
        return SharedMoves(numbers, {coin: next(parts).reshape(2, -1) for coin in self.slopes})

    def spread_over(self, places: Mapping[str, tuple[Integers | slice, int]]) -> SharedErrors:
        """The same if the numbers of some coins are among more rows, by their places and how many
        rows there are."""
        sizes = {coin: places[coin][1] if coin in places else n for coin, n in self.numbers.items()}
        index, start = [np.zeros(0, np.int64)], 0
        for coin in self.numbers:
            own = places[coin][0] if coin in places else slice(None)
            index.append(np.arange(start, start + sizes[coin])[own])
            start += sizes[coin]
        n_slopes = sum(self.slopes.values())
        index.append(start + np.arange(n_slopes))
        place = np.concatenate(index)
        found = np.zeros((start + n_slopes, start + n_slopes))
        found[np.ix_(place, place)] = self.covariance
        return SharedErrors(sizes, self.slopes, found)

    def without_slopes(self) -> SharedErrors:
        """Those of the numbers alone: for rows that priors have no say in."""
        n = sum(self.numbers.values())
        return SharedErrors(self.numbers, {}, self.covariance[:n, :n])

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue of the correlations; below 0 no errors are like that."""
        return float(self._eigen[0].min(initial=0.0))

    @cached_property
    def _scale(self) -> Floats:
        found: Floats = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        return found

    @cached_property
    def _eigen(self) -> tuple[Floats, Floats]:
        scale = np.where(self._scale > 0, self._scale, 1.0)
        # One thread: draws are the same on any number of them.
        with threadpool_limits(1, "blas"):
            values, vectors = np.linalg.eigh(self.covariance / scale / scale[:, None])
        return values, vectors

    @cached_property
    def _root(self) -> Floats:
        """The symmetric root: covariances that differ a little have draws that differ a little."""
        values, vectors = self._eigen
        with threadpool_limits(1, "blas"):
            found: Floats = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        # What is certain stays exactly where it is.
        return found * self._scale[:, None] * (self._scale > 0)

    def _sizes(self) -> Iterator[int]:
        yield from self.numbers.values()
        yield from self.slopes.values()
