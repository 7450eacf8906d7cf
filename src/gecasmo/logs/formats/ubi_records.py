"""The records of OpenSearch User Behavior Insights: queries and events, from JSON or Parquet."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.formats.ubi_fields import (
    FLAT,
    LARGEST_ORDINAL,
    SCHEMAS,
    as_text,
    fields_of,
    is_bulk_line,
    read_moment,
    source_of,
)
from gecasmo.logs.formats.ubi_lines import Plain, read_plain_lines
from gecasmo.logs.formats.ubi_tables import read_plain_table
from gecasmo.logs.inputs import Input, Opened
from gecasmo.logs.lines import Lines, read_lines
from gecasmo.logs.notes import Notebook


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
