"""The rows of a coin that several parts share, found part by part."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding import Rows
from gecasmo.encoding.features import refuse_disagreement
from gecasmo.encoding.matching import match

Integers = NDArray[np.int64]


class SharedRows:
    """Collects the rows of a coin; a row keeps the number it gets first."""

    def __init__(self, coin: str) -> None:
        self.coin = coin
        self._keys: tuple[str, ...] | None = None
        self._frame: pl.DataFrame | None = None
        self._attached: dict[str, pl.Series] = {}
        self._n_rows = 0

    def add(self, rows: Rows) -> Integers:
        """The places of these rows among all; new ones are put at the end."""
        if not rows.keys:
            self._keys, self._n_rows = (), max(self._n_rows, len(rows))
            return np.arange(len(rows))
        frame = rows.frame
        if "result" in rows.keys:
            # Results are counted in each part anew; no two of them are the same.
            frame = frame.with_columns(pl.col("result") + self._n_rows)
            found = np.full(len(rows), -1, np.int64)
        elif self._frame is None:
            found = np.full(len(rows), -1, np.int64)
        else:
            found = match(frame, self._frame, rows.keys)
            self._check(rows, found)
        is_new = found < 0
        index = found.copy()
        index[is_new] = self._n_rows + np.arange(int(is_new.sum()))
        chosen = pl.Series(is_new)
        self._keys = rows.keys
        self._frame = _joined(self._frame, frame.filter(chosen))
        for name, column in rows.attached.items():
            old = self._attached.get(name)
            new = column.filter(chosen)
            self._attached[name] = new if old is None else pl.concat([old, new])
        self._n_rows += int(is_new.sum())
        return index

    def rows(self) -> Rows:
        """All rows that were met."""
        columns = [] if self._frame is None else self._frame.get_columns()
        return Rows(self._keys or (), columns, self._n_rows, self._attached)

    def _check(self, rows: Rows, found: Integers) -> None:
        """Refuse features that differ where the key is the same."""
        known = np.flatnonzero(found >= 0)
        for name, column in rows.attached.items():
            here = column.gather(pl.Series(known))
            there = self._attached[name].gather(pl.Series(found[known]))
            differs = here.ne_missing(there)
            if differs.any():
                place = int(differs.arg_max() or 0)
                pair: tuple[Any, Any] = (there[place], here[place])
                refuse_disagreement(self.coin, name, rows, int(known[place]), pair)


def _joined(old: pl.DataFrame | None, new: pl.DataFrame) -> pl.DataFrame:
    if old is None:
        return new
    return pl.concat([old, new], how="vertical_relaxed").rechunk()
