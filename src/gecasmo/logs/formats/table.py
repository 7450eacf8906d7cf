"""Tables with columns of any name: long or nested, from files, pipes, data frames or dicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gecasmo.logs.formats.format import Format, Options, Reading, Sample
from gecasmo.logs.notes import Notebook
from gecasmo.logs.sources import open_table

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog


def sniff(sample: Sample) -> bool:
    """Say yes: what no other format claims is a table, or nothing."""
    return True


def read(source: Any, options: Options) -> Reading:
    """Read a table as it stands."""
    notes = Notebook()
    table = open_table(source, options.id_columns, options.max_line, notes)
    return Reading(table, notes.notes)


def write(log: ClickLog, path: Path) -> None:
    """Write a table; the name of the file says which kind."""
    from gecasmo.logs.storing import write_table

    write_table(log, path)


TABLE = Format(
    "table",
    "a table",
    "Parquet, CSV, TSV or JSON lines with one row a result, or one row a page with lists",
    sniff,
    read,
    write,
)
