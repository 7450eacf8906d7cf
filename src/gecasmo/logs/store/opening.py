"""From what somebody calls a log to a source that can be read batch by batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gecasmo.errors import ClickLogError
from gecasmo.logs.formats import detect_format
from gecasmo.logs.inputs import Opened, open_inputs
from gecasmo.logs.roles import DEFAULTS, Roles
from gecasmo.logs.store.batches import Source
from gecasmo.logs.store.frames import Frames
from gecasmo.logs.store.options import Wishes
from gecasmo.logs.store.parquet import ParquetFiles
from gecasmo.logs.table_files import kind_of_content, kind_of_name


def open_source(source: Any, wishes: Wishes, roles: Roles) -> Source:
    """Open a source, and find its format."""
    if isinstance(source, str | Path):
        source = open_inputs(source, folders=wishes.format not in (None, "table"))
    if not isinstance(source, Opened):
        return Frames(source)
    named = any(roles.given[role] != DEFAULTS[role] for role in ("session", "query", "doc", "rank"))
    found = wishes.format or ("table" if named else detect_format(source))
    if found != "table":
        raise ClickLogError(f"{source.label}: {found}")
    kinds = {kind_of_name(f.name) if f.path else kind_of_content(f) for f in source}
    if kinds == {"parquet"}:
        return ParquetFiles(source)
    raise ClickLogError(f"{source.label}: {kinds}")


def paths_of(source: Any) -> list[Path]:
    """The files of a source, where it has any."""
    return []
