"""From a source of any size to a stored log, with bounded memory.

First all rows are read once and spilled, those of each bucket of queries together; then partition
after partition is put together, folded and written.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gecasmo.errors import ClickLogError, ClickLogWarning
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.faults import Faults
from gecasmo.logs.inputs import MAX_LINE
from gecasmo.logs.notes import Note, in_one_message
from gecasmo.logs.store import noting
from gecasmo.logs.store.batches import Batch, Source
from gecasmo.logs.store.checking import needed_columns, piece_of_table
from gecasmo.logs.store.finishing import Finishing
from gecasmo.logs.store.gathering import FaultsOfRows
from gecasmo.logs.store.journal import Journal, signature
from gecasmo.logs.store.layout import Layout, lay_out, lay_out_log
from gecasmo.logs.store.manifest import NAME
from gecasmo.logs.store.opening import open_source, paths_of
from gecasmo.logs.store.options import Wishes, wishes
from gecasmo.logs.store.pieces import Piece, piece_of_log
from gecasmo.logs.store.planning import batch_rows, buckets_for
from gecasmo.logs.store.spill import Spill
from gecasmo.logs.store.stored_log import StoredLog

Progress = Callable[[str, int, int | None], None]
N_WORKERS = min(os.cpu_count() or 1, 4)


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
        self.wishes = wishes
        self.roles = wishes.roles()
        self.source: Source = open_source(source, wishes, self.roles)
        self.paths = paths_of(self.source)
        self.journal = Journal(target)
        self.tell = progress or (lambda stage, done, total: None)

    def run(self, resume: bool) -> StoredLog:
        """Do all that is left to do."""
        with self.journal.locked(), ThreadPoolExecutor(N_WORKERS) as workers:
            inputs = signature(self.paths) if self.source.can_resume else None
            self.journal.begin(inputs, self.wishes.as_json(), resume)
            self.layout = self._layout()
            spill = self._spilled(workers)
            notes = Finishing(self.journal, spill, self.layout, self.roles, self.wishes).run(
                self.source.label, workers, self.tell
            )
            self.journal.publish()
        _warn(self.source.label, notes)
        return StoredLog(self.journal.target)

    def _layout(self) -> Layout:
        schema = self.source.schema()
        if schema is None:
            first = self.source.first  # type: ignore[attr-defined]
            return lay_out_log(first, self.wishes)
        return lay_out(schema, self.roles, self.wishes, Faults(self.source.label))

    def _spilled(self, workers: ThreadPoolExecutor) -> Spill:
        plan = self.journal.content.get("plan") or self._plan()
        spill = Spill(self.journal.spill, plan["buckets"])
        said = spill.open()
        if not self.journal.content.get("spilled"):
            said = self._spill(spill, said, plan, workers)
            self.journal.save(spilled=_totals(said))
        return spill

    def _plan(self) -> dict[str, Any]:
        schema = self.source.schema()
        n_rows = self.source.n_rows()
        columns = [] if schema is None else needed_columns(self.roles, self.layout)
        read = {name: (schema or {})[name] for name in columns}
        memory = self.wishes.memory
        buckets = buckets_for(n_rows, read, self.layout.nested, memory)
        plan = {
            "rows": n_rows,
            "buckets": max(buckets, min(self.wishes.partitions or 1, 4096)),
            "batch_rows": batch_rows(read, memory),
            "columns": columns,
        }
        self.journal.save(plan=plan, layout=self.layout.as_json())
        return plan

    def _spill(
        self,
        spill: Spill,
        said: list[dict[str, Any]],
        plan: dict[str, Any],
        workers: ThreadPoolExecutor,
    ) -> list[dict[str, Any]]:
        place = said[-1]["place"] if said else None
        done, pages = sum(s["rows"] for s in said), sum(s["runs"] for s in said)
        for batch in self.source.batches(plan["columns"], plan["batch_rows"], place):
            piece = self._piece(batch, pages)
            about = _about(batch, piece)
            spill.add(piece, about, workers)
            said.append(about)
            done, pages = done + batch.rows, pages + piece.n_runs
            self.tell("reading", done, plan["rows"])
        if not pages:
            raise ClickLogError(f"{self.source.label}: there are no rows.")
        return said

    def _piece(self, batch: Batch, pages: int) -> Piece:
        if isinstance(batch.content, ClickLog):
            return piece_of_log(batch.content, self.layout)
        faults = FaultsOfRows(self.source.label, lambda row: self._row(batch, row))
        return piece_of_table(batch.content, self.roles, self.layout, faults, pages)

    def _row(self, batch: Batch, row: int) -> str:
        for segment in batch.segments:
            if row < segment.rows:
                where = f"row {segment.first + row}"
                several = len(self.source.files) > 1
                return f"{where} of {self.source.files[segment.file]}" if several else where
            row -= segment.rows
        return f"row {row}"


def _about(batch: Batch, piece: Piece) -> dict[str, Any]:
    return {
        "place": batch.place,
        "segments": [[s.file, s.first, s.rows] for s in batch.segments],
        "rows": batch.rows,
        "runs": piece.n_runs,
        "results": piece.results.height,
        "bytes": piece.runs.estimated_size() + piece.results.estimated_size(),
        "from_0": piece.has_rank_0,
        "notes": noting.as_json([*batch.notes, *piece.notebook.notes]),
    }


def _totals(said: list[dict[str, Any]]) -> dict[str, Any]:
    notes = [note for each in said for note in noting.from_json(each["notes"])]
    return {
        "results": sum(each["results"] for each in said),
        "bytes": sum(each["bytes"] for each in said),
        "from_0": any(each["from_0"] for each in said),
        "notes": noting.as_json(noting.merged(notes)),
    }


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
        tables, or of logs (whose pages are then taken as they are, whatever their ids).
    path
        Where to, such as "big.gclog"; a folder is made there when all is done. Until then the work
        is in a folder beside it, whose name ends in ".part".
    session, query, doc, rank, click, weight, format, max_line
        As in `read_log`.
    keep
        Further columns to keep, or "all"; "session" keeps the ids of sessions, which are otherwise
        only used to put pages together (a log without queries always keeps them).
    memory
        The most memory to use, such as "4GB".
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
            f"{target} is there already; overwrite=True replaces it, and open_log opens it."
        )
