"""What executors do in a fit: make parts, and run passes over them.

Between passes Spark keeps the points of a part, as bytes.
"""

from __future__ import annotations

import json
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding import Rows
from gecasmo.errors import ClickLogError, NothingLeftError
from gecasmo.estimation.part import Part, Point, Points
from gecasmo.estimation.part_files import StoredPart, from_bytes, set_up, take_down, to_bytes
from gecasmo.estimation.passes import run_pass
from gecasmo.estimation.tasks import Answer, Task
from gecasmo.kernels.running import using_threads
from gecasmo.logs import Note
from gecasmo.model.base import Impossible
from gecasmo.model.part_builder import Settings, blueprint_of, build_part
from gecasmo.model.streaming import part_view
from gecasmo.spark.results import check_probe
from gecasmo.spark.session import SparkError
from gecasmo.spark.shipping import ShippedModel, plain_rows
from gecasmo.spark.source import Reading

Index = Mapping[int, NDArray[np.int64]]

# Parts that a worker keeps decoded from one task to the next, by number and by bytes.
_MOST_PARTS = 4
_MOST_BYTES = 512 * 2**20
# What Spark hands between its processes in one piece has its length in 32 bits.
_LARGEST = 2**31 - 2**20


@dataclass(frozen=True)
class Job:
    """What executors know of a fit.

    Parameters
    ----------
    model : as data
    method : how it is fitted
    start : another model to begin at
    impossible : what to do with pages that cannot happen
    local : numbers of the coins whose rows live with their part
    reading : how rows become pages
    threads : that a task may use
    n_rows : for each shared coin, how many rows there are in all; known after all parts are made
    probe : a file in the folder of the model, by which executors tell that they reach it
    """

    model: ShippedModel
    method: Any
    start: ShippedModel | None
    impossible: Impossible
    local: tuple[int, ...]
    reading: Reading
    threads: int = 1
    n_rows: Mapping[int, int] = field(default_factory=dict)
    probe: str | None = None


@dataclass(frozen=True)
class Made:
    """What the driver hears of a part that was made."""

    shared: Mapping[int, Rows]
    n_read: int
    n_sessions: int
    n_results: int
    weight: float
    n_dropped: int
    n_floored: int
    notes: tuple[Note, ...]


def make_part(job: Job, number: int, pieces: Iterable[bytes]) -> tuple[bytes, Made | None]:
    """A partition encoded for a model, as bytes; nothing if it has no pages."""
    check_probe(job.probe)
    table = job.reading.table(pieces)
    if table is None:
        return b"", None
    with using_threads(job.threads):
        log = job.reading.log(table, number)
        start = None
        if job.start is not None:
            start = part_view(job.start.model(), number, job.reading.n_parts)
        settings = Settings(job.method, start, job.impossible)
        try:
            built = build_part(job.model.model(), number, log, job.local, settings)
        except NothingLeftError:
            # All its pages are impossible; those of other parts may not be.
            return b"", Made({}, log.n_sessions, 0, 0, 0.0, log.n_sessions, 0, log.notes)
    encoded = built.part.expectation.encoded
    heard = Made(
        {coin: plain_rows(rows) for coin, rows in built.shared.items()},
        log.n_sessions,
        log.n_sessions - built.n_dropped,
        encoded.n_results,
        built.part.n_pages,
        built.n_dropped,
        built.n_floored,
        log.notes,
    )
    if not encoded.n_results:
        return b"", replace(heard, shared={})
    data = to_bytes(take_down(built.part))
    _check_size(len(data), number)
    return data, heard


def place_part(data: bytes, index: Index) -> bytes:
    """A part that knows its places among the rows that parts share, without the keys of its own
    rows: passes only need numbers."""
    if not data:
        return data
    stored = from_bytes(data)
    arrays = {**stored.arrays, **{f"index.{coin}": places for coin, places in index.items()}}
    return to_bytes(StoredPart(stored.words, arrays, lambda _: pl.DataFrame()))


def pass_over(
    job: Job,
    number: int,
    data: bytes,
    points: bytes,
    task: Task,
    keys: bytes | None = None,
) -> tuple[bytes, Answer | None]:
    """One pass over one part: its points afterwards, and its answer."""
    if not data:
        return b"", None
    part, check = decoded(job, number, data, keys)
    before, of = points_from_bytes(points)
    _check_same(of, check, number)
    with using_threads(job.threads):
        after, answer = run_pass(part, before, task)
    saved = points_to_bytes(after, check)
    _check_size(len(saved), number)
    return saved, answer


def with_part(
    job: Job,
    number: int,
    data: bytes,
    points: bytes,
    keys: bytes,
    use: Callable[[Part, Points], Any],
) -> Any:
    """What a function says of a part with its points and the keys of its rows."""
    if not data:
        return None
    part, check = decoded(job, number, data, keys)
    found, of = points_from_bytes(points)
    _check_same(of, check, number)
    with using_threads(job.threads):
        return use(part, found)


def decoded(job: Job, number: int, data: bytes, keys: bytes | None) -> tuple[Part, int]:
    """A part and the check sum of its bytes, from memory if this worker has seen it lately."""
    place = (job.model.id, number)
    if keys is None and place in _parts:
        _parts.move_to_end(place)
        kept = _parts[place]
        return kept.part, kept.check
    stored = from_bytes(data)
    if keys is not None:
        stored = replace(stored, rows=from_bytes(keys).rows)
    model = job.model.model()
    part = set_up(stored, blueprint_of(model, job.method.augmentation), job.n_rows, job.threads)
    check = zlib.crc32(data)
    if keys is None:
        _parts[place] = _Kept(part, check, len(data))
        while len(_parts) > _MOST_PARTS or sum(k.n_bytes for k in _parts.values()) > _MOST_BYTES:
            _parts.popitem(last=False)
    return part, check


@dataclass(frozen=True)
class _Kept:
    part: Part
    check: int
    n_bytes: int


_parts: OrderedDict[tuple[str, int], _Kept] = OrderedDict()


def _check_same(of: int | None, check: int, number: int) -> None:
    if of is not None and of != check:
        raise SparkError(
            f"Partition {number} was lost and read again, and its rows were not the same. The data "
            "frame must give the same rows whenever it is asked: write it to a table or to Parquet "
            "first, and fit that."
        )


def _check_size(n_bytes: int, number: int) -> None:
    if n_bytes > _LARGEST:
        raise ClickLogError(
            f"Partition {number} takes {n_bytes:,} bytes, and Spark's workers take 2 GiB at most: "
            "use more partitions=. (One query that fills a partition alone cannot be divided.)"
        )


_ALIGNED = 64  # arrays begin at multiples of this, as compiled kernels like them


def points_to_bytes(points: Points, of: int = 0) -> bytes:
    """Names and shapes as JSON, then the numbers themselves; `of` tells which part they are of."""
    arrays = [
        (name, key, np.ascontiguousarray(values))
        for name, point in points.items()
        for key, values in point.arrays().items()
    ]
    words = {
        "of": of,
        "points": list(points),
        "arrays": [[name, key, values.dtype.str, values.shape] for name, key, values in arrays],
    }
    header = json.dumps(words).encode()
    pieces = [len(header).to_bytes(8, "little"), header]
    size = 8 + len(header)
    for _, _, values in arrays:
        gap = -size % _ALIGNED
        pieces += [bytes(gap), values.tobytes()]
        size += gap + values.nbytes
    return b"".join(pieces)


def points_from_bytes(data: bytes) -> tuple[Points, int | None]:
    """The points that such bytes hold, and what part they are of; nothing if there are none."""
    if not data:
        return {}, None
    # A copy that may be written to: kernels are compiled for such arrays only.
    buffer = bytearray(data)
    at = 8 + int.from_bytes(buffer[:8], "little")
    words = json.loads(bytes(buffer[8:at]))
    found: dict[str, dict[str, Any]] = {name: {} for name in words["points"]}
    for name, key, dtype, shape in words["arrays"]:
        at += -at % _ALIGNED
        count = int(np.prod(shape))
        values = np.frombuffer(buffer, dtype, count, at).reshape(shape)
        found[name][key] = values
        at += values.nbytes
    return {name: Point.from_arrays(arrays) for name, arrays in found.items()}, words["of"]
