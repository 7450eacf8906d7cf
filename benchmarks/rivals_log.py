"""The log on which rivals were measured: a DBN whose pages come from a fair ranker.

Attraction is Beta(1, 3) and satisfaction Beta(2, 2) per pair, continuation 0.9; a query has 20
candidates, of which 10 are shown in the order of attraction plus noise. The first 80 % of the
sessions are for training. Every draw is made in the order of the published script, so that the
numbers of others can be compared with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo import DBN, ClickLog, read_log

RANKS, CANDIDATES, CONTINUATION, ZIPF, NOISE, SEED = 10, 20, 0.9, 1.1, 0.3, 20240
_CHUNK = 200_000

# Held-out log-likelihood a page of the best rival at each size, as measured for the design.
BEST_RIVAL = {
    10_000: ("CLAX", -2.6849),
    100_000: ("ClickModels", -2.7571),
    1_000_000: ("CLAX", -2.8232),
}


@dataclass(frozen=True)
class RivalsLog:
    train: ClickLog
    test: ClickLog
    attraction: NDArray[np.float64]  # by pair; a document's number is that of its pair
    satisfaction: NDArray[np.float64]

    def truth(self) -> DBN:
        """The model with the parameters that made the log."""
        pairs = np.arange(len(self.attraction), dtype=np.int32)
        keys = {"query": pairs // CANDIDATES, "doc": pairs}
        return DBN.with_values(
            attraction=pl.DataFrame(keys | {"probability": self.attraction}),
            satisfaction=pl.DataFrame(keys | {"probability": self.satisfaction}),
            continuation=CONTINUATION,
        )


def rivals_log(n_pages: int) -> RivalsLog:
    """Simulate the log of a size."""
    rng = np.random.default_rng([SEED, n_pages])
    n_queries = max(1, n_pages // 50)
    n_pairs = n_queries * CANDIDATES
    attraction = rng.beta(1.0, 3.0, n_pairs)
    satisfaction = rng.beta(2.0, 2.0, n_pairs)
    popularity = np.arange(1, n_queries + 1, dtype=float) ** -ZIPF
    share = np.cumsum(popularity) / popularity.sum()
    query = np.searchsorted(share, rng.random(n_pages), side="right")
    query = np.minimum(query, n_queries - 1).astype(np.int32)
    docs = np.empty((n_pages, RANKS), np.int32)
    clicks = np.zeros((n_pages, RANKS), bool)
    for first in range(0, n_pages, _CHUNK):
        last = min(n_pages, first + _CHUNK)
        found = query[first:last, None].astype(np.int64) * CANDIDATES + np.arange(CANDIDATES)
        score = attraction[found] + NOISE * rng.standard_normal(found.shape)
        shown = np.take_along_axis(found, np.argsort(-score, axis=1)[:, :RANKS], axis=1)
        docs[first:last] = shown
        examines = np.ones(last - first, bool)
        for rank in range(RANKS):
            clicked = examines & (rng.random(last - first) < attraction[shown[:, rank]])
            satisfied = clicked & (rng.random(last - first) < satisfaction[shown[:, rank]])
            clicks[first:last, rank] = clicked
            examines = examines & ~satisfied & (rng.random(last - first) < CONTINUATION)
    n_train = n_pages * 8 // 10
    return RivalsLog(
        _as_log(query, docs, clicks, 0, n_train),
        _as_log(query, docs, clicks, n_train, n_pages),
        attraction,
        satisfaction,
    )


def _as_log(
    query: NDArray[np.int32], docs: NDArray[np.int32], clicks: NDArray[np.bool_], a: int, b: int
) -> ClickLog:
    return read_log(
        pl.DataFrame(
            {
                "session": np.repeat(np.arange(a, b, dtype=np.int32), RANKS),
                "query": np.repeat(query[a:b], RANKS),
                "doc": docs[a:b].ravel(),
                "rank": np.tile(np.arange(1, RANKS + 1, dtype=np.int32), b - a),
                "click": clicks[a:b].ravel(),
            }
        )
    )
