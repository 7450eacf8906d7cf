"""From a source of any size to a stored log, with bounded memory.

First all rows are read once and spilled, those of each bucket of queries together; then partition
after partition is put together, folded and written.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gecasmo.errors import ClickLogError, ClickLogWarning, either
from gecasmo.logs.inputs import MAX_LINE
from gecasmo.logs.notes import Note, in_one_message
from gecasmo.logs.store.disk import DiskFullError
from gecasmo.logs.store.finish import Finishing
from gecasmo.logs.store.intake import Progress, Spilling
from gecasmo.logs.store.journal import Journal
from gecasmo.logs.store.manifest import NAME
from gecasmo.logs.store.plan import N_WORKERS, Wishes, wishes
from gecasmo.logs.store.stored_log import StoredLog


class Ingest:
    """One ingest.

    Parameters
    ----------
    source
        What `ClickLog.ingest` takes.
    target
        Where the stored log is to be.
    wishes
        What was asked for.
    progress
        Told what is done: a stage, how much of it, and how much there is, if that is known.
    """

    def __init__(
        self, source: Any, target: Path, wishes: Wishes, progress: Progress | None
    ) -> None:
        self.wishes, self.journal = wishes, Journal(target)
        self.tell = progress or (lambda stage, done, total: None)
        self.spilling = Spilling(source, wishes, self.journal, self.tell)

    def run(self, resume: bool) -> StoredLog:
        """Do all that is left to do."""
        spilling, label = self.spilling, self.spilling.source.label
        with self.journal.locked(), ThreadPoolExecutor(N_WORKERS) as workers:
            spilling.begin(resume)
            try:
                spill = spilling.run(workers)
                finishing = Finishing(
                    self.journal,
                    spill,
                    spilling.layout,
                    spilling.roles,
                    self.wishes,
                    spilling.locator(spill),
                )
                notes = finishing.run(label, workers, self.tell)
                self.journal.publish()
            except DiskFullError:
                raise
            except ClickLogError:
                # The source is at fault, so this would end in the same way again.
                self.journal.abandon()
                raise
        _warn(label, notes)
        return StoredLog(self.journal.target)


def _warn(label: str, notes: list[Note]) -> None:
    if notes:
        warnings.warn(in_one_message(label, notes), ClickLogWarning, stacklevel=5)


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
    memory: int | str = "4GB",
    partitions: int | None = None,
    fold: bool | str = "auto",
    resume: bool = True,
    overwrite: bool = False,
    progress: Progress | None = None,
    format: str | None = None,
    max_line: int | None = None,
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
    session, query, doc, rank, click, weight, format, max_line
        As in `read_log`.
    keep
        Further columns to keep, or "all"; "session" keeps the ids of sessions, which are otherwise
        only used to put pages together (a log without queries always keeps them).
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
        Whether to go on with an ingest of the same files into the same place that was interrupted.
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
    given = {
        "session": session,
        "query": query,
        "doc": doc,
        "rank": rank,
        "click": click,
        "weight": weight,
    }
    longest = MAX_LINE if max_line is None else max_line
    asked = wishes(given, keep, memory, partitions, fold, format, longest)
    target = Path(path).expanduser()
    Journal(target).tidy()
    _check_target(target, overwrite)
    return Ingest(source, target, asked, progress).run(resume)


def _check_target(target: Path, overwrite: bool) -> None:
    if not target.absolute().parent.is_dir():
        raise ClickLogError(f"{target} cannot be written: there is no folder {target.parent}.")
    if not target.exists():
        return
    if not (target / NAME).exists():
        raise ClickLogError(f"{target} is there already, and is no stored log; name another place.")
    if not overwrite:
        raise ClickLogError(
            f"{target} is there already; "
            f"{either('overwrite=True replaces it, and open_log opens it', '--force replaces it')}."
        )
