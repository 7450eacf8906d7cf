"""The points of a part as bytes, which Spark keeps between passes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from gecasmo.estimation.parts.part import Point, Points

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
