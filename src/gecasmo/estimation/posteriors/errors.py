"""How sure rows and global coins are, in view of what all of them leave open.

The belief about a row holds everything else where it is. Coins that all pages share, and the slopes
of priors, are uncertain too, and rows lean on them: along the widest directions of their
covariance, how far would each row move?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.expectation import Counts
from gecasmo.estimation.part import Part
from gecasmo.estimation.posteriors.regression import Regression
from gecasmo.estimation.shared_errors import SharedErrors
from gecasmo.forms import FormState, TableState
from gecasmo.forms.logits import expit, logit
from gecasmo.forms.priors import NODE_WEIGHTS, NODES
from gecasmo.forms.table_state import informed_evidence, strength_of
from gecasmo.kernels.threads import in_threads

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Rows are moved along this many directions of the global coins, the widest ones.
_DIRECTIONS = 12
_ROWS_AT_ONCE = 40_000
# Of more shared numbers rows do not remember how they lean on each.
_MOST_LEANS = 16
# Nothing is less certain than this, in logits.
_WIDEST = 1.5
# The deviation of a probability of which nothing is known but where its middle may be; that of one
# which may be anything between 0 and 1 is 0.29.
ANYTHING = 0.25


def shared_spread(probability: Floats, deviation: Floats) -> Floats:
    """The standard deviation of a probability whose logit has this one."""
    at = logit(np.clip(probability, 1e-9, 1 - 1e-9))
    values = expit(at + NODES[:, None] * np.minimum(deviation, _WIDEST))
    mean = NODE_WEIGHTS @ values
    spread: Floats = np.sqrt(NODE_WEIGHTS @ (values - mean) ** 2)
    return spread


class Errors:
    """The covariance of shared numbers and of slopes, and what it means for rows.

    Parameters
    ----------
    problem : coins and pages
    shared : the global numbers (`joint.Shared`)
    regressions : of coins whose priors were learned, by number, in the order of the covariance
    covariance : of shared numbers, then of all slopes
    is_open : which shared numbers pages leave open
    """

    def __init__(
        self,
        problem: Part,
        shared: Any,
        regressions: Mapping[int, Regression],
        covariance: Floats,
        is_open: NDArray[np.bool_],
    ) -> None:
        self.problem, self.shared = problem, shared
        self.regressions, self.covariance, self.is_open = regressions, covariance, is_open

    def leaning(self, directions: Floats) -> dict[int, Floats]:
        """By number of a shared table, what changes along directions say of each of its logits,
        `[row, direction]`."""
        if not len(directions) or self.shared.size > _MOST_LEANS:
            return {}
        along = np.linalg.pinv(directions[:, : self.shared.size])
        return {
            number: own
            for number, own in self.shared.by_coin(along).items()
            if self.problem.coins[number].form.has_posterior
        }

    def directions(self) -> tuple[Floats, dict[int, Floats]]:
        """The widest moves of the global numbers, each as long as a standard deviation, with how
        slopes go along, `[direction, number or slope]`; and, by coin, the covariance of slopes that
        is left."""
        n, covariance = self.shared.size, self.covariance
        values, vectors = np.linalg.eigh(covariance[:n, :n])
        rest, found = covariance.copy(), np.zeros((0, len(covariance)))
        for place in np.argsort(values)[::-1][:_DIRECTIONS]:
            if values[place] > 0:
                along = covariance[:, :n] @ vectors[:, place] / np.sqrt(values[place])
                rest -= np.outer(along, along)
                found = np.vstack([found, along])
        return found, {number: rest[own, own] for number, own in self.slopes()}

    def together(self) -> SharedErrors:
        """The covariance for those who draw, with no logit of a table wider than anything is.

        Numbers that pages leave open are as wide here as the covariance has them. That goes along
        with what makes up for them; to widen some of them alone would tear that apart.
        """
        n, coins = self.shared.size, self.problem.coins
        deviation = np.sqrt(np.maximum(np.diag(self.covariance), 0.0))
        wanted = deviation.copy()
        is_logit = np.zeros(n, bool)
        for tie, own in zip(self.shared.ties, self.shared.slices(), strict=True):
            is_logit[own] = coins[tie[0]].form.has_posterior
        wanted[:n] = np.where(is_logit, np.minimum(wanted[:n], _WIDEST), wanted[:n])
        factor = np.divide(wanted, deviation, out=np.zeros_like(wanted), where=deviation > 0)
        names = [coins[tie[0]].name for tie in self.shared.ties]
        return SharedErrors(
            dict(zip(names, self.shared.sizes, strict=True)),
            {coins[number].name: own.size for number, own in self.regressions.items()},
            self.covariance * factor * factor[:, None],
        )

    def slopes(self) -> Iterator[tuple[int, slice]]:
        """By number of a coin, where the slopes of its priors are in the covariance."""
        start = self.shared.size
        for number, regression in self.regressions.items():
            yield number, slice(start, start + regression.size)
            start += regression.size

    def with_spreads(
        self, states: Sequence[FormState], held: Floats, factor: float
    ) -> dict[int, TableState]:
        """The global tables, with how sure their rows are; NaN where nothing tells."""
        deviation = np.sqrt(np.maximum(np.diag(self.covariance)[: self.shared.size], 0.0))
        information, is_open = self.shared.by_coin(held), self.shared.by_coin(self.is_open)
        found = {}
        for number, own in self.shared.by_coin(deviation).items():
            state = states[number]
            if not self.problem.coins[number].form.has_posterior:
                continue
            spread = np.where(own > 0, shared_spread(state.probability, own), np.nan)
            spread = np.where(is_open[number], np.maximum(spread, ANYTHING), spread)
            if state.is_fixed is not None:
                spread = np.where(state.is_fixed, 0.0, spread)
            found[number] = replace(
                state,
                spread=spread,
                centre=state.probability,
                evidence=informed_evidence(state, information[number], factor),
            )
        return found


def answer_to_slopes(state: TableState, regression: Regression, slopes: Floats) -> Floats:
    """How far the means of rows go when the slopes of their priors move."""
    by_mean, by_strength = _along_slopes(state, regression)
    design, priors = regression.design, regression.priors
    moved = replace(priors, slopes=slopes.reshape(priors.slopes.shape))
    sums = moved.sums(design.typical, len(design.rows))[:, : len(by_mean)]
    answer: Floats = by_mean * sums[0] + by_strength * sums[1]
    return answer


def left_open(state: TableState, regression: Regression, covariance: Floats) -> Floats:
    """The variance of rows that comes from such a covariance of the slopes of their priors."""
    n_rows = len(state.probability)
    found = np.zeros(n_rows)
    by_mean, by_strength = _along_slopes(state, regression)
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    # A few directions hold nearly all of it, and stand for the rest.
    values = np.maximum(values[::-1], 0.0)
    held = np.cumsum(values) / max(float(values.sum()), 1e-300)
    chosen = min(int(np.searchsorted(held, 0.95)) + 1, len(held))
    along = vectors[:, ::-1][:, :chosen] * np.sqrt(values[:chosen] / max(held[chosen - 1], 1e-300))
    means, strengths = np.split(along, 2)

    def add(own: slice) -> None:
        typical = {name: x[own] for name, x in regression.design.typical.items()}
        z = regression.priors.basis(typical, own.stop - own.start)
        moves = (z @ means) * by_mean[own, None]
        moves += (z @ strengths) * by_strength[own, None]
        found[own] = np.einsum("ij,ij->i", moves, moves)

    cuts = [*range(0, n_rows, _ROWS_AT_ONCE), n_rows]
    in_threads(add, [slice(a, b) for a, b in pairwise(cuts)])
    return found


def answer_of(state: TableState, number: int, at: Counts, there: Counts) -> Floats:
    """How far the means of rows go from some counts to others, which shared numbers have made."""
    return room_of(state) * slope_of(state, number, at, there)


def slope_of(state: TableState, number: int, at: Counts, there: Counts) -> Floats:
    """How the slopes of the likelihood by the logits of rows go from some counts to others."""
    change = there.tables[number] - at.tables[number]
    slope: Floats = change[1] - change.sum(axis=0) * state.probability
    return slope


def room_of(state: TableState) -> Floats:
    """How far the means of rows move with a head in place of a tail."""
    assert state.centre is not None
    assert state.spread is not None
    return 1 / (strength_of(state.centre, state.spread) + 1)


def _along_slopes(state: TableState, regression: Regression) -> tuple[Floats, Floats]:
    """How the mean of each row moves with the logit of its prior's mean, and with the logarithm of
    its strength."""
    assert state.centre is not None
    assert state.spread is not None
    heads, tails = regression.of_prior(np.asarray(state.pseudo))
    together = strength_of(state.centre, state.spread)
    by_mean = heads * tails / (heads + tails) / together
    by_strength = (heads * (1 - state.centre) - tails * state.centre) / together
    # Never further than the prior itself.
    most = state.centre * (1 - state.centre)
    return np.minimum(by_mean, most), np.clip(by_strength, -most, most)


def widened(state: TableState, extra: Floats) -> TableState:
    """The state when each row has so much more variance."""
    assert state.centre is not None
    assert state.spread is not None
    slope = state.centre * (1 - state.centre)
    # No probability strays more than one that is either 0 or 1.
    extra = np.where(state.spread > 0, extra, 0.0)
    spread = np.minimum(np.sqrt(state.spread**2 + extra), np.sqrt(slope))
    return replace(state, spread=spread)
