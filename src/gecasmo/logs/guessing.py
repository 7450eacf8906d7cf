"""Guesses at which columns of a table play which part, by their names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable

SYNONYMS = {
    "session": (
        "session_id sid impression impression_id serp serp_id page_id page_view_id search_id "
        "request_id"
    ),
    "query": "query_id qid q search_term search_query term keyword keywords query_text",
    "doc": (
        "url document document_id doc_id docid docno item item_id product product_id result "
        "result_id docs urls documents doc_ids document_ids item_ids product_ids"
    ),
    "rank": "position pos rnk result_rank result_position slot",
    "click": "clicked is_click is_clicked clicks was_clicked has_click",
    "weight": "weights count n frequency",
}
# What such columns hold when they hold lists; with one row a result they would be numbers.
LISTS = {"doc": "results items products hits", "rank": "ranks positions"}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def synonym(role: str, columns: Iterable[str], lists: Collection[str] = ()) -> str | None:
    """Find a column whose name is a usual name for the role.

    Parameters
    ----------
    role
        One of "session", "query", "doc", "rank", "click", "weight".
    columns
        The columns that nothing else uses.
    lists
        Those of them that hold lists, or may do so.

    Returns
    -------
    str or None
    """
    by_plain = {_plain(column): column for column in reversed(list(columns))}
    for name in (role, *SYNONYMS[role].split()):
        if _plain(name) in by_plain:
            return by_plain[_plain(name)]
    for name in LISTS.get(role, "").split():
        if by_plain.get(name) in lists:
            return by_plain[name]
    return None


def guess(
    role: str, wanted: str, columns: Iterable[str], lists: Collection[str] = ()
) -> str | None:
    """Find the column that was probably meant by `wanted`.

    Parameters
    ----------
    role
        The role the column was to play.
    wanted
        The name that is not there.
    columns
        The columns that nothing else uses.
    lists
        Those of them that hold lists.

    Returns
    -------
    str or None
    """
    names = list(columns)
    lookalike = {_plain(name): name for name in reversed(names)}
    exact = lookalike.get(_plain(wanted))
    if exact is not None:
        return exact
    # A name the user chose says more than the role does, so spelling comes before synonyms there.
    close = difflib.get_close_matches(_plain(wanted), lookalike, n=1, cutoff=0.75)
    if wanted != role and close:
        return lookalike[close[0]]
    found = synonym(role, names, lists)
    if found is None and close:
        found = lookalike[close[0]]
    return found


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
    roles = [role for role in SYNONYMS if role != "weight"]
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
