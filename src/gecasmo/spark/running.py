"""Passes over parts that live on the executors of Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gecasmo.estimation.parts.tasks import Answer, Task, combined
from gecasmo.spark.checkpoints import Checkpoints
from gecasmo.spark.needs import SparkError
from gecasmo.spark.telling import hearing, telling
from gecasmo.spark.working import Job, pass_over, with_part


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
