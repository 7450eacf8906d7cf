"""What the log says about parameters: the observed information, from derivatives of the E-step.

The derivative of the log-likelihood by a coin's logit is heads - (heads + tails) theta, with
expected counts, so one more E-step a little to the side gives a column of the second derivative.
Nothing is left out: flips that stay hidden widen the errors as they should.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.folds import N_BUCKETS
from gecasmo.estimation.coins import Evaluated, as_weights
from gecasmo.estimation.expectation import Counts
from gecasmo.estimation.part import Part
from gecasmo.forms import FormState
from gecasmo.forms.logistic import MOST_WITH_ERRORS
from gecasmo.forms.logits import expit, logit

Floats = NDArray[np.float64]

# More parameters than this are not differentiated one by one.
MOST_PARAMETERS = 100
# What a million pages say about a few coefficients, a random part of them says as well.
_PAGES = 100_000
_STEP = 1e-4
_PROBES = 8


def with_errors(problem: Part, best: Evaluated, polish: bool) -> Evaluated:
    """The end of a fit, with the covariance of coefficients where forms can hold one.

    All forms with a small vector vary together; larger tables are held at their estimates. EM
    stops when it gains little per page, which on a large log can be a standard error away from the
    optimum; with `polish`, one step of Newton's method goes the rest of the way.
    """
    takers = [tie for tie in problem.ties if problem.coins[tie[0]].form.has_errors]
    if not takers:
        return best
    small = small_ties(problem, best.states)
    states = list(best.states)
    if any(tie in small for tie in takers):
        covariance, unknown, share = _inverse(_observed(problem, best, small))
        if polish:
            best = _polished(problem, best, small, covariance)
            states = list(best.states)
        start = 0
        for tie in small:
            form = problem.coins[tie[0]].form
            size = len(form.vector(best.states[tie[0]]))
            if tie in takers:
                own = slice(start, start + size)
                block = covariance[own, own]
                # What other forms leave open is no concern of this one.
                open_here = unknown[own][:, np.abs(share[own]).max(axis=0, initial=0.0) > 1e-3]
                _set(states, tie, form.informed(states[tie[0]], block, True, open_here))
            start += size
    for tie in takers:
        form = problem.coins[tie[0]].form
        state = best.states[tie[0]]
        if tie in small or form.n_coefficients(state) > MOST_WITH_ERRORS:
            continue
        rows = problem.coins[tie[0]].rows
        information = row_information(problem, best, tie)
        covariance, unknown, _ = _inverse(form.information(state, rows, information))
        _set(states, tie, form.informed(state, covariance, False, unknown))
    return best.with_forms(states)


def with_beliefs(problem: Part, best: Evaluated) -> Evaluated:
    """The end of a fit, with what the log says of each row, where forms keep that."""
    states = list(best.states)
    for tie in problem.ties:
        coin = problem.coins[tie[0]]
        if coin.form.has_beliefs:
            tails, heads = problem.counts(tie, best)
            information = row_information(problem, best, tie)
            own = coin.form.believed(states[tie[0]], coin.rows, heads, tails, information)
            _set(states, tie, own)
    return best.with_forms(states)


def _polished(
    problem: Part, best: Evaluated, ties: Sequence[tuple[int, ...]], covariance: Floats
) -> Evaluated:
    """One Newton step for the forms that the covariance is of, if it is uphill."""
    step = covariance @ np.concatenate(
        [score_of(problem, best.states, t, best.counts) for t in ties]
    )
    states = list(best.states)
    start = 0
    for tie in ties:
        form = problem.coins[tie[0]].form
        vector = form.vector(states[tie[0]])
        own = slice(start, start + len(vector))
        _set(states, tie, form.from_vector(states[tie[0]], vector + step[own]))
        start += len(vector)
    there = problem.evaluate(states)
    return there if there.is_possible and there.objective >= best.objective else best


def row_information(problem: Part, best: Evaluated, tie: tuple[int, ...]) -> Floats:
    """About how much the log says on the logit of each row of a form, others held fixed.

    The diagonal of a matrix that is only known through its products, by random signs
    (Hutchinson): rows meet on pages, so what others add to a row's entry averages out.
    """
    number = tie[0]
    coin = problem.coins[number]
    generator = np.random.default_rng(0)
    probability = coin.form.predict(best.states[number], coin.rows)
    flips = problem.counts(tie, best).sum(axis=0)
    complete = flips * probability * (1 - probability)
    total = np.zeros(len(coin.rows))
    # One side is enough: what that misses is far below what chance leaves.
    here = _row_slopes(problem, best.states, tie, np.zeros(len(coin.rows)))
    for _ in range(_PROBES):
        signs = generator.choice((-1.0, 1.0), len(coin.rows))
        total -= signs * (_row_slopes(problem, best.states, tie, _STEP * signs) - here) / _STEP
    # Hidden flips only ever take information away.
    return np.clip(total / _PROBES, 0.0, complete)


def _row_slopes(
    problem: Part, states: Sequence[FormState], tie: tuple[int, ...], moved: Floats
) -> Floats:
    """The derivative of the log-likelihood by each row's logit, at logits moved a little."""
    coin = problem.coins[tie[0]]
    weights = problem.weights(states)
    at = expit(logit(coin.form.predict(states[tie[0]], coin.rows)) + moved)
    for number in tie:
        weights[number] = as_weights(at)
    counts = problem.expectation.run(weights)
    slopes = np.zeros(len(at))
    for number in tie:
        slopes += counts.heads(number) - counts.tables[number].sum(axis=0) * at
    return slopes


def tuned(problem: Part, best: Evaluated) -> list[FormState] | None:
    """The states with better priors, or None if all are content."""
    states = list(best.states)
    is_changed = False
    for tie in problem.ties:
        coin = problem.coins[tie[0]]
        if not coin.form.learns_prior:
            continue
        tails, heads = problem.counts(tie, best)
        information = row_information(problem, best, tie)
        state = coin.form.tuned(best.states[tie[0]], coin.rows, heads, tails, information)
        is_changed |= state is not best.states[tie[0]]
        for number in tie:
            states[number] = state
    return states if is_changed else None


def small_ties(problem: Part, states: Sequence[FormState]) -> list[tuple[int, ...]]:
    """The forms that can be differentiated, as many as stay below the limit, smallest first."""
    sizes = []
    for tie in problem.ties:
        form = problem.coins[tie[0]].form
        if form.has_score:
            sizes.append((len(form.vector(states[tie[0]])), tie))
    chosen, total = [], 0
    for size, tie in sorted(sizes):
        total += size
        if size > 0 and total <= MOST_PARAMETERS:
            chosen.append(tie)
    return chosen


def _observed(problem: Part, best: Evaluated, ties: Sequence[tuple[int, ...]]) -> Floats:
    """Minus the second derivative of the objective by the vectors of some forms."""
    n_buckets, factor = _sample(problem, best, ties)
    columns = []
    for tie in ties:
        form = problem.coins[tie[0]].form
        vector = form.vector(best.states[tie[0]])
        for place in range(len(vector)):
            sides = []
            for side in (_STEP, -_STEP):
                moved = vector.copy()
                moved[place] += side
                states = list(best.states)
                _set(states, tie, form.from_vector(states[tie[0]], moved))
                sides.append(_slopes(problem, states, ties, n_buckets, factor))
            columns.append((sides[1] - sides[0]) / (2 * _STEP))
    matrix = np.array(columns)
    return (matrix + matrix.T) / 2


def _sample(problem: Part, best: Evaluated, ties: Sequence[tuple[int, ...]]) -> tuple[int, float]:
    """How many buckets stand for all, and by which factor.

    Buckets hold whole queries, so what goes with some queries only may be rare in a part of them
    or not be there at all; then all pages are looked at.
    """
    n_buckets, factor = problem.expectation.sample(_PAGES)
    if n_buckets == N_BUCKETS:
        return n_buckets, factor
    part = problem.expectation.run(problem.weights(best.states), n_buckets)
    for tie in ties:
        form = problem.coins[tie[0]].form
        rows, state = problem.coins[tie[0]].rows, best.states[tie[0]]
        probability = form.predict(state, rows)
        known = []
        for tables, times in ((part.tables, factor), (best.counts.tables, 1.0)):
            flips = times * np.sum([tables[number] for number in tie], axis=0).sum(axis=0)
            weight = flips * probability * (1 - probability)
            known.append(form.squares(state, rows, weight))
        if not np.all((known[0] > 0.7 * known[1]) & (known[0] < 1.5 * known[1]) | (known[1] == 0)):
            return N_BUCKETS, problem.expectation.scale
    return n_buckets, factor


def _slopes(
    problem: Part,
    states: list[FormState],
    ties: Sequence[tuple[int, ...]],
    n_buckets: int,
    factor: float,
) -> Floats:
    """The derivative of the objective by the vectors of some forms."""
    counts = problem.expectation.run(problem.weights(states), n_buckets)
    return np.concatenate([score_of(problem, states, tie, counts, factor) for tie in ties])


def score_of(
    problem: Part,
    states: Sequence[FormState],
    tie: tuple[int, ...],
    counts: Counts,
    factor: float = 1.0,
) -> Floats:
    """The derivative of the objective by the vector of one form."""
    coin = problem.coins[tie[0]]
    if coin.form.is_joint:
        own = problem.counts_by_coin(tie, counts)
        own = {name: factor * sides for name, sides in own.items()}
        return coin.form.score_together(states[tie[0]], coin.rows, own)
    tails, heads = factor * np.sum([counts.tables[number] for number in tie], axis=0)
    score: Floats = coin.form.score(states[tie[0]], coin.rows, heads, tails)
    return score


def _inverse(matrix: Floats) -> tuple[Floats, Floats, Floats]:
    """The inverse on the directions that the data say something about; the other directions; and
    these in units of information, which tell how much each parameter takes part.

    Those (collinear columns, the common level of a category) are not estimated. Each parameter is
    measured in units of its own information, so that rare ones are not taken for unknown.
    """
    diagonal = np.diag(matrix)
    scale = np.where(diagonal > 0, 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0)), 1.0)
    values, vectors = np.linalg.eigh(matrix * scale * scale[:, None])
    known = values > 1e-7
    directions = scale[:, None] * vectors
    inverse: Floats = (directions[:, known] / values[known]) @ directions[:, known].T
    return inverse, directions[:, ~known], vectors[:, ~known]


def _set(states: list[FormState], tie: tuple[int, ...], state: FormState) -> None:
    for number in tie:
        states[number] = state
