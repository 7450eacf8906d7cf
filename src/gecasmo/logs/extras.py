"""The columns that play no part in the clicks, and are kept under their own names."""

from __future__ import annotations

from collections.abc import Sequence

from gecasmo.logs.roles import Roles

CANONICAL = ("session", "query", "doc", "rank", "click")


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
