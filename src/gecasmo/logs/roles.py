"""Which column plays which part in a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.faults import Faults
from gecasmo.logs.suggestions import guess, synonym

DEFAULTS: dict[str, str | None] = {
    "session": "session",
    "query": "query",
    "doc": "doc",
    "rank": "rank",
    "click": "click",
    "weight": None,
}
SEVERAL_COLUMNS = ("session", "doc")

Given = str | Sequence[str] | None


class Roles:
    """The columns of a source by the part they play.

    Parameters
    ----------
    given
        The arguments of `read_log`, by role.
    """

    def __init__(self, given: Mapping[str, Given]) -> None:
        self.given = dict(given)
        self.columns = {role: _names(role, value) for role, value in given.items()}
        if not self.columns["doc"]:
            raise ClickLogError("read_log(doc=None): every result needs a document; name a column.")

    @property
    def id_columns(self) -> list[str]:
        """Names of the columns that hold ids."""
        names = [name for role in ("session", "query", "doc") for name in self.columns[role]]
        return list(dict.fromkeys(names))

    def is_struct(self, role: str) -> bool:
        """Whether the id of this role is made of a list of columns."""
        return self.given[role] is not None and not isinstance(self.given[role], str)

    def title(self, role: str) -> str:
        """Name the role, and its column where that is called otherwise."""
        names = self.columns[role]
        if names in ((), (role,)):
            return role
        return f"{role} ({', '.join(map(repr, names))})"

    def is_nested(self, schema: Mapping[str, pl.DataType]) -> bool:
        """Whether the source has one row a page, with lists of results."""
        names = [*self.columns["click"], *self.columns["doc"]]
        return any(isinstance(schema.get(name), pl.List | pl.Array) for name in names)

    def settle(self, columns: Sequence[str], nested: bool, faults: Faults) -> None:
        """Drop the roles that may be absent, and note the columns that may not.

        Parameters
        ----------
        columns
            The columns of the source.
        nested
            Whether the source has one row a page.
        faults
            Where missing columns are noted.
        """
        optional = {"query", "session", "rank"} if nested else {"query"}
        missing: dict[str, list[str]] = {}
        for role, names in self.columns.items():
            absent = [name for name in names if name not in columns]
            if absent and role in optional and self.given[role] == DEFAULTS[role]:
                self.columns[role] = ()
            elif absent:
                missing[role] = absent
        if missing:
            absent = list(dict.fromkeys(name for names in missing.values() for name in names))
            faults.lacks(absent, self._advice(missing, columns, faults.label))
        if not nested and self.given["session"] is None:
            faults.add("session: a log with one row a result needs a session column")
        for role in missing:
            self.columns[role] = ()

    def _advice(
        self, missing: Mapping[str, Sequence[str]], columns: Sequence[str], label: str
    ) -> list[str]:
        lines = [f"It has: {', '.join(columns) or 'no columns at all'}."]
        used = {name for names in self.columns.values() for name in names}
        free = [name for name in columns if name not in used]
        meant: dict[str, str] = {}
        for role, names in missing.items():
            for name in names:
                found = guess(role, name, free)
                if found is not None:
                    meant[name] = found
                    free.remove(found)
        call = {
            role: _replaced(value, meant)
            for role, value in self.given.items()
            if value != DEFAULTS[role] or value in meant
        }
        query = synonym("query", free) if not self.columns["query"] else None
        if query is not None and self.given["query"] is not None and "query" not in missing:
            call["query"] = query
        if meant:
            call = {role: call[role] for role in DEFAULTS if role in call}
            shown = "".join(f", {role}={_quoted(value)}" for role, value in call.items())
            first = "data" if label.startswith("the ") else f'"{label}"'
            lines.append(f"Perhaps: read_log({first}{shown})")
        if any(name not in meant for name in missing.get("rank", ())):
            lines.append("Without ranks: rank=None takes the order of the rows.")
        if any(name not in meant for name in missing.get("click", ())):
            lines.append("Without clicks: click=None reads the pages alone.")
        return lines


def _names(role: str, value: Given) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if role not in SEVERAL_COLUMNS:
        raise ClickLogError(
            f"read_log({role}={value!r}): {role} is one column name; "
            "only session and doc can be lists of columns."
        )
    names = tuple(value)
    if not names or not all(isinstance(name, str) for name in names):
        raise ClickLogError(f"read_log({role}={value!r}): the list should hold column names.")
    return tuple(dict.fromkeys(names))


def _replaced(value: Given, meant: Mapping[str, str]) -> Given:
    if value is None or isinstance(value, str):
        return meant.get(value, value) if value is not None else None
    return [meant.get(name, name) for name in value]


def _quoted(value: Given) -> str:
    if value is None:
        return "None"
    if isinstance(value, str):
        return f'"{value}"'
    return f"[{', '.join(map(_quoted, value))}]"
