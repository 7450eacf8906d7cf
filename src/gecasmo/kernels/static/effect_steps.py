"""Kernels for regressions on features and the effects of levels, over many rows.

`numeric` has the features of rows, `places[row, table]` the column of the row's level among all
coefficients. A level that was never seen has a place behind the last one: vectors have one number
more than there are columns, which is zero where it is read and dropped where it is written.
"""

from __future__ import annotations

import math

import numpy as np

from gecasmo.kernels.static.vector_math import exp_of, log_of

# mypy: ignore-errors

SOME = 64  # rows whose points are looked at together


def times_rows(numeric, places, vector, out):
    """`out[row]`: the features of each row times their coefficients, and its effects."""
    n_features = numeric.shape[1]
    n_tables = places.shape[1]
    for row in range(len(out)):
        total = 0.0
        for k in range(n_features):
            total += numeric[row, k] * vector[k]
        for k in range(n_tables):
            total += vector[places[row, k]]
        out[row] = total


def add_rows(numeric, places, per_row, out):
    """Add to `out` the features of each row times a number of its own: the transposed of that."""
    n_features = numeric.shape[1]
    n_tables = places.shape[1]
    for row in range(len(per_row)):
        value = per_row[row]
        for k in range(n_features):
            out[k] += numeric[row, k] * value
        for k in range(n_tables):
            out[places[row, k]] += value


def normal_times(numeric, places, weight, penalty, vector, out):
    """`out` gets the normal matrix times a vector: there and back in one walk over the rows."""
    n_features = numeric.shape[1]
    n_tables = places.shape[1]
    last = len(out) - 1
    vector[last] = 0.0
    for k in range(last):
        out[k] = penalty[k] * vector[k]
    out[last] = 0.0
    for row in range(len(weight)):
        total = 0.0
        for k in range(n_features):
            total += numeric[row, k] * vector[k]
        for k in range(n_tables):
            total += vector[places[row, k]]
        total *= weight[row]
        for k in range(n_features):
            out[k] += numeric[row, k] * total
        for k in range(n_tables):
            out[places[row, k]] += total


def solve_rows(numeric, places, weight, penalty, scale, right, exactly, most, solution):
    """Conjugate gradients on the normal equations, preconditioned by their diagonal, `scale`, until
    the residual is so small a share of the right side. `solution` is where it begins and ends."""
    n = len(right)
    residual = np.empty(n)
    direction = np.zeros(n + 1)
    there = np.empty(n + 1)
    direction[:n] = solution
    normal_times(numeric, places, weight, penalty, direction, there)
    size = 0.0
    along = 0.0
    for k in range(n):
        residual[k] = right[k] - there[k]
        size += right[k] * right[k]
    for k in range(n):
        direction[k] = residual[k] / scale[k]
        along += residual[k] * direction[k]
    enough = exactly * exactly * size
    for _ in range(most):
        left = 0.0
        for k in range(n):
            left += residual[k] * residual[k]
        if left <= enough:
            break
        normal_times(numeric, places, weight, penalty, direction, there)
        bend = 0.0
        for k in range(n):
            bend += direction[k] * there[k]
        if not bend > 0.0:
            break
        step = along / bend
        ahead = 0.0
        for k in range(n):
            solution[k] += step * direction[k]
            residual[k] -= step * there[k]
            ahead += residual[k] * residual[k] / scale[k]
        turn = ahead / along
        along = ahead
        for k in range(n):
            direction[k] = residual[k] / scale[k] + turn * direction[k]


def tilt_rows(
    first, last, size, counts, sure, given, around, prior, nodes, shares, is_probit, of_rates, out
):
    """Mean and variance of each row's predictor, or of its probability, under its likelihood and a
    normal prior (see `forms.crossed.tilted_moments`); `out`, `counts`, `sure`, `around` and `prior`
    are `[which, row]`. Rows from chunk `first` to `last` of a size."""
    n_nodes = len(nodes)
    end = min(last * size, counts.shape[1])
    up = np.empty(SOME * n_nodes)
    joint = np.empty(SOME * n_nodes)
    value = np.empty(SOME * n_nodes)
    rest = np.empty(SOME * n_nodes)
    logs = np.empty(SOME * n_nodes)
    scratch = np.empty((2, SOME * n_nodes), np.int64)
    for begin in range(first * size, end, SOME):
        n_rows = min(SOME, end - begin)
        n = n_rows * n_nodes
        for r in range(n_rows):
            row = begin + r
            width = math.sqrt(2.0 * around[1, row])
            for k in range(n_nodes):
                at = around[0, row] + width * nodes[k]
                off = at - prior[0, row]
                joint[r * n_nodes + k] = nodes[k] * nodes[k] - 0.5 * off * off / prior[1, row]
                value[r * n_nodes + k] = at
        # Probabilities, and what is left of them.
        if is_probit:
            for r in range(n_rows):
                for k in range(n_nodes):
                    there = given[begin + r] + value[r * n_nodes + k]
                    there = min(max(there, -8.2), 8.2) * 0.7071067811865476
                    up[r * n_nodes + k] = 0.5 * math.erfc(-there)
                    rest[r * n_nodes + k] = 0.5 * math.erfc(there)
        else:
            for r in range(n_rows):
                for k in range(n_nodes):
                    there = given[begin + r] + value[r * n_nodes + k]
                    logs[r * n_nodes + k] = -min(max(there, -36.0), 36.0)
            exp_of(n, logs, up, scratch)
            for k in range(n):
                small = up[k]
                up[k] = 1.0 / (1.0 + small)
                rest[k] = small / (1.0 + small)
        if of_rates:
            value[:n] = up[:n]
        for r in range(n_rows):
            row = begin + r
            for k in range(n_nodes):
                place = r * n_nodes + k
                up[place] = 1.0 - sure[0, row] + sure[0, row] * up[place]
                rest[place] = 1.0 - sure[1, row] + sure[1, row] * rest[place]
        # What a point is worth, by tails and by heads.
        log_of(n, rest, logs, scratch)
        for r in range(n_rows):
            for k in range(n_nodes):
                joint[r * n_nodes + k] += counts[1, begin + r] * logs[r * n_nodes + k]
        log_of(n, up, logs, scratch)
        for r in range(n_rows):
            highest = -np.inf
            for k in range(n_nodes):
                place = r * n_nodes + k
                joint[place] += counts[0, begin + r] * logs[place]
                highest = max(highest, joint[place])
            for k in range(n_nodes):
                joint[r * n_nodes + k] -= highest
        exp_of(n, joint, up, scratch)
        for r in range(n_rows):
            total = 0.0
            mean = 0.0
            for k in range(n_nodes):
                place = r * n_nodes + k
                up[place] *= shares[k]
                total += up[place]
                mean += up[place] * value[place]
            mean /= total
            variance = 0.0
            for k in range(n_nodes):
                place = r * n_nodes + k
                variance += up[place] * (value[place] - mean) * (value[place] - mean)
            out[0, begin + r] = mean
            out[1, begin + r] = max(variance / total, 1e-16)
