"""Values as bytes, to be kept in files or sent to another machine, and back again.

A packet is a mark, a checksum, words as JSON, then the numbers themselves. Only what `pack` names
can be in it, so that reading one never runs anything. The checksum tells damage; that lengths,
types and shapes fit together is checked beside it.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gecasmo.encoding import Rows

_ALIGNED = 64  # arrays begin at multiples of this, as compiled kernels like them
_MARK = b"gecasmo1"
_WORDS = len(_MARK) + 16  # where words begin: after the mark, a checksum, and their length
_NUMBERS = re.compile(r"[<>|=]?[biuf][1248]")


# What bytes that were made up can lead to; Arrow's may also panic in Polars.
_NO_PACKET = (
    *(ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError, OSError),
    *(pl.exceptions.PolarsError, pl.exceptions.PanicException),
)


class DamagedPacketError(ValueError):
    """Bytes that are not a packet, or not as they were written."""


def pack(value: Any) -> bytes:
    """Put a value into bytes.

    Parameters
    ----------
    value
        None, truth values, numbers, texts, bytes, arrays of numbers, tables and rows of coins;
        lists, tuples and mappings of these; and gecasmo's own data classes and named tuples with
        such fields.
    """
    return b"".join(_pieces(value))


def write_packet(path: Path, value: Any, sync: bool = False) -> None:
    """Write the packet of a value into a file, and on the disk if `sync` says so."""
    with open(path, "wb") as file:
        file.writelines(_pieces(value))
        if sync:
            file.flush()
            os.fsync(file.fileno())


# Windows removes no file that is mapped, and a folder of parts goes while arrays may still live.
_CAN_BE_REMOVED = os.name != "nt"


def read_packet(path: Path, is_mapped: bool = False, is_known: bool = False) -> Any:
    """Read the value of such a file.

    Of a file that `is_mapped` nothing is read before it is needed, if its checksum `is_known` to be
    right. Arrays can be written to all the same; nobody else sees what is.
    """
    is_mapped = is_mapped and _CAN_BE_REMOVED
    data = np.memmap(path, np.uint8, "c") if is_mapped else np.fromfile(path, np.uint8)
    return unpack(data, is_known)


def _pieces(value: Any) -> list[Any]:
    blobs: list[memoryview] = []
    words = json.dumps(_described(value, blobs)).encode()
    pieces: list[Any] = [len(words).to_bytes(8, "little"), words]
    size = _WORDS + len(words)
    for blob in blobs:
        gap = -size % _ALIGNED
        pieces += [bytes(gap), blob]
        size += gap + blob.nbytes
    return [_MARK, _checksum(pieces), *pieces]


def _checksum(pieces: Sequence[Any]) -> bytes:
    found = 0
    for piece in pieces:
        found = zlib.crc32(piece, found)
    return found.to_bytes(8, "little")


def _described(value: Any, blobs: list[memoryview]) -> Any:
    """Words for a value: itself if it is plain, else a list that begins with what it is; `blobs`
    gets the bytes that words do not hold."""

    def kept(blob: memoryview) -> int:
        blobs.append(blob)
        return blob.nbytes

    def each(values: Any) -> list[Any]:
        return [_described(one, blobs) for one in values]

    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return ["number", value.dtype.str, value.item()]
    if isinstance(value, np.ndarray):
        size = kept(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        return ["array", value.dtype.str, value.shape, size]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", kept(memoryview(value))]
    if isinstance(value, pl.DataFrame):
        buffer = io.BytesIO()
        value.write_ipc(buffer)
        return ["table", kept(buffer.getbuffer())]
    if isinstance(value, Rows):
        return ["rows", *each((value.keys, value.frame, len(value), pl.DataFrame(value.attached)))]
    if isinstance(value, Mapping):
        return ["mapping", *map(each, value.items())]
    if is_dataclass(value):
        own = [getattr(value, field.name) for field in fields(value)]
        return ["class", f"{kind.__module__}:{kind.__name__}", *each(own)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ["class", f"{kind.__module__}:{kind.__name__}", *each(value)]
    if isinstance(value, (list, tuple)):
        return [kind.__name__, *each(value)]
    raise TypeError(f"{kind.__name__} cannot be packed.")


def unpack(data: Any, is_known: bool = False) -> Any:
    """Read the value of such bytes.

    Arrays look into the bytes, which are copied if they cannot be written to: kernels are compiled
    for arrays that can.
    """
    buffer = memoryview(data)
    if buffer.readonly:
        buffer = memoryview(bytearray(buffer))
    mark, rest = len(_MARK), len(_MARK) + 8
    try:
        is_right = is_known or buffer[mark:rest] == _checksum([buffer[rest:]])
        if not is_right or buffer[:mark] != _MARK:
            raise ValueError("its bytes are not those that were written")
        start = _WORDS + int.from_bytes(buffer[rest:_WORDS], "little")
        unpacking = _Unpacking(buffer, start)
        value = unpacking.value(json.loads(bytes(buffer[_WORDS:start])))
        if unpacking.at != len(buffer):
            raise ValueError("it does not have the length that it says")
        return value
    except _NO_PACKET as problem:
        raise DamagedPacketError(str(problem)) from None


class _Unpacking:
    """Makes values of words, taking bytes in the order in which they were put away."""

    def __init__(self, buffer: memoryview, start: int) -> None:
        self.buffer, self.at = buffer, start
        self.makers: dict[str, Callable[..., Any]] = {
            "number": lambda dtype, value: _numbers(dtype).type(value),
            "array": self._array,
            "bytes": lambda size: bytes(self._taken(size)),
            "table": lambda size: pl.read_ipc(io.BytesIO(self._taken(size))),
            "rows": self._rows,
            "mapping": lambda *pairs: {self.value(k): self.value(v) for k, v in pairs},
            "class": lambda name, *found: _class(name)(*map(self.value, found)),
            "list": lambda *found: list(map(self.value, found)),
            "tuple": lambda *found: tuple(map(self.value, found)),
        }

    def value(self, described: Any) -> Any:
        if not isinstance(described, list):
            return described
        kind, *content = described
        return self.makers[kind](*content)

    def _taken(self, size: int) -> memoryview:
        first = self.at + -self.at % _ALIGNED
        if not 0 <= size <= len(self.buffer) - first:
            raise ValueError(f"{size} bytes are not there")
        self.at = first + size
        return self.buffer[first : self.at]

    def _array(self, dtype: str, shape: list[int], size: int) -> Any:
        kind = _numbers(dtype)
        if min(shape, default=0) < 0 or math.prod(shape) * kind.itemsize != size:
            raise ValueError(f"an array of shape {shape} does not take {size} bytes")
        return np.frombuffer(self._taken(size), kind).reshape(shape)

    def _rows(self, *described: Any) -> Rows:
        keys, frame, n_rows, attached = map(self.value, described)
        columns = frame.get_columns()
        is_whole = all(len(column) == n_rows for column in [*columns, *attached])
        if tuple(frame.columns) != keys or not is_whole or n_rows < 0:
            raise ValueError(f"{n_rows} rows by {keys} have other columns")
        return Rows(keys, columns, n_rows, attached.to_dict())


def _numbers(dtype: str) -> np.dtype[Any]:
    """A type of plain numbers; others are texts that NumPy would parse."""
    if not _NUMBERS.fullmatch(dtype):
        raise ValueError(f"{dtype!r} is no type of numbers")
    return np.dtype(dtype)


def _class(name: str) -> Any:
    """A data class or named tuple of ours, which holds data and does nothing."""
    module, _, own = name.partition(":")
    kind = getattr(sys.modules.get(module), own, None) if module.startswith("gecasmo.") else None
    if not isinstance(kind, type) or not (is_dataclass(kind) or hasattr(kind, "_fields")):
        raise ValueError(f"{name} is no data class of gecasmo")
    return kind
