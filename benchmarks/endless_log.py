"""Click logs of any size, made batch by batch in constant memory.

People behave as DBN says (attraction Beta(1, 3), satisfaction Beta(2, 2), continuation 0.9) on
pages of 10 out of 20 candidates, one query per 50 pages, queries zipf 1.1: the logs of `logs.py`.
But every draw is a hash of what it is for, so nothing has to be remembered, batches can be made in
any order, and a log of a billion pages needs no more memory than one of a million.

    distinct    every page has a ranking of its own
    repeating   a query has three fixed rankings, shown with 0.6, 0.3 and 0.1
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numba
import numpy as np
import polars as pl

RANKS, CANDIDATES, PAGES_PER_QUERY = 10, 20, 50
CONTINUATION, ZIPF, NOISE = 0.9, 1.1, 0.3
KINDS = ("distinct", "repeating")
BATCH = 200_000
FILE = 1_000_000  # pages of a file
# Of so many queries, nearly all pages: what is the same for each of them is worked out once.
FREQUENT, RANKINGS = 300_000, 3
_SEED = 5
# What a draw is for.
_ATTRACTION, _SATISFACTION, _NOISE_OF_PAGE, _NOISE_OF_RANKING, _PAGE = 1, 2, 3, 4, 5
# Draws of one page: which query, which ranking, and three a result.
_DRAWS = 64


@numba.njit(nogil=True)
def uniform(purpose, number):
    """A number in (0, 1) that is always the same for the same thing (splitmix64)."""
    x = np.uint64(number) * np.uint64(0x9E3779B97F4A7C15)
    x += np.uint64(_SEED * 1_000 + purpose) * np.uint64(0xD1B54A32D192ED03)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x = x ^ (x >> np.uint64(31))
    return (np.float64(x >> np.uint64(11)) + 0.5) * (1.0 / 9007199254740992.0)


@numba.njit(nogil=True)
def attraction_of(pair):
    """Beta(1, 3), by its inverse distribution function."""
    return 1.0 - np.cbrt(1.0 - uniform(_ATTRACTION, pair))


@numba.njit(nogil=True)
def satisfaction_of(pair):
    """Beta(2, 2), by its inverse distribution function."""
    return 0.5 - math.sin(math.asin(1.0 - 2.0 * uniform(_SATISFACTION, pair)) / 3.0)


@numba.njit(nogil=True)
def _rank(q, attraction, purpose, which, ranking):
    """The candidates of a query in the order of a noisy score, as far as a page shows them."""
    score = np.empty(CANDIDATES)
    for c in range(0, CANDIDATES, 2):
        radius = NOISE * math.sqrt(-2.0 * math.log(uniform(purpose, which * CANDIDATES + c)))
        angle = 2.0 * math.pi * uniform(purpose, which * CANDIDATES + c + 1)
        score[c] = attraction[c] + radius * math.cos(angle)
        score[c + 1] = attraction[c + 1] + radius * math.sin(angle)
    for rank in range(RANKS):
        best = 0
        for c in range(1, CANDIDATES):
            if score[c] > score[best]:
                best = c
        score[best] = -np.inf
        ranking[rank] = best


@numba.njit(nogil=True)
def _attractions(q, attraction):
    for c in range(CANDIDATES):
        attraction[c] = attraction_of(q * CANDIDATES + c)


@numba.njit(nogil=True)
def _frequent(repeats, attractions, rankings):
    """What is the same on all pages of the first, most frequent queries."""
    for q in range(len(attractions)):
        _attractions(q, attractions[q])
        if repeats:
            for r in range(RANKINGS):
                which = q * RANKINGS + r
                _rank(q, attractions[q], _NOISE_OF_RANKING, which, rankings[which])


@numba.njit(nogil=True)
def _fill(first, n_queries, repeats, attractions, rankings, query, doc, click):
    """Make the pages `first`, `first + 1`, ... ; `doc` is the number of a pair."""
    span = np.float64(n_queries) ** (1.0 - ZIPF) - 1.0
    own, shown = np.empty(CANDIDATES), np.empty(RANKS, np.uint8)
    for i in range(len(query)):
        page = first + i
        draw = page * _DRAWS
        # The continuous law of zipf, cut into whole numbers.
        q = np.int64((span * uniform(_PAGE, draw) + 1.0) ** (1.0 / (1.0 - ZIPF))) - 1
        q = min(max(q, 0), n_queries - 1)
        query[i] = q
        is_frequent = q < len(attractions)
        attraction = own
        if is_frequent:
            attraction = attractions[q]
        else:
            _attractions(q, own)
        ranking = shown
        if repeats:
            chosen = uniform(_PAGE, draw + 1)
            which = q * RANKINGS + (0 if chosen < 0.6 else 1 if chosen < 0.9 else 2)
            if is_frequent:
                ranking = rankings[which]
            else:
                _rank(q, attraction, _NOISE_OF_RANKING, which, shown)
        else:
            _rank(q, attraction, _NOISE_OF_PAGE, page, shown)
        is_there = True
        for rank in range(RANKS):
            best = ranking[rank]
            pair = q * CANDIDATES + best
            doc[i, rank] = pair
            clicked = is_there and uniform(_PAGE, draw + 2 + 3 * rank) < attraction[best]
            click[i, rank] = clicked
            if clicked and uniform(_PAGE, draw + 3 + 3 * rank) < satisfaction_of(pair):
                is_there = False
            if is_there and uniform(_PAGE, draw + 4 + 3 * rank) >= CONTINUATION:
                is_there = False


@cache
def _tables(kind, n_queries):
    n = min(n_queries, FREQUENT)
    attractions = np.empty((n, CANDIDATES))
    rankings = np.empty((n * RANKINGS if kind == "repeating" else 0, RANKS), np.uint8)
    _frequent(kind == "repeating", attractions, rankings)
    return attractions, rankings


def batch(kind: str, n_pages: int, first: int, last: int) -> pl.DataFrame:
    """Pages `first` to `last` of a log of so many, one row a result."""
    n_queries = max(1, n_pages // PAGES_PER_QUERY)
    whole = np.int32 if n_queries * CANDIDATES < 2**31 else np.int64
    query = np.empty(last - first, whole)
    doc = np.empty((last - first, RANKS), whole)
    click = np.empty((last - first, RANKS), np.bool_)
    tables = _tables(kind, n_queries)
    _fill(first, n_queries, kind == "repeating", *tables, query, doc, click)
    return pl.DataFrame(
        {
            "session": np.repeat(np.arange(first, last), RANKS),
            "query": np.repeat(query, RANKS),
            "doc": doc.ravel(),
            "rank": np.tile(np.arange(1, RANKS + 1, dtype=np.int32), last - first),
            "click": click.ravel(),
        }
    )


def batches(kind: str, n_pages: int) -> Iterator[pl.DataFrame]:
    """A whole log, batch by batch."""
    for first in range(0, n_pages, BATCH):
        yield batch(kind, n_pages, first, min(n_pages, first + BATCH))
