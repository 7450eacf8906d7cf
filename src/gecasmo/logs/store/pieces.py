"""A batch of rows, checked and made ready for its way to partitions.

Rows next to each other that belong to one page are a *run*: what they have in common is held once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.hashing import Hashes, hash_values
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Notebook
from gecasmo.logs.pages import number_by_first_appearance
from gecasmo.logs.store.layout import Layout

Integers = NDArray[np.int64]

# No columns of a log are called so.
LENGTH = "\0length"
WEIGHT = "\0weight"


@dataclass
class Piece:
    """Runs of results.

    Attributes
    ----------
    runs
        One row a run: "session", "query" and `WEIGHT` where there are any, and columns that have
        one value a page.
    results
        One row a result: "doc", "click", "rank" where there are any, "weight" where pages are not
        whole, and the other columns.
    lengths
        How many results each run has.
    hashes
        What decides about the partition of each run.
    notebook
        What was met.
    has_rank_0
        Whether a rank is 0.
    """

    runs: pl.DataFrame
    results: pl.DataFrame
    lengths: Integers
    hashes: Hashes
    notebook: Notebook = field(default_factory=Notebook)
    has_rank_0: bool = False

    @property
    def n_runs(self) -> int:
        """How many runs there are."""
        return len(self.lengths)


def hash_of_runs(values: pl.Series) -> Hashes:
    """Hash a value for each run, each different value once."""
    numbers, firsts = number_by_first_appearance(values)
    return hash_values(values.gather(firsts))[numbers]


def piece_of_log(log: ClickLog, layout: Layout) -> Piece:
    """Take a log that was read and checked already.

    Parameters
    ----------
    log
        The log.
    layout
        Which of its columns are kept.

    Returns
    -------
    Piece
    """
    runs = []
    if layout.carries_session:
        runs.append(log.sessions.alias("session"))
    if layout.has_query:
        runs.append(log.session_column("query").alias("query"))
    runs.append(pl.Series(WEIGHT, log.weight))
    there = log.page_columns
    if there is not None:
        runs += [there[name] for name in layout.kept if name in there.columns]
    of_pages = {column.name for column in runs}
    names = ["doc", "rank", "click", *(name for name in layout.kept if name not in of_pages)]
    results = pl.DataFrame([log.column(name) for name in names])
    if not np.array_equal(log.order, np.arange(len(log.order))):
        results = results[log.order]
    found = pl.DataFrame(runs)
    hashes = hash_of_runs(found["query" if layout.has_query else "session"])
    return Piece(found, results, log.lengths.astype(np.int64), hashes)
