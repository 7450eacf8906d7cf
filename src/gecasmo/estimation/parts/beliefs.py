"""Priors and intervals of a fit over parts: learned from a sample, applied part by part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ModelError
from gecasmo.estimation.beliefs.integrated import integrated
from gecasmo.estimation.beliefs.learning import PAGES, Beliefs
from gecasmo.estimation.beliefs.rows import group_shifts, precision_of
from gecasmo.estimation.beliefs.shared import Shared
from gecasmo.estimation.expectation import Counts
from gecasmo.estimation.information import tuned, with_errors
from gecasmo.estimation.parts.problem import (
    PartedEvaluation,
    PartedProblem,
    PartedStates,
)
from gecasmo.estimation.parts.sample import Sample
from gecasmo.estimation.problem import Evaluation
from gecasmo.forms import FormState, Table, TableState
from gecasmo.forms.priors import Grouping

Floats = NDArray[np.float64]


class PartedBeliefs:
    """What `Beliefs` is for a problem in memory."""

    def __init__(
        self,
        problem: PartedProblem,
        sample: Sample,
        typical: Mapping[str, dict[str, pl.Series]] | None = None,
    ) -> None:
        self.problem, self.sample = problem, sample
        self.inner = Beliefs(sample.problem, typical)
        self._check()
        groupings = {
            learner.number: learner.grouping
            for learner in self.inner.learners
            if learner.grouping is not None and learner.number in problem.local
        }
        # The pages of other queries are not known in one place.
        sample.groupings = {
            number: grouping
            if grouping.exposures is None
            else replace(grouping, exposures=grouping.exposures.in_general())
            for number, grouping in groupings.items()
        }
        problem.bins = {
            number: grouping.bins
            for number, grouping in groupings.items()
            if grouping.bins is not None and grouping.n_groups > 1
        }

    def _check(self) -> None:
        for learner in self.inner.learners:
            coin = self.problem.coins[learner.number]
            name = coin.name
            # Not what became of them in the sample: each document there may have one query.
            prior = learner.form.learned_prior(coin.rows.keys)
            levels = [] if prior is None else [by for by in prior.by if by in coin.rows.keys]
            if levels:
                raise ModelError(
                    f"The prior of '{name}' falls back on {levels[0]!r}, which takes "
                    "all rows at once; a stored log has them in parts. Use Table(prior="
                    "'empirical'), or groups by 'rank', 'exposure' or 'impressions'."
                )
            grouping = learner.grouping
            if grouping is None:
                continue
            if learner.number not in self.problem.local and grouping.n_groups > 1:
                raise ModelError(
                    f"The prior of '{name}' is learned for groups of rows, and rows by "
                    f"{', '.join(coin.rows.keys)} are spread over "
                    "all parts of a stored log. Use Table(prior='empirical'), or pseudo_counts."
                )
            if grouping.n_groups > 1 and grouping.bins is None:
                raise ModelError(
                    f"The prior of '{name}' depends on {grouping.label[0]}, not all of which are "
                    "numbers; over the parts of a stored log only numbers can tell rows apart."
                )

    @property
    def learns(self) -> bool:
        """Whether there is a prior to be learned."""
        return self.inner.learns

    def learn(self, best: PartedEvaluation) -> PartedStates | None:
        """The states under better priors, or None if all are as good as they get."""
        states = self.inner.learn(self.sample.settled(best))
        if states is None:
            return None
        priors, shared = dict(best.states.priors), list(best.states.shared)
        for number, state in enumerate(states):
            learned = getattr(state, "priors", None)
            if learned is None:
                continue
            if number in self.problem.local:
                priors[number] = learned
            else:
                place = self.problem.shared.index(number)
                form: Any = self.problem.coins[number].form
                everywhere = Grouping(np.zeros(len(shared[place].rows), np.int64), ["all"])
                shared[place] = form.with_prior(shared[place], learned, everywhere)
        return replace(best.states, priors=priors, shared=shared)

    def tuned(self, best: PartedEvaluation) -> PartedStates | None:
        """The states with better priors of forms that tune their own, or None if all are
        content."""
        view: Any = _DriverView(self.problem, best)
        shared = tuned(view, best.driver)
        return None if shared is None else replace(best.states, shared=shared)

    def merged(
        self, learned: PartedStates, tuned: PartedStates, best: PartedEvaluation
    ) -> PartedStates:
        """What was learned here, and what forms have tuned."""
        shared = [
            own if own is not at else other
            for own, other, at in zip(learned.shared, tuned.shared, best.states.shared, strict=True)
        ]
        return replace(learned, shared=shared)

    def with_errors(self, best: PartedEvaluation, polish: bool) -> PartedEvaluation:
        """The end of a fit, with the covariance of coefficients where forms can hold one."""
        if not any(hasattr(coin.form, "informed") for coin in self.problem.driver.coins):
            return best
        told = with_errors(self.sample.problem, self.sample.settled(best), False).states
        shared = [
            told[number] if hasattr(self.problem.coins[number].form, "informed") else state
            for number, state in zip(self.problem.shared, best.states.shared, strict=True)
        ]
        return self._with_shared(best, shared)

    def summed_up(self, best: PartedEvaluation) -> PartedEvaluation:
        """The posterior mean and standard deviation of every row; counts belong to these means."""
        at = self.sample.settled(best)
        rows = self.inner.with_rows(at)
        shared = Shared(self.sample.problem, at.states, rows)
        covariance = shared.covariance(at)
        driver = list(best.states.shared)
        if any(getattr(state, "priors", None) is not None for state in at.states):
            at, driver = self._integrated(at, shared, driver)
        local = [number for number in shared.rows if number in self.problem.local]
        extra = self._directions(at, shared, covariance, driver, local)
        states = replace(best.states, shared=driver)
        there = self.problem.evaluate(states, work="believe", extra=extra)
        spreads = shared.with_spreads(at.states, covariance)
        return self._with_shared(there, self._with_spreads(driver, spreads))

    def _integrated(
        self, at: Evaluation, shared: Shared, driver: list[FormState]
    ) -> tuple[Evaluation, list[FormState]]:
        """The sample and the shared coins, these moved to where they are with rows integrated
        out."""
        problem = self.sample.problem
        n_buckets, factor = problem.expectation.sample(PAGES)
        believed = self.inner.believed(at, shared.rows, n_buckets)
        moved = integrated(problem, at, believed, shared.rows, n_buckets, factor)
        driver = list(driver)
        for place, number in enumerate(self.problem.shared):
            if moved[number] is not at.states[number] and isinstance(driver[place], TableState):
                probability = driver[place].probability.copy()
                probability[self.sample.index[number]] = moved[number].probability
                driver[place] = replace(driver[place], probability=probability)
        return problem.evaluate(moved), driver

    def _directions(
        self,
        at: Evaluation,
        shared: Shared,
        covariance: Floats,
        driver: list[FormState],
        local: list[int],
    ) -> dict[str, Any]:
        """Where shared coins may be instead, and how priors of rows would follow them."""
        extra: dict[str, Any] = {}
        directions = shared.directions(covariance)
        believed = self.inner.believed(at, local, 256)
        precision = {number: precision_of(believed[number]) for number in local}
        shifts: dict[int, list[Floats]] = {number: [] for number in local}
        for place, direction in enumerate(directions):
            for number, slopes in shared.row_slopes(at, direction, local).items():
                shifts[number].append(group_shifts(at.states[number], slopes, precision[number]))
            weights = self.problem.driver.weights(self._moved(driver, shared, direction))
            for number, own in zip(self.problem.shared, weights, strict=True):
                extra[f"weights.{place}.{number}"] = own
        for number in local:
            if directions:
                extra[f"shifts.{number}"] = np.concatenate(shifts[number], axis=1)
        extra["n_directions"] = len(directions)
        return extra

    def _moved(self, driver: list[FormState], shared: Shared, direction: Floats) -> list[FormState]:
        """Shared coins moved; rows that the sample has not met stay where they are."""
        moved = list(driver)
        start = 0
        for tie, size in zip(shared.ties, shared.sizes, strict=True):
            by = direction[start : start + size]
            start += size
            form: Any = self.problem.coins[tie[0]].form
            state = driver[self.problem.shared.index(tie[0])]
            vector = np.clip(form.vector(state), -20.0, 20.0)
            if isinstance(form, Table):
                vector[self.sample.index[tie[0]]] += by
            else:
                vector = vector + by
            for number in tie:
                moved[self.problem.shared.index(number)] = form.from_vector(state, vector)
        return moved

    def _with_spreads(
        self, driver: list[FormState], spreads: Mapping[int, TableState]
    ) -> list[FormState]:
        told = list(driver)
        for number, state in spreads.items():
            place = self.problem.shared.index(number)
            own, index = driver[place], self.sample.index[number]
            spread = np.full(len(own.probability), np.nan)
            spread[index] = state.spread
            found = np.zeros((2, len(spread)))  # rows that the sample has not met: no evidence
            found[:, index] = state.evidence
            told[place] = replace(own, spread=spread, centre=own.probability, evidence=found)
        return told

    def _with_shared(self, best: PartedEvaluation, shared: list[FormState]) -> PartedEvaluation:
        return replace(
            best,
            states=replace(best.states, shared=shared),
            driver=replace(best.driver, states=shared),
        )


class _DriverView:
    """The shared coins as a problem of their own, local ones being held where they are."""

    def __init__(self, problem: PartedProblem, best: PartedEvaluation) -> None:
        self.problem, self.best = problem, best
        driver = problem.driver
        self.coins, self.ties, self.expectation = driver.coins, driver.ties, self
        self.counts, self.weights = driver.counts, driver.weights

    def run(self, weights: list[Floats]) -> Counts:
        """One pass at other weights of the shared coins."""
        numbers = self.problem.shared
        task = self.problem.task(self.best.states)
        answer = self.problem.parts.run(
            replace(task, shared=dict(zip(numbers, weights, strict=True)))
        )
        tables = [answer.counts[number].table for number in numbers]
        return Counts(tables, answer.log_likelihood, answer.n_impossible)
