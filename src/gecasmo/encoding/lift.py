"""Lift a key of the click history into the state: what the paper does to UBM, done by machine.

While clicks are known, "last click" is just part of a row number. When they are not, every history
a result could meet needs a row: the table of the coin gets one row per (static key, history), and
the kernel walks over histories at run time. For UBM that takes O(T^2).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import polars as pl

from gecasmo.encoding.rows import Rows
from gecasmo.language.parameter import HISTORY_KEYS

_ROWS_AT_ONCE = 2_000_000


def history_of(keys: Sequence[str]) -> list[str]:
    """The keys that clicks above decide."""
    return [key for key in keys if key in HISTORY_KEYS]


def lift(
    rows: Rows,
    keys: Sequence[str],
    sizes: Mapping[str, int],
    rows_at_once: int = _ROWS_AT_ONCE,
) -> Iterator[tuple[slice, Rows]]:
    """All rows with all histories, in parts: where each part stands in the table, and its rows.

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
