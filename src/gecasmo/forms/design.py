"""A design matrix that is never written out.

A row's logit is  intercept + numeric . b + one effect per categorical column. A categorical column
has an effect for each of its levels and none is left out.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gecasmo.forms.coding import CodedFeatures
from gecasmo.forms.form import Floats


class Design:
    """Rows of features as a matrix with columns (intercept, numeric, levels...)."""

    def __init__(self, features: CodedFeatures, sizes: list[int], intercept: bool) -> None:
        self.numeric = features.numeric
        if intercept:
            self.numeric = np.column_stack([np.ones(len(features)), features.numeric])
        self.levels = features.levels
        self.sizes = sizes
        self.n_rows = len(features)
        self._pieces: dict[int, list[tuple[slice, Design]]] = {}
        self.n_dense = self.numeric.shape[1]
        self.n_columns = self.n_dense + sum(sizes)

    def pieces(self, size: int) -> list[tuple[slice, Design]]:
        """The rows in pieces of a size, each with its place; cut once."""
        if size not in self._pieces:
            self._pieces[size] = [self._piece(n, size) for n in range(0, self.n_rows, size)]
        return self._pieces[size]

    def _piece(self, first: int, size: int) -> tuple[slice, Design]:
        place = slice(first, min(first + size, self.n_rows))
        levels = tuple(column[place] for column in self.levels)
        part = CodedFeatures(self.numeric[place], levels)
        return place, Design(part, self.sizes, intercept=False)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where the effects of each categorical column begin."""
        return np.cumsum([self.n_dense, *self.sizes], dtype=np.int64)[:-1]

    def times(self, vector: Floats) -> Floats:
        """The design times a vector of coefficients: the logit of every row."""
        result: Floats = self.numeric @ vector[: self.n_dense]
        start = self.n_dense
        for levels, size in zip(self.levels, self.sizes, strict=True):
            # Level -1, never seen, reads the zero that is put last.
            result += np.append(vector[start : start + size], 0.0)[levels]
            start += size
        return result

    def transposed_times(self, per_row: Floats) -> Floats:
        """Sums over rows of a number per row times their features."""
        return np.concatenate([self.numeric.T @ per_row, *self._by_level(per_row)])

    def _by_level(self, per_row: Floats) -> list[Floats]:
        """Sums over the rows of each level, column by column."""
        return [
            sums(levels + 1, per_row, size + 1)[1:]
            for levels, size in zip(self.levels, self.sizes, strict=True)
        ]

    def squares(self, weight: Floats) -> Floats:
        """The diagonal of the weighted normal matrix."""
        dense = np.einsum("ij,ij,i->j", self.numeric, self.numeric, weight)
        return np.concatenate([dense, *self._by_level(weight)])

    def normal_matrix(self, weight: Floats) -> Floats:
        """Features transposed, times weights, times features, written out."""
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
    """Sums over the rows with each number."""
    return np.bincount(numbers, weights=per_row, minlength=size).astype(np.float64, copy=False)
