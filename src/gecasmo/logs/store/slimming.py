"""Pages with numbers instead of ids: what is left of a share of a partition until all are there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.hashing import Hashes, mix
from gecasmo.logs.store.folding import likes_of, numbers_apart, places_of
from gecasmo.logs.store.gathering import Pages
from gecasmo.logs.store.pieces import Integers

Small = NDArray[np.unsignedinteger]
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
