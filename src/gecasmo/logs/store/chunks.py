"""Text files in chunks of whole records, packed or not, from any place on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gecasmo.errors import ClickLogError
from gecasmo.logs.compression import unpacked
from gecasmo.logs.inputs import Input, check_lines
from gecasmo.logs.lines import BYTE_ORDER_MARK


@dataclass(frozen=True)
class Chunk:
    """Some whole records of a text file.

    Attributes
    ----------
    data
        The text.
    name
        How messages call the file.
    start, end
        Where it starts and ends in the file, unpacked.
    lines_before
        How many lines of the file come before it.
    """

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
    """Read a text file in chunks.

    Parameters
    ----------
    file
        The file.
    size
        About how many bytes a chunk has.
    max_line
        The longest line allowed, in bytes.
    quotes
        Whether a line end between quotes belongs to a text, as in CSV.
    start
        Where to start, in bytes of the unpacked file; a place where a chunk ended.
    lines_before
        How many lines come before that.

    Yields
    ------
    Chunk
    """
    waiting, held = [], 0

    def chunk(data: bytes) -> Chunk:
        found = Chunk(data, file.name, start, lines_before)
        if len(data) > max_line:
            with found.naming_lines():
                check_lines(data, max_line, file.name)
        return found

    for piece in _from_place(file, start):
        waiting.append(piece)
        held += len(piece)
        if held < size:
            continue
        data = b"".join(waiting)
        end = _last_record(data, quotes)
        if end == 0 and held <= max(max_line, size) + len(piece):
            waiting, held = [data], len(data)
            continue
        found = chunk(data[:end] if end else data)
        yield found
        start, lines_before = found.end, found.lines_until
        waiting, held = [data[len(found.data) :]], held - len(found.data)
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
