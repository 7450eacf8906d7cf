"""Hashes of texts are those of the definition: files that were written stay readable."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecasmo import hashes as hashing
from gecasmo.hashes import hash_values

ALL_BITS = (1 << 64) - 1


def by_definition(text: str | None) -> int:
    """FNV-1a over the bytes, then splitmix64, a byte after the other."""
    x = 0xCBF29CE484222325
    for byte in (text or "").encode():
        x = (x ^ byte) * 0x100000001B3 & ALL_BITS
    x = (x + 0x9E3779B97F4A7C15) & ALL_BITS
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & ALL_BITS
    x = (x ^ x >> 27) * 0x94D049BB133111EB & ALL_BITS
    return x ^ x >> 31


def in_a_loop(values: pl.Series) -> np.ndarray:
    """How texts were hashed before it was made faster."""
    encoded = [(text or "").encode() for text in values.to_list()]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    data = np.frombuffer(b"".join(encoded) or b"\0", np.uint8).astype(np.uint64)
    offsets = np.cumsum(lengths) - lengths
    hashes = np.full(len(encoded), np.uint64(0xCBF29CE484222325))
    for position in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths > position)
        hashes[rows] = (hashes[rows] ^ data[offsets[rows] + position]) * np.uint64(0x100000001B3)
    return hashing.mix(hashes)


KNOWN = [
    14087677454934409008,
    6857225946766476583,
    6909186322291966192,
    7635414027860397358,
    14087677454934409008,
]
TEXTS = st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20))


@settings(deadline=None)
@given(texts=TEXTS, at_a_time=st.integers(1, 8))
def test_texts_are_hashed_as_defined(texts: list[str | None], at_a_time: int) -> None:
    values = pl.Series(texts, dtype=pl.String)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hashing, "TEXTS_AT_A_TIME", at_a_time)
        found = hash_values(values)
    assert found.dtype == np.uint64
    assert found.tolist() == [by_definition(text) for text in texts] == in_a_loop(values).tolist()
    assert hash_values(values).tolist() == found.tolist()


def test_known_hashes() -> None:
    """Written down once; they may never change."""
    values = pl.Series(["", "a", "query number 7", "Zürich 東京", None])
    assert hash_values(values).tolist() == KNOWN
    assert hash_values(values.cast(pl.Categorical)).tolist() == KNOWN
