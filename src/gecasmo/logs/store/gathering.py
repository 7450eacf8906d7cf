"""Putting the pages of a partition together, through the same checks as any other log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.hashing import Hashes, hash_values
from gecasmo.logs.assembling import assemble
from gecasmo.logs.checks import note_repeated_sessions
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.faults import Faults, counted
from gecasmo.logs.notes import Note
from gecasmo.logs.pages import number_by_first_appearance, shown
from gecasmo.logs.roles import Roles
from gecasmo.logs.store.layout import Layout
from gecasmo.logs.store.pieces import LENGTH, WEIGHT, Integers

RowName = Callable[[int], str]


@dataclass
class Pages:
    """The pages of a partition, in the order of the source, with their results by rank.

    Attributes
    ----------
    queries
        The different queries (without queries: the sessions).
    query
        Which of them each page belongs to.
    hashes
        The hash of each of `queries`.
    order, lengths, weight
        Of each page; the order is its place in the source.
    doc, rank, click
        Of each result, page after page.
    page_columns, result_columns
        What else is kept, a value a page and a value a result.
    sessions
        The id of each page, where ids are kept.
    notes
        What was met.
    """

    queries: pl.Series
    query: Integers
    hashes: Hashes
    order: Integers
    lengths: Integers
    weight: NDArray[np.float64]
    doc: pl.Series
    rank: NDArray[np.int32]
    click: NDArray[np.bool_]
    page_columns: pl.DataFrame
    result_columns: pl.DataFrame
    sessions: pl.Series | None
    notes: tuple[Note, ...] = ()

    @property
    def n_pages(self) -> int:
        """How many pages there are."""
        return len(self.lengths)


class FaultsOfRows(Faults):
    """Faults whose rows are named by their file, too."""

    def __init__(self, label: str, name: RowName) -> None:
        super().__init__(label)
        self._name = name

    def row(self, index: int) -> str:
        """Name the row of the source that the value at `index` came from."""
        return self._name(self._row_of(int(index)))


@dataclass(frozen=True)
class Gathering:
    """How the rows of one ingest become pages.

    Attributes
    ----------
    layout
        Which columns there are.
    roles
        What the columns of the source are called, for messages.
    label
        What the source is called.
    from_0
        Whether ranks start at 0 anywhere in the log.
    """

    layout: Layout
    roles: Roles
    label: str
    from_0: bool

    def pages(
        self, runs: pl.DataFrame, results: pl.DataFrame, order: Integers, name: RowName
    ) -> Pages:
        """Put pages together.

        Parameters
        ----------
        runs, results
            Rows of a partition, in the order of the source; of each page all or none.
        order
            The place of each run among all runs of the partition.
        name
            Names a row of `results` in a message.

        Returns
        -------
        Pages

        Raises
        ------
        ClickLogError
            With every fault found.
        """
        layout = self.layout
        lengths = runs[LENGTH].to_numpy().astype(np.int64)
        if layout.whole:
            firsts = np.arange(runs.height, dtype=np.int64)
            page_of_run = firsts.astype(np.uint32)
            self._refuse_repeated_sessions(runs, name)
        else:
            page_of_run, firsts = number_by_first_appearance(runs["session"])
        key = runs["query" if layout.has_query else "session"]
        query_of_run, first_of_query = number_by_first_appearance(key)
        run_of_row = np.repeat(np.arange(runs.height), lengths)
        # Numbers are faster to check than ids; who is at fault is looked up when somebody is.
        table = results.with_columns(session=pl.Series(page_of_run[run_of_row]))
        if layout.has_query:
            table = table.with_columns(query=pl.Series(query_of_run[run_of_row]))
        if self.from_0 and layout.has_rank:
            table = table.with_columns(pl.col("rank").cast(pl.Int64) + 1)
        try:
            log = self._assembled(table, Faults(self.label))
        except ClickLogError:
            self._explain(runs, results, run_of_row, name)
            raise
        queries = key.gather(first_of_query)
        return self._as_pages(log, runs, results, order, firsts, query_of_run, queries)

    def _assembled(self, table: pl.DataFrame, faults: Faults) -> ClickLog | None:
        layout = self.layout
        if table.height == 0:
            return None
        given = {
            "session": "session",
            "query": "query" if layout.has_query else None,
            "doc": "doc",
            "rank": "rank" if layout.has_rank else None,
            "click": "click",
            "weight": "weight" if layout.has_weight and not layout.whole else None,
        }
        return assemble(table, _Titled(given, self.roles), faults)

    def _explain(
        self, runs: pl.DataFrame, results: pl.DataFrame, run_of_row: Integers, name: RowName
    ) -> None:
        """Look for the faults again, now with the ids of the source."""
        ids = [c for c in ("session", "query") if c in runs.columns]
        table = results.with_columns(runs[c].gather(run_of_row) for c in ids)
        if "session" not in ids:
            table = table.with_columns(session=pl.Series(run_of_row))
        self._assembled(table, FaultsOfRows(self.label, name))

    def _refuse_repeated_sessions(self, runs: pl.DataFrame, name: RowName) -> None:
        if "session" not in runs.columns:
            return
        first_rows = np.cumsum(runs[LENGTH].to_numpy().astype(np.int64)) - runs[LENGTH].to_numpy()
        faults = FaultsOfRows(self.label, lambda run: name(int(first_rows[run])))
        if self.layout.nested:
            note_repeated_sessions(runs["session"], self.roles.title("session"), faults)
        else:
            self._note_sessions_of_other_logs(runs["session"], faults)
        faults.raise_if_any()

    def _note_sessions_of_other_logs(self, sessions: pl.Series, faults: Faults) -> None:
        again = (~sessions.is_first_distinct()).arg_true()
        if not len(again):
            return
        if self.layout.has_query:
            how = "keep asks for the ids of sessions; leave 'session' out of it, or number the "
        else:
            how = "a log without queries keeps the ids of its sessions; number the "
        faults.add(
            f"{self.roles.title('session')}: {counted(len(again), 'page')} with the id of a page "
            f"of an earlier log, first: {shown(sessions, again[0])} ({faults.row(again[0])}); "
            f"{how}sessions of all logs differently"
        )

    def _as_pages(
        self,
        log: ClickLog | None,
        runs: pl.DataFrame,
        results: pl.DataFrame,
        order: Integers,
        firsts: Integers,
        query_of_run: NDArray[np.uint32],
        queries: pl.Series,
    ) -> Pages:
        layout = self.layout
        n_pages = len(firsts)
        lengths = np.zeros(n_pages, np.int64)
        weight = np.ones(n_pages)
        if WEIGHT in runs.columns:
            weight = runs[WEIGHT].to_numpy().copy()
        names = ["doc", *(name for name in layout.kept if name in results.columns)]
        frame = results.select(names)
        rank, click = np.zeros(0, np.int32), np.zeros(0, np.bool_)
        if log is not None:
            place = log.sessions.to_numpy()
            lengths[place] = log.lengths
            if layout.has_weight and not layout.whole:
                weight[place] = log.weight
            frame = pl.DataFrame([log.column(name) for name in names])
            rank, click = log.rank, log.click
            if not np.array_equal(log.order, np.arange(log.n_results)):
                frame = frame[log.order]
                rank, click = rank[log.order], click[log.order]
        of_pages = [name for name in layout.kept if name in runs.columns]
        first_runs = runs if n_pages == runs.height else runs[firsts]
        return Pages(
            queries=queries,
            query=query_of_run[firsts].astype(np.int64),
            hashes=hash_values(queries),
            order=order[firsts],
            lengths=lengths,
            weight=weight,
            doc=frame["doc"],
            rank=rank,
            click=click,
            page_columns=first_runs.select(of_pages),
            result_columns=frame.drop("doc"),
            sessions=first_runs["session"] if layout.keeps_session else None,
            notes=() if log is None else log.notes,
        )


class _Titled(Roles):
    """Roles of a table with plain names that are told by the names in the source."""

    def __init__(self, given: dict[str, str | None], source: Roles) -> None:
        super().__init__(given)
        self._source = source

    def title(self, role: str) -> str:
        """Name the role, and its column where that is called otherwise."""
        return self._source.title(role)
