"""From one row a page, with lists of results, to one row a result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.logs.faults import Faults, counted, counted_are
from gecasmo.logs.pages import PageOf, Rows
from gecasmo.logs.roles import Roles


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
    """Lay out the lists of a nested log.

    Pages whose lists do not fit are noted and left out, so that the rest can still be checked.

    Parameters
    ----------
    frame
        One row a page, with at least one list column.
    faults
        Where faults are noted.

    Returns
    -------
    Unrolled
    """
    lists = [_as_list(column) for column in frame.iter_columns() if is_list(column.dtype)]
    sound = _with_equal_lengths(lists, faults)
    rows = np.flatnonzero(sound).astype(np.int64)
    if len(rows) < frame.height:
        frame = frame.filter(pl.Series(sound))
        lists = [column.filter(pl.Series(sound)) for column in lists]
    lengths = lists[0].list.len().to_numpy().astype(np.int64)
    page = np.repeat(np.arange(len(rows), dtype=np.uint32), lengths)

    exploded = {column.name: column.explode(empty_as_null=False) for column in lists}
    pages = frame.drop(exploded)
    results = {
        name: exploded[name] if name in exploded else frame[name].gather(page)
        for name in frame.columns
    }
    return Unrolled(pl.DataFrame(results), page, pages, rows)


def note_misplaced_lists(frame: pl.DataFrame, roles: Roles, faults: Faults) -> None:
    """Note columns of results without lists, and sessions with them; they then play no part.

    Parameters
    ----------
    frame
        One row a page.
    roles
        Which column plays which part.
    faults
        Where faults are noted.
    """
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


def is_list(dtype: pl.DataType) -> bool:
    """Whether a column of this data type holds several values a row."""
    return isinstance(dtype, pl.List | pl.Array)


def _as_list(column: pl.Series) -> pl.Series:
    return column.arr.to_list() if isinstance(column.dtype, pl.Array) else column


def _with_equal_lengths(lists: list[pl.Series], faults: Faults) -> NDArray[np.bool_]:
    """Say which pages have all their lists, all of one length, and note the others."""
    present = np.ones(len(lists[0]), np.bool_)
    for column in lists:
        missing = column.is_null()
        if missing.any():
            count, first = int(missing.sum()), faults.row(missing.arg_true()[0])
            faults.add(
                f"{column.name}: {counted_are(count, 'list')} missing (null), first: {first}"
            )
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
