"""Integers that stand for the values of keys, one key or several together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.arrays import dense, narrowest

# What turns integers into the values they stand for, a column for each key.
Values = Callable[[NDArray[Any]], list[pl.Series]]


@dataclass(frozen=True)
class Labelled:
    """An integer for each place, equal where the value is, and what turns these into values.

    `size` is given where the integers are small: from 0, and below it.
    """

    labels: NDArray[Any]
    values: Callable[[NDArray[Any]], pl.Series]
    size: int | None = None

    def numbered(self) -> Labelled:
        """With small integers."""
        if self.size is not None:
            return self
        codes, distinct = dense(self.labels)
        return Labelled(codes, lambda which: self.values(distinct[which]), len(distinct))


def combined(parts: Sequence[Labelled]) -> tuple[NDArray[Any], Values]:
    """One integer for each place, equal where all parts are, and the values behind these."""
    if len(parts) == 1:
        (only,) = parts
        return only.labels, _alone(only)
    first = parts[0].numbered()
    found, size, values = first.labels, first.size or 1, _alone(first)
    for part in parts[1:]:
        numbered = part.numbered()
        if size * (numbered.size or 1) >= 2**62:
            codes, distinct = dense(found)
            found, size = codes, len(distinct)
            values = _after(values, distinct)
        found, values = _joined(found, size, values, numbered)
        size *= numbered.size or 1
    return found, values


def _alone(part: Labelled) -> Values:
    return lambda which: [part.values(which)]


def _joined(
    found: NDArray[Any], size: int, values: Values, part: Labelled
) -> tuple[NDArray[Any], Values]:
    n = part.size or 1
    joined = found.astype(narrowest(size * n + 1))
    joined *= joined.dtype.type(n)
    joined += part.labels.astype(joined.dtype, copy=False)

    def both(which: NDArray[Any]) -> list[pl.Series]:
        before, last = np.divmod(which.astype(np.int64), n)
        return [*values(before), part.values(last)]

    return joined, both


def _after(values: Values, distinct: NDArray[Any]) -> Values:
    return lambda which: values(distinct[which])


def integers(key: str, dtype: Any) -> Callable[[NDArray[Any]], pl.Series]:
    """The values of a key whose integers are its values."""
    return lambda which: pl.Series(key, which.astype(dtype))
