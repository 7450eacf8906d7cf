"""Sweeps over the rows of a large table, on threads, with the same sums on any number of them.

Tables below `FEWEST_ROWS` are better off with plain NumPy, which needs no compiling: callers ask
`is_large` first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.kernels.static import static_kernel
from gecasmo.kernels.static.row_steps import (
    CHUNK,
    compare_rows,
    fit_rows,
    follow_rows,
    logits_of_rows,
    measure_rows,
    move_rows,
    penalise_rows,
)
from gecasmo.kernels.threads import default_threads, run_jobs

Floats = NDArray[np.float64]
Fixed = NDArray[np.bool_] | None
Pseudo = Floats | Sequence[float]  # heads and tails, of all rows or of each

FEWEST_ROWS = 50_000
_NONE = np.zeros(0, np.bool_)


def is_large(n_rows: int) -> bool:
    """Whether a table is worth a compiled sweep."""
    return n_rows >= FEWEST_ROWS


def fitted(heads: Floats, tails: Floats, pseudo: Pseudo, is_fixed: Fixed, before: Floats) -> Floats:
    """The M-step; rows that are fixed, or about which nothing is known, keep what they had."""
    after = np.empty(len(before))
    given = [heads, tails, *_counts(pseudo), _flags(is_fixed), before, after]
    sweep(fit_rows, len(before), [np.ascontiguousarray(one) for one in given])
    return after


def penalty(probability: Floats, pseudo: Pseudo, is_fixed: Fixed) -> float:
    """The logarithm of the prior density of all rows, up to a constant."""
    sums = np.zeros(n_chunks_of(len(probability)))
    sweep(
        penalise_rows,
        len(probability),
        [probability, *_counts(pseudo), _flags(is_fixed), sums],
    )
    return float(sums.sum())


def logits(probability: Floats) -> Floats:
    """Infinite where a probability is 0 or 1."""
    found = np.empty(len(probability))
    sweep(logits_of_rows, len(found), [probability, found])
    return found


def moves(p0: Floats, p1: Floats, p2: Floats) -> tuple[Floats, Floats, Floats]:
    """Logits at the first of three points, and their first and second differences."""
    found = (np.empty(len(p0)), np.empty(len(p0)), np.empty(len(p0)))
    sweep(move_rows, len(p0), [p0, p1, p2, *found])
    return found


def lengths(flips: Floats, probability: Floats, once: Floats, bent: Floats) -> tuple[float, float]:
    """The squared lengths of first and second differences in the Fisher norm."""
    sums = np.zeros((2, n_chunks_of(len(flips))))
    sweep(measure_rows, len(flips), [flips, probability, once, bent, sums])
    step, bend = sums.sum(axis=1)
    return float(step), float(bend)


def followed(
    move: tuple[Floats, Floats, Floats], length: float, end: Floats, is_fixed: Fixed
) -> Floats:
    """The probabilities that moves lead to when they are followed further."""
    after = np.empty(len(end))
    sweep(follow_rows, len(end), [*move, float(length), end, _flags(is_fixed), after])
    return after


def squared_distance(was: Floats, now: Floats, flips: Floats) -> float:
    """How far probabilities moved, in the Fisher norm."""
    sums = np.zeros(n_chunks_of(len(was)))
    sweep(compare_rows, len(was), [was, now, flips, sums])
    return float(sums.sum())


def sweep(kernel: Callable[..., None], n_rows: int, arguments: Sequence[Any]) -> None:
    """Run a kernel over all chunks of rows, on threads if there are many."""
    n_chunks = n_chunks_of(n_rows)
    threads = default_threads()
    pieces = 1 if threads == 1 else max(1, min(n_chunks, 2 * threads))
    borders = [n_chunks * piece // pieces for piece in range(pieces + 1)]
    jobs = [[a, b, *arguments] for a, b in pairwise(borders)]
    run_jobs(static_kernel(kernel, jobs[0]), jobs)


def n_chunks_of(n_rows: int) -> int:
    """How many chunks so many rows are."""
    return -(-n_rows // CHUNK)


def _flags(is_fixed: Fixed) -> NDArray[np.bool_]:
    return _NONE if is_fixed is None else is_fixed


def _counts(pseudo: Pseudo) -> list[Floats]:
    return [np.atleast_1d(np.asarray(side, np.float64)) for side in pseudo]
