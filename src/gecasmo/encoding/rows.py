"""The rows of a coin's table: the distinct keys, by number, with the features a form asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ModelError
from gecasmo.language.parameter import HISTORY_KEYS


@dataclass(frozen=True, eq=False)
class RowPages:
    """Where rows stand, for a coin that has a row for each shown result.

    Page n has the rows `rows[start[n]:start[n + 1]]`, from the top; `above` says at each of these
    places whether the result just above it was clicked. Clicks are only here by one place late, so
    that whoever reads a page down to a result cannot know of a click at that result, or below.
    """

    rows: NDArray[np.int64]
    start: NDArray[np.int64]
    above: NDArray[np.bool_]

    @classmethod
    def apart(cls, n_rows: int) -> RowPages:
        """Each row on a page of its own."""
        return cls(np.arange(n_rows), np.arange(n_rows + 1), np.zeros(n_rows, bool))


class Rows:
    """Distinct keys in the order of their numbers.

    The frame with their values is only made when somebody looks at it or joins with it: during
    a fit, numbers are all that is needed.

    Parameters
    ----------
    keys : names of the key columns
    columns : their values
    n_rows : how many rows there are (without keys: one)
    attached : feature columns that are not part of the key
    pages : on which pages the rows are, for forms that look at whole pages
    """

    pages: RowPages | None = None

    def __init__(
        self,
        keys: Sequence[str],
        columns: Sequence[pl.Series],
        n_rows: int,
        attached: Mapping[str, pl.Series] | None = None,
    ) -> None:
        self.keys = tuple(keys)
        self.n_rows = n_rows
        self.attached = dict(attached or {})
        self._columns = columns

    def __len__(self) -> int:
        return self.n_rows

    @cached_property
    def frame(self) -> pl.DataFrame:
        """One row per key, with the key columns."""
        if not self.keys:
            return pl.DataFrame({"": [None] * self.n_rows}).drop("")
        return pl.DataFrame([c.alias(k) for k, c in zip(self.keys, self._columns, strict=True)])

    def features(self, columns: Sequence[str]) -> pl.DataFrame:
        """One row per key, with these feature columns; a key may be a feature too."""
        for name in columns:
            if name not in self.keys and name not in self.attached:
                raise ModelError(
                    f"Rows by {', '.join(self.keys) or 'nothing'} have no column '{name}': a model "
                    "to start from must read the same columns."
                )
        return pl.DataFrame(
            [self.frame[c] if c in self.keys else self.attached[c].alias(c) for c in columns]
        )

    def with_features(
        self, attached: Mapping[str, pl.Series], pages: RowPages | None = None
    ) -> Rows:
        """The same rows with feature columns, and perhaps with the pages that they are on."""
        featured = _FeaturedRows(self, attached)
        featured.pages = pages
        return featured

    def __repr__(self) -> str:
        return f"Rows({self.n_rows:,} by {', '.join(self.keys) or 'nothing'})"


class LazyRows(Rows):
    """Rows whose key values are looked up on demand."""

    def __init__(self, keys: Sequence[str], values: Callable[[], Sequence[pl.Series]], n: int):
        super().__init__(keys, [], n)
        self._values = values

    @cached_property
    def frame(self) -> pl.DataFrame:
        return pl.DataFrame([c.alias(k) for k, c in zip(self.keys, self._values(), strict=True)])

    def __getstate__(self) -> dict[str, Any]:
        # How values are looked up cannot be sent to another process; the values can.
        return {**self.__dict__, "frame": self.frame, "_values": None}


class _FeaturedRows(Rows):
    """Other rows with features of one form; coins that share the key share the frame."""

    def __init__(self, rows: Rows, attached: Mapping[str, pl.Series]) -> None:
        super().__init__(rows.keys, [], rows.n_rows, attached)
        self._rows = rows

    @cached_property
    def frame(self) -> pl.DataFrame:
        return self._rows.frame


ONE_ROW = Rows((), (), 1)


def history_of(keys: Sequence[str]) -> list[str]:
    """The keys that clicks above decide."""
    return [key for key in keys if key in HISTORY_KEYS]


def lift(
    rows: Rows,
    keys: Sequence[str],
    sizes: Mapping[str, int],
    rows_at_once: int = 2_000_000,
) -> Iterator[tuple[slice, Rows]]:
    """All rows with all histories, in parts: where each part stands in the table, and its rows.

    This is what the paper does to UBM: while clicks are known, "last click" is just part of a row
    number; when they are not, the coin needs a row for each static key and history, and the kernel
    walks over histories at run time, which takes O(T^2).

    Row r with history values h1, h2, ... stands at (r * size1 + h1) * size2 + h2 ...

    Parameters
    ----------
    rows : the distinct keys without the history
    keys : all keys of the coin
    sizes : how many values each key of the history can have, counted from 0
    rows_at_once : about how many rows a part may have
    """
    history = history_of(keys)
    shape = [sizes[key] for key in history]
    n_histories = int(np.prod(shape))
    grid = np.indices(shape).reshape(len(shape), -1)
    n_rows = max(len(rows), 1)
    step = max(1, rows_at_once // n_histories)
    for first in range(0, n_rows, step):
        numbers = np.arange(first, min(first + step, n_rows))
        repeated = np.repeat(numbers, n_histories)
        columns = {
            key: pl.Series(key, np.tile(values, len(numbers)))
            for key, values in zip(history, grid, strict=True)
        }
        for key in keys:
            if key not in columns:
                columns[key] = rows.frame[key].gather(repeated)
        place = slice(first * n_histories, first * n_histories + len(repeated))
        attached = {name: column.gather(repeated) for name, column in rows.attached.items()}
        yield place, Rows(keys, [columns[key] for key in keys], len(repeated), attached)
