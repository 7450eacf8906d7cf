"""Which column plays which part in a log, and which play none and keep their own names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import polars as pl

from gecasmo.errors import ClickLogError, either, option
from gecasmo.logs.guessing import guess, synonym
from gecasmo.logs.notes import Faults

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
CANONICAL = ("session", "query", "doc", "rank", "click")


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
            raise ClickLogError(
                f"{option('doc', None, of='read_log')}: every result needs a document; name a "
                "column."
            )

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
        return any(name in lists_of(schema) for name in names)

    def settle(self, schema: Mapping[str, pl.DataType], nested: bool, faults: Faults) -> None:
        """Drop the roles that may be absent, and note the columns that may not.

        Parameters
        ----------
        schema
            The columns of the source, and their data types.
        nested
            Whether the source has one row a page.
        faults
            Where missing columns are noted.
        """
        columns = list(schema)
        optional = {"query", "session", "rank"} if nested else {"query"}
        missing: dict[str, list[str]] = {}
        for role, names in self.columns.items():
            absent = [name for name in names if name not in columns]
            if absent and role in optional and self.given[role] == DEFAULTS[role]:
                self.columns[role] = ()
            elif absent:
                missing[role] = absent
        if missing:
            meant = self._meant(missing, schema)
            needed = self._needed(missing, meant, schema)
            absent = list(dict.fromkeys(name for names in needed.values() for name in names))
            faults.lacks(absent, self._advice(needed, meant, columns, faults.label))
        if not nested and self.given["session"] is None:
            faults.add("session: a log with one row a result needs a session column")
        for role in missing:
            self.columns[role] = ()

    def _is_named(self, role: str) -> bool:
        return self.given[role] != DEFAULTS[role]

    def _free(self, columns: Iterable[str]) -> list[str]:
        used = {name for names in self.columns.values() for name in names}
        return [name for name in columns if name not in used]

    def _meant(
        self, missing: Mapping[str, Sequence[str]], schema: Mapping[str, pl.DataType]
    ) -> dict[str, str]:
        """Guess which columns were meant by names that are not there."""
        free, lists = self._free(schema), lists_of(schema)
        meant: dict[str, str] = {}
        for role, names in missing.items():
            for name in names:
                found = guess(role, name, free, lists)
                if found is None and role == "doc" and lists & set(self.columns["click"]):
                    # Where clicks are lists, the only other list has the documents.
                    others = [column for column in free if column in lists]
                    found = others[0] if len(others) == 1 else None
                if found is not None:
                    meant[name] = found
                    free.remove(found)
        return meant

    def _needed(
        self,
        missing: Mapping[str, Sequence[str]],
        meant: Mapping[str, str],
        schema: Mapping[str, pl.DataType],
    ) -> dict[str, Sequence[str]]:
        """Leave out what is not needed if the log has one row a page, as it was probably meant."""
        is_nested = any(name in lists_of(schema) for name in meant.values())
        spared = {"session", "rank"} if is_nested else set()
        return {
            role: names
            for role, names in missing.items()
            if role not in spared or names[0] in meant or self._is_named(role)
        }

    def _advice(
        self,
        missing: Mapping[str, Sequence[str]],
        meant: Mapping[str, str],
        columns: Sequence[str],
        label: str,
    ) -> list[str]:
        lines = [f"It has: {', '.join(columns) or 'no columns at all'}."]
        free = [name for name in self._free(columns) if name not in meant.values()]
        unknown = [role for role in missing if not set(missing[role]) <= set(meant)]
        taken = {role: self.given[role] for role in DEFAULTS if role not in missing}
        taken = {role: value for role, value in taken.items() if value and self._is_named(role)}
        if unknown and taken:
            # Not what was said on purpose alone: the command line guesses, and passes it on.
            said = ", ".join(
                option(role, value, shown=_quoted(value)) for role, value in taken.items()
            )
            lines.append(f"Taken: {said}.")
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
            first = "data" if label.startswith("the ") else f'"{label}"'
            named = [option(role, value, shown=_quoted(value)) for role, value in call.items()]
            python = f"read_log({', '.join([first, *named])})"
            lines.append(f"Perhaps: {either(python, ' '.join(named))}")
        free = [name for name in free if name not in call.values()]
        if unknown and free:
            arguments = ", ".join(option(role, shown="...") for role in unknown)
            lines.append(f"Say which column it is: {arguments}; not taken are {', '.join(free)}.")
        if any(name not in meant for name in missing.get("rank", ())):
            lines.append(f"Without ranks: {option('rank', None)} takes the order of the rows.")
        if any(name not in meant for name in missing.get("click", ())):
            lines.append(f"Without clicks: {option('click', None)} reads the pages alone.")
        return lines


def lists_of(schema: Mapping[str, pl.DataType]) -> set[str]:
    """Name the columns that hold lists."""
    return {name for name, dtype in schema.items() if isinstance(dtype, pl.List | pl.Array)}


def _names(role: str, value: Given) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if role not in SEVERAL_COLUMNS:
        raise ClickLogError(
            f"{option(role, value, of='read_log')}: {role} is one column name; "
            "only session and doc can be lists of columns."
        )
    names = tuple(value)
    if not names or not all(isinstance(name, str) for name in names):
        raise ClickLogError(
            f"{option(role, value, of='read_log')}: the list should hold column names."
        )
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


def extra_columns(columns: Sequence[str], roles: Roles) -> tuple[list[str], list[str]]:
    """Say which columns are kept under their own names.

    Columns that are one part of an id are kept, because they can be of use by themselves (a user
    id, for example).

    Parameters
    ----------
    columns
        The columns of the source.
    roles
        Which column plays which part.

    Returns
    -------
    kept : list of str
    notes : list of str
        What the user should know about columns that could not be kept.
    """
    reserved = CANONICAL + (("weight",) if roles.columns["weight"] else ())
    renamed = {
        names[0]
        for role, names in roles.columns.items()
        if len(names) == 1 and not roles.is_struct(role)
    }
    used = {name for names in roles.columns.values() for name in names}
    kept = [name for name in columns if name not in renamed and name not in reserved]
    notes = [
        f"the column {name!r} was left out, because {roles.title(name)} took its name; "
        "rename it to keep it."
        for name in columns
        if name in reserved and name not in used and roles.given[name] is not None
    ]
    return kept, notes
