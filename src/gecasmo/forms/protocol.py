"""What a form has to offer.

A form is a choice of the user and never changes; what is learned lives in a state, a separate
value. `rows` are the distinct keys of the coin: `rows.frame` has the key columns, and
`rows.features(form.columns)` what the form asked for.

`docs/forms.md` shows how to write one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError

Floats = NDArray[np.float64]
FormState = Any  # each form has a state type of its own
Parts = Mapping[str, pl.DataFrame | bytes]  # what a saved form consists of beside JSON


class Form(Protocol):
    """A way to give every row of a coin a probability.

    `key` replaces the key that the model declares. Forms may also have

    - `columns`: the feature columns they read. Without a `key`, rows are then the distinct
      combinations of these columns; with `by_declared_key = True`, those of the declared key
    - `is_constant = True`: all rows are alike, so that one will do
    - `missing`: "raise", or anything else if nulls in these columns are welcome
    - `remarks(state, heads, tails) -> list of str`: what a user should know about a finished fit
    - `coefficients(state)`: a frame, for `model.coefficients`
    - `summary(state)`: a few words for `print(model)`
    - `vector(state)` and `from_vector(state, vector)`: see `VectorForm`
    - `score(state, rows, heads, tails)`: the derivative of the M-step's objective by that vector
    - `informed(state, covariance, is_exact, unknown)`: the state, told how uncertain its vector is;
      `unknown` has the directions that the data say nothing about as columns
    - `logits(state, rows)`: the logits, if the vector is not the logits themselves
    - `information(state, rows, weight)` and `n_coefficients(state)`: for errors of long vectors
    - `squares(state, rows, weight)`: the information on each entry of the vector, about
    - `fit_around(rows, heads, tails, previous, offsets, variance)`: the M-step inside a `Sum`
    - `trainable(state, rows)`: see estimation/trainable.py, for `Gradient`
    - `tuned(state, rows, heads, tails, information)`: the state with a better prior, or the very
      same one
    - `adopted(state, rows)`: the state of an earlier fit, for a fit on other rows
    """

    key: tuple[str, ...] | None

    def begin(self, rows: Rows, generator: np.random.Generator | None) -> FormState:
        """The state before the first M-step; with a generator, a random one near it."""

    def fit(self, rows: Rows, heads: Floats, tails: Floats, previous: FormState) -> FormState:
        """The M-step: maximise sum(heads log p + tails log(1 - p)) + penalty over the rows."""

    def predict(self, state: FormState, rows: Rows) -> Floats:
        """The probability of each row, also of rows never seen."""

    def known(self, state: FormState, rows: Rows) -> NDArray[np.bool_]:
        """Which rows the form can tell something about, beyond what it says of all."""

    def penalty(self, state: FormState) -> float:
        """What the form adds to the objective: the logarithm of its prior."""

    def to_frame(self, state: FormState) -> pl.DataFrame:
        """What was learned, for people. With a column `probability` it has a line per row of the
        fit, in their order, and expected heads and tails are added."""

    def to_data(self, state: FormState) -> tuple[dict[str, Any], Parts]:
        """The form and its state as JSON, frames and bytes, to be saved."""

    @classmethod
    def from_data(cls, data: dict[str, Any], parts: Any) -> tuple[Form, FormState]:
        """What `to_data` described; nothing in it may be run."""


@runtime_checkable
class VectorForm(Protocol):
    """A form whose logits are linear in a vector, which acceleration can extrapolate."""

    def vector(self, state: FormState) -> Floats: ...

    def from_vector(self, state: FormState, vector: Floats) -> FormState: ...


def as_key(key: str | tuple[str, ...] | list[str] | None) -> tuple[str, ...] | None:
    """A key given as one name or as several."""
    from gecasmo.language.parameter import check_keys

    if key is None:
        return None
    return check_keys((key,) if isinstance(key, str) else tuple(key))


def as_columns(columns: Sequence[Any], form: str) -> tuple[str, ...]:
    """Names of feature columns, at least one, each once."""
    from gecasmo.language.parameter import check_keys

    odd = [column for column in columns if not isinstance(column, str)]
    if odd or not columns:
        shown = f", not {odd[0]!r}" if odd else ""
        raise ModelError(f'{form} takes the names of columns, such as {form}("price"){shown}.')
    if "result" in columns:
        raise ModelError(
            f"{form}: 'result' numbers the shown results, so it is a key and no feature. A column "
            "of the log with that name has to be renamed."
        )
    return check_keys(tuple(columns))


def columns_of(form: Any) -> tuple[str, ...]:
    """The feature columns that a form reads."""
    return tuple(getattr(form, "columns", ()))


def keys_of(form: Any, declared: tuple[str, ...], features: pl.DataFrame | None) -> tuple[str, ...]:
    """The key columns in force for a coin with this form.

    Its own key, if it has one. A form with columns has a row per combination of these; of columns
    that a frame of features supplies, per key of that frame.
    """
    if form.key is not None:
        return tuple(form.key)
    if getattr(form, "is_constant", False):
        return ()
    columns = columns_of(form)
    if not columns or getattr(form, "by_declared_key", False):
        return declared
    if features is None:
        return columns
    others = [name for name in features.columns if name not in columns]
    by = [name for name in declared if name in others] or others
    return (*by, *(name for name in columns if name not in features.columns))
