"""From any source to a checked click log: `read_log`, and `peek` for a glance before."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gecasmo.errors import ClickLogError, ClickLogWarning, option
from gecasmo.forks import refuse_lost_fork
from gecasmo.logs.assembly import assemble
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.formats import Format, ReadOptions, detect_format, format_named
from gecasmo.logs.formats.event_columns import EventRoles
from gecasmo.logs.formats.table import (
    as_separator,
    columns_of,
    is_records,
    is_separated_by,
    source_label,
    table_of_records,
)
from gecasmo.logs.formats.ubi import is_pair
from gecasmo.logs.inputs import MAX_LINE, Opened, naming, open_inputs
from gecasmo.logs.notes import Faults, Notebook, in_one_message
from gecasmo.logs.remote import RemoteTable, is_address
from gecasmo.logs.roles import Roles


def read_log(
    source: Any,
    *,
    session: str | Sequence[str] | None = "session",
    query: str | None = "query",
    doc: str | Sequence[str] = "doc",
    rank: str | None = "rank",
    click: str | None = "click",
    weight: str | None = None,
    format: str | None = None,
    max_line: int = MAX_LINE,
    separator: str | None = None,
) -> ClickLog:
    """Read a click log, and check it.

    A session is one result page shown to one user. A log has either one row a result, or one row a
    page with lists of results; the data type of the click (or document) column tells which.

    Where no column is called as a role is, one that goes by a usual name is taken, such as "url"
    for the document, and a note tells.

    Parameters
    ----------
    source
        A path or glob of Parquet, CSV, TSV or JSON lines (text also packed as .gz or .zst), or of
        a file of another format; an address of such a table that Polars can open (s3://, gs://,
        az://, hf://, https://); "-" for standard input; a Polars, pandas, PyArrow or DuckDB table
        (anything with ``__arrow_c_stream__``); a Polars LazyFrame; a dict of columns; or a list
        with a dict a row.
    session
        The column that says which page a result is on, or a list of columns that do so together.
        Not needed for nested logs, whose pages are then numbered 0, 1, 2, ...
    query
        The query of the page. It may also be one of several columns that make the session.
    doc
        The document, or a list of columns that identify it together.
    rank
        The rank of the result, from 1. Ranks from 0 are shifted by one, with a warning; gaps are
        kept. None takes the order of the rows of a page. Nested logs do not need it.
    click
        Whether the result was clicked: booleans, numbers of clicks (a number above 0 is a click),
        or words such as "yes" and "no". None reads pages without clicks.
    weight
        How often the page counts; one value a page, not negative. None: every page counts once.
    format
        One of `gecasmo.logs.formats.FORMATS`: "table", "ubi", "yandex", "clickmodels",
        "pyclickmodels", "baidu", "trec-session" or "events" (see `read_events`). None recognises
        it by the beginning of the file, unless columns are named, which makes it a table. The
        other formats have columns of their own, and are read from a folder, too.
    max_line
        The longest line allowed in a text file, in bytes.
    separator
        What stands between the fields of a CSV file or the like, one character; None takes it
        from the name and the first line. A name that tells nothing, such as clicks.txt, will do.

    Returns
    -------
    ClickLog

    Raises
    ------
    ClickLogError
        With every fault found in the source.

    Warns
    -----
    ClickLogWarning
        Once, with the notes on all that was met and changed; `ClickLog.notes` keeps them.

    Examples
    --------
    >>> log = read_log({"session": [1, 1], "doc": ["a", "b"], "rank": [1, 2], "click": [0, 1]})
    >>> len(log), log.n_results
    (1, 2)
    """
    refuse_lost_fork()
    roles = Roles(
        {
            "session": session,
            "query": query,
            "doc": doc,
            "rank": rank,
            "click": click,
            "weight": weight,
        }
    )
    if not isinstance(max_line, int) or isinstance(max_line, bool) or max_line < 1:
        raise ClickLogError(
            f"{option('max_line', max_line, of='read_log')}: a number of bytes, at least 1."
        )
    source, found = recognise(source, format, roles, separator)
    label = source_label(source)
    log = read_as(found, source, roles, max_line, label)
    if log.notes:
        warnings.warn(in_one_message(label, log.notes), ClickLogWarning, stacklevel=2)
    return log


def recognise(
    source: Any, name: str | None, roles: Roles | None = None, separator: str | None = None
) -> tuple[Any, Format]:
    """Open the source, and find its format: the one of that name, or by its beginning.

    A source whose columns or separator are named is a table; what is not named is guessed.
    """
    if name is not None:
        format_named(name)
    if is_address(source):
        source = RemoteTable(source)
        _refuse_remote(source, name)
    elif isinstance(source, str | Path):
        source = open_inputs(source, folders=name not in (None, "table"))
    elif is_records(source):
        source = table_of_records(source)
    if separator is not None:
        if name not in (None, "table", "events") or not isinstance(source, Opened):
            raise ClickLogError(
                f"{option('separator', separator)} is for CSV files and the like; leave it out."
            )
        name = name or "table"
        source.separated_by(as_separator(separator))
    if name is None:
        is_table = roles is not None and roles.name_a_table and not is_pair(source)
        name = "table" if is_table else detect_format(source)
    if roles is not None and name == "table" and not isinstance(source, ClickLog):
        roles.guess(*columns_of(source))
    return source, format_named(name)


def _refuse_remote(source: RemoteTable, name: str | None) -> None:
    """Raise the error for formats that are not read from elsewhere, and for kinds nobody knows."""
    if name not in (None, "table", "events"):
        raise ClickLogError(
            f"{source.address}: only tables and events are read from an address, not "
            f"{option('format', name)}; copy the file here first."
        )
    source.kind  # noqa: B018


def read_as(
    found: Format,
    source: Any,
    roles: Roles,
    max_line: int,
    label: str,
    events: EventRoles | None = None,
) -> ClickLog:
    """Read an opened source of a known format, and check it; `label` is its name in messages."""
    notebook = Notebook()
    roles.note_guesses(notebook)
    is_parquet = isinstance(source, Opened) and any(file.is_parquet for file in source)
    # What is wrong with a damaged file may show only when its columns are looked at.
    with naming(label, quietly=is_parquet):
        table = found.read(source, ReadOptions(max_line, roles.id_columns, events), notebook)
        if found.name != "table":
            # Leave out what a reader made for a role when the user chose another of its columns.
            chosen = [
                role
                for role, given in roles.given.items()
                if isinstance(given, str) and given != role and given in table.columns
            ]
            table = table.drop(chosen, strict=False)
        return assemble(table, roles, Faults(label), notebook.notes)


@dataclass(frozen=True)
class Peek:
    """What a glance at a log shows.

    Attributes
    ----------
    source
        The source, which `read_log` takes; what came through a pipe is kept in it.
    format
        The name of its format.
    columns
        The names of its columns, for a table; empty for the other formats, whose readers know.
    lists
        Which of them hold lists; None where nobody knows.
    """

    source: Any
    format: str
    columns: tuple[str, ...] = ()
    lists: set[str] | None = None

    @property
    def separator(self) -> str | None:
        """What stands between fields, if somebody said so."""
        return self.source[0].separator if isinstance(self.source, Opened) else None

    def has_separator(self, separator: Any) -> bool:
        """Whether it is text in whose first line this stands."""
        wanted = as_separator(separator)
        is_table = self.format == "table" and isinstance(self.source, Opened)
        return is_table and is_separated_by(self.source, wanted)


def peek(source: Any, format: str | None = None, separator: str | None = None) -> Peek:
    """Look at a log without reading all of it.

    Parameters
    ----------
    source
        What `read_log` takes.
    format
        The format, where it is known.
    separator
        What stands between fields, where it is known.

    Returns
    -------
    Peek

    Raises
    ------
    ClickLogError
        When there is no such file or format.
    """
    source, found = recognise(source, format, separator=separator)
    return Peek(source, found.name, *(columns_of(source) if found.name == "table" else ()))
