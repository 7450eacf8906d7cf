"""A batch of rows, checked and made ready for its way to partitions.

Rows next to each other that belong to one page are a *run*: what they have in common is held once.
What a value can be is checked here, where file and row are known; what shows only when all rows of
a page are together is found when partitions are put together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.hashing import Hashes, hash_values
from gecasmo.logs.assembly import RoleReader
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Faults, Notebook
from gecasmo.logs.pages import (
    Unrolled,
    first_rows,
    note_misplaced_lists,
    number_by_first_appearance,
    unroll,
    values_of_pages,
)
from gecasmo.logs.roles import Roles
from gecasmo.logs.store.plan import Layout
from gecasmo.logs.values import check_clicks, check_ids, check_ranks, check_weights

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


def needed_columns(roles: Roles, layout: Layout) -> list[str]:
    """The columns of the source that have to be read, each once."""
    names = [name for columns in roles.columns.values() for name in columns]
    return list(dict.fromkeys([*names, *layout.kept]))


def piece_of_table(
    table: pl.DataFrame, roles: Roles, layout: Layout, faults: Faults, first_page: int
) -> Piece:
    """Check a batch of a table.

    Parameters
    ----------
    table
        Some rows of the source.
    roles
        Which column plays which part, settled.
    layout
        Which columns are kept.
    faults
        Where faults are noted; they are raised.
    first_page
        How many pages came before, for pages without an id.

    Returns
    -------
    Piece

    Raises
    ------
    ClickLogError
        With every fault found.
    """
    table = table.select(needed_columns(roles, layout))
    if not layout.nested:
        return _Checker(table, None, roles, layout, faults).long()
    note_misplaced_lists(table, roles, faults)
    unrolled = unroll(table, faults)
    with faults.naming_rows(unrolled.row_of_result):
        return _Checker(unrolled.results, unrolled, roles, layout, faults).nested(first_page)


class _Checker(RoleReader):
    def __init__(
        self,
        table: pl.DataFrame,
        unrolled: Unrolled | None,
        roles: Roles,
        layout: Layout,
        faults: Faults,
    ) -> None:
        super().__init__(table, unrolled, roles, faults, Notebook())
        self.layout = layout

    def long(self) -> Piece:
        session, query = self.read("session", check_ids), self.read("query", check_ids)
        results, has_rank_0 = self._results()
        weight = self.read("weight", check_weights)
        self.faults.raise_if_any()
        assert session is not None
        starts = _run_starts([column for column in (session, query) if column is not None])
        lengths = np.diff(np.append(starts, self.table.height)).astype(np.int64)
        runs = [session.gather(starts).alias("session")]
        if query is not None:
            runs.append(query.gather(starts).alias("query"))
            self._note_several_queries(runs[0], runs[1])
        if weight is not None:
            results.append(pl.Series("weight", weight))
        results += [self.table[name] for name in self.layout.kept]
        self.faults.raise_if_any()
        return Piece(
            pl.DataFrame(runs),
            pl.DataFrame(results),
            lengths,
            hash_of_runs(runs[-1]),
            self.notebook,
            has_rank_0,
        )

    def nested(self, first_page: int) -> Piece:
        assert self.unrolled is not None
        pages = self.unrolled.pages
        n_pages = len(self.unrolled.rows)
        session = self.ids_of_rows(self.unrolled, first_page)
        query = self.read("query", check_ids)
        results, has_rank_0 = self._results()
        weight = self.read("weight", check_weights)
        self.faults.raise_if_any()
        runs = []
        if self.layout.carries_session:
            runs.append(session.alias("session"))
        if query is not None:
            runs.append(self._a_page(query, "query", session).alias("query"))
        if weight is not None:
            weights = self._a_page(pl.Series(WEIGHT, weight), "weight", session)
            runs.append(weights.fill_null(1.0))
        runs += [pages[name] for name in self.layout.kept if name in pages.columns]
        results += [self.table[name] for name in self.layout.kept if name not in pages.columns]
        self.faults.raise_if_any()
        lengths = np.bincount(self.unrolled.page, minlength=n_pages).astype(np.int64)
        key = next(c for c in runs if c.name == ("query" if query is not None else "session"))
        hashes = hash_of_runs(key)
        return Piece(
            pl.DataFrame(runs), pl.DataFrame(results), lengths, hashes, self.notebook, has_rank_0
        )

    def _results(self) -> tuple[list[pl.Series], bool]:
        doc = self.read("doc", check_ids)
        columns = [] if doc is None else [doc.alias("doc")]
        read = self.read("rank", check_ranks)
        has_rank_0 = False
        if read is not None:
            rank = np.where(read[1], read[0], 1).astype(np.int32)
            has_rank_0 = bool(len(rank)) and int(rank.min()) == 0
            columns.append(pl.Series("rank", rank))
        clicks = self.read("click", check_clicks)
        clicked = np.zeros(self.table.height, np.bool_) if clicks is None else clicks.clicked
        if clicks is not None:
            # How many at most is not said: what is noted of several batches is added up.
            self.note_numbers_of_clicks(clicks.numbers, upto=False)
        columns.append(pl.Series("click", clicked))
        return columns, has_rank_0

    def _note_several_queries(self, session: pl.Series, query: pl.Series) -> None:
        """Pages with several queries; the rest of the page may be far away, in another batch."""
        page, firsts = number_by_first_appearance(session)
        if len(firsts) < len(page):
            everywhere = np.ones(len(page), np.bool_)
            self.note_varying("query", query, page, session.gather(firsts), everywhere)

    def _a_page(self, values: pl.Series, role: str, sessions: pl.Series) -> pl.Series:
        """A value a page; a nested source may also have a list of them, all the same."""
        if self.is_of_pages(role):
            return values
        assert self.unrolled is not None
        page = self.unrolled.page
        self.note_varying(role, values, page, sessions, np.ones(len(page), np.bool_))
        return values_of_pages(values, first_rows(page, len(sessions)))


def _run_starts(columns: list[pl.Series]) -> Integers:
    """Where a row is not like the row before it."""
    if len(columns[0]) == 0:
        return np.zeros(0, np.int64)
    is_start = np.zeros(len(columns[0]), np.bool_)
    is_start[0] = True
    for column in columns:
        run = column.rle_id().to_numpy()
        is_start[1:] |= run[1:] != run[:-1]
    return np.flatnonzero(is_start).astype(np.int64)
