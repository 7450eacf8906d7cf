"""Some pages of a Spark data frame in the memory of the driver, with all pages of their queries."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from gecasmo.estimation.beliefs.learning import PAGES
from gecasmo.hashing import hash_values
from gecasmo.logs import ClickLog
from gecasmo.spark.cutting import Reading
from gecasmo.spark.telling import hearing, quiet, telling

# Enough rows for so many pages, unless pages are long; then the sample is smaller.
_RESULTS_ON_A_PAGE = 10


@dataclass(frozen=True)
class SparkPages:
    """The partitions of a log on Spark, of which only as much is fetched as a sample needs.

    Parameters
    ----------
    pieces : RDD with the pieces of each partition
    reading : how they become pages
    n_pages : of all partitions
    """

    pieces: Any
    reading: Reading
    n_pages: int

    @property
    def n_partitions(self) -> int:
        return self.reading.n_parts

    def partitions(self) -> Iterator[ClickLog]:
        """Partitions that have pages, one after the other; of each the first pages."""
        most = 2 * PAGES
        reading = self.reading

        def fetch(pieces: Any) -> Any:
            table = telling(first_pages)(reading, pieces, most)
            return [] if table is None else [table]

        for number in range(self.n_partitions):
            with hearing(), quiet():
                found = self.pieces.context.runJob(self.pieces, fetch, [number])
            for data in found:
                yield reading.log(pl.read_ipc(io.BytesIO(data)), number)


def first_pages(reading: Reading, pieces: Any, most: int) -> bytes | None:
    """The first pages of a partition by the hash of their query, up to so many and the end of the
    last query, as rows in that order."""
    table = reading.table(pieces)
    if table is None:
        return None
    hashes = hash_values(reading.values(table))
    order = np.argsort(hashes, kind="stable")
    n_rows = most * _RESULTS_ON_A_PAGE
    if len(order) > n_rows:
        last = hashes[order[n_rows - 1]]
        order = order[hashes[order] <= last]
    buffer = io.BytesIO()
    table.select(pl.all().gather(pl.Series(order))).write_ipc(buffer)
    return buffer.getvalue()
