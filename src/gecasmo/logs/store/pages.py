"""The pages of a partition: put together from rows, through the same checks as any other log.

Where a log is folded, only one is kept of the pages that are the same in every way that a stored
log keeps; which they are is found here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.hashing import Hashes, hash_values, mix
from gecasmo.logs.assembly import assemble, note_repeated_sessions
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Faults, Note
from gecasmo.logs.pages import number_by_first_appearance, shown
from gecasmo.logs.roles import Roles
from gecasmo.logs.store.pieces import LENGTH, WEIGHT, Integers
from gecasmo.logs.store.plan import Layout
from gecasmo.report import counted

RowName = Callable[[int], str]
Bools = NDArray[np.bool_]
_ODD = 0x9E3779B97F4A7C15
_ALL_BITS = (1 << 64) - 1
# How many results are compared or moved at a time, where a partition has very many.
AT_A_TIME = 500_000


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


def places_of(starts: Integers, lengths: Integers, chosen: Integers) -> Integers:
    """The places of all results of these pages, page after page."""
    picked = lengths[chosen]
    ends = np.cumsum(picked)
    shift = np.repeat(starts[chosen] - (ends - picked), picked)
    return shift + np.arange(int(ends[-1]) if len(ends) else 0)


def slices_of(lengths: Integers) -> Iterator[slice]:
    """Cut pages into slices that have not too many results."""
    ends = np.cumsum(lengths)
    first, n_pages = 0, len(lengths)
    while first < n_pages:
        before = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, before + AT_A_TIME, side="right"))
        last = max(last, first + 1)
        yield slice(first, last)
        first = last


def likes_of(pages: Pages) -> Integers:
    """For each page of a partition, the first page that is the same.

    Parameters
    ----------
    pages
        The pages.

    Returns
    -------
    ndarray of int64
        A page that is like no earlier one has its own number.
    """
    of_results = [
        numbers_apart(pages.doc),
        pages.rank.astype(np.uint64) * np.uint64(2) + pages.click,
        *(numbers_apart(column) for column in pages.result_columns),
    ]
    of_pages = [pages.query.astype(np.uint64)]
    of_pages += [numbers_apart(column) for column in pages.page_columns]
    starts = np.cumsum(pages.lengths) - pages.lengths

    def differ(one: Integers, other: Integers) -> Bools:
        found: Bools = pages.lengths[one] != pages.lengths[other]
        for column in of_pages:
            found |= column[one] != column[other]
        found |= results_differ(starts, pages.lengths, one, other, of_results)
        return found

    hashes = hashes_of_pages(pages.lengths, of_results, of_pages)
    return first_likes(hashes, np.arange(pages.n_pages, dtype=np.int64), differ)


def first_likes(
    hashes: Hashes, order: Integers, differ: Callable[[Integers, Integers], Bools]
) -> Integers:
    """For each page, the first page that is the same.

    Parameters
    ----------
    hashes
        A number a page; pages with different numbers are different.
    order
        The place of each page in the source.
    differ
        Says of pairs of pages with equal hashes which differ all the same.

    Returns
    -------
    ndarray of int64
    """
    sorted_ = np.lexsort((order, hashes))
    same = np.zeros(len(hashes), np.bool_)
    same[1:] = hashes[sorted_][1:] == hashes[sorted_][:-1]
    later = np.flatnonzero(same)
    same[later[differ(sorted_[later], sorted_[later - 1])]] = False
    head = np.maximum.accumulate(np.where(same, 0, np.arange(len(hashes))))
    firsts = np.empty(len(hashes), np.int64)
    firsts[sorted_] = sorted_[head]
    return firsts


def results_differ(
    starts: Integers,
    lengths: Integers,
    one: Integers,
    other: Integers,
    columns: Sequence[NDArray[np.generic]],
) -> Bools:
    """Whether a result of a page is not like that of another page of the same length."""
    found = np.zeros(len(one), np.bool_)
    for part in slices_of(np.minimum(lengths[one], lengths[other])):
        # Pages of different lengths are told by these; here only what both have is compared.
        picked = np.minimum(lengths[one[part]], lengths[other[part]])
        ends = np.cumsum(picked)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - picked, picked)
        mine = np.repeat(starts[one[part]], picked) + within
        theirs = np.repeat(starts[other[part]], picked) + within
        differs = np.zeros(len(mine), np.bool_)
        for column in columns:
            differs |= column[mine] != column[theirs]
        total = np.concatenate([[0], np.cumsum(differs)])
        found[part] = total[ends] > total[ends - picked]
    return found


def numbers_apart(values: pl.Series) -> Hashes:
    """Numbers that are equal where values are, and different where they differ."""
    is_wide = values.dtype in (pl.Int128, pl.UInt128)
    if values.dtype.is_integer() and values.null_count() == 0 and not is_wide:
        return values.to_numpy().astype(np.uint64)
    numbers, _ = number_by_first_appearance(values)
    return numbers.astype(np.uint64)


def hashes_of_pages(
    lengths: Integers, of_results: Sequence[Hashes], of_pages: Sequence[Hashes]
) -> Hashes:
    """One number a page, from numbers of its results in order and of itself."""
    ends = np.cumsum(lengths)
    starts = ends - lengths
    place = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(starts, lengths)
    combined = mix(place)
    for factor, column in enumerate(of_results, 1):
        combined = mix(combined ^ (column * np.uint64(_ODD * (2 * factor + 1) & _ALL_BITS)))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(combined)])
    hashes: Hashes = (total[ends] - total[starts]) ^ mix(lengths)
    for column in of_pages:
        hashes = mix(hashes ^ mix(column))
    return hashes
