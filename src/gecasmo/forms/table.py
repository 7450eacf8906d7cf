"""A free table: every row has a probability of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.matching import match, values_by_key
from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError, SavedModelError
from gecasmo.forms.fixed import NUMBERS
from gecasmo.forms.protocol import Floats, as_key


@dataclass(frozen=True)
class TableState:
    """A probability per row; `otherwise` is the answer for rows that are not there."""

    rows: Rows
    probability: Floats
    otherwise: float
    is_fixed: NDArray[np.bool_] | None = None
    is_constant: bool = False  # `otherwise` is meant for every row there is


class Table:
    """One free probability per row, shrunk a little by pseudo-counts.

    Parameters
    ----------
    pseudo_counts : (a, b)
        Heads and tails added to what is expected: a row answers
        (heads + a) / (heads + tails + a + b), and a row without counts a / (a + b). With (0, 0)
        such a row keeps its start value.
    start : float
        The probability of every row before the first iteration.
    fixed : dict
        Rows that are given, not estimated: `{1: 1.0}`, or `{(1, 0): 1.0}` for two keys.
    key : str or tuple of str
        Other key columns than those that the model declares.
    """

    def __init__(
        self,
        pseudo_counts: tuple[float, float] = (1.0, 1.0),
        start: float = 0.5,
        fixed: Mapping[Any, float] | None = None,
        key: str | tuple[str, ...] | None = None,
    ) -> None:
        try:
            a, b = map(float, pseudo_counts)
        except (TypeError, ValueError):
            raise ModelError(
                f"pseudo_counts are two numbers (heads, tails), not {pseudo_counts!r}."
            ) from None
        if not (0 <= a < np.inf and 0 <= b < np.inf):
            raise ModelError(f"pseudo_counts must not be negative: {pseudo_counts!r}.")
        if not 0 < start < 1:
            raise ModelError(f"start={start!r} must lie strictly between 0 and 1.")
        self.pseudo_counts = (a, b)
        self.start = float(start)
        self.fixed = dict(fixed or {})
        self.key = as_key(key)

    def __repr__(self) -> str:
        parts = []
        if self.pseudo_counts != (1.0, 1.0):
            parts.append(f"pseudo_counts=({self.pseudo_counts[0]:g}, {self.pseudo_counts[1]:g})")
        if self.start != 0.5:
            parts.append(f"start={self.start:g}")
        if self.fixed:
            parts.append(f"fixed={self.fixed!r}")
        if self.key is not None:
            parts.append(f"key={self.key[0]!r}" if len(self.key) == 1 else f"key={self.key!r}")
        return f"Table({', '.join(parts)})"

    @property
    def otherwise(self) -> float:
        """The answer for a row that was never seen."""
        a, b = self.pseudo_counts
        return a / (a + b) if a + b > 0 else self.start

    def begin(self, rows: Rows, generator: np.random.Generator | None) -> TableState:
        probability = np.full(len(rows), self.start)
        if generator is not None:
            # Coins must differ from each other for mixture components to part; rows barely.
            logit = np.log(self.start / (1 - self.start)) + generator.normal()
            probability = _logistic(logit + generator.normal(0, 0.1, len(rows)))
        is_fixed = None
        if self.fixed:
            given, is_fixed = self._fixed_rows(rows)
            probability = np.where(is_fixed, given, probability)
        return TableState(rows, probability, self.otherwise, is_fixed)

    def fit(self, rows: Rows, heads: Floats, tails: Floats, previous: TableState) -> TableState:
        a, b = self.pseudo_counts
        total = heads + tails
        if a + b > 0:
            probability = (heads + a) / (total + (a + b))
        else:
            probability = np.divide(heads, total, out=previous.probability.copy(), where=total > 0)
        if previous.is_fixed is not None:
            probability = np.where(previous.is_fixed, previous.probability, probability)
        return replace(previous, probability=probability)

    def predict(self, state: TableState, rows: Rows) -> Floats:
        if rows is state.rows:
            return state.probability
        found = self._find(state, rows)
        answer = np.full(len(rows), state.otherwise)
        seen = found >= 0
        answer[seen] = state.probability[found[seen]]
        if self.fixed and not seen.all():
            given, is_fixed = self._fixed_rows(rows)
            answer = np.where(is_fixed & ~seen, given, answer)
        return answer

    def known(self, state: TableState, rows: Rows) -> NDArray[np.bool_]:
        if rows is state.rows or state.is_constant:
            return np.ones(len(rows), bool)
        return self._find(state, rows) >= 0

    def penalty(self, state: TableState) -> float:
        a, b = self.pseudo_counts
        p = state.probability
        if state.is_fixed is not None:
            p = p[~state.is_fixed]
        with np.errstate(divide="ignore"):
            total = a * np.log(p).sum() if a else 0.0
            total += b * np.log1p(-p).sum() if b else 0.0
        return float(total)

    def remarks(self, state: TableState, heads: Floats, tails: Floats) -> list[str]:
        """What a user should know about a finished fit."""
        if sum(self.pseudo_counts) > 0:
            return []
        idle = (heads + tails) <= 0
        if state.is_fixed is not None:
            idle &= ~state.is_fixed
        if not idle.any():
            return []
        first = dict(zip(state.rows.keys, state.rows.frame.row(int(np.argmax(idle))), strict=True))
        return [
            f"{int(idle.sum()):,} of {len(idle):,} rows were never flipped and, without "
            f"pseudo-counts, keep their start value {self.start:g} (first: {first})"
        ]

    def vector(self, state: TableState) -> Floats:
        from scipy.special import logit  # not at the top: importing gecasmo stays light

        logits: Floats = logit(state.probability)
        return logits

    def score(self, state: TableState, rows: Rows, heads: Floats, tails: Floats) -> Floats:
        """The derivative of the M-step's objective by the logits."""
        a, b = self.pseudo_counts
        slope: Floats = heads + a - (heads + tails + a + b) * state.probability
        return slope if state.is_fixed is None else np.where(state.is_fixed, 0.0, slope)

    def from_vector(self, state: TableState, vector: Floats) -> TableState:
        probability = _logistic(vector)
        if state.is_fixed is not None:
            probability = np.where(state.is_fixed, state.probability, probability)
        return replace(state, probability=probability)

    def to_frame(self, state: TableState) -> pl.DataFrame:
        column = pl.Series("probability", state.probability)
        return pl.DataFrame([*state.rows.frame.get_columns(), column])

    def to_data(self, state: TableState) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
        fixed = list(map(list, _as_items(self.fixed)))
        data = {
            "pseudo_counts": list(self.pseudo_counts),
            "start": self.start,
            "key": None if self.key is None else list(self.key),
            "fixed": fixed,
            "keys": list(state.rows.keys),
            "otherwise": state.otherwise,
            "is_constant": state.is_constant,
        }
        frame = self.to_frame(state)
        if state.is_fixed is not None:
            frame = frame.with_columns(pl.Series("*fixed*", state.is_fixed))
        return data, {"table": frame}

    @classmethod
    def from_data(
        cls, data: dict[str, Any], frames: dict[str, pl.DataFrame]
    ) -> tuple[Table, TableState]:
        form = cls(
            pseudo_counts=tuple(data["pseudo_counts"]),
            start=data["start"],
            fixed={tuple(key): value for key, value in data["fixed"]},
            key=None if data["key"] is None else tuple(data["key"]),
        )
        frame = frames["table"]
        keys = tuple(data["keys"])
        rows = Rows(keys, [frame[key] for key in keys], len(frame))
        is_fixed = frame["*fixed*"].to_numpy() if "*fixed*" in frame.columns else None
        probability = frame["probability"].to_numpy().astype(np.float64)
        otherwise = float(data["otherwise"])
        if not np.all((np.r_[probability, otherwise] >= 0) & (np.r_[probability, otherwise] <= 1)):
            raise ModelError("a table holds numbers that are no probabilities")
        return form, TableState(
            rows, probability, otherwise, is_fixed, bool(data.get("is_constant", False))
        )

    def given(self, values: Any, keys: tuple[str, ...], coin: str) -> TableState:
        """A state from numbers that the user knows: one for all rows, or by key."""
        keys = self.key if self.key is not None else keys
        if isinstance(values, NUMBERS) and not isinstance(values, bool):
            if not 0 <= values <= 1:
                raise ModelError(f"{coin}={values!r} is not a probability.")
            n_rows = 0 if keys else 1
            empty = [pl.Series(key, [], dtype=pl.Null) for key in keys]
            probability = np.full(n_rows, float(values))
            rows = Rows(keys, empty, n_rows)
            return TableState(rows, probability, float(values), is_constant=True)
        frame = values_by_key(values, keys, coin)
        rows = Rows(keys, [frame[key] for key in keys], len(frame))
        return TableState(rows, frame["probability"].to_numpy(), self.otherwise)

    def _find(self, state: TableState, rows: Rows) -> NDArray[np.int64]:
        if not rows.keys:
            return np.zeros(len(rows), np.int64) if len(state.rows) else np.full(len(rows), -1)
        if not len(state.rows):
            return np.full(len(rows), -1, np.int64)
        return match(rows.frame, state.rows.frame, rows.keys)

    def _fixed_rows(self, rows: Rows) -> tuple[Floats, NDArray[np.bool_]]:
        if not rows.keys:
            raise ModelError("A coin without key has one row: use Fixed(value) to give it.")
        given = values_by_key(self.fixed, rows.keys, "fixed")
        found = match(rows.frame, given, rows.keys)
        values = given["probability"].to_numpy()
        return np.where(found >= 0, values[found], 0.5), found >= 0


def _as_items(fixed: dict[Any, float]) -> list[tuple[list[Any], float]]:
    """Keys as lists of plain values, which JSON can hold."""
    items = []
    for key, value in fixed.items():
        parts = key if isinstance(key, tuple) else (key,)
        plain = [part.item() if isinstance(part, np.generic) else part for part in parts]
        odd = [part for part in plain if not isinstance(part, (str, int, float, bool))]
        if odd:
            raise SavedModelError(
                f"fixed={{{key!r}: ...}} cannot be saved: {type(odd[0]).__name__} has no place in "
                "JSON. Use texts or numbers as ids."
            )
        items.append((plain, float(value)))
    return items


def _logistic(logits: Any) -> Floats:
    from scipy.special import expit

    probability: Floats = expit(logits)
    return probability
