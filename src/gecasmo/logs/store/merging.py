"""The shares of a partition as one, in the order in which they are stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.hashing import Hashes, hash_values
from gecasmo.logs.pages import number_by_first_appearance
from gecasmo.logs.store.folding import (
    Bools,
    first_likes,
    hashes_of_pages,
    numbers_apart,
    places_of,
    results_differ,
    slices_of,
)
from gecasmo.logs.store.pieces import Integers
from gecasmo.logs.store.slimming import (
    Slim,
    first_of_pair,
    inverse,
    ranks_by_length,
    smallest,
    summed,
)

Small = NDArray[np.unsignedinteger]
Values = TypeVar("Values", bound=np.generic)


@dataclass
class Merged:
    """All pages of a partition, in order of the hash of their query, then of the source.

    Attributes
    ----------
    queries, pages_of_query, docs_of_query
        The different queries in order of their hashes, with their numbers of pages and documents.
    docs
        The documents of each query, one query after the other, the most frequent first.
    lengths, weight, sessions, page_columns
        Of each page.
    doc, click, rank, result_columns
        Of each result; documents by their number among those of their query, ranks unless they are
        1, 2, 3, ... on every page.
    """

    queries: pl.Series
    pages_of_query: Integers
    docs_of_query: Integers
    docs: pl.Series
    lengths: Integers
    weight: NDArray[np.float64]
    sessions: pl.Series | None
    page_columns: pl.DataFrame
    doc: Small
    click: Bools
    rank: Small | None
    result_columns: pl.DataFrame


def merge(shares: Sequence[Slim], fold: bool, has_query: bool) -> Merged:
    """Put the shares of a partition together.

    Parameters
    ----------
    shares
        At least one.
    fold
        Whether pages that are the same, but in different shares, are folded.
    has_query
        Whether the log has queries; else all pages share one list of documents.

    Returns
    -------
    Merged
    """
    queries, place_of = _queries(shares)
    query = np.concatenate([place_of[i][s.query] for i, s in enumerate(shares)])
    group_of = place_of if has_query else [np.zeros(1, np.int64) for _ in shares]
    n_groups = len(queries) if has_query else 1
    docs, docs_of_query, numbers = _docs(shares, group_of, n_groups)
    lengths = np.concatenate([s.lengths for s in shares])
    weight = np.concatenate([s.weight for s in shares])
    order = np.concatenate([s.order for s in shares])
    doc = _concatenated([n[s.doc] for n, s in zip(numbers, shares, strict=True)])
    click = _concatenated([s.click for s in shares])
    rank = _ranks(shares)
    page_columns = pl.concat([s.page_columns for s in shares])
    result_columns = pl.concat([s.result_columns for s in shares])
    sessions = _joined([s.sessions for s in shares])
    if len(shares) > 1:
        # Pages are moved to their place, those of several shares between each other.
        chosen = np.lexsort((order, query))
        if fold:
            firsts = _likes(query, lengths, order, (doc, click, rank), page_columns, result_columns)
            weight = summed(weight, firsts)
            chosen = chosen[firsts[chosen] == chosen]
        starts = np.cumsum(lengths) - lengths
        doc = _moved(doc, starts, lengths, chosen)
        click = _moved(click, starts, lengths, chosen)
        rank = None if rank is None else _moved(rank, starts, lengths, chosen)
        if result_columns.width:
            result_columns = result_columns[places_of(starts, lengths, chosen)]
        page_columns = page_columns[chosen] if page_columns.width else page_columns
        sessions = None if sessions is None else sessions.gather(chosen)
        query, lengths, weight = query[chosen], lengths[chosen], weight[chosen]
    group = query if has_query else np.zeros(len(query), np.int64)
    return Merged(
        queries=queries,
        pages_of_query=np.bincount(group, minlength=n_groups),
        docs_of_query=docs_of_query,
        docs=docs,
        lengths=lengths,
        weight=weight,
        sessions=sessions,
        page_columns=page_columns,
        doc=doc,
        click=click,
        rank=rank,
        result_columns=result_columns,
    )


def _queries(shares: Sequence[Slim]) -> tuple[pl.Series, list[Integers]]:
    """All different queries in order of hash, and the place there of those of each share."""
    if len(shares) == 1:
        return shares[0].queries, [np.arange(len(shares[0].queries), dtype=np.int64)]
    together = pl.concat([share.queries for share in shares])
    number, firsts = number_by_first_appearance(together)
    different = together.gather(firsts)
    by_hash = np.argsort(hash_values(different), kind="stable")
    place = inverse(by_hash)[number]
    ends = np.cumsum([len(share.queries) for share in shares])
    return different.gather(by_hash), np.split(place, ends[:-1])


def _docs(
    shares: Sequence[Slim], group_of: Sequence[Integers], n_groups: int
) -> tuple[pl.Series, Integers, list[Small]]:
    """The documents of all queries, how many each has, and the numbers of those of each share."""
    docs = pl.concat([share.docs for share in shares])
    query = np.concatenate([group_of[i][s.doc_query] for i, s in enumerate(shares)])
    count = np.concatenate([share.doc_count for share in shares])
    when = np.concatenate([share.doc_first for share in shares])
    first = np.arange(len(docs), dtype=np.int64)
    if len(shares) > 1:
        first = first_of_pair(numbers_apart(docs), query)
        count = np.bincount(first, weights=count, minlength=len(docs)).astype(np.int64)
        np.minimum.at(when, first, when.copy())
    firsts = np.flatnonzero(first == np.arange(len(docs)))
    firsts = firsts[np.lexsort((when[firsts], -count[firsts], query[firsts]))]
    docs_of_query = np.bincount(query[firsts], minlength=n_groups)
    starts = np.cumsum(docs_of_query) - docs_of_query
    small = np.min_scalar_type(int(docs_of_query.max(initial=0)))
    number = np.zeros(len(docs), small)
    number[firsts] = np.arange(len(firsts)) - starts[query[firsts]]
    ends = np.cumsum([len(share.docs) for share in shares])
    return docs.gather(firsts), docs_of_query, np.split(number[first], ends[:-1])


def _likes(
    query: Integers,
    lengths: Integers,
    order: Integers,
    roles: tuple[Small, Bools, Small | None],
    page_columns: pl.DataFrame,
    result_columns: pl.DataFrame,
) -> Integers:
    """For each page, the first page that is the same."""
    doc, click, rank = roles
    starts = np.cumsum(lengths) - lengths
    of_results = [numbers_apart(column) for column in result_columns]
    of_pages = [numbers_apart(column) for column in page_columns]
    hashes = np.empty(len(lengths), np.uint64)
    for part in slices_of(lengths):
        first = int(starts[part.start])
        span = slice(first, first + int(lengths[part].sum()))
        values: list[Hashes] = [doc[span].astype(np.uint64) * np.uint64(2) + click[span]]
        values += [] if rank is None else [rank[span].astype(np.uint64)]
        values += [column[span] for column in of_results]
        own = [query[part].astype(np.uint64), *(column[part] for column in of_pages)]
        hashes[part] = hashes_of_pages(lengths[part], values, own)

    def differ(one: Integers, other: Integers) -> Bools:
        found: Bools = (query[one] != query[other]) | (lengths[one] != lengths[other])
        for column in of_pages:
            found |= column[one] != column[other]
        columns: list[NDArray[np.generic]] = [doc, click, *of_results]
        columns += [] if rank is None else [rank]
        found |= results_differ(starts, lengths, one, other, columns)
        return found

    return first_likes(hashes, order, differ)


def _ranks(shares: Sequence[Slim]) -> Small | None:
    if all(share.rank is None for share in shares):
        return None
    given = (s.rank for s in shares)
    return _concatenated(
        [
            smallest(ranks_by_length(share.lengths)) if rank is None else rank
            for share, rank in zip(shares, given, strict=True)
        ]
    )


def _concatenated(arrays: Sequence[NDArray[Values]]) -> NDArray[Values]:
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays)


def _joined(parts: Sequence[pl.Series | None]) -> pl.Series | None:
    there = [part for part in parts if part is not None]
    return pl.concat(there) if there else None


def _moved(
    column: NDArray[Values], starts: Integers, lengths: Integers, chosen: Integers
) -> NDArray[Values]:
    """The results of pages in another order, some at a time: places take more than results."""
    picked = lengths[chosen]
    moved = np.empty(int(picked.sum()), column.dtype)
    ends = np.cumsum(picked)
    for part in slices_of(picked):
        first = int(ends[part.start] - picked[part.start])
        places = places_of(starts, lengths, chosen[part])
        moved[first : first + len(places)] = column[places]
    return moved
