"""Priors and intervals of a fit over parts: learned from a sample, applied part by part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ModelError
from gecasmo.estimation.beliefs.errors import Errors
from gecasmo.estimation.beliefs.joint import Joint
from gecasmo.estimation.beliefs.learning import Beliefs
from gecasmo.estimation.expectation import Counts
from gecasmo.estimation.information import tuned, with_errors
from gecasmo.estimation.parts.believing import LOCAL
from gecasmo.estimation.parts.problem import (
    PartedEvaluation,
    PartedProblem,
    PartedStates,
)
from gecasmo.estimation.parts.sample import Sample
from gecasmo.forms import FormState, TableState
from gecasmo.forms.priors import Empirical, Priors, pseudo_counts

Floats = NDArray[np.float64]

# Passes in which parts agree on effects that are spread over them.
_LOOKS = 2


class PartedBeliefs:
    """What `Beliefs` is for a problem in memory."""

    def __init__(
        self,
        problem: PartedProblem,
        sample: Sample,
        typical: Mapping[str, dict[str, pl.Series]] | None = None,
    ) -> None:
        self.problem, self.sample = problem, sample
        # Rows that are spread over parts have one prior: what is typical of them nobody knows.
        spread = {n for n in range(len(problem.coins)) if n not in problem.local}
        self.inner = Beliefs(sample.problem, typical, alike=spread)
        self._check()
        sample.designs = self.inner.designs

    def _check(self) -> None:
        for number, design in self.inner.designs.items():
            coin = self.problem.coins[number]
            form: Any = coin.form
            prior: Empirical = form.learned_prior(coin.rows.keys)
            odd = [level.name for level in design.levels if level.name not in coin.rows.keys]
            if odd:
                raise ModelError(
                    f"The prior of '{coin.name}' depends on {odd[0]}, not all of which are "
                    "numbers; over the parts of a stored log only numbers can tell rows apart."
                )
            if number not in self.problem.local and prior.by:
                raise ModelError(
                    f"The prior of '{coin.name}' depends on {prior.by[0]}, and rows by "
                    f"{', '.join(coin.rows.keys)} are spread over all parts of a stored log. Use "
                    "Table(prior='empirical'), or pseudo_counts."
                )

    @property
    def learns(self) -> bool:
        """Whether there is a prior to be learned."""
        return self.inner.learns

    def held(self, best: PartedEvaluation) -> bool:
        """Whether there are forms that only EM can move, as are rows that are spread over parts."""
        if any(number not in self.problem.local for number in self.inner.designs):
            return True
        return self.inner.held(self.sample.settled(best))

    def learn(self, best: PartedEvaluation) -> PartedStates:
        """The states under learned priors."""
        self.inner.learn(self.sample.settled(best))
        return self._learned(best, self.inner.joint)

    def _learned(self, best: PartedEvaluation, joint: Joint) -> PartedStates:
        """The states with what the sample has taught: priors, and where shared coins are."""
        priors, shared = dict(best.states.priors), list(best.states.shared)
        states = self.inner.finished(joint, joint.states)
        for number, state in enumerate(states):
            learned = getattr(state, "priors", None)
            if number in self.problem.local:
                if learned is not None:
                    unseen = learned.unseen and learned.unseen.in_general()
                    priors[number] = replace(learned, unseen=unseen)
                continue
            place = self.problem.shared.index(number)
            if learned is not None and number in joint.regressions():
                form: Any = self.problem.coins[number].form
                pseudo = _alike(learned, len(shared[place].probability))
                shared[place] = form.with_prior(shared[place], learned, pseudo)
            elif any(number in tie for tie in joint.shared.ties):
                shared[place] = self._own_place(number, shared[place], state)
        return replace(best.states, priors=priors, shared=shared)

    def _own_place(self, number: int, whole: FormState, state: FormState) -> FormState:
        """The state of a shared coin with what the sample says of the rows that it has met."""
        if not self.problem.coins[number].form.has_posterior:
            return state
        probability = whole.probability.copy()
        probability[self.sample.index[number]] = state.probability
        return replace(whole, probability=probability)

    def tuned(self, best: PartedEvaluation) -> PartedStates | None:
        """The states with better priors of forms that tune their own, or None if all are
        content."""
        view: Any = _DriverView(self.problem, best)
        shared = tuned(view, best.driver)
        return None if shared is None else replace(best.states, shared=shared)

    def with_errors(self, best: PartedEvaluation, polish: bool) -> PartedEvaluation:
        """The end of a fit, with the covariance of coefficients where forms can hold one."""
        if not any(coin.form.has_errors for coin in self.problem.driver.coins):
            return best
        told = with_errors(self.sample.problem, self.sample.settled(best), False).states
        shared = [
            told[number] if self.problem.coins[number].form.has_errors else state
            for number, state in zip(self.problem.shared, best.states.shared, strict=True)
        ]
        return self._with_shared(best, shared)

    def summed_up(self, best: PartedEvaluation) -> PartedEvaluation:
        """The posterior mean and standard deviation of every row; counts belong to these means."""
        at = self.sample.settled(best)
        joint = self.inner.joined(at, set(self.problem.local))
        joint.climb()
        states = self._learned(best, joint) if self.learns else best.states
        there = best
        means = self._places(states)
        extra: dict[str, Any] = dict(means)
        for _ in range(self._n_looks(states)):
            there = self.problem.evaluate(states, work="look", extra=extra)
            told = there.answer.extra
            extra = means | {name: told[name] for name in told if name.startswith("slots.")}
            states = replace(there.states, shared=self._stepped(states.shared, joint, told))
        covariance = joint.errors_of_all()
        regressions = joint.regressions()
        errors = Errors(self.sample.problem, joint.shared, regressions, covariance)
        extra |= self._directions(errors, states.shared)
        there = self.problem.evaluate(states, work="believe", extra=extra)
        spreads = errors.with_spreads(joint.states, joint.held, joint.factor)
        return self._with_shared(there, self._with_spreads(states.shared, spreads))

    def _places(self, states: PartedStates) -> dict[str, Floats]:
        """Where documents are shown over all parts, if priors depend on it."""
        priors = [prior for prior in states.priors.values() if isinstance(prior, Priors)]
        if not any(prior.of_documents for prior in priors):
            return {}
        return dict(self.problem.run(states, work="places").extra)

    def _n_looks(self, states: PartedStates) -> int:
        """One pass tells where shared coins are; effects that are spread over parts take more."""
        if not self.learns:
            return 0
        priors = [prior for prior in states.priors.values() if isinstance(prior, Priors)]
        is_spread = any(e.spread > 0 and e.name != LOCAL for prior in priors for e in prior.effects)
        return _LOOKS if is_spread else 1

    def _stepped(
        self, driver: list[FormState], joint: Joint, told: Mapping[str, Floats]
    ) -> list[FormState]:
        """The shared coins after a Newton step with the slopes of all pages."""
        if not joint.shared.size:
            return driver
        tables = [np.zeros((2, 0)) for _ in self.problem.coins]
        states = list(joint.states)
        for number, state in zip(self.problem.shared, driver, strict=True):
            index = self.sample.index[number]
            tables[number] = told[f"counts.{number}"][:, index]
            states[number] = self.sample.own_state(number, state)
        score = joint.shared.score(states, Counts(tables, 0.0, 0))
        return self._moved(driver, joint.shared, joint.shared_step(score))

    def _directions(self, errors: Errors, driver: list[FormState]) -> dict[str, Any]:
        """Where shared coins may be instead, and how the slopes of priors go along."""
        directions, rest = errors.directions()
        extra: dict[str, Any] = {"n_directions": len(directions)}
        for place, direction in enumerate(directions):
            weights = self.problem.driver.weights(
                self._moved(driver, errors.shared, direction.shared)
            )
            for number, own in zip(self.problem.shared, weights, strict=True):
                extra[f"weights.{place}.{number}"] = own
        for number, left in rest.items():
            extra[f"rest.{number}"] = left
            if directions:
                along = [direction.slopes[number] for direction in directions]
                extra[f"slopes.{number}"] = np.stack(along, axis=1)
        for number, own in errors.leaning(directions).items():
            place = self.problem.shared.index(number)
            whole = np.zeros((len(driver[place].probability), len(directions)))
            whole[self.sample.index[number]] = own
            extra[f"leans.{number}"] = whole
        return extra

    def _moved(self, driver: list[FormState], shared: Any, direction: Floats) -> list[FormState]:
        """Shared coins moved; rows that the sample has not met stay where they are."""
        moved = list(driver)
        start = 0
        for tie, size in zip(shared.ties, shared.sizes, strict=True):
            by = direction[start : start + size]
            start += size
            form: Any = self.problem.coins[tie[0]].form
            state = driver[self.problem.shared.index(tie[0])]
            vector = np.clip(form.vector(state), -20.0, 20.0)
            if form.has_posterior:
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


def _alike(priors: Priors, n_rows: int) -> Floats:
    """The pseudo-counts of rows that all have the same prior."""
    mean, strength = priors.slopes[:, 0]
    return pseudo_counts(np.full(n_rows, mean), np.zeros(n_rows), np.full(n_rows, strength))


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
