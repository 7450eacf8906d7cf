"""The free parameters behind the rows of coins, whatever forms the coins have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.checkup.subject import Bools, fixed_rows
from gecasmo.checkup.words import row_text
from gecasmo.encoding import Rows
from gecasmo.estimation.steps import is_vector
from gecasmo.forms import Fixed, FormState, Table
from gecasmo.forms.protocol import columns_of
from gecasmo.model import Model

Floats = NDArray[np.float64]

# Forms with longer vectors are left alone.
MOST_COEFFICIENTS = 60


@dataclass(frozen=True)
class Parameters:
    """How the logits of all rows depend on what is estimated.

    Attributes
    ----------
    design : a line per row of each coin, a column per parameter
    coins : the coins of each parameter (several if they share a form)
    rows : the row that a parameter is the logit of, or -1 for a coefficient
    names : each parameter in words
    opaque : coins whose form does not say how it depends on anything
    """

    design: Floats
    coins: tuple[tuple[str, ...], ...]
    rows: NDArray[np.int64]
    names: tuple[str, ...]
    opaque: tuple[str, ...]


def parameters_of(
    model: Model,
    rows: Sequence[Rows],
    states: dict[str, FormState],
    *,
    everything_free: bool = False,
) -> Parameters:
    """The free parameters of a model on these rows.

    With `everything_free` also rows that are given count as free, to see what giving them does.
    """
    sizes = [len(its) for its in rows]
    first = np.concatenate([[0], np.cumsum(sizes)])
    columns: list[Floats] = []
    coins: list[tuple[str, ...]] = []
    row_of: list[int] = []
    names: list[str] = []
    opaque = []
    for tie in _ties(model):
        members = [list(model.forms).index(coin) for coin in tie]
        form, its = model.forms[tie[0]], rows[members[0]]
        if isinstance(form, (Table, Fixed)):
            free = np.ones(len(its), bool) if everything_free else ~fixed_rows(form, its)
            for row in np.flatnonzero(free).tolist():
                column = np.zeros(first[-1])
                column[first[members[0]] + row] = 1.0
                columns.append(column)
                row_of.append(row)
                names.append(f"{tie[0]} of {row_text(its, row)}" if its.keys else tie[0])
            coins += [tie] * int(free.sum())
            continue
        design = _design(form, states[tie[0]], its)
        if design is None:
            opaque += list(tie)
            continue
        for number in range(design.shape[1]):
            column = np.zeros(first[-1])
            for member in members:
                column[first[member] : first[member + 1]] = design[:, number]
            columns.append(column)
            row_of.append(-1)
            coins.append(tie)
        names += _coefficient_names(form, states[tie[0]], tie[0], design.shape[1])
    matrix = np.array(columns).T if columns else np.zeros((first[-1], 0))
    return Parameters(matrix, tuple(coins), np.array(row_of, np.int64), tuple(names), tuple(opaque))


def random_probabilities(
    model: Model, rows: Sequence[Rows], seed: int, *, everything_free: bool = False
) -> tuple[list[Floats], dict[str, FormState]]:
    """Probabilities somewhere in the middle, no two alike, with given rows as they are given."""
    generator = np.random.default_rng(seed)
    found: dict[int, tuple[Floats, FormState]] = {}
    probabilities, states = [], {}
    for number, (coin, form) in enumerate(model.forms.items()):
        key = id(form) if columns_of(form) else -number - 1
        if key not in found:
            found[key] = _random_state(form, rows[number], generator, everything_free)
        probability, states[coin] = found[key]
        probabilities.append(probability)
    return probabilities, states


def _random_state(
    form: Any, rows: Rows, generator: np.random.Generator, everything_free: bool
) -> tuple[Floats, FormState]:
    state = form.begin(rows, None)
    if isinstance(form, (Table, Fixed)):
        values = generator.uniform(0.2, 0.8, len(rows))
        given: Bools = fixed_rows(form, rows) & (not everything_free)
        return np.where(given, form.predict(state, rows), values), state
    if is_vector(form):
        vector = np.asarray(form.vector(state), float)
        state = form.from_vector(state, vector + generator.normal(0, 0.3, len(vector)))
    return np.clip(np.asarray(form.predict(state, rows), float), 0.05, 0.95), state


def _ties(model: Model) -> list[tuple[str, ...]]:
    """Coins by form, as fits tie them: forms with features are shared, tables are not."""
    ties: dict[int, list[str]] = {}
    for number, (coin, form) in enumerate(model.forms.items()):
        ties.setdefault(id(form) if columns_of(form) else -number - 1, []).append(coin)
    return [tuple(coins) for coins in ties.values()]


def _design(form: Any, state: FormState, rows: Rows) -> Floats | None:
    """How the logits of rows follow a form's vector, which is linear; None if there is none."""
    if not is_vector(form):
        return None
    vector = np.asarray(form.vector(state), float)
    if len(vector) > MOST_COEFFICIENTS:
        return None
    step = 0.1
    columns = [
        _logits(form, form.from_vector(state, vector + step * unit), rows)
        - _logits(form, form.from_vector(state, vector - step * unit), rows)
        for unit in np.eye(len(vector))
    ]
    return np.array(columns).T.reshape(len(rows), len(vector)) / (2 * step)


def _logits(form: Any, state: FormState, rows: Rows) -> Floats:
    from scipy.special import logit

    p = np.clip(np.asarray(form.predict(state, rows), float), 1e-12, 1 - 1e-12)
    logits: Floats = logit(p)
    return logits


def _coefficient_names(form: Any, state: FormState, coin: str, size: int) -> list[str]:
    """The names that a form has for its coefficients, if it has some for all of them."""
    if hasattr(form, "coefficients"):
        frame = form.coefficients(state)
        texts = [name for name, dtype in frame.schema.items() if dtype.is_numeric() is False]
        if len(frame) == size and texts:
            return [f"{coin}: {' '.join(map(str, row))}" for row in frame.select(texts).rows()]
    return [f"{coin}: coefficient {number + 1}" for number in range(size)]
