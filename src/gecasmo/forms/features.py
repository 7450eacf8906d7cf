"""Feature columns as numbers: how they are coded, and the design matrix that regressions read.

Numeric columns are standardised, texts become numbered levels. The matrix is never written out: a
row's logit is  intercept + numeric . b + one effect per categorical column. A categorical column
has an effect for each of its levels and none is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.match import match
from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError, SavedModelError
from gecasmo.forms import saved
from gecasmo.forms.form import Floats
from gecasmo.kernels.static import static_kernel
from gecasmo.kernels.static.effect_steps import add_rows, times_rows


class ByRows(WeakKeyDictionary[Rows, Any]):
    """What has been worked out about some rows; forgotten with them, and never saved."""

    def __reduce__(self) -> tuple[type[ByRows], tuple[()]]:
        return ByRows, ()


# From so many rows on sums over rows and levels are compiled.
MANY_ROWS = 10_000
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
        """Turn the features of rows into numbers; kept for as long as the rows are."""
        if rows not in self._known:
            self._known[rows] = self._code(rows.features(self.columns), len(rows))
        known: CodedFeatures = self._known[rows]
        return known

    def known(self, rows: Rows) -> NDArray[np.bool_]:
        """Tell of which rows every level was there when the coding was learned."""
        known = np.ones(len(rows), bool)
        for levels in self.apply(rows).levels:
            known &= levels >= 0
        return known

    def _code(self, frame: pl.DataFrame, n_rows: int) -> CodedFeatures:
        numeric = np.empty((n_rows, len(self.numeric)))
        for place, name in enumerate(self.numeric):
            values = as_floats(frame[name])
            values = np.where(np.isnan(values), self.mean[place], values)
            numeric[:, place] = (values - self.shift[place]) / self.scale[place]
            if name in self.constant and self.shift[place] == self.mean[place]:
                numeric[:, place] = 0.0  # not even what rounding left of it
        return CodedFeatures(numeric, tuple(self.level_numbers(frame[n], n) for n in self.levels))

    def level_numbers(self, column: pl.Series, name: str) -> NDArray[np.int64]:
        """Number each value's level; -1 for a level that the coding has not seen."""
        table = self.levels[name]
        if column.dtype == pl.Null:
            column = column.cast(table.dtype)
        found = match(column.to_frame(name), table.to_frame(name), [name])
        if column.null_count() and table.null_count():
            found[column.is_null().to_numpy()] = int(table.is_null().arg_max() or 0)
        return found

    def to_data(self) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
        """Describe the coding by JSON and frames."""
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
        """Make what `to_data` described."""
        levels = {}
        for number, name in enumerate(data["categorical"]):
            (levels[name],) = saved.columns(parts[f"levels_{number}"], ["level"], f"'{name}'")
            if levels[name].is_duplicated().any():
                raise SavedModelError(f"A level of '{name}' occurs twice.")
        used = [*data["numeric"], *data["categorical"]]
        if sorted(used) != sorted(data["columns"]) or not set(data["constant"]) <= set(used):
            raise SavedModelError("The columns of a form are not those that it turns into numbers.")
        shape, told = (len(data["numeric"]),), "The {} of a form's columns"
        return cls(
            tuple(data["columns"]),
            tuple(data["numeric"]),
            saved.numbers(data["mean"], told.format("mean"), shape),
            saved.numbers(data["shift"], told.format("shift"), shape),
            saved.numbers(data["scale"], told.format("scale"), shape, above=0),
            levels,
            tuple(data["constant"]),
        )


def learn_coding(
    rows: Rows, columns: Sequence[str], categorical: Sequence[str] = (), centre: bool = True
) -> FeatureCoding:
    """Learn means, scales and levels of the columns over the rows of a fit."""
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
    """Turn numbers or truth values into floats of their own memory, missing ones into NaN."""
    if column.dtype in _TEXTUAL:
        raise ModelError(f"The column '{column.name}' was numeric in the fit and now holds texts.")
    try:
        return np.array(column.cast(pl.Float64).to_numpy(), dtype=np.float64)
    except pl.exceptions.PolarsError:
        raise ModelError(f"The column '{column.name}' holds {column.dtype}, no numbers.") from None


def check_categorical(
    categorical: str | Sequence[str], columns: tuple[str, ...], form: str
) -> tuple[str, ...]:
    """Check the names of columns that are categories though they may hold numbers."""
    names = (categorical,) if isinstance(categorical, str) else tuple(categorical)
    unknown = [name for name in names if name not in columns]
    if unknown:
        raise ModelError(
            f"{form}(categorical={unknown[0]!r}) is none of its columns: {', '.join(columns)}."
        )
    return names


def check_missing(missing: str, form: str) -> str:
    """Check what to do with missing values."""
    if missing not in ("raise", "mean"):
        raise ModelError(f'{form}(missing={missing!r}): choose "raise" or "mean".')
    return missing


class DesignMatrix:
    """Rows of features as a matrix with columns (intercept, numeric, levels...)."""

    def __init__(self, features: CodedFeatures, sizes: list[int], intercept: bool) -> None:
        self.numeric = np.ascontiguousarray(features.numeric)
        if intercept:
            self.numeric = np.column_stack([np.ones(len(features)), features.numeric])
        self.levels = features.levels
        self.sizes = sizes
        self.n_rows = len(features)
        self._pieces: dict[int, list[tuple[slice, DesignMatrix]]] = {}
        self.n_dense = self.numeric.shape[1]
        self.n_columns = self.n_dense + sum(sizes)

    def pieces(self, size: int) -> list[tuple[slice, DesignMatrix]]:
        """Cut the rows into pieces of a size, each with its place; done once."""
        if size not in self._pieces:
            self._pieces[size] = [self._piece(n, size) for n in range(0, self.n_rows, size)]
        return self._pieces[size]

    def _piece(self, first: int, size: int) -> tuple[slice, DesignMatrix]:
        place = slice(first, min(first + size, self.n_rows))
        levels = tuple(column[place] for column in self.levels)
        part = CodedFeatures(self.numeric[place], levels)
        return place, DesignMatrix(part, self.sizes, intercept=False)

    @property
    def is_large(self) -> bool:
        """Whether it is worth compiled walks over the rows; plain NumPy needs no compiling."""
        return bool(self.levels) and self.n_rows >= MANY_ROWS

    @cached_property
    def places(self) -> NDArray[np.int32]:
        """The column of each row's level, `[row, table]`; one too far if it was never seen."""
        found = np.empty((self.n_rows, len(self.levels)), np.int32)
        for number, (levels, start) in enumerate(zip(self.levels, self.starts, strict=True)):
            found[:, number] = np.where(levels < 0, self.n_columns, start + levels)
        return found

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where the effects of each categorical column begin."""
        return np.cumsum([self.n_dense, *self.sizes], dtype=np.int64)[:-1]

    def times(self, vector: Floats) -> Floats:
        """Multiply by a vector of coefficients: the logit of every row."""
        if self.is_large:
            out = np.empty(self.n_rows)
            given = [self.numeric, self.places, np.append(vector, 0.0), out]
            static_kernel(times_rows, given)(*given)
            return out
        result: Floats = self.numeric @ vector[: self.n_dense]
        start = self.n_dense
        for levels, size in zip(self.levels, self.sizes, strict=True):
            # Level -1, never seen, reads the zero that is put last.
            result += np.append(vector[start : start + size], 0.0)[levels]
            start += size
        return result

    def transposed_times(self, per_row: Floats) -> Floats:
        """Sum over rows a number per row times their features."""
        if self.is_large:
            out = np.zeros(self.n_columns + 1)
            given = [self.numeric, self.places, np.ascontiguousarray(per_row), out]
            static_kernel(add_rows, given)(*given)
            return out[:-1]
        return np.concatenate([self.numeric.T @ per_row, *self._by_level(per_row)])

    def _by_level(self, per_row: Floats) -> list[Floats]:
        """Sum over the rows of each level, column by column."""
        return [
            sums(levels + 1, per_row, size + 1)[1:]
            for levels, size in zip(self.levels, self.sizes, strict=True)
        ]

    def quadratic(self, matrix: Floats) -> Floats:
        """Work out x' M x for the features x of every row; M is symmetric."""
        n = self.n_dense
        found: Floats = np.einsum("ij,ij->i", self.numeric @ matrix[:n, :n], self.numeric)
        # Level -1, never seen, reads the zeros that are put last.
        matrix = np.pad(matrix, (0, 1))
        places = [
            np.where(levels < 0, -1, start + levels)
            for levels, start in zip(self.levels, self.starts, strict=True)
        ]
        for number, place in enumerate(places):
            found += 2 * np.einsum("ij,ji->i", self.numeric, matrix[:n, place])
            found += matrix[place, place]
            for other in places[:number]:
                found += 2 * matrix[place, other]
        return found

    def squares(self, weight: Floats) -> Floats:
        """Work out the diagonal of the weighted normal matrix."""
        dense = np.einsum("ij,ij,i->j", self.numeric, self.numeric, weight)
        return np.concatenate([dense, *self._by_level(weight)])

    def normal_matrix(self, weight: Floats) -> Floats:
        """Write out features transposed, times weights, times features."""
        matrix = np.zeros((self.n_columns, self.n_columns))
        n = self.n_dense
        weighted = self.numeric * weight[:, None]
        matrix[:n, :n] = self.numeric.T @ weighted
        starts = self.starts
        for i, (levels, size, start) in enumerate(
            zip(self.levels, self.sizes, starts, strict=True)
        ):
            block = slice(start, start + size)
            for column in range(n):
                crossed = sums(levels + 1, weighted[:, column], size + 1)[1:]
                matrix[column, block] = matrix[block, column] = crossed
            diagonal = np.arange(start, start + size)
            matrix[diagonal, diagonal] = sums(levels + 1, weight, size + 1)[1:]
            for j in range(i):
                other = slice(starts[j], starts[j] + self.sizes[j])
                crossed = self._crossed(levels, size, self.levels[j], self.sizes[j], weight)
                matrix[block, other] = crossed
                matrix[other, block] = crossed.T
        return matrix

    @staticmethod
    def _crossed(
        a: NDArray[np.int64], n_a: int, b: NDArray[np.int64], n_b: int, weight: Floats
    ) -> Floats:
        both = (a + 1) * (n_b + 1) + b + 1
        return sums(both, weight, (n_a + 1) * (n_b + 1)).reshape(n_a + 1, n_b + 1)[1:, 1:]


def sums(numbers: NDArray[np.int64], per_row: Floats, size: int) -> Floats:
    """Sum over the rows with each number."""
    return np.bincount(numbers, weights=per_row, minlength=size).astype(np.float64, copy=False)


def collinear(
    coding: FeatureCoding, design: DesignMatrix | None, intercept: bool, most_rows: int = 100_000
) -> list[str]:
    """Find the numeric columns of which the rows show only a combination."""
    n = len(coding.numeric)
    if n < 2 or design is None:
        return []
    every = max(1, design.n_rows // most_rows)
    numeric = design.numeric[::every, design.n_dense - n :]
    if intercept:
        numeric = numeric - numeric.mean(axis=0)
    else:
        size = np.sqrt((numeric**2).mean(axis=0))
        numeric = numeric / np.where(size > 0, size, 1.0)
    sizes, directions = np.linalg.eigh(numeric.T @ numeric / max(len(numeric), 1))
    mixed = np.zeros(n, bool)
    for size, direction in zip(sizes, directions.T, strict=True):
        # A constant column is a direction of its own, and has been told about.
        if size < 1e-10 and (np.abs(direction) > 1e-6).sum() > 1:
            mixed |= np.abs(direction) > 1e-6
    names = [name for name, is_mixed in zip(coding.numeric, mixed, strict=True) if is_mixed]
    return [name for name in names if not (intercept and name in coding.constant)]
