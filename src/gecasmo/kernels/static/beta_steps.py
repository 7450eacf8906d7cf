"""Kernels of a Gibbs sampler for the rows of a table: Beta draws, and how likely counts are.

Rows have priors `base`, `[heads or tails, row]`, moved by two numbers: odds of means are multiplied
by `odds`, strengths by `scale`. Each row has random numbers of its own, hashes of a key and of its
number (SplitMix64), so that draws are the same on any number of threads. `is_given` may be empty.
"""

from __future__ import annotations

import math

import numpy as np

from gecasmo.kernels.static.row_steps import CHUNK

# mypy: ignore-errors

UNIT = 1.1102230246251565e-16  # 2 to the power of -53
FLOOR = 0.02  # no side of a prior is worth less
LEAST = 1e-300  # no weight is smaller
# Up to so many flips their probability is a product of that many factors, else gamma functions.
MOST_FACTORS = 24.0


def spread_bits(z):
    """Spread an integer over 64 bits (the finaliser of SplitMix64)."""
    y = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    y = (y ^ (y >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return y ^ (y >> np.uint64(31))


def next_random(z):
    """The state of the stream after one more number, and that number, from 0 to below 1."""
    z += np.uint64(0x9E3779B97F4A7C15)
    return z, float(spread_bits(z) >> np.uint64(11)) * UNIT


def gamma_draw(shape, x, z):
    """A Gamma draw from a first normal number (Marsaglia and Tsang 2000); the logarithm of a factor
    that shapes below 1 have, which may be too small for a number; and the state of the stream."""
    d = shape - 1.0 / 3.0
    if shape < 1.0:
        d += 1.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        v = 1.0 + c * x
        if v > 0.0:
            v = v * v * v
            z, u = next_random(z)
            if u < 1.0 - 0.0331 * x * x * x * x:
                break
            if math.log(max(u, UNIT)) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
                break
        x, _, z = two_normals(z)
    if shape >= 1.0:
        return d * v, 0.0, z
    z, u = next_random(z)
    return d * v, math.log(1.0 - u) / shape, z


def two_normals(z):
    """Two normal numbers, by Marsaglia's polar method, and the state of the stream."""
    while True:
        z, u = next_random(z)
        z, v = next_random(z)
        x = 2.0 * u - 1.0
        y = 2.0 * v - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            factor = math.sqrt(-2.0 * math.log(square) / square)
            return x * factor, y * factor, z


def moved_heads(heads, tails, odds, scale):
    """Heads of a prior that was moved."""
    return max(scale * (heads + tails) * heads * odds / (heads * odds + tails), FLOOR)


def moved_tails(heads, tails, odds, scale):
    """Tails of a prior that was moved."""
    return max(scale * (heads + tails) * tails / (heads * odds + tails), FLOOR)


def draw_rows(first, last, key, base, odds, scale, counts, is_given, weights, moments):
    """Draw rows from their Beta posteriors: `weights[side, row]`; also mean and second moment of
    these posteriors. `counts` and `weights` have tails first."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    for k in range(first * CHUNK, min(last * CHUNK, base.shape[1])):
        if len(is_given) > 0 and is_given[k]:
            continue
        a = moved_heads(base[0, k], base[1, k], odds, scale) + counts[1, k]
        b = moved_tails(base[0, k], base[1, k], odds, scale) + counts[0, k]
        both = a + b
        moments[0, k] = a / both
        moments[1, k] = a * (a + 1.0) / (both * (both + 1.0))
        x, y, z = two_normals(spread_bits(key ^ (np.uint64(k) * golden)))
        heads, log_h, z = gamma_draw(a, x, z)
        tails, log_t, z = gamma_draw(b, y, z)
        if log_h != log_t:
            most = max(log_h, log_t)
            heads *= math.exp(log_h - most)
            tails *= math.exp(log_t - most)
        weights[1, k] = max(heads / (heads + tails), LEAST)
        weights[0, k] = max(tails / (heads + tails), LEAST)


def weigh_counts(first, last, base, odds, scale, counts, is_given, sums):
    """The logarithm of the probability of whole counts of rows, which are integrated out:
    `sums[chunk]`."""
    for chunk in range(first, last):
        total = 0.0
        for k in range(chunk * CHUNK, min((chunk + 1) * CHUNK, base.shape[1])):
            heads = counts[1, k]
            tails = counts[0, k]
            if heads + tails == 0.0 or (len(is_given) > 0 and is_given[k]):
                continue
            a = moved_heads(base[0, k], base[1, k], odds, scale)
            b = moved_tails(base[0, k], base[1, k], odds, scale)
            if heads + tails <= MOST_FACTORS:
                p = 1.0
                for j in range(int(heads)):
                    p *= (a + j) / (a + b + j)
                for j in range(int(tails)):
                    p *= (b + j) / (a + b + heads + j)
                total += math.log(p)
            else:
                total += math.lgamma(a + heads) - math.lgamma(a)
                total += math.lgamma(b + tails) - math.lgamma(b)
                total += math.lgamma(a + b) - math.lgamma(a + b + heads + tails)
        sums[chunk] = total
