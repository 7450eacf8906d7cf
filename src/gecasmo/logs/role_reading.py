"""Reading the columns of a table by the part they play, long or nested."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import polars as pl

from gecasmo.logs.checks import Bools, note_repeated_sessions, note_varying
from gecasmo.logs.faults import Faults
from gecasmo.logs.ids import check_ids
from gecasmo.logs.nested import Unrolled
from gecasmo.logs.notes import Notebook
from gecasmo.logs.pages import PageOf
from gecasmo.logs.roles import Roles
from gecasmo.logs.values import Floats

T = TypeVar("T")


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
            advice = f"; if a session covers several searches, try session=[{quoted}]"
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
