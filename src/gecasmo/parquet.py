"""What a Parquet file says of itself, held against its size before anybody reads it.

Polars asks for memory as the file says. Where a file lies, that ends the process, and nothing can
catch it: so counts and sizes in the footer and before each page have to agree, and to be such that
a file of this size can hold them. Both are structs of Thrift's compact protocol, of which few
fields are wanted; see https://parquet.apache.org/docs/file-format/metadata/.
"""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import polars as pl

# Numbers of fields: of the file, an element of its schema, a row group, a column in that,
_SCHEMA, _FILE_ROWS, _ROW_GROUPS = 2, 3, 4
_TYPE, _LENGTH, _REPETITION, _NAME, _CHILDREN = 1, 2, 3, 4, 5
_COLUMNS, _ROWS, _ABOUT = 1, 3, 3
_PATH, _CODEC, _VALUES, _BYTES, _PACKED_BYTES, _DATA_AT, _DICTIONARY_AT = 3, 4, 5, 6, 7, 9, 11
# of the header of a page, and of what its kind adds.
_KIND, _PAGE_BYTES, _PAGE_PACKED, _DATA, _DICTIONARY, _DATA_2 = 1, 2, 3, 5, 7, 8
_PAGE_VALUES, _LEVELS, _OTHER_LEVELS = 1, 5, 6
# What is in them.
_OF_KIND = {0: _DATA, 2: _DICTIONARY, 3: _DATA_2}
_UNPACKED, _FIXED_LENGTH, _REPEATED = 0, 7, 2
_BITS = {0: 1, 1: 32, 2: 64, 3: 96, 4: 32, 5: 64, 6: 32}  # of a value, at least, by its type
# Some writers forgot the header of the dictionary when they counted the bytes of a column.
_SLACK = 100
_SPARE_BYTES, _USUALLY_SHRUNK, _MOST_SHRUNK = 1 << 28, 64, 4096
_USUAL_MEMORY = 8 << 30

Content = bytes | mmap.mmap


class DamagedParquetError(pl.exceptions.ComputeError):
    """What a file says of itself cannot be true; one of Polars' errors, which readers expect."""


@dataclass(frozen=True)
class _Leaf:
    """A column of the file, which may be nested in others."""

    name: str
    bits: int
    is_repeated: bool


def checked_parquet(source: Path | bytes) -> str | IO[bytes]:
    """A file, or the content of one, as Polars takes it, if Polars can be given it.

    Raises
    ------
    DamagedParquetError
    """
    if isinstance(source, bytes):
        _check(source)
        return io.BytesIO(source)
    with _mapped(source) as content:
        _check(content)
    return str(source)


@contextmanager
def _mapped(path: Path) -> Iterator[Content]:
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            yield b""  # of which there is no map
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield content


def _check(content: Content) -> None:
    """Refuse counts and sizes that contradict each other, or the size of the file."""
    try:
        found = _footer(content)
        if found is None:
            return  # which Polars tells
        leaves = list(_leaves(found[_SCHEMA]))
        groups = found.get(_ROW_GROUPS, [])
        _true(found[_FILE_ROWS] == sum(group[_ROWS] for group in groups), "the number of rows")
        size = packed = 0
        for group in groups:
            for chunk, leaf in zip(group[_COLUMNS], leaves, strict=True):
                about, rows = chunk[_ABOUT], group[_ROWS]
                values = about[_VALUES]
                fits = values >= rows if leaf.is_repeated else values == rows
                _true(rows >= 0 and fits, f"the number of values of {leaf.name!r}")
                packed += about[_PACKED_BYTES]
                _true(about[_PACKED_BYTES] >= 0 and packed <= len(content), "the size of columns")
                size += values * (leaf.bits + 7) // 8 + _unpacked_bytes(content, about, leaf)
                _true(size <= _most_bytes(len(content)), f"a size of {size:,} bytes")
    except (LookupError, TypeError, ValueError, RecursionError, AttributeError):
        _true(False, "its footer, or the header of a page")


def _true(holds: bool, what: str) -> None:
    if not holds:
        raise DamagedParquetError(
            f"the file is damaged, or was made to do harm: {what} cannot be right. Copy or make "
            "it again."
        )


def _memory() -> int:
    """The bytes of this machine's memory; Windows does not say it in this way, so a usual size."""
    if not hasattr(os, "sysconf"):
        return _USUAL_MEMORY
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _most_bytes(size: int) -> int:
    """The bytes that a file may unpack to: many times its own, if there is memory for that."""
    memory = _memory()
    return _SPARE_BYTES + min(_MOST_SHRUNK * size, max(_USUALLY_SHRUNK * size, memory // 2))


def _leaves(schema: list[dict[int, Any]]) -> Iterator[_Leaf]:
    """Columns with values, in order; the schema is a tree, written down from the root."""
    root, elements = schema[0], iter(schema[1:])

    def below(n: int, top: str | None, is_repeated: bool) -> Iterator[_Leaf]:
        for element in islice(elements, n):
            name = top or element[_NAME].decode()
            repeated = is_repeated or element.get(_REPETITION) == _REPEATED
            if element.get(_CHILDREN):
                yield from below(element[_CHILDREN], name, repeated)
            else:
                kind = element[_TYPE]
                _true(element.get(_LENGTH, 0) >= 0, f"the length of {name!r}")
                bits = 8 * element[_LENGTH] if kind == _FIXED_LENGTH else _BITS[kind]
                yield _Leaf(name, bits, repeated)

    yield from below(root[_CHILDREN], None, False)


def _unpacked_bytes(content: Content, about: Mapping[int, Any], leaf: _Leaf) -> int:
    """The bytes of all pages of a column in a row group."""
    starts = [about[field] for field in (_DICTIONARY_AT, _DATA_AT) if about.get(field)]
    place, left, total = min(starts, default=0), about[_VALUES], 0
    end = min(place + about[_PACKED_BYTES] + _SLACK, len(content))
    what = f"a page of {leaf.name!r}"
    _true(place >= 0, what)
    while left:
        page = _Thrift(content, place)
        head = page.struct()
        packed, unpacked = head[_PAGE_PACKED], head[_PAGE_BYTES]
        place = page.place + packed
        _true(packed >= 0 and 0 <= unpacked < 1 << 31 and place <= end, what)
        _true(about[_CODEC] != _UNPACKED or unpacked == packed, what)
        total += unpacked
        field = _OF_KIND.get(head[_KIND])
        if field is None:  # an index
            continue
        values = head[field][_PAGE_VALUES]
        if field == _DICTIONARY:
            _true(values >= 0 and values * leaf.bits <= 8 * unpacked, what)
            continue
        _true(0 <= values <= left, what)
        left -= values
        if field == _DATA_2:
            levels = head[field][_LEVELS], head[field][_OTHER_LEVELS]
            _true(min(levels) >= 0 and sum(levels) <= unpacked, what)
    return total


def largest_row_group(path: Path, columns: Collection[str]) -> int:
    """The bytes of some columns of the largest row group, not compressed; 0 where nobody knows."""
    try:
        with _mapped(path) as content:
            groups = (_footer(content) or {}).get(_ROW_GROUPS, [])
        return max((_bytes_of(group, columns) for group in groups), default=0)
    except (OSError, LookupError, TypeError, ValueError, RecursionError, AttributeError):
        return 0  # whoever reads the file says what is wrong with it


def _bytes_of(group: dict[int, Any], columns: Collection[str]) -> int:
    found = (column[_ABOUT] for column in group[_COLUMNS])
    return sum(about[_BYTES] for about in found if about[_PATH][0].decode() in columns)


def _footer(content: Content) -> dict[int, Any] | None:
    """What stands at the end of the file, before its own length and four letters."""
    length = int.from_bytes(content[-8:-4], "little")
    if content[-4:] != b"PAR1" or length + 8 > len(content):
        return None
    return _Thrift(content[-8 - length : -8]).struct()


_BOOLS, _INTEGERS, _LISTS = (1, 2), (4, 5, 6), (9, 10)
_BYTE, _DOUBLE, _BINARY, _MAP, _STRUCT = 3, 7, 8, 11, 12


class _Thrift:
    """Values of the compact protocol, one after the other; structs by the numbers of fields."""

    def __init__(self, data: Content, place: int = 0) -> None:
        self.data, self.place = data, place

    def struct(self) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            kind = head & 15
            if number in found:  # of which readers take the first, or the last
                raise ValueError(number)
            found[number] = kind == _BOOLS[0] if kind in _BOOLS else self._value(kind)
        return found

    def _value(self, kind: int) -> Any:
        if kind in _INTEGERS:
            return self._zigzag()
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind == _STRUCT:
            return self.struct()
        if kind in _LISTS:
            head = self._byte()
            size = self._varint() if head >> 4 == 15 else head >> 4
            return [self._value(head & 15) for _ in range(size)]
        if kind == _MAP:
            size = self._varint()
            kinds = self._byte() if size else 0
            return [(self._value(kinds >> 4), self._value(kinds & 15)) for _ in range(size)]
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind == _BYTE or kind in _BOOLS:
            return self._byte()
        raise ValueError(kind)

    def _byte(self) -> int:
        self.place += 1
        return self.data[self.place - 1]

    def _bytes(self, size: int) -> bytes:
        self.place += size
        if self.place > len(self.data):  # else a list of ever so many would never end
            raise IndexError(self.place)
        return bytes(self.data[self.place - size : self.place])

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 64, 7):
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                break
        if value >> 64 or byte >= 128:
            raise ValueError(value)
        return value

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
