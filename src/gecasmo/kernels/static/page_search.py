"""Kernels that look for the best order of a page, for any model.

What a candidate does at a rank is a place `e` in the arrays `skip`, `click` and `reward` (see
`PageChains`): probabilities of states after the result, for each click history h and state s
before it, and what the result is worth there. `after[t, h]` is the history that a click at rank t
makes of h, `n_histories[t]` how many histories there can be above rank t, `end[h, s]` what is left
after the last result. Below, a vector is an array over h and s.

A search without proof is greedy, followed by exchanges. The proof is a relaxation: results may
repeat, and users in different states may meet different results, but each use of result i costs
`price[i]`, and what a result costs is given back once. No page is worth more than that for any
prices that are not negative, and prices that make results be used once make the bound tight.
"""

from __future__ import annotations

import numpy as np

# mypy: ignore-errors

_SMALL = 1e-12


def pull(skip, click, reward, e, n, after, below, out):
    """What users have before them above a result, given what is below it."""
    n_states = reward.shape[2]
    for h in range(n):
        g = after[h]
        for s in range(n_states):
            total = reward[e, h, s]
            for k in range(n_states):
                total += skip[e, h, s, k] * below[h, k] + click[e, h, s, k] * below[g, k]
            out[h, s] = total


def push(skip, click, reward, e, n, n_next, after, above, out):
    """Where users are below a result, given where they are above; what it was worth is returned."""
    n_states = reward.shape[2]
    for h in range(n_next):
        for s in range(n_states):
            out[h, s] = 0.0
    gain = 0.0
    for h in range(n):
        g = after[h]
        for s in range(n_states):
            x = above[h, s]
            if x == 0.0:
                continue
            gain += x * reward[e, h, s]
            for k in range(n_states):
                out[h, k] += x * skip[e, h, s, k]
                out[g, k] += x * click[e, h, s, k]
    return gain


def inner(above, below, n):
    """The sum of products of two vectors."""
    total = 0.0
    for h in range(n):
        for s in range(above.shape[1]):
            total += above[h, s] * below[h, s]
    return total


def may_stand(order, t, i, size, pin, kinds, most, near):
    """Whether candidate i may stand at rank t below those that are above it.

    `pin[i]` is the rank at which it has to stand, -1 for any. `kinds[c, i]` is its kind, -1 for
    none, of which there may be `most[c]` on a page, and none beside another where `near[c]`.
    """
    if pin[i] >= 0 and pin[i] != t:
        return False
    for c in range(len(most)):
        kind = kinds[c, i]
        if kind < 0:
            continue
        if near[c] and t > 0 and kinds[c, order[t - 1]] == kind:
            return False
        n_same = 1
        for k in range(t):
            n_same += kinds[c, order[k]] == kind
        if n_same > most[c]:
            return False
    return True


def is_allowed(order, size, pin, kinds, most, near, holder):
    """Whether a page keeps what is asked of it; `holder[t]` has to stand at rank t, -1: anyone."""
    for t in range(size):
        if order[t] < 0 or (holder[t] >= 0 and order[t] != holder[t]):
            return False
        if not may_stand(order, t, order[t], size, pin, kinds, most, near):
            return False
    return True


def relaxed(skip, click, reward, place, n, size, pin, holder, price, n_histories, after, up, use):
    """Fill up[t] with the most that can lie before users above rank t if results may repeat at a
    price, and use[t] with the candidate that is taken there."""
    n_states = reward.shape[2]
    for t in range(size - 1, -1, -1):
        m = n_histories[t]
        for h in range(m):
            g = after[t, h]
            for s in range(n_states):
                best = -np.inf
                taken = -1
                for i in range(n):
                    if holder[t] != i and (holder[t] >= 0 or pin[i] >= 0):
                        continue
                    e = place[i * size + t]
                    total = reward[e, h, s] - price[i]
                    for k in range(n_states):
                        total += skip[e, h, s, k] * up[t + 1, h, k]
                        total += click[e, h, s, k] * up[t + 1, g, k]
                    if total > best:
                        best = total
                        taken = i
                up[t, h, s] = best
                use[t, h, s] = taken


def used(skip, click, reward, place, n, size, begin, n_histories, after, use, vectors, times):
    """How often each candidate is used if everybody meets what `relaxed` has taken."""
    n_states = reward.shape[2]
    times[:] = 0.0
    vectors[:2] = 0.0
    for s in range(n_states):
        vectors[0, 0, s] = begin[s]
    for t in range(size):
        here, there = t % 2, (t + 1) % 2
        for h in range(n_histories[t + 1]):
            for s in range(n_states):
                vectors[there, h, s] = 0.0
        for h in range(n_histories[t]):
            g = after[t, h]
            for s in range(n_states):
                x = vectors[here, h, s]
                if x == 0.0:
                    continue
                i = use[t, h, s]
                times[i] += x
                e = place[i * size + t]
                for k in range(n_states):
                    vectors[there, h, k] += x * skip[e, h, s, k]
                    vectors[there, g, k] += x * click[e, h, s, k]


def worth_of(skip, click, reward, place, size, order, begin, end, n_histories, after, vectors):
    """What a page is worth, by a walk from above."""
    n_states = reward.shape[2]
    for s in range(n_states):
        vectors[0, 0, s] = begin[s]
    total = 0.0
    for t in range(size):
        e = place[order[t] * size + t]
        total += push(
            skip,
            click,
            reward,
            e,
            n_histories[t],
            n_histories[t + 1],
            after[t],
            vectors[t % 2],
            vectors[(t + 1) % 2],
        )
    return total + inner(vectors[size % 2], end, n_histories[size])


def greedy(
    skip, click, reward, place, n, size, pin, holder, kinds, most, near, price, begin,
    n_histories, after, up, vectors, below, order,
):  # fmt: skip
    """From above, at each rank what is best if the relaxation holds below; False at a dead end."""
    n_states = reward.shape[2]
    taken = np.zeros(n, np.bool_)
    for s in range(n_states):
        vectors[0, 0, s] = begin[s]
    for t in range(size):
        m = n_histories[t]
        best = -np.inf
        chosen = -1
        for i in range(n):
            if taken[i] or (holder[t] >= 0 and holder[t] != i):
                continue
            if not may_stand(order, t, i, size, pin, kinds, most, near):
                continue
            pull(skip, click, reward, place[i * size + t], m, after[t], up[t + 1], below)
            total = inner(vectors[t % 2], below, m) - price[i]
            if total > best:
                best = total
                chosen = i
        if chosen < 0:
            return False
        order[t] = chosen
        taken[chosen] = True
        e = place[chosen * size + t]
        here, there = vectors[t % 2], vectors[(t + 1) % 2]
        push(skip, click, reward, e, m, n_histories[t + 1], after[t], here, there)
    return True


def exchanged(
    skip, click, reward, place, n, size, pin, holder, kinds, most, near, begin, end,
    n_histories, after, downs, ups, vectors, order, trial,
):  # fmt: skip
    """Exchange two results, move one, or put in one that is not there, as long as it pays."""
    n_states = reward.shape[2]
    n_rules = len(most)
    gains = np.zeros(size + 1)
    on_page = np.zeros(n, np.bool_)
    while True:
        for s in range(n_states):
            downs[0, 0, s] = begin[s]
        on_page[:] = False
        for t in range(size):
            on_page[order[t]] = True
            gains[t + 1] = gains[t] + push(
                skip,
                click,
                reward,
                place[order[t] * size + t],
                n_histories[t],
                n_histories[t + 1],
                after[t],
                downs[t],
                downs[t + 1],
            )
        ups[size, : n_histories[size]] = end[: n_histories[size]]
        for t in range(size - 1, -1, -1):
            e = place[order[t] * size + t]
            pull(skip, click, reward, e, n_histories[t], after[t], ups[t + 1], ups[t])
        now = gains[size] + inner(downs[size], end, n_histories[size])
        best = now + _SMALL * (1.0 + abs(now))
        best_p, best_q, best_i = -1, -1, -1
        # What is tried lies between ranks p and q: p > q moves the result at p up to q.
        for p in range(size):
            for q in range(size):
                for i in range(n if p == q else 1):
                    if p == q and on_page[i]:
                        continue
                    first, last = min(p, q), max(p, q)
                    if p == q:
                        if holder[p] >= 0 or pin[i] >= 0:
                            continue
                        trial[p] = i
                    else:
                        is_pinned = False
                        for t in range(first, last + 1):
                            inside = t > first and t < last
                            is_pinned |= holder[t] >= 0 and (p > q or not inside)
                        if is_pinned:
                            continue
                        for t in range(first, last + 1):
                            trial[t] = order[t]
                        if p < q:
                            trial[p], trial[q] = order[q], order[p]
                        else:
                            for t in range(q, p):
                                trial[t + 1] = order[t]
                            trial[q] = order[p]
                    if n_rules:
                        for t in range(first):
                            trial[t] = order[t]
                        for t in range(last + 1, size):
                            trial[t] = order[t]
                        if not is_allowed(trial, size, pin, kinds, most, near, holder):
                            continue
                    total = gains[first]
                    vectors[first % 2] = downs[first]
                    for t in range(first, last + 1):
                        total += push(
                            skip,
                            click,
                            reward,
                            place[trial[t] * size + t],
                            n_histories[t],
                            n_histories[t + 1],
                            after[t],
                            vectors[t % 2],
                            vectors[(t + 1) % 2],
                        )
                    there = vectors[(last + 1) % 2]
                    total += inner(there, ups[last + 1], n_histories[last + 1])
                    if total > best:
                        best = total
                        best_p, best_q, best_i = p, q, i
        if best_p < 0:
            return now
        if best_p == best_q:
            order[best_p] = best_i
        elif best_p < best_q:
            order[best_p], order[best_q] = order[best_q], order[best_p]
        else:
            moved = order[best_p]
            for t in range(best_p, best_q, -1):
                order[t] = order[t - 1]
            order[best_q] = moved


def branched(
    skip, click, reward, place, n, size, pin, holder, kinds, most, near, begin, end,
    n_histories, after, price, up, downs, below, order, lower, most_nodes,
):  # fmt: skip
    """Go through all pages whose bound is above the best one known, from above.

    `order` becomes the best page. Returned are what it is worth and what no page exceeds.
    """
    n_states = reward.shape[2]
    trial = np.full(size, -1, np.int64)
    children = np.zeros((size, n), np.int64)
    bounds = np.zeros((size, n))
    n_children = np.zeros(size, np.int64)
    at = np.zeros(size, np.int64)
    gains = np.zeros(size + 1)
    taken = np.zeros(n, np.bool_)
    left = 0.0
    for i in range(n):
        left += price[i]
    for s in range(n_states):
        downs[0, 0, s] = begin[s]
    t = 0
    is_new = True
    n_nodes = 0
    while t >= 0:
        if is_new:
            if n_nodes == most_nodes:
                break
            n_nodes += 1
            m = 0
            for i in range(n):
                if taken[i] or (holder[t] >= 0 and holder[t] != i):
                    continue
                if not may_stand(trial, t, i, size, pin, kinds, most, near):
                    continue
                e = place[i * size + t]
                pull(skip, click, reward, e, n_histories[t], after[t], up[t + 1], below)
                bound = gains[t] + inner(downs[t], below, n_histories[t]) + left - price[i]
                if t == size - 1:
                    bound -= left - price[i]
                slack = _SMALL * (1.0 + abs(lower))
                if bound <= lower + slack:
                    continue
                k = m
                while k > 0 and bounds[t, k - 1] < bound:
                    bounds[t, k] = bounds[t, k - 1]
                    children[t, k] = children[t, k - 1]
                    k -= 1
                bounds[t, k] = bound
                children[t, k] = i
                m += 1
            n_children[t] = m
            at[t] = 0
            is_new = False
        if at[t] == n_children[t] or bounds[t, at[t]] <= lower + _SMALL * (1.0 + abs(lower)):
            n_children[t] = at[t]  # nothing here is better
            t -= 1
            if t >= 0:
                i = trial[t]
                taken[i] = False
                left += price[i]
            continue
        i = children[t, at[t]]
        trial[t] = i
        if t == size - 1:
            lower = bounds[t, at[t]]
            order[:size] = trial
            at[t] += 1
            continue
        at[t] += 1
        e = place[i * size + t]
        gains[t + 1] = gains[t] + push(
            skip,
            click,
            reward,
            e,
            n_histories[t],
            n_histories[t + 1],
            after[t],
            downs[t],
            downs[t + 1],
        )
        taken[i] = True
        left -= price[i]
        t += 1
        is_new = True
    upper = lower
    if t >= 0:
        # Cut short: the page that was not looked into, and all brothers further right.
        if is_new:
            upper = max(upper, bounds[t - 1, at[t - 1] - 1]) if t > 0 else np.inf
            t -= 1
        for k in range(t + 1):
            if at[k] < n_children[k]:
                upper = max(upper, bounds[k, at[k]])
    return lower, upper


def search_pages(
    first, last, asked, candidate_start, place_start, sizes, place, skip, click, reward, begin,
    end, n_histories, after, pin, kinds, most, near, shown, n_rounds, most_nodes, best, lower,
    upper,
):  # fmt: skip
    """For each query that is asked about: the best page that was found, what it is worth, and what
    no page exceeds.

    `best[q, t]` is a candidate of the query, counted from its first; `shown[q, t]` a page to begin
    with, unless -1. Where no page keeps to the rules, best is -1; if that is proven, so is upper.
    """
    n_all, n_states = reward.shape[1], reward.shape[2]
    for number in range(first, last):
        q = asked[number]
        start = candidate_start[q]
        n = candidate_start[q + 1] - start
        size = sizes[q]
        own_place = place[place_start[q] : place_start[q + 1]]
        own_pin, own_kinds = pin[start : start + n], kinds[:, start : start + n]
        holder = np.full(size, -1, np.int64)
        for i in range(n):
            if own_pin[i] >= 0:
                holder[own_pin[i]] = i
        steps = np.zeros((size + 1, n_all), np.int64)
        counts = np.zeros(size + 1, np.int64)
        for t in range(size + 1):
            counts[t] = n_histories[t]
            steps[t] = after[min(t, after.shape[0] - 1)]
        up = np.zeros((size + 1, n_all, n_states))
        downs = np.zeros((size + 1, n_all, n_states))
        ups = np.zeros((size + 1, n_all, n_states))
        use = np.zeros((size, n_all, n_states), np.int64)
        vectors = np.zeros((2, n_all, n_states))
        below = np.zeros((n_all, n_states))
        order = np.full(size, -1, np.int64)
        trial = np.full(size, -1, np.int64)
        price, best_price = np.zeros(n), np.zeros(n)
        times = np.zeros(n)
        up[size] = end
        low = -np.inf
        high = np.inf
        # A page to begin with.
        if shown[q, 0] >= 0:
            trial[:] = shown[q, :size]
            if is_allowed(trial, size, own_pin, own_kinds, most, near, holder):
                order[:] = trial
                low = exchanged(
                    skip, click, reward, own_place, n, size, own_pin, holder, own_kinds, most,
                    near, begin[q], end, counts, steps, downs, ups, vectors, order, trial,
                )  # fmt: skip
                best[q, :size] = order
        pace = 1.0
        for turn in range(n_rounds + 1):
            relaxed(
                skip, click, reward, own_place, n, size, own_pin, holder, price, counts, steps,
                up, use,
            )  # fmt: skip
            total = 0.0
            for s in range(n_states):
                total += begin[q, s] * up[0, 0, s]
            for i in range(n):
                total += price[i]
            if total < high - _SMALL * (1.0 + abs(total)):
                high = total
                best_price[:] = price
            else:
                pace *= 0.9
            if turn % 16 == 0:
                # What the relaxation suggests is often the best page.
                is_page = greedy(
                    skip, click, reward, own_place, n, size, own_pin, holder, own_kinds, most,
                    near, price, begin[q], counts, steps, up, vectors, below, order,
                )  # fmt: skip
                if is_page:
                    found = exchanged(
                        skip, click, reward, own_place, n, size, own_pin, holder, own_kinds,
                        most, near, begin[q], end, counts, steps, downs, ups, vectors, order,
                        trial,
                    )  # fmt: skip
                    if found > low:
                        low = found
                        best[q, :size] = order
            if high - low <= 1e-10 * (1.0 + abs(low)):
                break
            used(
                skip, click, reward, own_place, n, size, begin[q], counts, steps, use, vectors,
                times,
            )  # fmt: skip
            norm = 0.0
            for i in range(n):
                slope = times[i] - 1.0
                if price[i] > 0.0 or slope > 0.0:
                    norm += slope * slope
            if norm <= _SMALL:
                break
            gap = total - low if low > -np.inf else abs(total) + 1.0
            step = pace * gap / norm
            for i in range(n):
                price[i] = max(0.0, price[i] + step * (times[i] - 1.0))
        if most_nodes > 0 and high - low > 1e-10 * (1.0 + abs(low)):
            relaxed(
                skip, click, reward, own_place, n, size, own_pin, holder, best_price, counts,
                steps, up, use,
            )  # fmt: skip
            order[:] = best[q, :size]
            start_low = low if low > -np.inf else -1e300
            low_found, bound = branched(
                skip, click, reward, own_place, n, size, own_pin, holder, own_kinds, most, near,
                begin[q], end, counts, steps, best_price, up, downs, below, order, start_low,
                most_nodes,
            )  # fmt: skip
            if low_found > -1e300:
                low = low_found
                best[q, :size] = order
                high = max(low, min(high, bound))
            elif bound <= -1e300:
                high = -np.inf
        lower[q] = low
        upper[q] = high


def page_vectors(
    first, last, candidate_start, place_start, sizes, place, skip, click, reward, end,
    n_histories, after, best, values,
):  # fmt: skip
    """`values[q, t]` gets what lies before users above rank t of the best page of each query."""
    for q in range(first, last):
        size = sizes[q]
        values[q, size] = end
        for t in range(size - 1, -1, -1):
            if best[q, t] < 0:
                continue
            e = place[place_start[q] + best[q, t] * size + t]
            m = n_histories[t]
            pull(skip, click, reward, e, m, after[t], values[q, t + 1], values[q, t])


def add_moments(
    first, last, candidate_start, place_start, sizes, place, skip, click, reward, n_histories,
    after, values, sums, squares,
):  # fmt: skip
    """Add what each candidate brings at each rank of the best page, for one draw, and its square.

    Whatever else is on the page stays as `values` has it.
    """
    n_all, n_states = reward.shape[1], reward.shape[2]
    found = np.zeros((n_all, n_states))
    for q in range(first, last):
        size = sizes[q]
        for k in range(place_start[q + 1] - place_start[q]):
            t = k % size
            e = place[place_start[q] + k]
            m = n_histories[t]
            pull(skip, click, reward, e, m, after[t], values[q, t + 1], found)
            for h in range(m):
                for s in range(n_states):
                    sums[e, h, s] += found[h, s]
                    squares[e, h, s] += found[h, s] * found[h, s]
