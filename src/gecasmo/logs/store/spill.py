"""Rows on their way to partitions: written batch by batch, read bucket by bucket.

A batch is one file in which the rows of each bucket (the top bits of the hash) stand together, as
two compressed Arrow streams: the runs, and the results. A small file beside it says where.

The rows of a partition are read in several shares where they are too many to be in memory at once:
all pages of a query are in one partition, and a query can have a tenth of a log.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.logs.store.disk import sync_folder, telling_full_disk, write_json, write_whole
from gecasmo.logs.store.pieces import LENGTH, Integers, Piece, hash_of_runs
from gecasmo.logs.store.plan import Layout


def bucket_of(hashes: NDArray[np.uint64], n_buckets: int) -> NDArray[np.uint16]:
    """The top bits of hashes: which of `n_buckets` (a power of two) they belong to."""
    bits = n_buckets.bit_length() - 1
    if bits == 0:
        return np.zeros(len(hashes), np.uint16)
    return (hashes >> np.uint64(64 - bits)).astype(np.uint16)


def spread(buckets: Integers) -> list[int]:
    """Buckets in an order in which any first few are far from each other."""
    return sorted(buckets.tolist(), key=lambda bucket: f"{bucket:016b}"[::-1])


Chosen = Callable[[pl.DataFrame], Integers]
_NOWHERE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Spilled:
    """Rows of some buckets.

    Attributes
    ----------
    runs, results
        The rows.
    order
        The place of each run among all runs of these buckets.
    rows
        The place of each result among all results of these buckets; None when all are here.
    sizes
        How many results of these buckets each batch has.
    """

    runs: pl.DataFrame
    results: pl.DataFrame
    order: Integers
    rows: Integers | None
    sizes: Integers


class Spill:
    """The spilled batches of one ingest.

    Parameters
    ----------
    folder
        Where they are.
    n_buckets
        Into how many buckets each is divided; a power of two.

    Attributes
    ----------
    said
        What was said about each batch.
    """

    def __init__(self, folder: Path, n_buckets: int) -> None:
        self.folder = folder
        self.n_buckets = n_buckets
        self.said: list[dict[str, Any]] = []
        self._batches: list[_Batch] = []

    def open(self) -> None:
        """Find the batches that are whole."""
        self.folder.mkdir(exist_ok=True)
        self.said, self._batches = [], []
        while (note := self._path(len(self._batches), "json")).exists():
            self.said.append(json.loads(note.read_text()))
            self._batches.append(self._batch(len(self._batches)))

    def clear(self) -> None:
        """Remove all batches; whenever this is cut short, those that are left are whole."""
        for path in sorted(self.folder.glob("batch-*.json"), reverse=True):
            path.unlink()
        sync_folder(self.folder)
        for path in self.folder.glob("batch-*"):
            path.unlink()
        self.said, self._batches = [], []

    def __len__(self) -> int:
        return len(self._batches)

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

    def filled(self) -> Integers:
        """The buckets that have any page, also one without results."""
        total = np.zeros(self.n_buckets, np.int64)
        for batch in self._batches:
            total += np.diff(batch.ends[:, 1], prepend=0)
        return np.flatnonzero(total)

    def add(self, piece: Piece, said: dict[str, Any], workers: Executor) -> None:
        """Write a batch; it counts once what is said about it is written, too.

        Parameters
        ----------
        piece
            The rows.
        said
            What a later process needs to know to go on after this batch.
        workers
            Threads that compress.
        """
        number = len(self._batches)
        blobs, rows = self._blobs(piece, workers)
        ends = np.zeros((self.n_buckets, 2), np.int64)
        path = self._path(number, "spill")
        with telling_full_disk(path), path.open("wb") as file:
            place = 0
            for bucket in range(self.n_buckets):
                for which, blob in enumerate(blobs.get(bucket, (b"", b""))):
                    file.write(blob)
                    place += len(blob)
                    ends[bucket, which] = place
            file.flush()
            os.fsync(file.fileno())
        index = io.BytesIO()
        np.save(index, np.column_stack([ends, rows]))
        write_whole(self._path(number, "npy"), index.getvalue())
        write_json(self._path(number, "json"), said)
        self.said.append(said)
        self._batches.append(_Batch(path, ends, rows))

    def read(self, first: int, last: int, chosen: Chosen | None = None) -> Spilled:
        """Read rows of buckets `first` to `last` (not included), in the order of the source.

        Parameters
        ----------
        first, last
            The buckets.
        chosen
            Says which of some runs are wanted; None for all.
        """
        runs: list[pl.DataFrame] = []
        results: list[pl.DataFrame] = []
        order: list[Integers] = []
        rows: list[Integers] = []
        n_runs = n_rows = 0
        for batch in self._batches:
            for some, their in batch.read(first, last):
                lengths = some[LENGTH].to_numpy().astype(np.int64)
                wanted = np.arange(some.height) if chosen is None else chosen(some)
                picked = slice(None) if chosen is None else rows_of_runs(lengths, wanted)
                if len(wanted):
                    runs.append(some[wanted] if chosen else some)
                    results.append(their[picked] if chosen else their)
                    order.append(n_runs + wanted)
                    rows.append(n_rows + np.arange(their.height)[picked] if chosen else _NOWHERE)
                n_runs, n_rows = n_runs + some.height, n_rows + their.height
        sizes = np.array([int(batch.rows[first:last].sum()) for batch in self._batches], np.int64)
        no_runs, no_results = self._no_rows
        return Spilled(
            pl.concat([no_runs, *runs], rechunk=True),
            pl.concat([no_results, *results], rechunk=True),
            np.concatenate([_NOWHERE, *order]),
            None if chosen is None else np.concatenate([_NOWHERE, *rows]),
            sizes,
        )

    def count(self, first: int, last: int, chosen: Chosen) -> int:
        """How many results the chosen runs of some buckets have."""
        total = 0
        for batch in self._batches:
            for some, _ in batch.read(first, last, only_runs=True):
                total += int(some[LENGTH].gather(chosen(some)).sum())
        return total

    @cached_property
    def _no_rows(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The columns of runs and results, for buckets that have none."""
        for batch in self._batches:
            for bucket in range(self.n_buckets):
                for runs, results in batch.read(bucket, bucket + 1):
                    return runs.clear(), results.clear()
        raise ClickLogError("There are no rows.")

    def _blobs(
        self, piece: Piece, workers: Executor
    ) -> tuple[dict[int, tuple[bytes, bytes]], Integers]:
        buckets = bucket_of(piece.hashes, self.n_buckets)
        order = np.argsort(buckets, kind="stable")
        lengths = piece.lengths[order]
        runs = piece.runs.with_columns(pl.Series(LENGTH, piece.lengths.astype(np.uint32)))
        runs = runs[order]
        results = piece.results[rows_of_runs(piece.lengths, order)]
        run_ends = np.cumsum(np.bincount(buckets, minlength=self.n_buckets))
        row_ends = np.concatenate([[0], np.cumsum(lengths)])[run_ends]
        run_starts = np.concatenate([[0], run_ends[:-1]])
        row_starts = np.concatenate([[0], row_ends[:-1]])
        filled = np.flatnonzero(run_ends > run_starts)

        def packed(bucket: int) -> tuple[bytes, bytes]:
            run, row = slice(run_starts[bucket], run_ends[bucket]), row_starts[bucket]
            return _stream(runs[run]), _stream(results[row : row_ends[bucket]])

        blobs = dict(zip(filled.tolist(), workers.map(packed, filled.tolist()), strict=True))
        return blobs, row_ends - row_starts

    def _path(self, number: int, ending: str) -> Path:
        return self.folder / f"batch-{number:06}.{ending}"

    def _batch(self, number: int) -> _Batch:
        index = np.load(self._path(number, "npy"), allow_pickle=False)
        return _Batch(self._path(number, "spill"), index[:, :2], index[:, 2])


@dataclass(frozen=True)
class _Batch:
    path: Path
    ends: Integers
    rows: Integers

    def read(
        self, first: int, last: int, only_runs: bool = False
    ) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
        """The runs and results of each of some buckets that has any."""
        before = int(self.ends[first - 1, 1]) if first else 0
        size = int(self.ends[last - 1, 1]) - before
        with self.path.open("rb") as file:
            file.seek(before)
            data = file.read(size)
        if len(data) < size:
            raise ClickLogError(
                f"{self.path} is shorter than it was; remove {self.path.parent.parent} and start "
                "again."
            )
        place = 0
        for bucket in range(first, last):
            middle, end = (int(each) - before for each in self.ends[bucket])
            if end > place:
                results = pl.DataFrame() if only_runs else pl.read_ipc_stream(data[middle:end])
                yield pl.read_ipc_stream(data[place:middle]), results
            place = end


def _stream(frame: pl.DataFrame) -> bytes:
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer, compression="lz4")
    return buffer.getvalue()


def rows_of_runs(lengths: Integers, order: Integers) -> Integers:
    """The rows of runs in another order."""
    starts = np.cumsum(lengths) - lengths
    picked = lengths[order]
    ends = np.cumsum(picked)
    shift = np.repeat(starts[order] - (ends - picked), picked)
    return shift + np.arange(int(ends[-1]) if len(ends) else 0)


class Shares:
    """The shares of one partition; each has whole pages.

    Parameters
    ----------
    spill
        The rows of all partitions.
    layout
        Which columns they have.
    partition, n_partitions
        Which partition, of how many.
    most_rows
        How many results a share has at most, about.
    """

    def __init__(
        self, spill: Spill, layout: Layout, partition: int, n_partitions: int, most_rows: int
    ) -> None:
        self._spill, self._layout = spill, layout
        self._partition, self._n_partitions = partition, n_partitions
        self.first = partition * spill.n_buckets // n_partitions
        self.last = max((partition + 1) * spill.n_buckets // n_partitions, self.first + 1)
        self._is_shared = n_partitions > spill.n_buckets
        if self._is_shared:
            rows = spill.count(self.first, self.last, self._mine)
        else:
            rows = int(spill.rows()[self.first : self.last].sum())
        self.number = max(-(-rows // most_rows), 1)

    def read(self, share: int) -> Spilled:
        """Read the rows of one share, in the order of the source."""
        if self.number == 1:
            return self._spill.read(self.first, self.last, self._mine if self._is_shared else None)
        return self._spill.read(self.first, self.last, lambda runs: self._of_share(runs, share))

    def _mine(self, runs: pl.DataFrame) -> Integers:
        """The runs of this partition, of those in buckets that it shares with others."""
        if not self._is_shared:
            return np.arange(runs.height)
        key = runs["query" if self._layout.has_query else "session"]
        return np.flatnonzero(bucket_of(hash_of_runs(key), self._n_partitions) == self._partition)

    def _of_share(self, runs: pl.DataFrame, share: int) -> Integers:
        mine = self._mine(runs)
        if "session" in runs.columns:
            # The rows of a page may be anywhere; its id says where they meet.
            chance = runs["session"].gather(mine).hash(seed=1).to_numpy()
        else:
            chance = mine.astype(np.uint64)
        chosen: Integers = mine[chance % np.uint64(self.number) == share]
        return chosen
