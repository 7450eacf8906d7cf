"""E-steps as one would write them by hand in Numba: the yardstick of the generated kernels.

Each is a plain forward-backward pass from the definition of its model: one pass keeps its values
in an array, the pass in the other direction adds up expected counts, one logarithm a page. Nothing
is scaled (a page has ten results) and nothing is done twice; pages are not cut at the last click,
not folded, and not multiplied before the logarithm is taken. Of several such versions these were
the fastest: five for DBN (forward first or backward first, values in scalars or arrays; 12 to 20
million pages a second), two for UBM (row of an examination read or computed; 27 and 24).

Coins have one array each of probabilities, expected heads and expected tails. `start[i]` is where
page i begins; ids are uint32, clicks uint8: the very arrays that the generated kernels read.
"""

from __future__ import annotations

import math

import numba
import numpy as np


@numba.njit(nogil=True)
def dbn(
    start,
    clicks,
    pair,
    attraction,
    satisfaction,
    continuation,
    attraction_heads,
    attraction_tails,
    satisfaction_heads,
    satisfaction_tails,
    continuation_counts,
    longest,
):
    """States: examines the result, or has left. After the last result nothing is flipped.

    Somebody who has left never clicks, so the backward value of that state is 1 below the last
    click and 0 above it. What flows into it is what no longer examines the next result.
    """
    stay = continuation[0]
    go = 1.0 - stay
    stayed = 0.0
    went = 0.0
    backward = np.empty(longest)  # P(clicks from result t on | examines t)
    log_likelihood = 0.0
    for i in range(len(start) - 1):
        first = start[i]
        last = start[i + 1] - first - 1
        a = attraction[pair[first + last]]
        if clicks[first + last] == 1:
            below, below_left, last_click = a, 0.0, last
        else:
            below, below_left, last_click = 1.0 - a, 1.0, -1
        backward[last] = below
        for t in range(last - 1, -1, -1):
            k = pair[first + t]
            a = attraction[k]
            unsatisfied = stay * below + go * below_left
            if clicks[first + t] == 1:
                s = satisfaction[k]
                below = a * (s * below_left + (1.0 - s) * unsatisfied)
                if last_click < 0:
                    last_click = t
                below_left = 0.0
            else:
                below = (1.0 - a) * unsatisfied
            backward[t] = below
        log_likelihood += math.log(below)
        forward = 1.0 / below  # P(examines t, clicks above t) / P(page)
        examines = 1.0  # P(examines t | page)
        for t in range(last):
            k = pair[first + t]
            a = attraction[k]
            if clicks[first + t] == 1:
                s = satisfaction[k]
                forward *= a
                satisfied = forward * s if t == last_click else 0.0
                forward *= (1.0 - s) * stay
                examines_next = forward * backward[t + 1]
                attraction_heads[k] += examines
                satisfaction_heads[k] += satisfied
                satisfaction_tails[k] += examines - satisfied
                stayed += examines_next
                went += examines - satisfied - examines_next
            else:
                forward *= (1.0 - a) * stay
                examines_next = forward * backward[t + 1]
                attraction_tails[k] += examines
                stayed += examines_next
                went += examines - examines_next
            examines = examines_next
        k = pair[first + last]
        if clicks[first + last] == 1:
            attraction_heads[k] += examines
        else:
            attraction_tails[k] += examines
    continuation_counts[0] += stayed
    continuation_counts[1] += went
    return log_likelihood


@numba.njit(nogil=True)
def ubm(
    start,
    clicks,
    place,
    pair,
    examination,
    attraction,
    examination_heads,
    examination_tails,
    attraction_heads,
    attraction_tails,
):
    """Results are independent given the clicks above them, so there is no recursion.

    `place` is the row of (rank, last click). A skipped result was either not examined, or
    examined and not attractive; attraction is only flipped in the second case.
    """
    log_likelihood = 0.0
    for i in range(len(start) - 1):
        page = 1.0
        for j in range(start[i], start[i + 1]):
            p = place[j]
            k = pair[j]
            e = examination[p]
            a = attraction[k]
            if clicks[j] == 1:
                page *= e * a
                examination_heads[p] += 1.0
                attraction_heads[k] += 1.0
            else:
                skipped = 1.0 - e * a
                page *= skipped
                examined = e * (1.0 - a) / skipped
                examination_heads[p] += examined
                examination_tails[p] += 1.0 - examined
                attraction_tails[k] += examined
        log_likelihood += math.log(page)
    return log_likelihood


@numba.njit(nogil=True)
def restless(
    start,
    clicks,
    pair,
    rank,
    transition,
    attraction,
    trust,
    whim,
    transition_counts,
    attraction_heads,
    attraction_tails,
    trust_heads,
    trust_tails,
    whim_counts,
    longest,
):
    """A hidden Markov model of three moods: move, then click as the new mood does.

    `transition[m, n]` is the probability of mood n after mood m.
    """
    t00, t01, t02 = transition[0, 0], transition[0, 1], transition[0, 2]
    t10, t11, t12 = transition[1, 0], transition[1, 1], transition[1, 2]
    t20, t21, t22 = transition[2, 0], transition[2, 1], transition[2, 2]
    n00 = n01 = n02 = n10 = n11 = n12 = n20 = n21 = n22 = 0.0
    whim_heads = whim_tails = 0.0
    w = whim[0]
    forward = np.empty((longest + 1, 3))
    log_likelihood = 0.0
    for i in range(len(start) - 1):
        first = start[i]
        length = start[i + 1] - first
        a0, a1, a2 = 1.0, 0.0, 0.0
        for t in range(length):
            forward[t, 0] = a0
            forward[t, 1] = a1
            forward[t, 2] = a2
            e0 = attraction[pair[first + t]]
            e1 = trust[rank[first + t]]
            e2 = w
            if clicks[first + t] == 0:
                e0 = 1.0 - e0
                e1 = 1.0 - e1
                e2 = 1.0 - e2
            b0 = (a0 * t00 + a1 * t10 + a2 * t20) * e0
            b1 = (a0 * t01 + a1 * t11 + a2 * t21) * e1
            b2 = (a0 * t02 + a1 * t12 + a2 * t22) * e2
            a0, a1, a2 = b0, b1, b2
        page = a0 + a1 + a2
        log_likelihood += math.log(page)
        b0 = b1 = b2 = 1.0 / page
        for t in range(length - 1, -1, -1):
            k = pair[first + t]
            r = rank[first + t]
            is_clicked = clicks[first + t] == 1
            e0 = attraction[k]
            e1 = trust[r]
            e2 = w
            if not is_clicked:
                e0 = 1.0 - e0
                e1 = 1.0 - e1
                e2 = 1.0 - e2
            b0 *= e0
            b1 *= e1
            b2 *= e2
            a0 = forward[t, 0]
            a1 = forward[t, 1]
            a2 = forward[t, 2]
            p00, p01, p02 = a0 * t00 * b0, a0 * t01 * b1, a0 * t02 * b2
            p10, p11, p12 = a1 * t10 * b0, a1 * t11 * b1, a1 * t12 * b2
            p20, p21, p22 = a2 * t20 * b0, a2 * t21 * b1, a2 * t22 * b2
            n00 += p00
            n01 += p01
            n02 += p02
            n10 += p10
            n11 += p11
            n12 += p12
            n20 += p20
            n21 += p21
            n22 += p22
            if is_clicked:
                attraction_heads[k] += p00 + p10 + p20
                trust_heads[r] += p01 + p11 + p21
                whim_heads += p02 + p12 + p22
            else:
                attraction_tails[k] += p00 + p10 + p20
                trust_tails[r] += p01 + p11 + p21
                whim_tails += p02 + p12 + p22
            c0 = t00 * b0 + t01 * b1 + t02 * b2
            c1 = t10 * b0 + t11 * b1 + t12 * b2
            c2 = t20 * b0 + t21 * b1 + t22 * b2
            b0, b1, b2 = c0, c1, c2
    transition_counts[0, 0] += n00
    transition_counts[0, 1] += n01
    transition_counts[0, 2] += n02
    transition_counts[1, 0] += n10
    transition_counts[1, 1] += n11
    transition_counts[1, 2] += n12
    transition_counts[2, 0] += n20
    transition_counts[2, 1] += n21
    transition_counts[2, 2] += n22
    whim_counts[0] += whim_heads
    whim_counts[1] += whim_tails
    return log_likelihood
