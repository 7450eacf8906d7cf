"""Pages on their way into a stored log, in one shape from the reader to the files.

Rows next to each other that belong to one page are a *run*; its *head* holds once what they have in
common.

    a batch of a table, or a log   is checked here, where file and row are known
    -> runs of results             are brought together, those of a partition, by `Shuffle`
    -> a run a page                is checked by `PartitionBuilder`, since pages are whole now
    -> the same with numbers       in the place of ids, folded, as `CodedPages`
    -> the files of a partition
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.frames import WIDE
from gecasmo.hashes import Hashes, hash_values, mix
from gecasmo.logs.assembly import RoleReader
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Faults, Notebook
from gecasmo.logs.pages import (
    Unrolled,
    first_rows,
    note_misplaced_lists,
    number_by_first_appearance,
    shown,
    unroll,
    values_of_pages,
)
from gecasmo.logs.roles import Roles
from gecasmo.logs.runs import (
    Integers,
    hash_runs,
    offsets,
    rows_of_runs,
    runs_differ,
    slices_of_runs,
)
from gecasmo.logs.store.plan import LogLayout
from gecasmo.logs.values import check_ids, check_ranks, check_weights
from gecasmo.report import counted

# No columns of a log are called so: what every head has.
LENGTH = "\0length"
ROW = "\0row"
WEIGHT = "\0weight"


@dataclass(frozen=True)
class PageRuns:
    """Runs of results.

    `heads` has one row a run: `LENGTH`, its number of results; `ROW`, its first row in the source,
    counted over all files; "session", "query" and `WEIGHT` where there are any; and columns that
    have one value a page. `results` has one row a result, run after run: "doc", "click", "rank"
    where there are any, "weight" where pages are not whole, and the other columns.
    """

    heads: pl.DataFrame
    results: pl.DataFrame

    def __len__(self) -> int:
        return self.heads.height

    @property
    def lengths(self) -> Integers:
        """How many results each run has."""
        return self.heads[LENGTH].to_numpy().astype(np.int64)

    def take(self, chosen: Integers) -> PageRuns:
        """Take some runs, or all in another order; some at a time, since places take memory."""
        lengths = self.lengths
        starts, lengths = (np.cumsum(lengths) - lengths)[chosen], lengths[chosen]
        moved = [
            self.results[rows_of_runs(starts[part], lengths[part])]
            for part in slices_of_runs(lengths)
        ]
        if len(moved) != 1:
            moved = [pl.concat([self.results.clear(), *moved], rechunk=True)]
        return PageRuns(self.heads[chosen], moved[0])


def joined_runs(parts: Sequence[PageRuns]) -> PageRuns:
    """Put runs behind each other; numbers may be of different widths."""
    heads = pl.concat([part.heads for part in parts], rechunk=True)
    results = [part.results for part in parts]
    return PageRuns(heads, pl.concat(results, how="vertical_relaxed", rechunk=True))


def hash_ids(values: pl.Series) -> Hashes:
    """Hash ids, each different one once."""
    numbers, firsts = number_by_first_appearance(values)
    return hash_values(values.gather(firsts))[numbers]


class FaultsOfRows(Faults):
    """Faults whose rows are named by their file, too."""

    def __init__(self, label: str, name: Callable[[int], str]) -> None:
        super().__init__(label)
        self._name = name

    def row(self, index: int) -> str:
        """Name the row of the source that the value at `index` came from."""
        return self._name(self._row_of(int(index)))


def runs_of_log(log: ClickLog, layout: LogLayout, first_row: int) -> PageRuns:
    """Take a log that was read and checked already, before which so many results came."""
    lengths = log.lengths
    heads = [_lengths(lengths), pl.Series(ROW, first_row + np.cumsum(lengths) - lengths)]
    if layout.carries_session:
        heads.append(log.sessions.alias("session"))
    if layout.has_query:
        heads.append(log.session_column("query").alias("query"))
    heads.append(pl.Series(WEIGHT, log.weight))
    if layout.walk is not None:
        heads.append(_known_walks(log.session_column(layout.walk), log.sessions))
    there = log.page_columns
    if there is not None:
        own = [name for name in layout.kept if name != layout.walk]
        heads += [there[name] for name in own if name in there.columns]
    of_pages = {column.name for column in heads}
    names = ["doc", "rank", "click", *(name for name in layout.kept if name not in of_pages)]
    results = pl.DataFrame([log.column(name) for name in names])
    if not np.array_equal(log.order, np.arange(len(log.order))):
        results = results[log.order]
    return PageRuns(pl.DataFrame(heads), results)


def needed_columns(roles: Roles, layout: LogLayout) -> list[str]:
    """The columns of the source that have to be read, each once."""
    names = [name for columns in roles.columns.values() for name in columns]
    return list(dict.fromkeys([*names, *layout.kept]))


def runs_of_table(
    table: pl.DataFrame,
    roles: Roles,
    layout: LogLayout,
    faults: Faults,
    notebook: Notebook,
    first_row: int,
) -> PageRuns:
    """Check a batch of a table, before which so many rows came.

    What a value can be is checked here; what shows only when all rows of a page are together is
    found when partitions are built.

    Raises
    ------
    ClickLogError
        With every fault found.
    """
    table = table.select(needed_columns(roles, layout))
    unrolled = None
    if layout.nested:
        note_misplaced_lists(table, roles, faults)
        unrolled = unroll(table, faults)
        table = unrolled.results
    checker = _Checker(layout, first_row, table, unrolled, roles, faults, notebook)
    if unrolled is None:
        return checker.long()
    with faults.naming_rows(unrolled.row_of_result):
        return checker.nested(unrolled)


class _Checker(RoleReader):
    def __init__(self, layout: LogLayout, first_row: int, *read: Any) -> None:
        super().__init__(*read)
        self.layout, self.first_row = layout, first_row

    def long(self) -> PageRuns:
        session, query = self.read("session", check_ids), self.read("query", check_ids)
        results = self._results()
        weight = self.read("weight", check_weights)
        self.faults.raise_if_any()
        assert session is not None
        walk = None if self.layout.walk is None else self.table[self.layout.walk]
        starts = _run_starts([each for each in (session, query, walk) if each is not None])
        heads = [
            _lengths(np.diff(np.append(starts, self.table.height))),
            pl.Series(ROW, starts + self.first_row),
            session.gather(starts).alias("session"),
        ]
        if query is not None:
            heads.append(query.gather(starts).alias("query"))
            self._note_several("query", heads[2], heads[-1])
        if walk is not None:
            heads.append(walk.gather(starts))
            self._note_walks(heads[2], heads[-1])
        if weight is not None:
            results.append(pl.Series("weight", weight))
        results += [self.table[name] for name in self.layout.kept if name != self.layout.walk]
        self.faults.raise_if_any()
        return PageRuns(pl.DataFrame(heads), pl.DataFrame(results))

    def nested(self, unrolled: Unrolled) -> PageRuns:
        pages, n_pages = unrolled.pages, len(unrolled.rows)
        session = self.ids_of_rows(unrolled, self.first_row)
        query = self.read("query", check_ids)
        results = self._results()
        weight = self.read("weight", check_weights)
        self.faults.raise_if_any()
        heads = [
            _lengths(np.bincount(unrolled.page, minlength=n_pages)),
            pl.Series(ROW, unrolled.rows + self.first_row),
        ]
        if self.layout.carries_session:
            heads.append(session.alias("session"))
        if query is not None:
            heads.append(self._a_page(query, "query", session, unrolled).alias("query"))
        if weight is not None:
            weights = self._a_page(pl.Series(WEIGHT, weight), "weight", session, unrolled)
            heads.append(weights.fill_null(1.0))
        heads += [pages[name] for name in self.layout.kept if name in pages.columns]
        if (walk := self.layout.walk) is not None:
            if walk not in pages.columns:
                self.faults.add(f"'{walk}': a value for each page is needed, not a list of them")
                self.faults.raise_if_any()
            self._note_walks(session, pages[walk])
        results += [self.table[name] for name in self.layout.kept if name not in pages.columns]
        self.faults.raise_if_any()
        return PageRuns(pl.DataFrame(heads), pl.DataFrame(results))

    def _results(self) -> list[pl.Series]:
        doc = self.read("doc", check_ids)
        columns = [] if doc is None else [doc.alias("doc")]
        read = self.read("rank", check_ranks)
        if read is not None:
            columns.append(pl.Series("rank", np.where(read[1], read[0], 1).astype(np.int32)))
        # How many at most is not said: what is noted of several batches is added up.
        columns.append(pl.Series("click", self.clicks(upto=False)))
        return columns

    def _note_several(self, role: str, session: pl.Series, values: pl.Series) -> None:
        """Pages with several values; the rest of the page may be far away, in another batch."""
        page, firsts = number_by_first_appearance(session)
        if len(firsts) < len(page):
            everywhere = np.ones(len(page), np.bool_)
            self.note_varying(role, values, page, session.gather(firsts), everywhere)

    def _note_walks(self, session: pl.Series, walk: pl.Series) -> None:
        """Pages without a walk, and pages with several: these have no partition of their own."""
        lost = walk.is_null().arg_true()
        if len(lost):
            self.faults.add(f"'{walk.name}': {_lost_walks(len(lost), session, lost[0])}")
        else:
            self._note_several(walk.name, session, walk)

    def _a_page(
        self, values: pl.Series, role: str, sessions: pl.Series, unrolled: Unrolled
    ) -> pl.Series:
        """A value a page; a nested source may also have a list of them, all the same."""
        if self.is_of_pages(role):
            return values
        everywhere = np.ones(len(unrolled.page), np.bool_)
        self.note_varying(role, values, unrolled.page, sessions, everywhere)
        return values_of_pages(values, first_rows(unrolled.page, len(sessions)))


def _known_walks(walk: pl.Series, sessions: pl.Series) -> pl.Series:
    """The walk of each page, if it has one."""
    lost = walk.is_null().arg_true()
    if len(lost):
        raise ClickLogError(
            f"The column '{walk.name}': {_lost_walks(len(lost), sessions, lost[0])}."
        )
    return walk


def _lost_walks(count: int, sessions: pl.Series, first: int) -> str:
    where = f"first: session {shown(sessions, first)}"
    return f"{counted(count, 'page has', 'pages have')} none ({where})"


def _lengths(lengths: NDArray[np.int64]) -> pl.Series:
    return pl.Series(LENGTH, lengths.astype(np.uint32))


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


def numbers_apart(values: pl.Series) -> NDArray[np.generic]:
    """Numbers that are equal where values are, and different where they differ."""
    is_wide = values.dtype in WIDE
    is_whole = values.dtype.is_integer() or values.dtype == pl.Boolean
    if is_whole and not is_wide and values.null_count() == 0:
        return values.to_numpy()
    return number_by_first_appearance(values)[0]


def first_equal(keys: Hashes) -> Integers:
    """For each number, where it stands first."""
    table = pl.DataFrame({"key": keys}).with_row_index("row")
    first = table.select(pl.col("row").min().over("key")).to_series()
    return first.to_numpy().astype(np.int64)


def first_likes(runs: PageRuns) -> Integers:
    """For each page, the first that is the same in all its columns, however it is called or weighs.

    A page that is like no earlier one has its own number.
    """
    lengths = runs.lengths
    starts = offsets(lengths)
    told = [name for name in runs.heads.columns if name not in (LENGTH, ROW, WEIGHT)]
    of_pages = [numbers_apart(runs.heads[name]) for name in told]
    of_results = [numbers_apart(column) for column in runs.results]
    hashes = mix(lengths)
    for column in of_pages:
        hashes = mix(hashes ^ mix(column.astype(np.uint64)))
    salts = mix(np.arange(len(of_results)))
    for part in slices_of_runs(lengths):
        some = np.arange(part.start, part.stop)
        for column, salt in zip(of_results, salts, strict=True):
            hash_runs(column, starts, some, salt, hashes[part])
    likes = first_equal(hashes)
    later = np.flatnonzero(likes != np.arange(len(likes)))
    differs = np.zeros(len(later), np.bool_)
    for column in of_pages:
        differs |= column[later] != column[likes[later]]
    for part in slices_of_runs(lengths[later]):
        some = later[part]
        for column in of_results:
            differs[part] |= runs_differ(column, starts, some, likes[some])
    likes[later[differs]] = later[differs]  # not to fold is never wrong
    return likes
