"""The formats that logs come in, one file each; `FORMATS` lists them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gecasmo.errors import ClickLogError
from gecasmo.logs.formats.baidu import BAIDU
from gecasmo.logs.formats.clickmodels import CLICKMODELS
from gecasmo.logs.formats.events import EVENTS
from gecasmo.logs.formats.format import Format, Head, ReadOptions
from gecasmo.logs.formats.pyclickmodels import PYCLICKMODELS
from gecasmo.logs.formats.table import TABLE
from gecasmo.logs.formats.trec_session import TREC_SESSION
from gecasmo.logs.formats.ubi import UBI, is_pair
from gecasmo.logs.formats.yandex import YANDEX
from gecasmo.logs.inputs import Opened

__all__ = ["FORMATS", "Format", "Head", "ReadOptions", "detect_format", "format_named", "write_as"]

# A table comes last: whatever nothing else claims is one.
FORMATS: dict[str, Format] = {
    one.name: one
    for one in (UBI, YANDEX, CLICKMODELS, PYCLICKMODELS, BAIDU, TREC_SESSION, EVENTS, TABLE)
}


def format_named(name: str) -> Format:
    """Return the format of a name; an error lists the names there are."""
    if name not in FORMATS:
        raise ClickLogError(f"There is no format {name!r}. There are: {', '.join(FORMATS)}.")
    return FORMATS[name]


def detect_format(source: Any) -> str:
    """Recognise the format of an opened source by the beginning of its first file.

    Returns
    -------
    str
        A name from `FORMATS`; "table" for whatever is no file.
    """
    if is_pair(source):
        return UBI.name
    if not isinstance(source, Opened) or not len(source):
        return TABLE.name
    head = Head(source[0])
    return next(name for name, one in FORMATS.items() if one.sniff(head))


def write_as(name: str, log: Any, path: Path) -> None:
    """Write a log in a format; `ClickLog.write` explains."""
    target = format_named(name)
    if target.write is None:
        raise ClickLogError(f"{path}: {target.title} can be read, but not written.")
    target.write(log, path)
