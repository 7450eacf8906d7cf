"""The model under examination: what it is, where its rows are, and probabilities to look at."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding import EncodedLog, Rows
from gecasmo.errors import GecasmoError, ModelError
from gecasmo.estimation import EM, Counts, Expectation
from gecasmo.estimation.coins import as_weights
from gecasmo.forms import FormState
from gecasmo.logs import ClickLog
from gecasmo.model import Model
from gecasmo.models import model_named

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# A quick fit looks at so many pages for so many iterations: enough to see where things are.
QUICK_PAGES = 20_000
QUICK_ITERATIONS = 30
_THINGS = ("query", "doc", "session", "result")


def as_model(model: Any) -> Model:
    """The model that a name, a class or a model stands for."""
    if isinstance(model, str):
        return model_named(model)()
    if isinstance(model, type) and issubclass(model, Model):
        model = model()  # type: ignore[call-arg]
    if not isinstance(model, Model):
        raise ModelError(
            f"check(log, {model!r}): a model is wanted, its class, or a name such as 'DBN'."
        )
    return model


def is_about_things(keys: Sequence[str]) -> bool:
    """Whether rows by these keys belong to single things in the log, and not to all of it."""
    return any(key in _THINGS for key in keys)


@dataclass
class CheckedModel:
    """A model with probabilities, and a log without pages that are impossible under them.

    `is_fitted` tells whether the probabilities come from the user's fit or from a quick one.
    """

    model: Model
    log: ClickLog
    states: dict[str, FormState]
    is_fitted: bool

    @cached_property
    def encoded(self) -> EncodedLog:
        """The log as the E-step reads it."""
        return self.model.encode(self.log, "e_step")

    @cached_property
    def counts(self) -> Counts:
        """Expected heads and tails of every row of the log."""
        return expect(self.model, self.encoded, self.probabilities(self.encoded.rows))

    @cached_property
    def fixed(self) -> list[Bools]:
        """Which rows of each coin are given."""
        return [
            form.given_rows(rows)
            for form, rows in zip(self.model.forms.values(), self.encoded.rows, strict=True)
        ]

    def probabilities(self, rows: list[Rows] | tuple[Rows, ...]) -> list[Floats]:
        """The probability of each of these rows, per coin."""
        return predict(self.model, self.states, rows)


def coin_to_give(subject: CheckedModel, coins: Sequence[str]) -> str:
    """Of coins that need a given row, the one in which it is most natural: shared, and small."""
    names = list(subject.model.forms)

    def order(coin: str) -> tuple[bool, int]:
        n_rows = len(subject.encoded.rows[names.index(coin)])
        return is_about_things(subject.model.keys[coin]), n_rows

    return min(coins, key=order)


def predict(
    model: Model, states: dict[str, FormState], rows: list[Rows] | tuple[Rows, ...]
) -> list[Floats]:
    """The probabilities of rows, per coin."""
    return [
        np.ascontiguousarray(form.predict(states[coin], its), dtype=np.float64)
        for (coin, form), its in zip(model.forms.items(), rows, strict=True)
    ]


def expect(model: Model, encoded: EncodedLog, probabilities: list[Floats]) -> Counts:
    """The E-step at these probabilities."""
    library = model.library(encoded.plan, counting=True)
    return Expectation(encoded, library).run([as_weights(p) for p in probabilities])


def begin(model: Model, rows: list[Rows], seed: int | None = None) -> dict[str, FormState]:
    """The states that a fit would start from, or random ones; coins that share a form share it."""
    generator = None if seed is None else np.random.default_rng(seed)
    known: dict[tuple[int, int], FormState] = {}
    states = {}
    for (coin, form), its in zip(model.forms.items(), rows, strict=True):
        key = (id(form), id(its))
        if key not in known:
            known[key] = form.begin(its, generator)
        states[coin] = known[key]
    return states


def quick_states(model: Model, log: ClickLog, seed: int) -> dict[str, FormState] | None:
    """States near the optimum, from a part of the log; None where no fit is possible."""
    part = some_pages(log, QUICK_PAGES, seed)
    twin = model.copy()
    try:
        with warnings.catch_warnings():
            # That so few iterations do not converge is no news to the user of a check.
            warnings.simplefilter("ignore")
            method = EM(max_iter=QUICK_ITERATIONS, restarts=1)
            twin.fit(part, method, progress=False, impossible="drop")
    except GecasmoError:
        return None
    return twin.states()


def some_pages(log: ClickLog, most: int, seed: int) -> ClickLog:
    """At most so many pages: those of random queries, as whole as can be."""
    if log.n_sessions <= most:
        return log
    generator = np.random.default_rng(seed)
    if log.has_query:
        from gecasmo.encoding.columns import coded, in_chain

        query = coded(log, "query", "query", nullable=True)
        filled = log.lengths > 0
        codes = np.zeros(log.n_sessions, np.int64)
        codes[filled] = in_chain(log, query.codes)[log.starts[:-1][filled]]
        order = np.argsort(generator.permutation(len(query.values))[codes], kind="stable")
    else:
        order = generator.permutation(log.n_sessions)
    return log.take(np.sort(order[:most]))
