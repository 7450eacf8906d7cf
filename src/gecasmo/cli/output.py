"""Where commands say things: results on standard output, everything else on standard error."""

from __future__ import annotations

import json as json_format
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, time, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from gecasmo.cli.guard import heard
from gecasmo.cli.streams import error_console, result_console, write_remark, write_result


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
            console.print(part)

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
