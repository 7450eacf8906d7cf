"""Logistic regression on a design matrix that is never written out.

A row's logit is  intercept + numeric . b + one effect per categorical column (+ an offset of the
row's own). A categorical column has an effect for each of its levels and none is left out: what
the data cannot tell apart gets the smallest coefficients, so effects are deviations from the
average level, and a level never seen has effect zero.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from gecasmo.forms.features import DesignMatrix
from gecasmo.forms.form import Floats
from gecasmo.forms.links import LOGIT, Link, normal_moments
from gecasmo.forms.logits import expit
from gecasmo.kernels.static import static_kernel
from gecasmo.kernels.static.effect_steps import solve_rows
from gecasmo.kernels.threads import default_threads

# Up to this many coefficients Newton's equations are solved directly, above by conjugate gradients.
_DENSE = 600
_MAX_STEPS = 50
_LONGEST = 100.0
# Rows are looked at in pieces that stay in the processor's cache, and on threads. The pieces do not
# depend on the threads, so neither do the sums.
_PIECE = 8192
# A step that gains nothing and yet moves a logit by this much heads for infinity. It is stopped
# where all that it moves is beyond odds of 5e8.
_LONG, _FAR = 0.02, 20.0
# How exactly Newton's equations are solved by conjugate gradients: later steps mend the rest.
_SOLVED, _MOST_ROUNDS = 1e-4, 500


@dataclass(frozen=True)
class Optimum:
    """Where Newton's method ended."""

    coefficients: Floats
    offsets: Floats | None
    objective: float
    is_separated: bool


class Pass(NamedTuple):
    """What one pass over the rows finds. `weight` is the information on a row's logit; `reduced`
    and `matrix` are slope and normal matrix after each row's own offset was eliminated."""

    value: float
    logits: Floats
    residual: Floats
    weight: Floats
    slope: Floats
    reduced: Floats
    matrix: Floats


class _Point(NamedTuple):
    """Parameters with everything that one pass over the rows says about them."""

    coefficients: Floats
    offsets: Floats | None
    value: float
    done: Pass


@dataclass(frozen=True)
class PastCoefficients:
    """What data that are gone say of coefficients, to second order around where they left them."""

    at: Floats
    slope: Floats
    information: Floats

    def value(self, coefficients: Floats) -> float:
        """Tell how much better or worse than there these coefficients are."""
        moved = coefficients - self.at
        return float(self.slope @ moved - 0.5 * moved @ self.information @ moved)

    def slope_at(self, coefficients: Floats) -> Floats:
        """Differentiate that."""
        slope: Floats = self.slope - self.information @ (coefficients - self.at)
        return slope


@dataclass(frozen=True)
class WeightedRegression:
    """Weighted logistic regression: heads and tails per row, a normal prior on coefficients.

    With `variance`, every row also has an offset of its own with a normal prior of that variance.
    The offsets are eliminated row by row, so they cost next to nothing.
    """

    design: DesignMatrix
    heads: Floats
    tails: Floats
    precision: Floats  # of the prior, per coefficient
    variance: float | None = None
    past: PastCoefficients | None = None
    link: Link = LOGIT

    def maximise(self, coefficients: Floats, offsets: Floats | None = None) -> Optimum:
        """Climb by Newton's method from a start, each step shortened until it is uphill."""
        here = self._at(coefficients, offsets, with_slope=True)
        is_separated = False
        total = self.heads + self.tails
        used, flips = total > 0, float(total.sum())
        for _ in range(_MAX_STEPS):
            step, offset_step, gain = self._direction(here)
            # Where the data say next to nothing a step can be as long as numbers go.
            shorter = min(1.0, _LONGEST / max(float(np.abs(step).max(initial=0.0)), 1e-300))
            if shorter < 1:
                step, gain = shorter * step, shorter * gain
                offset_step = None if offset_step is None else shorter * offset_step
            if not gain > 1e-14 * (1 + abs(here.value)):
                is_separated = self._is_long(step, offset_step)
                break
            there = self._uphill(here, step, offset_step, gain)
            if there is None:
                is_separated = gain < 1e-10 * flips and self._is_long(step, offset_step)
                break
            moved = np.abs(there.done.logits - here.done.logits)[used] > _LONG
            if moved.any():
                far = np.abs(here.done.logits)[used][moved].min() > _FAR
                is_separated = bool(far and gain < 1e-10 * flips)
                if is_separated:
                    break
            here = there
            if gain < 1e-8 * (1 + abs(here.value)) and not moved.any():
                break  # Newton's errors square themselves: the next step would be rounding
            here = self._at(here.coefficients, here.offsets, with_slope=True)
        return Optimum(here.coefficients, here.offsets, here.value, is_separated)

    def _at(self, coefficients: Floats, offsets: Floats | None, with_slope: bool) -> _Point:
        if self.design.n_rows <= 2 * _PIECE or self.design.n_columns > _DENSE:
            done = self._pass(coefficients, offsets, with_slope)
        else:
            done = self._pass_in_pieces(coefficients, offsets, with_slope)
        value = done.value - 0.5 * float((self.precision * coefficients**2).sum())
        if self.past is not None:
            value += self.past.value(coefficients)
        if offsets is not None:
            assert self.variance is not None
            value -= 0.5 * float((offsets**2).sum()) / self.variance
        return _Point(coefficients, offsets, value, done)

    def _pass_in_pieces(
        self, coefficients: Floats, offsets: Floats | None, with_slope: bool
    ) -> Pass:
        def one(piece: tuple[slice, DesignMatrix]) -> Pass:
            place, design = piece
            part = replace(self, design=design, heads=self.heads[place], tails=self.tails[place])
            return part._pass(coefficients, None if offsets is None else offsets[place], with_slope)

        with ThreadPoolExecutor(default_threads()) as pool:
            done = list(pool.map(one, self.design.pieces(_PIECE)))
        logits, residual, weight = (
            np.concatenate([getattr(d, name) for d in done])
            for name in ("logits", "residual", "weight")
        )
        return Pass(
            float(sum(d.value for d in done)),
            logits,
            residual,
            weight,
            np.sum([d.slope for d in done], axis=0),
            np.sum([d.reduced for d in done], axis=0),
            np.sum([d.matrix for d in done], axis=0),
        )

    def _pass(self, coefficients: Floats, offsets: Floats | None, with_slope: bool) -> Pass:
        design = self.design
        logits = design.times(coefficients)
        if offsets is not None:
            logits = logits + offsets
        value = float(self.link.log_likelihood(self.heads, self.tails, logits).sum())
        if not with_slope:
            nothing = np.zeros(0)
            return Pass(value, logits, nothing, nothing, nothing, nothing, np.zeros((0, 0)))
        residual, weight = self.link.slopes(self.heads, self.tails, logits)
        rest, reduced_weight = residual, weight
        if offsets is not None:
            assert self.variance is not None
            own = residual - offsets / self.variance
            rest = residual - weight * own / (weight + 1 / self.variance)
            reduced_weight = weight / (1 + weight * self.variance)
        is_dense = design.n_columns <= _DENSE
        return Pass(
            value,
            logits,
            residual,
            weight,
            design.transposed_times(residual),
            design.transposed_times(rest),
            design.normal_matrix(reduced_weight) if is_dense else np.zeros((0, 0)),
        )

    def _uphill(
        self, here: _Point, step: Floats, offset_step: Floats | None, gain: float
    ) -> _Point | None:
        """Find a point along a direction that is better by Armijo's rule, but for rounding."""
        size = 1.0
        while size > 1e-10:
            offsets = None
            if here.offsets is not None and offset_step is not None:
                offsets = here.offsets + size * offset_step
            there = self._at(here.coefficients + size * step, offsets, with_slope=False)
            if there.value >= here.value + 1e-4 * size * gain - 1e-13 * abs(here.value):
                return there
            size /= 2
        return None

    def information(self, weight: Floats) -> Floats:
        """Tell the information on the coefficients, offsets integrated out, where that on
        a row's logit is `weight`."""
        if self.variance is not None:
            weight = weight / (1 + weight * self.variance)
        matrix = self.design.normal_matrix(weight) + np.diag(self.precision)
        return matrix if self.past is None else matrix + self.past.information

    def _is_long(self, step: Floats, offset_step: Floats | None) -> bool:
        """Whether a step that gains next to nothing moves some logit all the same.

        Where there is a best point Newton's steps shrink to nothing; where heads and tails are
        separated, each moves the logits of the separated rows by about one, for ever.
        """
        moved = self.design.times(step)
        if offset_step is not None:
            moved = moved + offset_step
        used = self.heads + self.tails > 0
        return bool(np.abs(moved[used]).max(initial=0.0) > _LONG)

    def _direction(self, here: _Point) -> tuple[Floats, Floats | None, float]:
        """Work out Newton's step, and the gain that it promises to first order."""
        penalty = self.precision * here.coefficients
        if self.past is not None:
            penalty = penalty - self.past.slope_at(here.coefficients)
        slope = here.done.slope - penalty
        if not len(slope) and here.offsets is None:
            return slope, None, 0.0
        step = self._solve(here.done, here.done.reduced - penalty)
        if here.offsets is None:
            return step, None, float(slope @ step)
        assert self.variance is not None
        weight = here.done.weight
        offset_slope = here.done.residual - here.offsets / self.variance
        offset_step = (offset_slope - weight * self.design.times(step)) / (
            weight + 1 / self.variance
        )
        return step, offset_step, float(slope @ step + offset_slope @ offset_step)

    def _solve(self, done: Pass, slope: Floats) -> Floats:
        if not len(slope):
            return slope
        if self.design.n_columns > _DENSE:
            weight = done.weight
            if self.variance is not None:
                weight = weight / (1 + weight * self.variance)
            return self._solve_iteratively(weight, slope)
        matrix = done.matrix.copy()
        if self.past is not None:
            matrix += self.past.information
        diagonal = np.einsum("ii->i", matrix)
        diagonal += self.precision
        # A trace of a ridge: where columns are collinear, the smallest coefficients are taken. Each
        # has its own, so that common levels do not hold back rare ones.
        diagonal += np.maximum(1e-11 * diagonal, 1e-300)
        return np.linalg.solve(matrix, slope).astype(np.float64, copy=False)

    def _solve_iteratively(self, weight: Floats, slope: Floats) -> Floats:
        return solve_iteratively(self.design, weight, self.precision, slope, self.past)


def solve_iteratively(
    design: DesignMatrix,
    weight: Floats,
    precision: Floats,
    right: Floats,
    past: PastCoefficients | None = None,
    start: Floats | None = None,
) -> Floats:
    """Solve the normal equations, which are not written out, by conjugate gradients."""
    squares = design.squares(weight)
    penalty = precision + np.maximum(1e-11 * squares, 1e-300)
    scale = squares + penalty
    if past is None and design.is_large:
        solution = np.zeros(len(right)) if start is None else start.copy()
        given = [design.numeric, design.places, weight, penalty, scale, right]
        given = [np.ascontiguousarray(one) for one in given]
        arguments = [*given, _SOLVED, _MOST_ROUNDS, solution]
        static_kernel(solve_rows, arguments)(*arguments)
        return solution
    return _solve_plainly(design, weight, penalty, scale, right, past, start)


def _solve_plainly(
    design: DesignMatrix,
    weight: Floats,
    penalty: Floats,
    scale: Floats,
    right: Floats,
    past: PastCoefficients | None,
    start: Floats | None,
) -> Floats:
    from scipy.sparse.linalg import LinearOperator, cg

    known = None if past is None else past.information
    if known is not None:
        scale = scale + np.diag(known)
    n = len(right)

    def normal(given: Any) -> Floats:
        vector: Floats = np.ravel(given)
        result = design.transposed_times(weight * design.times(vector)) + penalty * vector
        return result if known is None else result + known @ vector

    matrix = LinearOperator((n, n), matvec=normal, dtype=np.float64)
    inverse = LinearOperator((n, n), matvec=lambda v: np.ravel(v) / scale, dtype=np.float64)
    solution, _ = cg(matrix, right, x0=start, rtol=_SOLVED, maxiter=_MOST_ROUNDS, M=inverse)
    result: Floats = solution
    return result


def probabilities(logits: Floats) -> Floats:
    """Turn logits into probabilities, of which none is 0 or 1."""
    return LOGIT.probability(logits)


def logistic_normal(logits: Floats, deviation: Floats) -> tuple[Floats, Floats]:
    """Tell mean and standard deviation of probabilities whose logits are normal around these."""
    return normal_moments(LOGIT, logits, deviation)


def binomial_log_likelihood(heads: Floats, tails: Floats, logits: Floats) -> float:
    """Sum heads log p + tails log(1 - p) over rows."""
    value = heads @ np.logaddexp(0.0, -logits) + tails @ np.logaddexp(0.0, logits)
    return -float(value)


def fit_offsets(
    heads: Floats, tails: Floats, logits: Floats, offsets: Floats, variance: float
) -> Floats:
    """Find the best offsets around given logits, row by row, by Newton's method."""
    total = heads + tails

    def value(at: Floats) -> Floats:
        there = logits + at
        likelihood = heads * np.logaddexp(0.0, -there) + tails * np.logaddexp(0.0, there)
        return -likelihood - 0.5 * at**2 / variance

    best = value(offsets)
    for _ in range(50):
        probability = expit(logits + offsets)
        slope = heads - total * probability - offsets / variance
        step = slope / (total * probability * (1 - probability) + 1 / variance)
        if not np.any(np.abs(step) > 1e-10):
            break
        while True:
            there = value(offsets + step)
            worse = there < best - 1e-13 * (1 + np.abs(best))
            if not worse.any():
                break
            step[worse] /= 2
        offsets, best = offsets + step, there
    return offsets
