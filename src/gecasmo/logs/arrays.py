"""What is done to arrays of pages: each by NumPy, and by a compiled kernel where there is much.

Both ways give the same numbers. Small logs take the first, since nothing has to be compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.hashes import Hashes, mix
from gecasmo.kernels import page_arrays
from gecasmo.kernels.library import compiling
from gecasmo.kernels.static import static_kernel
from gecasmo.kernels.threads import default_threads, run_jobs
from gecasmo.logs.runs import (
    Integers,
    hash_runs,
    offsets,
    rows_of_runs,
    runs_differ,
    slices_of_runs,
)

Numbers = NDArray[np.unsignedinteger[Any]]

# From so many results on, kernels are used, and codes are kept in the narrowest type.
LARGE_LOG = 200_000


# Whether there is too little memory for what kernels are loaded with, which takes some 50 MB.
no_kernels: ContextVar[bool] = ContextVar("no_kernels", default=False)


def is_large(n_results: int) -> bool:
    """Whether a log of so many results is worth compiled kernels and narrow types."""
    return n_results >= LARGE_LOG and not no_kernels.get()


class Runs(NamedTuple):
    """Distinct values of each run of an array, numbered from 0 as they appear.

    `numbers` has the number of each value within its run, `n_distinct` how many there are in each
    run, and `first_at` where they appear first, run by run.
    """

    numbers: NDArray[np.uint32]
    n_distinct: Integers
    first_at: Integers


def page_results(
    values: NDArray[Any], starts: Integers, pages: Integers, target_start: Integers
) -> NDArray[Any]:
    """The values of some pages, one page after the other; `target_start` says where each begins."""
    n_results = int(target_start[-1])
    if not is_large(n_results):
        return values[rows_of_runs(starts[pages], np.diff(target_start))]
    target = np.empty(n_results, f"u{values.dtype.itemsize}")
    arguments = [pages, starts, as_unsigned(values), target_start, target]
    _on_threads(page_arrays.copy_pages, len(pages), arguments)
    return target.view(values.dtype)


def hash_pages(
    columns: Sequence[NDArray[Any]],
    starts: Integers,
    pages: Integers,
    begun: Hashes | None = None,
) -> Hashes:
    """One number per page from what its results have in some columns, in order.

    `begun` has what is known of each page already, which is lost; by default, how long it is.
    """
    hashes = mix(np.diff(starts)[pages]) if begun is None else begun
    for number, column in enumerate(columns):
        salt = mix(np.array([number]))[0]
        values = as_unsigned(column)
        if is_large(len(values)):
            _on_threads(page_arrays.hash_pages, len(pages), [pages, starts, values, salt, hashes])
        else:
            for part in slices_of_runs(np.diff(starts)[pages]):
                hash_runs(values, starts, pages[part], salt, hashes[part])
    return hashes


def differing_pages(
    columns: Sequence[NDArray[Any]], starts: Integers, likes: Integers
) -> NDArray[np.bool_]:
    """Which pages differ in some column from the pages they are said to be like."""
    differs = np.zeros(len(likes), np.uint8)
    for column in columns:
        values = as_unsigned(column)
        if is_large(len(values)):
            _on_threads(page_arrays.compare_pages, len(likes), [likes, starts, values, differs])
        else:
            later = np.flatnonzero(likes != np.arange(len(likes)))
            for part in slices_of_runs(np.diff(starts)[later]):
                some = later[part]
                differs[some] |= runs_differ(values, starts, some, likes[some])
    return differs.view(np.bool_)


def number_runs(values: NDArray[Any], run_start: Integers) -> Runs:
    """Number the distinct values of each run of an array, as they appear."""
    unsigned = as_unsigned(values)
    n_runs = len(run_start) - 1
    if not is_large(len(values)):
        return _number_plainly(unsigned, run_start)
    numbers = np.empty(len(values), np.uint32)
    small = len(values) < 2**32
    first_at = np.empty(len(values), np.uint32 if small else np.int64)
    n_distinct = np.zeros(n_runs, np.int64)
    _on_threads(
        page_arrays.number_within,
        n_runs,
        [run_start, unsigned, numbers, first_at, n_distinct],
        work=run_start,
    )
    kept = rows_of_runs(run_start[:-1], n_distinct)
    return Runs(numbers, n_distinct, first_at[kept].astype(np.int64))


def _number_plainly(values: Numbers, run_start: Integers) -> Runs:
    n_runs = len(run_start) - 1
    run = np.repeat(np.arange(n_runs), np.diff(run_start))
    _, code = np.unique(values, return_inverse=True)
    pair = run * (int(code.max(initial=0)) + 1) + code.reshape(-1)
    _, first_at, number = np.unique(pair, return_index=True, return_inverse=True)
    # By first appearance: what appears later in the array is of the same run or a later one.
    by_appearance = np.argsort(first_at, kind="stable")
    place = np.empty(len(by_appearance), np.int64)
    place[by_appearance] = np.arange(len(by_appearance))
    n_distinct = np.bincount(run[first_at], minlength=n_runs).astype(np.int64)
    local = place[number.reshape(-1)] - offsets(n_distinct)[run]
    return Runs(local.astype(np.uint32), n_distinct, first_at[by_appearance].astype(np.int64))


def last_click_ranks(
    click: NDArray[np.bool_], rank: NDArray[np.integer[Any]], page_start: Integers
) -> NDArray[np.integer[Any]]:
    """The rank of the last click above each result of its page, 0 for none."""
    if is_large(len(click)):
        above = np.empty(len(click), rank.dtype)
        arguments = [page_start, as_unsigned(click), as_unsigned(rank), above]
        _on_threads(page_arrays.last_clicks, len(page_start) - 1, arguments)
        return above
    first = np.repeat(page_start[:-1], np.diff(page_start))
    place = np.full(len(click) + 1, -1, np.int64)  # of the last click before each result
    place[1:][click] = np.flatnonzero(click)
    np.maximum.accumulate(place, out=place)
    place = place[:-1]
    return np.where(place >= first, rank[place], 0).astype(rank.dtype)


def numbers_of_clicks(click: NDArray[np.bool_], page_start: Integers) -> NDArray[np.int32]:
    """How many results above each one on its page were clicked."""
    above = np.empty(len(click), np.int32)
    if is_large(len(click)):
        arguments = [page_start, as_unsigned(click), above]
        _on_threads(page_arrays.clicks_above, len(page_start) - 1, arguments)
        return above
    total = np.zeros(len(click) + 1, np.int64)
    np.cumsum(click, out=total[1:])
    above[:] = total[:-1] - np.repeat(total[page_start[:-1]], np.diff(page_start))
    return above


def dense(values: NDArray[np.integer[Any]]) -> tuple[Numbers, NDArray[np.integer[Any]]]:
    """Number the distinct values 0, 1, ...; also the distinct values in that order."""
    low, high = int(values.min()), int(values.max())
    if high - low > 4 * len(values) + 1000:
        return _dense_by_hash(values)
    if is_large(len(values)) and low > -(2**62) and high < 2**62:
        seen = np.zeros(high - low + 1, np.uint8)
        as_read = as_unsigned(values if low >= 0 else values.astype(np.int64) - low)
        base = np.int64(max(low, 0))
        marking = [as_read, base, seen]
        static_kernel(page_arrays.mark, marking)(*marking)
        distinct = np.flatnonzero(seen)
        narrow = np.cumsum(seen, dtype=np.uint32) - np.uint32(1)
        table = narrow.astype(narrowest(len(distinct)))
        codes = np.empty_like(table, shape=len(values))
        _on_threads(page_arrays.look_up, len(values), [as_read, base, table, codes])
        return codes, (distinct + low).astype(values.dtype)
    # Differences wrap around in narrow types and in unsigned ones; modulo 2**64 they are right.
    wide = values.astype(np.uint64 if values.dtype == np.uint64 else np.int64, copy=False)
    offset = (wide.view(np.uint64) - np.uint64(low % 2**64)).view(np.int64)
    is_there = np.zeros(high - low + 1, dtype=bool)
    is_there[offset] = True
    number = (np.cumsum(is_there) - 1).astype(np.uint32)
    found_offsets = np.flatnonzero(is_there).astype(np.uint64)
    found = (found_offsets + np.uint64(low % 2**64)).astype(values.dtype)
    return number[offset], found


def _dense_by_hash(
    values: NDArray[np.integer[Any]],
) -> tuple[NDArray[np.uint32], NDArray[np.integer[Any]]]:
    frame = pl.DataFrame({"value": values})
    found = frame.unique(maintain_order=True).with_row_index("code")
    codes = frame.join(found, on="value", how="left", maintain_order="left")["code"]
    return codes.to_numpy().astype(np.uint32), found["value"].to_numpy()


def look_up(table: NDArray[Any], values: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """`table[values]`, without index arrays of 64 bits."""
    if not is_large(len(values)):
        return np.asarray(table[values])
    found = np.empty(len(values), table.dtype)
    _on_threads(page_arrays.look_up, len(values), [as_unsigned(values), np.int64(0), table, found])
    return found


def stable_order(numbers: NDArray[np.integer[Any]], n_distinct: int) -> Integers:
    """Sort small non-negative integers; NumPy does so in linear time for 16 bits at a time."""
    if n_distinct > 2**32:
        return np.argsort(numbers, kind="stable")
    order = np.argsort((numbers & 0xFFFF).astype(np.uint16), kind="stable")
    if n_distinct > 2**16:
        upper = (numbers >> 16).astype(np.uint16)
        order = order[np.argsort(upper[order], kind="stable")]
    return order


def narrowest(n_values: int) -> type[np.unsignedinteger[Any]]:
    """The smallest unsigned integers that can number so many values."""
    sizes: tuple[type[np.unsignedinteger[Any]], ...] = (np.uint8, np.uint16, np.uint32)
    return next((size for size in sizes if n_values <= np.iinfo(size).max + 1), np.uint64)


def as_unsigned(values: NDArray[Any]) -> Numbers:
    """The same bytes as unsigned integers, to be read only.

    What is equal stays equal, and kernels have fewer types to be compiled for.
    """
    unsigned: Numbers = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
    unsigned.flags.writeable = False
    return unsigned


def _on_threads(
    kernel: Callable[..., None], n: int, arguments: list[Any], work: Integers | None = None
) -> None:
    """Run a kernel over 0 to n, in parts of about equal work."""
    pieces = 2 * default_threads() if n > 1 and compiling.get() else 1
    if work is None:
        cuts = [n * piece // pieces for piece in range(1, pieces)]
    else:
        wanted = [int(work[-1]) * piece // pieces for piece in range(1, pieces)]
        cuts = [int(cut) for cut in np.searchsorted(work[:-1], wanted)]
    borders = sorted({0, n, *cuts})
    jobs = [[a, b, *arguments] for a, b in pairwise(borders)]
    if not jobs:
        return
    with np.errstate(over="ignore"):  # for kernels that are run as plain Python
        run_jobs(static_kernel(kernel, jobs[0]), jobs)
