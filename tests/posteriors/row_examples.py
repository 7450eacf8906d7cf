"""Places at random that say something of rows: sure flips, hidden ones and polynomials."""

from __future__ import annotations

import numpy as np

from gecasmo.estimation.posteriors.likelihood import Asked, Places

Floats = np.ndarray


def places(seed: int, n_places: int, n_rows: int, degree: int) -> tuple[Places, Asked]:
    """Sure flips, hidden ones and polynomials at random, on rows in any order."""
    rng = np.random.default_rng(seed)
    heads = rng.random(n_places) ** 2
    tails = (1 - heads) * rng.random(n_places)
    kind = rng.choice(["head", "tail", "nothing", "line"], n_places)
    heads[kind != "line"], tails[kind != "line"] = 0.0, 0.0
    heads[kind == "head"] = tails[kind == "tail"] = 1.0
    exact = np.zeros(n_places, np.int32)
    coefficients = np.zeros((1, 1))
    if degree:
        chosen = np.flatnonzero(rng.random(n_places) < 0.2)
        exact[chosen] = 1 + np.arange(len(chosen))
        exact[rng.random(n_places) < 0.1] = -1
        heads[exact != 0] = tails[exact != 0] = 0.0
        coefficients = rng.random((len(chosen) + 1, degree + 1)) + 0.01
    found = Places(
        rng.integers(0, n_rows, n_places).astype(np.uint32),
        *(heads, tails, 0.02 + 0.96 * rng.random(n_places)),
        rng.choice([0.0, 1.0, 1.0, 1.0, 2.5, 40.0], n_places),
        *(exact, coefficients),
    )
    prior = rng.gamma(1.0, 2.0, (2, n_rows)) + 0.02
    return found, Asked(0, rng.random(n_rows), prior, rng.random(n_rows) < 0.9)


def said(found: Places, place: int, p: Floats) -> Floats:
    """What one place says of its row's probability p, by the words of `row_grid`."""
    h, t, p0 = found.heads[place], found.tails[place], found.at[place]
    if found.exact[place] > 0:
        c = found.coefficients[found.exact[place] - 1]
        degree = len(c) - 1
        return sum(c[i] * p**i * (1 - p) ** (degree - i) for i in range(degree + 1))
    if h in (0.0, 1.0) and t in (0.0, 1.0):  # a sure flip, or none
        return p**h * (1 - p) ** t
    return h * p / p0 + t * (1 - p) / (1 - p0) + 1 - h - t
