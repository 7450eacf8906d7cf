"""Rows of a table that say again what an earlier row says."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.logs.pages import Rows


@dataclass(frozen=True)
class Repeats:
    """Rows that repeat the page, the rank and the document of an earlier row.

    Attributes
    ----------
    rows
        The rows that repeat.
    firsts
        For each of them, the first row that says the same.
    """

    rows: Rows
    firsts: Rows

    def kept(self, n_rows: int) -> NDArray[np.bool_]:
        """Say of each row of the table whether it stays."""
        stays = np.ones(n_rows, np.bool_)
        stays[self.rows] = False
        return stays

    def differing(self, frame: pl.DataFrame, names: Iterable[str]) -> list[str]:
        """Name the columns in which a row is not the row that it repeats."""
        return [
            name
            for name in names
            if frame[name].gather(self.rows).ne_missing(frame[name].gather(self.firsts)).any()
        ]

    def any_of(self, signal: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Let a first row have the signal when one of its repeats has it."""
        combined = signal.copy()
        combined[self.firsts[signal[self.rows]]] = True
        return combined
