"""Writing what a command made: to a file, whole or not at all, or to standard output."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gecasmo.cli.streams import write_data
from gecasmo.errors import GecasmoError

if TYPE_CHECKING:
    import polars as pl

    from gecasmo.cli.output import Output

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
    from gecasmo.cli.output import as_json

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
