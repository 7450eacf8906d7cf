"""What earlier logs leave behind about the learned priors of a table.

By the chain rule an update predicts the new log from the old one: slopes and effects are held where
the old log left them, and a row's new pages speak of them only as far as the row's own past has not
foretold these pages (`bends`). So nothing is said twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.estimation.posteriors.regression import SETTLED, Regression
from gecasmo.forms import TableState
from gecasmo.forms.memory import RowPast, TableMemory, joined_columns, joined_typical
from gecasmo.forms.priors import Design, Effect, Priors

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# How far effects stray, in logits, when earlier logs have not shown that they do.
_LITTLE = 0.1


@dataclass(frozen=True)
class Past:
    """What a `Regression` knows of earlier logs.

    Parameters
    ----------
    design : of the rows of both logs, those of the new one that are looked at first
    rows : heads and tails of the rows that are looked at
    priors : where slopes and effects were left
    hold : the weight of the past
    sites : what each row has said of the logit of its prior's mean, as a parabola: slope at 0, and
        precision
    then : the logit that the mean of each row's prior had
    number : of each row among those of both logs
    leant : how much of the slopes of what rows have said global coins have moved since
    """

    design: Design
    rows: RowPast
    priors: Priors
    hold: float
    sites: Floats
    then: Floats
    number: Integers
    leant: Floats | float = 0.0

    @property
    def n_met(self) -> int:
        """How many rows are looked at."""
        return int(self.rows.share.shape[1])

    def told_of_effects(self, number: int) -> Floats:
        """The slopes of what rows said of the effects of a column where these were left: there they
        were in balance with how far effects stray, unless that was still on its way to nothing."""
        effect = self.priors.effects[number]
        return self.hold * effect.mean * max(effect.spread, SETTLED) ** -2

    def of_rows(self, rows: Integers) -> Past:
        """If only some of the rows are looked at."""
        rest = np.ones(len(self.then), bool)
        rest[rows] = False
        order = np.concatenate([rows, np.flatnonzero(rest)])
        return replace(
            self,
            design=self.design.of_rows(order),
            rows=self.rows.at(rows),
            sites=self.sites[:, order],
            then=self.then[order],
            number=self.number[order],
        )

    def says(self, logit: Floats) -> Floats:
        """The slope and the precision of what rows have said, at these logits."""
        return np.stack([self.sites[0] - self.sites[1] * logit, self.sites[1]])

    def since(self, logit: Floats) -> Floats:
        """The same, of slopes only how they have changed since then."""
        return np.stack([self.sites[1] * (self.then - logit), self.sites[1]])


@dataclass
class Leaning:
    """How what was said of rows depends on global coins.

    All is by row of both logs; `place` are those of the new one.

    Parameters
    ----------
    memory : of the coin whose rows these are
    leans : by number of a global coin, `[row, row of the global coin]`
    begin : by number of a global coin, where the past left the logits of its rows
    mean, room : what was believed of rows, and how far their logits go with a head for a tail
    by_mean, by_strength : how far they go with the logit of the prior's mean, and its log strength
    past, prior : heads and tails of the past, and of the prior, of rows of the new log
    """

    memory: TableMemory
    leans: dict[int, Floats]
    begin: dict[int, Floats]
    mean: Floats
    room: Floats
    by_mean: Floats
    by_strength: Floats
    place: Integers
    past: RowPast
    prior: Floats
    shared: Any = None

    @classmethod
    def of(cls, memory: TableMemory, shared: Mapping[int, tuple[str, TableMemory]]) -> Leaning:
        """From what a coin and the global coins remember."""
        before, union = memory.before, memory.union
        leans, begin = {}, {}
        for number, (name, other) in shared.items():
            own = (before.leans or {}).get(name)
            if own is None:
                continue
            found = other.union.found
            told = np.concatenate([own, np.zeros((1, own.shape[1]))])[found]
            leans[number] = memory.decay * union.widened(told, 0.0).T
            p = np.append(other.before.probability, 0.5)[found]
            p = np.clip(p, 1e-9, 1 - 1e-9)
            begin[number] = np.where(found >= 0, np.log(p / (1 - p)), np.nan)
        mean = before.probability if before.centre is None else before.centre
        mean = union.widened(np.clip(mean, 1e-9, 1 - 1e-9), 0.5)
        worth = memory.prior.sum(axis=0) + union.widened(memory.past.sum(axis=0), 0.0)
        room = 1 / (np.maximum(worth, 0.0) + 1) / (mean * (1 - mean))
        heads, tails = memory.prior
        by_mean = room * heads * tails / np.maximum(heads + tails, 1e-9)
        by_strength = room * (heads * (1 - mean) - tails * mean)
        prior = memory.prior[:, union.place]
        past = memory.row_past.at(union.found)
        return cls(memory, leans, begin, mean, room, by_mean, by_strength, union.place, past, prior)

    def align(self, shared: Any, states: Any) -> None:
        """Put the numbers in the order that global coins have in a climb."""
        n_rows = len(self.mean)
        blocks, begin = [np.zeros((n_rows, 0))], [np.zeros(0)]
        vectors = shared.by_coin(shared.vector(states))
        for number, vector in vectors.items():
            blocks.append(self.leans.get(number, np.zeros((n_rows, len(vector)))))
            then = self.begin.get(number, vector)
            begin.append(np.where(np.isnan(then), vector, np.clip(then, -20.0, 20.0)))
        self.shared, self.start = shared, np.concatenate(begin)
        self.all = np.hstack(blocks)
        self.new = self.all[self.place]

    def moved(self, states: Any) -> Floats:
        """How far shared numbers are from where the past left them."""
        found: Floats = self.shared.vector(states) - self.start
        return found

    def shift(self, states: Any) -> Floats:
        """How many tails of each row of both logs are heads by now."""
        if self.shared is None:
            return np.zeros(len(self.mean))
        found: Floats = self.all @ self.moved(states)
        return found

    def shifted(self, past: Past, states: Any) -> Past:
        """The past in view of global coins as they are now."""
        shift = self.shift(states)[past.number]
        rows = replace(past.rows, shift=shift[: past.n_met])
        return replace(past, rows=rows, leant=self.by_mean[past.number] * shift)

    def without(self, rows: Integers) -> Integers:
        """All rows but these of the new log."""
        rest = np.ones(len(self.mean), bool)
        rest[self.place[rows]] = False
        return np.flatnonzero(rest)

    def moves(self, rows: Integers, states: Any, past: Past | None, logit: Any) -> Floats:
        """How far rows that no page tells of have moved, as logits: with global coins, and with
        their priors."""
        found: Floats = self.room[rows] * self.shift(states)[rows]
        if past is not None:
            changed = np.zeros(len(self.mean))
            changed[past.number] = logit - past.then
            # Of rows without a past nothing was said that could lean.
            found += self.by_mean[rows] * changed[rows]
        return found

    def score(self, rows: Integers, mean: Floats) -> Floats:
        """What rows of the new log, with means that have moved, ask of shared numbers."""
        then = self.mean[self.place[rows]]
        found: Floats = ((mean - then) / (then * (1 - then))) @ self.new[rows]
        return found


class LearnedPast:
    """The past of a table whose prior is learned: `past` for the climb, and what comes of it."""

    def __init__(self, memory: TableMemory, typical: Mapping[str, pl.Series]) -> None:
        before = memory.before
        assert before.priors is not None
        self.memory = memory
        union, place = memory.union, memory.union.place
        old = _Known.of(before)
        new = _Known.of_log(union.new, before.priors, typical)
        numbers = joined_typical(union, memory.rows, old.numbers, new.numbers, memory.decay)
        values = {
            name: joined_columns(own, new.values[name].filter(pl.Series(union.is_new)))
            for name, own in old.values.items()
        }
        self.everything = Design.under(memory.rows, before.priors, numbers, values)
        effects = [
            _revived(_aligned(effect, level.values))
            for effect, level in zip(before.priors.effects, self.everything.levels, strict=True)
        ]
        self.priors = replace(before.priors, effects=tuple(effects))
        sites, then = _sites(before, old, memory.past / memory.decay)
        everywhere = np.arange(len(memory.rows))
        everything = Past(
            self.everything,
            memory.row_past.at(np.where(everywhere < len(union.old), everywhere, -1)),
            self.priors,
            memory.decay,
            union.widened(memory.decay * sites, 0.0),
            union.widened(then, 0.0),
            everywhere,
        )
        self.all, self.past = everything, everything.of_rows(place)

    def begun(self, state: TableState) -> TableState:
        """The state that the climb begins with."""
        pseudo = Regression(self.past.design, self.priors, self.past).pseudo()
        return replace(state, priors=self.priors, pseudo=pseudo)

    def conclude(self, state: TableState, shift: Floats) -> None:
        """Tell the memory of the priors of old and new rows, of which so many tails are heads."""
        assert state.priors is not None
        place, priors = self.memory.union.place, state.priors
        prior = self.everything.pseudo(priors, self.all.says(self.everything.logit(priors)))
        rows = replace(self.past.rows, shift=shift[place])
        prior[:, place] = rows.without(np.asarray(state.pseudo))
        priors = replace(priors, unseen=self.everything.unseen(priors))
        if priors.information is None:
            priors = replace(priors, information=self.priors.information)
        self.memory.conclude(priors, prior, self.everything.typical)


@dataclass(frozen=True)
class _Known:
    """What is typical of rows: numbers, and values of columns that are none."""

    rows: Rows
    numbers: dict[str, Floats]
    values: dict[str, pl.Series]

    @classmethod
    def of(cls, state: TableState) -> _Known:
        """As a model has kept it."""
        assert state.priors is not None
        numbers = dict(state.typical or {})
        values = {}
        for effect in state.priors.effects:
            if effect.name not in state.rows.keys:
                codes = numbers.pop(effect.name).astype(np.int64)
                values[effect.name] = effect.values.gather(pl.Series(codes))
        return cls(state.rows, numbers, values)

    @classmethod
    def of_log(cls, rows: Rows, priors: Priors, typical: Mapping[str, pl.Series]) -> _Known:
        """As it is in a new log."""
        named = {effect.name for effect in priors.effects}
        numbers = {
            name: values.to_numpy().astype(np.float64)
            for name, values in typical.items()
            if name not in named and values.dtype.is_numeric()
        }
        return cls(rows, numbers, {n: values for n, values in typical.items() if n in named})


def merged_leans(name: str, memories: Mapping[str, Any], state: TableState) -> Any:
    """How all that was said of a coin's rows, old and new, depends on global coins."""
    memory = memories[name]
    before, day = memory.before.leans or {}, state.leans or {}
    found = {}
    for shared in before.keys() | day.keys():
        other = memories[shared]
        total = np.zeros((len(other.rows), len(memory.rows)))
        if shared in before:
            total[: len(other.before.rows), : len(memory.before.rows)] = before[shared]
            total *= memory.decay
        if shared in day:
            total[np.ix_(other.union.place, memory.union.place)] += day[shared]
        found[shared] = total
    return found or None


def _aligned(effect: Effect, values: pl.Series) -> Effect:
    """The effects of some values."""
    mean, variance, _ = effect.of(values)
    return replace(effect, values=values, mean=mean, variance=variance)


def _revived(effect: Effect) -> Effect:
    """What was too little to be seen in earlier logs may be seen together with a new one."""
    if effect.spread > 0 or not len(effect.values):
        return effect
    variance = np.full(len(effect.values), _LITTLE**2)
    return replace(effect, variance=variance, spread=_LITTLE)


def _sites(state: TableState, known: _Known, evidence: Floats) -> tuple[Floats, Floats]:
    """What each row has said of the logit of its prior's mean, and that logit."""
    assert state.priors is not None
    priors = state.priors
    design = Design.under(state.rows, priors, known.numbers, known.values)
    effects = [
        _aligned(effect, level.values)
        for effect, level in zip(priors.effects, design.levels, strict=True)
    ]
    priors = replace(priors, effects=tuple(effects))
    counted = np.ones(len(state.rows), bool) if state.is_fixed is None else ~state.is_fixed
    regression = Regression(design, priors)
    regression.look(np.maximum(evidence, 0.0), counted, with_basis=False)
    slope, precision = regression.says
    then = design.logit(priors)
    return np.stack([slope + precision * then, precision]), then
