"""Turn feature columns into numbers: numeric ones standardised, texts as numbered levels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.matching import match
from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError
from gecasmo.forms.form import Floats


class ByRows(WeakKeyDictionary[Rows, Any]):
    """What has been worked out about some rows; forgotten with them, and never saved."""

    def __reduce__(self) -> tuple[type[ByRows], tuple[()]]:
        return ByRows, ()


_TEXTUAL = (pl.String, pl.Categorical, pl.Enum)


@dataclass(frozen=True, eq=False)
class CodedFeatures:
    """Features of some rows: `numeric[row, column]`, and per categorical column a level number,
    -1 for a level that was not there when the coding was learned."""

    numeric: Floats
    levels: tuple[NDArray[np.int64], ...]

    def __len__(self) -> int:
        return len(self.numeric)


@dataclass(frozen=True, eq=False)
class FeatureCoding:
    """How columns become numbers; learned once, from the rows of a fit.

    A numeric value x becomes (x - shift) / scale; a missing one counts as the mean. A level of a
    categorical column has its place in `levels`; a missing value is a level of its own if there
    were any to learn from.
    """

    columns: tuple[str, ...]
    numeric: tuple[str, ...]
    mean: Floats
    shift: Floats  # the mean, or zero where a form must not be given a constant by the back door
    scale: Floats
    levels: dict[str, pl.Series]
    constant: tuple[str, ...] = ()
    _known: ByRows = field(default_factory=ByRows)

    @property
    def n_levels(self) -> dict[str, int]:
        """How many levels each categorical column has."""
        return {name: len(values) for name, values in self.levels.items()}

    def apply(self, rows: Rows) -> CodedFeatures:
        """The features of rows as numbers; kept for as long as the rows are."""
        if rows not in self._known:
            self._known[rows] = self._code(rows.features(self.columns))
        known: CodedFeatures = self._known[rows]
        return known

    def known(self, rows: Rows) -> NDArray[np.bool_]:
        """Rows of which every level was there when the coding was learned."""
        known = np.ones(len(rows), bool)
        for levels in self.apply(rows).levels:
            known &= levels >= 0
        return known

    def _code(self, frame: pl.DataFrame) -> CodedFeatures:
        numeric = np.empty((len(frame), len(self.numeric)))
        for place, name in enumerate(self.numeric):
            values = as_floats(frame[name])
            values = np.where(np.isnan(values), self.mean[place], values)
            numeric[:, place] = (values - self.shift[place]) / self.scale[place]
            if name in self.constant and self.shift[place] == self.mean[place]:
                numeric[:, place] = 0.0  # not even what rounding left of it
        return CodedFeatures(numeric, tuple(self.level_numbers(frame[n], n) for n in self.levels))

    def level_numbers(self, column: pl.Series, name: str) -> NDArray[np.int64]:
        """The number of each value's level; -1 for a level that the coding has not seen."""
        table = self.levels[name]
        if column.dtype == pl.Null:
            column = column.cast(table.dtype)
        found = match(column.to_frame(name), table.to_frame(name), [name])
        if column.null_count() and table.null_count():
            found[column.is_null().to_numpy()] = int(table.is_null().arg_max() or 0)
        return found

    def to_data(self) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
        """The coding as JSON and frames."""
        data = {
            "columns": list(self.columns),
            "numeric": list(self.numeric),
            "mean": self.mean.tolist(),
            "shift": self.shift.tolist(),
            "scale": self.scale.tolist(),
            "categorical": list(self.levels),
            "constant": list(self.constant),
        }
        frames = {
            f"levels_{number}": values.alias("level").to_frame()
            for number, values in enumerate(self.levels.values())
        }
        return data, frames

    @classmethod
    def from_data(cls, data: dict[str, Any], parts: Any) -> FeatureCoding:
        """What `to_data` described."""
        levels = {
            name: parts[f"levels_{number}"]["level"]
            for number, name in enumerate(data["categorical"])
        }
        mean, shift, scale = (np.array(data[n], float) for n in ("mean", "shift", "scale"))
        shape = (len(data["numeric"]),)
        is_finite = np.all(np.isfinite([*mean, *shift, *scale]))
        fits = mean.shape == shift.shape == scale.shape == shape
        if not (fits and is_finite and np.all(scale > 0)):
            raise ModelError("the scales of a form's columns do not fit its columns")
        return cls(
            tuple(data["columns"]),
            tuple(data["numeric"]),
            mean,
            shift,
            scale,
            levels,
            tuple(data["constant"]),
        )


def learn_coding(
    rows: Rows, columns: Sequence[str], categorical: Sequence[str] = (), centre: bool = True
) -> FeatureCoding:
    """Means, scales and levels of the columns over the rows of a fit."""
    frame = rows.features(columns)
    numeric, mean, scale, constant = [], [], [], []
    levels: dict[str, pl.Series] = {}
    for name in columns:
        column = frame[name]
        if name in categorical or column.dtype in _TEXTUAL:
            levels[name] = column.unique(maintain_order=True).sort()
            if len(levels[name]) == 1:
                constant.append(name)
            continue
        values = as_floats(column)
        seen = values[~np.isnan(values)]
        # In units of the largest value, so that no square is too large or too small to be told.
        unit = float(np.abs(seen).max(initial=0.0)) or 1.0
        center = float((seen / unit).mean()) * unit if len(seen) else 0.0
        spread = float((seen / unit).std()) * unit if len(seen) else 0.0
        # A constant may have a spread of rounding only.
        if not spread > 1e-12 * unit:
            constant.append(name)
            spread = 1.0
        numeric.append(name)
        mean.append(center)
        scale.append(spread)
    means = np.array(mean)
    shift = means if centre else np.zeros_like(means)
    return FeatureCoding(
        tuple(columns), tuple(numeric), means, shift, np.array(scale), levels, tuple(constant)
    )


def as_floats(column: pl.Series) -> Floats:
    """Numbers or truth values as floats of their own memory, missing ones as NaN."""
    if column.dtype in _TEXTUAL:
        raise ModelError(f"The column '{column.name}' was numeric in the fit and now holds texts.")
    return np.array(column.cast(pl.Float64).to_numpy(), dtype=np.float64)


def check_categorical(
    categorical: str | Sequence[str], columns: tuple[str, ...], form: str
) -> tuple[str, ...]:
    """Columns that are categories though they may hold numbers."""
    names = (categorical,) if isinstance(categorical, str) else tuple(categorical)
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise ModelError(
            f"{form}(categorical={unknown[0]!r}) is none of its columns: {', '.join(columns)}."
        )
    return names


def check_missing(missing: str, form: str) -> str:
    """What to do with missing values."""
    if missing not in ("raise", "mean"):
        raise ModelError(f'{form}(missing={missing!r}): choose "raise" or "mean".')
    return missing
