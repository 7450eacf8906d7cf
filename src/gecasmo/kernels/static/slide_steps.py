"""Kernel of moves along ridges: all rows of a table slide together, and what that is worth.

To slide by x multiplies a probability by exp(x), and less so the nearer it is to 1: its 32nd power
has 32 x added to its logit. So none leaves (0, 1), to slide back by x leads back, and to slide by
x and then by y is to slide by x + y. No logarithm is needed: a 32nd root is five square roots.
"""

from __future__ import annotations

import math

from gecasmo.kernels.static.beta_steps import FLOOR, LEAST
from gecasmo.kernels.static.row_steps import CHUNK

# mypy: ignore-errors


def ladder(p):
    """(1 - p**32) / (1 - p), without a difference."""
    p2 = p * p
    p4 = p2 * p2
    p8 = p4 * p4
    return (1.0 + p) * (1.0 + p2) * (1.0 + p4) * (1.0 + p8) * (1.0 + p8 * p8)


def slide(p, q, factor, power):
    """A probability p = 1 - q that has slid, what it leaves of 1, and how much it was held back,
    which is 1 far from 1. `factor` is exp(x), `power` exp(32 x)."""
    p2 = p * p
    p4 = p2 * p2
    p8 = p4 * p4
    p16 = p8 * p8
    left = q * ladder(p)
    held = left + p16 * p16 * power
    root = math.sqrt(math.sqrt(math.sqrt(math.sqrt(math.sqrt(held)))))
    after = p * factor / root
    return after, left / held / ladder(after), held


def rising(x, y):
    """The product of (y + i) / (x + i) for eight i: what is between their gamma functions and those
    of x + 8 and y + 8, for which Stirling's series is exact enough."""
    found = y / x
    for i in range(1, 8):
        found *= (y + i) / (x + i)
    return found


def log_stirling(x, y):
    """log gamma(x + 8) - log gamma(y + 8)."""
    z = x + 8.0
    w = y + 8.0
    u = 1.0 / (z * z)
    v = 1.0 / (w * w)
    tail = (1.0 / 12.0 - u * (1.0 / 360.0 - u * (1.0 / 1260.0 - u / 1680.0))) / z
    tail -= (1.0 / 12.0 - v * (1.0 / 360.0 - v * (1.0 / 1260.0 - v / 1680.0))) / w
    return (z - 0.5) * math.log(z / w) + (z - w) * (math.log(w) - 1.0) + tail


def slide_rows(first, last, side, by, base, before, after, is_given, weights, moved, sums):
    """Slide one side (0 tails, 1 heads) of all rows: `weights` to `moved`, `[side, row]`. `sums`,
    by chunk, has by how much the prior density of rows grows, and the logarithm of how much room
    they have there for how much they had.

    `base` are priors `[heads or tails, row]`; `before` and `after` are the odds and the scale that
    move them (see `beta_steps`).
    """
    factor = math.exp(by)
    power = math.exp(32.0 * by)
    is_same = before[0] == after[0] and before[1] == after[1]
    for chunk in range(first, last):
        total = 0.0
        for k in range(chunk * CHUNK, min((chunk + 1) * CHUNK, base.shape[1])):
            p = weights[side, k]
            q = weights[1 - side, k]
            if len(is_given) > 0 and is_given[k]:
                moved[side, k] = p
                moved[1 - side, k] = q
                continue
            p1, q1, held = slide(p, q, factor, power)
            p1 = max(p1, LEAST)
            q1 = max(q1, LEAST)
            moved[side, k] = p1
            moved[1 - side, k] = q1
            h = base[0, k]
            t = base[1, k]
            share = before[1] * (h + t) / (h * before[0] + t)
            a = max(share * h * before[0], FLOOR)
            b = max(share * t, FLOOR)
            if side == 0:
                a, b = b, a
            if is_same:
                total += a * math.log(p1 / p) + (b - 1.0) * math.log(q1 / q) - math.log(held)
                continue
            share = after[1] * (h + t) / (h * after[0] + t)
            a1 = max(share * h * after[0], FLOOR)
            b1 = max(share * t, FLOOR)
            if side == 0:
                a1, b1 = b1, a1
            # Logarithms of both, as one of their quotient would be less exact where priors move.
            total += a1 * math.log(p1) - a * math.log(p)
            total += (b1 - 1.0) * math.log(q1) - (b - 1.0) * math.log(q)
            products = rising(a1 + b1, a + b) / (rising(a1, a) * rising(b1, b))
            total += math.log(products / held)
            total += log_stirling(a1 + b1, a + b) - log_stirling(a1, a) - log_stirling(b1, b)
        sums[chunk] = total
