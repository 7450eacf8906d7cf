"""The best page of few candidates, by sets of them from the last result upwards.

Of all orders of a set at the end of a page, those are kept that no other order beats wherever users
come from (see `page_search` for what vectors are).
"""

from __future__ import annotations

import numpy as np

from gecasmo.kernels.static.page_search import pull

# mypy: ignore-errors


def is_beaten(one, other, n):
    """Whether a vector is nowhere above another."""
    for h in range(n):
        for s in range(one.shape[1]):
            if one[h, s] > other[h, s]:
                return False
    return True


def search_sets(
    first, last, asked, candidate_start, place_start, sizes, place, skip, click, reward, begin,
    end, n_histories, after, pin, kinds, most, near, room, best, lower, upper, widths,
):  # fmt: skip
    """The best page of each query that is asked about, and what it is worth, exactly.

    Worth is -inf where no page keeps to the rules. Queries for which `room` vectors do not suffice
    stay as they are; `widths` gets the most orders that were kept of one set, 0 for these.
    """
    n_all, n_states = reward.shape[1], reward.shape[2]
    vectors = np.zeros((room, n_all, n_states))
    top = np.zeros(room, np.int64)
    under = np.zeros(room, np.int64)
    new = np.zeros((n_all, n_states))
    has_near = False
    for c in range(len(near)):
        has_near |= near[c]
    for number in range(first, last):
        q = asked[number]
        start = candidate_start[q]
        n = candidate_start[q + 1] - start
        size = sizes[q]
        own_place = place[place_start[q] : place_start[q + 1]]
        found = np.full(size, -1, np.int64)
        begins = np.zeros(1 << n, np.int64)
        counts = np.zeros(1 << n, np.int64)
        vectors[0] = end
        top[0] = -1
        counts[0] = 1
        n_kept = 1
        width = 1
        worth = -np.inf
        is_full = False
        for mask in range(1, 1 << n):
            n_in = 0
            for i in range(n):
                n_in += (mask >> i) & 1
            t = size - n_in
            if t < 0:
                continue
            is_allowed = True
            for c in range(len(most)):
                for i in range(n):
                    kind = kinds[c, start + i]
                    if not (mask >> i) & 1 or kind < 0:
                        continue
                    n_same = 0
                    for k in range(n):
                        n_same += (mask >> k) & 1 and kinds[c, start + k] == kind
                    is_allowed &= n_same <= most[c]
            if not is_allowed:
                continue
            m = n_histories[t]
            base = n_kept
            begins[mask] = base
            holder = -1
            for i in range(n):
                if pin[start + i] == t:
                    holder = i
            for i in range(n):
                if not (mask >> i) & 1 or (holder >= 0 and holder != i):
                    continue
                if pin[start + i] >= 0 and pin[start + i] != t:
                    continue
                rest = mask ^ (1 << i)
                e = own_place[i * size + t]
                for k in range(begins[rest], begins[rest] + counts[rest]):
                    is_apart = True
                    if has_near and top[k] >= 0:
                        for c in range(len(near)):
                            kind = kinds[c, start + i]
                            if near[c] and kind >= 0 and kinds[c, start + top[k]] == kind:
                                is_apart = False
                    if not is_apart:
                        continue
                    pull(skip, click, reward, e, m, after[t], vectors[k], new)
                    is_needed = True
                    j = base
                    while j < n_kept and is_needed:
                        if has_near and top[j] != i:
                            j += 1
                        elif is_beaten(new, vectors[j], m):
                            is_needed = False
                        elif is_beaten(vectors[j], new, m):
                            n_kept -= 1
                            vectors[j] = vectors[n_kept]
                            top[j] = top[n_kept]
                            under[j] = under[n_kept]
                        else:
                            j += 1
                    if not is_needed:
                        continue
                    if n_kept == room:
                        is_full = True
                        break
                    vectors[n_kept] = new
                    top[n_kept] = i
                    under[n_kept] = k
                    n_kept += 1
                if is_full:
                    break
            if is_full:
                break
            counts[mask] = n_kept - base
            width = max(width, n_kept - base)
            if t == 0:
                for j in range(base, n_kept):
                    total = 0.0
                    for s in range(n_states):
                        total += begin[q, s] * vectors[j, 0, s]
                    if total > worth:
                        worth = total
                        # Whole pages are not built upon: only the best of them is kept.
                        t0 = j
                        for k in range(size):
                            found[k] = top[t0]
                            t0 = under[t0]
                counts[mask] = 0
                n_kept = base
        if is_full:
            widths[q] = 0
            continue
        widths[q] = width
        lower[q] = worth
        upper[q] = worth
        best[q, :size] = found
