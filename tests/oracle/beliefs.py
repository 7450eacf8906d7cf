"""Exact posteriors of rows by enumeration, and the steps of variational Bayes by hand.

Given which way every flip of every page came up, rows have Beta posteriors. So the posterior is a
mixture of products of Betas, over all combinations of stories of all pages: on tiny logs that is a
list. This module imports nothing of the library that it judges.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaln, digamma

from oracle.brute_force import Oracle, Signals

Row = tuple[str, Any]
Page = tuple[Oracle, Signals, int]  # the oracle, what was shown, and how often
Sides = dict[Row, list[float]]  # heads and tails


def told(page: Page) -> Counter[tuple[tuple[Row, int, int], ...]]:
    """The ways a page can have come about: heads and tails of its rows, and how often each way."""
    oracle, shown, _ = page
    ways: Counter[Any] = Counter()
    for story in oracle.stories:
        if story.signals != shown:
            continue
        sides: dict[Row, list[int]] = defaultdict(lambda: [0, 0])
        for fall in story.falls:
            sides[fall.coin, fall.row][0 if fall.heads else 1] += 1
        ways[tuple(sorted(((row, *both) for row, both in sides.items()), key=repr))] += 1
    return ways


@dataclass
class Exact:
    """The evidence of a log and the posterior moments of all rows under Beta(a, b) priors."""

    log_evidence: float
    mean: dict[Row, float]
    variance: dict[Row, float]


def exact_posterior(pages: list[Page], prior: tuple[float, float]) -> Exact:
    rows = sorted({row for page in pages for way in told(page) for row, *_ in way}, key=repr)
    place = {row: number for number, row in enumerate(rows)}
    ways: Counter[bytes] = Counter({np.zeros((2, len(rows)), np.int64).tobytes(): 1})
    for page in pages:
        steps = []
        for way, times in told(page).items():
            step = np.zeros((2, len(rows)), np.int64)
            for row, heads, tails in way:
                step[:, place[row]] = heads, tails
            steps.append((step, times))
        for _ in range(page[2]):
            following: Counter[bytes] = Counter()
            for before, n in ways.items():
                sides = np.frombuffer(before, np.int64).reshape(2, -1)
                for step, times in steps:
                    following[(sides + step).tobytes()] += n * times
            ways = following
            assert len(ways) < 200_000
    a, b = prior
    sides = np.stack([np.frombuffer(way, np.int64).reshape(2, -1) for way in ways])
    heads, tails = sides[:, 0] + a, sides[:, 1] + b
    logs = (betaln(heads, tails) - betaln(a, b)).sum(axis=1) + np.log(list(ways.values()))
    top = logs.max()
    share = np.exp(logs - top)
    evidence = top + np.log(share.sum())
    share /= share.sum()
    both = heads + tails
    mean = share @ (heads / both)
    second = share @ (heads * (heads + 1) / (both * (both + 1)))
    return Exact(
        float(evidence),
        dict(zip(rows, mean, strict=True)),
        dict(zip(rows, second - mean**2, strict=True)),
    )


def elbo_and_counts(
    pages: list[Page], belief: Sides, prior: tuple[float, float]
) -> tuple[float, Sides]:
    """The evidence lower bound at Beta beliefs, and the expected heads and tails under them."""
    logs = {}
    total = 0.0
    a0, b0 = prior
    for row, (a, b) in belief.items():
        both = digamma(a + b)
        logs[row] = heads, tails = digamma(a) - both, digamma(b) - both
        total += betaln(a, b) - betaln(a0, b0) - (a - a0) * heads - (b - b0) * tails
    counts: Sides = defaultdict(lambda: [0.0, 0.0])
    for page in pages:
        ways = told(page)
        weights = []
        for way, times in ways.items():
            power = sum(h * logs[row][0] + t * logs[row][1] for row, h, t in way)
            weights.append(times * np.exp(power))
        total += page[2] * np.log(sum(weights))
        for way, weight in zip(ways, weights, strict=True):
            for row, heads, tails in way:
                counts[row][0] += page[2] * weight / sum(weights) * heads
                counts[row][1] += page[2] * weight / sum(weights) * tails
    return float(total), counts
