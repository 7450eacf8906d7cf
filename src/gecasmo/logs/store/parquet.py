"""Parquet files as a stream of batches, and how large their row groups are.

The size of a row group is in the footer of the file, which is a struct of Thrift's compact
protocol, of which only a few fields are wanted; see
https://parquet.apache.org/docs/file-format/metadata/. Polars does not tell them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.inputs import Opened, naming
from gecasmo.logs.store.plan import Schema
from gecasmo.logs.store.sources import Batches, BatchSource, Place, Segment, SourceBatch, joined

# What Polars needs to read a byte of a row group, measured: the pages, and what is made of them.
MEMORY_OF_A_BYTE = 2
# Of a larger footer nothing is told: it would take seconds.
_LARGEST_FOOTER = 2 << 20
_BOOLS, _INTEGERS, _LISTS = (1, 2), (4, 5, 6), (9, 10)
_BYTE, _DOUBLE, _BINARY, _MAP, _STRUCT = 3, 7, 8, 11, 12
# Fields of the file, of a row group, of a column in it, and of what is said about that.
_ROW_GROUPS, _COLUMNS, _ABOUT, _PATH, _UNCOMPRESSED = 4, 1, 3, 3, 6


class ParquetFiles(BatchSource):
    """Parquet files with the same columns."""

    def __init__(self, inputs: Opened) -> None:
        self.label = inputs.label
        self.files = [file.name for file in inputs]
        self._inputs = inputs

    def schema(self) -> Schema:
        """The columns of the first file."""
        return self._schema(0)

    def n_rows(self) -> int:
        """The rows of all files, as their footers say."""
        total = 0
        for number in range(len(self.files)):
            with naming(self.files[number], quietly=True):
                total += int(self._scan(number).select(pl.len()).collect().item())
        return total

    def largest_row_group(self, columns: Sequence[str]) -> tuple[str, int]:
        """About what it takes to read some columns of a row group, of the largest file."""
        paths = [file.path for file in self._inputs if file.path is not None]
        sizes = [(path.stat().st_size, path) for path in paths if path.is_file()]
        if not sizes:
            return self.label, 0
        path = max(sizes)[1]
        return str(path), MEMORY_OF_A_BYTE * largest_row_group(path, columns)

    def batches(self, columns: Sequence[str], rows: int, after: Place | None) -> Batches:
        """Read columns in batches, from a place on."""
        return joined(self._parts(columns, rows, after or {"file": 0, "row": 0}), rows)

    def _parts(self, columns: Sequence[str], rows: int, start: Place) -> Batches:
        wanted = {name: dtype for name, dtype in self.schema().items() if name in columns}
        for number in range(start["file"], len(self.files)):
            first = start["row"] if number == start["file"] else 0
            self._check_columns(number, wanted)
            while True:
                # Slices take less memory than a stream, which reads many row groups ahead.
                with naming(self.files[number], quietly=True):
                    frame = self._scan(number).select(columns).slice(first, rows).collect()
                if not frame.height:
                    break
                segment = Segment(number, first, frame.height)
                first += frame.height
                yield SourceBatch(frame, (segment,), {"file": number, "row": first})

    def _scan(self, number: int) -> pl.LazyFrame:
        # A name such as a[1].parquet is a name, and no pattern.
        content = self._inputs[number].for_parquet()
        return pl.scan_parquet(content, glob=False, hive_partitioning=False)

    def _schema(self, number: int) -> Schema:
        with naming(self.files[number], quietly=True):
            return dict(self._scan(number).collect_schema())

    def _check_columns(self, number: int, wanted: Schema) -> None:
        there = self._schema(number)
        for name, dtype in wanted.items():
            if there.get(name) != dtype:
                has = f"holds {there[name]} there" if name in there else "is not there"
                raise ClickLogError(
                    f"{self.files[number]} has other columns than {self.files[0]}: {name!r} "
                    f"holds {dtype} in the first, and {has}."
                )


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
