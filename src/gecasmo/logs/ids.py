"""What may name a session, a query or a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from gecasmo.logs.faults import Faults, counted_are

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

_EXACT = (pl.String, pl.Boolean, pl.Binary, pl.Date, pl.Datetime, pl.Time, pl.Duration, pl.Null)


def check_ids(values: pl.Series, title: str, faults: Faults) -> pl.Series | None:
    """Bring ids to one flavour of data type, and note what cannot be an id.

    Parameters
    ----------
    values
        The ids.
    title
        How messages name the column.
    faults
        Where faults are noted.

    Returns
    -------
    pl.Series or None
        The ids, or None when their data type is refused.
    """
    if has_missing_ids(values):
        missing = missing_ids(values)
        count = int(missing.sum())
        first = faults.row(missing.arg_true()[0])
        faults.add(f"{title}: {counted_are(count, 'value')} missing (null), first: {first}")
    wanted = _id_type(values.dtype)
    if wanted is None:
        if any(dtype.is_float() for dtype in _leaves(values.dtype)):
            why = "floats do not make reliable ids; cast it to an integer or to text first"
        else:
            why = "that cannot be an id; cast it to an integer or to text first"
        fault = f"{title}: the column holds {values.dtype}, and {why}"
        faults.add(f"{fault}, as in {_cast(values.dtype, title)}")
        return None
    return values if wanted == values.dtype else values.cast(wanted)


def has_missing_ids(values: pl.Series) -> bool:
    """Say whether an id is missing; for most types Polars knows without looking."""
    if isinstance(values.dtype, pl.Struct):
        return bool(missing_ids(values).any())
    return values.null_count() > 0


def missing_ids(values: pl.Series) -> pl.Series:
    """Say which ids are missing; an id of several columns is missing when a part of it is."""
    missing = values.is_null()
    if isinstance(values.dtype, pl.Struct):
        for field in values.dtype.fields:
            missing = missing | missing_ids(values.struct.field(field.name))
    return missing


def _id_type(dtype: pl.DataType) -> pl.DataType | None:
    """Return the data type such ids are kept in, or None when they are refused."""
    if isinstance(dtype, pl.Categorical | pl.Enum):
        return pl.String()
    if dtype.is_integer() or isinstance(dtype, _EXACT):
        return dtype
    if isinstance(dtype, pl.Struct):
        fields = {field.name: _id_type(_instance(field.dtype)) for field in dtype.fields}
        known = {name: kind for name, kind in fields.items() if kind is not None}
        return pl.Struct(known) if len(known) == len(fields) else None
    return None


def _leaves(dtype: pl.DataType) -> list[pl.DataType]:
    if isinstance(dtype, pl.Struct):
        return [leaf for field in dtype.fields for leaf in _leaves(_instance(field.dtype))]
    return [dtype]


def _instance(dtype: PolarsDataType) -> pl.DataType:
    return dtype() if isinstance(dtype, type) else dtype


def _cast(dtype: pl.DataType, title: str) -> str:
    column = title.split("'")[1] if "'" in title else title
    if isinstance(dtype, pl.Struct):
        column = next(f.name for f in dtype.fields if _id_type(_instance(f.dtype)) is None)
    return f'df.with_columns(pl.col("{column}").cast(pl.String))'
