"""What driver and executors say to each other, with nothing but data frames: functions that run on
executors, their answers as bytes, and their errors.

An answer is a packet: words as JSON, then the numbers themselves. Only what `pack` names can be in
it, so that reading one never runs anything. Executors keep what they write down in packets, too.

Errors of executors are told by the driver as if they had happened there. Spark brings a failure of
a task to the driver as one long text. What gecasmo has to say is put into that text between two
marks, and found again.
"""

from __future__ import annotations

import base64
import functools
import importlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np
import polars as pl

from gecasmo.encoding import Rows
from gecasmo.errors import GecasmoError
from gecasmo.spark.session import SparkError, quiet

# The columns of a data frame with what executors answer.
ANSWERS = "part int, answer binary"


def ask_parts(
    spark: Any, numbers: Sequence[int], function: Callable[[int], bytes]
) -> dict[int, bytes]:
    """Run a function of the number of a part on executors, each part as a task of its own."""

    def run(batches: Any) -> Iterator[Any]:
        for batch in batches:
            for place in batch["id"].to_pylist():
                number = int(numbers[place])
                yield record(number, telling(function)(number))

    with quiet():
        return collected(spark.range(0, len(numbers), 1, len(numbers)).mapInArrow(run, ANSWERS))


def record(number: int, answer: bytes, name: str = "answer") -> Any:
    """One row of Arrow: the number of a part, and bytes."""
    arrow: Any = importlib.import_module("pyarrow")
    return arrow.RecordBatch.from_pydict(
        {"part": arrow.array([number], arrow.int32()), name: arrow.array([answer], arrow.binary())}
    )


def collected(answers: Any) -> dict[int, bytes]:
    """Bring a data frame with the columns of `ANSWERS` to the driver; by number, in order."""
    with hearing(), quiet():
        table = answers.toArrow()
    rows = zip(table["part"].to_pylist(), table["answer"].to_pylist(), strict=True)
    return dict(sorted(rows))


# -- packets ------------------------------------------------------------------------------------
_ALIGNED = 64  # arrays begin at multiples of this, as compiled kernels like them


def pack(value: Any) -> bytes:
    """Put a value into bytes.

    Parameters
    ----------
    value
        None, truth values, numbers, texts, bytes, arrays, tables and rows of coins; lists, tuples
        and mappings of these; and data classes and named tuples with such fields.
    """
    packing = _Packing()
    header = json.dumps(packing.described(value)).encode()
    pieces: list[Any] = [len(header).to_bytes(8, "little"), header]
    size = 8 + len(header)
    for blob in packing.blobs:
        gap = -size % _ALIGNED
        pieces += [bytes(gap), blob]
        size += gap + blob.nbytes
    return b"".join(pieces)


def unpack(data: bytes | bytearray, *kinds: type) -> Any:
    """Read the value of such bytes; `kinds` are the classes that it is made of.

    Arrays look into the bytes, which are copied if they cannot be written to: kernels are compiled
    for arrays that can.
    """
    buffer = data if isinstance(data, bytearray) else bytearray(data)
    start = 8 + int.from_bytes(buffer[:8], "little")
    described = json.loads(bytes(buffer[8:start]))
    return _Unpacking(buffer, start, kinds).value(described)


class _Packing:
    """Describes values in words; `blobs` are the bytes that words do not hold."""

    def __init__(self) -> None:
        self.blobs: list[memoryview] = []

    def described(self, value: Any) -> Any:
        """Words for a value: itself if it is plain, else a list that begins with what it is."""
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, np.generic):
            return value.item()
        if isinstance(value, np.ndarray):
            blob = self._kept(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
            return ["array", value.dtype.str, value.shape, blob]
        if isinstance(value, (bytes, bytearray)):
            return ["bytes", self._kept(memoryview(value))]
        if isinstance(value, pl.DataFrame):
            buffer = io.BytesIO()
            value.write_ipc(buffer)
            return ["table", self._kept(buffer.getbuffer())]
        if isinstance(value, Rows):
            parts = (value.keys, value.frame, len(value), pl.DataFrame(value.attached))
            return ["rows", *map(self.described, parts)]
        if isinstance(value, Mapping):
            return ["mapping", *([self.described(k), self.described(v)] for k, v in value.items())]
        if is_dataclass(value):
            values = [getattr(value, field.name) for field in fields(value)]
            return ["class", type(value).__name__, *map(self.described, values)]
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return ["class", type(value).__name__, *map(self.described, value)]
        if isinstance(value, (list, tuple)):
            return [type(value).__name__, *map(self.described, value)]
        raise TypeError(f"{type(value).__name__} cannot be packed.")

    def _kept(self, blob: memoryview) -> int:
        self.blobs.append(blob)
        return blob.nbytes


class _Unpacking:
    """Makes values of words, taking bytes in the order in which they were put away."""

    def __init__(self, buffer: bytearray, start: int, kinds: tuple[type, ...]) -> None:
        self.buffer, self.at = memoryview(buffer), start
        self.kinds = {kind.__name__: kind for kind in kinds}
        self.makers: dict[str, Callable[..., Any]] = {
            "array": self._array,
            "bytes": lambda size: bytes(self._taken(size)),
            "table": self._table,
            "rows": self._rows,
            "mapping": lambda *pairs: {self.value(k): self.value(v) for k, v in pairs},
            "class": lambda name, *found: self.kinds[name](*map(self.value, found)),
            "list": lambda *found: list(map(self.value, found)),
            "tuple": lambda *found: tuple(map(self.value, found)),
        }

    def value(self, described: Any) -> Any:
        if not isinstance(described, list):
            return described
        kind, *content = described
        return self.makers[kind](*content)

    def _taken(self, size: int) -> memoryview:
        self.at += -self.at % _ALIGNED
        found = self.buffer[self.at : self.at + size]
        self.at += size
        return found

    def _array(self, dtype: str, shape: list[int], size: int) -> Any:
        return np.frombuffer(self._taken(size), dtype).reshape(shape)

    def _table(self, size: int) -> pl.DataFrame:
        return pl.read_ipc(io.BytesIO(self._taken(size)))

    def _rows(self, *described: Any) -> Rows:
        keys, frame, n_rows, attached = map(self.value, described)
        return Rows(keys, frame.get_columns(), n_rows, attached.to_dict())


# -- errors -------------------------------------------------------------------------------------
P = ParamSpec("P")
T = TypeVar("T")

_BEGIN, _END = "<<gecasmo:", ":gecasmo>>"
_MARKED = re.compile(re.escape(_BEGIN) + r"([A-Za-z0-9+/=]*)" + re.escape(_END))


class ToldByExecutor(RuntimeError):
    """An error of gecasmo on its way to the driver; the text in brackets is for the driver."""


def telling(function: Callable[P, T]) -> Callable[P, T]:
    """Run on an executor: what gecasmo says there is heard at the driver."""

    @functools.wraps(function)
    def told(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except GecasmoError as error:
            raise ToldByExecutor(f"{error}\n{marked(error)}") from None

    return told


def marked(error: GecasmoError) -> str:
    """An error as letters that survive any quoting."""
    said = json.dumps([type(error).__name__, str(error)])
    return f"{_BEGIN}{base64.b64encode(said.encode()).decode()}{_END}"


def found_in(text: str) -> GecasmoError | None:
    """The error of gecasmo that a text of Spark's brings along."""
    found = _MARKED.search(text)
    if found is None:
        return None
    name, message = json.loads(base64.b64decode(found.group(1)))
    kind = next((k for k in _kinds(GecasmoError) if k.__name__ == name), SparkError)
    return kind(message)


def _kinds(kind: type[GecasmoError]) -> Iterator[type[GecasmoError]]:
    """An error and all more special ones."""
    yield kind
    for special in kind.__subclasses__():
        yield from _kinds(special)


@contextmanager
def hearing() -> Iterator[None]:
    """Run Spark jobs: errors of gecasmo on executors are raised here as what they were."""
    try:
        yield
    except GecasmoError:
        raise
    except Exception as error:
        told = found_in(str(error))
        if told is None:
            raise
        raise told from None
