"""Kernels of a Gibbs sampler for the rows of a table: Beta draws, and how likely counts are.

Rows have priors `base`, `[heads or tails, row]`, moved by two numbers: odds of means are multiplied
by `odds`, strengths by `scale`. Each row has random numbers of its own, hashes of a key and of its
number (SplitMix64), so that draws are the same on any number of threads. `is_given` may be empty.

Rows are drawn by the block, in loops without branches, which compilers turn into vector
instructions; only the few whose first draw is in doubt are looked at one by one.
"""

from __future__ import annotations

import math

import numpy as np

from gecasmo.kernels.static.row_steps import CHUNK
from gecasmo.kernels.static.vector_math import exp_of, log_of

# mypy: ignore-errors

BLOCK = 256  # so few that all arrays of a block stay near the processor; chunks are whole blocks
UNIT = 1.1102230246251565e-16  # 2 to the power of -53
FLOOR = 0.02  # no side of a prior is worth less
LEAST = 1e-300  # no weight is smaller
# No odds are farther from 1, in logarithms.
MOST_APART = 600.0
# Up to so many flips their probability is a product of that many factors, else gamma functions.
MOST_FACTORS = 128
# So many factors are multiplied before they are divided, which none makes too large for a number.
FACTORS = 8
TINY = 1e-100  # products are no smaller for long


def spread_bits(z):
    """Spread an integer over 64 bits (the finaliser of SplitMix64)."""
    y = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    y = (y ^ (y >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return y ^ (y >> np.uint64(31))


def next_random(z):
    """The state of the stream after one more number, and that number, from 0 to below 1."""
    z += np.uint64(0x9E3779B97F4A7C15)
    return z, float(spread_bits(z) >> np.uint64(11)) * UNIT


def normal(z):
    """A normal number, by Marsaglia's polar method, and the state of the stream."""
    while True:
        z, u = next_random(z)
        z, v = next_random(z)
        x = 2.0 * u - 1.0
        y = 2.0 * v - 1.0
        square = x * x + y * y
        if 0.0 < square < 1.0:
            return x * math.sqrt(-2.0 * math.log(square) / square), z


def gamma_of(d, x, u, z):
    """A Gamma draw of shape d + 1/3, at least 1, from a first normal and a first uniform number;
    others are from the stream z (Marsaglia and Tsang 2000)."""
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        v = 1.0 + c * x
        if v > 0.0:
            v = v * v * v
            if math.log(max(u, UNIT)) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
                return d * v
        x, z = normal(z)
        z, u = next_random(z)


def uniforms(n, streams, number, out, bits):
    """The random number of that number of every stream, above 0 and up to 1."""
    step = number * np.uint64(0x9E3779B97F4A7C15)
    for k in range(n):
        bits[k] = (spread_bits(streams[k] + step) >> np.uint64(12)) | np.uint64(0x3FF0000000000000)
    ones = bits.view(np.float64)
    for k in range(n):
        out[k] = 2.0 - ones[k]


def normals(n, streams, x, y, u, logs, bits, scratch):
    """Two normal numbers of every stream: a random length in a random direction, which is one of
    an eighth of a circle to both sides of an axis, and one of four axes."""
    uniforms(n, streams, np.uint64(1), u, bits)
    log_of(n, u, logs, scratch)
    step = np.uint64(2) * np.uint64(0x9E3779B97F4A7C15)
    for k in range(n):
        bits[k] = spread_bits(streams[k] + step)
        scratch[0, k] = (bits[k] >> np.uint64(12)) | np.uint64(0x3FF0000000000000)
    ones = scratch[0].view(np.float64)
    for k in range(n):
        r = (ones[k] - 1.5) * 1.5707963267948966
        w = r * r
        s = -1.0 / 1307674368000.0
        s = 1.0 / 6227020800.0 + w * s
        s = -1.0 / 39916800.0 + w * s
        s = 1.0 / 362880.0 + w * s
        s = -1.0 / 5040.0 + w * s
        s = 1.0 / 120.0 + w * s
        s = r + r * w * (-1.0 / 6.0 + w * s)
        c = -1.0 / 87178291200.0
        c = 1.0 / 479001600.0 + w * c
        c = -1.0 / 3628800.0 + w * c
        c = 1.0 / 40320.0 + w * c
        c = -1.0 / 720.0 + w * c
        c = 1.0 + w * (-0.5 + w * (1.0 / 24.0 + w * c))
        length = math.sqrt(-2.0 * logs[k])
        length = -length if bits[k] & np.uint64(1) else length
        is_swapped = bits[k] & np.uint64(2)
        x[k] = length * (s if is_swapped else c)
        y[k] = length * (c if is_swapped else s)


def gammas(n, shapes, x, u, streams, number, out, doubts):
    """Gamma draws, of shape + 1 where shapes are below 1, from a normal and a uniform number each;
    where these do not do, from streams of that number."""
    n_doubts = 0
    for k in range(n):
        d = shapes[k] - 1.0 / 3.0
        d = d + 1.0 if shapes[k] < 1.0 else d
        square = x[k] * x[k]
        v = 1.0 + x[k] / math.sqrt(9.0 * d)
        out[k] = d * (v * v * v)
        doubts[k] = 0 if v > 0.0 and u[k] < 1.0 - 0.0331 * square * square else 1
        n_doubts += doubts[k]
    if n_doubts > 0:
        step = number * np.uint64(0x9E3779B97F4A7C15)
        for k in range(n):
            if doubts[k] == 1:
                d = shapes[k] - 1.0 / 3.0
                d = d + 1.0 if shapes[k] < 1.0 else d
                out[k] = gamma_of(d, x[k], u[k], spread_bits(streams[k] + step))


def draw_rows(first, last, key, base, odds, scale, counts, is_given, weights, moments):
    """Draw rows from their Beta posteriors: `weights[side, row]`; also mean and second moment of
    these posteriors. `counts` and `weights` have tails first."""
    golden = np.uint64(0x9E3779B97F4A7C15)
    streams = np.empty(BLOCK, np.uint64)
    bits = np.empty(BLOCK, np.uint64)
    scratch = np.empty((2, BLOCK), np.int64)
    doubts = np.empty(BLOCK, np.int64)
    shapes = np.empty((2, BLOCK))  # tails first, as in all of these
    x = np.empty((2, BLOCK))
    drawn = np.empty((2, BLOCK))
    u = np.empty(BLOCK)
    logs = np.empty(BLOCK)
    apart = np.empty(BLOCK)
    end = min(last * CHUNK, base.shape[1])
    for begin in range(first * CHUNK, end, BLOCK):
        n = min(BLOCK, end - begin)
        n_below = 0
        for k in range(n):
            h = base[0, begin + k]
            t = base[1, begin + k]
            share = scale * (h + t) / (h * odds + t)
            shapes[1, k] = max(share * (h * odds), FLOOR) + counts[1, begin + k]
            shapes[0, k] = max(share * t, FLOOR) + counts[0, begin + k]
            n_below += (shapes[0, k] < 1.0) | (shapes[1, k] < 1.0)
            streams[k] = spread_bits(key ^ (np.uint64(begin + k) * golden))
            apart[k] = 0.0
        normals(n, streams, x[0], x[1], u, logs, bits, scratch)
        for side in range(2):
            uniforms(n, streams, np.uint64(3 + side), u, bits)
            gammas(n, shapes[side], x[side], u, streams, np.uint64(5 + side), drawn[side], doubts)
            if n_below > 0:
                # Shapes below 1 are those above to a random power, which may be very small.
                uniforms(n, streams, np.uint64(7 + side), u, bits)
                log_of(n, u, logs, scratch)
                for k in range(n):
                    more = logs[k] / shapes[side, k] if shapes[side, k] < 1.0 else 0.0
                    apart[k] = more - apart[k]
        if n_below > 0:
            for k in range(n):
                apart[k] = min(max(apart[k], -MOST_APART), MOST_APART)
            exp_of(n, apart, logs, scratch)
            for k in range(n):
                drawn[1, k] *= logs[k]
        for k in range(n):
            if len(is_given) == 0 or not is_given[begin + k]:
                total = drawn[0, k] + drawn[1, k]
                weights[0, begin + k] = max(drawn[0, k] / total, LEAST)
                weights[1, begin + k] = max(drawn[1, k] / total, LEAST)
                both = shapes[0, k] + shapes[1, k]
                mean = shapes[1, k] / both
                moments[0, begin + k] = mean
                moments[1, begin + k] = mean * (shapes[1, k] + 1.0) / (both + 1.0)


def log_rising(x, n):
    """The logarithm of x (x + 1) ... of n factors."""
    return math.lgamma(x + n) - math.lgamma(x) if n > 0.0 else 0.0


def log_chance(a, b, heads, tails):
    """The logarithm of the probability of counts if a row is from Beta(a, b)."""
    return log_rising(a, heads) + log_rising(b, tails) - log_rising(a + b, heads + tails)


def weigh_counts(first, last, base, odds, scale, counts, is_given, sums):
    """The logarithm of the probability of whole counts of rows, which are integrated out, for each
    of four pairs of numbers that move the prior: `sums[pair, chunk]`."""
    odds0, odds1, odds2, odds3 = odds[0], odds[1], odds[2], odds[3]
    scale0, scale1, scale2, scale3 = scale[0], scale[1], scale[2], scale[3]
    for chunk in range(first, last):
        total0 = total1 = total2 = total3 = 0.0
        p0 = p1 = p2 = p3 = 1.0
        for k in range(chunk * CHUNK, min((chunk + 1) * CHUNK, base.shape[1])):
            heads = counts[1, k]
            tails = counts[0, k]
            if heads + tails == 0.0 or (len(is_given) > 0 and is_given[k]):
                continue
            h = base[0, k]
            t = base[1, k]
            share0 = scale0 * (h + t) / (h * odds0 + t)
            share1 = scale1 * (h + t) / (h * odds1 + t)
            share2 = scale2 * (h + t) / (h * odds2 + t)
            share3 = scale3 * (h + t) / (h * odds3 + t)
            a0 = max(share0 * (h * odds0), FLOOR)
            a1 = max(share1 * (h * odds1), FLOOR)
            a2 = max(share2 * (h * odds2), FLOOR)
            a3 = max(share3 * (h * odds3), FLOOR)
            b0 = max(share0 * t, FLOOR)
            b1 = max(share1 * t, FLOOR)
            b2 = max(share2 * t, FLOOR)
            b3 = max(share3 * t, FLOOR)
            if heads + tails > MOST_FACTORS:
                total0 += log_chance(a0, b0, heads, tails)
                total1 += log_chance(a1, b1, heads, tails)
                total2 += log_chance(a2, b2, heads, tails)
                total3 += log_chance(a3, b3, heads, tails)
                continue
            s0 = a0 + b0
            s1 = a1 + b1
            s2 = a2 + b2
            s3 = a3 + b3
            x0 = x1 = x2 = x3 = 1.0
            y0 = y1 = y2 = y3 = 1.0
            n_factors = 0
            for side in range(2):
                for _ in range(int(heads if side == 0 else tails)):
                    x0 *= a0
                    x1 *= a1
                    x2 *= a2
                    x3 *= a3
                    y0 *= s0
                    y1 *= s1
                    y2 *= s2
                    y3 *= s3
                    a0 += 1.0
                    a1 += 1.0
                    a2 += 1.0
                    a3 += 1.0
                    s0 += 1.0
                    s1 += 1.0
                    s2 += 1.0
                    s3 += 1.0
                    n_factors += 1
                    if n_factors == FACTORS:
                        p0 *= x0 / y0
                        p1 *= x1 / y1
                        p2 *= x2 / y2
                        p3 *= x3 / y3
                        x0 = x1 = x2 = x3 = 1.0
                        y0 = y1 = y2 = y3 = 1.0
                        n_factors = 0
                        if min(min(p0, p1), min(p2, p3)) < TINY:
                            total0 += math.log(p0)
                            total1 += math.log(p1)
                            total2 += math.log(p2)
                            total3 += math.log(p3)
                            p0 = p1 = p2 = p3 = 1.0
                a0, a1, a2, a3 = b0, b1, b2, b3
            p0 *= x0 / y0
            p1 *= x1 / y1
            p2 *= x2 / y2
            p3 *= x3 / y3
            if min(min(p0, p1), min(p2, p3)) < TINY:
                total0 += math.log(p0)
                total1 += math.log(p1)
                total2 += math.log(p2)
                total3 += math.log(p3)
                p0 = p1 = p2 = p3 = 1.0
        sums[0, chunk] = total0 + math.log(p0)
        sums[1, chunk] = total1 + math.log(p1)
        sums[2, chunk] = total2 + math.log(p2)
        sums[3, chunk] = total3 + math.log(p3)
