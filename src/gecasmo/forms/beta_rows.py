"""Rows as Bayesians see them: each has a Beta distribution, not a probability.

`BetaRows` stands in for a table while a fit by variational Bayes climbs. Its M-step is the
conjugate update, its weights are exp(E log p), and its penalty is minus the divergence of what is
believed from the prior, so that what EM climbs becomes the evidence lower bound (ELBO).
`RowPriors` is the prior of all rows, with two numbers that a log may move: how high and how strong.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gecasmo.encoding.rows import Rows
from gecasmo.forms.form import Floats, Form
from gecasmo.forms.table_state import TableState, prior_of

# No side of a prior is worth less, in flips: of one that is given, and of one that is learned.
_GIVEN_FLOOR, _LEARNED_FLOOR = 0.5, 0.02
# What a random or given start is worth, in flips, before anything was seen.
_BEGIN_STRENGTH = 10.0
# What is believed of the two numbers: the mean has a Beta(2, 2), the strength is lognormal.
_MEAN_PRIOR = 2.0
_LOG_STRENGTH, _LOG_STRENGTH_SPREAD = float(np.log(3.0)), 2.0
_HALVINGS = 6


@dataclass(frozen=True)
class RowPriors:
    """Beta priors of all rows, `base[heads or tails, row]`, and how they can be moved.

    `moved((shift, scale))` adds `shift` to the logits of all means and `scale` to the logarithms of
    all strengths. Where `is_free`, both numbers are unknown, with a distribution of their own.
    """

    base: Floats
    is_free: bool = False

    @classmethod
    def of(cls, state: TableState, is_free: bool) -> RowPriors:
        """The priors that a table has now; none is worth less than half a flip a side if given."""
        floor = _GIVEN_FLOOR
        if is_free or state.priors is not None:
            floor = _LEARNED_FLOOR
        return cls(np.maximum(prior_of(state), floor), is_free)

    def moved(self, hyper: Floats) -> Floats:
        """The priors at these two numbers, `[heads or tails, row]`."""
        if not hyper.any():
            return self.base
        heads, tails = self.base
        strength = heads + tails
        # The mean on the scale of logits, without logarithms: odds are multiplied.
        odds = np.exp(np.clip(hyper[0], -30, 30))
        mean = heads * odds / (heads * odds + tails)
        strength = strength * np.exp(np.clip(hyper[1], -30, 30))
        moved: Floats = np.stack([strength * mean, strength * (1 - mean)])
        return np.maximum(moved, _LEARNED_FLOOR)

    def centre(self) -> tuple[float, float]:
        """The logit of the mean and the logarithm of the strength of a middling row of `base`."""
        return self._centre

    @cached_property
    def _centre(self) -> tuple[float, float]:
        # Asked for at every proposal of a sampler, and as dear as weighing all counts.
        heads, tails = self.base
        if not len(heads):
            return 0.0, _LOG_STRENGTH
        return float(np.log(heads / tails).mean()), float(np.log(heads + tails).mean())

    def log_density(self, hyper: Floats) -> Any:
        """The logarithm of what is believed of the two numbers before the log is seen; of many,
        `[which, 2]`, an array."""
        if not self.is_free:
            return 0.0
        logit, log_strength = (own + more for own, more in zip(self.centre(), hyper.T, strict=True))
        of_mean = -_MEAN_PRIOR * (np.logaddexp(0, logit) + np.logaddexp(0, -logit))
        return of_mean - 0.5 * ((log_strength - _LOG_STRENGTH) / _LOG_STRENGTH_SPREAD) ** 2

    def drawn(self, rng: np.random.Generator) -> Floats:
        """Draw the two numbers before a log is seen."""
        logit, log_strength = self.centre()
        mean = rng.beta(_MEAN_PRIOR, _MEAN_PRIOR)
        wanted = rng.normal(_LOG_STRENGTH, _LOG_STRENGTH_SPREAD)
        return np.array([np.log(mean / (1 - mean)) - logit, wanted - log_strength])

    def better(self, hyper: Floats, log_heads: Floats, log_tails: Floats) -> Floats:
        """Two numbers under which expected logarithms of p and 1 - p are likelier: a step of
        Fisher's scoring, halved until it gains; the same ones if nothing does."""
        from scipy.special import digamma, polygamma

        a, b = self.moved(hyper)
        both = digamma(a + b)
        slope_a, slope_b = log_heads - digamma(a) + both, log_tails - digamma(b) + both
        turn = a * b / (a + b)  # how fast heads take the place of tails as the logit rises
        slopes = np.array([(turn * (slope_a - slope_b)).sum(), (a * slope_a + b * slope_b).sum()])
        bend_a, bend_b, bend_both = polygamma(1, a), polygamma(1, b), polygamma(1, a + b)
        cross = turn * (a * bend_a - b * bend_b)
        curve = np.array(
            [
                [(turn * turn * (bend_a + bend_b)).sum(), cross.sum()],
                [cross.sum(), (a * a * bend_a + b * b * bend_b - (a + b) ** 2 * bend_both).sum()],
            ]
        )
        logit, log_strength = (np.add(self.centre(), hyper)).tolist()
        mean = 1 / (1 + np.exp(-logit))
        slopes += [
            _MEAN_PRIOR * (1 - 2 * mean),
            (_LOG_STRENGTH - log_strength) / _LOG_STRENGTH_SPREAD**2,
        ]
        curve += np.diag([2 * _MEAN_PRIOR * mean * (1 - mean), 1 / _LOG_STRENGTH_SPREAD**2])
        step = np.linalg.solve(curve, slopes)
        now = self._expected(hyper, log_heads, log_tails)
        for _ in range(_HALVINGS):
            if self._expected(hyper + step, log_heads, log_tails) > now:
                moved: Floats = hyper + step
                return moved
            step = step / 4
        return hyper

    def _expected(self, hyper: Floats, log_heads: Floats, log_tails: Floats) -> float:
        from scipy.special import betaln

        a, b = self.moved(hyper)
        expected = ((a - 1) * log_heads + (b - 1) * log_tails - betaln(a, b)).sum()
        return float(expected + self.log_density(hyper))


@dataclass(frozen=True)
class BetaState:
    """What is believed of each row: heads and tails of its Beta distribution, `[which, row]`, and
    of its prior; `hyper` are the two numbers that move priors."""

    belief: Floats
    prior: Floats
    hyper: Floats


class BetaRows(Form):
    """A table whose rows are believed to be somewhere, during a fit by variational Bayes."""

    def __init__(self, table: Form, begun: TableState, is_free: bool) -> None:
        self.table, self.begun = table, begun
        self.priors = RowPriors.of(begun, is_free)
        given = begun.is_fixed
        self.is_given = np.zeros(len(begun.probability), bool) if given is None else given

    def begin(self, rows: Rows, generator: np.random.Generator | None) -> BetaState:
        begun = self.begun
        if generator is not None:
            begun = self.table.begin(rows, generator)
        p = np.clip(begun.probability, 0.001, 0.999)
        strength = self.priors.base.sum(axis=0) + _BEGIN_STRENGTH
        belief = np.stack([strength * p, strength * (1 - p)])
        return BetaState(belief, self.priors.base, np.zeros(2))

    def fit(self, rows: Rows, heads: Floats, tails: Floats, previous: BetaState) -> BetaState:
        state = replace(previous, belief=previous.prior + np.stack([heads, tails]))
        if not self.priors.is_free:
            return state
        log_heads, log_tails = expected_logs(state.belief)
        free = ~self.is_given
        priors = replace(self.priors, base=self.priors.base[:, free])
        hyper = priors.better(state.hyper, log_heads[free], log_tails[free])
        return replace(state, hyper=hyper, prior=self.priors.moved(hyper))

    def predict(self, state: BetaState, rows: Rows) -> Floats:
        mean = state.belief[0] / state.belief.sum(axis=0)
        return np.where(self.is_given, self.begun.probability, mean)

    def weights(self, state: BetaState, rows: Rows) -> Floats:
        log_heads, log_tails = expected_logs(state.belief)
        given = self.begun.probability
        tails = np.where(self.is_given, 1 - given, np.exp(log_tails))
        return np.stack([tails, np.where(self.is_given, given, np.exp(log_heads))])

    def penalty(self, state: BetaState) -> float:
        from scipy.special import betaln

        free = ~self.is_given
        (a, b), (a0, b0) = state.belief[:, free], state.prior[:, free]
        log_heads, log_tails = expected_logs(state.belief[:, free])
        gained = betaln(a, b) - betaln(a0, b0) - (a - a0) * log_heads - (b - b0) * log_tails
        priors = replace(self.priors, base=self.priors.base[:, free])
        return float(gained.sum() + priors.log_density(state.hyper))

    def vector(self, state: BetaState) -> Floats:
        return np.concatenate([np.log(state.belief).ravel(), state.hyper])

    def from_vector(self, state: BetaState, vector: Floats) -> BetaState:
        belief = np.exp(np.clip(vector[:-2], np.log(_LEARNED_FLOOR), 600)).reshape(2, -1)
        if not self.priors.is_free:
            return replace(state, belief=belief)
        hyper = vector[-2:]
        return BetaState(belief, self.priors.moved(hyper), hyper)

    def logits(self, state: BetaState, rows: Rows) -> Floats:
        logits: Floats = np.log(state.belief[0]) - np.log(state.belief[1])
        return logits

    def as_table(self, state: BetaState) -> TableState:
        """The table with the means and deviations of rows, under the prior as it is now."""
        a, b = state.belief
        mean = a / (a + b)
        spread = np.sqrt(mean * (1 - mean) / (a + b + 1))
        return table_of(self.table, self.begun, self.priors, state.hyper, mean, spread)


def table_of(
    table: Any, begun: TableState, priors: RowPriors, hyper: Floats, mean: Floats, spread: Floats
) -> TableState:
    """The state of a table with these posterior means and deviations, and priors moved so far."""
    state = begun
    if hyper.any() or priors.is_free:
        pseudo = priors.moved(hyper)
        if begun.priors is not None:
            slopes = begun.priors.slopes.copy()
            slopes[:, 0] += hyper  # so that rows never seen have priors that moved along
            state = table.with_prior(state, replace(begun.priors, slopes=slopes), pseudo)
        elif pseudo.shape[1]:
            state = replace(
                state,
                pseudo=(float(pseudo[0, 0]), float(pseudo[1, 0])),
                otherwise=float(pseudo[0, 0] / pseudo[:, 0].sum()),
            )
    free = np.ones(len(mean), bool) if state.is_fixed is None else ~state.is_fixed
    state = replace(state, probability=np.where(free, mean, state.probability))
    known: TableState = table.with_posterior(state, mean, spread)
    return known


def expected_logs(belief: Floats) -> tuple[Floats, Floats]:
    """The expected logarithms of p and of 1 - p under Beta distributions."""
    from scipy.special import digamma

    heads, tails = belief
    both = digamma(heads + tails)
    return digamma(heads) - both, digamma(tails) - both


def is_conjugate(form: Form) -> bool:
    """Whether the rows of a form have Beta posteriors, or are given."""
    return form.has_posterior or form.constant is not None


__all__ = ["BetaRows", "BetaState", "RowPriors", "is_conjugate", "table_of"]
