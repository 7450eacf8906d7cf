"""One pass over one part: the E-step, and everything that is done row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.beliefs.errors import (
    answer_of,
    answer_to_slopes,
    left_open,
    slope_of,
    widened,
)
from gecasmo.estimation.expectation import Counts
from gecasmo.estimation.parts.believing import believe_rows, document_sums, regression_of
from gecasmo.estimation.parts.part import Part, Point, Points
from gecasmo.estimation.parts.tasks import Answer, Recipe, SharedCounts, Task
from gecasmo.estimation.problem import as_weights
from gecasmo.estimation.steps import (
    NO_LENGTHS,
    Lengths,
    extrapolated,
    lengths_of,
    move_of,
    squared_distance,
)
from gecasmo.forms import TableState
from gecasmo.forms.evidence import evidence, prior_of, worth_of
from gecasmo.forms.priors import Priors

Floats = NDArray[np.float64]

# Tables of shared coins are sent whole up to so many rows, and with an index above.
_SENT_WHOLE = 4096


def run_pass(part: Part, points: Points, task: Task) -> tuple[Points, Answer]:
    """What a part does in one pass: new points, and what the driver hears of it.

    Nothing is changed in place, so a pass that is cut short can be run again.
    """
    point, answer = WORKS[task.work](part, points, task)
    kept = {name: old for name, old in points.items() if name not in task.forget}
    if task.name and point is not None:
        kept[task.name] = point
    return kept, answer


def evaluate(part: Part, points: Points, task: Task) -> tuple[Point, Answer]:
    """The E-step at a point, and the EM step from it."""
    states = local_states(part, points, task)
    counts = part.problem.expectation.run(weights_of(part, states, task))
    following = {
        number: form.fit(states[number].rows, *_heads_and_tails(counts, number), states[number])
        for number, form in _forms(part)
    }
    distance, lengths = _measured(part, points, task, states, following, counts)
    point = Point(
        {number: state.probability for number, state in states.items()},
        {number: state.probability for number, state in following.items()},
    )
    return point, answered(part, states, counts, distance, lengths)


def places(part: Part, points: Points, task: Task) -> tuple[None, Answer]:
    """Where documents are shown, which only all parts together know."""
    extra: dict[str, Floats] = {}
    for number, prior in task.priors.items():
        if isinstance(prior, Priors):
            extra |= document_sums(part, number, prior)
    return None, Answer(0.0, 0, 0.0, {}, extra=extra)


def look(part: Part, points: Points, task: Task) -> tuple[Point, Answer]:
    """What rows say, with each integrated out, of shared coins and of effects that are spread over
    parts."""
    states = local_states(part, points, task)
    found = believe_rows(part, states, weights_of(part, states, task), task)
    extra = dict(found.sums)
    for number, index in part.index.items():
        whole = np.zeros((2, part.n_rows[number]))
        whole[:, index] = found.counts.tables[number]
        extra[f"counts.{number}"] = whole
    counts = part.problem.expectation.run(weights_of(part, found.states, task))
    probability = {number: state.probability for number, state in found.states.items()}
    return Point(probability, probability), answered(part, found.states, counts, extra=extra)


def believe(part: Part, points: Points, task: Task) -> tuple[Point, Answer]:
    """What is believed of every row, also in view of where shared coins may be instead."""
    expectation = part.problem.expectation
    states = local_states(part, points, task)
    found = believe_rows(part, states, weights_of(part, states, task), task).states
    weights = weights_of(part, found, task)
    counts = expectation.run(weights)
    regressions = {
        number: regression_of(part, number, prior, task.extra)
        for number in found
        if isinstance(prior := task.priors[number], Priors)
    }
    extra = {number: np.zeros(len(state.probability)) for number, state in found.items()}
    leans = {number: _no_leans(task, len(state.probability)) for number, state in found.items()}
    for place in range(task.extra["n_directions"]):
        moved = list(weights)
        for number, index in part.index.items():
            shared = task.extra[f"weights.{place}.{number}"]
            moved[number] = np.ascontiguousarray(shared[:, index])
        there = expectation.run(moved)
        for number, state in found.items():
            answer = answer_of(state, number, counts, there)
            slope = slope_of(state, number, counts, there)
            for shared_coin, own in leans[number].items():
                own += np.outer(task.extra[f"leans.{shared_coin}"][:, place], slope)
            if number in regressions:
                slopes = task.extra[f"slopes.{number}"][:, place]
                answer += answer_to_slopes(state, regressions[number], slopes)
            extra[number] += answer**2
    for number, regression in regressions.items():
        extra[number] += left_open(found[number], regression, task.extra[f"rest.{number}"])
    wide = {number: widened(state, extra[number]) for number, state in found.items()}
    probability = {number: state.probability for number, state in wide.items()}
    priors = {number: prior_of(state) for number, state in wide.items()}
    point = Point(
        probability,
        probability,
        {number: np.asarray(state.centre) for number, state in wide.items()},
        {number: np.asarray(state.spread) for number, state in wide.items()},
        {number: worth_of(state) for number, state in wide.items()},
        {number: prior[0] for number, prior in priors.items()},
        {number: prior[1] for number, prior in priors.items()},
        leans,
    )
    return point, answered(part, wide, counts)


def _no_leans(task: Task, n_rows: int) -> dict[int, Floats]:
    """By number of a shared table, `[its row, row]`, where nothing leans on it yet."""
    names = [name for name in task.extra if name.startswith("leans.")]
    return {
        int(name.removeprefix("leans.")): np.zeros((len(task.extra[name]), n_rows))
        for name in names
    }


def finished(part: Part, points: Points, task: Task) -> tuple[dict[int, TableState], Counts]:
    """The local coins at the point of a task, with what is believed of them, and the counts of all
    coins there."""
    states = local_states(part, points, task)
    counts = part.problem.expectation.run(weights_of(part, states, task))
    point = points[task.recipe.of]
    for number in states:
        if number in point.spread:
            state = replace(
                states[number], centre=point.centre[number], spread=point.spread[number]
            )
            if state.priors is not None:
                pseudo = np.stack([point.heads[number], point.tails[number]])
                typical = regression_of(part, number, state.priors).design.typical
                state = replace(state, pseudo=pseudo, typical=typical)
            coins, own = part.problem.coins, point.leans.get(number, {})
            states[number] = replace(
                state,
                evidence=evidence(state, point.worth[number]),
                leans={coins[shared].name: lines for shared, lines in own.items()} or None,
            )
    return states, counts


def answered(
    part: Part,
    states: dict[int, TableState],
    counts: Counts,
    distance: float = 0.0,
    lengths: Lengths = NO_LENGTHS,
    extra: dict[str, Any] | None = None,
) -> Answer:
    """The answer of a part from its counts."""
    shared = {}
    for number, index in part.index.items():
        table, n_rows = counts.tables[number], part.n_rows[number]
        if n_rows > _SENT_WHOLE:
            shared[number] = SharedCounts(table, n_rows, index)
        else:
            whole = np.zeros((2, n_rows))
            whole[:, index] = table
            shared[number] = SharedCounts(whole, n_rows)
    return Answer(
        counts.log_likelihood + part.problem.constant,
        counts.n_impossible,
        sum(form.penalty(states[number]) for number, form in _forms(part)),
        shared,
        distance,
        lengths,
        extra or {},
    )


def local_states(part: Part, points: Points, task: Task) -> dict[int, TableState]:
    """The local coins as a recipe has them, under the priors of a task."""
    recipe = task.recipe
    if recipe.kind == "begin":
        began = _begun(part, recipe)
        return {n: with_prior(part, n, state, task) for n, state in began.items()}
    if recipe.kind == "same":
        return _at(part, points[recipe.of].probability, task)
    after = _at(part, points[recipe.of].following, task)
    if recipe.kind == "next":
        return after
    start = _at(part, points[recipe.start].probability, task)
    middle = _at(part, points[recipe.of].probability, task)
    found = {}
    for number, form in _forms(part):
        move = move_of(form, (start[number], middle[number], after[number]))
        found[number] = extrapolated(form, after[number], move, recipe.length)
    return found


def weights_of(part: Part, states: dict[int, TableState], task: Task) -> list[Floats]:
    """The weights of all coins, local and shared, in the rows of this part."""
    weights = []
    for number in range(len(part.problem.coins)):
        if number in states:
            weights.append(as_weights(states[number].probability))
        else:
            shared, index = task.shared[number], part.index[number]
            is_whole = shared.shape[1] == len(index) and bool(
                (index == np.arange(len(index))).all()
            )
            weights.append(shared if is_whole else np.ascontiguousarray(shared[:, index]))
    return weights


def with_prior(part: Part, number: int, state: TableState, task: Task) -> TableState:
    """A state under the prior that its coin has now."""
    prior = task.priors[number]
    if isinstance(prior, tuple):
        return replace(state, pseudo=prior, priors=None)
    form: Any = part.problem.coins[number].form
    pseudo = regression_of(part, number, prior, task.extra).pseudo()
    made: TableState = form.with_prior(state, prior, pseudo)
    return made


def _at(part: Part, probability: Any, task: Task) -> dict[int, TableState]:
    return {
        number: with_prior(part, number, replace(state, probability=probability[number]), task)
        for number, state in part.begin.items()
    }


def _begun(part: Part, recipe: Recipe) -> dict[int, TableState]:
    if recipe.seed is None:
        return dict(part.begin)
    entropy, *spawned = recipe.seed
    sequence = np.random.SeedSequence(entropy, spawn_key=tuple(spawned))
    generator = np.random.default_rng(sequence)
    # All coins in order, local or not: every part draws the same for the same coin.
    states = part.problem.begin(generator)
    return {number: states[number] for number in part.begin}


def _measured(
    part: Part,
    points: Points,
    task: Task,
    states: dict[int, TableState],
    following: dict[int, TableState],
    counts: Counts,
) -> tuple[float, Lengths]:
    """How far an EM step has moved the local coins, and how long its extrapolation may be."""
    if task.recipe.kind != "next":
        return 0.0, NO_LENGTHS
    before = _at(part, points[task.recipe.of].probability, task)
    distance = step = bend = 0.0
    for number, form in _forms(part):
        flips, rows = counts.tables[number].sum(axis=0), states[number].rows
        distance += squared_distance(form, rows, before[number], states[number], flips)
        if task.ahead:
            three = (before[number], states[number], following[number])
            lengths = lengths_of(form, rows, three, move_of(form, three), flips)
            step, bend = step + lengths.step, bend + lengths.bend
    return distance, Lengths(step, bend)


def _forms(part: Part) -> list[tuple[int, Any]]:
    return [(number, part.problem.coins[number].form) for number in part.begin]


def _heads_and_tails(counts: Counts, number: int) -> tuple[Floats, Floats]:
    return counts.heads(number), counts.tails(number)


Work = Callable[[Part, Points, Task], tuple[Point | None, Answer]]
WORKS: dict[str, Work] = {
    "evaluate": evaluate,
    "places": places,
    "look": look,
    "believe": believe,
}
