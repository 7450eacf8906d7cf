"""Learn the priors of tables from the log, and sum up what is believed of every row.

EM climbs first, under vague priors: it finds the neighbourhood. From there shared coins, priors and
rows go on together (`joint.py`), on the pages of some queries if there are many. In the end every
row of the log gets its posterior mean, and every number its error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.folding import N_BUCKETS
from gecasmo.estimation.beliefs.errors import Errors, answer_of, room_of
from gecasmo.estimation.beliefs.joint import Joint, RowCoin, Shared
from gecasmo.estimation.beliefs.moments import Believing
from gecasmo.estimation.beliefs.past import Leaning, Past
from gecasmo.estimation.beliefs.regression import Regression
from gecasmo.estimation.beliefs.rows import asked_of
from gecasmo.estimation.beliefs.sweeps import in_threads, look_through
from gecasmo.estimation.expectation import Counts
from gecasmo.estimation.information import small_ties, tuned, with_errors
from gecasmo.estimation.problem import Evaluation, Problem
from gecasmo.forms import TableState
from gecasmo.forms.priors import Design, Empirical

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# One row says nothing of what is usual.
_FEWEST_ROWS = 2
# Priors are learned from the pages of some queries if there are many more.
PAGES = 10_000
# EM steps of rows after their priors were learned.
_STEPS = 3
# Effects that stray by less, in logits, are left as some pages told them.
_LITTLE = 0.1


class Beliefs:
    """What can be learned about the rows of a problem's tables.

    `typical` has, by coin, what the priors of rows depend on (see `Empirical`). Rows of the coins
    with the numbers `alike` have one prior each. `pasts` has, by number of a coin, what earlier
    logs have left of rows, and `leanings` how that depends on shared coins.
    """

    def __init__(
        self,
        problem: Problem,
        typical: Mapping[str, dict[str, pl.Series]] | None = None,
        alike: Collection[int] = (),
        pasts: Mapping[int, Past] | None = None,
        leanings: Mapping[int, Leaning] | None = None,
    ) -> None:
        self.problem, self.pasts = problem, dict(pasts or {})
        self.leanings = dict(leanings or {})
        plans = problem.expectation.encoded.plan.coins
        self.tables: list[int] = []
        self.designs: dict[int, Design] = {}
        made: dict[Any, Design] = {}
        for number, coin in enumerate(problem.coins):
            if not coin.form.has_posterior or plans[number].scope == "global":
                continue
            self.tables.append(number)
            if number in self.pasts:
                self.designs[number] = self.pasts[number].design
                continue
            prior = coin.form.learned_prior(coin.rows.keys)
            if prior is not None and len(coin.rows) >= _FEWEST_ROWS:
                own = (typical or {}).get(coin.name, {})
                prior = Empirical(by=()) if number in alike else prior
                # Coins by the same key have the same rows, and so the same design.
                same = (id(coin.rows), prior.by, tuple(own))
                if same not in made:
                    made[same] = Design.of(coin.rows, prior, own)
                self.designs[number] = made[same]

    @property
    def learns(self) -> bool:
        """Whether there is a prior to be learned."""
        return bool(self.designs)

    def learn(self, best: Evaluation) -> list[Any]:
        """The states under learned priors, with shared coins that go with them."""
        self.joint = self.joined(best)
        self.joint.climb()
        return list(self.joint.states)

    def joined(self, best: Evaluation, only: Collection[int] | None = None) -> Joint:
        """Rows, priors and shared coins, about to climb; with the rows of all coins, or of some
        while those of others are held."""
        n_buckets, factor = self.problem.expectation.sample(PAGES)
        counts = self.problem.expectation.run(self.problem.weights(best.states), n_buckets)
        coins = []
        rows = self.row_coins(best)
        held = [] if only is None else [number for number in rows if number not in only]
        for number in rows:
            if number in held:
                continue
            met = np.arange(len(best.states[number].probability))
            if n_buckets < N_BUCKETS:
                met = np.flatnonzero(counts.tables[number].sum(axis=0) > 0)
            regression = None
            if number in self.designs:
                past, known = self.pasts.get(number), best.states[number].priors
                own = None if past is None else past.of_rows(met)
                design = self.designs[number] if own is None else own.design
                # Learned in an earlier round of the same fit, if at all.
                priors = design.vague() if known is None else known
                if own is None and len(met) < len(design.rows):
                    design = design.of_rows(met)
                regression = Regression(design, priors.for_levels(design.levels), own)
                if known is None and own is None:
                    regression.begin(counts.tables[number][:, met])
            leaning = self.leanings.get(number)
            coins.append(RowCoin(number, met, regression, leaning=leaning))
        return Joint(self.problem, best.states, coins, n_buckets, factor, held)

    def row_coins(self, best: Evaluation) -> list[int]:
        """Coins with rows by query or document, with many rows, or with a prior that is learned;
        others are shared by pages."""
        few = {tie[0] for tie in small_ties(self.problem, best.states)}
        found = []
        for number in self.tables:
            keys = self.problem.coins[number].rows.keys
            is_common = number in few and not {"query", "doc"} & set(keys)
            if number in self.designs or not is_common:
                found.append(number)
        return found

    # -- other forms ---------------------------------------------------------------------------
    def held(self, best: Evaluation) -> bool:
        """Whether there are forms that only EM can move."""
        rows = set(self.row_coins(best))
        shared = Shared.of(self.problem, best.states, rows)
        moved = rows.union(*shared.ties)
        return any(
            number not in moved and len(coin.rows) and coin.form.constant is None
            for number, coin in enumerate(self.problem.coins)
        )

    def tuned(self, best: Evaluation) -> list[Any] | None:
        """The states with better priors of forms that tune their own, or None if all are
        content."""
        return tuned(self.problem, best)

    def with_errors(self, best: Evaluation, polish: bool) -> Evaluation:
        """The end of a fit, with the covariance of coefficients where forms can hold one."""
        return with_errors(self.problem, best, polish)

    # -- what is believed in the end -----------------------------------------------------------
    def summed_up(self, best: Evaluation) -> Evaluation:
        """The posterior mean and standard deviation of every row; counts belong to these means.

        Tables with pseudo-counts of the user's own keep their probabilities and only get spreads.
        """
        joint = self.joined(best)
        joint.climb()
        states = list(joint.states)
        rows = [coin.number for coin in joint.coins]
        pasts = {
            number: self.leanings[number].shifted(past, states) if number in self.leanings else past
            for number, past in self.pasts.items()
        }
        regressions = {
            number: Regression(
                self.designs[number],
                regression.priors.for_levels(self.designs[number].levels),
                pasts.get(number),
            )
            for number, regression in joint.regressions().items()
        }
        if joint.n_buckets == N_BUCKETS:
            for coin in joint.coins:
                states[coin.number] = coin.believed(self.problem, states[coin.number])
            at = self.problem.evaluate(self.finished(joint, states))
        else:
            everywhere = Everywhere(self.problem, joint, regressions)
            at = everywhere.evaluated(best, self.finished(joint, states))
        covariance = joint.errors_of_all()
        errors = Errors(self.problem, joint.shared, regressions, covariance, self.leanings)
        return errors.widened(at, joint.held, joint.factor, rows)

    def finished(self, joint: Joint, states: list[Any]) -> list[Any]:
        """The states with all that learned priors leave behind for rows yet to come."""
        states = list(states)
        for coin in joint.coins:
            if coin.regression is None:
                continue
            information = _sound(coin.information)
            design = self.designs[coin.number]
            priors = replace(
                coin.regression.priors.for_levels(design.levels),
                unseen=design.unseen(coin.regression.priors),
                information=information,
            )
            states[coin.number] = replace(
                states[coin.number], priors=priors, typical=design.typical
            )
        return states


def _sound(information: Floats) -> Floats:
    """Without directions that are worse than unknown."""
    values, vectors = np.linalg.eigh((information + information.T) / 2)
    sound: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return sound


class Everywhere:
    """What is believed of all rows of a log of which only some pages taught priors."""

    def __init__(
        self, problem: Problem, joint: Joint, regressions: Mapping[int, Regression]
    ) -> None:
        self.problem, self.joint, self.regressions = problem, joint, regressions
        self.rows = [coin.number for coin in joint.coins]

    def evaluated(self, best: Evaluation, states: list[Any]) -> Evaluation:
        """Beliefs of all rows, with shared coins where all pages put them.

        Shared coins are close already; one Newton step with the slopes of all pages takes them the
        rest of the way, and rows along.
        """
        states = self._settled(best, states)
        believed, counts = self._looked(states)
        believed = self._with_effects(believed)
        shared = self.joint.shared
        at = self.problem.evaluate(believed)
        if not shared.size:
            return at
        score = shared.score(states, counts)
        leanings = {c.number: c.leaning for c in self.joint.coins if c.leaning is not None}
        for number, leaning in leanings.items():
            rows = np.arange(len(leaning.place))
            score += leaning.score(rows, believed[number].centre)
            rest, regression = leaning.without(rows), self.regressions.get(number)
            past = None if regression is None else regression.past
            logit = None if regression is None else regression.design.logit(regression.priors)
            score += leaning.moves(rest, states, past, logit) @ leaning.all[rest]
        step = self.joint.shared_step(score)
        there = self.problem.evaluate(shared.moved(believed, step))
        moved = list(there.states)
        for number in self.rows:
            state: TableState = believed[number]
            answer = answer_of(state, number, at.counts, there.counts)
            if number in leanings:
                answer += room_of(state) * (leanings[number].new @ step)
            form: Any = self.problem.coins[number].form
            mean = np.clip(np.asarray(state.centre) + answer, 1e-9, 1 - 1e-9)
            moved[number] = form.with_beliefs(state, mean, np.asarray(state.spread))
        return self.problem.evaluate(moved)

    def _settled(self, best: Evaluation, states: list[Any]) -> list[Any]:
        """A few EM steps of rows from where EM left them, under the priors that they have now."""
        states = list(states)
        for number, regression in self.regressions.items():
            form: Any = self.problem.coins[number].form
            state = states[number]
            states[number] = form.with_prior(state, state.priors, regression.pseudo())
        for number in self.rows:
            p = best.states[number].probability
            states[number] = replace(states[number], probability=p)
        for _ in range(_STEPS):
            counts = self.problem.expectation.run(self.problem.weights(states))
            for number in self.rows:
                coin = self.problem.coins[number]
                heads, tails = counts.heads(number), counts.tails(number)
                states[number] = coin.form.fit(coin.rows, heads, tails, states[number])
        return states

    def _looked(self, states: list[Any]) -> tuple[list[Any], Counts]:
        """The states with beliefs about all rows, and the counts of shared coins without them."""
        weights = self.problem.weights(states)
        asked = asked_of(weights, {number: states[number] for number in self.rows})
        beliefs = Believing(asked)
        counts = look_through(self.problem.expectation, weights, asked, beliefs.take)
        believed = list(states)
        for one, (mean, deviation) in zip(asked, beliefs.finish(), strict=True):
            form: Any = self.problem.coins[one.coin].form
            believed[one.coin] = form.with_beliefs(states[one.coin], mean, deviation)
        return believed, counts

    def _with_effects(self, believed: list[Any]) -> list[Any]:
        """The states under priors whose effects all rows have a say in.

        What pages say of a row is taken for the flips that it is worth, so that rows need not be
        looked at again.
        """
        states = list(believed)

        def follow(number: int) -> None:
            regression = self.regressions[number]
            state: TableState = believed[number]
            if not any(effect.spread > _LITTLE for effect in regression.priors.effects):
                return
            counted = np.ones(len(state.probability), bool)
            if state.is_fixed is not None:
                counted = ~state.is_fixed
            evidence = np.maximum(np.asarray(state.evidence), 0.0)
            regression.follow(evidence, counted & (evidence.sum(axis=0) > 0))
            assert state.priors is not None
            priors = replace(state.priors, effects=regression.priors.effects)
            form: Any = self.problem.coins[number].form
            pseudo = regression.pseudo()
            state = form.with_prior(state, priors, pseudo)
            heads, tails = pseudo + evidence
            mean = heads / (heads + tails)
            spread = np.sqrt(mean * (1 - mean) / (heads + tails + 1))
            states[number] = form.with_beliefs(state, mean, spread)

        in_threads(follow, list(self.regressions))
        return states
