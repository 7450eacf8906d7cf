"""Putting the checked columns of a table together into a click log."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from gecasmo.logs.checks import Repeats, RoleReader, check_shared_ranks
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Faults, Note, Notebook, in_words
from gecasmo.logs.pages import (
    PageOf,
    Ranks,
    Rows,
    Unrolled,
    first_rows,
    note_misplaced_lists,
    number_by_first_appearance,
    pages_in_order,
    ranks_by_row_order,
    shown,
    unroll,
)
from gecasmo.logs.roles import Roles, extra_columns
from gecasmo.logs.values import (
    LARGEST_RANK,
    Bools,
    Floats,
    check_clicks,
    check_ids,
    check_ranks,
    check_weights,
    is_plain,
    missing_ids,
)


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
    if not nested:
        return _Assembly(table, None, roles, faults, notes).log()
    note_misplaced_lists(table, roles, faults)
    unrolled = unroll(table, faults)
    with faults.naming_rows(unrolled.row_of_result):
        return _Assembly(unrolled.results, unrolled, roles, faults, notes).log()


class _Assembly(RoleReader):
    """The steps of assembling one log; each reads a part, and notes what is wrong with it."""

    def __init__(
        self,
        table: pl.DataFrame,
        unrolled: Unrolled | None,
        roles: Roles,
        faults: Faults,
        notes: Sequence[Note],
    ) -> None:
        super().__init__(table, unrolled, roles, faults, Notebook(list(notes)))

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
        names = {role: list(self.roles.columns[role]) for role in ("rank", "click")}
        if not all(names.values()):
            return None
        rank, click = (self.table[name] for (name, *_) in names.values())
        is_yes_or_no = click.dtype == pl.Boolean and not click.null_count()
        if not is_plain(rank, None, LARGEST_RANK) or not (is_yes_or_no or is_plain(click, 0, 1)):
            return None
        starts = pages_in_order(session, rank, query)
        if starts is None:
            return None
        sessions = session.gather(pl.Series(starts[:-1])).alias("session")
        columns |= {"rank": rank.cast(pl.Int32), "click": click.cast(pl.Boolean)}
        return self._in_order(columns, sessions, starts)

    def _in_order(
        self, columns: dict[str, pl.Series | None], sessions: pl.Series, starts: Rows
    ) -> ClickLog:
        weight = np.ones(len(sessions))
        if self.roles.columns["weight"]:
            page = np.repeat(np.arange(len(sessions), dtype=np.uint32), np.diff(starts))
            weight = self._weights(page, sessions, np.ones(self.table.height, np.bool_))
        extras, left_out = extra_columns(self.table.columns, self.roles)
        for what in left_out:
            self.notebook.tell("columns left out", 1, what)
        self.faults.raise_if_any()
        columns |= {name: self.table[name] for name in extras}
        frame = pl.DataFrame([c.alias(name) for name, c in columns.items() if c is not None])
        notes = self.notebook.notes
        return ClickLog(frame, None, sessions, weight, starts=starts, notes=notes)

    def _plain_ids(self, role: str) -> pl.Series | None:
        """The ids of a role if there is nothing to say about them, else None."""
        if not self.roles.columns[role] or self.roles.is_struct(role):
            return None
        column = self.column(self.table, role)
        is_plain_type = column.dtype.is_integer() or column.dtype == pl.String
        return column if is_plain_type and not column.null_count() else None

    def _log_in_any_order(self) -> ClickLog:
        page, sessions, placed = self._pages()
        page_query = self.read("query", check_ids)
        query = self._spread(page_query, "query", page)
        doc = self.read("doc", check_ids)
        rank, order, repeats = self._ranks(page, sessions, placed, doc)
        click = self._clicks()
        if query is not None:
            self._note_several_queries(query, page, sessions, placed)
        weight = self._weights(page, sessions, placed)
        extras, left_out = extra_columns(self.table.columns, self.roles)
        for what in left_out:
            self.notebook.tell("columns left out", 1, what)
        self.faults.raise_if_any()

        if repeats is not None:
            self._note_repeats(repeats, extras, sessions.gather(page.take(repeats.rows)))
            click = repeats.any_of(click)
        columns = {"session": sessions.gather(page), "query": query, "doc": doc}
        columns |= {"rank": pl.Series(rank), "click": pl.Series(click)}
        columns |= {name: self.table[name] for name in extras}
        frame = pl.DataFrame([c.alias(name) for name, c in columns.items() if c is not None])
        pages = self._page_columns(extras, page_query)
        if repeats is not None:
            kept = repeats.kept(len(page))
            frame, page, order = frame.filter(pl.Series(kept)), page[kept], None
        return ClickLog(
            frame,
            page,
            sessions.alias("session"),
            weight,
            pages=pages,
            order=order,
            notes=self.notebook.notes,
        )

    def _spread(self, values: pl.Series | None, role: str, page: PageOf) -> pl.Series | None:
        """Bring values to one a result."""
        if values is None or not self.is_of_pages(role):
            return values
        return values.gather(page)

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
        order, repeats = check_shared_ranks(
            rank, page, doc, placed & sound, sessions, title, self.faults
        )
        if len(rank) and rank.min() == 0:
            firsts = int((rank == 0).sum())
            rank += 1
            what = f"{title}: ranks start at 0 here; they were shifted to start at 1."
            self.notebook.tell("ranks from 0", firsts, what)
        return rank, order, repeats

    def _clicks(self) -> Bools:
        read = self.read("click", check_clicks)
        if read is None:
            return np.zeros(self.table.height, np.bool_)
        self.note_numbers_of_clicks(read.numbers, upto=True)
        return read.clicked

    def _note_repeats(self, repeats: Repeats, extras: list[str], sessions: pl.Series) -> None:
        names = repeats.differing(self.table, extras)
        others = f"; the first row counts for {in_words(list(map(repr, names)))}" if names else ""
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

    def _note_several_queries(
        self, query: pl.Series, page: PageOf, sessions: pl.Series, placed: Bools
    ) -> None:
        sound = placed & ~missing_ids(query).to_numpy()
        self.note_varying("query", query, page, sessions, sound)

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
