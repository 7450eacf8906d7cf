"""Keeping one of the pages that are the same in every way that a stored log keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.hashing import Hashes, mix
from gecasmo.logs.pages import number_by_first_appearance
from gecasmo.logs.store.gathering import Pages
from gecasmo.logs.store.pieces import Integers

Bools = NDArray[np.bool_]
_ODD = 0x9E3779B97F4A7C15
_ALL_BITS = (1 << 64) - 1
# How many results are compared or moved at a time, where a partition has very many.
AT_A_TIME = 500_000


def places_of(starts: Integers, lengths: Integers, chosen: Integers) -> Integers:
    """The places of all results of these pages, page after page."""
    picked = lengths[chosen]
    ends = np.cumsum(picked)
    shift = np.repeat(starts[chosen] - (ends - picked), picked)
    return shift + np.arange(int(ends[-1]) if len(ends) else 0)


def slices_of(lengths: Integers) -> Iterator[slice]:
    """Cut pages into slices that have not too many results."""
    ends = np.cumsum(lengths)
    first, n_pages = 0, len(lengths)
    while first < n_pages:
        before = int(ends[first - 1]) if first else 0
        last = int(np.searchsorted(ends, before + AT_A_TIME, side="right"))
        last = max(last, first + 1)
        yield slice(first, last)
        first = last


def likes_of(pages: Pages) -> Integers:
    """For each page of a partition, the first page that is the same.

    Parameters
    ----------
    pages
        The pages.

    Returns
    -------
    ndarray of int64
        A page that is like no earlier one has its own number.
    """
    of_results = [
        numbers_apart(pages.doc),
        pages.rank.astype(np.uint64) * np.uint64(2) + pages.click,
        *(numbers_apart(column) for column in pages.result_columns),
    ]
    of_pages = [pages.query.astype(np.uint64)]
    of_pages += [numbers_apart(column) for column in pages.page_columns]
    starts = np.cumsum(pages.lengths) - pages.lengths

    def differ(one: Integers, other: Integers) -> Bools:
        found: Bools = pages.lengths[one] != pages.lengths[other]
        for column in of_pages:
            found |= column[one] != column[other]
        found |= results_differ(starts, pages.lengths, one, other, of_results)
        return found

    hashes = hashes_of_pages(pages.lengths, of_results, of_pages)
    return first_likes(hashes, np.arange(pages.n_pages, dtype=np.int64), differ)


def first_likes(
    hashes: Hashes, order: Integers, differ: Callable[[Integers, Integers], Bools]
) -> Integers:
    """For each page, the first page that is the same.

    Parameters
    ----------
    hashes
        A number a page; pages with different numbers are different.
    order
        The place of each page in the source.
    differ
        Says of pairs of pages with equal hashes which differ all the same.

    Returns
    -------
    ndarray of int64
    """
    sorted_ = np.lexsort((order, hashes))
    same = np.zeros(len(hashes), np.bool_)
    same[1:] = hashes[sorted_][1:] == hashes[sorted_][:-1]
    later = np.flatnonzero(same)
    same[later[differ(sorted_[later], sorted_[later - 1])]] = False
    head = np.maximum.accumulate(np.where(same, 0, np.arange(len(hashes))))
    firsts = np.empty(len(hashes), np.int64)
    firsts[sorted_] = sorted_[head]
    return firsts


def results_differ(
    starts: Integers,
    lengths: Integers,
    one: Integers,
    other: Integers,
    columns: Sequence[NDArray[np.generic]],
) -> Bools:
    """Whether a result of a page is not like that of another page of the same length."""
    found = np.zeros(len(one), np.bool_)
    for part in slices_of(np.minimum(lengths[one], lengths[other])):
        # Pages of different lengths are told by these; here only what both have is compared.
        picked = np.minimum(lengths[one[part]], lengths[other[part]])
        ends = np.cumsum(picked)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - picked, picked)
        mine = np.repeat(starts[one[part]], picked) + within
        theirs = np.repeat(starts[other[part]], picked) + within
        differs = np.zeros(len(mine), np.bool_)
        for column in columns:
            differs |= column[mine] != column[theirs]
        total = np.concatenate([[0], np.cumsum(differs)])
        found[part] = total[ends] > total[ends - picked]
    return found


def numbers_apart(values: pl.Series) -> Hashes:
    """Numbers that are equal where values are, and different where they differ."""
    is_wide = values.dtype in (pl.Int128, pl.UInt128)
    if values.dtype.is_integer() and values.null_count() == 0 and not is_wide:
        return values.to_numpy().astype(np.uint64)
    numbers, _ = number_by_first_appearance(values)
    return numbers.astype(np.uint64)


def hashes_of_pages(
    lengths: Integers, of_results: Sequence[Hashes], of_pages: Sequence[Hashes]
) -> Hashes:
    """One number a page, from numbers of its results in order and of itself."""
    ends = np.cumsum(lengths)
    starts = ends - lengths
    place = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(starts, lengths)
    combined = mix(place)
    for factor, column in enumerate(of_results, 1):
        combined = mix(combined ^ (column * np.uint64(_ODD * (2 * factor + 1) & _ALL_BITS)))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(combined)])
    hashes: Hashes = (total[ends] - total[starts]) ^ mix(lengths)
    for column in of_pages:
        hashes = mix(hashes ^ mix(column))
    return hashes
