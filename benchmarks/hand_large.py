"""E-steps of models with many states as one would write them by hand in Numba (`hand_kernels`)."""

from __future__ import annotations

import math

import numba
import numpy as np


@numba.njit(nogil=True)
def moods_e_step(
    start,
    clicks,
    pair,
    rank,
    transition,
    attraction,
    taste,
    moves,
    attraction_heads,
    attraction_tails,
    taste_heads,
    taste_tails,
    longest,
):
    """Move to another mood, then click as it does: mood 0 by pair, the others by rank."""
    n = len(transition)
    forward = np.empty((longest + 1, n))
    below = np.empty(n)
    ahead = np.empty(n)
    log_likelihood = 0.0
    for i in range(len(start) - 1):
        first = start[i]
        length = start[i + 1] - first
        forward[0, :] = 0.0
        forward[0, 0] = 1.0
        for t in range(length):
            k = pair[first + t]
            r = rank[first + t]
            for s in range(n):
                total = 0.0
                for m in range(n):
                    total += forward[t, m] * transition[m, s]
                p = attraction[k] if s == 0 else taste[s - 1, r]
                forward[t + 1, s] = total * (p if clicks[first + t] == 1 else 1.0 - p)
        page = 0.0
        for s in range(n):
            page += forward[length, s]
        log_likelihood += math.log(page)
        below[:] = 1.0 / page
        for t in range(length - 1, -1, -1):
            k = pair[first + t]
            r = rank[first + t]
            is_clicked = clicks[first + t] == 1
            for s in range(n):
                reached = forward[t + 1, s] * below[s]
                p = attraction[k] if s == 0 else taste[s - 1, r]
                below[s] *= p if is_clicked else 1.0 - p
                if s == 0:
                    if is_clicked:
                        attraction_heads[k] += reached
                    else:
                        attraction_tails[k] += reached
                elif is_clicked:
                    taste_heads[s - 1, r] += reached
                else:
                    taste_tails[s - 1, r] += reached
            for m in range(n):
                total = 0.0
                for s in range(n):
                    x = transition[m, s] * below[s]
                    moves[m, s] += forward[t, m] * x
                    total += x
                ahead[m] = total
            below[:] = ahead
    return log_likelihood


@numba.njit(nogil=True)
def patience_e_step(
    start,
    clicks,
    pair,
    rank,
    attraction,
    hurry,
    leaving,
    attraction_heads,
    attraction_tails,
    hurry_heads,
    hurry_tails,
    leaving_heads,
    leaving_tails,
    longest,
):
    """Levels of lost patience and, after them, the state of those who have left."""
    n = len(leaving)
    forward = np.empty((longest + 1, n + 1))
    below = np.empty(n + 1)
    ahead = np.empty(n + 1)
    log_likelihood = 0.0
    for i in range(len(start) - 1):
        first = start[i]
        length = start[i + 1] - first
        forward[0, :] = 0.0
        forward[0, 0] = 1.0
        for t in range(length):
            a = attraction[pair[first + t]]
            h = hurry[rank[first + t]] if t < length - 1 else 0.0
            forward[t + 1, :] = 0.0
            if clicks[first + t] == 1:
                total = 0.0
                for s in range(n):
                    total += forward[t, s]
                forward[t + 1, 0] = total * a
                continue
            gone = forward[t, n]
            for s in range(n):
                stays = forward[t, s] * (1.0 - a)
                forward[t + 1, s] += stays * (1.0 - h)
                gone += stays * h * leaving[s]
                if s < n - 1:
                    forward[t + 1, s + 1] += stays * h * (1.0 - leaving[s])
            forward[t + 1, n] = gone
        page = 0.0
        for s in range(n + 1):
            page += forward[length, s]
        log_likelihood += math.log(page)
        below[:] = 1.0 / page
        for t in range(length - 1, -1, -1):
            k = pair[first + t]
            r = rank[first + t]
            a = attraction[k]
            is_last = t == length - 1
            h = 0.0 if is_last else hurry[r]
            if clicks[first + t] == 1:
                clicked = 0.0
                x = a * below[0]
                for s in range(n):
                    clicked += forward[t, s] * x
                    ahead[s] = x
                ahead[n] = 0.0
                attraction_heads[k] += clicked
            else:
                skipped = 0.0
                hurried = 0.0
                for s in range(n):
                    leaves = h * leaving[s] * below[n]
                    tires = h * (1.0 - leaving[s]) * below[s + 1] if s < n - 1 else 0.0
                    x = forward[t, s] * (1.0 - a)
                    leaving_heads[s] += x * leaves
                    leaving_tails[s] += x * tires
                    hurried += x * (leaves + tires)
                    ahead[s] = (1.0 - a) * ((1.0 - h) * below[s] + leaves + tires)
                    skipped += forward[t, s] * ahead[s]
                ahead[n] = below[n]
                attraction_tails[k] += skipped
                if not is_last:
                    hurry_heads[r] += hurried
                    hurry_tails[r] += skipped - hurried
            below[:] = ahead
    return log_likelihood
