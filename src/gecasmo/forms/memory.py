"""What a form remembers of logs that are gone, so that a new one can be merged in.

`form.memory(state, counts, decay)` makes such a memory. An update climbs the likelihood of the new
log plus what the memory says; see docs/updates.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.matching import match
from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError
from gecasmo.forms.form import Floats, Form, FormState

if TYPE_CHECKING:
    from gecasmo.forms.table_memory import TableMemory

Integers = NDArray[np.int64]


class Memory(ABC):
    """The past of one form, decayed, during one update.

    Attributes
    ----------
    form : the form that climbs
    is_learned : whether the prior was learned from logs
    """

    form: Form
    is_learned: bool = False

    @property
    def of_rows(self) -> TableMemory | None:
        """The past of a table, whose rows lean on coins that pages share; None of others."""
        return None

    @abstractmethod
    def begin(self, rows: Rows) -> FormState:
        """Make the state to climb from, on the rows of the new log, with the past as its prior."""

    @abstractmethod
    def merged(self, state: FormState, counts: Floats) -> tuple[FormState, Floats]:
        """Bring the end of the climb to old and new rows, with the expected tails and heads of
        these."""


class Union:
    """Old rows, and after them the rows that only a new log has.

    `found` has the place of each row of the new log among the old ones, or -1; `place` the place
    among all.
    """

    def __init__(self, old: Rows, new: Rows) -> None:
        self.old, self.new = old, new
        if "result" in new.keys:
            raise ModelError(
                "rows by 'result' are numbers of shown results, which mean nothing in another log"
            )
        if not new.keys:
            self.found = np.zeros(len(new), np.int64) if len(old) else np.full(len(new), -1)
        else:
            self.found = match(new.frame, old.frame, new.keys)
        self.is_new = self.found < 0
        fresh = len(old) + np.cumsum(self.is_new) - 1
        self.place: Integers = np.where(self.is_new, fresh, self.found)

    def rows(self) -> Rows:
        """All of them."""
        if not self.is_new.any():
            return self.old
        n = len(self.old) + int(self.is_new.sum())
        chosen = pl.Series(np.flatnonzero(self.is_new))
        columns = [
            joined_columns(self.old.frame[key], self.new.frame[key].gather(chosen))
            for key in self.new.keys
        ]
        return Rows(self.new.keys, columns, n)

    def of_old(self, per_row: Any, otherwise: float) -> Any:
        """For each row of the new log what its old row has."""
        wide = np.concatenate([per_row, np.full((*per_row.shape[:-1], 1), otherwise)], axis=-1)
        return wide[..., self.found]

    def widened(self, per_row: Any, otherwise: float) -> Any:
        """Values of old rows as values of all."""
        more = int(self.is_new.sum())
        fill = np.full((*per_row.shape[:-1], more), otherwise, dtype=per_row.dtype)
        return np.concatenate([per_row, fill], axis=-1)


def joined_columns(old: pl.Series, new: pl.Series) -> pl.Series:
    """One column of two; ids of one kind may come as different types."""
    textual = (pl.Categorical, pl.Enum)
    if old.dtype != new.dtype and (old.dtype in textual or new.dtype in textual):
        old, new = old.cast(pl.String), new.cast(pl.String)
    if old.dtype == pl.Null:
        old = old.cast(new.dtype)
    frames = [old.alias("").to_frame(), new.alias("").to_frame()]
    return pl.concat(frames, how="vertical_relaxed").to_series()
