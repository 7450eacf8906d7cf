"""Learn the prior of a coin's rows from their likelihoods: slopes, effects, and how far both stray.

Every row counts with its whole likelihood, integrated over its Beta prior: hidden flips are neither
taken for seen ones nor left out. Slopes climb by Newton's method, together with the coins that all
pages share (`joint.py`). The belief about an effect is a normal distribution, found by variational
Bayes: its precision is the mean curvature of the rows that share it. A row's own pages must not
speak twice, so its prior has the effects as all other rows tell them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.posteriors.likelihood import RowLikelihood
from gecasmo.estimation.posteriors.moments import narrow_moments_of
from gecasmo.forms.memory import RowPast
from gecasmo.forms.priors import (
    FARTHEST,
    FEWEST_LEVELS,
    NODE_WEIGHTS,
    NODES,
    STRONGEST,
    WEAKEST,
    Design,
    Effect,
    Priors,
    within_reach,
)

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# What the strength of a middling row is before any row is seen: its logarithm, and how sure that
# is. Rows that were flipped once each cannot tell a strength at all.
_USUAL, _UNSURE = np.log(3.0), 3.0
# Effects that stray by less, in logits, are none; nobody waits for how far they stray below that.
_NOTHING, SETTLED = 0.03, 0.15
_WIDEST, _FREE = 4.0, 1.5
# Effects that are known up to such a variance are as good as known.
_SURE = 0.01
# Steps of the regression that finds a beginning; logits beyond which it does not go, and how alike
# the flips of a row may seem to it (correlations).
_BEGINNING, _BEYOND, _ALIKE = 6, 5.0, (0.05, 0.5)
# Columns take so many turns until their effects agree.
_TURNS = 4


class Bends(NamedTuple):
    """Of each row, derivatives of the logarithm of its integrated likelihood by the logit of its
    prior's mean (m) and by the logarithm of its strength (s)."""

    m: Floats
    s: Floats
    mm: Floats
    ms: Floats
    ss: Floats


def bends(
    likelihood: RowLikelihood | Floats,
    rows: Integers,
    logit: Floats,
    log_strength: Floats,
    past: RowPast | None = None,
) -> Bends:
    """The derivatives of some rows: what is known after looking, less what was known before.

    `likelihood` is that of rows on points, or `[heads or tails, row]`, if rows were flipped for all
    to see.
    """
    s, m = np.exp(log_strength), 1 / (1 + np.exp(-np.clip(logit, -FARTHEST, FARTHEST)))
    prior = np.stack([s * m, s * (1 - m)])
    used = prior if past is None else past.under(prior)
    # What is known by now of global coins was not known before.
    before = _of_beta(used if past is None else replace(past, shift=None).under(prior))
    if isinstance(likelihood, RowLikelihood):
        after = np.stack(narrow_moments_of(likelihood, rows, used)[3:])
    else:
        after = _of_beta(used + likelihood[:, rows])
    p, q, pp, qq, pq = after - before
    share = np.ones_like(prior) if past is None else past.share
    scale = s * m * (1 - m)
    (am, bm), (a_s, b_s) = share * scale * [[1.0], [-1.0]], share * prior
    by_m = am * p + bm * q
    by_s = a_s * p + b_s * q
    return Bends(
        by_m,
        by_s,
        am**2 * pp + bm**2 * qq + 2 * am * bm * pq + (1 - 2 * m) * by_m,
        am * a_s * pp + bm * b_s * qq + (am * b_s + bm * a_s) * pq + by_m,
        a_s**2 * pp + b_s**2 * qq + 2 * a_s * b_s * pq + by_s,
    )


def _of_beta(counts: Floats) -> Floats:
    """Means, variances and the covariance of log p and log(1 - p) under Beta distributions."""
    (first, bend), (second, bend_too) = _gammas(counts[0]), _gammas(counts[1])
    both, less = _gammas(counts.sum(axis=0))
    return np.stack([first - both, second - both, bend - less, bend_too - less, -less])


def _gammas(x: Floats) -> tuple[Floats, Floats]:
    """The first and second derivative of log Gamma: by recurrence up to where its asymptotic series
    is exact to 1e-11, and a dozen times faster than functions that take any argument."""
    down, up = np.zeros_like(x), np.zeros_like(x)
    for k in range(8):
        step = 1 / (x + k)
        down += step
        up += step * step
    z = x + 8
    r = 1 / z
    q = r * r
    first = np.log(z) - 0.5 * r - q * (1 / 12 - q * (1 / 120 - q * (1 / 252 - q / 240)))
    second = r + 0.5 * q + q * r * (1 / 6 - q * (1 / 30 - q * (1 / 42 - q / 30)))
    return first - down, second + up


@dataclass
class LevelSystem:
    """The part of a Newton system that is about the effects of one column's values: their scores
    and precisions, and what they have in common with slopes and with shared numbers, `[number,
    value]`. `index` is the value of each row of the coin."""

    index: Integers
    score: Floats
    precision: Floats
    slopes: Floats
    shared: Floats

    def sums(self, rows: Integers, values: Floats) -> Floats:
        """The sums of the lines of `values`, which belong to these rows, by value."""
        index, n = self.index[rows], len(self.score)
        found = np.zeros((len(values), n))
        for line, own in enumerate(values):
            found[line] = np.bincount(index, own, n)
        return found

    def without(self, other: LevelSystem, rows: Integers, says: Floats) -> LevelSystem:
        """What is left of these effects when those of another column follow them, if each row has
        so much to say. Two values of this column are taken not to meet in one of the other's more
        often than by chance."""
        give = says / other.precision[other.index[rows]]
        place = other.index[rows]
        return LevelSystem(
            self.index,
            self.score - self.sums(rows, (give * other.score[place])[None])[0],
            self.precision - self.sums(rows, (give * says)[None])[0],
            self.slopes - self.sums(rows, give * other.slopes[:, place]),
            self.shared - self.sums(rows, give * other.shared[:, place]),
        )


@dataclass
class Slopes:
    """The part of a Newton system that is about a coin's priors: all slopes, means first."""

    score: Floats
    information: Floats
    levels: list[LevelSystem]
    pull: Floats  # the part of the score that is not the log's
    hold: Floats


class Regression:
    """The learned prior of a coin, while it is being learned from the likelihoods of `rows`."""

    def __init__(self, design: Design, priors: Priors, past: Any = None) -> None:
        self.design, self.priors, self.past = design, priors, past
        n_rows = len(design.rows)
        # What each row says of the logit of its mean: slope and precision.
        self.says = np.zeros((2, n_rows))
        self.rows: Integers = np.zeros(0, np.int64)
        self._linear: tuple[Any, Floats] = (None, np.zeros((2, 0)))
        self.restless = 0.0  # how much spreads of effects have changed in the last step
        self.held: frozenset[str] = frozenset()  # effects that stay as they are

    def begin(self, counts: Floats) -> None:
        """Put the slopes near where they will end, from expected counts, `[tails or heads, row]`:
        an ordinary regression in which rows count by the flips that they are worth, a few steps of
        it. Climbing all the way there takes ten times as long."""
        n_flips = counts.sum(axis=0)
        rows = np.flatnonzero(n_flips > 1e-6)
        slopes = self.priors.slopes.copy()
        if len(rows) < 2 * slopes.shape[1]:
            return
        n, share = n_flips[rows], counts[1, rows] / n_flips[rows]
        z = self.whole_basis[rows]
        strength = np.exp(slopes[1, 0])
        for _ in range(_BEGINNING):
            _, hold = self._usual(slopes)
            logit = np.clip(z @ slopes[0], -_BEYOND, _BEYOND)
            m = 1 / (1 + np.exp(-logit))
            room = m * (1 - m)
            weight = n * room / (1 + np.maximum(n - 1, 0.0) / (strength + 1))
            wanted = z.T @ (weight * (logit + (share - m) / room))
            slopes[0] = np.linalg.solve((z.T * weight) @ z + np.diag(hold[0]), wanted)
            off = np.sum((n * (share - m)) ** 2 / room - n) / np.sum(n * np.maximum(n - 1, 1e-9))
            strength = 1 / np.clip(off, *_ALIKE) - 1
        slopes[0, 0] = np.clip(slopes[0, 0], -_BEYOND, _BEYOND)
        slopes[1, 0] = np.log(strength)
        self.priors = replace(self.priors, slopes=slopes)

    @property
    def size(self) -> int:
        """Number of coefficients."""
        return int(self.priors.slopes.size)

    @property
    def told(self) -> Floats:
        """How much each known row says of the logit of its mean."""
        told: Floats = self.says[1, self.rows]
        return told if self.past is None else told + self.past.sites[1, self.rows]

    @cached_property
    def whole_basis(self) -> Floats:
        """What slopes are multiplied with, for all rows of the design."""
        return self.priors.basis(self.design.typical, len(self.design.rows))

    def linear(self) -> Floats:
        """Logits of means and logarithms of strengths of all rows without effects; not to be
        written to, since they are kept as long as slopes are."""
        slopes, known = self._linear
        if slopes is not self.priors.slopes:
            if "whole_basis" in self.__dict__:
                known = within_reach(self.priors.slopes @ self.whole_basis.T)
            else:
                known = self.priors.linear(self.design.typical, len(self.design.rows))
            self._linear = (self.priors.slopes, known)
        return known

    def _moves(self, effect: Effect) -> bool:
        return effect.spread > 0 and effect.name not in self.held

    def pseudo(self) -> Floats:
        """The Beta prior of every row in view of everything but its own pages."""
        if self.past is None:
            return self.design.pseudo(self.priors, self.says, self.linear())
        says = self.says + self.past.says(self.design.logit(self.priors))
        pseudo = self.design.pseudo(self.priors, says, self.linear())[:, : self.past.n_met]
        found: Floats = self.past.rows.under(pseudo)
        return found

    def of_prior(self, pseudo: Floats) -> Floats:
        """The part of rows' heads and tails that moves with priors; the past does not."""
        if self.past is None:
            return pseudo
        found: Floats = self.past.rows.share * self.past.rows.without(pseudo)
        return found

    def look(
        self,
        likelihood: RowLikelihood | Floats,
        counted: NDArray[np.bool_],
        with_basis: bool = True,
    ) -> None:
        """Take in what is known of rows now; those that do not count are left out."""
        known = likelihood.known if isinstance(likelihood, RowLikelihood) else True
        self.rows = np.flatnonzero(known & counted)
        n_rows, effects = len(self.design.rows), self.priors.effects
        linear = self.linear()[:, self.rows]
        variance = np.zeros(len(self.rows))
        for effect, level in zip(effects, self.design.levels, strict=True):
            index = level.index[self.rows]
            if effect.spread > 0:
                linear[0] = np.clip(linear[0] + effect.mean[index], -FARTHEST, FARTHEST)
                variance += effect.variance[index]
        past = None if self.past is None else self.past.rows.at(self.rows)
        total = np.stack(bends(likelihood, self.rows, linear[0], linear[1], past))
        unsure = np.flatnonzero(variance > _SURE)
        if with_basis and len(unsure):
            total[:, unsure] *= NODE_WEIGHTS[1]
            for node, weight in ((NODES[0], NODE_WEIGHTS[0]), (NODES[2], NODE_WEIGHTS[2])):
                at = linear[0, unsure] + node * np.sqrt(variance[unsure])
                own = None if past is None else past.at(unsure)
                rows, strength = self.rows[unsure], linear[1, unsure]
                total[:, unsure] += weight * np.stack(bends(likelihood, rows, at, strength, own))
        self.says = np.zeros((2, n_rows))
        self.says[:, self.rows] = total[0], np.maximum(-total[2], 0.0)
        if self.past is not None:
            total = self._with_past(total)
        self.bends = Bends(*total)
        self.basis = np.zeros((len(self.rows), 0))
        if with_basis:
            self.basis = self.whole_basis[self.rows]

    def _with_past(self, new: Floats) -> Floats:
        """The derivatives of all rows that speak in the new log or have spoken before."""
        slope, precision = self.past.since(self.design.logit(self.priors))
        silent = np.ones(len(slope), bool)
        silent[self.rows] = False
        slope += silent * self.past.leant  # of others the likelihood knows
        total = np.zeros((len(new), len(slope)))
        total[:, self.rows] = new
        total[0] += slope
        total[2] -= precision
        self.rows = np.flatnonzero(np.any(total != 0, axis=0))
        return total[:, self.rows]

    def slopes(self) -> Slopes:
        """Scores and information of the slopes, those of their own priors included."""
        by, z = self.bends, self.basis
        score = np.concatenate([z.T @ by.m, z.T @ by.s])
        mm, ms, ss = ((z.T * -bend) @ z for bend in (by.mm, by.ms, by.ss))
        information = np.block([[mm, ms], [ms, ss]])
        pull, hold = self._held()
        return Slopes(score + pull, information + hold, self._levels(), pull, np.diag(hold))

    def _levels(self) -> list[LevelSystem]:
        """The systems of effects; what they have in common with slopes where these are looked
        at."""
        by, z = self.bends, self.basis
        levels = []
        for number, level in enumerate(self.design.levels):
            effect = self.priors.effects[number]
            index, n = level.index[self.rows], len(effect.mean)
            if not self._moves(effect):
                continue
            precision = np.bincount(index, self.told, n).astype(np.float64) + effect.spread**-2
            own = np.bincount(index, by.m, n) - effect.mean * effect.spread**-2
            if self.past is not None:
                own += self.past.told_of_effects(number)
            found = LevelSystem(
                level.index, own, precision, np.zeros((self.size, n)), np.zeros((0, n))
            )
            if z.shape[1]:
                common = np.vstack([z.T * -by.mm, z.T * -by.ms])
                found.slopes = found.sums(self.rows, common)
            levels.append(found)
        return levels

    def _held(self) -> tuple[Floats, Floats]:
        """Score and information of what is known before any row is seen: the priors of slopes, and
        what earlier logs have left of them."""
        pull, hold = self._usual(self.priors.slopes)
        if self.past is None or self.past.priors.information is None:
            return pull.ravel(), np.diag(hold.ravel())
        # Of means, rows of the past tell themselves; that was in balance with what is usual.
        share, then = self.past.hold, self.past.priors.slopes
        pull[0] -= share * self._usual(then)[0][0]
        n = then.shape[1]
        told = share * self.past.priors.information[n:, n:]
        pull[1] = (1 - share) * pull[1] - told @ (self.priors.slopes[1] - then[1])
        hold[1] *= 1 - share
        information = np.diag(hold.ravel())
        information[n:, n:] += told
        return pull.ravel(), information

    def _usual(self, slopes: Floats) -> tuple[Floats, Floats]:
        """Score and information of the priors of slopes, `[which, slope]`."""
        m = 1 / (1 + np.exp(-slopes[0, 0]))
        pull, hold = np.zeros_like(slopes), np.zeros_like(slopes)
        # Two rows of 1/2 are added to what is seen: where nothing tells a mean, it is 1/2.
        pull[0, 0], hold[0, 0] = 1 - 2 * m, 2 * m * (1 - m)
        pull[1, 0], hold[1, 0] = -(slopes[1, 0] - _USUAL) / _UNSURE**2, 1 / _UNSURE**2
        for which in range(2):
            for part, spread, steep in zip(
                self.priors.parts(),
                self.priors.spreads[which],
                self.priors.steepness[which],
                strict=True,
            ):
                hold[which, part] = spread**-2
                hold[which, part.start] = steep**-2
                pull[which, part] = -slopes[which, part] * hold[which, part]
        return pull, hold

    def claimed(self) -> Floats:
        """How much of the information of slopes comes from how steep lines were found to be of
        which only the log is to tell: where it cannot tell them from global coins, that is a claim
        about these."""
        found = np.zeros_like(self.priors.slopes)
        smooths = zip(self.priors.parts(), self.priors.smooths, strict=True)
        for steep, (part, smooth) in zip(self.priors.steepness[0], smooths, strict=True):
            if smooth.is_open[0] and self.past is None:
                found[0, part.start] = steep**-2 - smooth.steepest[0] ** -2
        return found.ravel()

    def moved(self, shared: Floats, step: Floats, levels: list[LevelSystem]) -> None:
        """Move slopes by a step, and effects along with them and with the global numbers."""
        slopes = self.priors.slopes + step.reshape(self.priors.slopes.shape)
        slopes[0, 0] = np.clip(slopes[0, 0], -FARTHEST, FARTHEST)
        slopes[1, 0] = np.clip(slopes[1, 0], WEAKEST, STRONGEST)
        self.restless = 0.0
        moves = self._followed(shared, step, levels)
        effects = []
        for effect, level in zip(self.priors.effects, self.design.levels, strict=True):
            if self._moves(effect):
                effect = self._effect(effect, level.index[self.rows], next(moves))
            effects.append(effect)
        self.priors = replace(self.priors, slopes=slopes, effects=tuple(effects))

    def _followed(
        self, shared: Floats, step: Floats, levels: list[LevelSystem]
    ) -> Iterator[Floats]:
        """How far effects go along: one column after the other, each in view of all others."""
        moves = [np.zeros(len(level.score)) for level in levels]
        left = [level.score - level.slopes.T @ step - level.shared.T @ shared for level in levels]
        says = self.told
        gone = np.zeros(len(self.rows))  # how far rows have moved
        for _ in range(_TURNS if len(levels) > 1 else 1):
            for number, level in enumerate(levels):
                index = level.index[self.rows]
                others = gone - moves[number][index]
                score = left[number] - level.sums(self.rows, (says * others)[None])[0]
                moves[number] = np.clip(score / level.precision, -1.0, 1.0)
                gone = others + moves[number][index]
        return iter(moves)

    def _effect(self, effect: Effect, own: Integers, move: Floats) -> Effect:
        n, spread = len(effect.mean), effect.spread
        precision = np.bincount(own, self.told, n) + spread**-2
        mean, variance = effect.mean + move, 1 / precision
        # A level with one row cannot be told from that row.
        several = np.bincount(own, minlength=n) > 1
        if several.sum() < FEWEST_LEVELS:  # too few to tell how far they stray: freely
            return replace(effect, mean=mean, variance=variance).with_spread(_FREE)
        told = float((1 - variance[several] / spread**2).sum())
        squares = float((mean[several] ** 2).sum())
        ratio = (squares + 1e-9) / max(told * spread**2, 1e-9)
        # Further than that on the way down: what goes to zero goes slowly.
        spread *= float(np.clip(ratio, 0.1, 4.0) ** (1.25 if ratio < 0.95 else 0.5))
        if spread > SETTLED:
            self.restless = max(self.restless, abs(spread / effect.spread - 1))
        if spread < _NOTHING:
            return replace(effect, mean=np.zeros(n), variance=np.zeros(n), spread=0.0)
        spread = min(spread, _WIDEST)
        variance = 1 / (precision - effect.spread**-2 + spread**-2)
        return replace(effect, mean=mean, variance=variance, spread=spread)

    def follow(self, evidence: Floats, counted: NDArray[np.bool_]) -> None:
        """Find the effects of all rows, of which so much was seen; what was learned of priors from
        some of them stays."""
        spreads = [effect.spread for effect in self.priors.effects]
        self.look(evidence, counted, with_basis=False)
        if not any(map(self._moves, self.priors.effects)):
            return
        before = [effect.mean for effect in self.priors.effects]
        self.moved(np.zeros(0), np.zeros(self.size), self._levels())
        effects = zip(self.priors.effects, spreads, strict=True)
        self.priors = replace(
            self.priors, effects=tuple(effect.with_spread(spread) for effect, spread in effects)
        )
        for effect, level, old in zip(self.priors.effects, self.design.levels, before, strict=True):
            self.says[0] -= self.says[1] * (effect.mean - old)[level.index]

    def spread_out(self, variance: Floats) -> None:
        """Learn how far the slopes of functions stray, given how sure they are."""
        if self.past is not None:
            return
        slopes = self.priors.slopes
        variance = variance.reshape(slopes.shape)
        spreads, steepness = self.priors.spreads.copy(), self.priors.steepness.copy()
        for number, part in enumerate(self.priors.parts()):
            line, bends = part.start, slice(part.start + 1, part.stop)
            square = spreads[0, number] ** 2
            told = np.sum(1 - np.minimum(variance[0, bends] / square, 1.0))
            bent = np.sum(slopes[0, bends] ** 2)
            spreads[0, number] = np.sqrt((bent + 0.001) / (told + 0.5))
            squares = slopes[:, line] ** 2
            unsure = np.minimum(variance[:, line], steepness[:, number] ** 2)
            told = 1 - unsure / steepness[:, number] ** 2
            # Lines that the log does not support go, so that they cost nothing. Not those of a
            # row's own places: a claim that good rows are not shown higher up is one about
            # attention, and that they are is what any ranker is for.
            smooth = self.priors.smooths[number]
            closed = np.sqrt((squares + 0.003) / (told + 0.3))
            found = np.where(smooth.is_open, np.sqrt(squares + unsure), closed)
            steepness[:, number] = np.clip(found, 0.03, smooth.steepest)
        self.priors = replace(
            self.priors,
            spreads=np.clip(spreads, 0.02, 3.0),
            steepness=steepness,
        )
