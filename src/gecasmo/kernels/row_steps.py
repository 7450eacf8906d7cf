"""Kernels for what happens to the rows of a table between two E-steps.

Each goes over chunks of rows, `first` to `last`, and adds what it sums up into `sums`, chunk by
chunk. Chunks have `CHUNK` rows whatever the number of threads, so that sums are the same bits.
Arrays `a` and `b` are pseudo-counts, of every row or one for all; `is_fixed` may be empty.
"""

from __future__ import annotations

import numpy as np

from gecasmo.kernels.vector_math import exp_of, log_of

# mypy: ignore-errors

CHUNK = 2048


def fit_rows(first, last, heads, tails, a, b, is_fixed, before, after):
    """The M-step. Rows that nothing is known about keep what they had."""
    begin = first * CHUNK
    end = min(last * CHUNK, len(after))
    if len(a) > 1:
        for row in range(begin, end):
            total = heads[row] + tails[row] + (a[row] + b[row])
            p = (heads[row] + a[row]) / max(total, 1e-300)
            after[row] = p if total > 0.0 else before[row]
    else:
        for row in range(begin, end):
            total = heads[row] + tails[row] + (a[0] + b[0])
            p = (heads[row] + a[0]) / max(total, 1e-300)
            after[row] = p if total > 0.0 else before[row]
    if len(is_fixed) > 0:
        for row in range(begin, end):
            after[row] = before[row] if is_fixed[row] else after[row]


def penalise_rows(first, last, probability, a, b, is_fixed, sums):
    """The logarithm of the prior density, up to a constant: `sums[chunk]`."""
    each = len(a) > 1
    n_fixed = len(is_fixed)
    sides = np.empty((2, CHUNK))
    logs = np.empty((2, CHUNK))
    scratch = np.empty((2, CHUNK), np.int64)
    for chunk in range(first, last):
        start = chunk * CHUNK
        n = min(CHUNK, len(probability) - start)
        for k in range(n):
            sides[0, k] = probability[start + k]
            sides[1, k] = 1.0 - probability[start + k]
        log_of(n, sides[0], logs[0], scratch)
        log_of(n, sides[1], logs[1], scratch)
        total = 0.0
        for k in range(n):
            if n_fixed > 0 and is_fixed[start + k]:
                continue
            j = start + k if each else 0
            if a[j] > 0.0:
                total += a[j] * logs[0, k]
            if b[j] > 0.0:
                total += b[j] * logs[1, k]
        sums[chunk] = total


def logits_of_rows(first, last, probability, logits):
    """Infinite where a probability is 0 or 1."""
    ratio = np.empty(CHUNK)
    scratch = np.empty((2, CHUNK), np.int64)
    for chunk in range(first, last):
        start = chunk * CHUNK
        n = min(CHUNK, len(probability) - start)
        for k in range(n):
            p = probability[start + k]
            q = 1.0 - p
            ratio[k] = p / q if q > 0.0 else np.inf
        log_of(n, ratio, logits[start : start + n], scratch)


def move_rows(first, last, p0, p1, p2, origin, once, bent):
    """Logits at the first of three points, and their first and second differences.

    Rows at exactly 0 or 1 begin at infinity and do not move.
    """
    ratio = np.empty(CHUNK)
    logits = np.empty((3, CHUNK))
    scratch = np.empty((2, CHUNK), np.int64)
    for chunk in range(first, last):
        start = chunk * CHUNK
        n = min(CHUNK, len(p0) - start)
        for point in range(3):
            own = p0 if point == 0 else (p1 if point == 1 else p2)
            for k in range(n):
                p = own[start + k]
                q = 1.0 - p
                ratio[k] = p / q if q > 0.0 else np.inf
            log_of(n, ratio, logits[point], scratch)
        for k in range(n):
            x0 = logits[0, k]
            x1 = logits[1, k]
            x2 = logits[2, k]
            is_usable = abs(x0) < np.inf and abs(x1) < np.inf and abs(x2) < np.inf
            origin[start + k] = x0 if is_usable else np.inf
            once[start + k] = x1 - x0 if is_usable else 0.0
            bent[start + k] = (x2 - x1) - (x1 - x0) if is_usable else 0.0


def measure_rows(first, last, flips, probability, once, bent, sums):
    """The squared lengths of differences in the Fisher norm: `sums[0 or 1, chunk]`."""
    for chunk in range(first, last):
        step = 0.0
        bend = 0.0
        for row in range(chunk * CHUNK, min((chunk + 1) * CHUNK, len(flips))):
            p = probability[row]
            weight = flips[row] * p * (1.0 - p)
            step += weight * once[row] * once[row]
            bend += weight * bent[row] * bent[row]
        sums[0, chunk] = step
        sums[1, chunk] = bend


def follow_rows(first, last, origin, once, bent, length, end, is_fixed, after):
    """Where moves lead when they are gone on with; rows that do not move are as at the end."""
    logits = np.empty(CHUNK)
    below = np.empty(CHUNK)
    powers = np.empty(CHUNK)
    scratch = np.empty((2, CHUNK), np.int64)
    for chunk in range(first, last):
        start = chunk * CHUNK
        n = min(CHUNK, len(after) - start)
        for k in range(n):
            row = start + k
            x = origin[row] + 2.0 * length * once[row] + length * length * bent[row]
            logits[k] = x
            below[k] = -abs(x)
        exp_of(n, below, powers, scratch)
        for k in range(n):
            p = (1.0 if logits[k] > 0.0 else powers[k]) / (1.0 + powers[k])
            after[start + k] = p if abs(logits[k]) < np.inf else end[start + k]
        if len(is_fixed) > 0:
            for row in range(start, start + n):
                after[row] = end[row] if is_fixed[row] else after[row]


def compare_rows(first, last, was, now, flips, sums):
    """The squared distance of probabilities in the Fisher norm: `sums[chunk]`."""
    for chunk in range(first, last):
        total = 0.0
        for row in range(chunk * CHUNK, min((chunk + 1) * CHUNK, len(was))):
            spread = max(was[row] * (1.0 - was[row]), 1e-12)
            total += flips[row] * (now[row] - was[row]) ** 2 / spread
        sums[chunk] = total
