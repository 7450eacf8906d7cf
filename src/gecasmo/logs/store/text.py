"""CSV, TSV and JSON lines as a stream of batches.

Files are read in chunks of whole records, packed or not, from any place on. The types of columns
are not known before all has been read. They are taken from the first chunk; when a later one does
not fit them, they are made wider, and reading starts again.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.formats.json_lists import is_one_value, table_of_texts
from gecasmo.logs.formats.table import (
    check_header,
    common_separator,
    explain_text,
    whole_json_text,
)
from gecasmo.logs.inputs import (
    BYTE_ORDER_MARK,
    Input,
    Opened,
    check_lines,
    first_line,
)
from gecasmo.logs.notes import Notebook
from gecasmo.logs.packed import unpacked
from gecasmo.logs.store.disk import arrow_bytes
from gecasmo.logs.store.plan import Schema
from gecasmo.logs.store.sources import Batches, BatchSource, Place, Segment, SourceBatch, joined
from gecasmo.logs.values import integers_where_exact

# A guess for packed text; it only decides about the number of buckets.
PACKED_TIMES = 5


@dataclass(frozen=True)
class Chunk:
    """Some whole records of a text file: where they start in it, unpacked, after how many lines."""

    data: bytes
    name: str
    start: int
    lines_before: int

    @property
    def end(self) -> int:
        """Where the next chunk starts."""
        return self.start + len(self.data)

    @property
    def lines_until(self) -> int:
        """How many lines of the file come before the next chunk."""
        return self.lines_before + self.data.count(b"\n")

    @contextmanager
    def naming_lines(self, put_before: int = 0) -> Iterator[None]:
        """Within this block, errors count lines from the beginning of the file.

        `put_before` lines were put before the chunk for its reader.
        """
        shift = self.lines_before - put_before
        try:
            yield
        except ClickLogError as error:
            pattern = re.compile(f"^{re.escape(self.name)}, line ([0-9]+)")
            message = pattern.sub(
                lambda found: f"{self.name}, line {int(found[1]) + shift}", str(error)
            )
            raise ClickLogError(message) from None


def chunks_of(
    file: Input, size: int, max_line: int, quotes: bool, start: int = 0, lines_before: int = 0
) -> Iterator[Chunk]:
    """Read a text file in chunks of about `size` bytes.

    `quotes` says whether a line end between quotes belongs to a text, as in CSV; `start` is a place
    where a chunk ended, in bytes of the unpacked file.
    """
    waiting, held, wanted = [], 0, size

    def chunk(data: bytes) -> Chunk:
        found = Chunk(data, file.name, start, lines_before)
        if len(data) > max_line:
            with found.naming_lines():
                check_lines(data, max_line, file.name)
        return found

    for piece in _from_place(file, start):
        waiting.append(piece)
        held += len(piece)
        if held < wanted:
            continue
        data = b"".join(waiting)
        end = _last_record(data, quotes)
        if end == 0 and held <= (most := max(max_line, size)):
            # Looked at again only when there is much more of it.
            waiting, wanted = [data], min(2 * held, most + 1)
            continue
        found = chunk(data[:end] if end else data)
        yield found
        start, lines_before = found.end, found.lines_until
        waiting, held, wanted = [data[len(found.data) :]], held - len(found.data), size
    rest = b"".join(waiting)
    if rest:
        yield chunk(rest)


def _from_place(file: Input, start: int) -> Iterator[bytes]:
    with file.open() as content:
        if file.compression is None:
            content.seek(start)
            start = 0
        for piece in unpacked(content, file.compression, file.name):
            skipped = min(start, len(piece))
            start -= skipped
            if skipped < len(piece):
                yield piece[skipped:]


def _last_record(data: bytes, quotes: bool) -> int:
    """Where the last whole record ends, or 0."""
    end = data.rfind(b"\n") + 1
    if not quotes or b'"' not in data:
        return end
    # A line end with an odd number of quotes before it is inside a text.
    before = data.count(b'"', 0, end)
    while end and before % 2:
        earlier = data.rfind(b"\n", 0, end - 1) + 1
        before -= data.count(b'"', earlier, end)
        end = earlier
    return end


def without_mark(data: bytes) -> bytes:
    """Text without the mark that some programs put at the beginning of a file."""
    return data.removeprefix(BYTE_ORDER_MARK)


class Widened(Exception):
    """A column has values that its type cannot hold; what was read so far has to be read again."""


class TextFiles(BatchSource):
    """Text files with the same columns; `kind` is "csv", "tsv" or "json".

    `ids` are the columns that hold ids, which keep their exact text; `chunk` says how many bytes
    are read at a time, `max_line` how long a line may be.
    """

    def __init__(
        self, inputs: Opened, kind: str, ids: Sequence[str], chunk: int, max_line: int
    ) -> None:
        self.label = inputs.label
        self.files = [file.name for file in inputs]
        self._inputs = inputs
        self._chunk, self._max_line = chunk, max_line
        self._ids = [] if kind == "json" else list(ids)
        notebook = Notebook()
        self._separator = None if kind == "json" else common_separator(inputs, kind, notebook)
        self.notes = notebook.notes
        self._types: Schema = {}
        first = next(self._chunks(0, 0, 0), None)
        if first is None:
            raise ClickLogError(f"{inputs.label} is empty: there are no rows in it.")
        self._header = self._header_of(first)
        frame = self._inferred(first)
        self._bytes_of_row = len(first.data) / max(frame.height, 1)
        self._types = _types_of(frame)

    def remembered(self) -> str:
        """The types by now, for a later process."""
        return b64encode(arrow_bytes(pl.DataFrame(schema=self._types))).decode()

    def remember(self, types: str) -> None:
        """Take the types that an earlier process found."""
        self._types = dict(pl.read_ipc(b64decode(types)).schema)

    def schema(self) -> Schema:
        return dict(self._types)

    def n_rows(self) -> int:
        total = 0.0
        for file in self._inputs:
            size = len(file.content()) if file.path is None else file.path.stat().st_size
            total += size * (1 if file.compression is None else PACKED_TIMES)
        return int(total / self._bytes_of_row)

    def batches(self, columns: Sequence[str], rows: int, after: Place | None) -> Batches:
        """Read columns in batches; `Widened` when the schema turns out to be another."""
        return joined(self._parts(columns, after or _place(0, 0, 0, 0)), rows)

    def _parts(self, columns: Sequence[str], start: Place) -> Batches:
        for number in range(start["file"], len(self.files)):
            here = start if number == start["file"] else _place(number, 0, 0, 0)
            row = here["row"]
            for chunk in self._chunks(number, here["byte"], here["line"]):
                frame = self._read(chunk).select(columns)
                place = _place(number, chunk.end, chunk.lines_until, row + frame.height)
                yield SourceBatch(frame, (Segment(number, row, frame.height),), place)
                row += frame.height

    def _chunks(self, number: int, byte: int, line: int) -> Iterator[Chunk]:
        file: Input = self._inputs[number]
        is_one = self._separator is None and is_one_value(without_mark(file.head).lstrip())
        size = 1 << 62 if is_one else self._chunk
        quotes = self._separator is not None
        yield from chunks_of(file, size, self._max_line, quotes, byte, line)

    def _read(self, chunk: Chunk) -> pl.DataFrame:
        """A chunk in the types of all; what does not fit makes them wider, and raises."""
        if self._separator is None:
            frame = self._inferred(chunk)
            if not frame.height:
                return pl.DataFrame(schema=self._types)
            self._widen(_types_of(frame))
            absent = [
                pl.lit(None, t).alias(n) for n, t in self._types.items() if n not in frame.columns
            ]
            wanted: Any = self._types
            return frame.with_columns(absent).select(list(wanted)).cast(wanted)
        types = {name: _read_as(t, name in self._ids) for name, t in self._types.items()}
        try:
            frame = self._separated(chunk, types)
        except pl.exceptions.PolarsError:
            self._widen(_types_of(self._inferred(chunk)))
            raise
        unknown = [n for n, t in self._types.items() if t == pl.Null and frame[n].count()]
        inexact = [
            name
            for name in self._ids
            if self._types.get(name) == pl.Int64
            and integers_where_exact(frame[name]).dtype != pl.Int64
            and frame[name].count()
        ]
        if unknown or inexact:
            self._widen(_types_of(self._inferred(chunk)))
        return frame.cast({name: t for name, t in self._types.items() if t != pl.Null})

    def _widen(self, found: Schema) -> None:
        wider = dict(self._types)
        for name, dtype in found.items():
            wider[name] = _join(wider.get(name, pl.Null()), dtype)
        if wider != self._types:
            self._types = wider
            raise Widened

    def _inferred(self, chunk: Chunk) -> pl.DataFrame:
        """A chunk in the types that it has by itself."""
        with chunk.naming_lines(put_before=1 if chunk.start and self._header else 0):
            try:
                if self._separator is None:
                    return _read_json(chunk)
                types: Schema = {name: pl.String() for name in self._ids}
                frame = self._separated(chunk, types, infer=True)
            except pl.exceptions.PolarsError as error:
                self._explain(chunk)
                raise ClickLogError(f"{chunk.name} cannot be read: {first_line(error)}") from error
        ids = [name for name in self._ids if name in frame.columns]
        return frame.with_columns(integers_where_exact(frame[name]) for name in ids)

    def _separated(self, chunk: Chunk, types: Schema, infer: bool = False) -> pl.DataFrame:
        data = self._with_header(chunk)
        if not chunk.start:
            self._check_header(chunk)
        there = types if not infer else {n: t for n, t in types.items() if n in self._names(data)}
        return pl.read_csv(
            data,
            separator=str(self._separator),
            schema_overrides=there,
            infer_schema=infer,
            infer_schema_length=None,
        )

    def _with_header(self, chunk: Chunk) -> bytes:
        return self._header + chunk.data if chunk.start else without_mark(chunk.data)

    def _names(self, data: bytes) -> list[str]:
        return pl.read_csv(data, separator=str(self._separator), n_rows=0).columns

    def _header_of(self, chunk: Chunk) -> bytes:
        if self._separator is None:
            return b""
        data = without_mark(chunk.data).lstrip(b"\r\n")
        check_header(data, self._separator, chunk.name)
        line = data.split(b"\n", 1)[0]
        return line + b"\n"

    def _check_header(self, chunk: Chunk) -> None:
        if self._types and (names := self._names(self._header_of(chunk))) != list(self._types):
            raise ClickLogError(
                f"{chunk.name} has other columns than {self.files[0]}: {', '.join(names)} instead "
                f"of {', '.join(self._types)}."
            )

    def _explain(self, chunk: Chunk) -> None:
        """Find the line at fault, which a reader made for speed does not name."""
        explain_text(self._with_header(chunk), chunk.name, self._separator)


def _place(file: int, byte: int, line: int, row: int) -> Place:
    return {"file": file, "byte": byte, "line": line, "row": row}


def _read_as(dtype: pl.DataType, is_id: bool) -> pl.DataType:
    return pl.String() if is_id or dtype == pl.Null else dtype


def _read_json(chunk: Chunk) -> pl.DataFrame:
    data = whole_json_text(chunk.data, chunk.name)
    return table_of_texts([data]) if data else pl.DataFrame()


def _types_of(frame: pl.DataFrame) -> Schema:
    """The types of columns; Null for those that have no value, and so could be anything."""
    return {c.name: pl.Null() if c.count() == 0 else c.dtype for c in frame.iter_columns()}


def _join(one: pl.DataType, other: pl.DataType) -> pl.DataType:
    """The narrowest type that holds both."""
    if one == other or other == pl.Null:
        return one
    if one == pl.Null:
        return other
    frames: list[Any] = [pl.DataFrame(schema={"x": one}), pl.DataFrame(schema={"x": other})]
    is_text = one == pl.Boolean or other == pl.Boolean
    if is_text and not (one.is_nested() or other.is_nested()):
        return pl.String()
    try:
        wider: pl.DataType = pl.concat(frames, how="vertical_relaxed").schema["x"]
        return wider
    except pl.exceptions.PolarsError:
        return pl.String()
