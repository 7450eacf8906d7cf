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
from gecasmo.logs.arrays import (
    differing_pages,
    hash_pages,
    is_large,
    number_runs,
    page_results,
    stable_order,
)
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
    offsets,
    rows_of_runs,
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
        """Take some runs, or all in another order."""
        starts = offsets(self.lengths)
        target = offsets(np.diff(starts)[chosen])
        moved, others = {}, []
        for column in self.results:
            if is_array(column) and is_large(int(target[-1])):
                values = page_results(as_array(column), starts, chosen, target)
                moved[column.name] = pl.Series(column.name, values)
            else:
                others.append(column.name)
        if others:
            frame = self.results.select(others)
            # Some at a time, since places take memory.
            parts = [
                frame[rows_of_runs(starts[chosen[part]], np.diff(target)[part])]
                for part in slices_of_runs(np.diff(target))
            ]
            if len(parts) != 1:
                parts = [pl.concat([frame.clear(), *parts], rechunk=True)]
            moved |= {column.name: column for column in parts[0]}
        results = [moved[name] for name in self.results.columns]
        return PageRuns(self.heads[chosen], pl.DataFrame(results))


def is_array(values: pl.Series) -> bool:
    """Whether NumPy has the same values in an array: numbers without gaps, yes and no."""
    dtype = values.dtype
    is_plain = is_whole(dtype) or dtype in (pl.Boolean, pl.Float32, pl.Float64)
    return is_plain and not values.null_count()


def as_array(values: pl.Series) -> NDArray[Any]:
    """The values in an array, where NumPy has the same."""
    if values.dtype == pl.Boolean:
        # Polars packs these; its casts unpack them several times faster than its way to NumPy.
        return values.cast(pl.UInt8).to_numpy().view(np.bool_)
    return values.to_numpy()


def is_whole(dtype: pl.DataType) -> bool:
    """Whether values are integers that NumPy has, too."""
    return dtype.is_integer() and dtype not in WIDE


def joined_runs(parts: Sequence[PageRuns]) -> PageRuns:
    """Put runs behind each other; numbers may be of different widths."""
    heads = pl.concat([part.heads for part in parts], rechunk=True)
    results = [part.results for part in parts]
    return PageRuns(heads, pl.concat(results, how="vertical_relaxed", rechunk=True))


def hash_ids(values: pl.Series) -> Hashes:
    """Hash ids; each different one once, unless it takes longer to find out which those are."""
    if is_whole(values.dtype):
        return hash_values(values)
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
            numbers, sound = read
            rank = numbers if sound.all() else np.where(sound, numbers, 1)
            columns.append(pl.Series("rank", rank.astype(np.int32, copy=False)))
        columns.append(self._clicks().alias("click"))
        return columns

    def _clicks(self) -> pl.Series:
        if self.roles.columns["click"]:
            click = self.column(self.table, "click")
            if click.dtype == pl.Boolean and not click.null_count():
                return click
        # How many at most is not said: what is noted of several batches is added up.
        return pl.Series(self.clicks(upto=False))

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
        is_plain = is_whole(column.dtype) and not column.null_count()
        values = (column if is_plain else column.rle_id()).to_numpy()
        is_start[1:] |= values[1:] != values[:-1]
    return np.flatnonzero(is_start).astype(np.int64)


def numbers_apart(values: pl.Series) -> NDArray[np.generic]:
    """Numbers that are equal where values are, and different where they differ."""
    if (is_whole(values.dtype) or values.dtype == pl.Boolean) and not values.null_count():
        return as_array(values)
    return number_by_first_appearance(values)[0]


def first_equal(keys: Hashes) -> Integers:
    """For each number, where it stands first."""
    table = pl.DataFrame({"key": keys}).with_row_index("row")
    first = table.select(pl.col("row").min().over("key")).to_series()
    return first.to_numpy().astype(np.int64)


def first_equal_within(keys: Hashes, group: NDArray[np.integer[Any]]) -> Integers:
    """For each number, where it stands first in its group."""
    if not is_large(len(keys)):
        return first_equal(mix(group) ^ keys)
    order = stable_order(group, int(group.max(initial=0)) + 1)
    ordered = group[order]
    found = number_runs(keys[order], offsets(np.bincount(group)))
    first = np.empty(len(keys), np.int64)
    first[order] = order[found.first_at[offsets(found.n_distinct)[ordered] + found.numbers]]
    return first


def first_likes(runs: PageRuns, group: NDArray[np.integer[Any]] | None = None) -> Integers:
    """For each page, the first that is the same in all its columns, however it is called or weighs.

    A page that is like no earlier one has its own number. Pages of different groups, which are
    numbered from 0, differ anyway: it is faster to look among those of a group.
    """
    lengths = runs.lengths
    starts = offsets(lengths)
    told = [name for name in runs.heads.columns if name not in (LENGTH, ROW, WEIGHT)]
    of_pages = [numbers_apart(runs.heads[name]) for name in told]
    of_results = [numbers_apart(column) for column in runs.results]
    hashes = mix(lengths)
    for column in of_pages:
        hashes = mix(hashes ^ mix(column.astype(np.uint64)))
    hashes = hash_pages(of_results, starts, np.arange(len(runs)), hashes)
    likes = first_equal(hashes) if group is None else first_equal_within(hashes, group)
    differs = differing_pages(of_results, starts, likes)
    for column in of_pages:
        differs |= column != column[likes]
    likes[differs] = np.flatnonzero(differs)  # not to fold is never wrong
    return likes
