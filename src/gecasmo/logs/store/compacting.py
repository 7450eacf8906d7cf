"""From pages to the small columns of a partition: in order of hash, documents numbered by query."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.logs.hashing import Hashes, mix
from gecasmo.logs.pages import rows_that_differ
from gecasmo.logs.store.folding import first_likes, hashes_apart, places_of
from gecasmo.logs.store.gathering import Pages
from gecasmo.logs.store.pieces import Integers

ESCAPE = 255
_ODD = np.uint64(0x9E3779B97F4A7C15)
# A number that does not fit takes five bytes or more instead of one.
SHARE_OF_ESCAPES = 0.15
Floats = NDArray[np.float64]


@dataclass
class Compact:
    """A partition as it is stored.

    Attributes
    ----------
    queries
        "query" (if there are queries), and how many "pages" and "docs" each has.
    docs
        The documents of each query, one query after the other, the most frequent first.
    pages
        Whatever is not the same for all of "length", "weight" and "session".
    page_columns, result_columns
        What else is kept.
    results
        "doc" (its number among those of its query; in bytes, 255 where that does not fit),
        "click", and "rank" unless it is 1, 2, 3, ... everywhere.
    escapes
        "result" and "doc": the numbers that do not fit, by place.
    facts
        The counts.
    """

    queries: pl.DataFrame
    docs: pl.DataFrame
    pages: pl.DataFrame
    page_columns: pl.DataFrame
    results: pl.DataFrame
    result_columns: pl.DataFrame
    escapes: pl.DataFrame
    facts: dict[str, int | float | None]


def compact(pages: Pages, fold: bool, has_query: bool) -> Compact:
    """Make the columns of a partition.

    Parameters
    ----------
    pages
        Its pages, in the order of the source.
    fold
        Whether pages that are the same are held once, with their weights added up.
    has_query
        Whether the log has queries; else each page is on its own.

    Returns
    -------
    Compact
    """
    total_weight, n_sessions = float(pages.weight.sum()), pages.n_pages
    weight = pages.weight
    chosen: Integers = np.arange(pages.n_pages, dtype=np.int64)
    if fold:
        firsts = first_likes(pages)
        sums = np.bincount(firsts, weights=pages.weight, minlength=pages.n_pages)
        weight = sums.astype(np.float64)
        chosen = chosen[firsts == chosen]
    by_hash = np.argsort(pages.hashes, kind="stable")
    place_of_query = np.empty(len(by_hash), np.int64)
    place_of_query[by_hash] = np.arange(len(by_hash))
    chosen = chosen[np.argsort(place_of_query[pages.query[chosen]], kind="stable")]
    starts = np.cumsum(pages.lengths) - pages.lengths
    places = places_of(starts, pages.lengths, chosen)
    lengths = pages.lengths[chosen]
    # Without queries, all pages share one list of documents.
    query = place_of_query[pages.query[chosen]] if has_query else np.zeros(len(chosen), np.int64)
    n_queries = len(by_hash) if has_query else 1
    numbered = _number_docs(pages.doc.gather(places), np.repeat(query, lengths), n_queries)
    queries = pl.DataFrame(
        {
            "pages": np.bincount(query, minlength=n_queries).astype(np.uint32),
            "docs": numbered.docs_of_query.astype(np.uint32),
        }
    )
    if has_query:
        names = pages.queries.gather(by_hash).alias("query")
        queries = queries.insert_column(0, names)
    stored = _stored_numbers(numbered.numbers)
    page_columns, result_columns = _columns(pages, chosen, places, lengths)
    return Compact(
        queries=queries,
        docs=numbered.docs.alias("doc").to_frame(),
        pages=_page_frame(lengths, weight[chosen], pages.sessions, chosen),
        page_columns=page_columns,
        results=_result_frame(stored, pages.click[places], pages.rank[places], lengths),
        result_columns=result_columns,
        escapes=_escapes(numbered.numbers, stored.dtype),
        facts={
            "sessions": n_sessions,
            "pages": len(chosen),
            "results": len(places),
            "queries": len(by_hash) if has_query else 0,
            "docs": len(numbered.docs),
            "clicks": int(pages.click.sum()),
            "weight": total_weight,
            "length": _the_one(lengths),
        },
    )


@dataclass
class _Numbered:
    numbers: Integers
    docs: pl.Series
    docs_of_query: Integers


def _number_docs(doc: pl.Series, query: Integers, n_queries: int) -> _Numbered:
    """Number the documents of each query, the most frequent first (of equals: seen first).

    The results of each query stand together, so all that is looked up is near.
    """
    first = _first_of_pair(hashes_apart(doc), query)
    count = np.bincount(first, minlength=len(doc))
    firsts = np.flatnonzero(count)
    firsts = firsts[np.lexsort((firsts, -count[firsts], query[firsts]))]
    docs_of_query = np.bincount(query[firsts], minlength=n_queries)
    starts = np.cumsum(docs_of_query) - docs_of_query
    number = np.zeros(len(doc), np.int64)
    number[firsts] = np.arange(len(firsts)) - starts[query[firsts]]
    return _Numbered(number[first], doc.gather(firsts), docs_of_query)


def _first_of_pair(doc: Hashes, query: Integers) -> Integers:
    """For each result, the first result of the same query with the same document."""
    if len(doc) == 0:
        return np.zeros(0, np.int64)
    key = mix(doc) + query.astype(np.uint64) * _ODD
    table = pl.DataFrame({"key": key}).with_row_index("row")
    first = table.select(pl.col("row").min().over("key")).to_series().to_numpy().astype(np.int64)
    if (doc[first] != doc).any() or (query[first] != query).any():
        raise AssertionError("two pairs of a query and a document have one hash of 64 bits")
    return first


def _columns(
    pages: Pages, chosen: Integers, places: Integers, lengths: Integers
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What else is kept; a column that has one value on every page is held once a page."""
    page = np.repeat(np.arange(len(chosen), dtype=np.uint32), lengths)
    firsts = np.cumsum(lengths) - lengths
    of_pages = [column.gather(chosen) for column in pages.page_columns]
    of_results = []
    for column in pages.result_columns:
        values = column.gather(places)
        if (lengths > 0).all() and len(rows_that_differ(values, page, firsts)) == 0:
            of_pages.append(values.gather(firsts))
        else:
            of_results.append(values)
    return pl.DataFrame(of_pages), pl.DataFrame(of_results)


def _page_frame(
    lengths: Integers, weight: Floats, sessions: pl.Series | None, chosen: Integers
) -> pl.DataFrame:
    columns = []
    if _the_one(lengths) is None and len(lengths):
        columns.append(pl.Series("length", _small(lengths)))
    if not (weight == 1).all():
        whole = (weight == np.floor(weight)).all() and weight.max() < 2**32
        columns.append(pl.Series("weight", _small(weight.astype(np.int64)) if whole else weight))
    if sessions is not None:
        columns.append(sessions.gather(chosen).alias("session"))
    return pl.DataFrame(columns)


def _result_frame(
    doc: NDArray[np.unsignedinteger],
    click: NDArray[np.bool_],
    rank: NDArray[np.int32],
    lengths: Integers,
) -> pl.DataFrame:
    columns = [
        pl.Series("doc", doc),
        pl.Series("click", click, dtype=pl.Boolean),
    ]
    if not np.array_equal(rank, ranks_by_length(lengths)):
        columns.append(pl.Series("rank", _small(rank)))
    return pl.DataFrame(columns)


def ranks_by_length(lengths: Integers) -> NDArray[np.int32]:
    """Ranks 1, 2, 3, ... on each page."""
    ends = np.cumsum(lengths)
    n_results = int(ends[-1]) if len(ends) else 0
    return (np.arange(1, n_results + 1) - np.repeat(ends - lengths, lengths)).astype(np.int32)


def _stored_numbers(numbers: Integers) -> NDArray[np.unsignedinteger]:
    """Numbers in a byte each, with a mark where they do not fit; wider ones if most do not."""
    if int((numbers >= ESCAPE).sum()) <= SHARE_OF_ESCAPES * len(numbers):
        return np.minimum(numbers, ESCAPE).astype(np.uint8)
    small = _small(numbers)
    return small if small.itemsize > 1 else small.astype(np.uint16)


def _escapes(numbers: Integers, stored: np.dtype[np.unsignedinteger]) -> pl.DataFrame:
    places = np.flatnonzero(numbers >= ESCAPE) if stored == np.uint8 else np.zeros(0, np.int64)
    return pl.DataFrame({"result": _small(places), "doc": _small(numbers[places])})


def _the_one(values: Integers) -> int | None:
    """The value that all have, if there is one."""
    if len(values) == 0 or not (values == values[0]).all():
        return None
    return int(values[0])


def _small(values: NDArray[np.signedinteger]) -> NDArray[np.unsignedinteger]:
    """The smallest unsigned integers that hold the values, which are not negative."""
    largest = int(values.max(initial=0))
    return values.astype(np.min_scalar_type(largest))
