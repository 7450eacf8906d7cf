"""Parquet files that say what is not true: footers, headers of pages and what is in pages, changed.

    python crafted_parquet.py SEED N

reads so many, one after the other, and says which one is at work. Whatever it is, it ends with a
log or a message of ours; a process that ends by itself has failed.
"""

from __future__ import annotations

import faulthandler
import io
import random
import resource
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from gecasmo import parquet
from gecasmo.errors import ClickLogError
from gecasmo.logs import inputs

# A struct is a list of [number, kind, value], a list is [kind, values]; see the compact protocol.
Struct = list[list[Any]]
INTEGERS, BINARY, LISTS, STRUCT = (4, 5, 6), 8, (9, 10), 12
NUMBERS = [
    *(
        0,
        1,
        2,
        7,
        8,
        31,
        32,
        64,
        127,
        128,
        255,
        256,
        1000,
        2**15,
        2**16,
        2**20,
        2**24,
        2**27,
        2**28,
    ),
    *(2**30, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**36, 2**40, 2**45, 2**60, 2**62, 2**63 - 1),
    *(-1, -2, -(2**31), -(2**63)),
]
LARGEST = 4 << 30  # what the process may ask for, in bytes


class Reader(parquet._Thrift):
    """The same values, with all that is needed to write them again."""

    def struct(self) -> Struct:  # type: ignore[override]
        found: Struct = []
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            found.append(
                [number, head & 15, None if head & 15 in (1, 2) else self._value(head & 15)]
            )
        return found

    def _value(self, kind: int) -> Any:
        if kind not in LISTS:
            return super()._value(kind)
        head = self._byte()
        size = self._varint() if head >> 4 == 15 else head >> 4
        return [head & 15, [self._value(head & 15) for _ in range(size)]]


def varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def written(kind: int, value: Any) -> bytes:
    """A value in the compact protocol."""
    if kind in INTEGERS:
        return varint((value << 1 ^ value >> 63) & (1 << 64) - 1)
    if kind == BINARY:
        return varint(len(value)) + value
    if kind in LISTS:
        head = bytes([0xF0 | value[0]]) + varint(len(value[1]))
        return head + b"".join(written(value[0], each) for each in value[1])
    if kind == STRUCT:
        fields = (
            bytes([kind]) + written(4, number) + (b"" if kind in (1, 2) else written(kind, each))
            for number, kind, each in value
        )
        return b"".join(fields) + b"\0"
    return value if isinstance(value, bytes) else bytes([value])


def field(struct: Struct, number: int) -> Any:
    return next((each[2] for each in struct if each[0] == number), None)


def numbers(value: Any, kind: int = STRUCT) -> Iterator[list[Any]]:
    """All places of numbers: lists whose last item is one."""
    if kind == STRUCT:
        for each in value:
            if each[1] in INTEGERS:
                yield each
            else:
                yield from numbers(each[2], each[1])
    elif kind in LISTS and value[0] == STRUCT:
        for each in value[1]:
            yield from numbers(each)


def crafted(data: bytes, draw: random.Random) -> bytes:
    """The same file with one to three things that are not true; offsets stay right."""
    length = int.from_bytes(data[-8:-4], "little")
    footer = Reader(data[-8 - length : -8]).struct()
    columns = []
    for group in field(footer, 4)[1]:
        for chunk in field(group, 1)[1]:
            about = field(chunk, 3)
            place = field(about, 11) or field(about, 9)
            end = place + field(about, 7)
            pages = []
            while place < end:
                reader = Reader(data, place)
                head = reader.struct()
                place = reader.place + field(head, 3)
                pages.append((head, bytearray(data[reader.place : place])))
            columns.append((about, pages))
    lies = []
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        about, pages = draw.choice(columns)
        head, body = draw.choice(pages)
        before, way = len(body), draw.random()
        if way < 0.6:
            lies.append(draw.choice(list(numbers(footer if way < 0.35 else head))))
            lies[-1][2] = draw.choice(NUMBERS) if draw.random() < 0.8 else draw.randrange(10)
        elif way < 0.8:
            at = draw.choice([0, 0, 1, 2, 4, 4, 5, 6, 8, draw.randrange(before + 1)])
            lie = varint(draw.choice(NUMBERS[:-4]) * draw.choice([1, 2]) + draw.choice([0, 0, 1]))
            body[at : at + draw.choice([0, len(lie)])] = lie
        elif body:
            body[draw.randrange(before)] = draw.choice([0, 1, 2, 127, 128, 255])
        for size in head:
            if size[0] in (2, 3) and size not in lies:
                size[2] += len(body) - before
    out = bytearray(b"PAR1")
    for about, pages in columns:
        begin, first = len(out), None
        for head, body in pages:
            first = len(out) if first is None and field(head, 1) != 2 else first
            out += written(STRUCT, head) + body
        right = {11: begin, 9: begin if first is None else first, 7: len(out) - begin}
        for each in about:
            if each[0] in right and each not in lies:
                each[2] = right[each[0]]
    end = written(STRUCT, footer)
    return bytes(out) + end + len(end).to_bytes(4, "little") + b"PAR1"


def corpus() -> list[bytes]:
    """The same log in all encodings that Polars reads."""
    n = 60
    flat = pa.table(
        {
            "session": [i // 3 for i in range(n)],
            "query": [f"q{i // 3 % 7}" for i in range(n)],
            "doc": [f"doc{i % 13}" for i in range(n)],
            "rank": pa.array([i % 3 + 1 for i in range(n)], pa.int32()),
            "click": [i % 5 == 0 for i in range(n)],
            "price": [i / 7 for i in range(n)],
        }
    )
    nested = pa.table(
        {
            "session": [f"s{i}" for i in range(20)],
            "query": [f"q{i % 7}" for i in range(20)],
            "doc": [[f"d{j}" for j in range(3)] for _ in range(20)],
            "click": [[(i + j) % 2 == 0 for j in range(3)] for i in range(20)],
        }
    )
    delta = {
        **dict.fromkeys(["session", "rank"], "DELTA_BINARY_PACKED"),
        **{"query": "DELTA_BYTE_ARRAY", "doc": "DELTA_LENGTH_BYTE_ARRAY"},
        **{"click": "RLE", "price": "BYTE_STREAM_SPLIT"},
    }
    ways: list[tuple[pa.Table, dict[str, Any]]] = [
        (table, {"data_page_version": version, "use_dictionary": is_dictionary})
        for table in (flat, nested)
        for version in ("1.0", "2.0")
        for is_dictionary in (True, False)
    ]
    ways.append((flat, {"use_dictionary": False, "column_encoding": delta}))
    found = []
    for compression in ("none", "zstd"):
        for table, options in ways:
            file = io.BytesIO()
            pyarrow.parquet.write_table(table, file, compression=compression, **options)
            found.append(file.getvalue())
    return found


def main(seed: int, n: int) -> None:
    files = corpus()
    for file in files:
        assert inputs.Input("a file", raw=file).read_parquet().height in (20, 60)
    resource.setrlimit(resource.RLIMIT_AS, (LARGEST, LARGEST))
    n_refused = 0
    for number in range(seed, seed + n):
        print(number, file=sys.stderr)
        faulthandler.dump_traceback_later(10, exit=True)
        draw = random.Random(number)
        try:
            inputs.Input("a file", raw=crafted(draw.choice(files), draw)).read_parquet()
        except ClickLogError:
            n_refused += 1
        faulthandler.cancel_dump_traceback_later()
    print(n_refused)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(int(sys.argv[1]), int(sys.argv[2]))
