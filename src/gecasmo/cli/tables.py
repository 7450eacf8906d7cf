"""Data frames as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

_EIGHTHS = " ▏▎▍▌▋▊▉█"


def frame_table(
    frame: pl.DataFrame,
    title: str | None = None,
    *,
    headings: Mapping[str, str] | None = None,
    formats: Mapping[str, str] | None = None,
) -> Table:
    """A frame as a table; numbers stand right, and what is missing is an empty cell.

    `headings` renames columns, `formats` gives a format (such as ".4f") for the numbers of some.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from gecasmo.judgments.printing import printable

    title = None if title is None else printable(title)
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name, dtype in frame.schema.items():
        heading = (headings or {}).get(name, name.replace("_", " "))
        is_number = dtype.is_numeric()
        table.add_column(Text(printable(heading)), justify="right" if is_number else "left")
    for row in frame.iter_rows(named=True):
        cells = [_cell(value, (formats or {}).get(name)) for name, value in row.items()]
        table.add_row(*(Text(printable(text)) for text in cells))
    return table


def _cell(value: Any, how: str | None) -> str:
    if value is None:
        return ""
    if how is not None and isinstance(value, int | float):
        return format(value, how)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4f}"
    return str(value)


def bar(share: float, width: int, encoding: str) -> str:
    """A share between 0 and 1 as a bar of so many characters."""
    share = min(max(share, 0.0), 1.0)
    if not encoding.lower().startswith("utf"):
        return ("#" * round(share * width)).ljust(width)
    full, rest = divmod(round(share * width * 8), 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)
