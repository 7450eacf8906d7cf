"""What a format of logs is: how it is recognised, read and written; and what readers share.

Readers make columns of the values that they found, and pages of their results.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.inputs import MAX_LINE, Input, Lines
from gecasmo.logs.notes import Notebook
from gecasmo.logs.values import integers_where_exact

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog
    from gecasmo.logs.formats.event_columns import EventRoles

# No column of a log is called so, which cannot be said of "page".
PAGE_NUMBER = "\0page"
MOST_CLICKS = 2**31


@dataclass(frozen=True)
class ReadOptions:
    """What a reader may need to know.

    Attributes
    ----------
    max_line
        The longest line allowed in a text file, in bytes.
    id_columns
        Names of the columns that hold ids, for tables.
    events
        Which column plays which part, for events.
    """

    max_line: int = MAX_LINE
    id_columns: Sequence[str] = ("session", "query", "doc")
    events: EventRoles | None = None


class Head:
    """The beginning of a file, to recognise its format by.

    Parameters
    ----------
    file
        The file.
    """

    def __init__(self, file: Input) -> None:
        self.name = file.name
        self.schema: dict[str, pl.DataType] = _schema(file) if file.is_parquet else {}
        self.start = b"" if file.is_parquet else file.head
        self.line = _first_line(self.start)

    @property
    def is_parquet(self) -> bool:
        """Whether the file is a Parquet table."""
        return bool(self.schema)

    def has_fields(self, *names: str) -> bool:
        """Whether the columns (or the keys of the first JSON object) have all these names."""
        found = self.schema or self.first_record
        return all(name in found for name in names)

    @property
    def first_record(self) -> dict[str, Any]:
        """The first JSON object of the file, or an empty one."""
        try:
            record = json.loads(self.line)
        except (ValueError, RecursionError):
            return {}
        return record if isinstance(record, dict) else {}


@dataclass(frozen=True)
class Format:
    """One format of logs.

    Attributes
    ----------
    name
        What ``format=`` takes.
    title
        What people call it.
    description
        What a file looks like, in a sentence.
    sniff
        Says whether the beginning of a file looks like this format.
    read
        Reads a source, and notes what was met on the way. The table has one row a result, or one
        row a page with lists of results, in columns that carry the names of the roles.
    write
        Writes a log, or None when the format is only read.
    """

    name: str
    title: str
    description: str
    sniff: Callable[[Head], bool]
    read: Callable[[Any, ReadOptions, Notebook], pl.DataFrame]
    write: Callable[[ClickLog, Path], None] | None = None


def _schema(file: Input) -> dict[str, pl.DataType]:
    try:
        return file.parquet_schema()
    except ClickLogError:
        return {}  # whoever reads it will tell


def _first_line(head: bytes) -> str:
    """Find the first line that is not blank."""
    text = head.decode("utf-8", errors="replace").removeprefix("\ufeff")
    return next((line.rstrip("\r") for line in text.split("\n") if line.strip()), "")


def nested(pages: pl.DataFrame, results: pl.DataFrame, page: str = "page") -> pl.DataFrame:
    """Put the results of each page into lists, so that pages without results have a row too.

    The column `page` of the results counts the rows of `pages` from 0.
    """
    lists = results.rename({page: PAGE_NUMBER}).with_columns(pl.col(PAGE_NUMBER).cast(pl.UInt32))
    lists = lists.group_by(PAGE_NUMBER, maintain_order=True).agg(pl.all())
    names = [name for name in lists.columns if name != PAGE_NUMBER]
    numbered = pages.with_row_index(PAGE_NUMBER)
    joined = numbered.join(lists, on=PAGE_NUMBER, how="left", maintain_order="left")
    return joined.with_columns(pl.col(names).fill_null([])).drop(PAGE_NUMBER)


def page_ids(ids: pl.Series) -> pl.Series:
    """Name each page after an id of the source, which several pages can share.

    These are the ids themselves when no two pages share one; else `id-1`, `id-2`, ... throughout.
    """
    if not ids.is_duplicated().any():
        return integers_where_exact(ids).alias("session")
    numbers = pl.int_range(1, pl.len() + 1).over("id").cast(pl.String)
    named = ids.alias("id").to_frame().select(pl.concat_str("id", numbers, separator="-"))
    return named.to_series().alias("session")


def with_exact_ids(frame: pl.DataFrame, columns: Sequence[str]) -> pl.DataFrame:
    """Turn columns of text ids into integers, each where that loses nothing."""
    return frame.with_columns(integers_where_exact(frame[name]) for name in columns)


def first_on_page(results: pl.DataFrame) -> pl.Series:
    """Say of each result, by "page" and "doc", whether its document is there for the first time."""
    # One number for page and document is far faster to hash than the pair of them.
    code = code_of(results["doc"])
    return (results["page"].cast(pl.UInt64) * 2**32 + code.cast(pl.UInt64)).is_first_distinct()


def code_of(ids: pl.Series) -> pl.Series:
    """Give each different id a number, below 2**32."""
    return ids.cast(pl.String).cast(pl.Categorical).to_physical()


def note_shown_twice(
    results: pl.DataFrame, rows: Sequence[int] | pl.Series, notes: Notebook, done: str
) -> None:
    """Note results, by "page" and "doc", that are on their page already.

    `rows` has the row of the source that each page came from; `done` says what becomes of them.
    """
    again = results.filter(~first_on_page(results)).select("page", "doc")
    examples = (f"{notes.place(rows[page])}: {doc!r}" for page, doc in again.iter_rows())
    notes.add("results shown twice on a page", again.height, done, examples)


def note_repeated_queries(
    pages: pl.DataFrame, visit: str, rows: Sequence[int] | pl.Series, notes: Notebook
) -> None:
    """Note pages whose query was asked before in the same visit, which is a column of the pages."""
    again = ~pl.struct(visit, "query").is_first_distinct() & pl.col(visit).is_not_null()
    found = pages.select(again.alias("again"))["again"].arg_true()
    places = (notes.place(rows[page]) for page in found)
    notes.add("repeated queries in a session", len(found), "each is a page of its own", places)


@dataclass
class PagesOfLines:
    """Pages read a line at a time: the row of each page, and the page of each result."""

    rows: list[int] = field(default_factory=list)
    page: list[int] = field(default_factory=list)

    def add(self, row: int, n_results: int) -> None:
        """Add a page with its results."""
        self.page += [len(self.rows)] * n_results
        self.rows.append(row)

    def note_repeats(self, kind: str, counts: Sequence[int], notes: Notebook, done: str) -> None:
        """Note results that have a signal more than once."""
        pages = (page for page, count in zip(self.page, counts, strict=True) if count > 1)
        surplus = sum(count - 1 for count in counts if count > 1)
        notes.add(kind, surplus, done, (notes.place(self.rows[page]) for page in pages))

    def note_empty(self, notes: Notebook) -> None:
        """Note pages without results."""
        filled = set(self.page)
        empty = [row for page, row in enumerate(self.rows) if page not in filled]
        notes.add_rows("pages without results", empty, "they are kept")


def column_of(name: str, values: Sequence[Any]) -> pl.Series:
    """Make a column of JSON values: integers, booleans, floats where all are, else text."""
    kinds = {type(value) for value in values if value is not None}
    for kind, dtype in ((bool, pl.Boolean), (int, pl.Int64), (str, pl.String)):
        if kinds == {kind} and (kind is not int or _fits(values)):
            return pl.Series(name, values, dtype)
    if float in kinds and kinds <= {int, float}:
        return pl.Series(name, values, pl.Float64, strict=False)
    return pl.Series(name, [as_text(value) for value in values], pl.String)


def as_text(value: Any) -> str | None:
    """Write a JSON value as text; a text stays as it is."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def flat(value: Any, lines: Lines, row: int) -> Any:
    """Write lists and objects of a line as text, which is what a column keeps; others stay."""
    if not isinstance(value, list | dict):
        return value
    try:
        return as_text(value)
    except RecursionError:
        raise lines.error(row, "JSON nested too deeply") from None


def click_counts(values: Sequence[Any], lines: Lines, row: int) -> list[int]:
    """Read numbers of clicks of a line: whole numbers from 0, or booleans; else it is at fault."""
    for value in values:
        # Not every whole number has a float to ask: 10**400 has none.
        is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
        if not is_number or value != int(value) or not 0 <= value < MOST_CLICKS:
            shown = reprlib.repr(value)
            raise lines.error(row, f"clicks are whole numbers from 0, not {shown}")
    return [int(value) for value in values]


def _fits(values: Sequence[Any]) -> bool:
    return all(-(2**63) <= value < 2**63 for value in values if value is not None)
