"""Kernels behind row posteriors: the likelihood of a row on points of its own, and integrals of it.

Points are evenly spaced in the logit. A row's points cover where its posterior lives, however
narrow that is; so one mechanism serves rows of three flips and rows of a million.
"""

from __future__ import annotations

import math

import numpy as np

from gecasmo.kernels.static.vector_math import (
    exp_of,
    log_of,
    moments_of,
    quotients_of,
    sum_of,
)

# mypy: ignore-errors

# Points reach from -WIDEST to WIDEST at first; beyond, in nats below the best point, NOTHING is.
WIDEST = 14.0
NOTHING = 18.0
N_COARSE = 12
MOST_ATTEMPTS = 9
# So many factors, of 1e-30 to 1e10 or so, are multiplied before anybody looks.
AT_ONCE = 8
# Rows with more places and a smaller deviation are worth a series; it is used where each of its
# terms is at most so much of the one before, and the last one so little.
ENOUGH_PLACES, NARROW, FALLING, LITTLE = 10, 0.1, 0.04, 1e-9


def group_by_row(rows, first, start, order):
    """A counting sort: `order[start[r]:start[r + 1]]` are the places of row `first` + r."""
    for place in range(len(rows)):
        start[rows[place] - first + 1] += 1
    for row in range(len(start) - 1):
        start[row + 1] += start[row]
    seen = np.zeros(len(start) - 1, np.int64)
    for place in range(len(rows)):
        row = rows[place] - first
        order[start[row] + seen[row]] = place
        seen[row] += 1


def find_repeats(starts, rows, found):
    """Whether any row stands twice on a page, as far as short pages go: `found[0]`.

    Of long pages it says so without looking, since looking would be quadratic.
    """
    for page in range(len(starts) - 1):
        begin = starts[page]
        end = starts[page + 1]
        n_same = end - begin > 200
        if not n_same:
            for place in range(begin + 1, end):
                for above in range(begin, place):
                    n_same |= rows[above] == rows[place]
        if n_same:
            found[0] = True
            return


def copy_places(starts, rows, pages, own, n_points, places, own_places):
    """The places of pages, each `n_points` times; `own_places` has a place beyond all of them, one
    for each point, where the page has the row `own[k]`."""
    at = 0
    for k in range(len(pages)):
        start = starts[pages[k]]
        end = starts[pages[k] + 1]
        for point in range(n_points):
            for place in range(start, end):
                places[at] = place
                own_places[at] = len(rows) + point if rows[place] == own[k] else place
                at += 1


def gather_columns(rows, table, out):
    """`out[:, k] = table[:, rows[k]]` for a table of two lines."""
    for k in range(len(rows)):
        out[0, k] = table[0, rows[k]]
        out[1, k] = table[1, rows[k]]


def row_grid(
    first,
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
    known,
    low,
    step,
    values,
):
    """The logarithm of each row's likelihood on its points, up to a constant, for rows from
    `first` on of which some place says something (see `group_by_row`): those are `known`, which
    begins there too, as what follows does.

    A place with expected heads and tails h, t says a p + b of the row's probability p, where
    a = h / p0 - t / (1 - p0) and b = t / (1 - p0) + 1 - h - t at the value p0 = `at[place]` where
    they were counted. Places with `exact[place] > 0` have polynomials instead, in Bernstein form:
    row `exact[place] - 1` of `coefficients`. Sure flips are counted, not multiplied.
    """
    n_fine = values.shape[1]
    degree = coefficients.shape[1] - 1
    most = 1
    for r in range(len(start) - 1):
        most = max(most, start[r + 1] - start[r])
    slope = np.empty(most)
    level = np.empty(most)
    times = np.empty(most)
    several = np.empty(most, np.int64)
    size = max(n_fine, N_COARSE)
    x = np.empty(size)
    p = np.empty(size)
    cost = np.empty(size)  # -log p
    total = np.empty(size)
    posterior = np.empty(size)
    product = np.empty(size)
    logs = np.empty(size)
    scratch = np.empty((2, size), np.int64)
    for r in range(len(start) - 1):
        row = first + r
        if start[r] == start[r + 1] or not wanted[row]:
            continue
        # What places say: lines that count once, from the end lines that count otherwise.
        n_heads = 0.0
        n_tails = 0.0
        n_once = 0
        weighted = most
        n_several = 0
        for j in range(start[r], start[r + 1]):
            place = order[j]
            m = weight[place]
            if m == 0.0:
                continue
            if exact[place] > 0:
                several[n_several] = place
                n_several += 1
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
            if m == 1.0:
                k = n_once
                n_once += 1
            else:
                weighted -= 1
                k = weighted
            p0 = min(max(at[place], 1e-9), 1.0 - 1e-9)
            slope[k] = h / p0 - t / (1.0 - p0)
            level[k] = t / (1.0 - p0) + 1.0 - h - t
            times[k] = m
        if n_heads + n_tails == 0.0 and n_once + n_several == 0 and weighted == most:
            continue  # shown, but never flipped
        known[r] = True
        lowest = -WIDEST
        highest = WIDEST
        for attempt in range(MOST_ATTEMPTS):
            # A few points tell roughly where the posterior lives.
            n_points = min(N_COARSE, n_fine) if attempt == 0 else n_fine
            width = (highest - lowest) / (n_points - 1)
            power = math.exp(-lowest)
            ratio = math.exp(-width)
            for k in range(n_points):
                product[k] = 1.0 + power
                power *= ratio
            for k in range(n_points):
                x[k] = lowest + width * k
                p[k] = 1.0 / product[k]
                total[k] = 0.0
            # One logarithm after the other: of 1 / p, of what lines say that count once, as many
            # as floats can hold the product of, then of each line or polynomial that is left.
            n_done = -1
            while n_done < n_once + (most - weighted) + n_several:
                m = 1.0
                if n_done < 0:
                    n_done = 0
                    m = 0.0
                elif n_done < n_once:
                    for k in range(n_points):
                        product[k] = 1.0
                    n_far = 0
                    while n_done < n_once and n_far == 0:
                        for j in range(n_done, min(n_done + AT_ONCE, n_once)):
                            a = slope[j]
                            b = level[j]
                            for k in range(n_points):
                                y = a * p[k] + b
                                product[k] *= y if y > 1e-30 else 1e-30
                        for k in range(n_points):
                            n_far += (product[k] < 1e-60) | (product[k] > 1e200)
                        n_done = min(n_done + AT_ONCE, n_once)
                elif n_done < n_once + (most - weighted):
                    j = weighted + n_done - n_once
                    m = times[j]
                    a = slope[j]
                    b = level[j]
                    for k in range(n_points):
                        y = a * p[k] + b
                        product[k] = y if y > 1e-30 else 1e-30
                    n_done += 1
                else:
                    place = several[n_done - n_once - (most - weighted)]
                    m = weight[place]
                    c = exact[place] - 1
                    for k in range(n_points):
                        power = 1.0
                        y = 0.0
                        for i in range(degree, -1, -1):
                            y = coefficients[c, i] * power + p[k] * y
                            power *= 1.0 - p[k]
                        product[k] = y if y > 1e-300 else 1e-300
                    n_done += 1
                log_of(n_points, product, logs, scratch)
                if m == 0.0:
                    for k in range(n_points):
                        cost[k] = logs[k]
                else:
                    for k in range(n_points):
                        total[k] += m * logs[k]
            best = -1e300
            for k in range(n_points):
                total[k] -= (n_heads + n_tails) * cost[k] + n_tails * x[k]
                sure = (prior[0, row] + prior[1, row]) * cost[k] + prior[1, row] * x[k]
                posterior[k] = total[k] - sure
                best = max(best, posterior[k])
            left = 0
            while left < n_points - 1 and posterior[left] < best - NOTHING:
                left += 1
            right = n_points - 1
            while right > 0 and posterior[right] < best - NOTHING:
                right -= 1
            left = max(left - 1, 0)
            right = min(right + 1, n_points - 1)
            is_filled = attempt > 0 and 4 * (right - left) >= 3 * (n_points - 1)
            if is_filled or attempt == MOST_ATTEMPTS - 1:
                break
            highest = lowest + width * right
            lowest = lowest + width * left
        best = -1e300
        for k in range(n_fine):
            best = max(best, total[k])
        for k in range(n_fine):
            values[r, k] = total[k] - best
        low[r] = lowest
        step[r] = width


def row_moments(first, last, rows, low, step, values, prior, moments):
    """Integrals of rows' likelihoods under Beta priors.

    For the row `rows[i]`, `moments[:, i]` gets the logarithm of the integral (without the Beta
    function), means of p, p^2, log p and log(1 - p), variances and covariance of the latter two.
    """
    n_points = values.shape[1]
    # Two more points stand for the tails beyond the widest logits: there the likelihood is level
    # and the prior a power of p, so that log p is exponentially distributed.
    x = np.empty(n_points)
    p = np.empty(n_points + 2)
    log_p = np.empty(n_points + 2)
    log_q = np.empty(n_points + 2)
    share = np.empty(n_points + 2)
    power = np.empty(n_points)
    scratch = np.empty((2, n_points), np.int64)
    last_flat = -1
    for i in range(first, last):
        row = rows[i]
        a = prior[0, i]
        b = prior[1, i]
        told = values[row]
        n_told = 0
        for k in range(n_points):
            n_told += told[k] != 0.0
        if n_told == 0:
            # Of many rows nothing is known, and under the same prior that is the same.
            j = last_flat
            last_flat = i
            if (
                j >= 0
                and prior[0, j] == a
                and prior[1, j] == b
                and low[rows[j]] == low[row]
                and step[rows[j]] == step[row]
            ):
                for k in range(8):
                    moments[k, i] = moments[k, j]
                continue
        e = math.exp(-low[row])
        ratio = math.exp(-step[row])
        for k in range(n_points):
            power[k] = 1.0 + e
            e *= ratio
        for k in range(n_points):
            x[k] = low[row] + step[row] * k
            p[k] = 1.0 / power[k]
        log_of(n_points, power, log_p, scratch)
        best = -1e300
        for k in range(n_points):
            log_p[k] = -log_p[k]
            log_q[k] = log_p[k] - x[k]
            power[k] = told[k] + a * log_p[k] + b * log_q[k]
            best = max(best, power[k])
        for k in range(n_points):
            power[k] -= best
        exp_of(n_points, power, share, scratch)
        end = n_points - 1
        share[end + 1] = share[0] / a if low[row] <= 0.01 - WIDEST else 0.0
        share[end + 2] = share[end] / b if low[row] + step[row] * end >= WIDEST - 0.01 else 0.0
        log_p[end + 1] = log_p[0] - 1.0 / a
        log_q[end + 1] = log_q[0]
        log_p[end + 2] = log_p[end]
        log_q[end + 2] = log_q[end] - 1.0 / b
        p[end + 1] = math.exp(log_p[end + 1])
        p[end + 2] = p[end]
        for k in range(n_points):
            share[k] *= step[row]
        share[0] *= 0.5
        share[end] *= 0.5
        total = 0.0
        mean_p = 0.0
        mean_pp = 0.0
        mean_lp = 0.0
        mean_lq = 0.0
        for k in range(n_points + 2):
            total += share[k]
            mean_p += share[k] * p[k]
            mean_pp += share[k] * p[k] * p[k]
            mean_lp += share[k] * log_p[k]
            mean_lq += share[k] * log_q[k]
        mean_p /= total
        mean_pp /= total
        mean_lp /= total
        mean_lq /= total
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
        moments[5, i] = var_lp / total
        moments[6, i] = var_lq / total
        moments[7, i] = cov / total


def means_elsewhere(
    first, start, order, heads, tails, exact, coefficients, at, prior, low, step, values, out
):
    """For every place the means of its row's p and p^2 under what is known from all other pages.

    The row's posterior, less what this page says of it (see `row_grid`). `low` and what follows
    begin at row `first`; `prior` has all rows.
    """
    n_points = values.shape[1]
    degree = coefficients.shape[1] - 1
    x = np.empty(n_points)
    p = np.empty(n_points)
    log_p = np.empty(n_points)
    power = np.empty(n_points)
    share = np.empty(n_points)
    central = np.empty(9)
    scratch = np.empty((2, n_points), np.int64)
    for r in range(len(start) - 1):
        if start[r] == start[r + 1]:
            continue
        row = first + r
        a = prior[0, row]
        b = prior[1, row]
        n_told = 0
        for k in range(n_points):
            n_told += values[r, k] != 0.0
        if n_told == 0:  # nobody says anything: that is the prior
            mean = a / (a + b)
            for j in range(start[r], start[r + 1]):
                out[0, order[j]] = mean
                out[1, order[j]] = mean * (a + 1.0) / (a + b + 1.0)
            continue
        e = math.exp(-low[r])
        ratio = math.exp(-step[r])
        for k in range(n_points):
            power[k] = 1.0 + e
            e *= ratio
        for k in range(n_points):
            x[k] = low[r] + step[r] * k
            p[k] = 1.0 / power[k]
        log_of(n_points, power, log_p, scratch)
        best = -1e300
        for k in range(n_points):
            power[k] = values[r, k] - (a + b) * log_p[k] - b * x[k]
            best = max(best, power[k])
        for k in range(n_points):
            power[k] -= best
        exp_of(n_points, power, share, scratch)
        # Beyond the widest logits p is 0 or 1, as far as means are concerned (see `row_moments`).
        end = n_points - 1
        below = share[0] / (a * step[r]) if low[r] <= 0.01 - WIDEST else 0.0
        beyond = share[end] / (b * step[r]) if x[end] >= WIDEST - 0.01 else 0.0
        share[0] *= 0.5
        share[end] *= 0.5
        total, mean, square = moments_of(n_points, share, p)
        total += below + beyond  # of the row, not of a place
        mean = (mean + beyond) / total
        square = (square + beyond) / total
        # Rows that are known well are left nearly where they are by any of their many places: a
        # series in central moments is enough, as long as its terms fall fast.
        spread = math.sqrt(max(square - mean * mean, 0.0))
        is_narrow = start[r + 1] - start[r] > ENOUGH_PLACES and below + beyond == 0.0
        is_narrow = is_narrow and spread < NARROW
        if is_narrow:
            central[:] = 0.0
            for k in range(n_points):
                power[k] = share[k] / total * (p[k] - mean)
            for i in range(2, 9):
                for k in range(n_points):
                    power[k] *= p[k] - mean
                central[i] = sum_of(n_points, power)
        # Places that tell a head, or a tail, for sure all leave the same; a row has many of them.
        sure = -1
        known_head = -1
        known_tail = -1
        for j in range(start[r], start[r + 1]):
            place = order[j]
            h = heads[place]
            t = tails[place]
            if exact[place] <= 0:
                if h + t <= 1e-12:
                    out[0, place] = mean
                    out[1, place] = square
                    continue
                is_head = h >= 1.0 - 1e-12
                is_tail = t >= 1.0 - 1e-12
                sure = known_tail if is_tail else (known_head if is_head else -1)
                if sure >= 0:
                    out[0, place] = out[0, sure]
                    out[1, place] = out[1, sure]
                    continue
                if is_tail:
                    known_tail = place
                elif is_head:
                    known_head = place
            total = 0.0
            above = 0.0
            twice = 0.0
            if exact[place] > 0:
                c = exact[place] - 1
                at_0 = 1.0
                at_1 = 1.0
                for k in range(n_points):
                    q = 1.0
                    y = 0.0
                    for i in range(degree, -1, -1):
                        y = coefficients[c, i] * q + p[k] * y
                        q *= 1.0 - p[k]
                    at_1 = y if y > 1e-300 else 1e-300
                    if k == 0:
                        at_0 = at_1
                    y = share[k] / at_1
                    total += y
                    above += y * p[k]
                    twice += y * p[k] * p[k]
            else:
                p0 = min(max(at[place], 1e-9), 1.0 - 1e-9)
                slope = h / p0 - t / (1.0 - p0)
                level = t / (1.0 - p0) + 1.0 - h - t
                if h >= 1.0 - 1e-12:
                    slope = 1.0
                    level = 0.0
                if t >= 1.0 - 1e-12:
                    slope = -1.0
                    level = 1.0
                q = -slope / max(slope * mean + level, 1e-30)
                last = q * q * q
                last *= last * central[8]
                if is_narrow and abs(q) * spread < FALLING and last < LITTLE * mean * mean:
                    total = above = twice = 0.0
                    for i in range(8, 1, -1):
                        twice = q * twice + central[i]
                    above = q * twice
                    total = 1.0 + q * above
                    out[0, place] = mean + above / total
                    out[1, place] = mean * mean + (2.0 * mean * above + twice) / total
                    continue
                # At the very end a line may be nothing: it goes on as at the last point.
                at_0 = max(slope * p[0] + level, 1e-30)
                at_1 = max(slope * p[end] + level, 1e-30)
                quotients_of(n_points, share, slope, p, level, power)
                total, above, twice = moments_of(n_points, power, p)
            total += below / at_0 + beyond / at_1
            above += beyond / at_1
            twice += beyond / at_1
            out[0, place] = above / total
            out[1, place] = twice / total
