"""The shuffle: runs are written batch by batch, and read partition by partition.

A batch is one file in which the runs of each bucket (the top bits of the hash) stand together, as
two compressed Arrow streams: heads and results. A small file beside it says where, and what a later
process needs to go on after this batch.
"""

from __future__ import annotations

import io
import json
import os
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.files import synced
from gecasmo.logs.runs import Bools, Integers, offsets
from gecasmo.logs.store.disk import telling_full_disk, write_json
from gecasmo.logs.store.page_runs import LENGTH, ROW, PageRuns, hash_ids, joined_runs

Chosen = Callable[[pl.DataFrame], Bools]


def bucket_of(hashes: NDArray[np.uint64], n_buckets: int) -> NDArray[np.uint16]:
    """The top bits of hashes: which of `n_buckets` (a power of two) they belong to."""
    bits = n_buckets.bit_length() - 1
    if bits == 0:
        return np.zeros(len(hashes), np.uint16)
    return (hashes >> np.uint64(64 - bits)).astype(np.uint16)


class Shuffle:
    """The batches of one ingest, each divided into `n_buckets`, a power of two.

    `key` is the column of heads whose hash decides about the bucket; `said` has what was said
    about each batch.
    """

    def __init__(self, folder: Path, n_buckets: int, key: str) -> None:
        self.folder, self.n_buckets, self.key = folder, n_buckets, key
        self.folder.mkdir(exist_ok=True)
        self.said: list[dict[str, Any]] = []
        self._batches: list[_BatchFile] = []
        # What an earlier process has written, as far as it is whole.
        while (note := self._path("json")).exists() and (spill := self._path("spill")).exists():
            said = json.loads(note.read_text(encoding="utf-8"))
            index = np.array(said.pop("index"), np.int64)
            if _checksum(spill) != said["crc32"]:
                break
            self._batches.append(_BatchFile(spill, index))
            self.said.append(said)

    def __len__(self) -> int:
        return len(self._batches)

    def _path(self, ending: str) -> Path:
        """A file of the next batch."""
        return self.folder / f"batch-{len(self._batches):06}.{ending}"

    def clear(self) -> None:
        """Remove all batches; whenever this is cut short, those that are left are whole."""
        for path in sorted(self.folder.glob("batch-*.json"), reverse=True):
            path.unlink()
        synced(self.folder)
        for path in self.folder.glob("batch-*"):
            path.unlink()
        self.said, self._batches = [], []

    @property
    def size(self) -> int:
        """What the batches take on the disk, in bytes."""
        return sum(int(batch.ends[-1, 1]) for batch in self._batches)

    def rows(self) -> Integers:
        """How many results each bucket has."""
        total = np.zeros(self.n_buckets, np.int64)
        for batch in self._batches:
            total += batch.rows
        return total

    def sampled(self) -> list[int]:
        """The buckets with any page, in an order in which any first few are far from each other."""
        sizes = np.sum([np.diff(b.ends[:, 1], prepend=0) for b in self._batches], axis=0)
        filled: list[int] = np.flatnonzero(sizes).tolist()
        return sorted(filled, key=lambda bucket: f"{bucket:016b}"[::-1])

    def add(self, runs: PageRuns, said: dict[str, Any], workers: Executor) -> None:
        """Write a batch; it counts once what is said about it is written, too."""
        buckets = bucket_of(hash_ids(runs.heads[self.key]), self.n_buckets)
        runs = runs.take(np.argsort(buckets, kind="stable"))
        at_run = offsets(np.bincount(buckets, minlength=self.n_buckets))
        at_row = offsets(runs.lengths)[at_run]

        def packed(bucket: int) -> tuple[bytes, bytes]:
            heads = runs.heads[at_run[bucket] : at_run[bucket + 1]]
            if not heads.height:
                return b"", b""
            return _stream(heads), _stream(runs.results[at_row[bucket] : at_row[bucket + 1]])

        index = np.zeros((self.n_buckets, 3), np.int64)
        index[:, 2] = np.diff(at_row)
        path, checksum = self._path("spill"), 0
        with telling_full_disk(path), path.open("wb") as file:
            for bucket, blobs in enumerate(workers.map(packed, range(self.n_buckets))):
                for which, blob in enumerate(blobs):
                    file.write(blob)
                    checksum = zlib.crc32(blob, checksum)
                    index[bucket, which] = file.tell()
            file.flush()
            os.fsync(file.fileno())
        said = {**said, "crc32": checksum}
        write_json(self._path("json"), {**said, "index": index.tolist()})
        self.said.append(said)
        self._batches.append(_BatchFile(path, index))

    def partition(self, number: int, n_partitions: int, most_rows: int) -> Iterator[PageRuns]:
        """Read a partition, in the order of the source.

        All pages of a query are in one partition, and a query can have a tenth of a log: then its
        runs come in several parts, each with whole pages and about `most_rows` results at most.
        """
        first = number * self.n_buckets // n_partitions
        last = max((number + 1) * self.n_buckets // n_partitions, first + 1)
        n_rows = sum(int(batch.rows[first:last].sum()) for batch in self._batches)
        is_mine: Chosen | None = None
        if n_partitions > self.n_buckets:
            is_mine = partial(_is_of_partition, self.key, number, n_partitions)
            n_rows = self._count(first, last, is_mine)
        n_parts = max(-(-n_rows // most_rows), 1)
        for part in range(n_parts):
            is_chosen = is_mine if n_parts == 1 else partial(_is_of_part, part, n_parts, is_mine)
            yield self._read(first, last, is_chosen)

    def _read(self, first: int, last: int, is_chosen: Chosen | None) -> PageRuns:
        """The chosen runs of buckets `first` to `last` (not included)."""
        found = [self.no_runs]
        for batch in self._batches:
            for runs in batch.read(first, last):
                if is_chosen is None:
                    found.append(runs)
                elif len(chosen := np.flatnonzero(is_chosen(runs.heads))):
                    found.append(runs.take(chosen))
        return joined_runs(found)

    def _count(self, first: int, last: int, is_chosen: Chosen) -> int:
        """How many results the chosen runs of some buckets have."""
        return sum(
            int(runs.heads[LENGTH].filter(pl.Series(is_chosen(runs.heads))).sum())
            for batch in self._batches
            for runs in batch.read(first, last, only_heads=True)
        )

    @cached_property
    def no_runs(self) -> PageRuns:
        """The columns of runs, for buckets that have none."""
        for batch in self._batches:
            for bucket in range(self.n_buckets):
                for runs in batch.read(bucket, bucket + 1):
                    return PageRuns(runs.heads.clear(), runs.results.clear())
        raise ClickLogError("There are no rows.")


def _is_of_partition(key: str, number: int, n_partitions: int, heads: pl.DataFrame) -> Bools:
    return np.asarray(bucket_of(hash_ids(heads[key]), n_partitions) == number)


def _is_of_part(part: int, n_parts: int, is_mine: Chosen | None, heads: pl.DataFrame) -> Bools:
    if "session" in heads.columns:
        # The rows of a page may be anywhere; its id says where they meet.
        chance = heads["session"].hash(seed=1).to_numpy()
    else:
        chance = heads[ROW].to_numpy().astype(np.uint64)
    found = np.asarray(chance % np.uint64(n_parts) == part)
    return found if is_mine is None else found & is_mine(heads)


@dataclass(frozen=True)
class _BatchFile:
    """A batch on disk; a row of the index tells where heads and results of a bucket end, and the
    number of its results."""

    path: Path
    index: Integers

    @property
    def ends(self) -> Integers:
        return self.index[:, :2]

    @property
    def rows(self) -> Integers:
        return self.index[:, 2]

    def read(self, first: int, last: int, only_heads: bool = False) -> Iterator[PageRuns]:
        """The runs of each of some buckets that has any."""
        before = int(self.ends[first - 1, 1]) if first else 0
        size = int(self.ends[last - 1, 1]) - before
        with self.path.open("rb") as file:
            file.seek(before)
            data = file.read(size)
        place = 0
        for bucket in range(first, last):
            middle, end = (int(each) - before for each in self.ends[bucket])
            if end > place:
                results = pl.DataFrame() if only_heads else pl.read_ipc_stream(data[middle:end])
                yield PageRuns(pl.read_ipc_stream(data[place:middle]), results)
            place = end


def _checksum(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            found = zlib.crc32(data, found)
    return found


def _stream(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer, compression="lz4")
    return buffer.getvalue()
