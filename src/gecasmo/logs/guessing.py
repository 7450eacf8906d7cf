"""Which columns of a table probably play which part."""

from __future__ import annotations

from collections.abc import Iterable

from gecasmo.logs.roles import DEFAULTS
from gecasmo.logs.suggestions import synonym


def guess_roles(columns: Iterable[str]) -> dict[str, str]:
    """Guess the column of each role whose own name is not among the columns.

    Parameters
    ----------
    columns
        The columns of a table.

    Returns
    -------
    dict
        Roles to columns. Roles that have a column of their name, or that no column looks like, are
        not in it. No column has two roles. A weight is never guessed: a column called "count" or
        "n" is too often something else, and would change every estimate. "results", "items",
        "products" and "hits" are documents only where no column is a rank: beside one they are
        rather numbers than lists.

    Examples
    --------
    >>> guess_roles(["sid", "query", "url", "position", "clicked", "price"])
    {'session': 'sid', 'doc': 'url', 'rank': 'position', 'click': 'clicked'}
    """
    names = list(columns)
    roles = [role for role in DEFAULTS if role != "weight"]
    free = [name for name in names if name not in roles]
    has_ranks = "rank" in names or synonym("rank", free) is not None
    lists = [] if has_ranks else free
    guessed = {}
    for role in roles:
        found = None if role in names else synonym(role, free, lists)
        if found is not None:
            guessed[role] = found
            free.remove(found)
    return guessed
