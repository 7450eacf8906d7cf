"""How large the row groups of a Parquet file are, as its footer says.

The footer is a struct of Thrift's compact protocol, of which only a few fields are wanted; see
https://parquet.apache.org/docs/file-format/metadata/. Polars does not tell them.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

# Of a larger footer nothing is told: it would take seconds.
_LARGEST_FOOTER = 2 << 20
_BOOLS, _INTEGERS, _LISTS = (1, 2), (4, 5, 6), (9, 10)
_BYTE, _DOUBLE, _BINARY, _MAP, _STRUCT = 3, 7, 8, 11, 12
# Fields of the file, of a row group, of a column in it, and of what is said about that.
_ROW_GROUPS, _COLUMNS, _ABOUT, _PATH, _UNCOMPRESSED = 4, 1, 3, 3, 6


def largest_row_group(path: Path, columns: Collection[str]) -> int:
    """The bytes of some columns of the largest row group, not compressed; 0 where nobody knows."""
    try:
        with path.open("rb") as file:
            file.seek(-8, 2)
            length = int.from_bytes(file.read(4), "little")
            if length > _LARGEST_FOOTER or file.read(4) != b"PAR1":
                return 0
            file.seek(-8 - length, 2)
            footer = _Thrift(file.read(length)).struct()
        return max((_bytes_of(group, columns) for group in footer.get(_ROW_GROUPS, [])), default=0)
    except (OSError, LookupError, TypeError, ValueError, RecursionError, AttributeError):
        return 0  # whoever reads the file says what is wrong with it


def _bytes_of(group: dict[int, Any], columns: Collection[str]) -> int:
    found = (column[_ABOUT] for column in group[_COLUMNS])
    return sum(about[_UNCOMPRESSED] for about in found if about[_PATH][0].decode() in columns)


class _Thrift:
    """Values of the compact protocol, one after the other; structs by the numbers of fields."""

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def struct(self) -> dict[int, Any]:
        found: dict[int, Any] = {}
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            kind = head & 15
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
        return self.data[self.place - size : self.place]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
