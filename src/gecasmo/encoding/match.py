"""Find rows by their keys, hash these, and read probabilities that a user gives by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ModelError
from gecasmo.hashes import Hashes, hash_values, mix


def match(wanted: pl.DataFrame, table: pl.DataFrame, keys: Sequence[str]) -> NDArray[np.int64]:
    """For each wanted row the number of the row of `table` with the same keys, or -1."""
    if not len(table) or not len(wanted):
        return np.full(len(wanted), -1, np.int64)
    if any(key not in table.columns for key in keys):
        raise _other_keys(keys, table)
    left, right = [], []
    for key in keys:
        a, b = _same_type(wanted[key], table[key], key)
        left.append(a)
        right.append(b)
    numbered = pl.DataFrame(right).with_columns(
        pl.Series("*row*", np.arange(len(table), dtype=np.int64))
    )
    joined = pl.DataFrame(left).join(numbered, on=list(keys), how="left", maintain_order="left")
    if len(joined) > len(wanted):
        raise _other_keys(keys, table)
    return joined["*row*"].fill_null(-1).to_numpy().astype(np.int64)


def _other_keys(keys: Sequence[str], table: pl.DataFrame) -> ModelError:
    return ModelError(
        f"Rows by {', '.join(keys)} cannot be found in a table by {', '.join(table.columns)}: a "
        "model to start from needs the same keys."
    )


def _same_type(a: pl.Series, b: pl.Series, key: str) -> tuple[pl.Series, pl.Series]:
    if a.dtype == b.dtype:
        return a, b
    if a.dtype.is_integer() and b.dtype.is_integer():
        return a.cast(pl.Int128), b.cast(pl.Int128)
    textual = (pl.String, pl.Categorical, pl.Enum)
    if a.dtype in textual and b.dtype in textual:
        return a.cast(pl.String), b.cast(pl.String)
    if a.dtype == pl.Struct and b.dtype == pl.Struct:
        return a, b.cast(a.dtype)
    raise ModelError(
        f"The key '{key}' holds {b.dtype} in the model and {a.dtype} in the log; "
        "read the log with the same type of ids."
    )


def key_hashes(frame: pl.DataFrame, salt: int = 0) -> Hashes:
    """A hash of the key of each row, and of nothing else; another salt, another number."""
    hashes = np.full(len(frame), mix(np.array([salt], np.uint64))[0])
    for column in frame.get_columns():
        hashes = mix(hashes ^ hash_values(column))
    return hashes


def values_by_key(values: Any, keys: Sequence[str], coin: str) -> pl.DataFrame:
    """A frame with the key columns and `probability`, from a dictionary or a frame."""
    frame = (
        _from_mapping(values, keys, coin)
        if isinstance(values, Mapping)
        else _from_frame(values, keys, coin)
    )
    column = frame["probability"]
    if column.null_count() or not bool(column.is_between(0, 1).all()):
        wrong = frame.filter(~pl.col("probability").is_between(0, 1).fill_null(False))
        raise ModelError(
            f"The values of '{coin}' must be probabilities; this is none: {wrong.row(0)}."
        )
    repeated = frame.select(keys).is_duplicated() if keys else pl.Series([False])
    if repeated.any():
        row = frame.select(keys).filter(repeated).row(0)
        raise ModelError(f"The values of '{coin}' name the key {row} twice.")
    return frame


def _from_mapping(values: Mapping[Any, Any], keys: Sequence[str], coin: str) -> pl.DataFrame:
    if not keys:
        raise ModelError(f"'{coin}' has no key: give it a single number.")
    rows = []
    for key in values:
        parts = key if isinstance(key, tuple) else (key,)
        if len(parts) != len(keys):
            raise ModelError(
                f"A row of '{coin}' is named by ({', '.join(keys)}), but {key!r} has "
                f"{len(parts)} part{'s' if len(parts) != 1 else ''}."
            )
        rows.append(parts)
    try:
        columns = {
            name: pl.Series(name, [row[number] for row in rows], strict=True)
            for number, name in enumerate(keys)
        }
    except (TypeError, pl.exceptions.PolarsError):
        raise ModelError(
            f"The keys of '{coin}' must be of one type in each of its columns ({', '.join(keys)})."
        ) from None
    try:
        numbers = [float(value) for value in values.values()]
    except (TypeError, ValueError):
        raise ModelError(f"The values of '{coin}' must be numbers.") from None
    return pl.DataFrame({**columns, "probability": pl.Series(numbers, dtype=pl.Float64)})


def _from_frame(values: Any, keys: Sequence[str], coin: str) -> pl.DataFrame:
    if not isinstance(values, pl.DataFrame):
        if not hasattr(values, "__arrow_c_stream__"):
            raise ModelError(
                f"The values of '{coin}' must be a number, a dictionary by "
                f"({', '.join(keys)}) or a data frame, not {type(values).__name__}."
            )
        values = pl.DataFrame(values)
    missing = [name for name in (*keys, "probability") if name not in values.columns]
    if missing:
        raise ModelError(
            f"The frame for '{coin}' lacks {', '.join(missing)}; it has "
            f"{', '.join(values.columns)}."
        )
    frame: pl.DataFrame = values
    if not frame["probability"].dtype.is_numeric() and frame["probability"].dtype != pl.Null:
        raise ModelError(f"The values of '{coin}' must be numbers.")
    return frame.select(*keys, pl.col("probability").cast(pl.Float64))
