"""Where commands say things: results on standard output, everything else on standard error.

This is the only way out, and nothing that goes through here can command a terminal: names in a log
are text, "[bold]" in one is no markup, and an escape sequence is shown as "?[31m". A result may be
a line, a table or JSON, or be written to a file, whole or not at all.
"""

from __future__ import annotations

import errno
import glob
import json as json_format
import math
import os
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, time, timedelta
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gecasmo.cli.config import config_path, from_config
from gecasmo.errors import GecasmoError
from gecasmo.files import STANDARD_OUTPUT, is_stream, whole_file
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
    with suppress(OSError):  # nobody is left to be told
        sys.stderr.write(printable_lines(text) + "\n")


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


PIPE = "-"

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
            config = {"config": config_path()} if from_config() else {}
            write_result(as_json({**data, **config, "warnings": heard.get([])}))
            return
        console = result_console()
        for part in shown:
            console.print(_text(part, console.width))

    def summarise(
        self, place: Path, data: Mapping[str, Any], *shown: Any, also: Path | None = None
    ) -> None:
        """What is said about a result that went elsewhere; nothing if quiet was asked for.

        A result that went to standard output, there or as the second one (`also`), leaves standard
        error to say so.
        """
        if STANDARD_OUTPUT in (place, also):
            width = error_console().width
            self.say("\n".join(_text(part, width) for part in shown))
        elif self.json or not self.quiet:
            self.show({**data, "written": str(place)}, *shown)

    def place(
        self,
        path: str,
        *inputs: Any,
        flag: str = "--output",
        besides: Mapping[str, str | None] = MappingProxyType({}),
        is_text: bool = True,
        is_file: bool = True,
    ) -> Path:
        """Where a result goes. What cannot be written to is refused before the work, not after it.

        `inputs` are the files, folders and patterns that the command reads: none of them is where
        it writes to. `besides` is what other flags name to write to: two results do not share a
        place. `is_text` says whether a terminal can show the result, `is_file` that a
        folder will not do.
        """
        if path in (PIPE, str(STANDARD_OUTPUT)):
            if self.json:
                raise typer.BadParameter(
                    f"{flag} - and --json both write to standard output; choose one of them."
                )
            if not is_text and sys.stdout.isatty():
                raise GecasmoError(f"{flag} -: that is not text for a terminal; name a file.")
            target = STANDARD_OUTPUT
        else:
            target = Path(os.path.expanduser(path))
            if is_file and os.path.isdir(target):
                raise GecasmoError(f"{flag} {path}: that is a folder; name a file.")
            if not is_stream(target):
                _check_folder(target, f"{flag} {path}")
        for given in (*inputs, config_path()):
            if given is not None and _is_among(target, _files(str(given))):
                raise GecasmoError(
                    f"{flag} {path}: that is what {given} names, which is read here; it would be "
                    "lost. Name another file."
                )
        for other, named in besides.items():
            if named is not None and _is_same(target, named):
                raise GecasmoError(
                    f"{flag} {path}: {other} {named} goes to the same place. Name another one."
                )
        return target

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


def place_name(place: Path) -> str:
    """A place in words."""
    return "standard output" if place == STANDARD_OUTPUT else str(place)


def _text(part: Any, width: int) -> str:
    return "\n".join(part.lines(width)) if isinstance(part, TextTable) else str(part)


def check_new_folder(folder: Path, what: str) -> None:
    """Refuse a folder that takes no files, or cannot be made."""
    place = Path(os.path.realpath(os.path.expanduser(folder)))
    target = place / "x"
    while not os.path.lexists(target.parent):
        target = target.parent
    if not target.parent.is_dir():
        which = "that" if target.parent == place else str(target.parent)
        raise GecasmoError(f"{what}: {which} is a file; name a folder.")
    _check_folder(target, what)


def _check_folder(target: Path, what: str) -> None:
    """Refuse a place whose folder is not there, or takes no file of that name."""
    folder = os.path.dirname(os.path.realpath(target))
    if not os.path.isdir(folder):
        raise GecasmoError(f"{what}: there is no folder {target.parent}.")
    # Permissions do not tell of disks that are read-only, so a file is really made.
    trial = Path(folder, f".gecasmo-{uuid.uuid4().hex}")
    try:
        with suppress(FileNotFoundError):
            target.with_name(f"{target.name}.part").lstat()  # a name that is too long
        trial.touch()
        trial.unlink()
    except OSError as problem:
        reason = problem.strerror or str(problem)
        if problem.errno == errno.ENAMETOOLONG:
            raise GecasmoError(f"{what}: {reason.lower()}; choose a shorter one.") from None
        raise GecasmoError(
            f"{what}: the folder {target.parent} cannot be written to: {reason}."
        ) from None


def _files(given: str) -> Iterator[str]:
    """What an argument names: a file, files of a pattern or in a folder, my_models.py:Model."""
    if given == PIPE:
        yield "/dev/stdin"
        return
    for text in (given, given.rpartition(":")[0]):
        path = os.path.expanduser(text)
        is_one = os.path.exists(path) or not glob.has_magic(path)
        for name in [path] if is_one else glob.glob(path, recursive=True):
            yield name
            for folder, _, files in os.walk(name):
                yield from (os.path.join(folder, file) for file in files)


def _is_among(target: Path, files: Iterable[str]) -> bool:
    """Whether a file is one of these, by any name or link."""
    if not target.exists():
        return os.path.realpath(target) in map(os.path.realpath, files)
    if not (target.is_file() or target.is_dir()):
        return False  # nothing is lost in a device or a pipe
    return any(os.path.exists(file) and target.samefile(file) for file in files)


def _is_same(target: Path, other: str) -> bool:
    """Whether two results would be mixed, or one be lost, if both are written."""
    if STANDARD_OUTPUT in (target, Path(other)) or other == PIPE:
        return target == STANDARD_OUTPUT and other in (PIPE, str(STANDARD_OUTPUT))
    named = os.path.expanduser(other)
    return _is_among(target, [named]) or (target.is_fifo() and target.samefile(named))


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


TABLE_FORMATS = ("csv", "tsv", "json", "ndjson", "parquet")


def table_format(path: str | Path, flag: str = "--output") -> str:
    """The format that a file's name tells; CSV for standard output, pipes and devices."""
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind in TABLE_FORMATS:
        return kind
    if str(path) == PIPE or is_stream(path):
        return "csv"
    endings = ", ".join(f".{name}" for name in TABLE_FORMATS)
    raise GecasmoError(f"{flag} {path}: the name has to end in one of {endings}.")


def write_table(frame: pl.DataFrame, path: str | Path, data: Any = None) -> None:
    """Write a frame as the name of the file tells; as JSON `data` instead, if there is any."""
    kind = table_format(path)
    with whole_file(path) as file:
        if kind == "json":
            content = as_json(frame if data is None else data)
            file.write_text(f"{content}\n", encoding="utf-8")
        elif kind == "parquet":
            frame.write_parquet(file)
        elif kind == "ndjson":
            frame.write_ndjson(file)
        else:
            frame.write_csv(file, separator="\t" if kind == "tsv" else ",")
