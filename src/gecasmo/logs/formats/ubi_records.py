"""The records of OpenSearch User Behavior Insights: queries and events, from JSON or Parquet."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.inputs import Input, Opened
from gecasmo.logs.lines import Lines, read_lines
from gecasmo.logs.notes import Notebook

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

MOMENT = pl.Datetime("us", "UTC")
QUERIES: dict[str, PolarsDataType] = {
    "row": pl.Int64,
    "page": pl.String,
    "query": pl.String,
    "client_id": pl.String,
    "session_id": pl.String,
    "timestamp": MOMENT,
    "hits": pl.List(pl.String),
}
EVENTS: dict[str, PolarsDataType] = {
    "row": pl.Int64,
    "page": pl.String,
    "action": pl.String,
    "client_id": pl.String,
    "session_id": pl.String,
    "timestamp": MOMENT,
    "doc": pl.String,
    "ordinal": pl.Int64,
}
BULK = {"index", "create", "update", "delete"}


class Records:
    """The records of all files, numbered through.

    Attributes
    ----------
    queries, events
        One row a record.
    """

    def __init__(self) -> None:
        self._queries: list[tuple[Any, ...]] = []
        self._events: list[tuple[Any, ...]] = []
        self._places: list[tuple[int, Lines | Input]] = []
        self._count = 0
        self.undated: list[int] = []

    @property
    def queries(self) -> pl.DataFrame:
        """One row a query record."""
        return pl.DataFrame(self._queries, schema=QUERIES, orient="row")

    @property
    def events(self) -> pl.DataFrame:
        """One row an event record."""
        return pl.DataFrame(self._events, schema=EVENTS, orient="row")

    def read(self, inputs: Opened, max_line: int) -> None:
        """Add the records of some files."""
        for file in inputs:
            if file.is_parquet:
                self._places.append((self._count, file))
                rows: Iterator[tuple[int, Mapping[str, Any]]] = enumerate(_parquet_rows(file))
                self._add_all(rows)
            else:
                lines = read_lines(Opened(file.name, [file]), max_line)
                self._places.append((self._count, lines))
                self._add_all(lines.records())

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
            len(self.undated),
            "the records are kept without one",
            map(self.place, self.undated[:3]),
        )

    def _add_all(self, records: Iterator[tuple[int, Mapping[str, Any]]]) -> None:
        start, last = self._count, -1
        for number, record in records:
            last = number
            self._add(start + number, record)
        self._count = start + last + 1

    def _add(self, row: int, record: Mapping[str, Any]) -> None:
        if isinstance(record.get("_source"), dict):
            record = record["_source"]  # as a scroll or a dump of an index gives it
        elif len(record) == 1 and set(record) <= BULK:
            return  # the line before a record in a file for the bulk interface
        shared = (_text(record.get("client_id")), _text(record.get("session_id")))
        if record.get("action_name") is not None:
            target = _object(record, "object")
            self._events.append(
                (
                    row,
                    _text(record.get("query_id")),
                    str(record["action_name"]),
                    *shared,
                    self._moment(row, record.get("timestamp")),
                    _text(target.get("object_id", record.get("object_id"))),
                    self._ordinal(row, record),
                )
            )
        elif record.get("query_id") is not None:
            hits = record.get("query_response_hit_ids")
            if hits is not None and not isinstance(hits, list):
                raise self.error(row, "query_response_hit_ids should be a list")
            self._queries.append(
                (
                    row,
                    _text(record["query_id"]),
                    _text(record.get("user_query")),
                    *shared,
                    self._moment(row, record.get("timestamp")),
                    None if hits is None else [_text(hit) for hit in hits],
                )
            )
        else:
            raise self.error(row, "neither an event (action_name) nor a query (query_id)")

    def _ordinal(self, row: int, record: Mapping[str, Any]) -> int | None:
        position = _object(record, "position")
        value = position.get("ordinal", record.get("position.ordinal"))
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value // 1:
            raise self.error(row, f"position.ordinal should be a whole number, not {value!r}")
        if value < 0:
            raise self.error(row, f"position.ordinal should not be negative, not {value!r}")
        return int(value)

    def _moment(self, row: int, value: Any) -> datetime.datetime | None:
        moment = _read_moment(value)
        if moment is None and value is not None:
            self.undated.append(row)
        return moment


def _parquet_rows(file: Input) -> Iterator[Mapping[str, Any]]:
    try:
        table = pl.read_parquet(file.for_parquet(), glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ClickLogError(f"{file.name} cannot be read: {str(error).splitlines()[0]}") from error
    known = {"query_id", "action_name", "user_query"}
    if "query_id" not in table.columns:
        raise ClickLogError(
            f"{file.name} lacks the column 'query_id', which queries and events of UBI have. "
            f"It has: {', '.join(table.columns)}."
        )
    wanted = known | {"client_id", "session_id", "timestamp", "query_response_hit_ids"}
    wanted |= {"event_attributes", "object_id", "position.ordinal"}
    names = [name for name in table.columns if name in wanted or name.startswith(_FLAT)]
    yield from table.select(names).iter_rows(named=True)


_FLAT = "event_attributes."


def _object(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Find an object within the attributes of an event, also in columns with dotted names."""
    attributes = record.get("event_attributes")
    if isinstance(attributes, str):
        attributes = _json_or_nothing(attributes)  # as exports to flat tables have it
    found = attributes.get(name) if isinstance(attributes, dict) else None
    if isinstance(found, dict):
        return found
    start = f"{_FLAT}{name}."
    return {key[len(start) :]: value for key, value in record.items() if key.startswith(start)}


def _json_or_nothing(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else str(value)


def _read_moment(value: Any) -> datetime.datetime | None:
    """Read a time: milliseconds since 1970, ISO 8601, or a time already; UTC where none is said."""
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _EPOCH + datetime.timedelta(milliseconds=value)
        if isinstance(value, str):
            value = datetime.datetime.fromisoformat(value)
        if isinstance(value, datetime.datetime):
            if value.tzinfo is None:
                return value.replace(tzinfo=datetime.UTC)
            return value.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return None
    return None


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
