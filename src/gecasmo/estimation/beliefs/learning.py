"""Learn the priors of tables from the log, and sum up what is believed of every row.

A prior is fixed while EM climbs; between climbs it is learned anew from the likelihood of every
row at the probabilities found. At the end every row gets its posterior mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.folding import N_BUCKETS
from gecasmo.estimation.beliefs.integrated import integrated
from gecasmo.estimation.beliefs.prior import learned
from gecasmo.estimation.beliefs.rows import believed, likelihoods_of, precision_of, widened
from gecasmo.estimation.beliefs.shared import Shared
from gecasmo.estimation.information import small_ties, tuned, with_errors
from gecasmo.estimation.problem import Evaluation, Problem
from gecasmo.forms import Table, TableState
from gecasmo.forms.past import Past
from gecasmo.forms.priors import Grouping, Priors, group_rows

Integers = NDArray[np.int64]

# One row says nothing of what is usual.
_FEWEST_ROWS = 2
# Priors are learned from the pages of some queries if there are many more.
PAGES = 50_000
_TOLERANCE = 0.02


@dataclass
class _Learner:
    """A coin whose rows' beliefs are wanted; with a grouping, its prior is learned too."""

    number: int
    form: Table
    grouping: Grouping | None


class Beliefs:
    """What can be learned about the rows of a problem's tables.

    `typical` has, by coin, what tells groups of rows apart (see `Empirical`).
    """

    def __init__(
        self, problem: Problem, typical: Mapping[str, dict[str, pl.Series]] | None = None
    ) -> None:
        self.problem = problem
        plans = problem.expectation.encoded.plan.coins
        self.learners: list[_Learner] = []
        for number, coin in enumerate(problem.coins):
            if not isinstance(coin.form, Table) or plans[number].scope == "global":
                continue
            prior = coin.form.learned_prior(coin.rows.keys)
            grouping = None
            if prior is not None and len(coin.rows) >= _FEWEST_ROWS:
                grouping = group_rows(coin.rows, prior, (typical or {}).get(coin.name, {}))
            self.learners.append(_Learner(number, coin.form, grouping))

    @property
    def learns(self) -> bool:
        """Whether there is a prior to be learned."""
        return any(learner.grouping is not None for learner in self.learners)

    def learn(self, best: Evaluation) -> list[Any] | None:
        """The states under better priors, or None if all are as good as they get."""
        learners = [learner for learner in self.learners if learner.grouping is not None]
        n_buckets, _ = self.problem.expectation.sample(PAGES)
        likelihoods = likelihoods_of(
            self.problem.expectation,
            self.problem.weights(best.states),
            {learner.number: best.states[learner.number] for learner in learners},
            n_buckets,
        )
        states = list(best.states)
        settled = True
        for learner, likelihood in zip(learners, likelihoods, strict=True):
            state: TableState = best.states[learner.number]
            grouping = learner.grouping
            assert grouping is not None
            before = _prior_of(state, grouping)
            counted = grouping.number
            if state.is_fixed is not None:
                counted = np.where(state.is_fixed, -1, counted)
            after = learned(likelihood, counted, before)
            settled &= state.priors is not None and after.is_close(before, _TOLERANCE)
            states[learner.number] = learner.form.with_prior(state, after, grouping)
        return None if settled else states

    def tuned(self, best: Evaluation) -> list[Any] | None:
        """The states with better priors of forms that tune their own, or None if all are
        content."""
        return tuned(self.problem, best)

    def merged(self, learned: list[Any], tuned: list[Any], best: Evaluation) -> list[Any]:
        """What was learned here, and what forms have tuned."""
        return [
            own if own is not at else other
            for own, other, at in zip(learned, tuned, best.states, strict=True)
        ]

    def with_errors(self, best: Evaluation, polish: bool) -> Evaluation:
        """The end of a fit, with the covariance of coefficients where forms can hold one."""
        return with_errors(self.problem, best, polish)

    def summed_up(self, best: Evaluation) -> Evaluation:
        """The posterior mean and standard deviation of every row; counts belong to these means.

        Tables with pseudo-counts of the user's own keep their probabilities and only get spreads.
        """
        shared = Shared(self.problem, best.states, self.with_rows(best))
        covariance = shared.covariance(best)
        if any(getattr(state, "priors", None) is not None for state in best.states):
            # Shared coins first: rows lean on them.
            n_buckets, factor = self.problem.expectation.sample(PAGES)
            with_beliefs = self.believed(best, shared.rows, n_buckets)
            moved = integrated(self.problem, best, with_beliefs, shared.rows, n_buckets, factor)
            best = self.problem.evaluate(moved)
        states = self.believed(best, shared.rows, N_BUCKETS)
        return self._widened(self.problem.evaluate(states), shared, covariance)

    def spread_out(self, best: Evaluation) -> list[Any]:
        """The states with the spreads of all rows as this problem alone tells them."""
        shared = Shared(self.problem, best.states, self.with_rows(best))
        covariance = shared.covariance(best)
        states = self.believed(best, shared.rows, N_BUCKETS)
        return self._widened(self.problem.evaluate(states), shared, covariance).states

    def believed(self, best: Evaluation, rows: list[int], n_buckets: int) -> list[Any]:
        """The states with the posterior means and deviations of the rows of some coins."""
        chosen = {n: best.states[n] for n in rows}
        forms = {n: self.problem.coins[n].form for n in rows}
        weights = self.problem.weights(best.states)
        found = believed(self.problem.expectation, weights, chosen, forms, n_buckets)
        return [found.get(number, state) for number, state in enumerate(best.states)]

    def with_rows(self, best: Evaluation) -> set[int]:
        """Coins with rows by query or document, with many rows, or with a prior that is learned;
        others are shared by pages."""
        few = {tie[0] for tie in small_ties(self.problem, best.states)}
        found = set()
        for learner in self.learners:
            keys = self.problem.coins[learner.number].rows.keys
            is_common = learner.number in few and not {"query", "doc"} & set(keys)
            if learner.grouping is not None or not is_common:
                found.add(learner.number)
        return found

    def _widened(self, at: Evaluation, shared: Shared, covariance: Any) -> Evaluation:
        """Spreads that also know what shared coins leave open."""
        states = list(at.states)
        precision = {number: precision_of(at.states[number]) for number in shared.rows}
        for number, extra in shared.widening(at, covariance, precision).items():
            states[number] = widened(at.states[number], extra)
        for number, state in shared.with_spreads(at.states, covariance).items():
            states[number] = state
        return replace(at, states=states)


def learn_with(
    problem: Problem, best: Evaluation, coin: int
) -> Callable[[Priors, Integers, Past], Priors]:
    """What learns the priors of a coin from a log that has a past."""

    def learn(before: Priors, group: Integers, past: Past) -> Priors:
        expectation = problem.expectation
        n_buckets, factor = expectation.sample(PAGES)
        weights, chosen = problem.weights(best.states), {coin: best.states[coin]}
        likelihood = likelihoods_of(expectation, weights, chosen, n_buckets)[0]
        return learned(likelihood, group, before, past, factor)

    return learn


def _prior_of(state: TableState, grouping: Grouping) -> Priors:
    """The priors that a state has, as far as they are of these groups."""
    if state.priors is not None and len(state.priors.logit) == grouping.n_groups:
        return state.priors
    return Priors.vague(grouping.n_groups)
