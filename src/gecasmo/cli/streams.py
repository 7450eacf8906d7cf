"""The only way out: what commands print goes through here, and cannot command a terminal.

Names in a log are text: "[bold]" in one is no markup, and an escape sequence is shown as "?[31m".
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from gecasmo.judgments.printing import printable_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console
    from rich.segment import Segment

_PIPE_WIDTH = 120  # columns of a table that nobody's window limits


def write_result(text: str) -> None:
    """Lines of text on standard output, as long as they are."""
    sys.stdout.write(printable_lines(text) + "\n")


def write_remark(text: str) -> None:
    """Lines of text on standard error: remarks, warnings and errors."""
    sys.stderr.write(printable_lines(text) + "\n")


def write_data(data: bytes) -> None:
    """A file for a pipe, after whatever text was printed; on a terminal it is only looked at."""
    if sys.stdout.isatty():
        data = printable_lines(data.decode(errors="replace")).encode()
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def result_console() -> Console:
    """The console on standard output, for tables."""
    width = None
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        width = _PIPE_WIDTH
    console: Console = _plain_console()(width=width)
    return console


def error_console() -> Console:
    """The console on standard error, for progress."""
    console: Console = _plain_console()(stderr=True)
    return console


@cache
def _plain_console() -> type[Any]:
    """A kind of console that shows text as it is; made late, since Rich is slow to import."""
    from rich.console import Console
    from rich.segment import Segment

    class PlainConsole(Console):
        def __init__(self, **options: Any) -> None:
            super().__init__(markup=False, emoji=False, highlight=False, **options)

        def render(self, *what: Any, **options: Any) -> Iterator[Segment]:
            # Colours and movements stand apart from the text of a segment, so they stay.
            for segment in super().render(*what, **options):
                if segment.control:
                    yield segment
                else:
                    yield Segment(printable_lines(segment.text), segment.style)

    return PlainConsole
