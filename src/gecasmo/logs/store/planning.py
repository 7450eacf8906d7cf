"""How much is read at a time, and into how many parts a log is divided, so that memory suffices."""

from __future__ import annotations

import os

import polars as pl

from gecasmo.logs.store.batches import Schema
from gecasmo.logs.store.options import MOST_PARTITIONS

# Partitions that are put together at the same time.
N_WORKERS = min(os.cpu_count() or 1, 2)
# Shares of the memory that was granted. While reading there are several copies of a batch (read
# ahead, in order of buckets, compressed); while writing, several partitions are put together at
# once.
SHARE_OF_A_BATCH = 1 / 24
SHARE_OF_A_PARTITION = 1 / 10
# What the checks and the order take for each result, beside several copies of its columns.
BYTES_OF_A_RESULT = 100
COPIES = 3
FEWEST_BUCKETS, MOST_BUCKETS = 16, 4096
BUCKETS_OF_UNKNOWN = 1024
_TEXT_BYTES, _LIST_LENGTH = 40, 10


def bytes_of_row(schema: Schema) -> int:
    """About how much memory a row of a table takes."""
    return max(sum(_bytes_of(dtype) for dtype in schema.values()), 1)


def _bytes_of(dtype: pl.DataType) -> int:
    if isinstance(dtype, pl.List | pl.Array):
        inner = dtype.inner
        return 8 + _LIST_LENGTH * _bytes_of(inner() if isinstance(inner, type) else inner)
    if isinstance(dtype, pl.Struct):
        fields = (f.dtype() if isinstance(f.dtype, type) else f.dtype for f in dtype.fields)
        return sum(map(_bytes_of, fields))
    if dtype.is_numeric() or dtype.is_temporal() or dtype == pl.Boolean:
        return 8
    return _TEXT_BYTES


def batch_rows(schema: Schema, memory: int) -> int:
    """How many rows of a table are read at a time."""
    return int(min(max(memory * SHARE_OF_A_BATCH / bytes_of_row(schema), 1000), 5_000_000))


def partitions_for(n_results: int, n_bytes: int, memory: int) -> int:
    """How many partitions it takes until each can be put together in its share of the memory.

    Parameters
    ----------
    n_results
        Results of the whole log.
    n_bytes
        What their columns take in memory.
    memory
        What was granted, in bytes.

    Returns
    -------
    int
        A power of two.
    """
    need = BYTES_OF_A_RESULT * n_results + COPIES * n_bytes
    return min(power_of_two(need / (memory * SHARE_OF_A_PARTITION)), MOST_PARTITIONS)


def buckets_for(n_rows: int | None, schema: Schema | None, nested: bool, memory: int) -> int:
    """Into how many buckets batches are divided, before all is known about the log."""
    if n_rows is None or schema is None:
        return BUCKETS_OF_UNKNOWN
    n_results = n_rows * (_LIST_LENGTH if nested else 1)
    expected = partitions_for(n_results, n_rows * bytes_of_row(schema), memory)
    return min(max(expected, FEWEST_BUCKETS), MOST_BUCKETS)


def power_of_two(number: float) -> int:
    """The smallest power of two that is not below a number."""
    power = 1
    while power < number:
        power *= 2
    return power


def chunk_bytes(memory: int) -> int:
    """How many bytes of a text file are read at a time; columns take several times as much."""
    return int(min(max(memory / 64, 1 << 16), 64 << 20))


def most_rows(n_results: int, n_bytes: int, memory: int) -> int:
    """How many results may be put together at once; twice the share, as hashes are not even."""
    each = BYTES_OF_A_RESULT + COPIES * n_bytes / max(n_results, 1)
    return max(int(2 * memory * SHARE_OF_A_PARTITION / each), 1)
