"""Runs of rows, such as the results of pages: where they stand, and which of them are the same.

A run is told by where it starts. This is plain NumPy; `gecasmo.logs.arrays` does the same by
compiled kernels where there is much of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.hashes import Hashes

Integers = NDArray[np.int64]
Bools = NDArray[np.bool_]

_ODD = np.uint64(0x9E3779B97F4A7C15)
_OTHER = np.array([0xBF58476D1CE4E5B9], np.uint64)  # an array: it may overflow without a warning
_HALF = np.uint64(32)
# How many rows are worked on at a time where there are very many. Their places take some 40 bytes
# a row, whatever the memory granted to an ingest, so this has to be little of the least.
ROWS_AT_A_TIME = 1 << 16


def offsets(lengths: NDArray[np.integer[Any]] | Bools) -> Integers:
    """Where each of some pieces begins when they stand one after the other, and the end."""
    starts = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def rows_of_runs(starts: Integers, lengths: Integers) -> Integers:
    """The rows of some runs, one run after the other, by where each starts and how long it is."""
    ends = np.cumsum(lengths)
    shift = np.repeat(starts - (ends - lengths), lengths)
    return shift + np.arange(int(ends[-1]) if len(ends) else 0)


def slices_of_runs(lengths: Integers) -> Iterator[slice]:
    """Cut runs into slices that have not too many rows."""
    ends = np.cumsum(lengths)
    first, n_runs = 0, len(lengths)
    while first < n_runs:
        before = int(ends[first] - lengths[first])
        last = int(np.searchsorted(ends, before + ROWS_AT_A_TIME, side="right"))
        last = max(last, first + 1)
        yield slice(first, last)
        first = last


def hash_runs(
    values: NDArray[Any], starts: Integers, chosen: Integers, salt: np.uint64, hashes: Hashes
) -> None:
    """Add to the hash of each chosen run what its rows have in a column, in order."""
    lengths = starts[chosen + 1] - starts[chosen]
    at = offsets(lengths)
    rows = rows_of_runs(starts[chosen], lengths)
    place = np.arange(at[-1]) - np.repeat(at[:-1], lengths) + 1
    x = values[rows].astype(np.uint64) + (place.astype(np.uint64) * _OTHER + salt)
    x *= _ODD
    x = (x ^ (x >> _HALF)) * _OTHER
    total = np.zeros(len(x) + 1, np.uint64)
    np.cumsum(x ^ (x >> _HALF), out=total[1:])
    hashes += total[at[1:]] - total[at[:-1]]


def runs_differ(values: NDArray[Any], starts: Integers, chosen: Integers, likes: Integers) -> Bools:
    """Whether each chosen run differs in a column from the run it is said to be like."""
    lengths = starts[chosen + 1] - starts[chosen]
    differs: Bools = lengths != starts[likes + 1] - starts[likes]
    same = np.flatnonzero(~differs)
    here = rows_of_runs(starts[chosen[same]], lengths[same])
    there = rows_of_runs(starts[likes[same]], lengths[same])
    total = offsets(values[here] != values[there])
    at = offsets(lengths[same])
    differs[same] = total[at[1:]] > total[at[:-1]]
    return differs
