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
from gecasmo.estimation.beliefs.regression import Regression
from gecasmo.forms import TableState
from gecasmo.forms.memory import joined_columns
from gecasmo.forms.past import RowPast, joined_typical
from gecasmo.forms.priors import Design, Effect, Priors
from gecasmo.forms.table_memory import TableMemory

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Past:
    """What a `Regression` of the rows of a new log knows of earlier ones.

    Parameters
    ----------
    design : of the rows of the new log, in view of both
    rows : heads and tails of each row
    priors : where slopes and effects were left; effects as sure as they still are
    hold : what the information on slopes counts now
    sites : what each row has said of the logit of its prior's mean, as a parabola: slope at 0, and
        precision
    """

    design: Design
    rows: RowPast
    priors: Priors
    hold: float
    sites: Floats

    def of_rows(self, rows: Integers) -> Past:
        """That of some of the rows."""
        design, own = self.design.of_rows(rows), self.rows.at(rows)
        return replace(self, design=design, rows=own, sites=self.sites[:, rows])

    def says(self, logit: Floats) -> Floats:
        """The slope and the precision of what rows have said, at these logits."""
        return np.stack([self.sites[0] - self.sites[1] * logit, self.sites[1]])


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
        self.priors = replace(
            before.priors,
            effects=tuple(
                _faded(effect, level.values, memory.decay)
                for effect, level in zip(before.priors.effects, self.everything.levels, strict=True)
            ),
        )
        sites = memory.decay * _sites(before, old, memory.past / memory.decay)
        self.sites = union.widened(sites, 0.0)
        self.past = Past(
            self.everything.of_rows(place),
            memory.row_past.at(union.found),
            self.priors,
            memory.decay,
            self.sites[:, place],
        )

    def begun(self, state: TableState) -> TableState:
        """The state that the climb begins with."""
        pseudo = Regression(self.past.design, self.priors, self.past).pseudo()
        return replace(state, priors=self.priors, pseudo=pseudo)

    def conclude(self, state: TableState) -> None:
        """Tell the memory of the priors of old and new rows."""
        assert state.priors is not None
        union, priors = self.memory.union, state.priors
        says = Past(self.everything, self.past.rows, priors, 1.0, self.sites).says(
            self.everything.logit(priors)
        )
        prior = self.everything.pseudo(priors, says)
        prior[:, union.place] = self.past.rows.without(np.asarray(state.pseudo))
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


def _faded(effect: Effect, values: pl.Series, decay: float) -> Effect:
    """What is still known of the effects of some values."""
    mean, variance, _ = effect.of(values)
    if effect.spread > 0:
        told = np.maximum(1 / variance - effect.spread**-2, 0.0)
        mean = decay * mean / variance
        variance = 1 / (effect.spread**-2 + decay * told)
        mean = mean * variance
    return replace(effect, values=values, mean=mean, variance=variance)


def _sites(state: TableState, known: _Known, evidence: Floats) -> Floats:
    """What each row has said of the logit of its prior's mean: slope at 0, and precision."""
    assert state.priors is not None
    priors: Any = state.priors
    if not any(effect.spread for effect in priors.effects):
        return np.zeros((2, len(state.rows)))
    design = Design.under(state.rows, priors, known.numbers, known.values)
    effects = [
        _faded(effect, level.values, 1.0)
        for effect, level in zip(priors.effects, design.levels, strict=True)
    ]
    priors = replace(priors, effects=tuple(effects))
    counted = np.ones(len(state.rows), bool) if state.is_fixed is None else ~state.is_fixed
    regression = Regression(design, priors)
    regression.look(np.maximum(evidence, 0.0), counted, with_basis=False)
    slope, precision = regression.says
    return np.stack([slope + precision * design.logit(priors), precision])
