"""What a classifier is given to learn from: a matrix of numbers, or a data frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError, extra
from gecasmo.forms.features import ByRows, FeatureCoding, as_floats, learn_coding
from gecasmo.forms.form import Floats

# From this many columns on a matrix is sparse, if the classifier takes that.
WIDE = 50
# The most numbers of a matrix that is written out: one gigabyte.
MOST_NUMBERS = 2**27


@dataclass(frozen=True, eq=False)
class Inputs:
    """How rows become what a classifier reads; learned once, from the rows of a fit.

    As a matrix: numbers as they are, then a column of zeros and ones per level of each categorical
    column, all zero for a level that was not there. As a frame: the columns themselves; those
    called categorical become categories, and levels that were not there are missing.
    """

    coding: FeatureCoding
    as_frame: bool
    missing: str
    in_pandas: bool  # frames are Polars' for scikit-learn and pandas' for everybody else
    takes_sparse: bool
    categorical: tuple[str, ...]
    _made: ByRows = field(default_factory=ByRows)

    def of(self, rows: Rows) -> Any:
        """Make the inputs of some rows, one line each; kept for as long as the rows are."""
        if rows not in self._made:
            features = rows.features(self.coding.columns)
            self._made[rows] = self._frame(features) if self.as_frame else self._matrix(features)
        return self._made[rows]

    def some(self, rows: Rows, chosen: NDArray[np.int64]) -> Any:
        """Choose the inputs of some rows, in that order."""
        made = self.of(rows)
        return made.iloc[chosen] if self.as_frame and self.in_pandas else made[chosen]

    def known(self, rows: Rows) -> NDArray[np.bool_]:
        """Tell of which rows every level was there in the fit."""
        features = rows.features(self.coding.columns)
        known = np.ones(len(rows), bool)
        for name in self.coding.levels:
            known &= self.coding.level_numbers(features[name], name) >= 0
        return known

    def terms(self) -> list[str]:
        """Name the columns of the matrix, or of the frame."""
        if self.as_frame:
            return list(self.coding.columns)
        levels = self.coding.levels.items()
        return [
            *self.coding.numeric,
            *(f"{name}={level}" for name, values in levels for level in values.to_list()),
        ]

    # -- a matrix ------------------------------------------------------------------------------
    def _matrix(self, features: pl.DataFrame) -> Any:
        numeric = np.empty((len(features), len(self.coding.numeric)))
        for place, name in enumerate(self.coding.numeric):
            numeric[:, place] = self._filled(as_floats(features[name]), name)
        levels = [self.coding.level_numbers(features[name], name) for name in self.coding.levels]
        sizes = list(self.coding.n_levels.values())
        n_columns = numeric.shape[1] + sum(sizes)
        # A missing number in a sparse matrix is more than most classifiers can take.
        if self.takes_sparse and n_columns > WIDE and not np.isnan(numeric).any():
            return _sparse(numeric, levels, sizes)
        self._check_size(len(features), n_columns)
        matrix = np.zeros((len(features), n_columns))
        matrix[:, : numeric.shape[1]] = numeric
        start = numeric.shape[1]
        for level, size in zip(levels, sizes, strict=True):
            there = np.flatnonzero(level >= 0)
            matrix[there, start + level[there]] = 1.0
            start += size
        return matrix

    def _check_size(self, n_rows: int, n_columns: int) -> None:
        if n_rows * n_columns <= MOST_NUMBERS:
            return
        sizes = ", ".join(f"'{name}' {size:,}" for name, size in self.coding.n_levels.items())
        raise ModelError(
            f"Estimator: {n_rows:,} rows by {n_columns:,} columns of zeros and ones are too many "
            f"to write out (levels: {sizes}), and this classifier takes no sparse matrix. Choose "
            "one that does (in a pipeline every step has to, such as StandardScaler("
            "with_mean=False)), leave out the column, or code it yourself with as_frame=True."
        )

    # -- a frame -------------------------------------------------------------------------------
    def _frame(self, features: pl.DataFrame) -> Any:
        columns = []
        for column in features.get_columns():
            name = column.name
            if name in self.categorical:
                levels = self.coding.levels[name].drop_nulls().cast(pl.String)
                column = column.cast(pl.String).cast(pl.Enum(levels), strict=False)
            elif name in self.coding.numeric and column.null_count():
                # Classifiers know a missing number as NaN.
                column = pl.Series(name, self._filled(as_floats(column), name))
            columns.append(column)
        frame = pl.DataFrame(columns)
        return _as_pandas(frame) if self.in_pandas else frame

    def _filled(self, values: Floats, name: str) -> Floats:
        if self.missing == "keep":
            return values
        mean = self.coding.mean[self.coding.numeric.index(name)]
        return np.where(np.isnan(values), mean, values)


def learn_inputs(
    rows: Rows,
    classifier: Any,
    columns: Sequence[str],
    categorical: tuple[str, ...],
    as_frame: bool,
    missing: str,
) -> Inputs:
    """Learn how the rows of a fit become what a classifier reads."""
    coding = learn_coding(rows, columns, categorical)
    return inputs_from(coding, classifier, categorical, as_frame, missing)


def inputs_from(
    coding: FeatureCoding,
    classifier: Any,
    categorical: tuple[str, ...],
    as_frame: bool,
    missing: str,
) -> Inputs:
    """Make inputs with a coding that is known already."""
    own = type(final_step(classifier)).__module__.startswith("sklearn.")
    return Inputs(
        coding, as_frame, missing, as_frame and not own, _takes_sparse(classifier), categorical
    )


def final_step(classifier: Any) -> Any:
    """Find the classifier at the end of a pipeline."""
    while hasattr(classifier, "steps"):
        classifier = classifier.steps[-1][1]
    return classifier


def _takes_sparse(classifier: Any) -> bool:
    utils = extra("sklearn.utils", "Estimator")
    try:
        return bool(utils.get_tags(classifier).input_tags.sparse)
    except AttributeError:  # a classifier that does not tell
        return False


def _sparse(numeric: Floats, levels: Sequence[NDArray[np.int64]], sizes: Sequence[int]) -> Any:
    from scipy import sparse

    blocks = [sparse.csr_matrix(numeric)]
    for level, size in zip(levels, sizes, strict=True):
        there = np.flatnonzero(level >= 0)
        ones = np.ones(len(there))
        blocks.append(
            sparse.csr_matrix((ones, (there, level[there])), shape=(len(level), size)),
        )
    return sparse.hstack(blocks, format="csr")


def _as_pandas(frame: pl.DataFrame) -> Any:
    """Make a pandas frame, without PyArrow."""
    pandas = extra("pandas", "Estimator(as_frame=True) with this classifier", "pandas")
    columns = {}
    for column in frame.get_columns():
        if isinstance(column.dtype, pl.Enum):
            codes = column.to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
            levels = column.dtype.categories.to_list()
            columns[column.name] = pandas.Categorical.from_codes(codes, categories=levels)
        else:
            columns[column.name] = column.to_numpy()
    return pandas.DataFrame(columns)
