"""Parts of a fit that live on the executors of Spark, and passes over them.

One shuffle makes them from a Spark data frame, then everything stays where it is. Spark writes down
the points of a fit in checkpoints.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gecasmo.encoding.shared_rows import SharedRows
from gecasmo.errors import ClickLogError, ClickLogWarning, GecasmoWarning
from gecasmo.estimation.tasks import Answer, Task, combined
from gecasmo.logs.notes import Note, in_one_message
from gecasmo.spark.executors import Job, Made, make_part, pass_over, place_part, with_part
from gecasmo.spark.session import SparkError, hearing, quiet, telling
from gecasmo.spark.source import Source

# Folders that fits have made, and how many fits use each at the moment.
_users: dict[str, int] = {}
# A fit that is given up may be cleared away at any time, also while this thread holds the lock.
_lock = threading.RLock()


class Checkpoints:
    """The folder for checkpoints, as long as a fit needs it.

    Spark's own is left as it is. On a single machine that has none, a folder is made, and removed
    with the last fit that uses it; on a cluster nobody but the user knows a place.
    """

    def __init__(self, context: Any) -> None:
        self.context = context
        self._own: str | None = None
        with _lock:
            self.is_reliable = self._find()
        # Also when a fit is given up without a word.
        self._closing = weakref.finalize(self, _leave, context, self._own)

    def _find(self) -> bool:
        known = self.context.getCheckpointDir()
        if known is not None:
            # Spark puts a folder of each session into the one it was given.
            self._own = next((folder for folder in list(_users) if _is_in(known, folder)), None)
        elif self.context.master.startswith("local"):
            self._own = tempfile.mkdtemp(prefix="gecasmo-checkpoints-")
            self.context.setCheckpointDir(self._own)
        else:
            warnings.warn(
                "Spark has no folder for checkpoints, so the state of the fit is kept twice in the "
                "memory and on the disks of executors: it survives the loss of one of them, not "
                "of two at once. Better: spark.sparkContext.setCheckpointDir(a folder that all "
                "executors reach).",
                GecasmoWarning,
                stacklevel=6,
            )
            return False
        if self._own is not None:
            _users[self._own] = _users.get(self._own, 0) + 1
        return True

    def close(self) -> None:
        """The fit needs no checkpoints any more."""
        self._closing()


def _leave(context: Any, own: str | None) -> None:
    if own is None:
        return
    with _lock:
        _users[own] -= 1
        if _users[own]:
            return
        del _users[own]
        try:
            # Meanwhile the user may have named another.
            if context._jsc is not None and _is_in(context.getCheckpointDir(), own):
                take_back(context)
        finally:
            shutil.rmtree(own, ignore_errors=True)


def _is_in(known: str | None, folder: str) -> bool:
    """Whether Spark's folder, which it names as an address, is in one of ours."""
    return known is not None and f"{folder}/" in f"{known}/"


def take_back(context: Any) -> None:
    """Let Spark forget its folder, for which it has no public way; else it would make it again."""
    if context._jsc is not None:  # it is still running
        nothing = context._jvm.scala.Option.empty()
        getattr(context._jsc.sc(), "checkpointDir_$eq")(nothing)


class SparkParts:
    """Runs passes over parts that are the partitions of an RDD.

    Points live beside them, in an RDD with the same partitions; a pass makes the next such RDD out
    of both, partition by partition, so nothing moves between machines but the task and the answers.
    Every pass can be run again with the same outcome, which is how Spark makes up for a lost
    executor; every so many passes points are written down, so that this never takes long.

    Parameters
    ----------
    parts : RDD with one element a partition, the part as bytes
    keys : RDD with the parts as they were made, with the keys of their rows
    job : what executors know of the fit
    checkpoint_every : after so many passes points are written down
    """

    # A test puts something here that kills its own process.
    work = staticmethod(pass_over)

    def __init__(self, parts: Any, keys: Any, job: Job, checkpoint_every: int = 8) -> None:
        self.context = parts.context
        self.parts, self.keys = one_by_one(parts), keys
        self.job = self.context.broadcast(job)
        self.checkpoint_every = checkpoint_every
        self.n_parts = parts.getNumPartitions()
        self.n_passes = 0
        self.answers = self.context.accumulator({}, Answers())
        self.points: Any = one_by_one(self.context.parallelize([b""] * self.n_parts, self.n_parts))
        self.checkpoints = Checkpoints(self.context)
        self.is_reliable = self.checkpoints.is_reliable
        self._tasks: list[Any] = []  # that points may have to be made with again
        self._written: Any = None

    def run(self, task: Task) -> Answer:
        """Run one pass, and add up the answers in the order of the parts."""
        number = self.n_passes
        sent = self.context.broadcast(task)
        new = self._pass(sent, number)
        is_written = self.checkpoint_every > 0 and (number + 1) % self.checkpoint_every == 0
        new.persist(self._level())
        if is_written:
            new.checkpoint() if self.is_reliable else new.localCheckpoint()
        self.answers.value = {}
        with hearing():
            new._jrdd.count()  # counted by the JVM, since Python would have it all sent over
        answers = [self.answers.value[number, part] for part in range(self.n_parts)]
        self.answers.value = {}
        self.points.unpersist()
        self._tasks.append(sent)
        self.points, self.n_passes = new, number + 1
        if is_written:
            self._forget(new)
        return combined([answer for answer in answers if answer is not None])

    def each(self, use: Callable[..., Any]) -> list[Any]:
        """What a function says of every part and its points; it goes to the executors."""
        job = self.job

        def asked(number: int, pairs: Any) -> Any:
            for (data, points), keys in pairs:
                yield telling(with_part)(job.value, number, data, points, keys, use)

        both = one_by_one(self.parts.zip(self.points)).zip(one_by_one(self.keys))
        with hearing():
            answers: list[Any] = both.mapPartitionsWithIndex(asked).collect()
        return answers

    def close(self) -> None:
        """Let go of everything that Spark keeps for this fit."""
        for kept in (self.points, self.parts, self.keys):
            kept.unpersist()
        for sent in (*self._tasks, self.job):
            sent.destroy()
        self._remove(self._written)
        self._tasks, self._written = [], None
        self.checkpoints.close()

    def _pass(self, sent: Any, number: int) -> Any:
        job, answers, work = self.job, self.answers, self.work
        task: Task = sent.value
        with_keys = task.needs_keys

        def run(part: int, pairs: Any) -> Any:
            for pair in pairs:
                (data, points), keys = pair if with_keys else (pair, None)
                told = telling(work)(job.value, part, data, points, sent.value, keys)
                answers.add({(number, part): told[1]})
                yield told[0]

        both = self.parts.zip(self.points)
        if with_keys:
            both = one_by_one(both).zip(one_by_one(self.keys))
        return one_by_one(both.mapPartitionsWithIndex(run))

    def _level(self) -> Any:
        from pyspark import StorageLevel

        # What is written down nowhere else is kept twice, for one executor may be lost.
        return StorageLevel.MEMORY_AND_DISK if self.is_reliable else StorageLevel.MEMORY_AND_DISK_2

    def _forget(self, new: Any) -> None:
        """Points are safe now: what they were made of is not needed any more. (Their own task is
        still part of their RDD, and travels with it.)"""
        *old_tasks, last = self._tasks
        for sent in old_tasks:
            sent.destroy()
        self._tasks = [last]
        old, self._written = self._written, new.getCheckpointFile() if self.is_reliable else None
        self._remove(old)

    def _remove(self, path: str | None) -> None:
        if path is not None:
            jvm: Any = self.context._jvm
            there = jvm.org.apache.hadoop.fs.Path(path)
            there.getFileSystem(self.context._jsc.hadoopConfiguration()).delete(there, True)


def one_by_one(rdd: Any) -> Any:
    """The same RDD with every element serialised by itself.

    So partitions with one large element each can be zipped as they are; else PySpark sends both
    sides through Python once more to bring them into the same batches.
    """
    from pyspark import serializers

    untyped: Any = serializers
    return rdd._reserialize(untyped.BatchedSerializer(untyped.CPickleSerializer(), 1))


class Answers:
    """How Spark adds up answers: it puts them side by side. A task that is run twice answers the
    same both times."""

    def zero(self, value: dict[Any, Any]) -> dict[Any, Any]:
        return {}

    def addInPlace(self, one: dict[Any, Any], other: dict[Any, Any]) -> dict[Any, Any]:
        one.update(other)
        return one


def check_every(passes: object) -> int:
    """A number of passes between checkpoints."""
    if not isinstance(passes, int) or isinstance(passes, bool) or passes < 1:
        raise SparkError(f"checkpoint_every={passes!r}: a number of passes, at least 1.")
    return passes


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
