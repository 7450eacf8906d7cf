"""The records of User Behavior Insights in Parquet, read all at once where the types are plain."""

from __future__ import annotations

import polars as pl

from gecasmo.logs.formats.ubi_fields import (
    FLAT,
    LARGEST_ORDINAL,
    MOMENT,
    SCHEMAS,
    moments_of_numbers,
    moments_of_texts,
)
from gecasmo.logs.formats.ubi_lines import Plain

_TEXTS = {
    "page": "query_id",
    "query": "user_query",
    "action": "action_name",
    "client_id": "client_id",
    "session_id": "session_id",
}


class _Odd(Exception):
    """The table has types, or faults, that are left to the slow reader."""


def read_plain_table(table: pl.DataFrame) -> Plain | None:
    """Read the records of a table.

    Parameters
    ----------
    table
        One row a record.

    Returns
    -------
    Plain or None
        None when the slow reader has to read the table.
    """
    try:
        columns = [_text(_column(table, name)).alias(role) for role, name in _TEXTS.items()]
        columns.append(_text(_attribute(table, "object", "object_id", "object_id")).alias("doc"))
        ordinal = _attribute(table, "position", "ordinal", "position.ordinal")
        columns += [ordinal.alias("ordinal"), _hits(_column(table, "query_response_hit_ids"))]
        times = _column(table, "timestamp")
        columns.append(_moments(times).alias("timestamp"))
        records = pl.DataFrame(columns).with_row_index("row").cast({"row": pl.Int64})
        events = records.filter(pl.col("action").is_not_null())
        events = events.with_columns(_whole(events["ordinal"]))
        queries = records.filter(pl.col("action").is_null())
        if queries["page"].null_count():
            raise _Odd
    except _Odd:
        return None
    undated = (times.is_not_null() & records["timestamp"].is_null()).arg_true().to_list()
    frames = {
        kind: [frame.select(pl.col(name).cast(dtype) for name, dtype in SCHEMAS[kind].items())]
        for kind, frame in (("query", queries), ("event", events))
    }
    return Plain(frames, undated)


def _column(table: pl.DataFrame, name: str) -> pl.Series:
    if name in table.columns:
        return table[name]
    return pl.Series(name, [None], pl.Null).new_from_index(0, table.height)


def _attribute(table: pl.DataFrame, part: str, key: str, otherwise: str) -> pl.Series:
    """Find an attribute of the events: in the nested attributes, in a flat column, or outside."""
    name = f"{FLAT}{part}.{key}"
    flat = _column(table, name if name in table.columns else otherwise)
    attributes = _column(table, "event_attributes")
    if attributes.dtype == pl.Null:
        return flat
    if not isinstance(attributes.dtype, pl.Struct):
        raise _Odd
    parts = {inner.name: inner.dtype for inner in attributes.dtype.fields}
    if not isinstance(parts.get(part), pl.Struct):
        return flat
    found = attributes.struct.field(part)
    inside = key in found.struct.fields
    nested = found.struct.field(key) if inside else _column(table, otherwise)
    if pl.Null not in (flat.dtype, nested.dtype) and flat.dtype != nested.dtype:
        raise _Odd
    return pl.select(pl.when(found.is_not_null()).then(nested).otherwise(flat)).to_series()


def _text(values: pl.Series) -> pl.Series:
    if values.dtype == pl.String:
        return values
    if values.dtype.is_integer() or values.dtype == pl.Null:
        return values.cast(pl.String)
    raise _Odd


def _hits(values: pl.Series) -> pl.Series:
    inner = values.dtype.inner if isinstance(values.dtype, pl.List) else None
    is_plain = inner is not None and (inner == pl.String or inner.is_integer())
    if not is_plain and values.dtype != pl.Null:
        raise _Odd
    return values.cast(pl.List(pl.String)).alias("hits")


def _whole(values: pl.Series) -> pl.Series:
    if values.dtype == pl.Null:
        return values.cast(pl.Int64)
    if not values.dtype.is_integer() and not values.dtype.is_float():
        raise _Odd
    known = values.drop_nulls()
    if len(known):
        lowest, highest = known.min(), known.max()
        is_whole = values.dtype.is_integer() or bool((known % 1 == 0).all())
        if not (is_whole and lowest >= 0 and highest < LARGEST_ORDINAL):  # type: ignore[operator]
            raise _Odd
    return values.cast(pl.Int64)


def _moments(values: pl.Series) -> pl.Series:
    dtype = values.dtype
    if dtype == pl.Null:
        return values.cast(MOMENT)
    if isinstance(dtype, pl.Datetime):
        here = values.dt.cast_time_unit("us")
        if dtype.time_zone is None:
            return here.dt.replace_time_zone("UTC")
        return here.dt.convert_time_zone("UTC")
    if dtype == pl.String:
        return moments_of_texts(values)
    if dtype.is_integer() and dtype != pl.UInt64 and dtype != pl.Int128:
        return moments_of_numbers(values)
    raise _Odd
