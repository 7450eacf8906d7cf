"""The pages on which rivals were measured, as arrays: a DBN whose pages come from a fair ranker.

Attraction is Beta(1, 3) and satisfaction Beta(2, 2) per pair, continuation 0.9; a query has 20
candidates, of which 10 are shown in the order of attraction plus noise. The first 80 % of the
sessions are for training. Every draw is made in the order of the published script, so that the
numbers of others can be compared with. NumPy only: contestants that do without gecasmo import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RANKS, CANDIDATES, CONTINUATION, ZIPF, NOISE, SEED = 10, 20, 0.9, 1.1, 0.3, 20240
_CHUNK = 200_000
_SAVED = ("query", "docs", "clicks", "attraction", "satisfaction")


@dataclass(frozen=True)
class RivalsArrays:
    """All pages in the order of the log; `docs[page, rank - 1]` is the number of a pair."""

    query: NDArray[np.int32]
    docs: NDArray[np.int32]
    clicks: NDArray[np.bool_]
    attraction: NDArray[np.float64]  # by pair
    satisfaction: NDArray[np.float64]

    @property
    def n_pages(self) -> int:
        return len(self.query)

    @property
    def n_train(self) -> int:
        return self.n_pages * 8 // 10

    @property
    def n_pairs(self) -> int:
        return len(self.attraction)

    def columns(self, first: int, last: int) -> dict[str, NDArray[np.generic]]:
        """Pages `first` to `last` with one row a result, as a log file would have it."""
        part, n_pages = slice(first, last), last - first
        return {
            "session": np.repeat(np.arange(first, last, dtype=np.int32), RANKS),
            "query": np.repeat(self.query[part], RANKS),
            "doc": self.docs[part].ravel(),
            "rank": np.tile(np.arange(1, RANKS + 1, dtype=np.int32), n_pages),
            "click": self.clicks[part].ravel(),
        }

    def save(self, path: Path) -> None:
        arrays = {name: getattr(self, name) for name in _SAVED}
        np.savez(path, n_train=self.n_train, n_pairs=self.n_pairs, **arrays)

    @classmethod
    def load(cls, path: Path) -> RivalsArrays:
        with np.load(path) as file:
            return cls(*(file[name] for name in _SAVED))


def rivals_arrays(n_pages: int) -> RivalsArrays:
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
    return RivalsArrays(query, docs, clicks, attraction, satisfaction)
