"""The partition builder: from the runs of a partition to what is stored of it.

Pages are put together through the same checks as any other log. Then numbers take the place of ids,
and where a log is folded, one page is kept of those that are the same in every way that a stored
log keeps. A partition that is too large to be put together at once comes in several parts: numbers
are what is left of a part until all are there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.hashes import hash_values, mix
from gecasmo.logs.arrays import is_large, number_runs, stable_order
from gecasmo.logs.assembly import assemble, note_repeated_sessions
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Faults, Note
from gecasmo.logs.pages import number_by_first_appearance, shown
from gecasmo.logs.roles import Roles
from gecasmo.logs.runs import Integers, offsets
from gecasmo.logs.store.page_runs import (
    LENGTH,
    ROW,
    WEIGHT,
    FaultsOfRows,
    PageRuns,
    first_equal,
    first_likes,
    is_whole,
    joined_runs,
    numbers_apart,
)
from gecasmo.logs.store.plan import LogLayout
from gecasmo.report import counted

QUERY = "\0query"  # in heads, the number of the query
_ODD = np.uint64(0x9E3779B97F4A7C15)


class WholePages(NamedTuple):
    """Pages of a part of a partition, a run a page, in the order of the source.

    `queries` are the different queries (or sessions, or tasks, where these decide about the
    partition) by their hash; heads have their numbers.
    """

    runs: PageRuns
    queries: pl.Series
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class CodedPages:
    """Pages of a partition with numbers instead of ids, by the hash of their query.

    Heads have the number of the query, the weight, the id of the session where it is kept, and
    other columns; results the number of the document, the click, the rank unless it is 1, 2, 3,
    ... on every page, and other columns. Sessions, results, clicks and weight are counted in the
    source, before anything is folded.
    """

    runs: PageRuns  # one a page
    queries: pl.Series  # the different queries, sessions or tasks, by their hash
    docs: pl.DataFrame  # of each query: document, query, how often and where first in the source
    sessions: int
    results: int
    clicks: int
    weight: float
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class PartitionBuilder:
    """How the runs of one ingest become the pages of partitions."""

    layout: LogLayout
    roles: Roles  # what columns of the source are called in messages
    label: str  # and the source itself
    from_0: bool  # whether ranks start at 0 anywhere in the log
    row_name: Callable[[int], str]  # names a row of the source, counted over all files

    def build(self, parts: Iterable[PageRuns], fold: bool) -> CodedPages:
        """Put a partition together; each page has all its runs in one part.

        Where `fold` says so, pages that are the same are held once, with their weights added up.

        Raises
        ------
        ClickLogError
            With every fault found in a part.
        """
        found = []
        for runs in parts:
            pages = self.whole_pages(runs)
            del runs  # ids take much, and numbers are all that is wanted of them from here on
            found.append(_coded(pages, fold, self.layout.by_query))
        return _merged(found, fold, self.layout.by_query)

    def whole_pages(self, runs: PageRuns) -> WholePages:
        """Put the pages of a part together, through all checks."""
        layout, heads = self.layout, runs.heads
        if layout.whole:
            firsts = np.arange(len(runs))
            page_of_run = firsts.astype(np.uint32)
            self._refuse_repeated_sessions(runs)
        else:
            page_of_run, firsts = number_by_first_appearance(heads["session"])
        queries, query_of_run = _by_hash(heads[layout.key])
        log = None
        if len(firsts) < len(runs) or not self._is_in_order(runs):
            log = self._assembled(runs, page_of_run, query_of_run)
        pages = self._a_run_a_page(log, runs, firsts, query_of_run)
        return WholePages(pages, queries, () if log is None else tuple(log.notes))

    def _is_in_order(self, runs: PageRuns) -> bool:
        """Whether runs that are whole pages are also in the order of their ranks, with nothing in
        them that any check would have a word about. Most are, and no table is made of those."""
        results, layout = runs.results, self.layout
        if not results.height or not layout.has_rank or "weight" in results.columns:
            return False
        doc = results["doc"]
        if not (doc.dtype.is_integer() or doc.dtype == pl.String) or doc.null_count():
            return False
        rank = results["rank"].to_numpy()
        rises = np.ones(len(rank), np.bool_)
        np.greater(rank[1:], rank[:-1], out=rises[1:])
        starts = offsets(runs.lengths)[:-1][runs.lengths > 0]
        rises[starts] = rank[starts] >= (0 if self.from_0 else 1)
        return bool(rises.all())

    def _assembled(
        self, runs: PageRuns, page_of_run: NDArray[np.uint32], query_of_run: Integers
    ) -> ClickLog | None:
        """The log of these runs; None where no page has results."""
        layout, results = self.layout, self._ranked(runs.results)
        if results.height == 0:
            return None
        run_of_row = np.repeat(np.arange(len(runs)), runs.lengths)
        # Numbers are faster to check than ids; who is at fault is looked up when somebody is.
        table = results.with_columns(session=pl.Series(page_of_run[run_of_row]))
        if layout.has_query:
            query = query_of_run if layout.by_query else numbers_apart(runs.heads["query"])
            table = table.with_columns(query=pl.Series(query[run_of_row]))
        given = {
            "session": "session",
            "query": "query" if layout.has_query else None,
            "doc": "doc",
            "rank": "rank" if layout.has_rank else None,
            "click": "click",
            "weight": "weight" if layout.has_weight and not layout.whole else None,
        }
        try:
            return assemble(table, _Titled(given, self.roles), Faults(self.label))
        except ClickLogError:
            ids = [name for name in ("session", "query") if name in runs.heads.columns]
            table = runs.results.with_columns(runs.heads[name].gather(run_of_row) for name in ids)
            if "session" not in ids:
                table = table.with_columns(session=pl.Series(run_of_row))
            assemble(table, _Titled(given, self.roles), self._faults(runs))
            raise

    def _ranked(self, results: pl.DataFrame) -> pl.DataFrame:
        """Results with ranks from 1 on."""
        if self.from_0 and self.layout.has_rank:
            return results.with_columns(pl.col("rank").cast(pl.Int64) + 1)
        return results

    def _faults(self, runs: PageRuns) -> FaultsOfRows:
        """Faults in results that name their rows in the source."""
        lengths, first = runs.lengths, runs.heads[ROW]
        ends = np.cumsum(lengths)

        def name(result: int) -> str:
            run = int(np.searchsorted(ends, result, side="right"))
            within = 0 if self.layout.nested else result - int(ends[run] - lengths[run])
            return self.row_name(int(first[run]) + within)

        return FaultsOfRows(self.label, name)

    def _refuse_repeated_sessions(self, runs: PageRuns) -> None:
        if "session" not in runs.heads.columns:
            return
        sessions, rows = runs.heads["session"], runs.heads[ROW]
        faults = FaultsOfRows(self.label, lambda run: self.row_name(int(rows[run])))
        if self.layout.nested:
            note_repeated_sessions(sessions, self.roles.title("session"), faults)
        else:
            self._note_sessions_of_other_logs(sessions, faults)
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

    def _a_run_a_page(
        self, log: ClickLog | None, runs: PageRuns, firsts: Integers, query_of_run: Integers
    ) -> PageRuns:
        """The pages of the log, with what heads say of them; queries are numbers already.

        Without a log, runs are pages as they are."""
        layout = self.layout
        heads = runs.heads if len(firsts) == len(runs) else runs.heads[firsts]
        lengths = np.zeros(len(firsts), np.uint32)
        weight = heads[WEIGHT].to_numpy().copy() if WEIGHT in heads.columns else np.ones(len(heads))
        names = [name for name in layout.kept if name in runs.results.columns]
        if log is None:
            lengths[:] = runs.lengths[firsts]
            results = self._ranked(runs.results)
            if not layout.has_rank:
                results = results.with_columns(rank=pl.Series([], dtype=pl.Int32))
            results = results.select("doc", pl.col("rank").cast(pl.Int32), "click", *names)
        else:
            place = log.sessions.to_numpy()
            lengths[place] = log.lengths
            if layout.has_weight and not layout.whole:
                weight[place] = log.weight
            results = pl.DataFrame([log.column(name) for name in ("doc", "rank", "click", *names)])
            if not np.array_equal(log.order, np.arange(log.n_results)):
                results = results[log.order]
        columns = [
            pl.Series(LENGTH, lengths),
            heads[ROW],
            pl.Series(WEIGHT, weight),
            pl.Series(QUERY, query_of_run[firsts].astype(np.uint32)),
            *(heads[name] for name in layout.kept if name in heads.columns),
        ]
        if layout.has_query and not layout.by_query:
            columns.append(heads["query"])
        if layout.keeps_session:
            columns.append(heads["session"])
        rank = results["rank"].to_numpy()
        if np.array_equal(rank, ranks_by_length(lengths)):
            results = results.drop("rank")
        else:
            results = results.with_columns(rank=pl.Series(smallest(rank)))
        return PageRuns(pl.DataFrame(columns), results)


class _Titled(Roles):
    """Roles of a table with plain names that are told by the names in the source."""

    def __init__(self, given: dict[str, str | None], source: Roles) -> None:
        super().__init__(given)
        self._source = source

    def title(self, role: str) -> str:
        """Name the role, and its column where that is called otherwise."""
        return self._source.title(role)


def _by_hash(values: pl.Series) -> tuple[pl.Series, Integers]:
    """The different values in order of their hashes, and which of them each value is."""
    number, firsts = _numbered(values)
    different = values.gather(firsts)
    order = np.argsort(hash_values(different), kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return different.gather(order), place[number]


def _numbered(values: pl.Series) -> tuple[NDArray[np.uint32], Integers]:
    """Number the different values as they appear, and say where."""
    if is_whole(values.dtype) and not values.null_count() and is_large(len(values)):
        found = number_runs(values.to_numpy(), np.array([0, len(values)]))
        return found.numbers, found.first_at
    return number_by_first_appearance(values)


def ranks_by_length(lengths: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Ranks 1, 2, 3, ... on each page."""
    n_pages = len(lengths)
    if n_pages and (lengths == lengths[0]).all():
        return np.tile(np.arange(1, lengths[0] + 1, dtype=np.int32), n_pages)
    starts = offsets(lengths)
    ranks: Integers = np.arange(1, starts[-1] + 1) - np.repeat(starts[:-1], lengths)
    return ranks.astype(np.int32)


def smallest(values: NDArray[np.integer[Any]]) -> NDArray[np.unsignedinteger[Any]]:
    """The values, which are not negative, in the smallest unsigned integers that hold them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def _coded(whole: WholePages, fold: bool, by_query: bool) -> CodedPages:
    """Put pages in the order of their queries, and numbers in the place of documents."""
    pages, times = whole.runs, np.ones(len(whole.runs), np.int64)
    if fold:
        pages, times = _weighed(pages)
    query = pages.heads[QUERY].to_numpy()
    chosen = np.flatnonzero(times)
    chosen = chosen[np.argsort(query[chosen], kind="stable")]
    pages, times = pages.take(chosen), times[chosen]

    lengths, group = pages.lengths, groups_of(pages, by_query)
    group_of_result = np.repeat(group, lengths)
    doc = pages.results["doc"]
    number, firsts = _pairs(numbers_apart(doc), group_of_result)
    # Counted in the source, so that it does not matter what was folded when.
    count = np.bincount(number, weights=np.repeat(times, lengths), minlength=len(firsts))
    starts = np.cumsum(lengths) - lengths
    page = np.searchsorted(starts, firsts, side="right") - 1
    within = np.minimum(firsts - starts[page], (1 << 24) - 1)
    docs = pl.DataFrame(
        {
            "doc": doc.gather(firsts),
            "query": group_of_result[firsts],
            "count": count.astype(np.int64),
            "first": (pages.heads[ROW].to_numpy()[page] << 24) + within,
        }
    )
    return CodedPages(
        runs=PageRuns(pages.heads, pages.results.with_columns(doc=pl.Series(number))),
        queries=whole.queries,
        docs=docs,
        sessions=len(whole.runs),
        results=whole.runs.results.height,
        clicks=int(whole.runs.results["click"].sum()),
        weight=float(whole.runs.heads[WEIGHT].to_numpy().sum()),
        notes=whole.notes,
    )


def _weighed(pages: PageRuns) -> tuple[PageRuns, Integers]:
    """Pages with the weight of all that they stand for, and how many: 0 for the folded ones."""
    likes = first_likes(pages, pages.heads[QUERY].to_numpy())
    weight = pages.heads[WEIGHT].to_numpy()
    summed = np.bincount(likes, weights=weight, minlength=len(pages)).astype(np.float64)
    heads = pages.heads.with_columns(pl.Series(WEIGHT, summed))
    return PageRuns(heads, pages.results), np.bincount(likes, minlength=len(pages))


def groups_of(pages: PageRuns, by_query: bool) -> NDArray[np.uint32]:
    """Whose documents a page has: those of its query, or of the partition."""
    query: NDArray[np.uint32] = pages.heads[QUERY].to_numpy()
    return query if by_query else np.zeros_like(query)


def _pairs(
    doc: NDArray[Any], group: NDArray[np.uint32]
) -> tuple[NDArray[np.unsignedinteger[Any]], Integers]:
    """Number the pairs of a group and a document by where they stand first, and say where.

    The results of each group stand together, so all that is looked up is near.
    """
    if is_large(len(doc)):
        found = number_runs(doc, offsets(np.bincount(group)))
        firsts = found.first_at
        number = found.numbers + offsets(found.n_distinct)[group]
    else:
        first = first_of_pair(doc, group)
        firsts = np.flatnonzero(first == np.arange(len(first)))
        place = np.zeros(len(doc), np.int64)
        place[firsts] = np.arange(len(firsts))
        number = place[first]
    return number.astype(np.min_scalar_type(len(firsts))), firsts


def first_of_pair(doc: NDArray[Any], query: NDArray[Any]) -> Integers:
    """For each result, the first result of the same query with the same document."""
    # One number for both is far faster to look up; that it stands for one pair is checked.
    first = first_equal(mix(doc) + query.astype(np.uint64) * _ODD)
    if (doc[first] != doc).any() or (query[first] != query).any():
        table = pl.DataFrame({"doc": doc, "query": query}).with_row_index("row")
        exact = table.select(pl.col("row").min().over("doc", "query")).to_series()
        first = exact.to_numpy().astype(np.int64)
    return first


def _merged(parts: Sequence[CodedPages], fold: bool, by_query: bool) -> CodedPages:
    """Put the parts of a partition together, documents of each query by how frequent they are.

    Where partitions are not by query, all pages share one list of documents.
    """
    queries, query_of = parts[0].queries, [np.arange(len(parts[0].queries))]
    if len(parts) > 1:
        queries, number = _by_hash(pl.concat([part.queries for part in parts]))
        query_of = np.split(number, np.cumsum([len(part.queries) for part in parts])[:-1])
    docs, doc_of = _merged_docs(parts, query_of if by_query else None)
    has_rank = any("rank" in part.runs.results.columns for part in parts)
    runs = []
    for part, query, doc in zip(parts, query_of, doc_of, strict=True):
        heads, results = part.runs.heads, part.runs.results
        if has_rank and "rank" not in results.columns:
            rank = pl.Series("rank", smallest(ranks_by_length(part.runs.lengths)))
            results = results.select("doc", rank, pl.exclude("doc"))
        number = query[heads[QUERY].to_numpy()].astype(np.uint32)
        results = results.with_columns(doc=pl.Series(doc[results["doc"].to_numpy()]))
        runs.append(PageRuns(heads.with_columns(pl.Series(QUERY, number)), results))
    pages = joined_runs(runs)
    if len(parts) > 1:
        row, query = (pages.heads[name].to_numpy() for name in (ROW, QUERY))
        # In a log, a page without results stands where the next one starts.
        pages = pages.take(np.lexsort((pages.lengths, row, query)))
        if fold:
            pages, times = _weighed(pages)
            pages = pages.take(np.flatnonzero(times))
    return CodedPages(
        runs=pages,
        queries=queries,
        docs=docs,
        sessions=sum(part.sessions for part in parts),
        results=sum(part.results for part in parts),
        clicks=sum(part.clicks for part in parts),
        weight=float(sum(part.weight for part in parts)),
        notes=tuple(note for part in parts for note in part.notes),
    )


def _merged_docs(
    parts: Sequence[CodedPages], query_of: Sequence[Integers] | None
) -> tuple[pl.DataFrame, list[NDArray[np.unsignedinteger[Any]]]]:
    """The documents of each query, and the numbers there of those of each part."""
    docs = pl.concat([part.docs for part in parts])
    query, count, when = (docs[name].to_numpy() for name in ("query", "count", "first"))
    if query_of is not None:
        own = zip(parts, query_of, strict=True)
        query = np.concatenate([place[part.docs["query"].to_numpy()] for part, place in own])
    first = np.arange(docs.height)
    if len(parts) > 1:
        first = first_of_pair(numbers_apart(docs["doc"]), query)
        count = np.bincount(first, weights=count, minlength=len(first))
        when = when.copy()
        np.minimum.at(when, first, when.copy())
    firsts = np.flatnonzero(first == np.arange(len(first)))
    if len(parts) > 1 or query_of is None:
        firsts = firsts[np.lexsort((when[firsts], -count[firsts], query[firsts]))]
    else:  # they are in the order of the source, query by query
        most = int(count.max(initial=0))
        order = stable_order(most - count, most + 1)
        firsts = order[stable_order(query[order], int(query.max(initial=0)) + 1)]
    in_query = np.bincount(query[firsts], minlength=1)
    starts = np.cumsum(in_query) - in_query
    number = np.zeros(len(first), np.min_scalar_type(int(in_query.max())))
    number[firsts] = np.arange(len(firsts)) - starts[query[firsts]]
    found = pl.DataFrame({"doc": docs["doc"].gather(firsts), "query": query[firsts]})
    ends = np.cumsum([part.docs.height for part in parts])
    return found, np.split(number[first], ends[:-1])
