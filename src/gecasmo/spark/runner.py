"""Runs the passes of a fit over parts that live with the executors of Spark.

One shuffle makes the parts from a Spark data frame. From then on Spark is asked for nothing but to
run a function for every part; what parts keep from one pass to the next is in a folder that
executors share.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gecasmo.encoding import Rows
from gecasmo.encoding.shared_rows import SharedRows
from gecasmo.errors import ClickLogWarning, GecasmoWarning
from gecasmo.estimation.coins import Lengths
from gecasmo.estimation.posteriors.sample import PAGES
from gecasmo.estimation.tasks import Answer, SharedCounts, Task, combined
from gecasmo.forms.parted_table import PartFile
from gecasmo.logs import ClickLog
from gecasmo.logs.notes import Note, in_one_message
from gecasmo.spark.executors import (
    Job,
    MadePart,
    Placement,
    Written,
    make_part,
    pass_over,
    place_part,
    write_rows,
)
from gecasmo.spark.messages import ask_parts, pack, unpack
from gecasmo.spark.shared_folder import SharedFolder
from gecasmo.spark.source import FrameReading, FrameSource

# As many pages of neighbouring parts are fetched together.
_FETCHED_PAGES = 2 * PAGES


class SparkRunner:
    """Makes the parts of a data frame, and runs passes over them.

    An executor that is lost takes nothing with it but the task it was at, which Spark gives to
    another one.

    Parameters
    ----------
    source : the data frame
    job : what executors know of the fit
    names : of all coins
    """

    # A test puts something here that kills its own process.
    work = staticmethod(pass_over)

    def __init__(self, source: FrameSource, job: Job, names: Sequence[str]) -> None:
        self.spark, self.job = source.frame.sparkSession, job
        self.made = self._make(source)
        self.numbers = [number for number, part in self.made.items() if part.n_results]
        tell_notes([part.notes for part in self.made.values()])
        self.rows = self._place(names)

    @property
    def n_parts(self) -> int:
        """How many parts there are."""
        return len(self.numbers)

    def run(self, task: Task) -> Answer:
        """Run one pass, and add up the answers in the order of the parts."""
        job, work = self.job, self.work
        heard = ask_parts(self.spark, self.numbers, lambda number: pack(work(job, number, task)))
        kinds = (Answer, SharedCounts, Lengths)
        return combined(unpack(answer, *kinds) for answer in heard.values())

    def write(self, task: Task, model_folder: str | None) -> dict[int, Written]:
        """Let executors write the rows of the local coins of all parts, at the point of a task."""
        job = self.job
        heard = ask_parts(
            self.spark,
            self.numbers,
            lambda number: pack(write_rows(job, number, task, model_folder)),
        )
        return {number: unpack(answer, PartFile) for number, answer in heard.items()}

    def pages(self) -> SparkPages:
        """The first pages of the parts, for a sample."""
        sizes = {number: self.made[number].n_read for number in self.numbers}
        return SparkPages(self.spark, self.job.reading, self.job.folder, sizes)

    def _make(self, source: FrameSource) -> dict[int, MadePart]:
        job = self.job
        heard = source.ask(lambda number, table: pack(make_part(job, number, table)))
        return {number: unpack(answer, MadePart, Note) for number, answer in heard.items()}

    def _place(self, names: Sequence[str]) -> dict[int, Rows]:
        """Find the rows of global coins over all parts, and tell the parts of them."""
        shared = {n: SharedRows(name) for n, name in enumerate(names) if n not in self.job.local}
        first: dict[int, dict[int, int]] = {}
        for number in self.numbers:
            for coin, rows in self.made[number].shared.items():
                places = shared[coin].add(rows)
                if "result" in rows.keys:
                    first.setdefault(coin, {})[number] = int(places[0]) if len(places) else 0
        found = {n: own.rows() for n, own in shared.items()}
        self.job = job = self.job.for_passes({n: len(rows) for n, rows in found.items()})
        placement = Placement({n: rows for n, rows in found.items() if n not in first}, first)

        def place(number: int) -> bytes:
            place_part(job, number, placement)
            return b""

        if self.numbers:
            ask_parts(self.spark, self.numbers, place)
        return found


class SparkPages:
    """The parts of a log on Spark as partitions, of which the first pages can be fetched.

    Parameters
    ----------
    spark : the session
    reading : how rows become pages
    folder : that executors share
    sizes : how many pages a part has, by its number
    """

    def __init__(
        self, spark: Any, reading: FrameReading, folder: str, sizes: Mapping[int, int]
    ) -> None:
        self.spark, self.reading, self.folder, self.sizes = spark, reading, folder, sizes
        self.numbers = sorted(sizes)
        self._fetched: dict[int, bytes] = {}

    @property
    def n_partitions(self) -> int:
        return len(self.numbers)

    @property
    def n_pages(self) -> int:
        return sum(self.sizes.values())

    def partitions(self) -> Any:
        """All of them, one after the other."""
        return map(self.partition, range(self.n_partitions))

    def partition(self, place: int) -> ClickLog:
        """The first pages of a part, as many as a sample may want."""
        number = self.numbers[place]
        if number not in self._fetched:
            self._fetched = self._fetch(place)
        return self.reading.log(unpack(self._fetched.pop(number)), number)

    def _fetch(self, place: int) -> dict[int, bytes]:
        """Bring some parts at once: a job of Spark's takes long even if it does nothing."""
        wanted, n_pages, folder = [], 0, self.folder
        for number in self.numbers[place:]:
            wanted.append(number)
            n_pages += self.sizes[number]
            if n_pages >= _FETCHED_PAGES:
                break
        return ask_parts(
            self.spark, wanted, lambda number: bytes(SharedFolder(folder).read(f"{number}/first"))
        )


def remove_folder(spark: Any, folder: str) -> None:
    """Let an executor remove a folder; that this fails does not make a fit worthless."""

    def remove(_: int) -> bytes:
        SharedFolder(folder).remove()
        return b""

    try:
        ask_parts(spark, [0], remove)
    except Exception as problem:
        warnings.warn(
            f"The folder {folder} with the state of a fit could not be removed: {problem}",
            GecasmoWarning,
            stacklevel=2,
        )


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
