"""A source as a stream of batches, in order, that can start in the middle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import polars as pl

from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Note

Place = dict[str, int]
Schema = dict[str, pl.DataType]


@dataclass(frozen=True)
class Segment:
    """Some rows of one file: which file, the first of the rows, and how many they are."""

    file: int
    first: int
    rows: int


@dataclass(frozen=True)
class Batch:
    """Some rows of a source.

    Attributes
    ----------
    content
        A part of a table, or a log that was read already.
    segments
        Where the rows come from, in order.
    place
        Where the next batch starts.
    notes
        What a reader met in it.
    """

    content: pl.DataFrame | ClickLog
    segments: tuple[Segment, ...]
    place: Place
    notes: tuple[Note, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows (of a table) or results (of a log) it has."""
        return sum(segment.rows for segment in self.segments)


class Source(Protocol):
    """What can be read batch by batch.

    Attributes
    ----------
    label
        How messages call all of it.
    files
        What its files (or parts) are called.
    can_resume
        Whether it can be read again from a place, and is then the same.
    """

    label: str
    files: Sequence[str]
    can_resume: bool

    def schema(self) -> Schema | None:
        """The columns of a table, and their data types; None for logs that are read already."""

    def n_rows(self) -> int | None:
        """How many rows there are, as far as can be told beforehand."""

    def batches(self, columns: Sequence[str], rows: int, after: Place | None) -> Iterator[Batch]:
        """Read columns in batches of about so many rows, from a place on."""


def joined(parts: Iterable[Batch], rows: int) -> Iterator[Batch]:
    """Put small batches together, so that many small files do not make many small batches."""
    waiting: list[Batch] = []
    for part in parts:
        waiting.append(part)
        if sum(each.rows for each in waiting) >= rows:
            yield _one(waiting)
            waiting = []
    if waiting:
        yield _one(waiting)


def _one(parts: list[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    frames: list[Any] = [part.content for part in parts]
    segments = tuple(segment for part in parts for segment in part.segments)
    return Batch(pl.concat(frames), segments, parts[-1].place)
