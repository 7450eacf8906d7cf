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
from scipy.special import betaln, digamma, expit, log_expit

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


def ways_of(pages: list[Page]) -> tuple[list[Row], Any, Any]:
    """All rows; heads and tails of each in all the ways in which a log can have come about,
    `[way, heads or tails, row]`, and how often each way."""
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
    sides = np.stack([np.frombuffer(way, np.int64).reshape(2, -1) for way in ways])
    return rows, sides, np.array(list(ways.values()), float)


def exact_posterior(pages: list[Page], prior: tuple[float, float]) -> Exact:
    rows, sides, times = ways_of(pages)
    a, b = prior
    heads, tails = sides[:, 0] + a, sides[:, 1] + b
    logs = (betaln(heads, tails) - betaln(a, b)).sum(axis=1) + np.log(times)
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


# What is believed of priors that are drawn: their mean has a Beta(2, 2), the logarithm of their
# strength is normal; no side of them is worth less than a fiftieth of a flip.
LOG_STRENGTH, LOG_STRENGTH_SPREAD, LEAST = float(np.log(3.0)), 2.0, 0.02
# The grid of both, in logits and logarithms.
FARTHEST, STEP = 14.0, 0.2

Moments = tuple[float, float]  # mean and variance
Apart = tuple[float, float]  # logits and logarithms


@dataclass
class Drawn:
    """Posterior moments of rows, and of the mean and the logarithm of the strength of each coin's
    prior."""

    rows: dict[Row, Moments]
    means: dict[str, Moments]
    log_strengths: dict[str, Moments]


def drawn_priors(
    pages: list[Page],
    given: dict[str, tuple[float, float]],
    apart: dict[Row, Apart] | None = None,
) -> Drawn:
    """The posterior where priors of coins are unknown, but for those that are `given`. What is
    unknown are the mean and strength of a middling row; the priors of others may be `apart` from
    it, by so many logits and logarithms.

    In each of the ways a log can have come about, coins are independent of each other, rows are
    integrated out by hand, and what is left of a coin, mean and strength, is a sum over a grid.
    """
    rows, sides, times = ways_of(pages)
    logs = np.log(times)
    parts: list[tuple[str, list[Row], Any]] = []
    for coin in sorted({coin for coin, _ in rows}):
        own = [number for number, row in enumerate(rows) if row[0] == coin]
        combined, which = np.unique(sides[:, :, own], axis=0, return_inverse=True)
        away = [(apart or {}).get(rows[number], (0.0, 0.0)) for number in own]
        evidence, expected = _coin(combined, given.get(coin), away)
        logs = logs + evidence[which.ravel()]
        parts.append((coin, [rows[number] for number in own], expected[which.ravel()]))
    share = np.exp(logs - logs.max())
    share /= share.sum()
    found = Drawn({}, {}, {})
    for coin, own_rows, expected in parts:
        first, second = np.moveaxis(np.tensordot(share, expected, axes=1), -1, 0)
        of_prior, of_strength, *of_rows = zip(first, second - first**2, strict=True)
        found.rows.update(zip(own_rows, of_rows, strict=True))
        if coin not in given:
            found.means[coin], found.log_strengths[coin] = of_prior, of_strength
    return found


def _coin(sides: Any, given: tuple[float, float] | None, away: list[Apart]) -> tuple[Any, Any]:
    """For each of some counts of a coin's rows, `[which, heads or tails, row]`, their evidence, and
    expected values and squares of the prior's mean, its log strength and rows, `[.., what, 2]`."""
    if given is None:
        axis = np.arange(-FARTHEST, FARTHEST + STEP / 2, STEP)
        logit, log_strength = (each.ravel() for each in np.meshgrid(axis, axis + LOG_STRENGTH))
        mean, strength = expit(logit), np.exp(log_strength)
        # A Beta(2, 2) has the density p (1 - p), times p (1 - p) on the scale of logits.
        believed = 2 * (log_expit(logit) + log_expit(-logit))
        believed -= 0.5 * ((log_strength - LOG_STRENGTH) / LOG_STRENGTH_SPREAD) ** 2
        priors = []
        for more, stronger in away:
            own = strength * np.exp(stronger) * [expit(logit + more), expit(-logit - more)]
            priors.append(np.maximum(own, LEAST))
    else:
        a, b = np.array(given)[:, None]
        priors = [(a, b)] * len(away)
        mean, log_strength, believed = a / (a + b), np.log(a + b), np.zeros(1)
    logs, expected = [], []
    for heads, tails in sides:
        weights, values = believed.copy(), [mean, log_strength]
        squares = [mean**2, log_strength**2]
        for (a, b), h, t in zip(priors, heads, tails, strict=True):
            weights += betaln(a + h, b + t) - betaln(a, b)
            both = a + b + h + t
            values.append((a + h) / both)
            squares.append((a + h) * (a + h + 1) / (both * (both + 1)))
        top = weights.max()
        weights = np.exp(weights - top)
        logs.append(top + np.log(weights.sum()))
        weights /= weights.sum()
        expected.append(np.transpose([np.array(values) @ weights, np.array(squares) @ weights]))
    return np.array(logs), np.array(expected)


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
