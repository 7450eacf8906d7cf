"""The files behind a log: globs, folders, standard input, compressed or not."""

from __future__ import annotations

import glob
import io
import mmap
import sys
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import IO

import polars as pl

from gecasmo.errors import ClickLogError, option
from gecasmo.logs.compression import compression_of, refuse_archive, unpacked

STANDARD_INPUT = "-"
MAX_LINE = 64 << 20
HEAD = 1 << 16


class Input:
    """One file, or standard input, which is read into memory at once.

    Parameters
    ----------
    name
        How messages call it.
    path
        The file.
    raw
        What was in the pipe, when there is no file.
    """

    def __init__(self, name: str, path: Path | None = None, raw: bytes = b"") -> None:
        self.name = name
        self.path = path
        self._raw = raw

    def open(self) -> IO[bytes]:
        """Open it as it is, packed or not."""
        if self.path is None:
            return io.BytesIO(self._raw)
        try:
            return self.path.open("rb")
        except OSError as error:
            raise ClickLogError(
                f"{self.name} cannot be read: {error.strerror or error}."
            ) from error

    @cached_property
    def compression(self) -> str | None:
        """How it is packed: "gz", "zst" or None."""
        with self.open() as file:
            return compression_of(file.read(4))

    @cached_property
    def head(self) -> bytes:
        """The first bytes, unpacked; fewer where the file is cut off."""
        found = b""
        with self.open() as file:
            try:
                for piece in unpacked(file, self.compression, self.name):
                    found += piece
                    if len(found) >= HEAD:
                        break
            except ClickLogError:
                # Whoever reads all of it will tell; a glance need not.
                pass
        return found[:HEAD]

    @property
    def is_parquet(self) -> bool:
        """Whether it holds a Parquet table."""
        return self.head.startswith(b"PAR1")

    def for_parquet(self) -> str | IO[bytes]:
        """The file in a form that readers of Parquet take."""
        return io.BytesIO(self._raw) if self.path is None else str(self.path)

    def parquet_schema(self) -> dict[str, pl.DataType]:
        """The columns of a Parquet file; a name such as a[1].parquet is a name, and no pattern."""
        scan = pl.scan_parquet(self.for_parquet(), glob=False, hive_partitioning=False)
        return dict(scan.collect_schema())

    @property
    def plain_path(self) -> str | None:
        """The path of the file, if it is a file that is not packed."""
        return str(self.path) if self.path is not None and self.compression is None else None

    def content(self, max_line: int | None = None) -> bytes:
        """Return all of it, unpacked.

        Parameters
        ----------
        max_line
            The longest line allowed, in bytes; None for what is not text.

        Returns
        -------
        bytes

        Raises
        ------
        ClickLogError
            When it cannot be read or unpacked, or a line is too long.
        """
        pieces, unended = [], 0
        with self.open() as file:
            for piece in unpacked(file, self.compression, self.name):
                pieces.append(piece)
                end = piece.rfind(b"\n")
                unended = unended + len(piece) if end < 0 else len(piece) - end - 1
                if max_line is not None and unended > max_line:
                    # A small packed file can unpack to one line larger than the memory.
                    break
        data = b"".join(pieces)
        if max_line is not None:
            check_lines(data, max_line, self.name)
        return data

    def check_lines(self, max_line: int) -> None:
        """Refuse a file that is not packed when one of its lines is too long."""
        assert self.path is not None
        if self.path.stat().st_size <= max_line:
            return
        with self.open() as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            check_lines(data, max_line, self.name)


def check_lines(data: bytes | mmap.mmap, max_line: int, name: str) -> None:
    """Refuse text with a line above the limit.

    Parameters
    ----------
    data
        The text.
    max_line
        The longest line allowed, in bytes.
    name
        How messages call the text.

    Raises
    ------
    ClickLogError
        Naming the line.
    """
    start, size = 0, len(data)
    while size - start > max_line:
        # The last line end within reach: every line up to it is short enough.
        end = data.rfind(b"\n", start, start + max_line + 1)
        if end < 0:
            number = data[:start].count(b"\n") + 1
            raise ClickLogError(
                f"{name}, line {number}: the line is longer than "
                f"{option('max_line', max_line, shown=f'{max_line:,}')} bytes; is "
                "this a text file with one record a line? If so, raise max_line."
            )
        start = end + 1


class Opened(Sequence[Input]):
    """The files of one log, found and ready; standard input in it can be read again.

    Parameters
    ----------
    label
        How messages call all of them.
    inputs
        The files, in order.
    """

    def __init__(self, label: str, inputs: Sequence[Input]) -> None:
        self.label = label
        self._inputs = list(inputs)

    def __len__(self) -> int:
        return len(self._inputs)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._inputs[index]


def open_inputs(source: str | Path | Opened, folders: bool = False) -> Opened:
    """Find the files of a log.

    Parameters
    ----------
    source
        A path, a glob, or "-" for standard input.
    folders
        Whether a folder stands for all files in it.

    Returns
    -------
    Opened

    Raises
    ------
    ClickLogError
        When there is no such file, or it is no log but a saved fit, or another archive.
    """
    if isinstance(source, Opened):
        return source
    pattern = str(source)
    if pattern == STANDARD_INPUT:
        pattern = "standard input"
        inputs = [Input(pattern, raw=_standard_input())]
    else:
        inputs = [Input(name, Path(name)) for name in matching_files(pattern, folders)]
    for file in inputs:
        # What comes out of a named pipe can be read only once, and not for a glance.
        if file.path is None or file.path.is_file():
            with file.open() as content:
                refuse_archive(content, file.name)
    return Opened(pattern, inputs)


def matching_files(pattern: str, folders: bool = False) -> list[str]:
    """Find the files that a path or glob names, in order."""
    path = Path(pattern).expanduser()
    if path.is_dir():
        if not folders:
            raise _folder(pattern, path)
        inside = sorted(str(p) for p in path.iterdir() if p.is_file() and p.name[0] != ".")
        if not inside:
            raise ClickLogError(f"{pattern} cannot be read: the folder has no files.")
        return inside
    if path.exists():
        # A file may have brackets in its name, which a glob would read as a set of letters.
        return [str(path)]
    if not glob.has_magic(pattern):
        raise ClickLogError(f"{pattern} cannot be read: there is no such file.")
    paths = sorted(p for p in glob.glob(str(path), recursive=True) if Path(p).is_file())
    if not paths:
        raise ClickLogError(f"{pattern} cannot be read: no file matches the pattern.")
    return paths


def _folder(pattern: str, path: Path) -> ClickLogError:
    if (path / "manifest.json").is_file():
        return ClickLogError(
            f"{pattern} is a stored log, not a file to be read; gecasmo.open_log opens it."
        )
    # Formats are made of what is here, so their list can only be asked for when it is needed.
    from gecasmo.logs.formats import FORMATS

    names = [name for name in FORMATS if name != "table"]
    return ClickLogError(
        f"{pattern} is a folder; name its files, such as {str(path / '*.parquet')!r}. If its files "
        f'are one log of another format, say which, such as format="{names[0]}": '
        f"{', '.join(names[:-1])} and {names[-1]} are read from a folder."
    )


def _standard_input() -> bytes:
    pipe = getattr(sys.stdin, "buffer", sys.stdin)
    data = b"" if pipe is None else pipe.read()
    data = data.encode() if isinstance(data, str) else data
    if not data:
        raise ClickLogError("standard input is empty: nothing came through the pipe.")
    return data
