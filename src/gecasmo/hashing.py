"""A fixed 64-bit hash of ids, the same on every machine, version and day.

Pages are put into 256 buckets by the hash of their query. Sums are taken bucket by bucket, in
order, so the number of threads (or of machines) never changes a bit of the answer.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

_FNV_START = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)


def mix(values: NDArray[np.integer]) -> Hashes:
    """Spread integers over 64 bits (the finaliser of splitmix64)."""
    x = values.astype(np.uint64, copy=True)
    x += np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def hash_values(values: pl.Series) -> Hashes:
    """Hash distinct ids: integers by value, everything else by the bytes of its text."""
    if values.dtype.is_integer() and values.dtype not in (pl.Int128, pl.UInt128):
        return mix(values.fill_null(0).to_numpy().astype(np.uint64))
    if values.dtype.is_temporal():
        return hash_values(values.to_physical())
    if values.dtype == pl.Struct:
        combined = np.zeros(len(values), np.uint64)
        for field in values.struct.fields:
            combined = mix(combined ^ hash_values(values.struct.field(field)))
        return combined
    return _hash_texts(values.cast(pl.String))


def _hash_texts(values: pl.Series) -> Hashes:
    """FNV-1a over the UTF-8 bytes, all texts at once, one byte position at a time."""
    encoded = [(text or "").encode() for text in values.to_list()]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    data = np.frombuffer(b"".join(encoded) or b"\0", np.uint8).astype(np.uint64)
    offsets = np.cumsum(lengths) - lengths
    hashes = np.full(len(encoded), _FNV_START)
    active = np.argsort(-lengths, kind="stable")
    still = len(encoded)
    ordered = lengths[active]
    for position in range(int(lengths.max(initial=0))):
        still = int(np.searchsorted(-ordered, -position, side="left"))
        rows = active[:still]
        hashes[rows] = (hashes[rows] ^ data[offsets[rows] + position]) * _FNV_PRIME
    return mix(hashes)
