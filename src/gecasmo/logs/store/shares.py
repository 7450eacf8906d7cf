"""The rows of a partition, in several shares where they are too many to be in memory at once.

All pages of a query are in one partition, and a query can have a tenth of a log.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from gecasmo.logs.store.layout import Layout
from gecasmo.logs.store.pieces import Integers, hash_of_runs
from gecasmo.logs.store.spill import Spill, Spilled, bucket_of


class Shares:
    """The shares of one partition; each has whole pages.

    Parameters
    ----------
    spill
        The rows of all partitions.
    layout
        Which columns they have.
    partition, n_partitions
        Which partition, of how many.
    most_rows
        How many results a share has at most, about.
    """

    def __init__(
        self, spill: Spill, layout: Layout, partition: int, n_partitions: int, most_rows: int
    ) -> None:
        self._spill, self._layout = spill, layout
        self._partition, self._n_partitions = partition, n_partitions
        self.first = partition * spill.n_buckets // n_partitions
        self.last = max((partition + 1) * spill.n_buckets // n_partitions, self.first + 1)
        self._is_shared = n_partitions > spill.n_buckets
        if self._is_shared:
            rows = spill.count(self.first, self.last, self._mine)
        else:
            rows = int(spill.rows()[self.first : self.last].sum())
        self.number = max(-(-rows // most_rows), 1)

    def read(self, share: int) -> Spilled:
        """Read the rows of one share, in the order of the source."""
        if self.number == 1:
            return self._spill.read(self.first, self.last, self._mine if self._is_shared else None)
        return self._spill.read(self.first, self.last, lambda runs: self._of_share(runs, share))

    def _mine(self, runs: pl.DataFrame) -> Integers:
        """The runs of this partition, of those in buckets that it shares with others."""
        if not self._is_shared:
            return np.arange(runs.height)
        key = runs["query" if self._layout.has_query else "session"]
        return np.flatnonzero(bucket_of(hash_of_runs(key), self._n_partitions) == self._partition)

    def _of_share(self, runs: pl.DataFrame, share: int) -> Integers:
        mine = self._mine(runs)
        if "session" in runs.columns:
            # The rows of a page may be anywhere; its id says where they meet.
            chance = runs["session"].gather(mine).hash(seed=1).to_numpy()
        else:
            chance = mine.astype(np.uint64)
        chosen: Integers = mine[chance % np.uint64(self.number) == share]
        return chosen
