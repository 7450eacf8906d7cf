"""The shares of a partition, slim, and as one, in the order in which they are stored.

A share has numbers instead of ids: that is what is left of it until all are there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.hashing import Hashes, hash_values, mix
from gecasmo.logs.pages import number_by_first_appearance
from gecasmo.logs.store.pages import (
    Bools,
    Pages,
    first_likes,
    hashes_of_pages,
    likes_of,
    numbers_apart,
    places_of,
    results_differ,
    slices_of,
)
from gecasmo.logs.store.pieces import Integers

Small = NDArray[np.unsignedinteger]
Values = TypeVar("Values", bound=np.generic)
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass
class Slim:
    """Some pages of a partition, in order of the hash of their query.

    Attributes
    ----------
    queries
        The different queries (without queries: the sessions).
    hashes
        Of each of `queries`.
    query, order, lengths, weight
        Of each page: its query, its place in the source, its results, how often it occurred.
    sessions
        The id of each page, where ids are kept.
    docs, doc_query, doc_count, doc_first
        The documents of each query: the document, the query, how often it is in the source, and
        where it is there first.
    doc, click, rank
        Of each result: which of `docs`, whether it was clicked, and its rank; None where ranks are
        1, 2, 3, ... on every page.
    page_columns, result_columns
        What else is kept.
    n_sessions, n_results, n_clicks, total_weight
        Of the pages of the source.
    """

    queries: pl.Series
    hashes: Hashes
    query: Integers
    order: Integers
    lengths: Integers
    weight: NDArray[np.float64]
    sessions: pl.Series | None
    docs: pl.Series
    doc_query: Integers
    doc_count: Integers
    doc_first: Integers
    doc: Small
    click: NDArray[np.bool_]
    rank: Small | None
    page_columns: pl.DataFrame
    result_columns: pl.DataFrame
    n_sessions: int
    n_results: int
    n_clicks: int
    total_weight: float


def slim(pages: Pages, fold: bool, has_query: bool) -> Slim:
    """Put numbers in the place of ids.

    Parameters
    ----------
    pages
        Some pages of a partition.
    fold
        Whether pages that are the same are held once, with their weights added up.
    has_query
        Whether the log has queries; else all pages share one list of documents.

    Returns
    -------
    Slim
    """
    weight = pages.weight
    chosen: Integers = np.arange(pages.n_pages, dtype=np.int64)
    occurrences = np.ones(pages.n_pages)
    if fold:
        firsts = likes_of(pages)
        weight, occurrences = summed(pages.weight, firsts), summed(occurrences, firsts)
        chosen = chosen[firsts == chosen]
    by_hash = np.argsort(pages.hashes, kind="stable")
    place = inverse(by_hash)
    query = place[pages.query[chosen]]
    by_query = np.argsort(query, kind="stable")
    chosen, query = chosen[by_query], query[by_query]
    lengths = pages.lengths[chosen]
    places = places_of(np.cumsum(pages.lengths) - pages.lengths, pages.lengths, chosen)
    doc = pages.doc.gather(places)
    group = query if has_query else np.zeros(len(query), np.int64)
    group_of_result = np.repeat(group, lengths)
    # The results of each query stand together, so all that is looked up is near.
    first = first_of_pair(numbers_apart(doc), group_of_result)
    # Counted in the source, so that it does not matter what was folded when.
    times = np.repeat(occurrences[chosen], lengths)
    count = np.bincount(first, weights=times, minlength=len(doc)).astype(np.int64)
    firsts_of_docs = np.flatnonzero(count)
    number = np.zeros(len(doc), np.min_scalar_type(len(firsts_of_docs)))
    number[firsts_of_docs] = np.arange(len(firsts_of_docs))
    rank = smallest(pages.rank[places])
    return Slim(
        queries=pages.queries.gather(by_hash),
        hashes=pages.hashes[by_hash],
        query=query,
        order=pages.order[chosen],
        lengths=lengths,
        weight=weight[chosen],
        sessions=None if pages.sessions is None else pages.sessions.gather(chosen),
        docs=doc.gather(firsts_of_docs),
        doc_query=group_of_result[firsts_of_docs],
        doc_count=count[firsts_of_docs],
        doc_first=_when(pages.order[chosen], lengths, firsts_of_docs),
        doc=number[first],
        click=pages.click[places],
        rank=None if np.array_equal(rank, ranks_by_length(lengths)) else rank,
        page_columns=pl.DataFrame([c.gather(chosen) for c in pages.page_columns]),
        result_columns=pl.DataFrame([c.gather(places) for c in pages.result_columns]),
        n_sessions=pages.n_pages,
        n_results=int(pages.lengths.sum()),
        n_clicks=int(pages.click.sum()),
        total_weight=float(pages.weight.sum()),
    )


def _when(order: Integers, lengths: Integers, results: Integers) -> Integers:
    """When results came: by the order of their pages, then by their place on the page."""
    starts = np.cumsum(lengths) - lengths
    page = np.searchsorted(starts, results, side="right") - 1
    return (order[page] << 24) + np.minimum(results - starts[page], (1 << 24) - 1)


def first_of_pair(doc: Hashes, query: Integers) -> Integers:
    """For each result, the first result of the same query with the same document."""
    if len(doc) == 0:
        return np.zeros(0, np.int64)
    # One number for both is far faster to look up; that it stands for one pair is checked.
    key = mix(doc) + query.astype(np.uint64) * _ODD
    table = pl.DataFrame({"key": key}).with_row_index("row")
    first = table.select(pl.col("row").min().over("key")).to_series().to_numpy().astype(np.int64)
    if (doc[first] != doc).any() or (query[first] != query).any():
        table = pl.DataFrame({"doc": doc, "query": query}).with_row_index("row")
        exact = table.select(pl.col("row").min().over("doc", "query")).to_series()
        first = exact.to_numpy().astype(np.int64)
    return first


def summed(weight: NDArray[np.float64], firsts: Integers) -> NDArray[np.float64]:
    """Add the weights of pages to that of the first of their likes."""
    return np.bincount(firsts, weights=weight, minlength=len(weight)).astype(np.float64)


def inverse(order: Integers) -> Integers:
    """The place of each thing in an order."""
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places


def ranks_by_length(lengths: Integers) -> NDArray[np.int32]:
    """Ranks 1, 2, 3, ... on each page."""
    n_pages, n_results = len(lengths), int(lengths.sum())
    if n_pages and (lengths == lengths[0]).all():
        return np.tile(np.arange(1, lengths[0] + 1, dtype=np.int32), n_pages)
    starts = np.cumsum(lengths) - lengths
    return (np.arange(1, n_results + 1) - np.repeat(starts, lengths)).astype(np.int32)


def smallest(values: NDArray[np.integer]) -> NDArray[np.unsignedinteger]:
    """The values, which are not negative, in the smallest unsigned integers that hold them."""
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


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
