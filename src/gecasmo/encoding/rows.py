"""The rows of a coin's table: the distinct keys, by number."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import polars as pl


class Rows:
    """Distinct keys in the order of their numbers.

    The frame with their values is only made when somebody looks at it or joins with it: during
    a fit, numbers are all that is needed.
    """

    def __init__(self, keys: Sequence[str], columns: Sequence[pl.Series], n_rows: int) -> None:
        self.keys = tuple(keys)
        self.n_rows = n_rows
        self._columns = columns

    def __len__(self) -> int:
        return self.n_rows

    @cached_property
    def frame(self) -> pl.DataFrame:
        """One row per key, with the key columns."""
        if not self.keys:
            return pl.DataFrame({"": [None] * self.n_rows}).drop("")
        return pl.DataFrame([c.alias(k) for k, c in zip(self.keys, self._columns, strict=True)])

    def __repr__(self) -> str:
        return f"Rows({self.n_rows:,} by {', '.join(self.keys) or 'nothing'})"


class LazyRows(Rows):
    """Rows whose key values are looked up on demand: value i of a key is `values[codes[i]]`."""

    def __init__(self, keys: Sequence[str], coded: Sequence[tuple[pl.Series, Any]], n: int):
        super().__init__(keys, [], n)
        self._coded = coded

    @cached_property
    def frame(self) -> pl.DataFrame:
        columns = [
            values.gather(pl.Series(codes)).alias(key)
            for key, (values, codes) in zip(self.keys, self._coded, strict=True)
        ]
        return pl.DataFrame(columns)


ONE_ROW = Rows((), (), 1)
