"""Rows on their way to partitions: written batch by batch, read bucket by bucket.

A batch is one file in which the rows of each bucket (the top bits of the hash) stand together, as
two compressed Arrow streams: the runs, and the results. A small file beside it says where.
"""

from __future__ import annotations

import io
import json
import os
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.logs.store.pieces import LENGTH, Integers, Piece
from gecasmo.logs.store.writing import telling_full_disk, write_json, write_whole


def bucket_of(hashes: NDArray[np.uint64], n_buckets: int) -> NDArray[np.uint16]:
    """The top bits of hashes: which of `n_buckets` (a power of two) they belong to."""
    bits = n_buckets.bit_length() - 1
    if bits == 0:
        return np.zeros(len(hashes), np.uint16)
    return (hashes >> np.uint64(64 - bits)).astype(np.uint16)


class Spill:
    """The spilled batches of one ingest.

    Parameters
    ----------
    folder
        Where they are.
    n_buckets
        Into how many buckets each is divided; a power of two.
    """

    def __init__(self, folder: Path, n_buckets: int) -> None:
        self.folder = folder
        self.n_buckets = n_buckets
        self._batches: list[_Batch] = []

    def open(self) -> list[dict[str, Any]]:
        """Find the batches that are whole; return what was said about them, in order."""
        self.folder.mkdir(exist_ok=True)
        said = []
        self._batches = []
        while (note := self._path(len(self._batches), "json")).exists():
            said.append(json.loads(note.read_text()))
            self._batches.append(self._batch(len(self._batches)))
        return said

    def clear(self) -> None:
        """Remove all batches."""
        for path in self.folder.glob("batch-*"):
            path.unlink()
        self._batches = []

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
        self._batches.append(_Batch(path, ends, rows))

    def read(self, first: int, last: int) -> tuple[pl.DataFrame, pl.DataFrame, Integers]:
        """Read the rows of buckets `first` to `last` (not included), in the order of the source.

        Returns
        -------
        runs, results : pl.DataFrame
        sizes : ndarray of int64
            How many results each batch has among them.
        """
        runs: list[pl.DataFrame] = []
        results: list[pl.DataFrame] = []
        for batch in self._batches:
            for found, frames in zip(batch.read(first, last), (runs, results), strict=True):
                frames += found
        sizes = np.array([int(batch.rows[first:last].sum()) for batch in self._batches], np.int64)
        if not runs:
            return *self._no_rows, sizes
        return pl.concat(runs, rechunk=True), pl.concat(results, rechunk=True), sizes

    @cached_property
    def _no_rows(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The columns of runs and results, for buckets that have none."""
        for batch in self._batches:
            for bucket in range(self.n_buckets):
                runs, results = batch.read(bucket, bucket + 1)
                if runs:
                    return runs[0].clear(), results[0].clear()
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

    def read(self, first: int, last: int) -> tuple[list[pl.DataFrame], list[pl.DataFrame]]:
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
        runs, results = [], []
        place = 0
        for bucket in range(first, last):
            middle, end = (int(each) - before for each in self.ends[bucket])
            if end > place:
                runs.append(pl.read_ipc_stream(data[place:middle]))
                results.append(pl.read_ipc_stream(data[middle:end]))
            place = end
        return runs, results


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
