"""From a source of any size to a stored log, with bounded memory.

First all rows are read once and shuffled, those of each bucket of queries together; then partition
after partition is built and written.
"""

from __future__ import annotations

import json
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError, ClickLogWarning, either
from gecasmo.files import followed, synced
from gecasmo.forks import refuse_lost_fork
from gecasmo.logs.arrays import no_kernels
from gecasmo.logs.inputs import MAX_LINE
from gecasmo.logs.notes import Faults, Note, in_one_message, merged_notes
from gecasmo.logs.store.builder import QUERY, PartitionBuilder
from gecasmo.logs.store.disk import DiskFullError, write_json
from gecasmo.logs.store.intake import Intake, Progress, segments_of
from gecasmo.logs.store.journal import IngestJournal
from gecasmo.logs.store.manifest import (
    FORMAT,
    NAME,
    VERSION,
    notes_as_json,
    notes_from_json,
    sums_of,
)
from gecasmo.logs.store.page_runs import first_likes
from gecasmo.logs.store.partition import folder_of, write_partition
from gecasmo.logs.store.plan import (
    FEWEST_FOR_KERNELS,
    N_WORKERS,
    Wishes,
    most_rows,
    partitions_for,
    warn_of_partitions,
    wishes,
)
from gecasmo.logs.store.shuffle import Shuffle
from gecasmo.logs.store.stored_log import StoredLog
from gecasmo.logs.values import check_total
from gecasmo.logs.views import View

# Of so many buckets, one is looked at to decide about folding; of a small log more, until there are
# so many buckets with so many pages.
SAMPLED = 16
FEWEST_SAMPLED_BUCKETS, FEWEST_SAMPLED_PAGES = 4, 4000


def ingest(
    source: Any,
    path: str | Path,
    *,
    session: str | Sequence[str] | None = "session",
    query: str | None = "query",
    doc: str | Sequence[str] = "doc",
    rank: str | None = "rank",
    click: str | None = "click",
    weight: str | None = None,
    keep: str | Sequence[str] = (),
    view: str | View | Sequence[str | View] = (),
    memory: int | str = "4GB",
    partitions: int | None = None,
    fold: bool | str = "auto",
    resume: bool = True,
    overwrite: bool = False,
    progress: Progress | None = None,
    format: str | None = None,
    max_line: int | None = None,
    separator: str | None = None,
) -> StoredLog:
    """Store a log of any size on disk, with bounded memory.

    The source is read once. What it holds is checked as `read_log` does; what is kept are the
    roles, and what `keep` names.

    Parameters
    ----------
    source
        A path or glob of Parquet, CSV, TSV or JSON lines, or of files of another format; a table
        (Polars, also lazy, pandas, PyArrow, DuckDB, a dict); a `ClickLog`; or an iterable of
        tables, or of logs. Pages of logs are taken as they are, and an id may be that of a page of
        another log, too; where ids are kept, they have to differ.
    path
        Where to, such as "big.gclog"; a folder is made there when all is done. Until then the work
        is in a folder beside it, whose name ends in ".part".
    session, query, doc, rank, click, weight, format, max_line, separator
        As in `read_log`.
    keep
        Further columns to keep, or "all"; "session" keeps the ids of sessions, which are otherwise
        only used to put pages together (a log without queries always keeps them).
    view
        The view, or views, of models that are to read the log, such as "walks": the columns that it
        is made from are kept. Walks of "tasks" go over pages of several queries, so all pages of a
        task are in one partition then, instead of all pages of a query.
    memory
        About the most memory to use, such as "4GB", beside what Python and its libraries take; at
        least 64 MB. A row group of a Parquet file, and the pages of one query, can need more, of
        which a warning tells.
    partitions
        How many partitions, a power of two; None chooses as many as the memory needs.
    fold
        Whether pages that are the same in all that is kept are stored once, with a weight; "auto"
        does so where that at least halves the pages.
    resume
        Whether to resume an ingest of the same files into the same place that was interrupted.
    overwrite
        Whether a stored log that is there already is replaced.
    progress
        Called with the stage ("reading", "writing"), how much of it is done, and how much there
        is, or None where nobody knows.

    Returns
    -------
    StoredLog

    Raises
    ------
    ClickLogError
        With the faults of the source, or when there is no room on the disk, or when the log is
        there already.

    Warns
    -----
    ClickLogWarning
        Once, with the notes on all that was met and changed; `StoredLog.notes` keeps them.
    """
    refuse_lost_fork()
    given = {
        "session": session,
        "query": query,
        "doc": doc,
        "rank": rank,
        "click": click,
        "weight": weight,
    }
    longest = MAX_LINE if max_line is None else max_line
    asked = wishes(given, keep, memory, partitions, fold, format, longest, separator, view)
    target = followed(path)
    journal = IngestJournal(target)
    journal.tidy()
    _check_target(target, overwrite)
    tell = progress or (lambda stage, done, total: None)
    intake = Intake(source, asked, journal, tell)
    is_tight = asked.memory < FEWEST_FOR_KERNELS
    with journal.locked(), _plainly(is_tight) as workers:
        intake.begin(resume)
        try:
            shuffle = intake.run(workers)
            notes = PartitionWriter(intake, shuffle, asked).run(workers, tell)
            journal.publish()
        except DiskFullError:
            raise
        except ClickLogError:
            # The source is at fault, so this would end in the same way again.
            journal.abandon()
            raise
    if notes:
        warnings.warn(in_one_message(intake.source.label, notes), ClickLogWarning, stacklevel=3)
    return StoredLog(target)


@contextmanager
def _plainly(without_kernels: bool) -> Iterator[Executor]:
    """Threads for the work; whether kernels are called holds in them as in this one."""
    before = no_kernels.set(without_kernels)
    try:
        with ThreadPoolExecutor(
            N_WORKERS, initializer=no_kernels.set, initargs=(without_kernels,)
        ) as workers:
            yield workers
    finally:
        no_kernels.reset(before)


def _check_target(target: Path, overwrite: bool) -> None:
    if not target.absolute().parent.is_dir():
        raise ClickLogError(f"{target} cannot be written: there is no folder {target.parent}.")
    if not target.exists():
        return
    if not (target / NAME).exists():
        raise ClickLogError(
            f"{target} exists already, and is not a stored log; name another place."
        )
    if not overwrite:
        raise ClickLogError(
            f"{target} exists already; "
            f"{either('overwrite=True replaces it, and open_log opens it', '--force replaces it')}."
        )


class PartitionWriter:
    """The second half of an ingest: the way from shuffled runs to the files of a stored log."""

    def __init__(self, intake: Intake, shuffle: Shuffle, wishes: Wishes) -> None:
        self.intake, self.shuffle, self.wishes = intake, shuffle, wishes
        self.journal, self.layout = intake.journal, intake.layout
        self.spilled: dict[str, Any] = self.journal.content["spilled"]
        segments = segments_of(shuffle.said)
        self.builder = PartitionBuilder(
            self.layout,
            intake.roles,
            intake.source.label,
            self.spilled["from_0"],
            lambda row: intake.source.row_name(segments, row),
        )
        n_results, n_bytes = self.spilled["results"], self.spilled["bytes"]
        self.most_rows = most_rows(n_results, n_bytes, wishes.memory)

    def run(self, workers: Executor, tell: Progress) -> list[Note]:
        """Write partitions not written yet, and the manifest; what was met, for a warning."""
        if "partitions" not in self.journal.content:
            sizes = self.spilled["results"], self.spilled["bytes"], self.journal.content["memory"]
            self.journal.save(partitions=self.wishes.partitions or partitions_for(*sizes))
        if "fold" not in self.journal.content:
            fold = self.wishes.fold
            self.journal.save(fold=self._pays() if fold is None else fold)
        self.n_partitions: int = self.journal.content["partitions"]
        self.fold: bool = self.journal.content["fold"]
        if not self.fold:
            warn_of_partitions(self._largest(), self.wishes.memory, self.wishes.partitions)
        self._write_all(workers, tell)
        return self._write_manifest()

    def _largest(self) -> int:
        """How many results the largest partition has."""
        rows = self.shuffle.rows()
        if self.n_partitions < len(rows):
            rows = rows.reshape(self.n_partitions, -1).sum(axis=1)
        return int(rows.max())

    def _pays(self) -> bool:
        """Whether folding at least halves the pages of a sixteenth of the buckets."""
        if self.layout.keeps_session or self.layout.walk:
            return False
        n_pages = n_different = 0
        buckets = self.shuffle.sampled()
        for n_seen, bucket in enumerate(buckets):
            is_enough = n_seen >= FEWEST_SAMPLED_BUCKETS and n_pages >= FEWEST_SAMPLED_PAGES
            if is_enough and n_seen * SAMPLED >= len(buckets):
                break
            parts = self.shuffle.partition(bucket, self.shuffle.n_buckets, self.most_rows)
            try:
                pages = self.builder.whole_pages(next(parts)).runs
            except ClickLogError:
                # Told when all of its partition is put together, with the first of its faults.
                return False
            n_pages += len(pages)
            likes = first_likes(pages, pages.heads[QUERY].to_numpy())
            n_different += int((likes == np.arange(len(likes))).sum())
        return 0 < 2 * n_different <= n_pages

    def _write_all(self, workers: Executor, tell: Progress) -> None:
        todo = deque(n for n in range(self.n_partitions) if not self._note(n).exists())
        done = self.n_partitions - len(todo)
        running: set[Future[None]] = set()
        try:
            while todo or running:
                while todo and len(running) < N_WORKERS:
                    running.add(workers.submit(self._write, todo.popleft()))
                ready, running = wait(running, return_when=FIRST_COMPLETED)
                for each in ready:
                    each.result()
                done += len(ready)
                tell("writing", done, self.n_partitions)
        finally:
            for each in running:
                each.cancel()
            wait(running)

    def _write(self, number: int) -> None:
        parts = self.shuffle.partition(number, self.n_partitions, self.most_rows)
        pages = self.builder.build(parts, self.fold)
        folder = folder_of(self.journal.log, number)
        entry = write_partition(folder, pages, self.layout.by_query)
        notes = notes_as_json(merged_notes(pages.notes))
        write_json(self._note(number), {"entry": entry, "notes": notes})

    def _note(self, number: int) -> Path:
        return self.journal.done / f"partition-{number:05}.json"

    def _types(self) -> dict[str, pl.DataType]:
        """The types of the columns of the log, in order."""
        there = self.shuffle.no_runs
        schema = {**there.heads.schema, **there.results.schema}
        if not self.layout.keeps_session:
            schema["session"] = pl.Int64()
        schema |= {"rank": pl.Int32(), "click": pl.Boolean()}
        roles = ["session", "query", "doc", "rank", "click"]
        names = roles if self.layout.has_query else [name for name in roles if name != "query"]
        return {name: schema[name] for name in (*names, *self.layout.kept)}

    def _write_manifest(self) -> list[Note]:
        done = [json.loads(self._note(n).read_bytes()) for n in range(self.n_partitions)]
        met = notes_from_json(self.spilled["notes"])
        if self.spilled["from_0"]:
            title = self.intake.roles.title("rank")
            what = f"{title}: ranks start at 0 here; they were shifted to start at 1."
            met.append(Note("ranks from 0", 1, what))
        for each in done:
            met += notes_from_json(each["notes"])
        met = merged_notes(met)
        entries = [each["entry"] for each in done]
        total = sum(each["weight"] for each in entries)
        check_total(total, self.intake.roles.title("weight"), Faults(self.intake.source.label))
        has_roles = self.layout.whole and not self.layout.nested  # as logs do
        taken = {} if has_roles else self.intake.roles.columns
        write_json(
            self.journal.log / NAME,
            {
                "format": FORMAT,
                "version": VERSION,
                "columns": {name: str(dtype) for name, dtype in self._types().items()},
                "has_query": self.layout.has_query,
                "folded": self.fold,
                **({"walk": self.layout.walk} if self.layout.walk else {}),
                "source_columns": {role: list(names) for role, names in taken.items() if names},
                **sums_of(entries),
                "source_results": sum(each["source_results"] for each in entries),
                "notes": notes_as_json([*met, *self.layout.notes()]),
                "partitions": entries,
            },
        )
        synced(self.journal.log)
        return met
