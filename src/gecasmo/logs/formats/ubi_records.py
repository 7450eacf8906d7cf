"""The records of OpenSearch User Behavior Insights: queries and events, from JSON or Parquet.

Parquet is read all at once where the types are plain, and JSON where the lines are; what is left is
read one by one.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.formats.ubi_lines import (
    FLAT,
    LARGEST_ORDINAL,
    MOMENT,
    SCHEMAS,
    Plain,
    as_text,
    fields_of,
    is_bulk_line,
    moments_of_numbers,
    moments_of_texts,
    read_moment,
    read_plain_lines,
    source_of,
)
from gecasmo.logs.inputs import Input, Opened
from gecasmo.logs.lines import Lines, read_lines
from gecasmo.logs.notes import Notebook

_TEXTS = {
    "page": "query_id",
    "query": "user_query",
    "action": "action_name",
    "client_id": "client_id",
    "session_id": "session_id",
}


class Records:
    """The records of all files, numbered through.

    Plain records are read all at once; the others, and all that is at fault, one by one.

    Attributes
    ----------
    queries, events
        One row a record.
    """

    def __init__(self) -> None:
        self._rows: dict[str, list[tuple[Any, ...]]] = {kind: [] for kind in SCHEMAS}
        self._frames: dict[str, list[pl.DataFrame]] = {kind: [] for kind in SCHEMAS}
        self._places: list[tuple[int, Lines | Input]] = []
        self._count = 0
        self._undated: list[int] = []

    @property
    def queries(self) -> pl.DataFrame:
        """One row a query record."""
        return self._all("query")

    @property
    def events(self) -> pl.DataFrame:
        """One row an event record."""
        return self._all("event")

    def _all(self, kind: str) -> pl.DataFrame:
        slow = pl.DataFrame(self._rows[kind], schema=SCHEMAS[kind], orient="row")
        return pl.concat([*self._frames[kind], slow]).sort("row")

    def read(self, inputs: Opened, max_line: int) -> None:
        """Add the records of some files."""
        for file in inputs:
            if file.is_parquet:
                self._read_table(file)
            else:
                self._read_lines(read_lines(Opened(file.name, [file]), max_line))

    def _read_lines(self, lines: Lines) -> None:
        self._places.append((self._count, lines))
        plain = read_plain_lines(lines.text)
        self._add_plain(plain)
        self._add_all(lines.records(plain.rest))
        self._count += len(lines.text)

    def _read_table(self, file: Input) -> None:
        self._places.append((self._count, file))
        table = _parquet_table(file)
        plain = read_plain_table(table)
        if plain is None:
            self._add_all(enumerate(table.iter_rows(named=True)))
        else:
            self._add_plain(plain)
        self._count += table.height

    def place(self, row: int) -> str:
        """Say where a record is."""
        start, holder = next(p for p in reversed(self._places) if p[0] <= row)
        if isinstance(holder, Lines):
            return holder.place(row - start)
        return f"{holder.name}, row {row - start}"

    def places(self, rows: pl.Series) -> list[str]:
        """Say where the first few of some records are."""
        return [self.place(int(row)) for row in rows.head(3)]

    def error(self, row: int, what: str) -> ClickLogError:
        """Make the error for a record that cannot be read."""
        start, holder = next(p for p in reversed(self._places) if p[0] <= row)
        if isinstance(holder, Lines):
            return holder.error(row - start, what)
        return ClickLogError(f"{self.place(row)}: {what}.")

    def take_notes(self, notes: Notebook) -> None:
        """Note what could not be made sense of in the records themselves."""
        notes.add(
            "unreadable timestamps",
            len(self._undated),
            "the records are kept without one",
            map(self.place, sorted(self._undated)),
        )

    def _add_plain(self, plain: Plain) -> None:
        self._undated += (self._count + row for row in plain.undated)
        for kind, frames in plain.frames.items():
            shifted = (frame.with_columns(pl.col("row") + self._count) for frame in frames)
            self._frames[kind] += shifted

    def _add_all(self, records: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        for number, record in records:
            inner = source_of(record)
            if inner is record and is_bulk_line(record):
                continue
            row = self._count + number
            kind, fields = fields_of(inner)
            if kind == "neither":
                raise self.error(row, "neither an event (action_name) nor a query (query_id)")
            values = (self._value(row, name, value) for name, value in fields.items())
            self._rows[kind].append((row, *values))

    def _value(self, row: int, name: str, value: Any) -> Any:
        if name == "timestamp":
            return self._moment(row, value)
        if name == "ordinal":
            return self._ordinal(row, value)
        return self._hits(row, value) if name == "hits" else as_text(value)

    def _hits(self, row: int, value: Any) -> list[str | None] | None:
        if value is not None and not isinstance(value, list):
            raise self.error(row, "query_response_hit_ids should be a list")
        return None if value is None else [as_text(hit) for hit in value]

    def _ordinal(self, row: int, value: Any) -> int | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
            raise self.error(row, f"position.ordinal should be a whole number, not {value!r}")
        if value < 0:
            raise self.error(row, f"position.ordinal should not be negative, not {value!r}")
        if value >= LARGEST_ORDINAL:
            raise self.error(row, f"position.ordinal is too large to be a position: {value!r}")
        return int(value)

    def _moment(self, row: int, value: Any) -> datetime.datetime | None:
        moment = read_moment(value)
        if moment is None and value is not None:
            self._undated.append(row)
        return moment


def _parquet_table(file: Input) -> pl.DataFrame:
    try:
        table = pl.read_parquet(file.for_parquet(), glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ClickLogError(f"{file.name} cannot be read: {str(error).splitlines()[0]}") from error
    if "query_id" not in table.columns:
        raise ClickLogError(
            f"{file.name} lacks the column 'query_id', which queries and events of UBI have. "
            f"It has: {', '.join(table.columns)}."
        )
    wanted = {"query_id", "action_name", "user_query", "query_response_hit_ids"}
    wanted |= {"client_id", "session_id", "timestamp"}
    wanted |= {"event_attributes", "object_id", "position.ordinal"}
    return table.select(n for n in table.columns if n in wanted or n.startswith(FLAT))


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
