"""Pages and their results: one to look at, index arithmetic, and lists of results as rows."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.frames import WIDE
from gecasmo.logs.notes import Faults
from gecasmo.logs.roles import Roles, is_list
from gecasmo.report import TextTable, counted

PageOf = NDArray[np.uint32]
Ranks = NDArray[np.int32]
Rows = NDArray[np.int64]

_BLOCK = 1 << 18
_WORTH_THREADS = 5
_N_THREADS = min(4, os.cpu_count() or 1)


@dataclass(frozen=True, repr=False, eq=False)
class Page:
    """One page of a log, to look at.

    Attributes
    ----------
    session, query
        Its id, and what was searched for; None where the log has no queries.
    weight
        How often it counts.
    results
        Its results by rank: "rank", "doc", "click", and the other columns of the log.
    """

    session: Any
    query: Any
    weight: float
    results: pl.DataFrame

    def __len__(self) -> int:
        return self.results.height

    def _table(self) -> TextTable:
        title = f"Page {self.session!r}"
        if self.query is not None:
            title += f" of the query {self.query!r}"
        if self.weight != 1:
            title += f", which counts {self.weight:g} times"
        clicks = int(self.results["click"].sum())
        return TextTable.of(
            self.results, f"{title}: {counted(len(self), 'result')}, {clicks} clicked"
        )

    def __repr__(self) -> str:
        return str(self._table())

    def _repr_html_(self) -> str:
        return self._table().html()


def number_by_first_appearance(values: pl.Series) -> tuple[PageOf, Rows]:
    """Give each distinct value a number, in order of first appearance; nulls are equal.

    Returns
    -------
    numbers : ndarray of uint32
        The number of each value.
    firsts : ndarray of int64
        The row in which each number first appears.
    """
    if len(values) == 0:
        return np.zeros(0, np.uint32), np.zeros(0, np.int64)
    if values.dtype.is_integer() and values.dtype not in WIDE and not values.null_count():
        plain = values.to_numpy()
        if (plain[1:] > plain[:-1]).all():
            return np.arange(len(plain), dtype=np.uint32), np.arange(len(plain))
    # Rows of one page are mostly adjacent, so hashing one value a run is far less work.
    run = values.rle_id().to_numpy()
    run_starts = np.flatnonzero(np.diff(run.astype(np.int64), prepend=-1))
    one_a_run = values.gather(run_starts).alias("value")
    if _rises(one_a_run):  # as session ids mostly do: no value comes back
        return run.astype(np.uint32, copy=False), run_starts.astype(np.int64)
    heads = one_a_run.to_frame().with_row_index("run")
    first_run = heads.select(pl.col("run").min().over("value")).to_series().to_numpy()
    is_new = first_run == np.arange(len(first_run))
    number_of_run = (np.cumsum(is_new) - 1)[first_run]
    return number_of_run.astype(np.uint32)[run], run_starts[is_new].astype(np.int64)


def _rises(values: pl.Series) -> bool:
    """Whether values of which no two neighbours are equal are in order, so that all differ."""
    is_plain = values.dtype.is_integer() or values.dtype in (pl.String, pl.Datetime)
    return is_plain and not values.null_count() and values.is_sorted()


def first_rows(page: PageOf, n_pages: int) -> Rows:
    """Find the first row of each page, or -1 for a page without results."""
    firsts = np.full(n_pages, -1, np.int64)
    # From the last row to the first: of several rows of a page, the one written last stays.
    firsts[page[::-1]] = np.arange(len(page) - 1, -1, -1)
    return firsts


def rows_that_differ(values: pl.Series, page: PageOf, firsts: Rows) -> Rows:
    """Find the rows whose value is not that of the first row of their page."""
    if len(values) == 0:
        return np.zeros(0, np.int64)
    differs = values.ne_missing(values.gather(firsts[page]))
    return differs.arg_true().to_numpy().astype(np.int64)


def values_of_pages(values: pl.Series, firsts: Rows) -> pl.Series:
    """Take the value in the first row of each page, null for a page without results."""
    rows = pl.Series(firsts)
    return values.gather(rows.set(rows < 0, None))


def is_chain(page: PageOf, rank: Ranks) -> bool:
    """Whether rows are sorted by page, then rank, already."""
    for first in range(0, len(page), _BLOCK):
        block = slice(first, first + _BLOCK + 1)
        pages, ranks = page[block], rank[block]
        in_order = pages[1:] > pages[:-1]
        in_order |= (pages[1:] == pages[:-1]) & (ranks[1:] >= ranks[:-1])
        if not in_order.all():
            return False
    return True


def pages_in_order(session: pl.Series, rank: pl.Series, query: pl.Series | None) -> Rows | None:
    """Find where pages start in a log in the best of orders.

    That is: page by page, and rank by rank from 1 on with none twice, with one query a page. Most
    logs are; one look at each value is enough for them. The columns have no missing values.

    Returns
    -------
    ndarray of int64 or None
        The first row of each page, and the number of rows; None for logs in another order.
    """

    def look(first: int) -> Rows | None:
        """Find the pages that start in a block, which stays in the cache."""
        is_new = _changes(session, first)
        ranks = rank.slice(first - 1, _BLOCK + 1).to_numpy()
        is_higher = ranks[1:] > ranks[:-1]
        if not (is_higher | is_new).all():
            return None
        if query is not None and (_changes(query, first) & ~is_new).any():
            return None
        new = np.flatnonzero(is_new)
        return new + first if (ranks[1:][new] >= 1).all() else None

    if rank[0] < 1:
        return None
    blocks = range(1, len(session), _BLOCK)
    if len(blocks) < _WORTH_THREADS:
        found = list(map(look, blocks))
    else:
        with ThreadPoolExecutor(_N_THREADS) as pool:
            found = list(pool.map(look, blocks))
    starts = [here for here in found if here is not None]
    if len(starts) < len(found):
        return None
    heads = np.concatenate([np.zeros(1, np.int64), *starts])
    if not _are_distinct(session.gather(pl.Series(heads))):
        return None
    return np.append(heads, len(session))


def _changes(values: pl.Series, first: int) -> NDArray[np.bool_]:
    """Which values of a block differ from the one above."""
    block = values.slice(first - 1, _BLOCK + 1)
    if block.dtype.is_integer() and block.dtype not in WIDE:
        numbers = block.to_numpy()
        return np.asarray(numbers[1:] != numbers[:-1])
    return np.asarray((block != block.shift(1)).slice(1).to_numpy(), np.bool_)


def _are_distinct(values: pl.Series) -> bool:
    if values.dtype.is_integer() and values.dtype not in WIDE:
        numbers = values.to_numpy()
        if bool((numbers[1:] > numbers[:-1]).all()):
            return True
    return values.n_unique() == len(values)


def chain_order(page: PageOf, rank: Ranks) -> Rows:
    """Sort rows by page, then by rank; 0, 1, 2, ... when they are in order already."""
    if is_chain(page, rank):
        return np.arange(len(page), dtype=np.int64)
    key = (page.astype(np.int64) << 32) | rank
    # One integer key in Polars sorts several times faster than numpy.lexsort on two.
    return pl.Series(key).arg_sort().to_numpy().astype(np.int64)


def page_starts(page: PageOf, n_pages: int) -> Rows:
    """Count where each page starts in the chain, with the total at the end."""
    starts = np.zeros(n_pages + 1, np.int64)
    np.cumsum(np.bincount(page, minlength=n_pages), out=starts[1:])
    return starts


def ranks_by_row_order(page: PageOf, n_pages: int) -> Ranks:
    """Rank the rows of each page 1, 2, 3, ... as they come."""
    order = np.argsort(page, kind="stable")
    starts = page_starts(page, n_pages)
    rank = np.empty(len(page), np.int32)
    rank[order] = np.arange(len(page)) - starts[page[order]] + 1
    return rank


def shown(values: pl.Series, index: int | np.integer) -> str:
    """Show one value in a message."""
    value = values[int(index)]
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name}={part!r}" for name, part in value.items()) + ")"
    return repr(value)


@dataclass(frozen=True)
class Unrolled:
    """A nested log with its lists laid out.

    Attributes
    ----------
    results
        One row a result; what was one value a page is repeated.
    page
        The page of each result.
    pages
        The columns with one value a page, a row for each page, also for pages without results.
    rows
        The row of the source that each page came from.
    """

    results: pl.DataFrame
    page: PageOf
    pages: pl.DataFrame
    rows: Rows

    def row_of_result(self, index: int) -> int:
        """Return the row of the source that a result came from."""
        return int(self.rows[self.page[index]])

    def row_of_page(self, index: int) -> int:
        """Return the row of the source that a page came from."""
        return int(self.rows[index])


def unroll(frame: pl.DataFrame, faults: Faults) -> Unrolled:
    """Lay out the lists of a nested log, which has at least one column of them.

    Pages whose lists do not fit are noted and left out, so that the rest can still be checked.
    """
    lists = [_as_list(column) for column in frame.iter_columns() if is_list(column.dtype)]
    sound = _with_equal_lengths(lists, faults)
    rows = np.flatnonzero(sound).astype(np.int64)
    if len(rows) < frame.height:
        frame = frame.filter(pl.Series(sound))
        lists = [column.filter(pl.Series(sound)) for column in lists]
    lengths = lists[0].list.len().to_numpy().astype(np.int64)
    page = np.repeat(np.arange(len(rows), dtype=np.uint32), lengths)

    if 0 in lengths:  # an empty list would become a missing value
        lists = [column.filter(pl.Series(lengths > 0)) for column in lists]
    exploded = {column.name: column.explode() for column in lists}
    pages = frame.drop(exploded)
    results = {
        name: exploded[name] if name in exploded else frame[name].gather(page)
        for name in frame.columns
    }
    return Unrolled(pl.DataFrame(results), page, pages, rows)


def note_misplaced_lists(frame: pl.DataFrame, roles: Roles, faults: Faults) -> None:
    """Note columns of results without lists, and sessions with them; they then play no part."""
    for role in ("doc", "rank", "click"):
        names = roles.columns[role]
        if names and not any(is_list(frame.schema[name]) for name in names):
            faults.add(
                f"{roles.title(role)}: one value a page, while other columns hold lists of results"
            )
            roles.columns[role] = ()
    if any(is_list(frame.schema[name]) for name in roles.columns["session"]):
        faults.add(f"{roles.title('session')}: a list, while a nested log has one session a row")
        roles.columns["session"] = ()


def _as_list(column: pl.Series) -> pl.Series:
    return column.arr.to_list() if isinstance(column.dtype, pl.Array) else column


def _with_equal_lengths(lists: list[pl.Series], faults: Faults) -> NDArray[np.bool_]:
    """Say which pages have all their lists, all of one length, and note the others."""
    present = np.ones(len(lists[0]), np.bool_)
    for column in lists:
        missing = column.is_null()
        faults.add_missing(column.name, missing, "list")
        present &= ~missing.to_numpy()

    lengths = [column.list.len().fill_null(0).to_numpy() for column in lists]
    unequal = np.zeros(len(present), np.bool_)
    for other in lengths[1:]:
        unequal |= other != lengths[0]
    unequal &= present
    if unequal.any():
        row = int(np.argmax(unequal))
        which = next(i for i, length in enumerate(lengths) if length[row] != lengths[0][row])
        pages = counted(int(unequal.sum()), "page")
        faults.add(
            f"lists: {pages} with lists of different lengths, first: {faults.row(row)} has "
            f"{lengths[0][row]} in {lists[0].name!r} and {lengths[which][row]} in "
            f"{lists[which].name!r}"
        )
    return present & ~unequal
