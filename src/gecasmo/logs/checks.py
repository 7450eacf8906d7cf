"""Faults that show only when several columns are seen together."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.logs.faults import Faults, counted
from gecasmo.logs.pages import (
    PageOf,
    Ranks,
    Rows,
    chain_order,
    first_rows,
    rows_that_differ,
    shown,
)
from gecasmo.logs.repeats import Repeats

Bools = NDArray[np.bool_]


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
