"""One pass over one part: the E-step, and everything that is done row by row.

A pass is a pure function of a part, of the points that it keeps, and of a task. What it answers
adds up over parts, so it does not matter who runs it: one part in memory, many in files, or the
executors of a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.coins import (
    NO_LENGTHS,
    Lengths,
    as_weights,
    extrapolated,
    lengths_of,
    move_of,
    squared_distance,
)
from gecasmo.estimation.expectation import Counts
from gecasmo.estimation.part import Part, Point, Points
from gecasmo.estimation.posteriors.errors import (
    answer_of,
    answer_to_slopes,
    left_open,
    room_of,
    slope_of,
    widened,
)
from gecasmo.estimation.posteriors.part_rows import document_sums, look_at_rows, regression_of
from gecasmo.estimation.tasks import Answer, Recipe, SharedCounts, Task
from gecasmo.forms import TableState
from gecasmo.forms.priors import Priors
from gecasmo.forms.table_state import evidence, prior_of, worth_of
from gecasmo.hashes import mixed

Floats = NDArray[np.float64]
Rows = dict[int, TableState]  # states of local coins, by number

# Tables of coins that several parts have are sent whole up to so many rows, with an index above.
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


# -- what parts are asked to do --------------------------------------------------------------------
def evaluate(part: Part, points: Points, task: Task) -> tuple[Point, Answer]:
    """The E-step at a point, and the EM step from it."""
    states = local_states(part, points, task)
    weights = weights_of(part, states, task.shared)
    part.expectation.settle(weights)
    counts = part.expectation.run(weights)
    following = {
        number: form.fit(
            states[number].rows, counts.heads(number), counts.tails(number), states[number]
        )
        for number, form in _forms(part)
    }
    distance, lengths = _measured(part, points, task, states, following, counts)
    point = Point(
        {number: state.probability for number, state in states.items()},
        {number: state.probability for number, state in following.items()},
    )
    return point, _answered(part, states, counts, distance, lengths)


def draw(part: Part, points: Points, task: Task) -> tuple[None, Answer]:
    """One hidden path of each page, drawn at random: how the coins fell on it."""
    key = mixed(task.extra["key"], part.number)
    weights = weights_of(part, local_states(part, points, task), task.shared)
    return None, _answered(part, {}, part.expectation.draw(weights, key))


def places(part: Part, points: Points, task: Task) -> tuple[None, Answer]:
    """Where documents are shown, which only all parts together know."""
    extra: dict[str, Floats] = {}
    for number, prior in task.priors.items():
        if isinstance(prior, Priors):
            extra |= document_sums(part, number, prior)
    return None, Answer(0.0, 0, 0.0, {}, extra=extra)


def look(part: Part, points: Points, task: Task) -> tuple[Point, Answer]:
    """What is known of every row, global coins held; and what rows, each integrated out, say of
    global coins and of effects that are spread over parts."""
    states = local_states(part, points, task)
    known, counts, sums = look_at_rows(part, states, weights_of(part, states, task.shared), task)
    return point_of(known), _answered(part, {}, counts, extra=sums)


def conclude(part: Part, points: Points, task: Task) -> tuple[Point, Answer]:
    """What is known of every row in the end, in view of where global coins may be instead.

    Rows were looked at when global coins had the weights `before`, if these are given; they go
    along with the step that coins have taken since, and then along each direction in which coins
    and the slopes of priors are uncertain.
    """
    states = known_states(part, points, task)
    counts = part.expectation.run(weights_of(part, states, task.shared))
    if "step" in task.extra:
        states = _stepped(part, states, counts, task)
        counts = part.expectation.run(weights_of(part, states, task.shared))
    regressions = {
        number: regression_of(part, number, prior, task.extra)
        for number, prior in task.priors.items()
        if isinstance(prior, Priors)
    }
    weights = weights_of(part, states, task.shared)
    variance = {number: np.zeros(len(state.probability)) for number, state in states.items()}
    leans = {number: _no_leans(task, len(state.probability)) for number, state in states.items()}
    for place, direction in enumerate(task.extra["directions"]):
        along = {number: task.extra[f"weights.{place}.{number}"] for number in part.shared}
        moved = weights_of(part, states, along, weights)
        there = part.expectation.run(moved)
        for number, state in states.items():
            answer = answer_of(state, number, counts, there)
            slope = slope_of(state, number, counts, there)
            for table, own in leans[number].items():
                own += np.outer(task.extra[f"leans.{table}"][:, place], slope)
            if number in part.leanings:
                answer += room_of(state) * (part.leanings[number].new @ direction)
            if number in regressions:
                slopes = task.extra[f"slopes.{number}"][:, place]
                answer += answer_to_slopes(state, regressions[number], slopes)
            variance[number] += answer**2
    for number, regression in regressions.items():
        variance[number] += left_open(states[number], regression, task.extra[f"rest.{number}"])
    wide = {number: widened(state, variance[number]) for number, state in states.items()}
    return point_of(wide, leans), _answered(part, wide, counts)


Work = Callable[[Part, Points, Task], tuple[Point | None, Answer]]
WORKS: dict[str, Work] = {
    "evaluate": evaluate,
    "draw": draw,
    "places": places,
    "look": look,
    "conclude": conclude,
}


def finished(part: Part, points: Points, task: Task) -> tuple[Rows, Counts]:
    """The local coins at the point of a task, with what is known of them, and the counts of all
    coins there."""
    point = points[task.recipe.of]
    is_known = bool(point.spread)
    states = known_states(part, points, task) if is_known else local_states(part, points, task)
    counts = part.expectation.run(weights_of(part, states, task.shared))
    if is_known:
        for number, state in states.items():
            own = point.leans.get(number, {})
            leans = {part.coins[shared].name: lines for shared, lines in own.items()}
            states[number] = replace(state, leans=leans or None)
            if state.priors is not None:
                typical = regression_of(part, number, state.priors).design.typical
                states[number] = replace(states[number], typical=typical)
    return states, counts


# -- states of local coins ---------------------------------------------------------------------
def local_states(part: Part, points: Points, task: Task) -> Rows:
    """The local coins as a recipe has them, under the priors of a task."""
    recipe = task.recipe
    if recipe.kind == "begin":
        return {n: _with_prior(part, n, state, task) for n, state in _begun(part, recipe).items()}
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


def known_states(part: Part, points: Points, task: Task) -> Rows:
    """The local coins at a point, with what is known of their rows there."""
    if not part.local:  # then there are no points either: all rows are shared
        return {}
    point = points[task.recipe.of]
    found = {}
    for number, form in _forms(part):
        state = replace(part.local[number], probability=point.probability[number])
        prior = point.priors.get(number, task.priors[number])
        if isinstance(prior, Priors):
            pseudo = np.stack([point.heads[number], point.tails[number]])
            state = form.with_prior(state, prior, pseudo)
        else:
            state = _with_prior(part, number, state, task)
        state = replace(state, centre=point.centre[number], spread=point.spread[number])
        found[number] = replace(state, evidence=evidence(state, point.worth[number]))
    return found


def _with_prior(part: Part, number: int, state: TableState, task: Task) -> TableState:
    """A state under the prior that its coin has now."""
    prior = task.priors[number]
    if prior is None:
        return state
    if isinstance(prior, tuple):
        return replace(state, pseudo=prior, priors=None)
    form: Any = part.coins[number].form
    pseudo = regression_of(part, number, prior, task.extra).pseudo()
    made: TableState = form.with_prior(state, prior, pseudo)
    return made


def _at(part: Part, probability: Mapping[int, Floats], task: Task) -> Rows:
    return {
        number: _with_prior(part, number, replace(state, probability=probability[number]), task)
        for number, state in part.local.items()
    }


def _begun(part: Part, recipe: Recipe) -> Rows:
    if recipe.seed is None:
        return part.local
    entropy, *spawned = recipe.seed
    sequence = np.random.SeedSequence(entropy, spawn_key=tuple(spawned))
    # All coins in order, local or not: every part draws the same for the same coin.
    states = part.begun(np.random.default_rng(sequence))
    return {number: states[number] for number in part.local}


def _stepped(part: Part, states: Rows, counts: Counts, task: Task) -> Rows:
    """The rows as they go along with the step that global coins have taken since they were looked
    at."""
    before = {number: task.extra[f"before.{number}"] for number in part.shared}
    at = part.expectation.run(weights_of(part, states, before))
    moved = {}
    for number, form in _forms(part):
        state = states[number]
        answer = answer_of(state, number, at, counts)
        if number in part.leanings:
            answer += room_of(state) * (part.leanings[number].new @ task.extra["step"])
        # That is to first order: no row goes more than half the way to 0 or 1 by it.
        centre = np.asarray(state.centre)
        mean = np.clip(centre + answer, centre / 2, (1 + centre) / 2)
        moved[number] = form.with_posterior(state, mean, np.asarray(state.spread))
    return moved


def weights_of(
    part: Part, states: Rows, shared: Mapping[int, Floats], known: list[Floats] | None = None
) -> list[Floats]:
    """The weights of all coins, local ones and those of all parts, in the rows of this part;
    those of local ones may be `known` already."""
    weights = []
    for number in range(len(part.coins)):
        if number in states:
            weights.append(known[number] if known else as_weights(states[number].probability))
        else:
            weights.append(own_columns(part, number, shared[number]))
    return weights


def own_columns(part: Part, number: int, table: Floats) -> Floats:
    """Of a table of all rows of a coin, those that are met here."""
    index = part.index.get(number)
    if index is None or (
        table.shape[1] == len(index) and bool((index == np.arange(len(index))).all())
    ):
        return table
    return np.ascontiguousarray(table[:, index])


# -- answers ---------------------------------------------------------------------------------------
def _answered(
    part: Part,
    states: Rows,
    counts: Counts,
    distance: float = 0.0,
    lengths: Lengths = NO_LENGTHS,
    extra: dict[str, Any] | None = None,
) -> Answer:
    """The answer of a part from its counts."""
    shared = {number: _counted(part, number, counts.tables[number]) for number in part.shared}
    return Answer(
        counts.log_likelihood + part.constant,
        counts.n_impossible,
        sum(form.penalty(states[number]) for number, form in _forms(part) if number in states),
        shared,
        distance,
        lengths,
        extra or {},
    )


def _counted(part: Part, number: int, table: Floats) -> SharedCounts:
    """The counts of a coin that other parts may have, too."""
    index = part.index.get(number)
    if index is None:
        return SharedCounts(table, table.shape[1])
    n_rows = part.n_rows[number]
    if n_rows > _SENT_WHOLE:
        return SharedCounts(table, n_rows, index)
    whole = np.zeros((2, n_rows))
    whole[:, index] = table
    return SharedCounts(whole, n_rows)


def _measured(
    part: Part, points: Points, task: Task, states: Rows, following: Rows, counts: Counts
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


def point_of(states: Rows, leans: Mapping[int, Mapping[int, Floats]] | None = None) -> Point:
    """The point of rows of which something is known."""
    probability = {number: state.probability for number, state in states.items()}
    priors = {number: prior_of(state) for number, state in states.items()}
    return Point(
        probability,
        probability,
        {number: np.asarray(state.centre) for number, state in states.items()},
        {number: np.asarray(state.spread) for number, state in states.items()},
        {number: worth_of(state) for number, state in states.items()},
        {number: prior[0] for number, prior in priors.items()},
        {number: prior[1] for number, prior in priors.items()},
        leans or {},
        {number: state.priors for number, state in states.items() if state.priors is not None},
    )


def _no_leans(task: Task, n_rows: int) -> dict[int, Floats]:
    """By number of a global table, `[its row, row]`, where nothing leans on it yet."""
    names = [name for name in task.extra if name.startswith("leans.")]
    return {
        int(name.removeprefix("leans.")): np.zeros((len(task.extra[name]), n_rows))
        for name in names
    }


def _forms(part: Part) -> list[tuple[int, Any]]:
    return [(number, part.coins[number].form) for number in part.local]
