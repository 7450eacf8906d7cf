"""From a table and its roles to a click log: columns checked one by one and together.

All that is at fault is noted, and told in one error at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import polars as pl

from gecasmo.errors import option
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Faults, Note, Notebook
from gecasmo.logs.pages import (
    PageOf,
    Ranks,
    Rows,
    Unrolled,
    chain_order,
    first_rows,
    note_misplaced_lists,
    number_by_first_appearance,
    pages_in_order,
    ranks_by_row_order,
    rows_that_differ,
    shown,
    unroll,
)
from gecasmo.logs.roles import SYNONYMS, TIMES, Roles, extra_columns, plain, quoted
from gecasmo.logs.values import (
    LARGEST_RANK,
    Bools,
    Floats,
    check_clicks,
    check_ids,
    check_ranks,
    check_total,
    check_weights,
    is_plain,
    missing_ids,
)
from gecasmo.report import counted, listed

T = TypeVar("T")


def assemble(
    table: pl.DataFrame, roles: Roles, faults: Faults, notes: Sequence[Note] = ()
) -> ClickLog:
    """Check a table and make it a click log.

    Parameters
    ----------
    table
        The source, long or nested.
    roles
        Which column plays which part.
    faults
        Where faults are noted.
    notes
        What the reader of the table met; the log keeps it, with what is met here.

    Returns
    -------
    ClickLog

    Raises
    ------
    ClickLogError
        With every fault found.
    """
    nested = roles.is_nested(table.schema)
    roles.settle(table.schema, nested, faults)
    if table.height == 0 and table.width > 0:
        faults.add("there are no rows")
    notebook = Notebook(list(notes))
    if not nested:
        return _Assembly(table, None, roles, faults, notebook).log()
    note_misplaced_lists(table, roles, faults)
    unrolled = unroll(table, faults)
    with faults.naming_rows(unrolled.row_of_result):
        return _Assembly(unrolled.results, unrolled, roles, faults, notebook).log()


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
        """Return the column of a role; a struct where several make an id."""
        names = list(self.roles.columns[role])
        if self.roles.is_struct(role):
            return table.select(pl.struct(names)).to_series()
        return table[names[0]]

    def ids_of_rows(self, unrolled: Unrolled, first: int = 0) -> pl.Series:
        """Return the id of each page of a nested source; by default numbers from `first` on."""
        session = self.read("session", check_ids)
        if session is None:
            return pl.Series(np.arange(first, first + len(unrolled.rows), dtype=np.int64))
        with self.faults.naming_rows(unrolled.row_of_page):
            note_repeated_sessions(session, self.roles.title("session"), self.faults)
        return session

    def note_varying(
        self, role: str, values: pl.Series, page: PageOf, sessions: pl.Series, sound: Bools
    ) -> None:
        """Note the pages on which a role has several values, where that makes no sense.

        `sound` says which results have a value and a page; the others have been noted already.
        """
        if not sound.all():
            rows = np.flatnonzero(sound)
            values, page = values.gather(rows), page[rows]
        firsts = first_rows(page, len(sessions))
        differing = rows_that_differ(values, page, firsts)
        if len(differing) == 0:
            return
        row = int(differing[0])
        advice = ""
        if role == "query":
            names = [*self.roles.columns["session"], *self.roles.columns["query"]]
            such = option("session", names, shown=quoted(names))
            advice = f"; if a session covers several searches, try {such}"
        self.faults.add(
            f"{self.roles.title(role)}: {counted(len(np.unique(page[differing])), 'page')} with "
            f"more than one {role}, first: session {shown(sessions, page[row])} has "
            f"{shown(values, firsts[page[row]])} and {shown(values, row)}{advice}"
        )

    def clicks(self, upto: bool) -> Bools:
        """Read the clicks; results clicked more than once are noted, `upto` with how often."""
        clicked, numbers = self.read("click", check_clicks) or (
            np.zeros(self.table.height, np.bool_),
            None,
        )
        again = np.flatnonzero(numbers > 1) if numbers is not None else ()
        if numbers is not None and len(again):
            most = f", up to {numbers[again].max():,.0f}" if upto else ""
            self.notebook.add(
                "results clicked more than once",
                len(again),
                f"{self.roles.title('click')} has numbers of clicks{most}; each above 0 is a click",
                (f"{self.faults.row(int(row))} has {numbers[row]:.0f}" for row in again),
            )
        return clicked


def note_repeated_sessions(sessions: pl.Series, title: str, faults: Faults) -> None:
    """Note sessions that have several rows in a log that has one row a page."""
    repeated = ~sessions.is_first_distinct() & sessions.is_not_null()
    if not repeated.any():
        return
    row = int(repeated.arg_true()[0])
    faults.add(
        f"{title}: {counted(int(repeated.sum()), 'row')} with the session of an earlier row, while "
        f"a nested log has one row a page, first: {faults.row(row)} has {shown(sessions, row)}"
    )


class _Assembly(RoleReader):
    """The steps of assembling one log; each reads a part, and notes what is wrong with it."""

    def log(self) -> ClickLog:
        return self._log_in_order() or self._log_in_any_order()

    def _log_in_order(self) -> ClickLog | None:
        """Make the log at once where there is nothing to say about its rows, else return None."""
        if self.unrolled is not None or self.faults or not self.table.height:
            return None
        columns = {role: self._plain_ids(role) for role in ("session", "query", "doc")}
        session, query, doc = columns.values()
        if session is None or doc is None or (query is None and self.roles.columns["query"]):
            return None
        if not self.roles.columns["rank"] or not self.roles.columns["click"]:
            return None
        rank, click = (self.column(self.table, role) for role in ("rank", "click"))
        is_yes_or_no = click.dtype == pl.Boolean and not click.null_count()
        if not is_plain(rank, LARGEST_RANK) or not (is_yes_or_no or is_plain(click, 1)):
            return None
        starts = pages_in_order(session, rank, query)
        if starts is None:
            return None
        sessions = session.gather(pl.Series(starts[:-1])).alias("session")
        weight = np.ones(len(sessions))
        if self.roles.columns["weight"]:
            page = np.repeat(np.arange(len(sessions), dtype=np.uint32), np.diff(starts))
            weight = self._weights(page, sessions, np.ones(self.table.height, np.bool_))
        columns |= {"rank": rank.cast(pl.Int32), "click": click.cast(pl.Boolean)}
        frame = self._frame(columns, self._extras())
        notes = self.notebook.notes
        weight = self._total_checked(weight)
        return ClickLog(frame, None, sessions, weight, starts=starts, notes=notes)

    def _plain_ids(self, role: str) -> pl.Series | None:
        """Return the ids of a role if there is nothing to say about them, else None."""
        if not self.roles.columns[role] or self.roles.is_struct(role):
            return None
        column = self.column(self.table, role)
        is_plain_type = column.dtype.is_integer() or column.dtype == pl.String
        return column if is_plain_type and not column.null_count() else None

    def _log_in_any_order(self) -> ClickLog:
        page, sessions, placed = self._pages()
        page_query = self.read("query", check_ids)
        query = page_query
        if query is not None and self.is_of_pages("query"):
            query = query.gather(page)
        doc = self.read("doc", check_ids)
        rank, order, repeats = self._ranks(page, sessions, placed, doc)
        click = self.clicks(upto=True)
        if query is not None:
            sound = placed & ~missing_ids(query).to_numpy()
            self.note_varying("query", query, page, sessions, sound)
        weight = self._weights(page, sessions, placed)
        extras = self._extras()

        if repeats is not None:
            self._note_repeats(repeats, extras, sessions.gather(page.take(repeats.rows)))
            click = repeats.any_of(click)
        columns = {"session": sessions.gather(page), "query": query, "doc": doc}
        columns |= {"rank": pl.Series(rank), "click": pl.Series(click)}
        frame = self._frame(columns, extras)
        if repeats is not None:
            kept = repeats.kept(len(page))
            frame, page, order = frame.filter(pl.Series(kept)), page[kept], None
        return ClickLog(
            frame,
            page,
            sessions.alias("session"),
            self._total_checked(weight),
            pages=self._page_columns(extras, page_query),
            order=order,
            notes=self.notebook.notes,
        )

    def _extras(self) -> list[str]:
        """Name the columns that are kept beside the roles; the end of all checks."""
        extras, left_out = extra_columns(self.table.columns, self.roles)
        for what in left_out:
            self.notebook.tell("columns left out", 1, what)
        self.faults.raise_if_any()
        return extras

    def _total_checked(self, weight: Floats) -> Floats:
        if self.roles.columns["weight"]:
            with np.errstate(over="ignore"):
                check_total(float(weight.sum()), self.roles.title("weight"), self.faults)
        return weight

    def _frame(self, columns: dict[str, pl.Series | None], extras: list[str]) -> pl.DataFrame:
        """Put the columns of the roles and the others together."""
        columns = columns | {name: self.table[name] for name in extras}
        return pl.DataFrame([c.alias(name) for name, c in columns.items() if c is not None])

    def _pages(self) -> tuple[PageOf, pl.Series, Bools]:
        """Return the page of each result, the id of each page, and which results have a page."""
        n_results = self.table.height
        if self.unrolled is not None:
            ids = self.ids_of_rows(self.unrolled)
            return self.unrolled.page, ids, np.ones(n_results, np.bool_)
        session = self.read("session", check_ids)
        if session is None:
            nowhere = np.zeros(n_results, np.uint32)
            return nowhere, pl.Series([None]), np.zeros(n_results, np.bool_)
        page, firsts = number_by_first_appearance(session)
        return page, session.gather(firsts), ~missing_ids(session).to_numpy()

    def _ranks(
        self, page: PageOf, sessions: pl.Series, placed: Bools, doc: pl.Series | None
    ) -> tuple[Ranks, Rows | None, Repeats | None]:
        read = self.read("rank", check_ranks)
        if read is None:
            return ranks_by_row_order(page, len(sessions)), None, None
        numbers, sound = read
        rank = np.where(sound, numbers, 1).astype(np.int32)
        title = self.roles.title("rank")
        order, repeats = _check_shared_ranks(
            rank, page, doc, placed & sound, sessions, title, self.faults, self._told_apart
        )
        if len(rank) and rank.min() == 0:
            firsts = int((rank == 0).sum())
            rank += 1
            what = f"{title}: ranks start at 0 here; they were shifted to start at 1."
            self.notebook.tell("ranks from 0", firsts, what)
        return rank, order, repeats

    def _told_apart(self, one: int, other: int) -> str:
        """Say how two results on one place can be of two pages: by an id, or the time of these."""
        if self.unrolled is not None:
            return ""
        names = self.roles.columns["session"]
        usual = {plain(name) for name in f"{SYNONYMS['session']} query_id {TIMES}".split()}
        for name in self.table.columns:
            column = self.table[name]
            if plain(name) in usual and name not in names and column[one] != column[other]:
                such = option("session", [*names, name], shown=quoted([*names, name]))
                return f"; if these are two pages, such as one query asked twice, try {such}"
        return (
            f"; if these are two pages, such as one query asked twice, {option('session')} needs "
            "what tells them apart, such as the id of the page or the time"
        )

    def _note_repeats(self, repeats: Repeats, extras: list[str], sessions: pl.Series) -> None:
        names = repeats.differing(self.table, extras)
        others = f"; the first row counts for {listed(map(repr, names))}" if names else ""
        self.notebook.add(
            "repeated rows",
            len(repeats.rows),
            "the session, doc and rank of an earlier row; read once, and clicked if one of them "
            f"is{others}",
            (
                f"session {shown(sessions, at)}: {self.faults.row(row)} repeats "
                f"{self.faults.row(repeats.firsts[at])}"
                for at, row in enumerate(repeats.rows)
            ),
        )

    def _weights(self, page: PageOf, sessions: pl.Series, placed: Bools) -> Floats:
        weights = self.read("weight", check_weights)
        if weights is None:
            return np.ones(len(sessions))
        if self.is_of_pages("weight"):
            return weights.copy()  # Polars' own memory is read-only
        sound = placed & np.isfinite(weights)
        self.note_varying("weight", pl.Series(weights), page, sessions, sound)
        firsts = first_rows(page, len(sessions))
        return np.where(firsts < 0, 1.0, weights[firsts]) if len(weights) else np.ones(len(firsts))

    def _page_columns(self, extras: list[str], query: pl.Series | None) -> pl.DataFrame | None:
        """Return what a nested source had one value a page of, for pages without results."""
        if self.unrolled is None:
            return None
        pages = self.unrolled.pages
        columns = [pages[name] for name in extras if name in pages.columns]
        if query is not None and self.is_of_pages("query"):
            columns.append(query.alias("query"))
        return pl.DataFrame(columns)


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


def _check_shared_ranks(
    rank: Ranks,
    page: PageOf,
    doc: pl.Series | None,
    sound: Bools,
    sessions: pl.Series,
    title: str,
    faults: Faults,
    advice: Callable[[int, int], str],
) -> tuple[Rows, Repeats | None]:
    """Note results that share a rank with another result of their page, and find repeated ones.

    `sound` says which results have a rank and a page; the others have been noted already. Returns
    the rows that are sound, by page, then rank; and those that say again what another row says.
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
        f"{advice(int(firsts[at]), other)}"
    )
    return order, None
