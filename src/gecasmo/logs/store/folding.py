"""Keeping one of the pages that are the same in every way that a stored log keeps."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.logs.hashing import Hashes, mix
from gecasmo.logs.pages import number_by_first_appearance
from gecasmo.logs.store.gathering import Pages
from gecasmo.logs.store.pieces import Integers

_ODD = 0x9E3779B97F4A7C15
_ALL_BITS = (1 << 64) - 1


def places_of(starts: Integers, lengths: Integers, chosen: Integers) -> Integers:
    """The places of all results of these pages, page after page."""
    picked = lengths[chosen]
    ends = np.cumsum(picked)
    shift = np.repeat(starts[chosen] - (ends - picked), picked)
    return shift + np.arange(int(ends[-1]) if len(ends) else 0)


def first_likes(pages: Pages) -> Integers:
    """For each page, the first page that is the same.

    Parameters
    ----------
    pages
        The pages of a partition.

    Returns
    -------
    ndarray of int64
        A page that is like no earlier one has its own number.
    """
    codes = _codes(pages)
    hashes = _hashes(pages, codes)
    order = np.lexsort((np.arange(pages.n_pages), hashes))
    same = np.zeros(pages.n_pages, np.bool_)
    same[1:] = hashes[order][1:] == hashes[order][:-1]
    if same.any() and not _are_the_same(pages, codes, order, same):
        raise AssertionError("two different pages have one hash of 64 bits")
    head = np.maximum.accumulate(np.where(same, 0, np.arange(pages.n_pages)))
    firsts = np.empty(pages.n_pages, np.int64)
    firsts[order] = order[head]
    return firsts


def _codes(pages: Pages) -> tuple[list[Hashes], list[Hashes]]:
    """Numbers that tell values apart: of results, and of pages."""
    of_results = [
        hashes_apart(pages.doc),
        pages.rank.astype(np.uint64) * np.uint64(2) + pages.click,
        *(hashes_apart(column) for column in pages.result_columns),
    ]
    of_pages = [
        pages.query.astype(np.uint64),
        pages.lengths.astype(np.uint64),
        *(hashes_apart(column) for column in pages.page_columns),
    ]
    return of_results, of_pages


def hashes_apart(values: pl.Series) -> Hashes:
    """Numbers that are equal where values are, and different where they differ."""
    is_wide = values.dtype in (pl.Int128, pl.UInt128)
    if values.dtype.is_integer() and values.null_count() == 0 and not is_wide:
        return values.to_numpy().astype(np.uint64)
    numbers, _ = number_by_first_appearance(values)
    return numbers.astype(np.uint64)


def _hashes(pages: Pages, codes: tuple[list[Hashes], list[Hashes]]) -> Hashes:
    """One number a page."""
    of_results, of_pages = codes
    ends = np.cumsum(pages.lengths)
    starts = ends - pages.lengths
    place = np.arange(len(pages.rank)) - np.repeat(starts, pages.lengths)
    combined = mix(place)
    for factor, column in enumerate(of_results, 1):
        combined = mix(combined ^ (column * np.uint64(_ODD * (2 * factor + 1) & _ALL_BITS)))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(combined)])
    hashes: Hashes = total[ends] - total[starts]
    for column in of_pages:
        hashes = mix(hashes ^ mix(column))
    return hashes


def _are_the_same(
    pages: Pages,
    codes: tuple[list[Hashes], list[Hashes]],
    order: Integers,
    same: NDArray[np.bool_],
) -> bool:
    """Whether pages with equal hashes are equal; hashes only say where to look."""
    of_results, of_pages = codes
    later = np.flatnonzero(same)
    here, before = order[later], order[later - 1]
    if any((column[here] != column[before]).any() for column in of_pages):
        return False
    starts = np.cumsum(pages.lengths) - pages.lengths
    mine = places_of(starts, pages.lengths, here)
    other = places_of(starts, pages.lengths, before)
    return not any((column[mine] != column[other]).any() for column in of_results)
