"""What a form has to offer.

A form is a choice of the user and never changes; what is learned lives in a state, a separate
value. `rows` are the distinct keys of the coin (`rows.frame` has their columns).
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows

Floats = NDArray[np.float64]
FormState = Any  # each form has a state type of its own


class Form(Protocol):
    """A way to give every row of a coin a probability."""

    key: tuple[str, ...] | None

    def begin(self, rows: Rows, generator: np.random.Generator | None) -> FormState:
        """The state before the first M-step; with a generator, a random one near it."""

    def fit(self, rows: Rows, heads: Floats, tails: Floats, previous: FormState) -> FormState:
        """The M-step: maximise sum(heads log p + tails log(1 - p)) - penalty over the rows."""

    def predict(self, state: FormState, rows: Rows) -> Floats:
        """The probability of each row, also of rows never seen."""

    def known(self, state: FormState, rows: Rows) -> NDArray[np.bool_]:
        """Which rows were there when the form was fitted."""

    def penalty(self, state: FormState) -> float:
        """What the form adds to the objective: the logarithm of its prior."""

    def remarks(self, state: FormState, heads: Floats, tails: Floats) -> list[str]:
        """What a user should know about a finished fit, in words; usually nothing."""

    def to_frame(self, state: FormState) -> pl.DataFrame:
        """Key columns and `probability`, for people."""

    def to_data(self, state: FormState) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
        """The form and its state as JSON and frames, to be saved."""

    @classmethod
    def from_data(
        cls, data: dict[str, Any], frames: dict[str, pl.DataFrame]
    ) -> tuple[Form, FormState]:
        """What `to_data` described."""


@runtime_checkable
class VectorForm(Protocol):
    """A form whose state is a vector of logits, which acceleration can extrapolate."""

    def vector(self, state: FormState) -> Floats: ...

    def from_vector(self, state: FormState, vector: Floats) -> FormState: ...


def as_key(key: str | tuple[str, ...] | list[str] | None) -> tuple[str, ...] | None:
    """A key given as one name or as several."""
    from gecasmo.language.parameter import check_keys

    if key is None:
        return None
    return check_keys((key,) if isinstance(key, str) else tuple(key))
