"""The records of OpenSearch User Behavior Insights: queries and events, from JSON or Parquet.

Both are read as tables of one shape, `RECORD`, all records at once. What is left, because it has
other types or may be at fault, is read record by record: slowly, but naming the line or the row.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.frames import WIDE, read_json_lines
from gecasmo.logs.formats.json_lists import first_of_pairs, lines_of_lists
from gecasmo.logs.formats.moments import (
    MOMENT,
    moments_of_numbers,
    moments_of_texts,
    read_moment,
    where,
)
from gecasmo.logs.inputs import (
    BYTE_ORDER_MARK,
    HALF_A_CHARACTER,
    Input,
    Lines,
    Opened,
    whole_json,
)
from gecasmo.logs.notes import Notebook

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

# What becomes of a record: one that has no action is a query.
COLUMNS: dict[str, PolarsDataType] = {
    "row": pl.Int64,
    "page": pl.String,
    "query": pl.String,
    "action": pl.String,
    "client_id": pl.String,
    "session_id": pl.String,
    "user_id": pl.String,
    "application": pl.String,
    "query_attributes": pl.String,
    "time": MOMENT,
    "hits": pl.List(pl.String),
    "doc": pl.String,
    "position": pl.Int64,
}
_TEXTS = {
    "page": "query_id",
    "query": "user_query",
    "action": "action_name",
    "client_id": "client_id",
    "session_id": "session_id",
    "user_id": "user_id",
    "application": "application",
}
FLAT = "event_attributes."
_ATTRIBUTES = {
    "object": pl.Struct({"object_id": pl.String}),
    "position": pl.Struct({"ordinal": pl.String}),
}
RECORD: dict[str, PolarsDataType] = {
    **dict.fromkeys(_TEXTS.values(), pl.String),
    "timestamp": pl.String,
    "query_attributes": pl.String,
    "query_response_hit_ids": pl.List(pl.String),
    "event_attributes": pl.Struct(_ATTRIBUTES),
    "object_id": pl.String,
    "position.ordinal": pl.String,
}
_FLAT_RECORD: dict[str, PolarsDataType] = {
    f"{FLAT}object.object_id": pl.String,
    f"{FLAT}position.ordinal": pl.String,
}
BULK = {"index", "create", "update", "delete"}
# Such a line, where nothing in it need be looked at; it is known to be JSON.
_BULK_LINE = rf'^\s*\{{\s*"(?:{"|".join(sorted(BULK))})"\s*:\s*\{{[^{{}}\\]*\}}\s*\}}\s*$'
LARGEST_ORDINAL = 2**62
_EXACT_FLOAT = 2**53
_PLAIN_ORDINAL = re.compile("[0-9]{1,15}")
FEW = 50
PARTS = 16

# As numbers in JSON these are times, as texts they are not.
_ODD_NUMBER = r"^(?:-[0-9]|[0-9]+\.)[0-9.]*$"
_OBJECT = r"^[\[{]"


class Records:
    """The records of all files, numbered through."""

    def __init__(self) -> None:
        self._rows: list[tuple[Any, ...]] = []
        self._frames: list[pl.DataFrame] = []
        self._places: list[tuple[int, Lines | Input]] = []
        self._count = 0
        self._undated: list[int] = []

    @cached_property
    def table(self) -> pl.DataFrame:
        """One row a record, when all are read."""
        slow = pl.DataFrame(self._rows, schema=COLUMNS, orient="row")
        table = pl.concat([*self._frames, slow])
        return table.sort("row") if slow.height else table

    @property
    def queries(self) -> pl.DataFrame:
        """One row a query record."""
        return self.table.filter(pl.col("action").is_null()).drop("action", "doc", "position")

    @property
    def events(self) -> pl.DataFrame:
        """One row an event record."""
        return self.table.filter(pl.col("action").is_not_null()).drop("hits", "query_attributes")

    def read(self, inputs: Opened, max_line: int) -> None:
        """Add the records of some files."""
        for file in inputs:
            if file.is_parquet:
                self._read_parquet(file)
            else:
                self._read_lines(file, max_line)

    def _read_lines(self, file: Input, max_line: int) -> None:
        data = file.content(max_line).removeprefix(BYTE_ORDER_MARK)
        listed = lines_of_lists(data)
        data = data if listed is None else listed
        lines = Lines([(file.name, data)], "line" if listed is None else "record")
        lines.refuse_blank(file.name)
        self._places.append((self._count, lines))
        rows, table = table_of_lines(data, lines.text)
        # Polars reads half a character as something else, without a word.
        is_half = lines.text.str.contains(HALF_A_CHARACTER.pattern)
        odd = rows.filter(self._add_table(table, rows, is_half.gather(rows)))
        # Many may be lines that are known to be JSON, and hold no record.
        odd = odd.filter(~lines.text.gather(odd).str.contains(_BULK_LINE))
        if len(rows) < len(lines.text):
            unread = pl.int_range(len(lines.text), eager=True)
            odd = pl.concat([odd, unread.filter(~unread.is_in(rows.implode()))]).sort()
        self._add_all(lines.records(odd, first_of_pairs))
        self._count += len(lines.text)

    def _read_parquet(self, file: Input) -> None:
        self._places.append((self._count, file))
        table = file.read_parquet()
        if "query_id" not in table.columns:
            raise ClickLogError(
                f"{file.name} lacks the column 'query_id', which queries and events of UBI have. "
                f"It has: {', '.join(table.columns)}."
            )
        table = table.select(n for n in table.columns if n in RECORD or n.startswith(FLAT))
        rows = pl.int_range(table.height, eager=True)
        left = rows.filter(self._add_table(table, rows))
        self._add_all(zip(left, table[left].iter_rows(named=True), strict=True))
        self._count += table.height

    def _add_table(
        self, table: pl.DataFrame, rows: pl.Series, is_odd: pl.Series | None = None
    ) -> pl.Series:
        """Add the records of a table but for the odd ones, and say which these are."""
        plain = PlainRecords(table, is_json=is_odd is not None)
        is_odd = plain.is_odd if is_odd is None else plain.is_odd | is_odd
        rows = rows + self._count
        self._undated += rows.filter(plain.is_undated & ~is_odd).to_list()
        frame = plain.frame.with_columns(row=rows)
        frame = frame.filter(~is_odd) if is_odd.any() else frame
        self._frames.append(frame.select(pl.col(n).cast(dtype) for n, dtype in COLUMNS.items()))
        return is_odd

    def place(self, row: int) -> str:
        """Say where a record is."""
        start, holder = next(p for p in reversed(self._places) if p[0] <= row)
        if isinstance(holder, Lines):
            return holder.place(row - start)
        return f"{holder.name}, row {row - start}"

    def error(self, row: int, what: str) -> ClickLogError:
        """Make the error for a record that cannot be read."""
        start, holder = next(p for p in reversed(self._places) if p[0] <= row)
        if isinstance(holder, Lines):
            return holder.error(row - start, what)
        return ClickLogError(f"{self.place(row)}: {what}.")

    def take_notes(self, notes: Notebook) -> None:
        """Note what could not be made sense of in the records themselves."""
        undated = sorted(self._undated)
        notes.add_rows("unreadable timestamps", undated, "the records are kept without one")

    def _add_all(self, records: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        for number, record in records:
            inner = source_of(record)
            if inner is record and is_bulk_line(record):
                continue
            row = self._count + number
            fields = fields_of(inner)
            if fields["page"] is None and fields["action"] is None:
                raise self.error(row, "neither an event (action_name) nor a query (query_id)")
            values = (self._value(row, name, value) for name, value in fields.items())
            self._rows.append((row, *values))

    def _value(self, row: int, name: str, value: Any) -> Any:
        if name == "time":
            moment = read_moment(value)
            if moment is None and value is not None:
                self._undated.append(row)
            return moment
        if name == "position":
            return self._ordinal(row, value)
        if name == "query_attributes" and isinstance(value, dict | list):
            return json.dumps(value, ensure_ascii=False)
        if name != "hits":
            return id_text(value)
        if value is not None and not isinstance(value, list):
            raise self.error(row, "query_response_hit_ids should be a list")
        return None if value is None else [id_text(hit) for hit in value]

    def _ordinal(self, row: int, value: Any) -> int | None:
        if value is None:
            return None
        if isinstance(value, str) and _PLAIN_ORDINAL.fullmatch(value):
            return int(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
            raise self.error(row, f"position.ordinal should be a whole number, not {value!r}")
        if value < 0:
            raise self.error(row, f"position.ordinal should not be negative, not {value!r}")
        if value >= LARGEST_ORDINAL:
            raise self.error(row, f"position.ordinal is too large to be a position: {value!r}")
        return int(value)


def table_of_lines(data: bytes, lines: pl.Series) -> tuple[pl.Series, pl.DataFrame]:
    """Read JSON lines as a table of the shape of `RECORD`.

    Parameters
    ----------
    data
        All lines, with line ends between.
    lines
        The same lines one by one.

    Returns
    -------
    rows : pl.Series
        The lines that are in the table; the others are blank, or near one that does not fit.
    table : pl.DataFrame
    """
    shape = dict(RECORD)
    if lines.str.contains(f'"{FLAT}', literal=True).any():
        shape |= _FLAT_RECORD
    if lines.str.contains('"_source"', literal=True).any():
        shape |= {"_source": pl.Struct(shape)}
    rows = lines.str.contains(r"\S").arg_true().cast(pl.Int64)
    found = list(_tables(data, 0, rows, shape))
    empty = (rows.clear(), pl.DataFrame(schema=shape))
    all_rows, tables = zip(*found or [empty], strict=True)
    return pl.concat(all_rows), _without_wrapping(pl.concat(tables))


def _tables(
    data: bytes, first: int, rows: pl.Series, shape: dict[str, PolarsDataType]
) -> Iterator[tuple[pl.Series, pl.DataFrame]]:
    """Read lines at once, or, where one does not fit, in smaller and smaller parts.

    `first` is the number of the first line, and `rows` are the lines that are not blank.
    """
    try:
        table = read_json_lines(data, schema=shape)
        if table.height == len(rows):
            yield rows, table
            return
    except pl.exceptions.PolarsError:
        pass
    start = 0
    while len(rows) > FEW and start < len(data):
        end = data.find(b"\n", start + len(data) // PARTS) + 1 or len(data)
        if end - start == len(data):
            return
        last = first + data.count(b"\n", start, end)
        yield from _tables(
            data[start:end], first, rows.filter(rows.is_between(first, last, "left")), shape
        )
        first, start = last, end


def _without_wrapping(table: pl.DataFrame) -> pl.DataFrame:
    """Take records out of what a scroll or a dump of an index wraps around them."""
    if "_source" not in table.columns:
        return table
    inner, own = pl.col("_source"), [name for name in table.columns if name != "_source"]
    is_wrapped = inner.is_not_null()
    return table.select(
        pl.when(is_wrapped).then(inner.struct.field(name)).otherwise(pl.col(name)).alias(name)
        for name in own
    )


class PlainRecords:
    """The records of a table, each column read at once.

    Parameters
    ----------
    table
        One row a record, with columns of `RECORD`, of any type.
    is_json
        Whether it was made of JSON, in which a text may have been something else.

    Attributes
    ----------
    frame
        The `COLUMNS`, but for the row.
    is_odd
        Which records have to be read one by one.
    is_undated
        Which have a time that cannot be read.
    """

    def __init__(self, table: pl.DataFrame, is_json: bool = False) -> None:
        self._table, self._is_json = table, is_json
        self.is_odd = pl.repeat(False, table.height, eager=True)
        self._relevant = ~self.is_odd
        times = self._column("timestamp")
        columns = {role: self._texts(self._column(name)) for role, name in _TEXTS.items()}
        columns["time"] = self._moments(times)
        # What an event has no use for, and what a query has none for, may be anything.
        is_event = columns["action"].is_not_null()
        self._relevant = ~is_event
        columns["query_attributes"] = self._texts(self._column("query_attributes"))
        columns["hits"] = self._hits(self._column("query_response_hit_ids"))
        self._relevant = is_event
        columns["doc"] = self._texts(self._attribute("object", "object_id", "object_id"))
        ordinals = self._attribute("position", "ordinal", "position.ordinal")
        columns["position"] = self._ordinals(ordinals)
        self.frame = pl.DataFrame([values.alias(name) for name, values in columns.items()])
        self.is_odd |= ~is_event & columns["page"].is_null()
        self.is_undated = times.is_not_null() & columns["time"].is_null()

    def _column(self, name: str) -> pl.Series:
        if name in self._table.columns:
            return self._table[name]
        return pl.Series(name, [None], pl.Null).new_from_index(0, self._table.height)

    def _mark(self, odd: pl.Series) -> None:
        """Leave records to be read one by one, if they have a use for the column at hand."""
        self.is_odd |= odd & self._relevant

    def _leave(self, values: pl.Series, dtype: PolarsDataType) -> pl.Series:
        """Leave all values of a column to be read one by one."""
        self._mark(values.is_not_null())
        return pl.Series(values.name, [None], dtype).new_from_index(0, len(values))

    def _attribute(self, part: str, key: str, outside: str) -> pl.Series:
        """Find an attribute of events: in the nested attributes, in a flat column, or outside."""
        name = f"{FLAT}{part}.{key}"
        outer = self._column(outside)
        flat = self._column(name) if name in self._table.columns else outer
        attributes = self._column("event_attributes")
        if not isinstance(attributes.dtype, pl.Struct):
            self._leave(attributes, pl.Null)
            return flat
        fields = {inner.name: inner.dtype for inner in attributes.dtype.fields}
        if not isinstance(fields.get(part), pl.Struct):
            return flat
        found = attributes.struct.field(part)
        is_there = found.is_not_null()
        nested = found.struct.field(key) if key in found.struct.fields else outer
        if pl.Null not in (flat.dtype, nested.dtype) and flat.dtype != nested.dtype:
            self._mark(is_there)
            return flat
        chosen = pl.select(pl.when(is_there).then(nested).otherwise(flat)).to_series()
        # In JSON, what is null may also not be there, and then what stands outside counts.
        self._mark(chosen.is_null() & outer.is_not_null())
        return chosen

    def _texts(self, values: pl.Series) -> pl.Series:
        if values.dtype == pl.String:
            if self._is_json:
                # Polars writes lists and objects as text, too.
                self._mark(values.str.contains(_OBJECT).fill_null(False))
            return values
        if values.dtype.is_integer() or values.dtype == pl.Null:
            return values.cast(pl.String)
        return self._leave(values, pl.String)

    def _hits(self, values: pl.Series) -> pl.Series:
        inner = values.dtype.inner if isinstance(values.dtype, pl.List) else None
        if inner == pl.String and self._is_json:
            is_object = values.list.eval(pl.element().str.contains(_OBJECT)).list.any()
            self._mark(is_object.fill_null(False))
        is_plain = inner is not None and (inner == pl.String or inner.is_integer())
        if values.dtype != pl.Null and not is_plain:
            return self._leave(values, pl.List(pl.String))
        return values.cast(pl.List(pl.String))

    def _ordinals(self, values: pl.Series) -> pl.Series:
        if values.dtype == pl.Null:
            return values.cast(pl.Int64)
        if values.dtype == pl.String:
            # In JSON these may be numbers, which Polars writes as text.
            plain = values.str.contains(f"^(?:{_PLAIN_ORDINAL.pattern})$")
            self._mark(~plain.fill_null(True))
            return where(plain, values).cast(pl.Int64)
        if not values.dtype.is_integer() and not values.dtype.is_float():
            return self._leave(values, pl.Int64)
        numbers = values.cast(pl.Float64)
        is_plain = numbers.is_between(0, _EXACT_FLOAT - 1) & (numbers % 1 == 0)
        self._mark(numbers.is_not_null() & ~is_plain)
        return where(is_plain, numbers).cast(pl.Int64)

    def _moments(self, values: pl.Series) -> pl.Series:
        dtype = values.dtype
        if dtype == pl.Null:
            return values.cast(MOMENT)
        if isinstance(dtype, pl.Datetime):
            here = values.dt.cast_time_unit("us")
            if dtype.time_zone is None:
                return here.dt.replace_time_zone("UTC")
            return here.dt.convert_time_zone("UTC")
        if dtype == pl.String:
            if self._is_json:
                self._mark(values.str.contains(_ODD_NUMBER).fill_null(False))
            return moments_of_texts(values)
        if dtype.is_integer() and dtype not in (pl.UInt64, *WIDE):
            return moments_of_numbers(values)
        return self._leave(values, MOMENT)


def is_bulk_line(record: Mapping[str, Any]) -> bool:
    """Whether a record is the line before a record in a file for the bulk interface."""
    return len(record) == 1 and set(record) <= BULK


def source_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the record itself, also from what a scroll or a dump of an index wraps around it."""
    inner = record.get("_source")
    return inner if isinstance(inner, dict) else record


def fields_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Find the fields of a record, by the `COLUMNS` after the row, as they stand in it."""
    fields = {column: record.get(name) for column, name in _TEXTS.items()}
    fields |= dict.fromkeys(("query_attributes", "time", "hits", "doc", "position"))
    fields["time"] = record.get("timestamp")
    if fields["action"] is None:
        attributes, hits = record.get("query_attributes"), record.get("query_response_hit_ids")
        return fields | {"query_attributes": attributes, "hits": hits}
    target, position = _object(record, "object"), _object(record, "position")
    return fields | {
        "doc": target.get("object_id", record.get("object_id")),
        "position": position.get("ordinal", record.get("position.ordinal")),
    }


def _object(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Find an object within the attributes of an event, also in columns with dotted names."""
    attributes = record.get("event_attributes")
    if isinstance(attributes, str):
        attributes = _json_or_nothing(attributes)  # as exports to flat tables have it
    found = attributes.get(name) if isinstance(attributes, dict) else None
    if isinstance(found, dict):
        return found
    start = f"{FLAT}{name}."
    return {key[len(start) :]: value for key, value in record.items() if key.startswith(start)}


def _json_or_nothing(text: str) -> Any:
    try:
        return whole_json(text)
    except (ValueError, RecursionError):
        return None


def id_text(value: Any) -> str | None:
    """Write an id or a query as text; numbers and booleans as Polars does."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{Decimal(repr(value)):f}".removesuffix(".0")
    return str(value)
