"""What clicks, ranks and weights may be."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.logs.faults import Faults, counted_are

LARGEST_RANK = np.iinfo(np.int32).max

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def check_clicks(values: pl.Series, title: str, faults: Faults) -> Bools:
    """Read clicks, and note those that are neither 0 nor 1.

    Parameters
    ----------
    values
        The column.
    title
        How messages name it.
    faults
        Where faults are noted.

    Returns
    -------
    ndarray of bool
    """
    _note_missing(values, title, faults)
    if values.dtype == pl.Boolean:
        return np.asarray(values.fill_null(False).to_numpy(), dtype=np.bool_)
    numbers, known = _numbers(values)
    _note(~((numbers == 0) | (numbers == 1)) & known, "neither 0 nor 1", values, title, faults)
    return np.asarray(numbers == 1, dtype=np.bool_)


def check_ranks(values: pl.Series, title: str, faults: Faults) -> tuple[Floats, Bools]:
    """Read ranks, and note those that are not whole numbers from 0 on.

    Parameters
    ----------
    values
        The column.
    title
        How messages name it.
    faults
        Where faults are noted.

    Returns
    -------
    ranks : ndarray of float64
    sound : ndarray of bool
        Which of the ranks can be used.
    """
    _note_missing(values, title, faults)
    numbers, known = _numbers(values)
    broken = (np.floor(numbers) != numbers) | ~np.isfinite(numbers)
    negative = numbers < 0
    large = numbers > LARGEST_RANK
    _note(broken & known, "not whole numbers", values, title, faults)
    _note(negative & known & ~broken, "negative", values, title, faults)
    _note(large & known & ~broken, f"larger than {LARGEST_RANK}", values, title, faults)
    return numbers, known & ~broken & ~negative & ~large


def check_weights(values: pl.Series, title: str, faults: Faults) -> Floats:
    """Read weights, and note those that are negative or not finite.

    Parameters
    ----------
    values
        The column.
    title
        How messages name it.
    faults
        Where faults are noted.

    Returns
    -------
    ndarray of float64
    """
    # In a weight, "not a number" is the outcome of some division, not a value left out.
    _note_missing(values, title, faults, nan_is_missing=False)
    numbers, _ = _numbers(values)
    known = ~values.is_null().to_numpy()
    if _is_number(values.dtype):
        _note((numbers < 0) & known, "negative", values, title, faults)
    _note(~np.isfinite(numbers) & known, "not finite numbers", values, title, faults)
    return numbers


def _is_number(dtype: pl.DataType) -> bool:
    return dtype.is_numeric()


def _missing(values: pl.Series, nan_is_missing: bool = True) -> Bools:
    missing = values.is_null()
    if nan_is_missing and values.dtype.is_float():
        missing = missing | values.is_nan().fill_null(True)
    return missing.to_numpy().astype(np.bool_)


def _numbers(values: pl.Series) -> tuple[Floats, Bools]:
    """Return the values as floats (NaN for all that is no number), and which are not missing."""
    if _is_number(values.dtype):
        floats = values.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    else:
        floats = np.full(len(values), np.nan)
    return floats, ~_missing(values)


def _note_missing(
    values: pl.Series, title: str, faults: Faults, nan_is_missing: bool = True
) -> None:
    missing = _missing(values, nan_is_missing)
    count = int(missing.sum())
    if count:
        first = faults.row(int(np.argmax(missing)))
        faults.add(f"{title}: {counted_are(count, 'value')} missing (null), first: {first}")


def _note(wrong: Bools, what: str, values: pl.Series, title: str, faults: Faults) -> None:
    count = int(wrong.sum())
    if not count:
        return
    first = int(np.argmax(wrong))
    if count == 1:
        what = what.replace("numbers", "number").replace("not ", "not a ", 1)
    kind = "" if _is_number(values.dtype) else f" (the column holds {values.dtype})"
    faults.add(
        f"{title}: {counted_are(count, 'value')} {what}{kind}, "
        f"first: {faults.row(first)} has {values[first]!r}"
    )
