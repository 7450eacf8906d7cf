"""Pages in the order of their query's hash, and the runs of pages that share a query."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.arrays import dense, stable_order
from gecasmo.encoding.columns import coded, is_plain_integer
from gecasmo.hashes import Hashes, hash_values, mix
from gecasmo.logs import ClickLog
from gecasmo.logs.runs import Integers, offsets

N_BUCKETS = 256


class PageOrder(NamedTuple):
    """Sessions by the hash of their query; pages of a query are a run, and stay together.

    Without queries, and for pages without results, each page is a run of its own.
    """

    sessions: Integers
    run_start: Integers  # where each run begins among the sessions in order, and the end
    hashes: Hashes  # one a run

    def bucket_start(self) -> Integers:
        """Where each of the 256 buckets begins among the sessions in order."""
        return self.run_start[self.bucket_runs()]

    def bucket_runs(self) -> Integers:
        """Where each of the 256 buckets begins among the runs."""
        buckets = self.hashes >> np.uint64(56)
        every = np.arange(N_BUCKETS + 1, dtype=np.uint64)
        return np.searchsorted(buckets, every).astype(np.int64)


def order_pages(log: ClickLog) -> PageOrder:
    """Put the pages of a log in order."""
    if not log.has_query:
        hashes = hash_values(log.sessions)
        sessions = np.argsort(hashes, kind="stable")
        return PageOrder(sessions, np.arange(len(sessions) + 1), hashes[sessions])
    filled = log.lengths > 0
    numbers = np.empty(log.n_sessions, np.int64)
    query, values = _queries(log, filled)
    numbers[filled] = query
    empty = np.flatnonzero(~filled)  # pages without results have no query of their own
    numbers[empty] = len(values) + np.arange(len(empty))
    hashes = np.concatenate([hash_values(values), mix(empty)])
    by_hash = np.argsort(hashes, kind="stable")
    place = np.empty(len(by_hash), np.int64)
    place[by_hash] = np.arange(len(by_hash))
    numbers = place[numbers]
    run_start = offsets(np.bincount(numbers, minlength=len(hashes)))
    return PageOrder(stable_order(numbers, len(hashes)), run_start, hashes[by_hash])


def _queries(log: ClickLog, filled: NDArray[np.bool_]) -> tuple[NDArray[np.integer], pl.Series]:
    """The number of the query of each page that has results, and the queries."""
    column = log.column("query")
    if column.null_count():
        coded(log, "query", "query")  # says so
    starts = log.starts[:-1] if filled.all() else log.starts[:-1][filled]
    column = column.gather(starts if log.is_sorted else log.order[starts])
    if is_plain_integer(column):
        codes, distinct = dense(column.to_numpy()) if len(column) else (starts, column.to_numpy())
        return codes, pl.Series(distinct)
    frame = pl.DataFrame({"value": column})
    known = frame.unique(maintain_order=True).with_row_index("code")
    numbered = frame.join(known, on="value", how="left", maintain_order="left", nulls_equal=True)
    return numbered["code"].to_numpy().astype(np.int64), known["value"]
