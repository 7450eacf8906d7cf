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

Bools = NDArray[np.bool_]


def note_shared_ranks(
    rank: Ranks, page: PageOf, sound: Bools, sessions: pl.Series, title: str, faults: Faults
) -> Rows:
    """Note results that share a rank with another result of their page.

    Parameters
    ----------
    rank, page
        The rank and the page of each result.
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
    ndarray of int64
        The rows that are sound, by page, then rank.
    """
    rows = None if sound.all() else np.flatnonzero(sound)
    if rows is not None:
        rank, page = rank[rows], page[rows]
    order = chain_order(page, rank)
    chained_rank, chained_page = rank[order], page[order]
    order = order if rows is None else rows[order]
    shared = (chained_rank[1:] == chained_rank[:-1]) & (chained_page[1:] == chained_page[:-1])
    if not shared.any():
        return order
    # Of three results on one rank two repeat it, but the fault is one place.
    places = int(shared.sum() - (shared[1:] & shared[:-1]).sum())
    at = int(np.argmax(shared))
    first, second = sorted(int(row) for row in order[at : at + 2])
    faults.add(
        f"{title}: {counted(places, 'place')} with more than one result, first: session "
        f"{shown(sessions, chained_page[at])} has two results on rank {chained_rank[at]} "
        f"({faults.row(first)} and {faults.row(second)})"
    )
    return order


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
