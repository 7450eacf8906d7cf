"""Perplexity: 2 to the mean number of bits by which clicks surprise; 1 is perfect, 2 a coin.

Overall there are two figures and no third: `arithmetic`, the unweighted mean of the values per
rank, and `pooled`, the perplexity of all results taken together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Perplexity:
    """`by_rank` has the columns rank, perplexity, results (their weight) and infinite.

    A result that happened although its probability was 0 makes a perplexity infinite;
    `n_infinite` counts them.
    """

    arithmetic: float
    pooled: float
    by_rank: pl.DataFrame
    n_infinite: int


@dataclass(frozen=True)
class PerplexitySums:
    """What a perplexity is made of, rank by rank; sums of several logs add up.

    `weights` are those of the results, `bits` by how many they surprise, `infinite` how many had
    probability 0.
    """

    ranks: NDArray[np.int64]
    weights: Floats
    bits: Floats
    infinite: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        click: NDArray[np.bool_],
        probability: Floats,
        rank: NDArray[np.integer],
        weight: Floats,
    ) -> PerplexitySums:
        """The sums over shown results."""
        with np.errstate(divide="ignore"):
            bits = -np.log2(np.where(click, probability, 1 - probability))
        infinite = np.isinf(bits)
        # Sums in the order of the results, so that they are the same on every run.
        ranks, number = np.unique(np.asarray(rank).astype(np.int64), return_inverse=True)
        n_ranks = len(ranks)
        weights: Floats = np.bincount(number, weights=weight, minlength=n_ranks).astype(float)
        finite = np.where(infinite, 0.0, bits)
        totals = np.bincount(number, weights=weight * finite, minlength=n_ranks).astype(float)
        counts = np.bincount(number[infinite & (weight > 0)], minlength=n_ranks)
        return cls(ranks, weights, totals, counts)

    def __add__(self, other: PerplexitySums) -> PerplexitySums:
        ranks = np.union1d(self.ranks, other.ranks)
        weights, bits = np.zeros(len(ranks)), np.zeros(len(ranks))
        infinite = np.zeros(len(ranks), np.int64)
        for sums in (self, other):
            places = np.searchsorted(ranks, sums.ranks)
            weights[places] += sums.weights
            bits[places] += sums.bits
            infinite[places] += sums.infinite
        return PerplexitySums(ranks, weights, bits, infinite)

    def finish(self) -> Perplexity:
        """The perplexity of all results together."""
        used = self.weights > 0
        ranks, weights = self.ranks[used], self.weights[used]
        totals, counts = self.bits[used], self.infinite[used]
        values = np.where(counts > 0, np.inf, np.exp2(totals / weights))
        n_infinite = int(counts.sum())
        pooled = np.inf if n_infinite else 2 ** (float(totals.sum()) / float(weights.sum()))
        return Perplexity(
            arithmetic=float(values.mean()),
            pooled=float(pooled),
            by_rank=pl.DataFrame(
                {"rank": ranks, "perplexity": values, "results": weights, "infinite": counts}
            ),
            n_infinite=n_infinite,
        )


def perplexity(
    click: NDArray[np.bool_], probability: Floats, rank: NDArray[np.integer], weight: Floats
) -> Perplexity:
    """The perplexity of click probabilities, per shown result."""
    return PerplexitySums.of(click, probability, rank, weight).finish()
