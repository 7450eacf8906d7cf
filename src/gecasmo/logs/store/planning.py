"""How much is read at a time, and into how many parts a log is divided, so that memory suffices."""

from __future__ import annotations

import os

import polars as pl

from gecasmo.errors import GecasmoWarning, tell
from gecasmo.logs.store.batches import Schema
from gecasmo.logs.store.options import MOST_PARTITIONS
from gecasmo.logs.store.sizes import in_bytes

# Partitions that are put together at the same time.
N_WORKERS = min(os.cpu_count() or 1, 2)
# What is there whatever the amount: the caches of allocators, one a thread, and what is too small
# to be counted.
FIXED_BYTES = 38 * 10**6
# Shares of the rest of the memory that was granted. While reading there are several copies of a
# batch (read ahead, in order of buckets, compressed); while writing, several partitions are put
# together at once.
SHARE_OF_A_BATCH = 1 / 13
SHARE_OF_A_PARTITION = 1 / 6
MOST_OF_A_PARTITION = 1 / 3  # hashes are not even
# What the checks and the order take for each result, beside several copies of its columns.
BYTES_OF_A_RESULT = 100
COPIES = 3
# What it takes, at the most, while the shares of a partition are put together.
BYTES_OF_A_SMALL_RESULT = 30
FEWEST_BUCKETS, MOST_BUCKETS = 16, 4096
BUCKETS_OF_UNKNOWN = 1024
_TEXT_BYTES, _LIST_LENGTH = 40, 10


def shared(memory: int) -> int:
    """What is left of the memory for rows."""
    return max(memory - FIXED_BYTES, memory // 4)


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
    return int(min(max(shared(memory) * SHARE_OF_A_BATCH / bytes_of_row(schema), 1000), 5_000_000))


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
    return min(power_of_two(need / (shared(memory) * SHARE_OF_A_PARTITION)), MOST_PARTITIONS)


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


def warn_of_row_groups(name: str, needed: int, memory: int) -> None:
    """Tell that reading one row group takes too much, since it cannot be read in part."""
    if needed > memory // 2:
        tell(
            f"{name}: reading a row group of it takes about {in_bytes(needed)}, so more than "
            f"memory={in_bytes(memory)} will be used. To stay within it, grant "
            f"{in_bytes(2 * needed)} or write the file with smaller row groups.",
            GecasmoWarning,
        )


def warn_of_partitions(largest: int, memory: int, chosen: int | None) -> None:
    """Tell that the largest partition takes too much.

    That is one query with very many pages, unless the number of partitions was chosen.
    """
    beside = int(shared(memory) * SHARE_OF_A_PARTITION)  # what another worker does meanwhile
    needed = FIXED_BYTES + beside + largest * BYTES_OF_A_SMALL_RESULT
    if needed > memory:
        why, advice = "since all pages of a query are in one", ""
        if chosen is not None:
            why = f"with partitions={chosen}"
            advice = " Ask for more partitions, or leave their number open."
        tell(
            f"A partition has {largest:,} results, {why}; to put it together takes about "
            f"{in_bytes(needed)}, more than memory={in_bytes(memory)}.{advice}",
            GecasmoWarning,
        )


def chunk_bytes(memory: int) -> int:
    """How many bytes of a text file are read at a time; columns take several times as much."""
    return int(min(max(memory / 64, 1 << 16), 64 << 20))


def most_rows(n_results: int, n_bytes: int, memory: int) -> int:
    """How many results may be put together at once."""
    each = BYTES_OF_A_RESULT + COPIES * n_bytes / max(n_results, 1)
    return max(int(shared(memory) * MOST_OF_A_PARTITION / each), 1)
