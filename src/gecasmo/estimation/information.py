"""What the log says about parameters: the observed information, from derivatives of the E-step.

The derivative of the log-likelihood by a coin's logit is heads - (heads + tails) theta, with
expected counts, so one more E-step a little to the side gives a column of the second derivative.
Nothing is left out: flips that stay hidden widen the errors as they should.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.problem import Evaluation, Problem
from gecasmo.forms import FormState

Floats = NDArray[np.float64]

# More parameters than this are not differentiated one by one.
MOST_PARAMETERS = 100
# What a million pages say about a few coefficients, a random part of them says as well.
_PAGES = 100_000
_STEP = 1e-4
_PROBES = 8


def with_errors(problem: Problem, best: Evaluation) -> list[FormState]:
    """The states of a fit, with the covariance of their coefficients where forms can hold one.

    All forms with a small vector vary together; larger tables are held at their estimates.
    """
    takers = [tie for tie in problem.ties if hasattr(problem.coins[tie[0]].form, "informed")]
    if not takers:
        return best.states
    small = _small(problem, best.states)
    states = list(best.states)
    if any(tie in small for tie in takers):
        covariance = _inverse(_observed(problem, best, small))
        start = 0
        for tie in small:
            form: Any = problem.coins[tie[0]].form
            size = len(form.vector(best.states[tie[0]]))
            if tie in takers:
                block = covariance[start : start + size, start : start + size]
                _set(states, tie, form.informed(states[tie[0]], block, True))
            start += size
    for tie in takers:
        form = problem.coins[tie[0]].form
        if tie in small or not hasattr(form, "information"):
            continue
        rows = problem.coins[tie[0]].rows
        information = row_information(problem, best, tie)
        matrix = form.information(best.states[tie[0]], rows, information)
        _set(states, tie, form.informed(states[tie[0]], _inverse(matrix), False))
    return states


def row_information(problem: Problem, best: Evaluation, tie: tuple[int, ...]) -> Floats:
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
    for _ in range(_PROBES):
        signs = generator.choice((-1.0, 1.0), len(coin.rows))
        sides = [
            _row_slopes(problem, best.states, tie, side * _STEP * signs) for side in (1.0, -1.0)
        ]
        total -= signs * (sides[0] - sides[1]) / (2 * _STEP)
    # Hidden flips only ever take information away.
    return np.clip(total / _PROBES, 0.0, complete)


def _row_slopes(
    problem: Problem, states: list[FormState], tie: tuple[int, ...], moved: Floats
) -> Floats:
    """The derivative of the log-likelihood by each row's logit, at logits moved a little."""
    from scipy.special import expit, logit

    from gecasmo.estimation.problem import as_weights

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


def _small(problem: Problem, states: Sequence[FormState]) -> list[tuple[int, ...]]:
    """The forms that can be differentiated, as many as stay below the limit, smallest first."""
    sizes = []
    for tie in problem.ties:
        form: Any = problem.coins[tie[0]].form
        if hasattr(form, "score"):
            sizes.append((len(form.vector(states[tie[0]])), tie))
    chosen, total = [], 0
    for size, tie in sorted(sizes):
        total += size
        if size > 0 and total <= MOST_PARAMETERS:
            chosen.append(tie)
    return chosen


def _observed(problem: Problem, best: Evaluation, ties: Sequence[tuple[int, ...]]) -> Floats:
    """Minus the second derivative of the objective by the vectors of some forms."""
    columns = []
    for tie in ties:
        form: Any = problem.coins[tie[0]].form
        vector = form.vector(best.states[tie[0]])
        for place in range(len(vector)):
            sides = []
            for side in (_STEP, -_STEP):
                moved = vector.copy()
                moved[place] += side
                states = list(best.states)
                _set(states, tie, form.from_vector(states[tie[0]], moved))
                sides.append(_slopes(problem, states, ties))
            columns.append((sides[1] - sides[0]) / (2 * _STEP))
    matrix = np.array(columns)
    return (matrix + matrix.T) / 2


def _slopes(problem: Problem, states: list[FormState], ties: Sequence[tuple[int, ...]]) -> Floats:
    """The derivative of the objective by the vectors of some forms."""
    n_buckets, factor = problem.expectation.sample(_PAGES)
    counts = problem.expectation.run(problem.weights(states), n_buckets)
    slopes = []
    for tie in ties:
        coin = problem.coins[tie[0]]
        form: Any = coin.form
        tails, heads = factor * np.sum([counts.tables[number] for number in tie], axis=0)
        slopes.append(form.score(states[tie[0]], coin.rows, heads, tails))
    return np.concatenate(slopes)


def _inverse(matrix: Floats) -> Floats:
    """The inverse on the directions that the data say something about.

    Directions that say nothing (collinear columns, the common level of a category) are not
    estimated, and get no error.
    """
    values, vectors = np.linalg.eigh(matrix)
    known = values > 1e-7 * max(float(values.max(initial=0.0)), 1e-300)
    inverse: Floats = (vectors[:, known] / values[known]) @ vectors[:, known].T
    return inverse


def _set(states: list[FormState], tie: tuple[int, ...], state: FormState) -> None:
    for number in tie:
        states[number] = state
