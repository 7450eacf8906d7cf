"""Numbers of saved forms, looked at before they are believed, and files before they are unpacked.

Sums tell damage of a file, not malice: whoever can write a file can write its sums. So every number
of every part is held against what it stands for, and a message names the part and the column.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import SavedModelError
from gecasmo.forms.form import Floats
from gecasmo.parquet import checked_parquet


def numbers(
    values: Any,
    told: str,
    shape: tuple[int, ...] | None = None,
    *,
    least: float = -np.inf,
    most: float = np.inf,
    above: float = -np.inf,
    unknown: bool = False,
) -> Floats:
    """Take numbers of a file if they are finite, within bounds and of this shape.

    `told` says where they are; with `unknown`, NaN stands for what nobody knows.
    """
    if isinstance(values, pl.Series):
        if not (values.dtype.is_numeric() or values.dtype == pl.Null):
            raise SavedModelError(f"{told} holds {values.dtype}, where numbers are wanted.")
        values = values.cast(pl.Float64).to_numpy()
    try:
        found: Floats = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise SavedModelError(f"{told}: something there is no number.") from None
    if shape is not None and found.shape != shape:
        raise SavedModelError(f"{told}: numbers of shape {shape} are wanted, not {found.shape}.")
    is_good = np.isfinite(found) & (found >= least) & (found <= most) & (found > above)
    if unknown:
        is_good |= np.isnan(found)
    if not is_good.all():
        wrong, wanted = np.flatnonzero(~is_good), _wanted(least, most, above)
        first = f"{found.flat[wrong[0]]:g}"
        if not found.ndim:
            raise SavedModelError(f"{told} is {first}, which is no {wanted}.")
        raise SavedModelError(
            f"{told} has {len(wrong):,} of {found.size:,} numbers that are no {wanted} (first: "
            f"number {int(wrong[0]) + 1} is {first})."
        )
    return found


def number(value: Any, told: str, **bounds: Any) -> float:
    """Take one number of a file if it is finite and within bounds."""
    return float(numbers(value, told, (), **bounds))


def whole_number(value: Any, told: str, most: float = 2.0**53) -> int:
    """Take one whole number that is not negative."""
    if type(value) is not int or not 0 <= value <= most:
        raise SavedModelError(f"{told} is {value!r}, which is no whole number up to {most:g}.")
    return value


def column(frame: pl.DataFrame, name: str, part: str, **bounds: Any) -> Floats:
    """Take a column of numbers, each finite and within bounds."""
    return numbers(_column(frame, name, part), f"The column '{name}' of {part}", **bounds)


def flags(frame: pl.DataFrame, name: str, part: str) -> NDArray[np.bool_]:
    """Take a column of truth values."""
    values = _column(frame, name, part)
    if values.dtype != pl.Boolean or values.null_count():
        raise SavedModelError(f"The column '{name}' of {part} must hold truth values.")
    return values.to_numpy().astype(bool)


def columns(frame: Any, names: Any, part: str) -> list[pl.Series]:
    """Take columns of any kind, by name."""
    if len(set(names)) < len(names):
        raise SavedModelError(f"{part[:1].upper()}{part[1:]} has a key twice.")
    return [_column(frame, name, part) for name in names]


def _column(frame: Any, name: str, part: str) -> pl.Series:
    if not isinstance(frame, pl.DataFrame) or name not in frame.columns:
        raise SavedModelError(f"{part[:1].upper()}{part[1:]} lacks the column '{name}'.")
    return frame[name]


def _wanted(least: float, most: float, above: float) -> str:
    if (least, most) == (0, 1):
        return "probability"
    if np.isfinite(above):
        return f"number above {above:g}"
    if np.isfinite(least) and np.isfinite(most):
        return f"number from {least:g} to {most:g}"
    return f"number of at least {least:g}" if np.isfinite(least) else "finite number"


# Nothing that was saved shrinks more than this when it is packed; what does is made to fill memory.
_MOST_SHRUNK = 64
_SPARE_BYTES, _SPARE_CELLS = 2**28, 2**24


def check_packed(path: Path, entries: Sequence[zipfile.ZipInfo]) -> None:
    """Refuse members of a zip file that would unpack to far more than they are.

    What a member says of its size is what is read of it at most.
    """
    ways = {entry.compress_type for entry in entries}
    if not ways <= {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise SavedModelError(f"{path} is packed in a way in which no model is saved.")
    size = sum(entry.file_size for entry in entries)
    packed = min(sum(entry.compress_size for entry in entries), path.stat().st_size)
    if size > _SPARE_BYTES + _MOST_SHRUNK * packed:
        raise SavedModelError(
            f"{path} has {packed:,} bytes that would unpack to {size:,}: no saved model does that."
        )


def read_parquet(content: bytes, where: str) -> pl.DataFrame:
    """A frame of the content of a Parquet file that is not far larger than it looks."""
    try:
        rows = pl.scan_parquet(checked_parquet(content))
        n_rows, n_columns = rows.select(pl.len()).collect().item(), len(rows.collect_schema())
        if n_rows * n_columns > _SPARE_CELLS + _MOST_SHRUNK * len(content):
            raise SavedModelError(
                f"{where} has {len(content):,} bytes that would unpack to {n_rows:,} rows of "
                f"{n_columns:,} columns: no saved model does that."
            )
        return pl.read_parquet(io.BytesIO(content))
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as problem:
        raise SavedModelError(f"{where} is no Parquet file ({problem}).") from None
