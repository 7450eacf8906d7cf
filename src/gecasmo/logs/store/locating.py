"""Finding the row of a source again that a spilled row came from; only faults need it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gecasmo.logs.store.batches import Batch, Segment, Source
from gecasmo.logs.store.pieces import Integers, Piece
from gecasmo.logs.store.spill import bucket_of, rows_of_runs


def row_name(segments: tuple[Segment, ...], row: int, source: Source) -> str:
    """Name a row of a batch, by its file where there are several."""
    for segment in segments:
        if row < segment.rows:
            break
        row -= segment.rows
    where = f"row {segment.first + row}"
    return f"{where} of {source.files[segment.file]}" if len(source.files) > 1 else where


@dataclass(frozen=True)
class Locator:
    """Knows how rows came into the spill.

    Attributes
    ----------
    source
        The source, which is read again where that is possible.
    plan
        The plan of the ingest.
    said
        What was said about each batch.
    piece
        Makes a piece of a batch, as it was made for the spill.
    nested
        Whether a row of the source is a page.
    """

    source: Source
    plan: dict[str, Any]
    said: list[dict[str, Any]]
    piece: Callable[[Batch], Piece]
    nested: bool

    def name(self, sizes: Integers, first: int, last: int, row: int) -> str:
        """Name the row of the source that a row of some buckets came from.

        Parameters
        ----------
        sizes
            How many rows of these buckets each batch has.
        first, last
            The buckets.
        row
            Which of their rows.
        """
        ends = np.cumsum(sizes)
        number = int(np.searchsorted(ends, row, side="right"))
        nth = row - int(ends[number] - sizes[number])
        segments = tuple(Segment(*each) for each in self.said[number]["segments"])
        if not self.source.can_resume:
            rows = sum(segment.rows for segment in segments)
            begin = row_name(segments, 0, self.source)
            return f"one of {rows:,} rows from {begin} on"
        after = self.said[number - 1]["place"] if number else None
        stream = self.source.batches(self.plan["columns"], self.plan["batch_rows"], after)
        batch = next(iter(stream))
        return row_name(segments, self._row(self.piece(batch), first, last, nth), self.source)

    def _row(self, piece: Piece, first: int, last: int, nth: int) -> int:
        buckets = bucket_of(piece.hashes, self.plan["buckets"])
        runs = np.flatnonzero((buckets >= first) & (buckets < last))
        runs = runs[np.argsort(buckets[runs], kind="stable")]
        row = int(rows_of_runs(piece.lengths, runs)[nth])
        if not self.nested:
            return row
        return int(np.searchsorted(np.cumsum(piece.lengths), row, side="right"))
