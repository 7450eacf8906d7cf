"""Kernels for what happens to the rows of a table between two E-steps.

Each goes over chunks of rows, `first` to `last`, and adds what it sums up into `sums`, chunk by
chunk. Chunks have `CHUNK` rows whatever the number of threads, so that sums are the same bits.
Arrays `a` and `b` are pseudo-counts, of every row or one for all; `is_fixed` may be empty.
"""

from __future__ import annotations

import numpy as np

from gecasmo.kernels.static.vector_math import exp_of, log_of, sum_of

# mypy: ignore-errors

CHUNK = 2048
NEARLY_ONE = 1.0 - 2.0**-53  # the largest number below 1


def fit_rows(first, last, heads, tails, a, b, is_fixed, before, after):
    """The M-step. Rows that nothing is known about keep what they had, and no row is certain that
    has shown both sides: 1 tail beside 1e17 heads is lost when these are added up."""
    rows = slice(first * CHUNK, min(last * CHUNK, len(after)))
    h = heads[rows]
    t = tails[rows]
    old = before[rows]
    new = after[rows]
    if len(a) > 1:
        more_h = a[rows]
        more_t = b[rows]
        for k in range(len(new)):
            total = h[k] + t[k] + (more_h[k] + more_t[k])
            p = (h[k] + more_h[k]) / max(total, 1e-300)
            p = min(p, NEARLY_ONE) if t[k] + more_t[k] > 0.0 else p
            new[k] = p if total > 0.0 else old[k]
    else:
        for k in range(len(new)):
            total = h[k] + t[k] + (a[0] + b[0])
            p = (h[k] + a[0]) / max(total, 1e-300)
            p = min(p, NEARLY_ONE) if t[k] + b[0] > 0.0 else p
            new[k] = p if total > 0.0 else old[k]
    if len(is_fixed) > 0:
        fixed = is_fixed[rows]
        for k in range(len(new)):
            new[k] = old[k] if fixed[k] else new[k]


def penalise_rows(first, last, probability, a, b, is_fixed, sums):
    """The logarithm of the prior density, up to a constant: `sums[chunk]`.

    Nothing added costs nothing, even where a logarithm is infinite.
    """
    more_h = np.full(CHUNK, a[0])
    more_t = np.full(CHUNK, b[0])
    other = np.empty(CHUNK)
    logs = np.empty(CHUNK)
    terms = np.empty(CHUNK)
    scratch = np.empty((2, CHUNK), np.int64)
    for chunk in range(first, last):
        rows = slice(chunk * CHUNK, min((chunk + 1) * CHUNK, len(probability)))
        p = probability[rows]
        n = len(p)
        if len(a) > 1:
            more_h = a[rows]
            more_t = b[rows]
        log_of(n, p, logs, scratch)
        for k in range(n):
            terms[k] = more_h[k] * logs[k] if more_h[k] > 0.0 else 0.0
            other[k] = 1.0 - p[k]
        log_of(n, other, logs, scratch)
        for k in range(n):
            terms[k] += more_t[k] * logs[k] if more_t[k] > 0.0 else 0.0
        if len(is_fixed) > 0:
            fixed = is_fixed[rows]
            for k in range(n):
                terms[k] = 0.0 if fixed[k] else terms[k]
        sums[chunk] = sum_of(n, terms)


def logits_of_rows(first, last, probability, logits):
    """Infinite where a probability is 0 or 1."""
    ratio = np.empty(CHUNK)
    scratch = np.empty((2, CHUNK), np.int64)
    for chunk in range(first, last):
        rows = slice(chunk * CHUNK, min((chunk + 1) * CHUNK, len(probability)))
        p = probability[rows]
        n = len(p)
        for k in range(n):
            ratio[k] = p[k] / (1.0 - p[k]) if p[k] < 1.0 else np.inf
        log_of(n, ratio, logits[rows], scratch)


def move_rows(first, last, p0, p1, p2, origin, once, bent):
    """Logits at the first of three points, and their first and second differences.

    Rows at exactly 0 or 1 begin at infinity and do not move.
    """
    ratio = np.empty(CHUNK)
    x = np.empty((3, CHUNK))
    scratch = np.empty((2, CHUNK), np.int64)
    for chunk in range(first, last):
        rows = slice(chunk * CHUNK, min((chunk + 1) * CHUNK, len(p0)))
        start = origin[rows]
        step = once[rows]
        bend = bent[rows]
        n = len(start)
        for point in range(3):
            p = p0[rows] if point == 0 else (p1[rows] if point == 1 else p2[rows])
            for k in range(n):
                ratio[k] = p[k] / (1.0 - p[k]) if p[k] < 1.0 else np.inf
            log_of(n, ratio, x[point], scratch)
        for k in range(n):
            total = abs(x[0, k]) + abs(x[1, k]) + abs(x[2, k])
            start[k] = x[0, k] if total < np.inf else np.inf
            step[k] = x[1, k] - x[0, k] if total < np.inf else 0.0
            bend[k] = (x[2, k] - x[1, k]) - (x[1, k] - x[0, k]) if total < np.inf else 0.0


def measure_rows(first, last, flips, probability, once, bent, sums):
    """The squared lengths of differences in the Fisher norm: `sums[0 or 1, chunk]`."""
    steps = np.empty(CHUNK)
    bends = np.empty(CHUNK)
    for chunk in range(first, last):
        rows = slice(chunk * CHUNK, min((chunk + 1) * CHUNK, len(flips)))
        n_flips = flips[rows]
        p = probability[rows]
        x = once[rows]
        y = bent[rows]
        n = len(p)
        for k in range(n):
            weight = n_flips[k] * p[k] * (1.0 - p[k])
            steps[k] = weight * x[k] * x[k]
            bends[k] = weight * y[k] * y[k]
        sums[0, chunk] = sum_of(n, steps)
        sums[1, chunk] = sum_of(n, bends)


def follow_rows(first, last, origin, once, bent, length, end, is_fixed, after):
    """Where moves lead when they are followed further; rows that do not move are as at the end."""
    logits = np.empty(CHUNK)
    below = np.empty(CHUNK)
    powers = np.empty(CHUNK)
    scratch = np.empty((2, CHUNK), np.int64)
    for chunk in range(first, last):
        rows = slice(chunk * CHUNK, min((chunk + 1) * CHUNK, len(after)))
        start = origin[rows]
        step = once[rows]
        bend = bent[rows]
        old = end[rows]
        new = after[rows]
        n = len(new)
        for k in range(n):
            logits[k] = start[k] + 2.0 * length * step[k] + length * length * bend[k]
            below[k] = -abs(logits[k])
        exp_of(n, below, powers, scratch)
        for k in range(n):
            p = (1.0 if logits[k] > 0.0 else powers[k]) / (1.0 + powers[k])
            new[k] = p if abs(logits[k]) < np.inf else old[k]
        if len(is_fixed) > 0:
            fixed = is_fixed[rows]
            for k in range(n):
                new[k] = old[k] if fixed[k] else new[k]


def compare_rows(first, last, was, now, flips, sums):
    """The squared distance of probabilities in the Fisher norm: `sums[chunk]`."""
    terms = np.empty(CHUNK)
    for chunk in range(first, last):
        rows = slice(chunk * CHUNK, min((chunk + 1) * CHUNK, len(was)))
        p = was[rows]
        q = now[rows]
        n_flips = flips[rows]
        n = len(p)
        for k in range(n):
            spread = max(p[k] * (1.0 - p[k]), 1e-12)
            terms[k] = n_flips[k] * (q[k] - p[k]) ** 2 / spread
        sums[chunk] = sum_of(n, terms)
