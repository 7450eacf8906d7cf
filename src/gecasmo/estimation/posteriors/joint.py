"""Global coins, priors and rows, estimated together with rows integrated out.

What all pages share (continuation, examination by rank) and what all rows share (their priors) are
confounded: rows shown low may be worse, or less looked at. Only the likelihood with rows integrated
out knows how far the log can tell, and only if both move at once. So both are one vector, which
climbs by Newton's method; its information gives the errors, each knowing of the others'.

Slopes are exact up to what `sweeps.py` approximates. The information takes rows to first order:
where a shared number moves, each row answers with as much as its belief has room for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.expectation import Counts
from gecasmo.estimation.information import score_of, small_ties
from gecasmo.estimation.part import Part
from gecasmo.estimation.posteriors.curvature import Curvature, curvature_of
from gecasmo.estimation.posteriors.likelihood import RowLikelihood, asked_of, beta_prior
from gecasmo.estimation.posteriors.moments import Moments, narrow_moments_of
from gecasmo.estimation.posteriors.regression import LevelSystem, Regression
from gecasmo.estimation.posteriors.ridges import Known, look_closely
from gecasmo.estimation.posteriors.sweeps import Sweeps
from gecasmo.forms import FormState, TableState
from gecasmo.forms.table_state import strength_of
from gecasmo.kernels.threads import in_threads

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Tie = tuple[int, ...]

MOST_ROUNDS = 30
# What a step may still promise, in units of log-likelihood, when it can be the last one: after it
# a tenth of that is left.
_SETTLED = 0.1
# Nor is there while the spreads of effects still change by this share.
_RESTLESS = 0.05
_NEAR = 15.0  # a promise
_CAREFUL = 0.004
# Steps whose change of the score is remembered.
_REMEMBERED = 5
_FARTHEST, _NEAREST = 0.8, 0.05  # steps that are too long, in logits
_EDGE = 0.95  # the share of rows that does count when a step is measured
# However little is left of what pages say of a shared number, later fits are told so much of it.
_LEAST_HELD = 0.05


@dataclass
class RowCoin:
    """A coin with rows of which something is believed; with a regression if its prior is learned,
    for the rows `met` on the pages that are looked at."""

    number: int
    met: Integers
    regression: Regression | None
    likelihood: RowLikelihood | None = None
    moments: Moments | None = None
    information: Floats = field(
        default_factory=lambda: np.zeros((0, 0))
    )  # on slopes, all else held
    leaning: Any = None  # how the past of rows depends on shared numbers (`past.Leaning`)
    rows: Integers = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def size(self) -> int:
        """Number of coefficients of the regression behind its prior, 0 without one."""
        return 0 if self.regression is None else self.regression.size

    def believed(self, problem: Part, state: TableState) -> TableState:
        """The state with posterior means and deviations; the prior's where nothing is known."""
        assert self.moments is not None
        form: Any = problem.coins[self.number].form
        heads, tails = beta_prior(state)
        mean = heads / (heads + tails)
        spread = np.sqrt(mean * (1 - mean) / (heads + tails + 1))
        mean[self.rows], spread[self.rows] = self.moments.mean, self.moments.deviation
        found: TableState = form.with_posterior(state, mean, spread)
        return found


@dataclass(frozen=True)
class Shared:
    """The numbers that all pages share: the vectors of some forms, one after the other."""

    problem: Part
    ties: list[Tie]
    sizes: list[int]

    @classmethod
    def of(cls, problem: Part, states: Sequence[FormState], rows: set[int]) -> Shared:
        """All small forms but those of coins with rows of their own."""
        ties = [tie for tie in small_ties(problem, states) if not rows & set(tie)]
        forms: list[Any] = [problem.coins[tie[0]].form for tie in ties]
        sizes = [len(form.vector(states[tie[0]])) for form, tie in zip(forms, ties, strict=True)]
        return cls(problem, ties, sizes)

    @property
    def size(self) -> int:
        """Number of parameters that rows of all coins share."""
        return sum(self.sizes)

    def score(self, states: Sequence[FormState], counts: Counts) -> Floats:
        """The derivative of the objective by all numbers."""
        parts = [score_of(self.problem, states, tie, counts) for tie in self.ties]
        return np.concatenate(parts) if parts else np.zeros(0)

    def rooms(self, states: Sequence[FormState]) -> tuple[Floats, Floats]:
        """By how much the probabilities of tables move with their logits (0 where they are given,
        and for other forms), and what pseudo-counts tell of these."""
        room, told = np.zeros((2, self.size))
        start = 0
        for tie, size in zip(self.ties, self.sizes, strict=True):
            state = states[tie[0]]
            if self.problem.coins[tie[0]].form.has_posterior:
                own, p = slice(start, start + size), state.probability
                free = True if state.is_fixed is None else ~state.is_fixed
                room[own] = free * p * (1 - p)
                told[own] = room[own] * np.sum(state.pseudo, axis=0)
            start += size
        return room, told

    def vector(self, states: Sequence[FormState]) -> Floats:
        """All numbers."""
        forms: list[Any] = [self.problem.coins[tie[0]].form for tie in self.ties]
        vectors = [f.vector(states[tie[0]]) for f, tie in zip(forms, self.ties, strict=True)]
        found: Floats = np.clip(np.concatenate([np.zeros(0), *vectors]), -20.0, 20.0)
        return found

    def moved(self, states: Sequence[FormState], by: Floats) -> list[FormState]:
        """The states with these numbers moved."""
        return self.moved_by(states, self.by_coin(by))

    def moved_by(self, states: Sequence[FormState], by: Mapping[int, Floats]) -> list[FormState]:
        """The states with the vectors of forms moved, by number of their first coin."""
        found = list(states)
        for tie in self.ties:
            form, state = self.problem.coins[tie[0]].form, states[tie[0]]
            state = form.from_vector(state, np.clip(form.vector(state), -20.0, 20.0) + by[tie[0]])
            for number in tie:
                found[number] = state
        return found

    def by_coin(self, numbers: Floats) -> dict[int, Floats]:
        """One number per entry, by coin."""
        return {tie[0]: numbers[own] for tie, own in zip(self.ties, self.slices(), strict=True)}

    def slices(self) -> list[slice]:
        """Where the numbers of each form are."""
        ends = np.cumsum(self.sizes).tolist()
        return [slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]


class System(NamedTuple):
    """Slopes of the objective by shared numbers and by slopes of priors, and minus its second
    derivatives; what the priors of slopes have to do with it (of second derivatives: on the
    diagonal)."""

    score: Floats
    information: Floats
    pull: Floats
    hold: Floats


class _Silent(NamedTuple):
    """Rows of the past: places in a design, how they lean on shared numbers, the room that their
    logits have, and how these go along with slopes."""

    place: Integers
    change: Floats
    room: Floats
    along: Floats


class Joint:
    """Climbs to where global coins, priors and rows fit each other.

    Parameters
    ----------
    problem : coins and pages; priors are learned from the first `n_buckets`
    states : where to begin
    coins : those with rows
    n_buckets, factor : which pages to look at, and how much more the whole log weighs
    held : numbers of coins that stay as they are
    """

    def __init__(
        self,
        problem: Part,
        states: Sequence[FormState],
        coins: Sequence[RowCoin],
        n_buckets: int,
        factor: float,
        held: Sequence[int] = (),
    ) -> None:
        self.problem, self.coins = problem, list(coins)
        self.n_buckets, self.factor = n_buckets, factor
        self.states = list(states)
        self.shared = Shared.of(problem, states, {*held, *(coin.number for coin in coins)})
        self.sweeps = Sweeps(problem.expectation, n_buckets)
        self.covariance = self.information = np.zeros((0, 0))
        self.held = np.zeros(0)  # what pages say of shared numbers if all else is held
        self._secants, self._reach = Secants(), _FARTHEST
        self._taken, self._told = np.zeros(0), np.zeros(0)  # the last step, and the score before it
        self._hoped = np.inf
        for coin in self.coins:
            if coin.leaning is not None:
                coin.leaning.align(self.shared, states)
        self.set_priors()

    def climb(self) -> None:
        """Newton's method; without learned priors nothing moves and only errors are found."""
        learns = any(coin.regression is not None for coin in self.coins)
        kept = nearest = self._kept()
        least = np.inf
        curvature, promised, restless = None, np.inf, np.inf
        for number in range(MOST_ROUNDS):
            counts = self.sweep()
            if curvature is None or promised > 1.0 or number % 4 == 0:
                curvature = self._curvature()
            before = promised
            step, promised = self._solved(counts, curvature)
            if promised > 1.5 * before and promised > _SETTLED:
                # What was promised was not kept: shorter steps, until they are.
                self._reach = max(0.5 * min(self._reach, self._length(self._taken)), _NEAREST)
                step = self._shortened(step)
            else:
                self._reach = min(1.4 * self._reach, _FARTHEST)
            if not learns:
                break
            if not np.isfinite(promised):
                # Too far: back to where everything made sense, and on with smaller steps.
                self._restore(kept)
                self._reach *= 0.25
                promised = np.inf
                continue
            is_near = max(promised, self._hoped) < _SETTLED
            if number > 1 and is_near and restless < _RESTLESS:
                self._move(step)
                break
            kept = self._kept()
            if promised < least:
                least, nearest = promised, kept
            # Far away the curvature of yesterday says nothing of that of today.
            self._secants.went(step, self._told, promised < _NEAR)
            restless = self._move(step)
        if learns and promised > 4 * max(least, 0.5 * _SETTLED):
            self._restore(nearest)  # it went astray in the end
        self.sweep()

    def _kept(self) -> tuple[list[FormState], list[Any]]:
        priors = [coin.regression and coin.regression.priors for coin in self.coins]
        return list(self.states), priors

    def _restore(self, kept: tuple[list[FormState], list[Any]]) -> None:
        self.states = list(kept[0])
        for coin, priors in zip(self.coins, kept[1], strict=True):
            if coin.regression is not None:
                coin.regression.priors = priors
                coin.regression.says[:] = 0.0
        self._secants = Secants()
        self.set_priors()

    def sweep(self) -> Counts:
        """Look at all pages: what is known of rows, and counts of global coins without them."""
        states = {coin.number: self.states[coin.number] for coin in self.coins}
        weights = self.problem.weights(self.states)
        found = self.sweeps.run(weights, asked_of(weights, states))
        # Coins have nothing to do with each other here.
        in_threads(lambda coin: self._take(coin, found.likelihoods[coin.number]), self.coins)
        return found.counts

    def _take(self, coin: RowCoin, likelihood: RowLikelihood) -> None:
        """Take in what is known of a coin's rows: their prior, then what to believe of them."""
        state = self.states[coin.number]
        coin.likelihood = likelihood
        if coin.regression is not None:
            free = np.ones(len(coin.met), bool)
            if state.is_fixed is not None:
                free = ~state.is_fixed[coin.met]
            coin.regression.look(likelihood.of_rows(coin.met), free)
            self._set_prior(coin)
        self._believe(coin)

    def regressions(self) -> dict[int, Regression]:
        """What learns the priors of coins, by number."""
        return {c.number: c.regression for c in self.coins if c.regression is not None}

    def shared_step(self, score: Floats, known: Known, secants: Secants) -> Floats:
        """The step of shared numbers with priors held, where this is the score of all pages. No
        information is good enough for a very long one; and that of some pages, where the climb
        ended, may be wrong here by so much that steps would go to and fro for ever, if they did not
        learn from each other."""
        n = self.shared.size
        covariance = inverse(self.factor * known.information[:n, :n])
        step = secants.applied(covariance, score, score, np.zeros(n))
        step = step * min(1.0, _FARTHEST / max(float(np.abs(step).max(initial=0.0)), _FARTHEST))
        secants.went(step, score, is_near=True)
        return step

    def felt(self, states: Sequence[FormState], step: Floats) -> float:
        """How much of a step of shared numbers rows feel, in logits: little of that of a coin which
        nearly always shows the same side."""
        room, _ = self.shared.rooms(states)
        share = np.where(room > 0, 2 * np.sqrt(room), 1.0)
        return float(np.abs(share * step).max(initial=0.0))

    @property
    def has_past(self) -> bool:
        """Whether rows remember pages that are not here any more."""
        return any(
            coin.leaning is not None
            or (coin.regression is not None and coin.regression.past is not None)
            for coin in self.coins
        )

    def known(self) -> Known:
        """How much is known of shared numbers and of slopes, where the climb has ended; what rows
        and slopes leave of `held`, which later fits are told, is to be the same."""
        known, n = look_closely(self), self.shared.size
        first, now = (np.diag(inverse(one))[:n] for one in (self.information, known.information))
        told = (first > 0) & (now > 0)
        gain = np.where(told, 1 / np.where(told, now, 1.0) - 1 / np.where(told, first, 1.0), 0.0)
        self.held = np.maximum(self.held + gain, _LEAST_HELD * self.held)
        return known

    def errors_of_all(self, known: Known) -> Floats:
        """The covariance when shared numbers are estimated from all pages, priors from these."""
        covariance = inverse(known.information)
        if self.factor == 1.0:
            return covariance
        n = self.shared.size
        alone = inverse(known.information[:n, :n])
        along = -alone @ known.information[:n, n:]
        slopes = covariance[n:, n:]
        covariance[:n, :n] = alone / self.factor + along @ slopes @ along.T
        covariance[:n, n:] = along @ slopes
        covariance[n:, :n] = covariance[:n, n:].T
        return covariance

    # -- rows ----------------------------------------------------------------------------------
    def set_priors(self) -> None:
        """Renew the priors of all coins from the present parameters."""
        for coin in self.coins:
            self._set_prior(coin)

    def _set_prior(self, coin: RowCoin) -> None:
        if coin.leaning is not None:
            self._lean(coin)
        if coin.regression is not None:
            form: Any = self.problem.coins[coin.number].form
            state: TableState = self.states[coin.number]
            pseudo = beta_prior(state)
            pseudo[:, coin.met] = coin.regression.pseudo()
            self.states[coin.number] = form.with_prior(state, coin.regression.priors, pseudo)

    def _lean(self, coin: RowCoin) -> None:
        """Let the past of rows go along with shared numbers."""
        leaning = coin.leaning
        if coin.regression is not None:
            coin.regression.past = leaning.shifted(coin.regression.past, self.states)
            return
        shift = leaning.shift(self.states)[leaning.place]
        pseudo = replace(leaning.past, shift=shift).under(leaning.prior)
        self.states[coin.number] = replace(self.states[coin.number], pseudo=pseudo)

    def _believe(self, coin: RowCoin) -> None:
        """The moments of known rows under their prior; learned tables stand at their means."""
        assert coin.likelihood is not None
        state: TableState = self.states[coin.number]
        coin.rows = np.flatnonzero(coin.likelihood.known)
        prior = beta_prior(state)
        coin.moments = narrow_moments_of(coin.likelihood, coin.rows, prior[:, coin.rows])
        if state.priors is not None:
            form: Any = self.problem.coins[coin.number].form
            probability = state.probability.copy()
            probability[coin.rows] = coin.moments.mean
            if state.is_fixed is not None:
                probability = np.where(state.is_fixed, state.probability, probability)
            self.states[coin.number] = form.moved_to(state, probability)

    # -- the system ----------------------------------------------------------------------------
    def _curvature(self) -> Curvature:
        chunks = [(chunk.pages, chunk.apart) for chunk in self.sweeps.chunks]
        return curvature_of(self.shared, self.states, self.coins, self.n_buckets, chunks)

    def system(self, counts: Counts, curvature: Curvature) -> System:
        """Slopes and curvature of all numbers, with effects following; levels' own steps are
        kept."""
        n = self.shared.size
        total = n + sum(coin.size for coin in self.coins)
        score, information = np.zeros(total), np.zeros((total, total))
        pull, hold = np.zeros(total), np.zeros(total)
        score[:n] = self.shared.score(self.states, counts)
        information[:n, :n] = curvature.held
        start = n
        self.levels: dict[int, list[LevelSystem]] = {}
        for coin in self.coins:
            own = slice(start, start + coin.size)
            start += coin.size
            row, change = curvature.rows[coin.number]
            room, along = self._answers(coin, row)
            place = np.searchsorted(coin.met, row)
            if coin.leaning is not None:
                score[:n] += self._asked_by_rows(coin, row)
                change = change + coin.leaning.new[row]
                silent = self._silent(coin, row)
                place = np.concatenate([place, silent.place])
                change = np.vstack([change, silent.change])
                room, along = np.append(room, silent.room), np.vstack([along, silent.along])
            information[:n, :n] -= (change.T * room) @ change
            if coin.regression is None:
                continue
            slopes = coin.regression.slopes()
            coin.information = slopes.information
            score[own], information[own, own] = slopes.score, slopes.information
            pull[own], hold[own] = slopes.pull, slopes.hold
            cross = -change.T @ along
            information[:n, own], information[own, :n] = cross, cross.T
            # Effects of levels follow: their part of the system is diagonal.
            self.levels[coin.number] = slopes.levels
            before: list[LevelSystem] = []
            for level in slopes.levels:
                level.shared = level.sums(place, -change.T * along[:, 0])
                for other in before:
                    level = level.without(other, coin.regression.rows, coin.regression.told)
                before.append(level)
                both = np.zeros((total, len(level.score)))
                both[:n], both[own] = level.shared, level.slopes
                information -= (both / level.precision) @ both.T
                score -= both @ (level.score / level.precision)
        return System(score, (information + information.T) / 2, pull, hold)

    def _solved(self, counts: Counts, curvature: Curvature) -> tuple[Floats, float]:
        """The Newton step, and how much it promises."""
        score, information, pull, hold = self.system(counts, curvature)
        self.held, self.curvature = np.diag(curvature.held).copy(), curvature
        if not (np.isfinite(score).all() and np.isfinite(information).all()):
            return np.zeros(len(score)), np.nan
        covariance = inverse(information)
        # Flat directions are gone along with care.
        careful = inverse(information, _CAREFUL)
        step = self._secants.applied(careful, score, score - pull, hold)
        promised = float(score @ careful @ score)
        self._hoped = float(score @ step)  # in view of what earlier steps have taught
        step = self._shortened(step)
        self.covariance, self.information = covariance, information
        self._told = score - pull
        return step, promised

    def _shortened(self, step: Floats) -> Floats:
        length = self._length(step)
        return step if length <= self._reach else step * (self._reach / length)

    def _length(self, step: Floats) -> float:
        """How far a step goes, in logits of shared numbers and of rows' prior means and in
        logarithms of strengths, whichever goes furthest. Of rows those at the edge do not count."""
        n = start = self.shared.size
        length = float(np.abs(step[:n]).max(initial=0.0))
        for coin in self.coins:
            if coin.regression is not None and len(coin.regression.basis):
                own = step[start : start + coin.size].reshape(2, -1)
                moves = np.abs(coin.regression.basis @ own.T)
                length = max(length, float(np.quantile(moves, _EDGE, axis=0).max()))
            start += coin.size
        return length

    def _asked_by_rows(self, coin: RowCoin, read: Integers) -> Floats:
        """What the past of rows asks of shared numbers, since rows have moved."""
        assert coin.moments is not None
        leaning, regression = coin.leaning, coin.regression
        mean = leaning.mean[leaning.place]
        mean[coin.rows] = coin.moments.mean
        found: Floats = leaning.score(read, mean[read])
        rest = leaning.without(read)
        past = None if regression is None else regression.past
        logit = None if regression is None else regression.design.logit(regression.priors)
        found += leaning.moves(rest, self.states, past, logit) @ leaning.all[rest]
        return found

    def _silent(self, coin: RowCoin, read: Integers) -> _Silent:
        """Rows with a past that these pages tell nothing of."""
        leaning, regression = coin.leaning, coin.regression
        rest = leaning.without(read)
        room, change = leaning.room[rest], leaning.all[rest]
        if regression is None:
            return _Silent(np.zeros(0, np.int64), change, room, np.zeros((len(rest), 0)))
        place = np.argsort(regression.past.number)[rest]
        typical = {name: own[place] for name, own in regression.design.typical.items()}
        z = regression.priors.basis(typical, len(rest))
        by_mean, by_strength = leaning.by_mean[rest, None], leaning.by_strength[rest, None]
        return _Silent(place, change, room, np.hstack([z * by_mean, z * by_strength]))

    def _answers(self, coin: RowCoin, read: Integers) -> tuple[Floats, Floats]:
        """Of the rows read, as if their logits were small changes of their probabilities: the room
        that these have, and how they go along with slopes of the prior, `[row, slope]`."""
        assert coin.moments is not None
        state: TableState = self.states[coin.number]
        mean, deviation = np.full((2, len(state.probability)), [[0.5], [0.0]])
        mean[coin.rows], deviation[coin.rows] = coin.moments.mean, coin.moments.deviation
        mean, deviation = np.clip(mean[read], 1e-9, 1 - 1e-9), deviation[read]
        slope = mean * (1 - mean)
        room = (deviation / slope) ** 2
        if coin.regression is None:
            return room, np.zeros((len(read), 0))
        place = np.searchsorted(coin.met, read)
        pseudo = np.asarray(state.pseudo)[:, coin.met]
        heads, tails = coin.regression.of_prior(pseudo)[:, place]
        worth = strength_of(mean, np.maximum(deviation, 1e-12))
        by_mean = heads * tails / (heads + tails) / worth / slope
        by_strength = (heads * (1 - mean) - tails * mean) / worth / slope
        told = deviation > 0
        z = coin.regression.whole_basis[place]
        return room, np.hstack([z * (told * by_mean)[:, None], z * (told * by_strength)[:, None]])

    def _move(self, step: Floats) -> float:
        """Take a step; returns by how much spreads have changed, relatively."""
        n = self.shared.size
        self._taken = step
        self.states = self.shared.moved(self.states, step[:n])
        restless = 0.0
        start = n
        for coin in self.coins:
            own = slice(start, start + coin.size)
            start += coin.size
            if coin.regression is not None:
                coin.regression.moved(step[:n], step[own], self.levels[coin.number])
                coin.regression.spread_out(np.diag(self.covariance)[own])
                restless = max(restless, coin.regression.restless)
        self.set_priors()
        return restless


class Secants:
    """What earlier steps have taught about the curvature, on top of what is computed (the method
    of Broyden, Fletcher, Goldfarb and Shanno with limited memory)."""

    def __init__(self) -> None:
        self.pairs: list[tuple[Floats, Floats]] = []
        self.last: tuple[Floats, Floats] | None = None

    def applied(self, covariance: Floats, score: Floats, told: Floats, hold: Floats) -> Floats:
        """The step that the score asks for; `told` is the part of it that comes from the log. The
        priors of slopes, whose information is `hold`, change from step to step."""
        if self.last is not None:
            step, before = self.last
            change = before - told + hold * step
            is_sound = step @ change > 1e-3 * np.sqrt((step @ step) * (change @ change))
            self.pairs = [*self.pairs[-_REMEMBERED:], (step, change)] if is_sound else []
        left = score.copy()
        shares = []
        for step, change in reversed(self.pairs):
            share = (step @ left) / (step @ change)
            left -= share * change
            shares.append(share)
        found: Floats = covariance @ left
        for (step, change), share in zip(self.pairs, reversed(shares), strict=True):
            found += step * (share - (change @ found) / (step @ change))
        return found

    def went(self, step: Floats, score: Floats, is_near: bool) -> None:
        """Remember a step that began close to the end, and the score before it; what was learned
        close to an end that was none is forgotten."""
        self.last = (step, score) if is_near else None
        if not is_near:
            self.pairs = []


def inverse(information: Floats, flattest: float = 1e-4) -> Floats:
    """The inverse; directions in which the objective is not concave count with their size, and
    what has no information at all has no part in anything, and variance 0."""
    active = np.abs(np.diag(information)) > 1e-8
    covariance = np.zeros_like(information)
    if not active.any():
        return covariance
    chosen = information[np.ix_(active, active)]
    scale = np.sqrt(np.abs(np.diag(chosen)))
    values, vectors = np.linalg.eigh(chosen / scale[:, None] / scale)
    widths = 1 / np.maximum(np.abs(values), flattest)
    inverse = (vectors * widths) @ vectors.T / scale[:, None] / scale
    covariance[np.ix_(active, active)] = inverse
    return covariance
