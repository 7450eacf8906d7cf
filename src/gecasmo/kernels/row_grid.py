"""Kernels behind row posteriors: the likelihood of a row on points of its own, and integrals of it.

Points are evenly spaced in the logit. A row's points cover where its posterior lives, however
narrow that is; so one mechanism serves rows of three flips and rows of a million.
"""

from __future__ import annotations

import math

import numpy as np

# mypy: ignore-errors


def group_by_row(rows, n_rows, start, order):
    """A counting sort: `order[start[r]:start[r + 1]]` are the places of row r."""
    for place in range(len(rows)):
        start[rows[place] + 1] += 1
    for row in range(n_rows):
        start[row + 1] += start[row]
    seen = np.zeros(n_rows, np.int64)
    for place in range(len(rows)):
        row = rows[place]
        order[start[row] + seen[row]] = place
        seen[row] += 1


def repeats_on_pages(starts, rows, times, is_first):
    """How often the row at each place stands on its page, and whether this is the first time."""
    for page in range(len(starts) - 1):
        begin = starts[page]
        end = starts[page + 1]
        if end - begin > 200:  # many places: sort them
            order = np.argsort(rows[begin:end], kind="mergesort")
            i = 0
            while i < len(order):
                j = i
                while j < len(order) and rows[begin + order[j]] == rows[begin + order[i]]:
                    j += 1
                for k in range(i, j):
                    times[begin + order[k]] = j - i
                    is_first[begin + order[k]] = k == i
                i = j
            continue
        for place in range(begin, end):
            is_first[place] = True
            times[place] = 1
            for above in range(begin, place):
                if rows[above] == rows[place]:
                    is_first[place] = False
        for place in range(begin, end):
            if is_first[place]:
                continue
            n = 0
            for other in range(begin, end):
                n += rows[other] == rows[place]
            for other in range(begin, end):
                if rows[other] == rows[place]:
                    times[other] = n


def row_grid(
    first,
    last,
    start,
    order,
    heads,
    tails,
    weight,
    exact,
    coefficients,
    at,
    prior,
    wanted,
    low,
    step,
    values,
):
    """The logarithm of each row's likelihood on its points, up to a constant.

    A place with expected heads and tails h, t says a p + b of the row's probability p, where
    a = h / p0 - t / (1 - p0) and b = t / (1 - p0) + 1 - h - t at the current value p0. Places with
    `exact[place] > 0` have polynomials instead, in Bernstein form: row `exact[place] - 1` of
    `coefficients`. Sure flips are counted, not multiplied.
    """
    n_fine = values.shape[1]
    degree = coefficients.shape[1] - 1
    p = np.empty(n_fine)
    product = np.empty(n_fine)
    total = np.empty(n_fine)
    for row in range(first, last):
        if not wanted[row]:
            continue
        p0 = min(max(at[row], 1e-9), 1.0 - 1e-9)
        lowest = -14.0
        highest = 14.0
        for attempt in range(9):
            # A few points tell roughly where the posterior lives.
            n_points = min(12, n_fine) if attempt == 0 else n_fine
            width = (highest - lowest) / (n_points - 1)
            for k in range(n_points):
                p[k] = 1.0 / (1.0 + math.exp(-(lowest + width * k)))
                product[k] = 1.0
                total[k] = 0.0
            n_heads = 0.0
            n_tails = 0.0
            updates = 0
            for j in range(start[row], start[row + 1]):
                place = order[j]
                m = weight[place]
                if m == 0.0:
                    continue
                if exact[place] > 0:
                    c = coefficients[exact[place] - 1]
                    for k in range(n_points):
                        x = 0.0
                        power = 1.0
                        for i in range(degree + 1):
                            x += c[i] * power * (1.0 - p[k]) ** (degree - i)
                            power *= p[k]
                        total[k] += m * math.log(max(x, 1e-300))
                    continue
                h = heads[place]
                t = tails[place]
                if h + t <= 0.0:
                    continue
                if h >= 1.0 - 1e-12:
                    n_heads += m
                    continue
                if t >= 1.0 - 1e-12:
                    n_tails += m
                    continue
                a = h / p0 - t / (1.0 - p0)
                b = t / (1.0 - p0) + 1.0 - h - t
                if m == 1.0:
                    for k in range(n_points):
                        product[k] *= max(a * p[k] + b, 1e-30)
                    updates += 1
                    if updates == 8:
                        for k in range(n_points):
                            total[k] += math.log(product[k])
                            product[k] = 1.0
                        updates = 0
                else:
                    for k in range(n_points):
                        total[k] += m * math.log(max(a * p[k] + b, 1e-30))
            best = -1e300
            for k in range(n_points):
                x = lowest + width * k
                log_p = math.log(p[k])
                value = total[k] + math.log(product[k]) + n_heads * log_p + n_tails * (log_p - x)
                total[k] = value
                product[k] = value + prior[0, row] * log_p + prior[1, row] * (log_p - x)
                if product[k] > best:
                    best = product[k]
            left = 0
            while left < n_points - 1 and product[left] < best - 18.0:
                left += 1
            right = n_points - 1
            while right > 0 and product[right] < best - 18.0:
                right -= 1
            left = max(left - 1, 0)
            right = min(right + 1, n_points - 1)
            if attempt == 8 or (attempt > 0 and 4 * (right - left) >= 3 * (n_points - 1)):
                break
            highest = lowest + width * right
            lowest = lowest + width * left
        highest_value = -1e300
        for k in range(n_fine):
            if total[k] > highest_value:
                highest_value = total[k]
        for k in range(n_fine):
            values[row, k] = total[k] - highest_value
        low[row] = lowest
        step[row] = width


def row_moments(first, last, rows, low, step, values, prior, moments):
    """Integrals of rows' likelihoods under Beta priors.

    For the row `rows[i]`, `moments[:, i]` gets the logarithm of the integral (without the Beta
    function), means of p, p^2, log p and log(1 - p), variances and covariance of the latter two.
    """
    n_points = values.shape[1]
    # Two more points stand for the tails beyond the widest logits: there the likelihood is level
    # and the prior a power of p, so that log p is exponentially distributed.
    log_p = np.empty(n_points + 2)
    log_q = np.empty(n_points + 2)
    share = np.empty(n_points + 2)
    for i in range(first, last):
        row = rows[i]
        a = prior[0, i]
        b = prior[1, i]
        best = -1e300
        for k in range(n_points):
            x = low[row] + step[row] * k
            log_p[k] = -math.log(1.0 + math.exp(-x))
            log_q[k] = log_p[k] - x
            share[k] = values[row, k] + a * log_p[k] + b * log_q[k]
            if share[k] > best:
                best = share[k]
        for k in range(n_points):
            share[k] = math.exp(share[k] - best)
        end = n_points - 1
        share[end + 1] = share[0] / a if low[row] <= -13.99 else 0.0
        share[end + 2] = share[end] / b if low[row] + step[row] * end >= 13.99 else 0.0
        log_p[end + 1] = log_p[0] - 1.0 / a
        log_q[end + 1] = log_q[0]
        log_p[end + 2] = log_p[end]
        log_q[end + 2] = log_q[end] - 1.0 / b
        for k in range(n_points):
            share[k] *= step[row] * (0.5 if k == 0 or k == end else 1.0)
        total = 0.0
        for k in range(n_points + 2):
            total += share[k]
        mean_p = 0.0
        mean_pp = 0.0
        mean_lp = 0.0
        mean_lq = 0.0
        for k in range(n_points + 2):
            share[k] /= total
            p = math.exp(log_p[k])
            mean_p += share[k] * p
            mean_pp += share[k] * p * p
            mean_lp += share[k] * log_p[k]
            mean_lq += share[k] * log_q[k]
        var_lp = share[end + 1] / a**2
        var_lq = share[end + 2] / b**2
        cov = 0.0
        for k in range(n_points + 2):
            var_lp += share[k] * (log_p[k] - mean_lp) ** 2
            var_lq += share[k] * (log_q[k] - mean_lq) ** 2
            cov += share[k] * (log_p[k] - mean_lp) * (log_q[k] - mean_lq)
        moments[0, i] = best + math.log(total)
        moments[1, i] = mean_p
        moments[2, i] = mean_pp
        moments[3, i] = mean_lp
        moments[4, i] = mean_lq
        moments[5, i] = var_lp
        moments[6, i] = var_lq
        moments[7, i] = cov
