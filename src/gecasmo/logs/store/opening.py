"""From what somebody calls a log to a source that can be read batch by batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gecasmo.errors import ClickLogError
from gecasmo.logs.formats import detect_format, format_named
from gecasmo.logs.formats.ubi import is_pair
from gecasmo.logs.inputs import Input, Opened, open_inputs
from gecasmo.logs.roles import DEFAULTS, Roles
from gecasmo.logs.store.batches import Source
from gecasmo.logs.store.formats import FormatFiles
from gecasmo.logs.store.frames import Frames
from gecasmo.logs.store.options import Wishes
from gecasmo.logs.store.parquet import ParquetFiles
from gecasmo.logs.store.planning import chunk_bytes
from gecasmo.logs.store.text import TextFiles
from gecasmo.logs.table_files import (
    PARQUET_SUFFIXES,
    TEXT_SUFFIXES,
    kind_of_content,
    kind_of_name,
)


def open_source(source: Any, wishes: Wishes, roles: Roles) -> tuple[Source, list[Path]]:
    """Open a source, and find its format.

    Parameters
    ----------
    source
        What `ClickLog.ingest` takes.
    wishes
        What was asked for.
    roles
        Which column plays which part.

    Returns
    -------
    source : Source
    paths : list of Path
        Its files, where it has any.
    """
    if wishes.format is not None:
        format_named(wishes.format)
    if isinstance(source, str | Path):
        source = open_inputs(source, folders=wishes.format not in (None, "table"))
    if not isinstance(source, Opened):
        if wishes.format not in (None, "table") or is_pair(source):
            return FormatFiles(source, format_named(wishes.format or "ubi"), wishes), []
        return Frames(source), []
    paths = [file.path for file in source if file.path is not None]
    named = any(roles.given[role] != DEFAULTS[role] for role in ("session", "query", "doc", "rank"))
    found = wishes.format or ("table" if named else detect_format(source))
    if found != "table":
        return FormatFiles(source, format_named(found), wishes), paths
    return _tables(source, wishes, roles), paths


def _tables(source: Opened, wishes: Wishes, roles: Roles) -> Source:
    kinds = {_kind(file) for file in source}
    if len(kinds) > 1 or None in kinds:
        endings = ", ".join((*PARQUET_SUFFIXES, *TEXT_SUFFIXES))
        raise ClickLogError(
            f"{source.label} does not look like one kind of log file; the name should end in "
            f"{endings} (text also .gz or .zst), or format= should name a format."
        )
    kind = str(kinds.pop())
    if kind == "parquet":
        return ParquetFiles(source)
    return TextFiles(source, kind, roles.id_columns, chunk_bytes(wishes.memory), wishes.max_line)


def _kind(file: Input) -> str | None:
    return kind_of_content(file) if file.path is None else kind_of_name(file.name)
