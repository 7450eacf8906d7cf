"""A probability that is given, not estimated."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError
from gecasmo.forms import saved
from gecasmo.forms.form import Bools, Floats, Form, Posterior, as_key

if TYPE_CHECKING:
    from gecasmo.forms.memory import Memory

NUMBERS = (int, float, np.integer, np.floating)


class Fixed(Form):
    """The same probability for every row, never changed by a fit: `Fixed(0.9)`.

    It has one row whatever key the model declares; with `key=`, expected heads and tails are
    counted per row of that key.
    """

    row_by_row = True

    def __init__(self, value: float, key: str | tuple[str, ...] | None = None) -> None:
        if isinstance(value, bool) or not isinstance(value, NUMBERS) or not 0 <= value <= 1:
            raise ModelError(
                f"Fixed({value!r}): a probability between 0 and 1 is wanted. To fix some rows of "
                "a table: Table(fixed={row: value})."
            )
        self.value = float(value)
        self.key = as_key(key)

    @property
    def constant(self) -> float:
        return self.value

    def begin(self, rows: Rows, generator: np.random.Generator | None) -> Rows:
        return rows

    def fit(self, rows: Rows, heads: Floats, tails: Floats, previous: Rows) -> Rows:
        return previous

    def predict(self, state: Rows, rows: Rows) -> Floats:
        return np.full(len(rows), self.value)

    def given_rows(self, rows: Rows) -> Bools:
        return np.ones(len(rows), bool)

    def has_given(self, state: Rows) -> bool:
        return True

    def posterior(
        self, state: Rows, rows: Rows, probability: Floats, counts: Floats | None
    ) -> Posterior:
        told = super().posterior(state, rows, probability, counts)
        return replace(told, rests_on=np.full(len(rows), "given"))

    def vector(self, state: Rows) -> Floats:
        return np.zeros(0)

    def from_vector(self, state: Rows, vector: Floats) -> Rows:
        return state

    def trainable(self, state: Rows, rows: Rows) -> Any:
        from gecasmo.forms.trainable import TrainableConstant

        return TrainableConstant(self, state, rows)

    def memory(self, state: Rows, counts: Floats, decay: float) -> Memory:
        from gecasmo.forms.memory import FixedMemory

        return FixedMemory(self, state, counts, decay)

    def to_frame(self, state: Rows) -> pl.DataFrame:
        column = pl.Series("probability", np.full(len(state), self.value))
        return pl.DataFrame([*state.frame.get_columns(), column])

    def to_data(self, state: Rows) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
        return {**self.options(), "keys": list(state.keys)}, {"table": self.to_frame(state)}

    @classmethod
    def from_data(cls, data: dict[str, Any], frames: dict[str, pl.DataFrame]) -> tuple[Fixed, Rows]:
        frame, keys = frames["table"], tuple(data["keys"])
        columns = saved.columns(frame, keys, "a table")
        return cls.from_options(data), Rows(keys, columns, len(frame))
