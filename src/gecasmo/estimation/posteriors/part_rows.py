"""What is known of the rows of one part, under priors that were learned from a sample.

A log in memory is one part and has all rows of everything. Where there are several, all rows of a
query are in one of them, so the effects of queries are found there. The rows of a document are in
many: what each part says of its documents is summed up over slots of their hashes, which bounds
what goes over the wire, and comes back with the next pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.estimation.coins import as_weights
from gecasmo.estimation.expectation import Counts
from gecasmo.estimation.part import Part
from gecasmo.estimation.posteriors.likelihood import asked_of
from gecasmo.estimation.posteriors.moments import Believing
from gecasmo.estimation.posteriors.regression import Regression
from gecasmo.estimation.posteriors.sweeps import look_through
from gecasmo.estimation.tasks import Task
from gecasmo.forms import TableState
from gecasmo.forms.priors import Design, Effect, Priors
from gecasmo.forms.typical import scaled, with_place
from gecasmo.hashes import hash_values
from gecasmo.kernels.threads import in_threads

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Values of a column that is spread over parts share their effects by hash.
SLOTS = 1 << 18
# EM steps of rows after their priors were learned.
STEPS = 3
LOCAL = "query"
# Effects that stray by less, in logits, are left as some pages told them.
_LITTLE = 0.1


def regression_of(
    part: Part, number: int, priors: Priors, extra: Mapping[str, Any] | None = None
) -> Regression:
    """The learned prior of a local coin for the rows of a part.

    Where there are other parts, of effects only the spread; and what is typical of documents is
    that of all parts, as far as `extra` knows it.
    """
    if number in part.designs:
        design = part.designs[number]
        return Regression(design, priors.for_levels(design.levels), part.pasts.get(number))
    rows = part.coins[number].rows
    typical = dict(part.typical.get(number, {}))
    for name in priors.of_documents:
        told = (extra or {}).get(means_name(number, name))
        if told is not None:
            total, count = told[:, slots_of(rows.frame["doc"])]
            typical[name] = total / np.maximum(count, 1.0)
    design = Design.under(rows, priors, typical, {})
    effects = []
    for effect, level in zip(priors.effects, design.levels, strict=True):
        n = len(level.values)
        variance = np.full(n, effect.spread**2)
        effects.append(Effect(effect.name, level.values, np.zeros(n), variance, effect.spread))
    return Regression(design, replace(priors, effects=tuple(effects), unseen=None))


def means_name(number: int, name: str) -> str:
    """What sums of a typical value over the rows of documents are called."""
    return f"means.{number}.{name}"


def document_sums(part: Part, number: int, priors: Priors) -> dict[str, Floats]:
    """Sums over the rows of a part, and their numbers, by the slot of their document."""
    rows = part.coins[number].rows
    typical = with_place(rows, part.typical.get(number, {}), priors.beyond)
    found = {}
    for name, of in priors.of_documents.items():
        slots = slots_of(rows.frame["doc"])
        x = scaled(of, typical[of])
        sums = [np.bincount(slots, x, SLOTS), np.bincount(slots, minlength=SLOTS)]
        found[means_name(number, name)] = np.stack(sums).astype(np.float64)
    return found


def slots_of(values: pl.Series) -> Integers:
    """The slot of each value."""
    shift = np.uint64(64 - (SLOTS.bit_length() - 1))
    return (hash_values(values) >> shift).astype(np.int64)


def look_at_rows(
    part: Part, states: dict[int, TableState], weights: list[Floats], task: Task
) -> tuple[dict[int, TableState], Counts, dict[str, Floats]]:
    """Let rows go where their priors and global coins put them, then look at all of them once.

    Returns the local coins with what is known of their rows, and what the part adds to sums over
    all parts: counts of global coins without rows, and what rows say of values in slots.
    `task.extra` may have what all parts say of values in slots: mean and precision beyond the
    spread, under the name that `sums` has.
    """
    expectation, coins = part.expectation, part.coins
    states, weights = dict(states), list(weights)
    for _ in range(STEPS):
        counts = expectation.run(weights)
        for number in states:
            coin = coins[number]
            heads, tails = counts.heads(number), counts.tails(number)
            states[number] = coin.form.fit(coin.rows, heads, tails, states[number])
            weights[number] = as_weights(states[number].probability)
    asked = asked_of(weights, states)
    beliefs = Believing(asked)
    shared = look_through(expectation, weights, asked, beliefs.take)
    for one, (mean, deviation) in zip(asked, beliefs.finish(), strict=True):
        form: Any = coins[one.coin].form
        states[one.coin] = form.with_posterior(states[one.coin], mean, deviation)
    sums: dict[str, Floats] = {}

    def follow(number: int) -> None:
        states[number] = _with_effects(part, number, states[number], task, sums)

    in_threads(follow, [n for n in states if isinstance(task.priors[n], Priors)])
    return states, shared, sums


def _with_effects(
    part: Part, number: int, state: TableState, task: Task, sums: dict[str, Floats]
) -> TableState:
    """The state under a prior whose effects all rows have a say in; adds to the sums over slots.

    What pages say of a row is taken for the flips that it is worth, so that rows need not be
    looked at again.
    """
    priors = task.priors[number]
    assert isinstance(priors, Priors)
    is_all = number in part.designs
    # Small ones are left as the sample told them; other parts know nothing of what it told.
    least = _LITTLE if is_all else 0.0
    if not any(effect.spread > least for effect in priors.effects):
        return state
    regression = regression_of(part, number, priors, task.extra)
    if not is_all:
        _take_slots(regression, number, task)
    counted = np.ones(len(state.probability), bool)
    if state.is_fixed is not None:
        counted = ~state.is_fixed
    evidence = np.maximum(np.asarray(state.evidence), 0.0)
    regression.follow(evidence, counted & (evidence.sum(axis=0) > 0))
    if is_all:
        priors = replace(priors, effects=regression.priors.effects)
    for effect, level in zip(regression.priors.effects, regression.design.levels, strict=True):
        if effect.name in regression.held and effect.spread > 0:
            slots = slots_of(level.values)[level.index]
            says, mean = regression.says, effect.mean[level.index]
            told = np.stack([says[0] + says[1] * mean, says[1]])
            sums[slot_name(number, effect.name)] = np.stack(
                [np.bincount(slots, side, SLOTS) for side in told]
            )
    form: Any = part.coins[number].form
    pseudo = regression.pseudo()
    heads, tails = pseudo + evidence
    mean = heads / (heads + tails)
    spread = np.sqrt(mean * (1 - mean) / (heads + tails + 1))
    found: TableState = form.with_posterior(form.with_prior(state, priors, pseudo), mean, spread)
    return found


def slot_name(number: int, effect: str) -> str:
    """What sums over the values of an effect of a coin are called."""
    return f"slots.{number}.{effect}"


def _take_slots(regression: Regression, number: int, task: Task) -> None:
    """Effects that all parts have a say in, as they are now."""
    effects = []
    held = set()
    for effect in regression.priors.effects:
        if effect.name != LOCAL:
            held.add(effect.name)
            told = task.extra.get(slot_name(number, effect.name))
            if told is not None and effect.spread > 0:
                shift, precision = told[:, slots_of(effect.values)]
                precision = precision + effect.spread**-2
                effect = replace(effect, mean=shift / precision, variance=1 / precision)
        effects.append(effect)
    regression.held = frozenset(held)
    regression.priors = replace(regression.priors, effects=tuple(effects))
