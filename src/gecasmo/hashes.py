"""A fixed 64-bit hash of ids, the same on every machine, version and day.

Pages are put into 256 buckets by the hash of their query. Sums are taken bucket by bucket, in
order, so the number of threads (or of machines) never changes a bit of the answer.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.frames import WIDE

Hashes = NDArray[np.uint64]

_FNV_START = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x100000001B3)
# So few that what is worked on stays in the caches of a processor.
FEW, _ALL_BITS = 8, 2**64 - 1
TEXTS_AT_A_TIME = 1 << 16


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


def mixed(*numbers: int) -> int:
    """One integer of 64 bits from several, such as a seed and the numbers of a chain and a step."""
    found = 0
    for number in numbers:
        # As `mix` does, without an array for one number: samplers ask several times a sweep.
        x = ((found ^ (number & _ALL_BITS)) + 0x9E3779B97F4A7C15) & _ALL_BITS
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _ALL_BITS
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _ALL_BITS
        found = x ^ (x >> 31)
    return found


def hash_values(values: pl.Series) -> Hashes:
    """Hash distinct ids: integers by value, everything else by the bytes of its text."""
    if values.dtype.is_integer() and values.dtype not in WIDE:
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
    """FNV-1a over the UTF-8 bytes, of very many texts slice by slice."""
    hashes = np.empty(len(values), np.uint64)
    for start in range(0, len(values), TEXTS_AT_A_TIME):
        end = start + TEXTS_AT_A_TIME
        hashes[start:end] = _fnv(values[start:end].fill_null(""))
    return mix(hashes)


def _fnv(texts: pl.Series) -> Hashes:
    """FNV-1a, all texts at once, one byte position at a time; longest first, so all stay dense."""
    lengths = texts.str.len_bytes().to_numpy().astype(np.int64)
    longest_first = np.argsort(-lengths, kind="stable")
    data = np.frombuffer("".join(texts.to_list()).encode(), np.uint8)
    places = (np.cumsum(lengths) - lengths)[longest_first]
    # How many texts are longer than each position.
    longer = len(texts) - np.cumsum(np.bincount(lengths, minlength=1))
    ordered = np.full(len(texts), _FNV_START)
    many = longer[: int((longer > FEW).sum())]
    for still in many.tolist():
        ordered[:still] ^= data[places[:still]]
        ordered[:still] *= _FNV_PRIME
        places[:still] += 1
    # Of a few long texts, plain numbers are faster than arrays of so few.
    sizes = lengths[longest_first]
    for at in range(int((sizes > len(many)).sum())):
        value, start = int(ordered[at]), int(places[at])
        for byte in data[start : start + int(sizes[at]) - len(many)].tobytes():
            value = (value ^ byte) * int(_FNV_PRIME) & _ALL_BITS
        ordered[at] = value
    hashes = np.empty_like(ordered)
    hashes[longest_first] = ordered
    return hashes
