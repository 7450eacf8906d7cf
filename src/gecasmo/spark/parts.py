"""From a Spark data frame to parts of a fit: one shuffle, then everything stays where it is."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from gecasmo.errors import ClickLogError, ClickLogWarning
from gecasmo.estimation.parts.shared_rows import SharedRows
from gecasmo.logs.notes import Note, in_one_message
from gecasmo.spark.running import Answers, SparkParts, one_by_one
from gecasmo.spark.source import Source
from gecasmo.spark.telling import hearing, quiet, telling
from gecasmo.spark.working import Job, Made, make_part, place_part


@dataclass(frozen=True)
class Prepared:
    """Parts on executors, and what was heard of them."""

    parts: SparkParts
    pieces: Any
    made: Sequence[Made]
    shared: dict[int, SharedRows]
    sent: tuple[Any, ...]

    def close(self) -> None:
        """Let go of everything that Spark keeps."""
        self.parts.close()
        for sent in self.sent:
            sent.destroy()


def prepare(source: Source, job: Job, names: Sequence[str], checkpoint_every: int) -> Prepared:
    """Cut a data frame into parts, once and for all."""
    from pyspark import StorageLevel

    context = source.frame.sparkSession.sparkContext
    heard = context.accumulator({}, Answers())
    first = context.broadcast(job)

    def make(number: int, pieces: Any) -> Any:
        data, made = telling(make_part)(first.value, number, pieces)
        heard.add({number: made})
        yield data

    pieces = source.pieces()
    keys = one_by_one(pieces.mapPartitionsWithIndex(make))
    keys.persist(StorageLevel.DISK_ONLY)
    try:
        with hearing(), quiet():
            keys._jrdd.count()
    except BaseException:
        keys.unpersist()
        raise
    n_parts = source.reading.n_parts
    made = [heard.value[number] for number in range(n_parts)]
    heard.value = {}
    there = [part for part in made if part is not None]
    if not there:
        raise ClickLogError("There is nothing to fit: the log has no results.")
    tell_notes([part.notes for part in there])

    shared = {
        number: SharedRows(name) for number, name in enumerate(names) if number not in job.local
    }
    index = [
        {} if part is None else {coin: shared[coin].add(rows) for coin, rows in part.shared.items()}
        for part in made
    ]
    placed = replace(job, n_rows={n: len(rows.rows()) for n, rows in shared.items()})
    places = one_by_one(context.parallelize(index, n_parts))

    def place(pairs: Any) -> Any:
        for data, own in pairs:
            yield place_part(data, own)

    parts = one_by_one(keys.zip(places).mapPartitions(place))
    parts.persist(StorageLevel.MEMORY_AND_DISK)
    spark_parts = SparkParts(parts, keys, placed, checkpoint_every)
    return Prepared(spark_parts, pieces, there, shared, (first,))


def tell_notes(by_part: Sequence[Sequence[Note]]) -> None:
    """One warning with what was met in all partitions."""
    counts: dict[str, int] = {}
    first: dict[str, Note] = {}
    for notes in by_part:
        for note in notes:
            counts[note.kind] = counts.get(note.kind, 0) + note.count
            first.setdefault(note.kind, note)
    if not first:
        return
    merged = [
        replace(
            note,
            count=counts[kind],
            what=note.what.replace(f": {note.count:,} (", f": {counts[kind]:,} (", 1),
        )
        for kind, note in first.items()
    ]
    warnings.warn(in_one_message("The Spark data frame", merged), ClickLogWarning, stacklevel=4)
