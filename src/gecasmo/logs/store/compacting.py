"""The small columns of a partition: in order of hash, documents numbered by query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.logs.pages import rows_that_differ
from gecasmo.logs.store.merging import Merged, merge
from gecasmo.logs.store.pieces import Integers
from gecasmo.logs.store.slimming import Slim, smallest

ESCAPE = 255
# A number that does not fit takes five bytes or more instead of one.
SHARE_OF_ESCAPES = 0.15


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


def compact(slims: Sequence[Slim], fold: bool, has_query: bool) -> Compact:
    """Make the columns of a partition.

    Parameters
    ----------
    slims
        All its pages; in several shares where they are too many to be put together at once.
    fold
        Whether pages that are the same are held once, with their weights added up.
    has_query
        Whether the log has queries; else all pages share one list of documents.

    Returns
    -------
    Compact
    """
    merged = merge(slims, fold, has_query)
    queries = pl.DataFrame(
        {
            "pages": merged.pages_of_query.astype(np.uint32),
            "docs": merged.docs_of_query.astype(np.uint32),
        }
    )
    if has_query:
        queries = queries.insert_column(0, merged.queries.alias("query"))
    stored = _stored_numbers(merged.doc)
    page_columns, result_columns = _columns(merged)
    return Compact(
        queries=queries,
        docs=merged.docs.alias("doc").to_frame(),
        pages=_page_frame(merged),
        page_columns=page_columns,
        results=_result_frame(stored, merged),
        result_columns=result_columns,
        escapes=_escapes(merged.doc, stored),
        facts={
            "sessions": sum(share.n_sessions for share in slims),
            "pages": len(merged.lengths),
            "results": len(merged.doc),
            "queries": len(merged.queries) if has_query else 0,
            "docs": len(merged.docs),
            "clicks": sum(share.n_clicks for share in slims),
            "weight": float(sum(share.total_weight for share in slims)),
            "source_results": sum(share.n_results for share in slims),
            "length": _the_one(merged.lengths),
        },
    )


def _columns(merged: Merged) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What else is kept; a column that has one value on every page is held once a page."""
    lengths = merged.lengths
    of_pages, of_results = merged.page_columns.get_columns(), []
    if merged.result_columns.width:
        page = np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths)
        firsts = np.cumsum(lengths) - lengths
        for values in merged.result_columns:
            if (lengths > 0).all() and len(rows_that_differ(values, page, firsts)) == 0:
                of_pages.append(values.gather(firsts))
            else:
                of_results.append(values)
    return pl.DataFrame(of_pages), pl.DataFrame(of_results)


def _page_frame(merged: Merged) -> pl.DataFrame:
    lengths, weight = merged.lengths, merged.weight
    columns = []
    if _the_one(lengths) is None and len(lengths):
        columns.append(pl.Series("length", smallest(lengths)))
    if not (weight == 1).all():
        whole = (weight == np.floor(weight)).all() and weight.max() < 2**32
        values = smallest(weight.astype(np.int64)) if whole else weight
        columns.append(pl.Series("weight", values))
    if merged.sessions is not None:
        columns.append(merged.sessions.alias("session"))
    return pl.DataFrame(columns)


def _result_frame(stored: NDArray[np.unsignedinteger], merged: Merged) -> pl.DataFrame:
    columns = [
        pl.Series("doc", stored),
        pl.Series("click", merged.click, dtype=pl.Boolean),
    ]
    if merged.rank is not None:
        columns.append(pl.Series("rank", smallest(merged.rank)))
    return pl.DataFrame(columns)


def _stored_numbers(numbers: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """Numbers in a byte each, with a mark where they do not fit; wider ones if many do not."""
    if int((numbers >= ESCAPE).sum()) <= SHARE_OF_ESCAPES * len(numbers):
        small: NDArray[np.unsignedinteger] = np.minimum(numbers, ESCAPE).astype(np.uint8)
        return small
    wide: NDArray[np.unsignedinteger] = numbers if numbers.itemsize > 1 else numbers.astype("u2")
    return wide


def _escapes(
    numbers: NDArray[np.unsignedinteger], stored: NDArray[np.unsignedinteger]
) -> pl.DataFrame:
    places = np.flatnonzero(numbers >= ESCAPE) if stored.itemsize == 1 else np.zeros(0, np.int64)
    return pl.DataFrame({"result": smallest(places), "doc": smallest(numbers[places])})


def _the_one(values: Integers) -> int | None:
    """The value that all have, if there is one."""
    if len(values) == 0 or not (values == values[0]).all():
        return None
    return int(values[0])
