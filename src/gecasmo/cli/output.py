"""Where commands say things: results on standard output, everything else on standard error.

This is the only way out, and nothing that goes through here can command a terminal: names in a log
are text, "[bold]" in one is no markup, and an escape sequence is shown as "?[31m". A result may be
a line, a table or JSON, or be written to a file, whole or not at all.
"""

from __future__ import annotations

import io
import json as json_format
import math
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, time, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gecasmo.errors import GecasmoError
from gecasmo.report import TextTable, printable_lines

if TYPE_CHECKING:
    import polars as pl
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


# The warnings of the running command, for those who also print them as JSON.
heard: ContextVar[list[str]] = ContextVar("heard")


@dataclass(frozen=True)
class Output:
    """What to print, and what not."""

    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="No progress and no remarks; warnings and errors remain."
        ),
    ] = False
    json: Annotated[
        bool, typer.Option("--json", help="Results as JSON on standard output, for scripts.")
    ] = False

    @property
    def has_progress(self) -> bool:
        """Whether somebody is there to look at a progress bar."""
        return not self.quiet and sys.stderr.isatty()

    def say(self, text: str) -> None:
        """A remark, on standard error."""
        if not self.quiet:
            write_remark(text)

    def show(self, data: Mapping[str, Any], *shown: Any) -> None:
        """A result: `data` as JSON if that was asked for, else what is there to be looked at."""
        if self.json:
            write_result(as_json({**data, "warnings": heard.get([])}))
            return
        console = result_console()
        for part in shown:
            is_table = isinstance(part, TextTable)
            console.print("\n".join(part.lines(console.width)) if is_table else str(part))

    def summarise(self, data: Mapping[str, Any], *shown: Any) -> None:
        """What is said about a result that went into a file; nothing if quiet was asked for."""
        if self.json or not self.quiet:
            self.show(data, *shown)

    @contextmanager
    def working(self, words: str) -> Iterator[Callable[[str], None]]:
        """Show that something goes on whose end cannot be foreseen; yields a way to say what."""
        if not self.has_progress:
            yield lambda words: None
            return
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        words_column = TextColumn("{task.description}", markup=False)
        columns = (SpinnerColumn(), words_column, TimeElapsedColumn())
        with Progress(*columns, console=error_console(), transient=True) as progress:
            task = progress.add_task(words, total=None)
            yield lambda words: progress.update(task, description=words)


def as_json(data: Any) -> str:
    """JSON that every parser reads: infinities are the text "Infinity", missing numbers null."""
    text = json_format.dumps(plain(data), indent=2, allow_nan=False)
    return text.replace("\x7f", "\\u007f")  # the one control character that it leaves as it is


def plain(value: Any) -> Any:
    """The value in terms of dictionaries, lists, texts and numbers."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Mapping):
        return {str(key): plain(each) for key, each in value.items()}
    if hasattr(value, "to_dicts"):  # a data frame
        return [plain(row) for row in value.to_dicts()]
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        return plain(value.tolist())
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if is_dataclass(value):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if hasattr(value, "__iter__"):
        return [plain(each) for each in value]
    return str(value)


PIPE = "-"
TABLE_FORMATS = ("csv", "tsv", "json", "ndjson", "parquet")


def check_target(path: str | None, flag: str = "--output") -> None:
    """Refuse a place that cannot be written to before the work, not after it."""
    if path is None or path == PIPE:
        return
    target = Path(path).expanduser()
    if target.is_dir():
        raise GecasmoError(f"{flag} {path}: that is a folder; name a file.")
    check_parent(target, path, flag)


def check_parent(target: Path, path: str, flag: str = "--output") -> None:
    """Refuse a place whose folder is not there, or takes no files."""
    folder = target.absolute().parent
    if not folder.is_dir():
        raise GecasmoError(f"{flag} {path}: there is no folder {target.parent}.")
    # Permissions do not tell of disks that are read-only, so a file is really made.
    trial = folder / f".gecasmo-{uuid.uuid4().hex}"
    try:
        trial.touch()
        trial.unlink()
    except OSError as problem:
        raise GecasmoError(
            f"{flag} {path}: the folder {target.parent} cannot be written to: "
            f"{problem.strerror or problem}."
        ) from None


def check_pipe(path: str | None, output: Output) -> None:
    """Two results cannot both have standard output."""
    if path == PIPE and output.json:
        raise typer.BadParameter(
            "--output - and --json both want standard output; choose one of them."
        )


def table_format(path: str, flag: str = "--output", formats: Iterable[str] = TABLE_FORMATS) -> str:
    """The format that a file's name tells; CSV on standard output."""
    if path == PIPE:
        return "csv"
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in formats:
        endings = ", ".join(f".{name}" for name in formats)
        raise GecasmoError(f"{flag} {path}: the name has to end in one of {endings}.")
    return kind


def write_table(frame: pl.DataFrame, path: str, kind: str | None = None) -> None:
    """Write a frame; `kind` is one of `TABLE_FORMATS`, by default as the name ends."""
    from gecasmo.files import whole_file

    kind = table_format(path) if kind is None else kind
    if path == PIPE:
        write_data(_bytes(frame, kind))
        return
    with whole_file(path) as temporary:
        temporary.write_bytes(_bytes(frame, kind))


def _bytes(frame: pl.DataFrame, kind: str) -> bytes:
    if kind == "json":
        return (as_json(frame) + "\n").encode()
    buffer = io.BytesIO()
    if kind == "parquet":
        frame.write_parquet(buffer)
    elif kind == "ndjson":
        frame.write_ndjson(buffer)
    else:
        frame.write_csv(buffer, separator="\t" if kind == "tsv" else ",")
    return buffer.getvalue()
