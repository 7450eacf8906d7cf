"""The files behind a log: paths, globs, folders and standard input; packed or not; and as lines.

A file is told to be packed by its first bytes, and read to the very end of what is packed in it.
"""

from __future__ import annotations

import glob
import io
import json
import mmap
import os
import re
import sys
import tempfile
import threading
import zipfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import polars as pl

from gecasmo.errors import ClickLogError, either, option
from gecasmo.frames import lines_of
from gecasmo.logs.packed import CHUNK, GZIP, ZSTD, unpacked
from gecasmo.parquet import checked_parquet
from gecasmo.report import shortened

STANDARD_INPUT = "-"
MAX_LINE = 64 << 20
HEAD = 1 << 16
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

ZIP = b"PK\x03\x04"

PairsHook = Callable[[list[tuple[str, Any]]], Any]

# Two of these, such as \ud83d\ude00, are a character; one alone is in JSON, but not in UTF-8.
HALF_A_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


class Input:
    """One file; or what came through a pipe, which is read into memory at once.

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
        self._is_checked = False
        self.separator: str | None = None  # of its fields, if somebody said so

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
            start = file.read(4)
        if start.startswith(GZIP):
            return "gz"
        return "zst" if start.startswith(ZSTD) else None

    def pieces(self, size: int | None = None) -> Iterator[bytes]:
        """Read it piece by piece, unpacked; `size` is that of pieces of a file that is not."""
        with self.open() as file:
            yield from unpacked(file, self.compression, self.name, size)

    @cached_property
    def head(self) -> bytes:
        """The first bytes, unpacked; fewer where the file is cut off."""
        found = b""
        try:
            for piece in self.pieces():
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
        """Return the file in a form that Polars takes, once what it says of itself is right."""
        if not self._is_checked:
            checked_parquet(self._raw if self.path is None else self.path)
            self._is_checked = True
        return io.BytesIO(self._raw) if self.path is None else str(self.path)

    def parquet_schema(self) -> dict[str, pl.DataType]:
        """Return the columns of a Parquet file; a[1].parquet is a name here, and no pattern."""
        with naming(self.name, quietly=True):
            scan = pl.scan_parquet(self.for_parquet(), glob=False, hive_partitioning=False)
            return dict(scan.collect_schema())

    def read_parquet(self) -> pl.DataFrame:
        """Read a Parquet file into memory."""
        with naming(self.name, quietly=True):
            return pl.read_parquet(self.for_parquet(), glob=False)

    @property
    def plain_path(self) -> str | None:
        """The path of the file, if it is a file that is not packed."""
        return str(self.path) if self.path is not None and self.compression is None else None

    def content(self, max_line: int | None = None) -> bytes:
        """Return all of it, unpacked; an error names a line of more than `max_line` bytes."""
        pieces, unended = [], 0
        # What is not packed is one piece, which spares a copy of it all.
        for piece in self.pieces(CHUNK if self.compression else -1):
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


@contextmanager
def naming(name: str, quietly: bool = False) -> Iterator[None]:
    """Within this block, what Polars says of a file is told with its name.

    Damaged files make Polars panic, which is no error of Python's usual kind, and writes to the
    terminal by itself; `quietly` keeps that off it.
    """
    try:
        with _quiet if quietly else nullcontext():
            yield
    except (pl.exceptions.PolarsError, OSError) as error:
        raise ClickLogError(f"{name} cannot be read: {first_line(error)}") from error
    except pl.exceptions.PanicException:
        raise ClickLogError(
            f"{name} cannot be read: the file is damaged; copy or make it again."
        ) from None


class _Quiet:
    """Keeps what is written to standard error, by whichever language, until all have left.

    It is told then, but for what a panic said.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside > 1:
                return
            self._file: IO[bytes] | None = None
            with suppress(OSError, ValueError):
                sys.stderr.flush()
                self._real = os.dup(2)
                self._file = tempfile.TemporaryFile()
                os.dup2(self._file.fileno(), 2)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside or self._file is None:
                return
            with suppress(OSError, ValueError):
                sys.stderr.flush()
            os.dup2(self._real, 2)
            os.close(self._real)
            with self._file as said:
                said.seek(0)
                lines = said.read(CHUNK).splitlines(keepends=True)
            panic = next((n for n, line in enumerate(lines) if _PANIC.search(line)), None)
            told = b"".join(lines[:panic])
            with suppress(OSError):
                os.write(2, told if panic is None else told.rstrip(b"\n"))


_PANIC = re.compile(rb"^(thread .* panicked at|\s*stack backtrace:|memory allocation of)")
_quiet = _Quiet()


def check_lines(data: bytes | mmap.mmap, max_line: int, name: str) -> None:
    """Refuse text with a line of more than `max_line` bytes, naming the line."""
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


def check_utf8(data: bytes, name: str) -> None:
    """Refuse text that is not UTF-8, naming the first line and byte that is not."""
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        start = data.rfind(b"\n", 0, error.start) + 1
        near = data[max(start, error.start - 20) : error.start + 20].split(b"\n")[0]
        raise ClickLogError(
            f"{name}, line {line}: the text is not UTF-8; byte {error.start + 1} of the file is "
            f"0x{data[error.start]:02x}, near {near!r}. Convert it first, as in: "
            "iconv -f latin1 -t utf-8"
        ) from None


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

    def separated_by(self, separator: str) -> None:
        """Take it that this stands between the fields of all files."""
        for file in self._inputs:
            file.separator = separator


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
        inputs = [_input(Path(name)) for name in _matching_files(pattern, folders)]
    for file in inputs:
        _refuse_archive(file)
    return Opened(pattern, inputs)


def _input(path: Path) -> Input:
    """A file; what comes out of a pipe, also <(...) of a shell, can be read only once."""
    if path.is_file():
        return Input(str(path), path)
    with naming(str(path)):
        data = path.read_bytes()
    if not data:
        raise ClickLogError(f"{path} is empty: nothing came through the pipe.")
    return Input(str(path), raw=data)


def _matching_files(pattern: str, folders: bool) -> list[str]:
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
            f"{pattern} is a stored log, not a file to be read"
            + either("; gecasmo.open_log opens it.", ".")
        )
    # Formats are made of what is here, so their list can only be asked for when it is needed.
    from gecasmo.logs.formats import FORMATS

    names = [name for name in FORMATS if name != "table"]
    such = option("format", shown=f'"{names[0]}"')
    return ClickLogError(
        f"{pattern} is a folder; name its files, such as {str(path / '*.parquet')!r}. If its files "
        f"are one log of another format, say which, such as {such}: "
        f"{', '.join(names[:-1])} and {names[-1]} are read from a folder."
    )


def _standard_input() -> bytes:
    pipe = getattr(sys.stdin, "buffer", sys.stdin)
    data = b"" if pipe is None else pipe.read()
    data = data.encode() if isinstance(data, str) else data
    if not data:
        raise ClickLogError("standard input is empty: nothing came through the pipe.")
    return data


def _refuse_archive(file: Input) -> None:
    """Refuse ZIP archives, of which saved fits are one kind."""
    with file.open() as content:
        if content.read(len(ZIP)) != ZIP:
            return
        try:
            is_fit = "manifest.json" in zipfile.ZipFile(content).namelist()
        except Exception:  # zipfile has no list of what a damaged header ends in
            is_fit = False
    if is_fit:
        raise ClickLogError(
            f"{file.name} is a fit that gecasmo saved, not a log. Give the log here"
            + either("; gecasmo.load reads the fit.", ".")
        )
    raise ClickLogError(
        f"{file.name} is a ZIP archive. Unpack it first; only .gz and .zst are read packed."
    )


class Lines:
    """All lines of the files of a log, which know where they stand.

    Parameters
    ----------
    texts
        What is in each file, by how messages call it.
    noun
        What messages call a line, where files were taken apart in another way.
    """

    def __init__(self, texts: Sequence[tuple[str, bytes]], noun: str = "line") -> None:
        self._texts, self._noun = texts, noun

    @cached_property
    def _of_files(self) -> list[pl.Series]:
        return [_lines_of(data, name) for name, data in self._texts]

    @cached_property
    def text(self) -> pl.Series:
        """The lines; an error names the one that is not UTF-8."""
        return pl.concat(self._of_files)

    def place(self, row: int) -> str:
        """Say where a line is: `clicks.tsv, line 17`."""
        starts = list(accumulate(map(len, self._of_files[:-1]), initial=0))
        file = bisect_right(starts, row) - 1
        return f"{self._texts[file][0]}, {self._noun} {row - starts[file] + 1}"

    def error(self, row: int, what: str) -> ClickLogError:
        """Make the error for a line that cannot be read, with the line as an example."""
        return ClickLogError(
            f"{self.place(row)}: {what}. The {self._noun} is {shortened(repr(self.text[row]), 80)}."
        )

    def refuse_blank(self, label: str) -> None:
        """Raise the error for files without a line that says anything."""
        if not self.text.str.contains(r"\S").any():
            raise ClickLogError(f"{label} is empty: there are no pages in it.")

    def refuse(self, wrong: pl.Series, what: str) -> None:
        """Raise the error for the first line of those that are wrong, if there is any."""
        if wrong.any():
            raise self.error(int(wrong.arg_true()[0]), what)

    def records(
        self, rows: pl.Series | None = None, hook: PairsHook | None = None
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """Read lines as JSON objects, each with its row; all lines, or some; blank ones are none.

        `hook` is what `json.loads` calls `object_pairs_hook`.

        Raises
        ------
        ClickLogError
            Naming the line that is not a JSON object.
        """
        texts = self.text if rows is None else self.text.gather(rows)
        for row, text in zip(range(len(texts)) if rows is None else rows, texts, strict=True):
            if not text or text.isspace():
                continue
            try:
                record = whole_json(text, hook)
            except HalfCharacterError as error:
                raise self.error(row, str(error)) from None
            except ValueError as error:
                raise self.error(row, f"not valid JSON ({error})") from None
            except RecursionError:
                raise self.error(row, "JSON nested too deeply") from None
            if not isinstance(record, dict):
                raise self.error(row, "a JSON object was expected, one a line")
            yield row, record


class HalfCharacterError(ValueError):
    """A text in JSON has half of a character, which no UTF-8 can hold."""


def whole_json(text: str, hook: PairsHook | None = None) -> Any:
    """Read JSON; the error for half a character is a ValueError, like that for what is no JSON."""
    value = json.loads(text, object_pairs_hook=hook)
    if HALF_A_CHARACTER.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise HalfCharacterError(
                "a text has half a character (half of a pair of \\u)"
            ) from None
    return value


def read_lines(inputs: Opened, max_line: int) -> Lines:
    """Read the lines of text files.

    Raises
    ------
    ClickLogError
        When a file cannot be read, is empty, is no UTF-8, or has a line of more than `max_line`
        bytes.
    """
    texts = []
    for file in inputs:
        if file.is_parquet:
            raise ClickLogError(f"{file.name} is a Parquet file, and text was expected.")
        texts.append((file.name, file.content(max_line).removeprefix(BYTE_ORDER_MARK)))
    lines = Lines(texts)
    lines.refuse_blank(inputs.label)
    return lines


def _lines_of(data: bytes, name: str) -> pl.Series:
    try:
        return lines_of(data) if data else pl.Series(dtype=pl.String)
    except pl.exceptions.PolarsError:
        check_utf8(data, name)
        raise


def first_line(error: BaseException) -> str:
    """Return the first line of what an error says."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
