"""What the kernels of `row_grid` do, in NumPy: for few rows, which are not worth compiling.

The same steps for all rows at once instead of row by row, and the same numbers up to rounding.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.kernels.static.row_grid import MOST_ATTEMPTS, N_COARSE, NOTHING, WIDEST
from gecasmo.logs.runs import rows_of_runs

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def repeats(starts: Integers, rows: NDArray[Any]) -> tuple[Integers, NDArray[np.bool_]]:
    """How often the row at each place stands on its page, and whether this is the first time."""
    page = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((rows, page))
    is_new = np.ones(len(rows), np.bool_)
    is_new[1:] = (np.diff(page[order]) != 0) | (np.diff(rows[order].astype(np.int64)) != 0)
    number = np.cumsum(is_new) - 1
    times, is_first = np.empty(len(rows), np.int64), np.empty(len(rows), np.bool_)
    times[order] = np.bincount(number)[number] if len(rows) else 0
    is_first[order] = is_new
    return times, is_first


def copied_places(
    starts: Integers, rows: NDArray[Any], pages: Integers, own: NDArray[Any], n_points: int
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """As `copy_places`."""
    many = np.repeat(pages, n_points)
    lengths = np.diff(starts)[many]
    places = rows_of_runs(starts[many], lengths).astype(np.uint32)
    beyond = np.repeat(len(rows) + np.tile(np.arange(n_points), len(pages)), lengths)
    is_own = rows[places] == np.repeat(np.repeat(own, n_points), lengths)
    return places, np.where(is_own, beyond, places).astype(np.uint32)


def grid_of_few(
    places: Any,
    prior: Floats,
    wanted: NDArray[np.bool_],
    into: Any,
    first: int,
) -> None:
    """As `row_grid`: fills `low`, `step`, `values` and `known` of rows of which places say
    something."""
    n_fine = into.values.shape[1]
    chosen = np.argsort(places.rows, kind="stable")
    chosen = chosen[wanted[places.rows[chosen]]]
    says = (places.exact > 0) | (places.heads + places.tails > 0)
    told = np.zeros(len(wanted), np.bool_)  # rows of which some place says something
    told[places.rows[says & (places.weight != 0)]] = True
    chosen = chosen[told[places.rows[chosen]]]
    rows, of_row = np.unique(places.rows[chosen].astype(np.int64), return_inverse=True)
    into.known[rows - first] = True
    evidence = _Evidence(places, chosen, of_row, len(rows))
    lowest, highest = np.full(len(rows), -WIDEST), np.full(len(rows), WIDEST)
    is_open = np.ones(len(rows), np.bool_)
    for attempt in range(MOST_ATTEMPTS):
        n_points = min(N_COARSE, n_fine) if attempt == 0 else n_fine
        width = (highest - lowest) / (n_points - 1)
        x = lowest[:, None] + width[:, None] * np.arange(n_points)
        cost = np.log(1.0 + np.exp(-x))
        total = evidence.on(x, cost, is_open)
        a, b = prior[0, rows, None], prior[1, rows, None]
        posterior = total - (a + b) * cost - b * x
        alive = posterior >= posterior.max(axis=1, keepdims=True) - NOTHING
        left = np.maximum(alive.argmax(axis=1) - 1, 0)
        right = np.minimum(n_points - alive[:, ::-1].argmax(axis=1), n_points - 1)
        if attempt > 0:
            is_filled = 4 * (right - left) >= 3 * (n_points - 1)
            done = is_open & (is_filled | (attempt == MOST_ATTEMPTS - 1))
            place = rows[done] - first
            into.low[place], into.step[place] = lowest[done], width[done]
            into.values[place] = total[done] - total[done].max(axis=1, keepdims=True)
            is_open &= ~done
        if not is_open.any():
            return
        highest = np.where(is_open, lowest + width * right, highest)
        lowest = np.where(is_open, lowest + width * left, lowest)


class _Evidence:
    """What places say of some rows: sure flips, lines and polynomials."""

    def __init__(self, places: Any, chosen: Integers, of_row: Integers, n_rows: int) -> None:
        m = places.weight[chosen]
        h, t = places.heads[chosen], places.tails[chosen]
        has_polynomial = (places.exact[chosen] > 0) & (m != 0)
        told = (h + t > 0) & ~has_polynomial & (m != 0)
        is_head = told & (h >= 1.0 - 1e-12)
        is_tail = told & ~is_head & (t >= 1.0 - 1e-12)
        self.heads = np.bincount(of_row, np.where(is_head, m, 0.0), n_rows)
        self.tails = np.bincount(of_row, np.where(is_tail, m, 0.0), n_rows)
        line = np.flatnonzero(told & ~is_head & ~is_tail)
        self.slope, self.level = _lines(h[line], t[line], places.at[chosen[line]])
        self.line_row, self.line_times = of_row[line], m[line]
        several = np.flatnonzero(has_polynomial)
        self.coefficients = places.coefficients[places.exact[chosen[several]] - 1]
        self.several_row, self.several_times = of_row[several], m[several]

    def on(self, x: Floats, cost: Floats, is_open: NDArray[np.bool_]) -> Floats:
        """The log-likelihood of open rows at the logits x, of which `cost` is -log p."""
        total = -(self.heads + self.tails)[:, None] * cost - self.tails[:, None] * x
        p = np.exp(-cost)
        told = is_open[self.line_row]
        row = self.line_row[told]
        value = self.slope[told, None] * p[row] + self.level[told, None]
        _add(total, row, self.line_times[told, None] * np.log(np.maximum(value, 1e-30)))
        told = is_open[self.several_row]
        row, c = self.several_row[told], self.coefficients[told]
        value = _polynomials(c, p[row])
        _add(total, row, self.several_times[told, None] * np.log(np.maximum(value, 1e-300)))
        return total


def _lines(heads: Floats, tails: Floats, at: Floats) -> tuple[Floats, Floats]:
    """What places say of their rows: slope and level of lines in the probability."""
    p = np.clip(at, 1e-9, 1.0 - 1e-9)
    return heads / p - tails / (1.0 - p), tails / (1.0 - p) + 1.0 - heads - tails


def _polynomials(coefficients: Floats, p: Floats) -> Floats:
    """Each polynomial at its line of probabilities."""
    value, power = np.zeros(p.shape), np.ones(p.shape)
    for i in range(coefficients.shape[1] - 1, -1, -1):
        value = coefficients[:, i, None] * power + p * value
        power = power * (1.0 - p)
    return value


def elsewhere_of_few(places: Any, prior: Floats, known: Any, first: int) -> Floats:
    """As `means_elsewhere`, `[p or p^2, place]`."""
    row = places.rows.astype(np.int64) - first
    x = known.low[row, None] + known.step[row, None] * np.arange(known.values.shape[1])
    p = 1.0 / (1.0 + np.exp(-x))
    cost = np.log(1.0 + np.exp(-x))
    a, b = prior[:, row + first, None]
    share = known.values[row] - (a + b) * cost - b * x
    share = np.exp(np.maximum(share - share.max(axis=1, keepdims=True), -700.0))
    slope, level = _lines(places.heads, places.tails, places.at)
    is_head, is_tail = places.heads >= 1.0 - 1e-12, places.tails >= 1.0 - 1e-12
    slope = np.where(is_head, 1.0, np.where(is_tail, -1.0, slope))
    level = np.where(is_head, 0.0, np.where(is_tail, 1.0, level))
    value = np.maximum(slope[:, None] * p + level[:, None], 1e-30)
    several = places.exact > 0
    coefficients = places.coefficients[places.exact[several] - 1]
    value[several] = np.maximum(_polynomials(coefficients, p[several]), 1e-300)
    value[~several & (places.heads + places.tails <= 1e-12)] = 1.0
    # Beyond the widest logits p is 0 or 1, as far as means are concerned.
    at_0, at_1 = value[:, :1], value[:, -1:]
    step = known.step[row, None]
    below = np.where(x[:, :1] <= 0.01 - WIDEST, share[:, :1] / (a * step * at_0), 0.0)
    beyond = np.where(x[:, -1:] >= WIDEST - 0.01, share[:, -1:] / (b * step * at_1), 0.0)
    share[:, [0, -1]] *= 0.5
    share /= value
    total = share.sum(axis=1) + below[:, 0] + beyond[:, 0]
    means = [(share * p).sum(axis=1), (share * p * p).sum(axis=1)]
    found: Floats = (np.stack(means) + beyond[:, 0]) / total
    a, b = prior[:, row + first]
    as_before = np.stack([a / (a + b), a / (a + b) * (a + 1) / (a + b + 1)])
    return np.where(known.values[row].any(axis=1), found, as_before)


def _add(total: Floats, rows: Integers, values: Floats) -> None:
    """Add lines of `values` to the lines of `total` that `rows` says, in ascending order."""
    if len(rows):
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        total[rows[starts]] += np.add.reduceat(values, starts, axis=0)


def moments_of_few(
    rows: Integers, low: Floats, step: Floats, values: Floats, prior: Floats
) -> Floats:
    """As `row_moments`, `[moment, row]`."""
    a, b = prior[:, :, None]
    x = low[rows, None] + step[rows, None] * np.arange(values.shape[1])
    log_p = -np.log(1.0 + np.exp(-x))
    log_q = log_p - x
    share = values[rows] + a * log_p + b * log_q
    best = share.max(axis=1)
    share = np.exp(np.maximum(share - best[:, None], -700.0))
    below = np.where(x[:, :1] <= 0.01 - WIDEST, share[:, :1] / a, 0.0)
    above = np.where(x[:, -1:] >= WIDEST - 0.01, share[:, -1:] / b, 0.0)
    share *= step[rows, None]
    share[:, [0, -1]] *= 0.5
    share = np.hstack([share, below, above])
    log_p = np.hstack([log_p, log_p[:, :1] - 1.0 / a, log_p[:, -1:]])
    log_q = np.hstack([log_q, log_q[:, :1], log_q[:, -1:] - 1.0 / b])
    total = share.sum(axis=1)
    share /= total[:, None]
    p = np.exp(log_p)
    means = [(share * one).sum(axis=1) for one in (p, p * p, log_p, log_q)]
    off_p, off_q = log_p - means[2][:, None], log_q - means[3][:, None]
    squares = [(share * one).sum(axis=1) for one in (off_p * off_p, off_q * off_q, off_p * off_q)]
    squares[0] += share[:, -2] / a[:, 0] ** 2
    squares[1] += share[:, -1] / b[:, 0] ** 2
    return np.stack([best + np.log(total), *means, *squares])
