"""Files of every format, damaged at random: what readers must refuse in words of their own.

Run as a program it reads damaged files, numbered by seeds, and prints what went wrong.
"""

from __future__ import annotations

import faulthandler
import gzip
import io
import json
import random
import re
import resource
import shutil
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import zstandard

from gecasmo.errors import GecasmoError
from gecasmo.logs import ClickLog, peek, read_log

SAMPLES = Path(__file__).parent / "samples"
HANGS, MOST_MEMORY = 10, 2**30
ODD = [
    *(
        "\0",
        "\ufeff",
        "\u202e",
        "\u2028",
        "é",
        "𝔘",
        "\t",
        '"',
        "'",
        "\\",
        "\r",
        "\n",
        ",",
        "\\ud83d",
    ),
    *("null", "NaN", "-1", "1e400", "[]", "{}", '"x"', "<a>", "&x;", "0" * 30 + "1"),
]
HUGE = ["9" * 20, "9" * 40, "9" * 400, "-" + "9" * 25, str(2**31), str(2**63), "1e308", "0.5"]


@cache
def originals() -> list[tuple[str, str | None, bytes]]:
    """Sound files of all formats: their name, the format if it has to be said, what is in them."""
    found: list[tuple[str, str | None, bytes]] = [
        (path.name, None, path.read_bytes()) for path in sorted(SAMPLES.glob("*.*"))
    ]
    table = pl.read_csv(SAMPLES / "table.csv")
    nested = pl.read_ndjson(SAMPLES / "nested.jsonl")
    for name, frame in (("table", table), ("nested", nested)):
        data = io.BytesIO()
        frame.write_parquet(data, compression="uncompressed" if name == "table" else "zstd")
        found.append((f"{name}.parquet", None, data.getvalue()))
    with tempfile.TemporaryDirectory() as folder:
        events = Path(folder) / "ubi.parquet"
        records = [json.loads(line) for line in (SAMPLES / "ubi.ndjson").open()]
        pl.DataFrame(records, infer_schema_length=None).write_parquet(events)
        found.append(("ubi.parquet", "ubi", events.read_bytes()))
    return found


def damaged(seed: int) -> tuple[str, str | None, bytes]:
    """A file of some format, damaged in up to four places, before or after it was packed."""
    draw = random.Random(seed)
    name, form, data = draw.choice(originals())
    packing = draw.choice(["", "", ".gz", ".zst"])
    if not packing or name.endswith(".parquet"):
        return name, form, _damaged(data, draw)
    pack: Any = gzip.compress if packing == ".gz" else zstandard.ZstdCompressor().compress
    if draw.random() < 0.5:
        return name + packing, form, pack(_damaged(data, draw))
    return name + packing, form, _damaged(pack(data), draw)


def _damaged(data: bytes, draw: random.Random) -> bytes:
    for _ in range(draw.randint(1, 4)):
        data = draw.choice(WAYS)(data, draw) or data
    return data


def _flipped(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 8])):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def _slice(data: bytes, draw: random.Random) -> tuple[int, int]:
    first = draw.randrange(len(data))
    return first, min(len(data), first + draw.choice([1, 3, 20, 200]))


def _removed(data: bytes, draw: random.Random) -> bytes:
    first, last = _slice(data, draw)
    return data[:first] + data[last:]


def _repeated(data: bytes, draw: random.Random) -> bytes:
    first, last = _slice(data, draw)
    return data[:last] + data[first:last] * draw.choice([1, 2, 50]) + data[last:]


def _zeroed(data: bytes, draw: random.Random) -> bytes:
    first, last = _slice(data, draw)
    return data[:first] + bytes(last - first) + data[last:]


def _odd(data: bytes, draw: random.Random) -> bytes:
    first, _ = _slice(data, draw)
    return data[:first] + draw.choice(ODD).encode() + data[first:]


def _huge(data: bytes, draw: random.Random) -> bytes:
    numbers = list(re.finditer(rb"[0-9]+", data))
    if not numbers:
        return data
    at = draw.choice(numbers)
    return data[: at.start()] + draw.choice(HUGE).encode() + data[at.end() :]


def _long(data: bytes, draw: random.Random) -> bytes:
    first, _ = _slice(data, draw)
    return data[:first] + draw.choice([b"a", b"[", b"1", b'"']) * 200_000 + data[first:]


def _swapped(data: bytes, draw: random.Random) -> bytes:
    lines = data.split(b"\n")
    draw.shuffle(lines)
    return b"\n".join(lines)


def _words(data: bytes, draw: random.Random) -> bytes:
    words = list(re.finditer(rb"[a-z_]{3,}", data))
    if not words:
        return data
    one, other = draw.choice(words), draw.choice(words)
    return data[: one.start()] + other[0] + data[one.end() :]


WAYS: list[Any] = [
    *(_flipped, _flipped, _cut, _removed, _repeated, _zeroed),
    *(_odd, _odd, _huge, _huge, _long, _swapped, _words),
]


def read(seed: int, folder: Path) -> None:
    """Read a damaged file in some way; an error of our own is as good as a log."""
    name, form, data = damaged(seed)
    path = folder / name
    path.write_bytes(data)
    draw = random.Random(seed)
    try:
        if draw.random() < 0.2:
            stored = ClickLog.ingest(
                path, folder / "s.gclog", format=form, overwrite=True, resume=False, memory="64MB"
            )
            list(stored.partitions())
            return
        peek(path, form)
        log = read_log(path, format=form)
        repr(log)
        log.head(1).to_frame()
    except GecasmoError:
        pass
    finally:
        path.unlink()
        shutil.rmtree(folder / "s.gclog.part", ignore_errors=True)


def peak_memory() -> int:
    """Of this program; what `resource` says begins with that of the process that started it."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    lines = status.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def main(first: int, last: int) -> None:
    """Read the files of some seeds; print each that ends otherwise, and the memory at the end."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, last):
            faulthandler.dump_traceback_later(HANGS, exit=True)
            try:
                read(seed, Path(folder))
            except BaseException as error:
                print(json.dumps([seed, damaged(seed)[0], type(error).__name__, str(error)[:200]]))
            print(seed, flush=True)
            faulthandler.cancel_dump_traceback_later()
    print(json.dumps({"memory": peak_memory()}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
