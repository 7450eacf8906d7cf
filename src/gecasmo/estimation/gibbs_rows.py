"""The rows of one coin in a Gibbs sampler, and mean and strength of their prior."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.coins import Coin
from gecasmo.forms import TableState
from gecasmo.forms.beta_rows import RowPriors
from gecasmo.kernels.static.beta_steps import draw_rows, weigh_counts
from gecasmo.kernels.static.row_sweeps import n_chunks_of, sweep
from gecasmo.kernels.static.slide_steps import slide, slide_rows

Floats = NDArray[np.float64]

# Of proposals for the mean and strength of a prior so many should be accepted.
_ACCEPTED = 0.35
# How far apart chains begin, in logits.
_APART = 0.5
# No mean or strength of a prior is farther than that from where it began, in logarithms.
_FARTHEST = 25.0


@dataclass
class RowChain:
    """The rows of one coin in one chain.

    `weights` are those of the last draw, `[side, row]`; `moments` mean and second moment of the
    Beta distributions that it was drawn from; `hyper` moves the prior.
    """

    weights: Floats
    moments: Floats
    hyper: Floats


class TableRows:
    """One coin whose rows are drawn."""

    def __init__(self, number: int, coin: Coin, begun: TableState, is_free: bool) -> None:
        self.number, self.coin, self.begun = number, coin, begun
        self.priors = RowPriors.of(begun, is_free)
        given = begun.is_fixed
        self.is_given = np.zeros(0, np.bool_) if given is None else given
        self.n_rows = len(begun.probability)
        free = np.ones(self.n_rows, bool) if given is None else ~given
        self.n_free = int(free.sum())
        # What is believed of mean and strength is about rows that are free.
        self.believed = replace(self.priors, base=self.priors.base[:, free])

    def begin(self, stream: np.random.Generator) -> RowChain:
        """Somewhere near the start, each chain elsewhere."""
        p = np.clip(self.begun.probability, 1e-6, 1 - 1e-6)
        moved = np.log(p / (1 - p)) + _APART * stream.normal()
        p = 1 / (1 + np.exp(-moved))
        if len(self.is_given):
            p = np.where(self.is_given, self.begun.probability, p)
        return RowChain(np.stack([1 - p, p]), np.stack([p, p * p]), np.zeros(2))

    def evidence(self, hypers: Floats, counts: Floats) -> Floats:
        """How likely counts are, rows integrated out, and the two numbers themselves: for each of
        four pairs, `[pair, 2]`, as one look at all counts is hardly dearer for four."""
        sums = np.zeros((len(hypers), n_chunks_of(self.n_rows)))
        odds, scale = np.exp(hypers.T)
        sweep(
            weigh_counts,
            self.n_rows,
            [self.priors.base, odds, scale, counts, self.is_given, sums],
        )
        known: Floats = sums.sum(axis=1) + self.believed.log_density(hypers)
        return known

    def draw(self, hyper: Floats, counts: Floats, before: RowChain, key: int) -> RowChain:
        """Rows given how often they came up heads and tails."""
        weights, moments = before.weights.copy(), before.moments.copy()
        odds, scale = np.exp(hyper)
        given = [np.uint64(key), self.priors.base, float(odds), float(scale), counts]
        with np.errstate(over="ignore"):  # of kernels that are run as plain Python
            sweep(draw_rows, self.n_rows, [*given, self.is_given, weights, moments])
        return RowChain(weights, moments, hyper)

    def slid(self, own: RowChain, side: int, by: float) -> tuple[RowChain, float]:
        """All rows with one side (0 tails, 1 heads) multiplied by exp(by), or nearly so; their
        prior goes along. By how much the density of both grows, and with it, in logarithms, the
        room that they have."""
        hyper, gain = own.hyper, 0.0
        if self.priors.is_free:
            hyper, gain = self._slid_prior(hyper, side, by)
            gain += float(self.believed.log_density(hyper) - self.believed.log_density(own.hyper))
            if np.abs(hyper).max() > _FARTHEST:
                return own, -math.inf
        moved, sums = np.empty_like(own.weights), np.zeros(n_chunks_of(self.n_rows))
        priors = [self.priors.base, np.exp(own.hyper), np.exp(hyper)]
        given = [side, float(by), *priors, self.is_given, own.weights, moved, sums]
        sweep(slide_rows, self.n_rows, given)
        return RowChain(moved, own.moments, hyper), gain + float(sums.sum())

    def _slid_prior(self, hyper: Floats, side: int, by: float) -> tuple[Floats, float]:
        """The mean of the prior slides as rows do; as many flips on that side are believed as
        before, which makes the prior of small probabilities go exactly with them."""
        logit, log_strength = np.add(self.believed.centre(), hyper).tolist()
        away = logit if side else -logit
        near, far = 1 / (1 + math.exp(-away)), 1 / (1 + math.exp(away))
        near_then, far_then, held = slide(  # type: ignore[no-untyped-call]
            near, far, math.exp(by), math.exp(32.0 * by)
        )
        odds = math.log(near_then / far_then)
        then = (odds if side else -odds, log_strength - math.log(near_then / near))
        # The room of a logit is that of its probability, divided by p (1 - p).
        room = math.log(far / (far_then * held))
        return np.subtract(then, self.believed.centre()), room


class Proposals:
    """A random walk over mean and strength of one prior in one chain, which learns its steps."""

    def __init__(self, stream: np.random.Generator) -> None:
        self.stream = stream
        self.log_step = math.log(0.3)
        self.n = 0
        self.mean: Floats = np.zeros(2)
        self.squares: Floats = np.eye(2) * 0.01
        self.root: Floats = np.eye(2)

    def move(self, rows: TableRows, hyper: Floats, counts: Floats, learns: bool) -> Floats:
        """Draw the two numbers given counts, rows integrated out: two steps of a random walk.

        Both steps are drawn first, so that all places where they may lead are weighed at once.
        """
        size = math.exp(self.log_step)
        one, two = size * (self.stream.normal(size=(2, 2)) @ self.root.T)
        places: Floats = hyper + np.array([one * 0, one, two, one + two])
        np.clip(places, -_FARTHEST, _FARTHEST, out=places)
        known = rows.evidence(places, counts).tolist()
        now, chances = 0, []
        for where in ((1, 1), (2, 3)):  # from the first place, from the second
            then = where[now]
            chances.append(math.exp(min(known[then] - known[now], 0.0)))
            if self.stream.random() < chances[-1]:
                now = then
        if learns:
            for chance in chances:
                self.n += 1
                self.log_step += (chance - _ACCEPTED) / math.sqrt(self.n)
            self._learn(places[now])
        drawn: Floats = places[now]
        return drawn

    def _learn(self, hyper: Floats) -> None:
        away = hyper - self.mean
        weight = 2 / max(self.n, 1)
        self.mean = self.mean + weight * away
        self.squares = (1 - weight) * self.squares + weight * np.outer(away, away)
        spread = self.squares + 1e-4 * np.eye(2)
        unit = spread / math.sqrt(float(np.linalg.det(spread)))
        self.root = np.asarray(np.linalg.cholesky(unit), np.float64)
