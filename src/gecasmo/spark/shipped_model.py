"""A model as data that goes to executors, where the class that made it may not exist."""

from __future__ import annotations

import json
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from gecasmo.compiler import automaton_json
from gecasmo.encoding import Rows
from gecasmo.encoding.observations import LAST_CLICK
from gecasmo.estimation.shared_errors import SharedErrors
from gecasmo.forms import Form, FormState
from gecasmo.language.parameter import HISTORY_KEYS
from gecasmo.logs.views import Pages, as_view
from gecasmo.model.base import Model
from gecasmo.model.click_model import AutomatonModel
from gecasmo.model.fit import FitReport

# Models that a worker keeps from one task to the next; each has compiled kernels.
_MOST_MODELS = 4


@dataclass(frozen=True)
class ShippedModel:
    """All of a model but its program."""

    name: str
    automaton: str
    keys: Mapping[str, tuple[str, ...]]
    forms: Mapping[str, Form]
    states: Mapping[str, FormState] | None
    features: Mapping[str, pl.DataFrame]
    relevance: tuple[str, ...]
    report: FitReport | None = None
    errors: SharedErrors | None = None
    view: Mapping[str, Any] = field(default_factory=lambda: Pages().to_data())
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @classmethod
    def of(cls, model: Model, with_states: bool = True) -> ShippedModel:
        """A model, made ready to travel."""
        return cls(
            model.name,
            json.dumps(automaton_json.to_data(model.counting_structure.traced)),
            dict(model.declared_keys),
            dict(model.forms),
            _plain_states(model) if with_states else None,
            dict(model.features_),
            tuple(model.relevance),
            model.report_ if with_states else None,
            model.errors_ if with_states else None,
            as_view(model.view).to_data(),
        )

    def bare(self) -> ShippedModel:
        """The same without what was estimated and without tables of features."""
        return replace(
            self, states=None, features={}, report=None, errors=None, id=f"{self.id} bare"
        )

    def model(self) -> Model:
        """The model, once per process."""
        if self.id not in _models:
            automaton = automaton_json.from_data(json.loads(self.automaton))
            model = AutomatonModel(automaton, self.keys, self.forms, name=self.name)
            model.relevance, model.view = self.relevance, as_view(**self.view)
            model.features_ = dict(self.features)
            model.states_ = None if self.states is None else dict(self.states)
            model.report_, model.errors_ = self.report, self.errors
            _models[self.id] = model
        _models.move_to_end(self.id)
        while len(_models) > _MOST_MODELS:
            _models.popitem(last=False)
        return _models[self.id]


_models: OrderedDict[str, Model] = OrderedDict()


def _plain_states(model: Model) -> dict[str, FormState]:
    """The states with rows as they are; those of a fit may look their keys up in its log."""
    return {
        coin: replace(state, rows=plain_rows(state.rows))
        if model.forms[coin].has_posterior and model.forms[coin].in_files(state) is None
        else state
        for coin, state in model.states(whole=False).items()
    }


def plain_rows(rows: Rows) -> Rows:
    """The same rows with their keys at hand."""
    return Rows(rows.keys, rows.frame.get_columns(), len(rows), rows.attached)


def columns_read(model: Model) -> list[str]:
    """The columns of a log that a model reads beside clicks and ranks."""
    automaton = model.counting_structure.traced
    made: Any = {"session", "result", "rank", "page_length", "click", LAST_CLICK, *HISTORY_KEYS}
    names: list[str] = [*automaton.guard_columns(), *automaton.signals]
    for coin, keys in model.keys.items():
        names += [*keys, *model.forms[coin].columns]
    names += [name for needed in as_view(model.view).needs for name in needed]
    return [name for name in dict.fromkeys(names) if name not in made]
