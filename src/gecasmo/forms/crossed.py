"""What heads and tails say of coefficients and crossed effects: a normal belief, and the spreads.

A row's predictor is  features . b + an effect of its level in each table (+ one of its own). All of
these are normal before the log is seen; effects of a table have a spread, which is learned.

The belief is found by expectation propagation: the likelihood of each row is replaced by a normal
factor, so that the belief has the very mean and variance of the row's predictor that the true
likelihood would give in its place. Unlike the most likely point, whose coefficients are drawn
towards zero where rows are sparse, it does not take uncertain effects for known ones. The spreads
climb the same integrated likelihood: its derivative needs the mean square of the effects under the
belief only, so a table whose effects nobody can tell does not count as one without effects.

Of up to `DENSE` coefficients and effects the covariance is exact. Of more, variances come from
messages between rows and levels, which is exact where these have no loops, and means from conjugate
gradients; covariances of effects are then left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gecasmo.forms.features import MANY_ROWS, DesignMatrix, sums
from gecasmo.forms.form import Floats
from gecasmo.forms.linear import solve_iteratively
from gecasmo.forms.links import LINKS, Link
from gecasmo.kernels.static.effect_steps import tilt_rows
from gecasmo.kernels.static.row_steps import CHUNK
from gecasmo.kernels.static.row_sweeps import sweep

DENSE = 600
# Of more rows than these what spreads may be instead does not matter.
FEW_ROWS = 5_000
LEAST_SPREAD, MOST_SPREAD = 1e-3, 30.0
# Before the log is seen a spread has the density x exp(-x^2 / (2 usual^2)): zero at zero, since the
# best spread of a sparse log may well be none at all, which nobody believes (Chung et al. 2013).
_USUAL = 2.0
_LONGEST = 0.7  # step of the logarithm of a spread
_NODES, _NODE_WEIGHTS = np.polynomial.hermite.hermgauss(15)
_PIECE = 8192
# A coefficient without a prior is thought to be within tens of standardised units.
_LEAST_PRECISION = 1e-3
_ROUNDS, _SETTLED = 60, 3e-4
# How spreads other than the best are looked at: so many, and how closely each;
# unless enough is known of it.
_GRID, _ON_GRID, _ROUGHLY = 7, 10, 3e-3
_WELL_KNOWN = 60.0
_CLOSE = 0.01  # spreads have settled
_DAMPED = 0.8
_LEAST_SURE = 0.02
_LEVERAGE = 0.999


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known of rows: a design, heads and tails of each, and what is given of predictors.

    `sure` tells how sure heads and tails are, `[which, row]`: that a skip may not have been looked
    at makes it t log(1 - sure p) in place of t log(1 - p), and likewise for heads.
    `precision` is that of the prior of each column of the design; `tables` tells the columns of
    each table, whose precision is that of its spread; `start` is a guess of predictors.
    """

    design: DesignMatrix
    heads: Floats
    tails: Floats
    given: Floats
    precision: Floats
    tables: tuple[slice, ...]
    link: Link
    start: Floats
    sure: Floats

    def log_likelihood(self, own: slice, predictor: Floats) -> Floats:
        """Tell that of some rows, at several predictors each."""
        link, (of_heads, of_tails) = self.link, self.sure[:, own, None]
        up = np.log(1 - of_heads + of_heads * link.probability(predictor))
        down = np.log(1 - of_tails + of_tails * link.probability(-predictor))
        value: Floats = self.heads[own, None] * up + self.tails[own, None] * down
        return value


@dataclass(frozen=True, eq=False)
class EffectBelief:
    """A normal belief: means and variances of all columns, and of each row's own effect and
    predictor (what is given of it included); mean and deviation of each row's probability.
    `covariance` is that of all columns if there are few, else of those that are no levels."""

    mean: Floats
    variance: Floats
    covariance: Floats
    own_mean: Floats
    own_variance: Floats
    row_mean: Floats
    row_variance: Floats
    probability: Floats
    deviation: Floats
    spreads: Floats

    @property
    def is_dense(self) -> bool:
        """Whether all covariances are known."""
        return len(self.covariance) == len(self.mean)

    def variance_of(self, design: DesignMatrix) -> Floats:
        """Tell the variance of predictors by the columns of a design; a level that was never seen
        adds nothing."""
        if self.is_dense:
            return design.quadratic(self.covariance)
        dense: Floats = np.einsum("ij,ij->i", design.numeric @ self.covariance, design.numeric)
        for levels, start, size in zip(design.levels, design.starts, design.sizes, strict=True):
            dense = dense + np.append(self.variance[start : start + size], 0.0)[levels]
        return dense


class Propagation:
    """Expectation propagation for the rows of some evidence.

    `spreads` has the spread of each table, and last that of the rows' own effects if they have
    some. Those that are not `learned` stay. The best are those of the likelihood, or, with what is
    known of spreads `beforehand`, the most probable.
    """

    def __init__(
        self,
        evidence: Evidence,
        spreads: Floats,
        has_own: bool,
        learned: NDArray[np.bool_],
        beforehand: bool = False,
    ) -> None:
        self.beforehand = beforehand
        self.evidence, self.design = evidence, evidence.design
        self.spreads, self.has_own = np.array(spreads, float), has_own
        self.learned = learned
        n = self.design.n_rows
        self.is_dense = self.design.n_columns <= DENSE
        self.known = [np.zeros(n) for _ in self.design.sizes]  # messages from rows to levels
        self.coefficients = np.zeros(self.design.n_columns)
        seen = evidence.sure[0] * evidence.heads, evidence.sure[1] * evidence.tails
        slope, information = evidence.link.slopes(*seen, evidence.start)
        self.site = np.maximum(information, 1e-9)
        self.shift = self.site * (evidence.start - evidence.given) + slope
        self.covariance: Floats = np.zeros((self.design.n_dense,) * 2)

    def run(self, most: int = _ROUNDS, settled: float = _SETTLED) -> EffectBelief:
        """Go round until nothing changes."""
        before = np.full(self.design.n_rows, np.inf)
        for number in range(most):
            self._solve(number)
            mean, variance = self._rows()
            moved = float(np.sqrt(((mean - before) ** 2 / variance).mean()))
            drift = self._tune() if number > 1 else 1.0
            if moved < settled and drift < _CLOSE:
                break
            before = mean
            self._propagate(mean, variance)
        return self._belief()

    def usual_spreads(self) -> Floats:
        """Tell the root of the mean square of each spread, in view of what it may be instead; asked
        once all have settled."""
        best, learned = self.spreads.copy(), self.learned
        usual = best.copy()
        self.learned = np.zeros_like(learned)
        for number in map(int, np.flatnonzero(learned)):
            known = self._score(number)[1]
            if known > _WELL_KNOWN:
                usual[number] = best[number] * np.exp(1 / known)  # as if its logarithm were normal
                continue
            deviation = min(1 / np.sqrt(1 + known), 0.5)
            logs = np.log(best[number]) + deviation * np.linspace(-3.5, 3.5, _GRID)
            slopes = []
            for log in logs:
                self.spreads[number] = np.exp(log)
                self.run(_ON_GRID, _ROUGHLY)
                slopes.append(self._score(number)[0])
            self.spreads[number] = best[number]
            # The integrated likelihood from its slope, times the prior in equal steps of the log.
            value = np.append(0.0, np.cumsum(np.add(slopes[1:], slopes[:-1]) / 2) * np.diff(logs))
            value += logs
            chance = np.exp(value - value.max())
            usual[number] = np.sqrt(chance @ np.exp(2 * logs) / chance.sum())
        self.learned = learned
        return usual

    # -- the normal belief -----------------------------------------------------------------------
    @property
    def own(self) -> float:
        """The variance of a row's own effect."""
        return float(self.spreads[-1] ** 2) if self.has_own else 0.0

    def _precision(self) -> Floats:
        precision = np.maximum(self.evidence.precision, _LEAST_PRECISION)
        for spread, place in zip(self.spreads, self.evidence.tables, strict=False):
            precision[place] = 1 / spread**2
        return precision

    def _solve(self, number: int) -> None:
        """Find means of all columns, and variances of what they say of rows."""
        design, precision = self.design, self._precision()
        self.shrink = 1 / (1 + self.site * self.own)
        weight, right = self.site * self.shrink, design.transposed_times(self.shift * self.shrink)
        self.weight = weight
        if self.is_dense:
            matrix = design.normal_matrix(weight)
            np.einsum("ii->i", matrix)[:] += precision
            self.covariance = np.linalg.inv(matrix).astype(np.float64, copy=False)
            self.coefficients = self.covariance @ right
            self.columns = np.diag(self.covariance).copy()
            self.said = design.quadratic(self.covariance)
        else:
            start = self.coefficients
            self.coefficients = solve_iteratively(design, weight, precision, right, start=start)
            if number % 8 == 0:
                self.covariance = self._dense_covariance(weight, precision)
            self.columns, self.said = self._messages(weight, precision)
        self.leverage = np.minimum(weight * self.said, _LEVERAGE)
        self.middle = design.times(self.coefficients)

    def _dense_covariance(self, weight: Floats, precision: Floats) -> Floats:
        """The covariance of the columns that are no levels."""
        n, columns = self.design.n_dense, self.design.n_columns
        found = np.zeros((n, n))
        for place in range(n):
            unit = np.zeros(columns)
            unit[place] = 1.0
            found[place] = solve_iteratively(self.design, weight, precision, unit)[:n]
        return (found + found.T) / 2

    def _messages(self, weight: Floats, precision: Floats) -> tuple[Floats, Floats]:
        """Variances of columns, and of what columns say of rows, by one more round of messages:
        what a row says of a level is worth what the other levels of that row leave open."""
        design = self.design
        numeric, covariance = design.numeric, self.covariance
        common: Floats = np.einsum("ij,ij->i", numeric @ covariance, numeric)
        apart = []  # by table: the variance of a row's level if the row itself had not been seen
        totals = []
        for place, (levels, size) in enumerate(zip(design.levels, design.sizes, strict=True)):
            start = design.starts[place]
            total = precision[start : start + size] + sums(levels, self.known[place], size)
            totals.append(total)
            apart.append(1 / np.maximum(total[levels] - self.known[place], 1e-12))
        everything = common + np.sum(apart, axis=0)
        for place in range(len(apart)):
            others = everything - apart[place]
            self.known[place] = weight / (1 + weight * others)
        columns = np.concatenate([np.diag(covariance), *(1 / total for total in totals)])
        return columns, everything / (1 + weight * everything)

    def _rows(self) -> tuple[Floats, Floats]:
        """Mean and variance of the predictors of rows."""
        mean = (self.middle + self.shift * self.own) * self.shrink
        return mean, self.own * self.shrink + self.said * self.shrink**2

    def _own(self) -> tuple[Floats, Floats]:
        """Mean and variance of the effects of rows' own."""
        lean = self.own * self.shrink
        mean = lean * (self.shift - self.site * self.middle)
        return mean, lean + (lean * self.site) ** 2 * self.said

    def _propagate(self, mean: Floats, variance: Floats) -> None:
        """Give each row the normal factor that stands for its likelihood."""
        centre, without = self._elsewhere()
        tilted = tilted_moments(self.evidence, (mean, variance), (centre, without))
        site = np.maximum(1 / tilted[1] - 1 / without, 0.0)
        shift = tilted[0] / tilted[1] - centre / without
        self.site = self.site + _DAMPED * (site - self.site)
        self.shift = self.shift + _DAMPED * (shift - self.shift)

    def _elsewhere(self) -> tuple[Floats, Floats]:
        """Mean and variance of each row's predictor if its own flips had not been seen."""
        rest = 1 - self.leverage
        centre = (self.middle - self.said * self.shift * self.shrink) / rest
        return centre, self.own + self.said / rest

    # -- spreads -----------------------------------------------------------------------------------
    def _tune(self) -> float:
        """Move spreads by Fisher's scoring, and tell how far."""
        farthest = 0.0
        for number in map(int, np.flatnonzero(self.learned)):
            slope, information = self._score(number)
            step = float(np.clip(slope / (information + 1e-9), -_LONGEST, _LONGEST))
            before = self.spreads[number]
            self.spreads[number] = np.clip(before * np.exp(step), LEAST_SPREAD, MOST_SPREAD)
            farthest = max(farthest, abs(float(np.log(self.spreads[number] / before))))
        return farthest

    def _score(self, number: int) -> tuple[float, float]:
        """The derivative of the integrated likelihood by the logarithm of a spread, and about what
        is known of that."""
        spread = self.spreads[number]
        if self.has_own and number == len(self.spreads) - 1:
            mean, variance = self._own()
        else:
            place = self.evidence.tables[number]
            mean, variance = self.coefficients[place], self.columns[place]
        open_share = np.minimum(variance / spread**2, 1.0)
        slope = float((mean**2 / spread**2 + open_share - 1).sum())
        known = 2 * float(((1 - open_share) ** 2).sum())
        if not self.beforehand:
            return slope, known
        usual = (spread / _USUAL) ** 2
        return slope + 1 - usual, known + 2 * usual

    def _belief(self) -> EffectBelief:
        if not self.is_dense:
            self.covariance = self._dense_covariance(self.weight, self._precision())
        own_mean, own_variance = self._own()
        mean, variance = self._rows()
        # Where few flips make a lopsided likelihood, its own shape counts and not the factor's.
        tilted = tilted_moments(self.evidence, (mean, variance), self._elsewhere(), of_rates=True)
        return EffectBelief(
            self.coefficients,
            self.columns,
            self.covariance,
            own_mean,
            own_variance,
            mean + self.evidence.given,
            variance,
            tilted[0],
            np.sqrt(tilted[1]),
            self.spreads.copy(),
        )


def tilted_moments(
    evidence: Evidence,
    around: tuple[Floats, Floats],
    prior: tuple[Floats, Floats],
    of_rates: bool = False,
) -> tuple[Floats, Floats]:
    """Tell mean and variance of each row's predictor, or of its probability, under its likelihood
    and a normal prior, by quadrature at points around where these are thought to be."""
    n, link = len(evidence.heads), evidence.link
    if n >= MANY_ROWS and link.name in LINKS:
        return _swept(evidence, around, prior, of_rates)
    mean, variance = np.empty(n), np.empty(n)
    for a, b in pairwise([*range(0, n, _PIECE), n]):
        own = slice(a, b)
        width = np.sqrt(2 * around[1][own])
        at = around[0][own, None] + width[:, None] * _NODES
        there = evidence.given[own, None] + at
        joint = evidence.log_likelihood(own, there)
        joint += _NODES**2 - 0.5 * (at - prior[0][own, None]) ** 2 / prior[1][own, None]
        share = np.exp(joint - joint.max(axis=1, keepdims=True)) * _NODE_WEIGHTS
        share /= share.sum(axis=1, keepdims=True)
        values = link.probability(there) if of_rates else at
        middle = (share * values).sum(axis=1)
        mean[own] = middle
        variance[own] = (share * (values - middle[:, None]) ** 2).sum(axis=1)
    return mean, np.maximum(variance, 1e-16)


def _swept(
    evidence: Evidence,
    around: tuple[Floats, Floats],
    prior: tuple[Floats, Floats],
    of_rates: bool,
) -> tuple[Floats, Floats]:
    """The same, compiled and on threads."""
    out = np.empty((2, len(evidence.heads)))
    sweep(
        tilt_rows,
        len(evidence.heads),
        [
            CHUNK,
            np.stack([evidence.heads, evidence.tails]),
            evidence.sure,
            evidence.given,
            np.stack(around),
            np.stack(prior),
            _NODES,
            _NODE_WEIGHTS,
            evidence.link.name == "probit",
            of_rates,
            out,
        ],
    )
    return out[0], out[1]


def counts_like(
    probability: Floats, slope: Floats, information: Floats
) -> tuple[Floats, Floats, Floats]:
    """Find heads and tails, and how sure each is, that have a slope and an information.

    Where flips are seen, these are the very counts. Of one that may not have been made less is
    known than any heads or tails with that slope would tell; so these are not sure. They are never
    negative, which would promise the more the farther a row strays.
    """
    p, q = probability, 1 - probability
    flips = information / (p * q)
    heads, tails = flips * p + slope, flips * q - slope
    sure = np.ones((2, len(p)))
    for which, (chance, bad, size) in enumerate(((q, tails < 0, slope), (p, heads < 0, -slope))):
        # As if of heads: 1 - sure (1 - p) has this slope and this information.
        size = np.where(bad, np.maximum(size, 1e-300), 1.0)
        share = np.clip((information / size - 1 + 2 * chance) / chance, _LEAST_SURE, 1.0)
        sure[which] = np.where(bad, share / (1 - chance + share * chance), 1.0)
        counts = np.where(bad, size / (chance * share), 0.0)
        if which == 0:
            heads, tails = np.where(bad, counts, heads), np.where(bad, 0.0, tails)
        else:
            tails, heads = np.where(bad, counts, tails), np.where(bad, 0.0, heads)
    return np.maximum(heads, 0.0), np.maximum(tails, 0.0), sure
