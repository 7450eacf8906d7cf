"""Index arithmetic on results that belong to pages."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

PageOf = NDArray[np.uint32]
Ranks = NDArray[np.int32]
Rows = NDArray[np.int64]


def number_by_first_appearance(values: pl.Series) -> tuple[PageOf, Rows]:
    """Give each distinct value of a series a number, in order of first appearance.

    Parameters
    ----------
    values
        Values of any data type; nulls are equal to each other.

    Returns
    -------
    numbers : ndarray of uint32
        The number of each value.
    firsts : ndarray of int64
        The row in which each number first appears.
    """
    if len(values) == 0:
        return np.zeros(0, np.uint32), np.zeros(0, np.int64)
    # Rows of one page are mostly adjacent, so hashing one value a run is far less work.
    run = values.rle_id().to_numpy()
    run_starts = np.flatnonzero(np.diff(run.astype(np.int64), prepend=-1))
    heads = values.gather(run_starts).alias("value").to_frame().with_row_index("run")
    first_run = heads.select(pl.col("run").min().over("value")).to_series().to_numpy()
    is_new = first_run == np.arange(len(first_run))
    number_of_run = (np.cumsum(is_new) - 1)[first_run]
    return number_of_run.astype(np.uint32)[run], run_starts[is_new].astype(np.int64)


def first_rows(page: PageOf, n_pages: int) -> Rows:
    """Find the first row of each page, or -1 for a page without results.

    Parameters
    ----------
    page
        The page of each row.
    n_pages
        How many pages there are.

    Returns
    -------
    ndarray of int64
    """
    firsts = np.full(n_pages, -1, np.int64)
    # From the last row to the first: of several rows of a page, the one written last stays.
    firsts[page[::-1]] = np.arange(len(page) - 1, -1, -1)
    return firsts


def rows_that_differ(values: pl.Series, page: PageOf, firsts: Rows) -> Rows:
    """Find the rows whose value is not that of the first row of their page.

    Parameters
    ----------
    values
        A value a row.
    page
        The page of each row.
    firsts
        The first row of each page.

    Returns
    -------
    ndarray of int64
    """
    if len(values) == 0:
        return np.zeros(0, np.int64)
    differs = values.ne_missing(values.gather(firsts[page]))
    return differs.arg_true().to_numpy().astype(np.int64)


def values_of_pages(values: pl.Series, firsts: Rows) -> pl.Series:
    """Take the value in the first row of each page, null for a page without results."""
    rows = pl.Series(firsts)
    return values.gather(rows.set(rows < 0, None))


def chain_order(page: PageOf, rank: Ranks) -> Rows:
    """Sort rows by page, then by rank.

    Parameters
    ----------
    page
        The page of each row.
    rank
        The rank of each row, not negative.

    Returns
    -------
    ndarray of int64
        Row indices; 0, 1, 2, ... when the rows are in order already.
    """
    key = (page.astype(np.int64) << 32) | rank
    if np.all(key[1:] >= key[:-1]):
        return np.arange(len(key), dtype=np.int64)
    # One integer key in Polars sorts several times faster than numpy.lexsort on two.
    return pl.Series(key).arg_sort().to_numpy().astype(np.int64)


def page_starts(page: PageOf, n_pages: int) -> Rows:
    """Count where each page starts in the chain, with the total at the end."""
    starts = np.zeros(n_pages + 1, np.int64)
    np.cumsum(np.bincount(page, minlength=n_pages), out=starts[1:])
    return starts


def ranks_by_row_order(page: PageOf, n_pages: int) -> Ranks:
    """Rank the rows of each page 1, 2, 3, ... as they come."""
    order = np.argsort(page, kind="stable")
    starts = page_starts(page, n_pages)
    rank = np.empty(len(page), np.int32)
    rank[order] = np.arange(len(page)) - starts[page[order]] + 1
    return rank


def shown(values: pl.Series, index: int | np.integer) -> str:
    """Show one value in a message."""
    value = values[int(index)]
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name}={part!r}" for name, part in value.items()) + ")"
    return repr(value)
