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


def perplexity(
    click: NDArray[np.bool_], probability: Floats, rank: NDArray[np.integer], weight: Floats
) -> Perplexity:
    """The perplexity of click probabilities, per shown result."""
    with np.errstate(divide="ignore"):
        bits = -np.log2(np.where(click, probability, 1 - probability))
    infinite = np.isinf(bits)
    frame = pl.DataFrame(
        {
            "rank": np.asarray(rank).astype(np.int64),
            "weight": weight,
            "bits": weight * np.where(infinite, 0.0, bits),
            "infinite": infinite & (weight > 0),
        }
    )
    by_rank = (
        frame.group_by("rank")
        .agg(pl.col("weight").sum(), pl.col("bits").sum(), pl.col("infinite").sum())
        .sort("rank")
        .filter(pl.col("weight") > 0)
    )
    values = np.exp2(by_rank["bits"].to_numpy() / by_rank["weight"].to_numpy())
    values = np.where(by_rank["infinite"].to_numpy() > 0, np.inf, values)
    n_infinite = int(by_rank["infinite"].sum())
    pooled = np.inf if n_infinite else 2 ** (float(by_rank["bits"].sum()) / float(weight.sum()))
    return Perplexity(
        arithmetic=float(values.mean()),
        pooled=float(pooled),
        by_rank=pl.DataFrame(
            {
                "rank": by_rank["rank"],
                "perplexity": values,
                "results": by_rank["weight"],
                "infinite": by_rank["infinite"],
            }
        ),
        n_infinite=n_infinite,
    )
