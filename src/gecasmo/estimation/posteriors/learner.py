"""Learn the priors of tables from the log, and sum up what is known of every row.

EM climbs first, under vague priors: it finds the neighbourhood. From there global coins, priors and
rows go on together (`joint.py`), on the pages of some queries if there are many. In the end every
row of the log gets its posterior mean, and every number its error, part by part.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.folds import N_BUCKETS
from gecasmo.errors import ModelError
from gecasmo.estimation.coins import Coins, Evaluated, States
from gecasmo.estimation.expectation import Counts
from gecasmo.estimation.information import small_ties, tuned, with_beliefs, with_errors
from gecasmo.estimation.part import Part, Point
from gecasmo.estimation.passes import finished, known_states, point_of
from gecasmo.estimation.posteriors.errors import Errors
from gecasmo.estimation.posteriors.joint import Joint, RowCoin, Secants, Shared
from gecasmo.estimation.posteriors.part_rows import LOCAL
from gecasmo.estimation.posteriors.past import Leaning, Past
from gecasmo.estimation.posteriors.regression import Regression
from gecasmo.estimation.posteriors.sample import PAGES, SampledPages
from gecasmo.estimation.problem import MemoryParts, Problem
from gecasmo.estimation.shared_errors import SharedErrors
from gecasmo.estimation.tasks import PointName, Prior, Recipe, RowsOfParts
from gecasmo.forms import FormState, TableState
from gecasmo.forms.priors import Design, Empirical, Priors, pseudo_counts

Floats = NDArray[np.float64]

# One row says nothing of what is usual.
_FEWEST_ROWS = 2
# Passes in which parts agree on effects that are spread over them.
_LOOKS = 3
# Steps of shared numbers that rows only go along with, as they feel them; looks at most until then.
_SHORT, _MOST_LOOKS = 0.2, 8


class Posteriors:
    """What can be learned about the rows of a problem's tables.

    Parameters
    ----------
    problem : what was climbed
    sample : the pages that priors are learned from
    typical : by coin, what the priors of rows depend on (see `Empirical`)
    pasts : in an update, by number of a coin, what earlier logs have left of rows
    leanings : and how that depends on global coins
    """

    def __init__(
        self,
        problem: Problem,
        sample: SampledPages,
        typical: Mapping[str, dict[str, pl.Series]] | None = None,
        pasts: Mapping[int, Past] | None = None,
        leanings: Mapping[int, Leaning] | None = None,
    ) -> None:
        self.problem, self.sample, self.part = problem, sample, sample.part
        self.pasts, self.leanings = dict(pasts or {}), dict(leanings or {})
        self.errors: SharedErrors | None = None  # known when all is summed up
        self.tables: list[int] = []
        self.designs: dict[int, Design] = {}
        self._find_designs(typical or {})
        if not sample.is_all:
            self._check_spread()
        sample.designs = self.designs

    def _find_designs(self, typical: Mapping[str, dict[str, pl.Series]]) -> None:
        plans = self.part.expectation.encoded.plan.coins
        made: dict[Any, Design] = {}
        for number, coin in enumerate(self.part.coins):
            if not coin.form.has_posterior or plans[number].scope == "global":
                continue
            self.tables.append(number)
            if number in self.pasts:
                self.designs[number] = self.pasts[number].design
                continue
            prior = coin.form.learned_prior(coin.rows.keys)
            if prior is None or len(coin.rows) < _FEWEST_ROWS:
                continue
            own = typical.get(coin.name, {})
            if not self._is_local(number):
                # Of rows that are spread over parts nobody knows what is typical.
                prior = Empirical(by=())
            # Coins by the same key have the same rows, and so the same design.
            same = (id(coin.rows), prior.by, tuple(own))
            if same not in made:
                made[same] = Design.of(coin.rows, prior, own)
            self.designs[number] = made[same]

    def _is_local(self, number: int) -> bool:
        """Whether no other part has rows of this coin."""
        return self.sample.is_all or number in self.problem.local

    def _check_spread(self) -> None:
        """Refuse priors that parts could not agree on."""
        for number, design in self.designs.items():
            coin = self.problem.coins[number]
            form: Any = coin.form
            prior: Empirical = form.learned_prior(coin.rows.keys)
            odd = [level.name for level in design.levels if level.name not in coin.rows.keys]
            if odd:
                raise ModelError(
                    f"The prior of '{coin.name}' depends on {odd[0]}, not all of which are "
                    "numbers; over the parts of a stored log only numbers can tell rows apart."
                )
            if not self._is_local(number) and prior.by:
                raise ModelError(
                    f"The prior of '{coin.name}' depends on {prior.by[0]}, and rows by "
                    f"{', '.join(coin.rows.keys)} are spread over all parts of a stored log. Use "
                    "Table(prior='empirical'), or pseudo_counts."
                )

    # -- priors --------------------------------------------------------------------------------
    @property
    def learns(self) -> bool:
        """Whether there is a prior to be learned."""
        return bool(self.designs)

    def learn(self, best: Evaluated) -> States:
        """The states under learned priors, with global coins that go with them."""
        joint = self.joined(self.sample.settled(best))
        joint.climb()
        return self._learned(best, joint)

    def _learned(self, best: Evaluated, joint: Joint) -> States:
        """The states with what the sample has taught: priors, and where global coins are."""
        if self.sample.is_all:
            return States(list(joint.states))
        assert best.states.rows is not None or not self.problem.local
        rows, forms = best.states.rows, list(best.states)
        priors = dict(rows.priors) if rows is not None else {}
        for number, state in enumerate(self.with_priors(joint, joint.states)):
            learned = state.priors if self.problem.coins[number].form.has_posterior else None
            if number in self.problem.local:
                if learned is not None:
                    unseen = learned.unseen and learned.unseen.in_general()
                    priors[number] = replace(learned, unseen=unseen)
            elif learned is not None and number in joint.regressions():
                form: Any = self.problem.coins[number].form
                pseudo = _alike(learned, len(forms[number].probability))
                forms[number] = form.with_prior(forms[number], learned, pseudo)
            elif any(number in tie for tie in joint.shared.ties):
                forms[number] = self._placed(number, forms[number], state)
        return States(forms, None if rows is None else replace(rows, priors=priors))

    def _placed(self, number: int, whole: FormState, state: FormState) -> FormState:
        """The state of a global coin with what the sample says of the rows that it has met."""
        if not self.problem.coins[number].form.has_posterior:
            return state
        probability = whole.probability.copy()
        probability[self.sample.places(number)] = state.probability
        return replace(whole, probability=probability)

    def with_priors(self, joint: Joint, states: list[Any]) -> list[Any]:
        """The states with all that learned priors leave behind for rows yet to come."""
        states = list(states)
        for coin in joint.coins:
            if coin.regression is None:
                continue
            design = self.designs[coin.number]
            priors = replace(
                coin.regression.priors.for_levels(design.levels),
                unseen=design.unseen(coin.regression.priors),
                information=_sound(coin.information),
            )
            states[coin.number] = replace(
                states[coin.number], priors=priors, typical=design.typical
            )
        return states

    def joined(self, best: Evaluated, only: Collection[int] | None = None) -> Joint:
        """Rows, priors and global coins, about to climb; with the rows of all coins, or of some
        while those of others are held."""
        part = self.part
        n_buckets, factor = part.expectation.sample(PAGES)
        part.expectation.settle(part.weights(best.states))
        counts = part.expectation.run(part.weights(best.states), n_buckets)
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
        return Joint(part, list(best.states), coins, n_buckets, factor, held)

    def row_coins(self, best: Evaluated) -> list[int]:
        """Coins with rows by query or document, with many rows, or with a prior that is learned;
        others are global."""
        few = {tie[0] for tie in small_ties(self.part, best.states)}
        found = []
        for number in self.tables:
            keys = self.part.coins[number].rows.keys
            is_common = number in few and not {"query", "doc"} & set(keys)
            if number in self.designs or not is_common:
                found.append(number)
        return found

    # -- other forms ---------------------------------------------------------------------------
    def held(self, best: Evaluated) -> bool:
        """Whether there are forms that only EM can move, as are rows that are spread over parts."""
        if not all(self._is_local(number) for number in self.designs):
            return True
        at = self.sample.settled(best)
        rows = set(self.row_coins(at))
        moved = rows.union(*Shared.of(self.part, at.states, rows).ties)
        return any(
            number not in moved and len(coin.rows) and coin.form.constant is None
            for number, coin in enumerate(self.part.coins)
        )

    def tuned(self, best: Evaluated) -> States | None:
        """The states with better priors of forms that tune their own, or None if all are
        content."""
        view: Any = self.part if self.sample.is_all else _GlobalCoins(self.problem, best)
        forms = tuned(view, best)
        return None if forms is None else replace(best.states, forms=forms)

    def with_errors(self, best: Evaluated, polish: bool) -> Evaluated:
        """The end of a fit, with the covariance of coefficients where forms can hold one."""
        takers = [n for n, c in enumerate(self.problem.coins) if c.form.has_errors]
        if not takers:
            return best
        if self.sample.is_all:
            return with_errors(self.part, best, polish)
        told = with_errors(self.part, self.sample.settled(best), False).states
        forms = list(best.states)
        for number in takers:
            forms[number] = told[number]
        return best.with_forms(forms)

    def with_beliefs(self, best: Evaluated) -> Evaluated:
        """The end of a fit, with what is believed of rows where forms keep that; counts belong to
        the means, the objective to what was climbed."""
        if not any(coin.form.has_beliefs for coin in self.problem.coins):
            return best
        if not self.sample.is_all:  # rows at their parts would move if they were asked again
            view: Any = _GlobalCoins(self.problem, best)
            return with_beliefs(view, best)
        at = self.part.evaluate(best.states)  # counts that go with all states as they are
        there = self.part.evaluate(with_beliefs(self.part, at).states)
        return replace(there, objective=best.objective)

    # -- what is known in the end --------------------------------------------------------------
    def summed_up(self, best: Evaluated) -> Evaluated:
        """The posterior mean and standard deviation of every row; counts belong to these means.

        Tables with pseudo-counts of the user's own keep their probabilities and only get spreads.
        """
        at = self.sample.settled(best)
        joint = self.joined(at, None if self.sample.is_all else self.problem.local)
        joint.climb()
        ending = self._ending(best, joint)
        problem, states = ending.problem, ending.states
        extra: dict[str, Any] = {}
        known = joint.known()
        if not ending.is_known:
            means = self._places(problem, states)
            extra = dict(means)
            secants = Secants()
            felt = 0.0
            for number in range(_MOST_LOOKS):
                there = problem.evaluate(states, work="look", extra=extra)
                assert there.answer is not None
                told = there.answer.extra
                extra = means | {name: told[name] for name in told if name.startswith("slots.")}
                states = there.states
                if self.learns and joint.shared.size:
                    extra |= self._before(problem, states)
                    step = joint.shared_step(self._score(joint, ending, there), known, secants)
                    extra["step"] = step
                    felt = joint.felt(self._sampled(joint, states), step)
                    states = replace(states, forms=self._moved(states, joint.shared, step))
                # Rows that have heard of a short step only go along with it; after a long one they
                # have to be looked at again.
                if number + 1 >= self._n_looks(states) and felt < _SHORT:
                    break
        covariance = joint.errors_of_all(known)
        errors = Errors(self.part, joint.shared, ending.regressions, covariance, known.is_open)
        self.errors = self._together(errors, states)
        extra |= self._directions(problem, errors, states)
        there = problem.evaluate(states, work="conclude", extra=extra)
        spreads = errors.with_spreads(self._sampled(joint, states), joint.held, joint.factor)
        return ending.told(there.with_forms(self._with_spreads(states, spreads)))

    def _ending(self, best: Evaluated, joint: Joint) -> _Ending:
        """The problem of the end of a fit, with the rows of the sample's coins at their parts."""
        if not self.sample.is_all:
            states = self._learned(best, joint) if self.learns else best.states
            return _Ending(self.problem, states, joint.regressions())
        forms = list(joint.states)
        is_known = joint.n_buckets == N_BUCKETS
        rows = [coin.number for coin in joint.coins]
        for coin in joint.coins:
            if is_known:
                forms[coin.number] = coin.believed(self.part, forms[coin.number])
        forms = self.with_priors(joint, forms)
        part = self.part.with_rows({number: forms[number] for number in rows})
        part.pasts = {
            number: self.leanings[number].shifted(past, forms) if number in self.leanings else past
            for number, past in self.pasts.items()
        }
        part.designs = {number: self.designs[number] for number in joint.regressions()}
        part.leanings = self.leanings
        if is_known:
            point = point_of(part.local)
        else:
            point = Point({number: best.states[number].probability for number in rows})
        priors: dict[int, Prior] = {number: forms[number].priors for number in rows}
        problem = Problem(
            MemoryParts(part, {_BEGUN: point}),
            part.coins,
            self.problem.n_pages,
            self.problem.is_exchangeable,
            rows,
        )
        name = PointName(_BEGUN, [])
        begun = RowsOfParts(Recipe("same", of=_BEGUN), (name,), priors)
        states = States([None if n in rows else form for n, form in enumerate(forms)], begun)
        regressions = {
            number: Regression(
                self.designs[number],
                regression.priors.for_levels(self.designs[number].levels),
                part.pasts.get(number),
            )
            for number, regression in joint.regressions().items()
        }
        return _Ending(problem, states, regressions, part, is_known)

    def _places(self, problem: Problem, states: States) -> dict[str, Floats]:
        """Where documents are shown over all parts, if priors depend on it."""
        if self.sample.is_all or not any(prior.of_documents for prior in _priors_of(states)):
            return {}
        return dict(problem.run(states, work="places").extra)

    def _n_looks(self, states: States) -> int:
        """One pass looks at all rows; effects that are spread over parts take more."""
        effects = [effect for prior in _priors_of(states) for effect in prior.effects]
        is_spread = any(effect.spread > 0 and effect.name != LOCAL for effect in effects)
        return _LOOKS if is_spread and not self.sample.is_all else 1

    def _sampled(self, joint: Joint, states: States) -> list[FormState]:
        """The states of global coins for the rows of the sample; of others those of the climb."""
        found = list(joint.states)
        for number, state in enumerate(states):
            if number not in self.problem.local and state is not None:
                found[number] = self.sample.own_state(number, state)
        return found

    def _score(self, joint: Joint, ending: _Ending, there: Evaluated) -> Floats:
        """The derivative of the objective by global coins, of all pages with rows integrated
        out."""
        tables = [table[:, :0] for table in there.counts.tables]
        for number, state in enumerate(there.states):
            if state is not None:
                tables[number] = there.counts.tables[number][:, self.sample.places(number)]
        states = self._sampled(joint, there.states)
        score = joint.shared.score(states, Counts(tables, 0.0, 0))
        if self.leanings:
            score += self._asked_by_past(joint.shared, ending, there, states)
        return score

    def _asked_by_past(
        self, shared: Shared, ending: _Ending, there: Evaluated, states: list[FormState]
    ) -> Floats:
        """What the past of rows asks of global coins, since rows have moved."""
        known = ending.rows(there)
        total: Floats = np.zeros(shared.size)
        for number, leaning in self.leanings.items():
            if number not in known:
                continue
            rows, state = np.arange(len(leaning.place)), known[number]
            total += leaning.score(rows, np.asarray(state.centre))
            rest, regression = leaning.without(rows), ending.regressions.get(number)
            past = None if regression is None else regression.past
            learned = None if regression is None else state.priors
            logit = None if learned is None else self.designs[number].logit(learned)
            total += leaning.moves(rest, states, past, logit) @ leaning.all[rest]
        return total

    def _together(self, errors: Errors, states: States) -> SharedErrors:
        """How errors go together, for all rows of global coins; 0 for those that the sample has
        not met."""
        places = {}
        for tie in errors.shared.ties:
            coin = self.problem.coins[tie[0]]
            if coin.form.has_posterior:
                n_rows = len(states[tie[0]].probability)
                places[coin.name] = (self.sample.places(tie[0]), n_rows)
        return errors.together().spread_over(places)

    def _before(self, problem: Problem, states: States) -> dict[str, Any]:
        """The weights of global coins as they are now."""
        weights = problem.weights(states)
        return {f"before.{number}": weights[number] for number in problem.numbers}

    def _directions(self, problem: Problem, errors: Errors, states: States) -> dict[str, Any]:
        """Where global coins may be instead, and how the slopes of priors go along."""
        directions, rest = errors.directions()
        along = directions[:, : errors.shared.size].copy()
        extra: dict[str, Any] = {"directions": along}
        for place, direction in enumerate(along):
            weights = problem.weights(self._moved(states, errors.shared, direction))
            extra |= {f"weights.{place}.{number}": weights[number] for number in problem.numbers}
        for number, own in errors.slopes():
            extra[f"rest.{number}"] = rest[number]
            extra[f"slopes.{number}"] = directions[:, own].T.copy()
        for number, leans in errors.leaning(directions).items():
            whole = np.zeros((len(states[number].probability), len(directions)))
            whole[self.sample.places(number)] = leans
            extra[f"leans.{number}"] = whole
        return extra

    def _moved(self, states: States, shared: Shared, direction: Floats) -> list[FormState]:
        """Global coins moved; rows that the sample has not met stay where they are."""
        by = {}
        for number, own in shared.by_coin(direction).items():
            by[number] = own
            if self.problem.coins[number].form.has_posterior:
                by[number] = np.zeros(len(states[number].probability))
                by[number][self.sample.places(number)] = own
        return shared.moved_by(states, by)

    def _with_spreads(self, states: States, spreads: Mapping[int, TableState]) -> list[FormState]:
        told = list(states)
        for number, state in spreads.items():
            own, index = told[number], self.sample.places(number)
            spread = np.full(len(own.probability), np.nan)
            spread[index] = state.spread
            found = np.zeros((2, len(spread)))  # rows that the sample has not met: no evidence
            found[:, index] = state.evidence
            told[number] = replace(own, spread=spread, centre=own.probability, evidence=found)
        return told


_BEGUN = "begun"


@dataclass(frozen=True)
class _Ending:
    """The end of a fit: rows are at their parts, also those of a log in memory, whose `part` this
    is; `is_known` says that all rows have been looked at."""

    problem: Problem
    states: States
    regressions: Mapping[int, Regression]
    part: Part | None = None
    is_known: bool = False

    def rows(self, at: Evaluated) -> dict[int, TableState]:
        """What is known of the rows of a log in memory."""
        assert self.part is not None
        return known_states(self.part, self.problem.parts.points, self.problem.task(at.states))

    def told(self, there: Evaluated) -> Evaluated:
        """The evaluation with the rows of a log in memory among the states."""
        if self.part is None:
            return there
        task = self.problem.task(there.states)
        rows, counts = finished(self.part, self.problem.parts.points, task)
        forms = [rows.get(number, state) for number, state in enumerate(there.states)]
        return replace(there, states=States(forms), counts=counts)


def _priors_of(states: States) -> list[Priors]:
    priors = {} if states.rows is None else states.rows.priors
    return [prior for prior in priors.values() if isinstance(prior, Priors)]


def _alike(priors: Priors, n_rows: int) -> Floats:
    """The pseudo-counts of rows that all have the same prior."""
    mean, strength = priors.slopes[:, 0]
    return pseudo_counts(np.full(n_rows, mean), np.zeros(n_rows), np.full(n_rows, strength))


def _sound(information: Floats) -> Floats:
    """Without directions that are worse than unknown."""
    values, vectors = np.linalg.eigh((information + information.T) / 2)
    sound: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return sound


class _GlobalCoins(Coins):
    """The global coins of a problem, local ones being held where they are."""

    def __init__(self, problem: Problem, best: Evaluated) -> None:
        super().__init__(problem.coins, problem.local)
        self.problem, self.best, self.expectation = problem, best, self

    def run(self, weights: list[Floats]) -> Counts:
        """One pass at other weights of the global coins."""
        task = self.problem.task(self.best.states)
        shared = {number: weights[number] for number in self.numbers}
        answer = self.problem.parts.run(replace(task, shared=shared))
        tables = [np.zeros((2, 0))] * len(weights)
        for number, own in answer.counts.items():
            tables[number] = own.table
        return Counts(tables, answer.log_likelihood, answer.n_impossible)
