"""Checks of a table: its columns by the part they play, and several columns together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import polars as pl

from gecasmo.errors import option
from gecasmo.logs.notes import Faults, Notebook, counted
from gecasmo.logs.pages import (
    PageOf,
    Ranks,
    Rows,
    Unrolled,
    chain_order,
    first_rows,
    rows_that_differ,
    shown,
)
from gecasmo.logs.roles import Roles
from gecasmo.logs.values import Bools, Floats, check_ids

T = TypeVar("T")


@dataclass(frozen=True)
class Repeats:
    """Rows that repeat the page, the rank and the document of an earlier row.

    Attributes
    ----------
    rows
        The rows that repeat.
    firsts
        For each of them, the first row that says the same.
    """

    rows: Rows
    firsts: Rows

    def kept(self, n_rows: int) -> Bools:
        """Say of each row of the table whether it stays."""
        stays = np.ones(n_rows, np.bool_)
        stays[self.rows] = False
        return stays

    def differing(self, frame: pl.DataFrame, names: Iterable[str]) -> list[str]:
        """Name the columns in which a row is not the row that it repeats."""
        return [
            name
            for name in names
            if frame[name].gather(self.rows).ne_missing(frame[name].gather(self.firsts)).any()
        ]

    def any_of(self, signal: Bools) -> Bools:
        """Let a first row have the signal when one of its repeats has it."""
        combined = signal.copy()
        combined[self.firsts[signal[self.rows]]] = True
        return combined


def check_shared_ranks(
    rank: Ranks,
    page: PageOf,
    doc: pl.Series | None,
    sound: Bools,
    sessions: pl.Series,
    title: str,
    faults: Faults,
) -> tuple[Rows, Repeats | None]:
    """Note results that share a rank with another result of their page, and find repeated ones.

    Parameters
    ----------
    rank, page, doc
        The rank, the page and the document of each result.
    sound
        Which results have a rank and a page; the others have been noted already.
    sessions
        The id of each page.
    title
        How messages name the rank column.
    faults
        Where faults are noted.

    Returns
    -------
    order : ndarray of int64
        The rows that are sound, by page, then rank.
    repeats : Repeats or None
    """
    rows = None if sound.all() else np.flatnonzero(sound)
    if rows is not None:
        rank, page = rank[rows], page[rows]
    order = chain_order(page, rank)
    chained_rank, chained_page = rank[order], page[order]
    order = order if rows is None else rows[order]
    shared = (chained_rank[1:] == chained_rank[:-1]) & (chained_page[1:] == chained_page[:-1])
    if not shared.any():
        return order, None
    later = np.flatnonzero(shared) + 1
    # The places with several results, each by where it starts in the chain.
    starts = np.flatnonzero(np.append(shared, False) & ~np.insert(shared, 0, False))
    place = np.searchsorted(starts, later, side="right") - 1
    firsts = order[starts]
    np.minimum.at(firsts, place, order[later])
    members = np.concatenate([order[starts], order[later]])
    place = np.concatenate([np.arange(len(starts)), place])
    again = members != firsts[place]
    members, place = members[again], place[again]
    if doc is None:
        differs = np.ones(len(members), np.bool_)
    else:
        differs = doc.gather(members).ne_missing(doc.gather(firsts[place])).to_numpy()
    if not differs.any():
        return order, Repeats(members, firsts[place])
    at = int(place[differs].min())
    other = int(members[differs & (place == at)].min())
    places = len(np.unique(place[differs]))
    faults.add(
        f"{title}: {counted(places, 'place')} with more than one result, first: session "
        f"{shown(sessions, chained_page[starts[at]])} has two results on rank "
        f"{chained_rank[starts[at]]} ({faults.row(firsts[at])} and {faults.row(other)})"
    )
    return order, None


def note_varying(
    values: pl.Series,
    page: PageOf,
    sound: Bools,
    sessions: pl.Series,
    fault: str,
    faults: Faults,
    advice: str = "",
) -> None:
    """Note pages on which a value varies that should be one value a page.

    Parameters
    ----------
    values
        A value a result.
    page
        The page of each result.
    sound
        Which results have a value and a page; the others have been noted already.
    sessions
        The id of each page.
    fault
        What is wrong, with a place for the number of pages.
    faults
        Where faults are noted.
    advice
        What to try.
    """
    if not sound.all():
        rows = np.flatnonzero(sound)
        values, page = values.gather(rows), page[rows]
    firsts = first_rows(page, len(sessions))
    differing = rows_that_differ(values, page, firsts)
    if len(differing) == 0:
        return
    row = int(differing[0])
    amount = counted(len(np.unique(page[differing])), "page")
    one, other = shown(values, firsts[page[row]]), shown(values, row)
    session = shown(sessions, page[row])
    faults.add(f"{fault.format(amount)}, first: session {session} has {one} and {other}{advice}")


def note_repeated_sessions(sessions: pl.Series, title: str, faults: Faults) -> None:
    """Note sessions that have several rows in a log that has one row a page.

    Parameters
    ----------
    sessions
        The id of each page.
    title
        How messages name the session column.
    faults
        Where faults are noted.
    """
    repeated = ~sessions.is_first_distinct() & sessions.is_not_null()
    if not repeated.any():
        return
    row = int(repeated.arg_true()[0])
    faults.add(
        f"{title}: {counted(int(repeated.sum()), 'row')} with the session of an earlier row, while "
        f"a nested log has one row a page, first: {faults.row(row)} has {shown(sessions, row)}"
    )


class RoleReader:
    """What all that check a table have in common.

    Parameters
    ----------
    table
        One row a result.
    unrolled
        Where the source has one row a page: what it was.
    roles
        Which column plays which part, settled.
    faults
        Where faults are noted.
    notebook
        Where it is noted what was met.
    """

    def __init__(
        self,
        table: pl.DataFrame,
        unrolled: Unrolled | None,
        roles: Roles,
        faults: Faults,
        notebook: Notebook,
    ) -> None:
        self.table, self.unrolled, self.roles = table, unrolled, roles
        self.faults, self.notebook = faults, notebook

    def read(self, role: str, check: Callable[[pl.Series, str, Faults], T]) -> T | None:
        """Check the column of a role; where it has one value a page, a page at a time."""
        if not self.roles.columns[role]:
            return None
        title = self.roles.title(role)
        if self.is_of_pages(role):
            assert self.unrolled is not None
            with self.faults.naming_rows(self.unrolled.row_of_page):
                return check(self.column(self.unrolled.pages, role), title, self.faults)
        return check(self.column(self.table, role), title, self.faults)

    def is_of_pages(self, role: str) -> bool:
        """Whether the source has one value a page of a role."""
        if self.unrolled is None:
            return False
        return all(name in self.unrolled.pages.columns for name in self.roles.columns[role])

    def column(self, table: pl.DataFrame, role: str) -> pl.Series:
        """The column of a role; a struct where several make an id."""
        names = list(self.roles.columns[role])
        if self.roles.is_struct(role):
            return table.select(pl.struct(names)).to_series()
        return table[names[0]]

    def ids_of_rows(self, unrolled: Unrolled, first: int = 0) -> pl.Series:
        """The id of each page of a source with a row a page; by default numbers from `first` on."""
        session = self.read("session", check_ids)
        if session is None:
            return pl.Series(np.arange(first, first + len(unrolled.rows), dtype=np.int64))
        with self.faults.naming_rows(unrolled.row_of_page):
            note_repeated_sessions(session, self.roles.title("session"), self.faults)
        return session

    def note_varying(
        self, role: str, values: pl.Series, page: PageOf, sessions: pl.Series, sound: Bools
    ) -> None:
        """Note the pages on which a role has several values, where that makes no sense."""
        fault = f"{self.roles.title(role)}: {{}} with more than one {role}"
        advice = ""
        if role == "query":
            names = [*self.roles.columns["session"], *self.roles.columns["query"]]
            quoted = ", ".join(f'"{name}"' for name in names)
            such = option("session", names, shown=f"[{quoted}]")
            advice = f"; if a session covers several searches, try {such}"
        note_varying(values, page, sound, sessions, fault, self.faults, advice)

    def note_numbers_of_clicks(self, numbers: Floats | None, upto: bool) -> None:
        """Note results that were clicked more than once; `upto` tells how often at most."""
        again = np.flatnonzero(numbers > 1) if numbers is not None else ()
        if numbers is None or not len(again):
            return
        most = f", up to {numbers[again].max():,.0f}" if upto else ""
        self.notebook.add(
            "results clicked more than once",
            len(again),
            f"{self.roles.title('click')} has numbers of clicks{most}; each above 0 is a click",
            (f"{self.faults.row(int(row))} has {numbers[row]:.0f}" for row in again),
        )
