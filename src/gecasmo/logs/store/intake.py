"""The first half of an ingest: a source is opened, all its rows are read once, and shuffled.

Batches have to hold the same columns, so that they can be put together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

from gecasmo.errors import ClickLogError, either
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.formats.table import kind_of_files
from gecasmo.logs.inputs import Opened
from gecasmo.logs.notes import Faults, Notebook, merged_notes
from gecasmo.logs.reader import recognise
from gecasmo.logs.remote import RemoteTable
from gecasmo.logs.roles import Roles, lists_of
from gecasmo.logs.store.disk import DiskFullError, check_disk, disk_need
from gecasmo.logs.store.journal import IngestJournal, signature
from gecasmo.logs.store.manifest import notes_as_json, notes_from_json
from gecasmo.logs.store.page_runs import (
    LENGTH,
    ROW,
    FaultsOfRows,
    PageRuns,
    needed_columns,
    runs_of_log,
    runs_of_table,
)
from gecasmo.logs.store.plan import (
    LogLayout,
    Wishes,
    batch_rows,
    buckets_for,
    chunk_bytes,
    lay_out,
    lay_out_log,
    warn_of_row_groups,
)
from gecasmo.logs.store.shuffle import Shuffle
from gecasmo.logs.store.sources import (
    BatchSource,
    FormatFiles,
    Frames,
    ParquetFiles,
    Segment,
    SourceBatch,
    read_ahead,
)
from gecasmo.logs.store.text import TextFiles, Widened

Progress = Callable[[str, int, int | None], None]
Types = dict[str, str]


def open_source(source: Any, wishes: Wishes, roles: Roles) -> tuple[BatchSource, list[Path]]:
    """Open what `ClickLog.ingest` takes, and find its format; also its files, if there are any."""
    source, found = recognise(source, wishes.format, roles, wishes.separator)
    files = source if isinstance(source, Opened) else ()
    paths = [file.path for file in files if file.path is not None]
    if found.name != "table":
        return FormatFiles(source, found, wishes), paths
    if not files:
        if isinstance(source, RemoteTable):
            opened = Frames(source.scan(roles.id_columns), source.address)
        else:
            opened = Frames(source)
        if (schema := opened.schema()) is not None:
            roles.guess(schema, lists_of(schema))
        return opened, paths
    kind = kind_of_files(source)
    if kind == "parquet":
        return ParquetFiles(source), paths
    chunk = chunk_bytes(wishes.memory)
    return TextFiles(source, kind, roles.id_columns, chunk, wishes.max_line), paths


class Intake:
    """The way from a source, as `ClickLog.ingest` takes it, to shuffled runs.

    After `run`, `roles` and `layout` say which column plays which part, and what is kept.
    """

    def __init__(self, source: Any, wishes: Wishes, journal: IngestJournal, tell: Progress) -> None:
        self.journal, self.tell = journal, tell
        roles = Roles(wishes.given)
        self.source, self._paths = open_source(source, wishes, roles)
        self.wishes = replace(wishes, given=roles.given)
        notebook = Notebook(list(self.source.notes))
        roles.note_guesses(notebook)
        self.source.notes = notebook.notes

    def begin(self, resume: bool) -> None:
        """Continue with what another process has left, if it was the same ingest."""
        wishes = self.wishes
        is_again = self.journal.begin(self._signature(), wishes.as_json(), resume, wishes.memory)
        if is_again and "types" in self.journal.content and isinstance(self.source, TextFiles):
            self.source.remember(self.journal.content["types"])

    def _signature(self) -> list[list[Any]] | None:
        return signature(self._paths) if self._paths and self.source.can_resume else None

    def _layout(self) -> LogLayout:
        # Which roles have a column is settled anew whenever more of the columns is known.
        self.roles = Roles(self.wishes.given)
        schema = self.source.schema()
        if schema is None:
            return lay_out_log(self.source.first_log(), self.wishes)
        return lay_out(schema, self.roles, self.wishes, Faults(self.source.label))

    def run(self, workers: Executor) -> Shuffle:
        """Read and shuffle what is not shuffled yet."""
        while True:
            self.layout = self._layout()
            plan = self.journal.content.get("plan") or self._plan()
            shuffle = Shuffle(self.journal.spill, plan["buckets"], self.layout.key)
            if spilled := self.journal.content.get("spilled"):
                if spilled["batches"] == len(shuffle):
                    return shuffle
                self.journal.save(spilled=None)  # some were damaged meanwhile
            schema = self.source.schema()
            types = None
            if schema is not None:
                types = {name: repr(schema.get(name)) for name in plan["columns"]}
            if types is not None and any(each.get("types") != types for each in shuffle.said):
                shuffle.clear()
            try:
                self._read(shuffle, plan, types, workers)
            except Widened:
                assert isinstance(self.source, TextFiles)
                # In this order: after a kill in between, there are the old types and no batches.
                shuffle.clear()
                self.journal.save(plan=None, types=self.source.remembered())
            else:
                self._refuse_changed_inputs()
                self.journal.save(spilled=_totals(shuffle.said, self.source))
                return shuffle

    def _refuse_changed_inputs(self) -> None:
        if self.journal.content["inputs"] is None:
            return
        now = self._signature() or ()
        for before, after in zip(self.journal.content["inputs"], now, strict=True):
            if list(before) != list(after):
                raise ClickLogError(
                    f"{before[0]} was changed while it was read; run the same again, with "
                    f"{either('resume=False', '--no-resume')}."
                )

    def _plan(self) -> dict[str, Any]:
        schema, n_rows = self.source.schema(), self.source.n_rows()
        columns = [] if schema is None else needed_columns(self.roles, self.layout)
        read = {name: (schema or {})[name] for name in columns}
        memory = self.journal.content["memory"]
        buckets = buckets_for(n_rows, read, self.layout.nested, memory)
        buckets = max(buckets, min(self.wishes.partitions or 1, 4096))
        plan = {
            "rows": n_rows,
            "buckets": buckets,
            "batch_rows": batch_rows(read, memory, buckets),
            "columns": columns,
        }
        if isinstance(self.source, TextFiles):
            # With another memory, another process would see other types in another first chunk.
            self.journal.save(plan=plan, types=self.source.remembered())
        else:
            self.journal.save(plan=plan)
        if isinstance(self.source, ParquetFiles):
            warn_of_row_groups(*self.source.largest_row_group(columns), self.wishes.memory)
        return plan

    def _read(
        self, shuffle: Shuffle, plan: dict[str, Any], types: Types | None, workers: Executor
    ) -> None:
        place = shuffle.said[-1]["place"] if shuffle.said else None
        done = sum(said["rows"] for said in shuffle.said)
        batches = self.source.batches(plan["columns"], plan["batch_rows"], place)
        for batch in read_ahead(batches) if self.source.can_resume else batches:
            notebook = Notebook(list(batch.notes))
            runs = self._runs(batch, done, notebook)
            there = types or self._types_of_log(batch, runs, shuffle.said)
            about = {"types": there, **_about(batch, runs), "notes": notes_as_json(notebook.notes)}
            shuffle.add(runs, about, workers)
            done += batch.rows
            self._check_disk(shuffle, done, plan["rows"])
            self.tell("reading", done, plan["rows"])
        if not any(said["runs"] for said in shuffle.said):
            faults = Faults(self.source.label)
            faults.add("there are no rows")
            faults.raise_if_any()

    def _check_disk(self, shuffle: Shuffle, done: int, n_rows: int | None) -> None:
        """Refuse to go on when the rest will not fit, as far as can be told from the beginning."""
        if n_rows is None or not done:
            return
        share = max(n_rows / done, 1.0)
        n_results = sum(each["results"] for each in shuffle.said) * share
        kept = sum(each["bytes"] for each in shuffle.said) * share if self.layout.kept else 0
        needs = {
            "rows on their way": disk_need(0, 0, int(shuffle.size * (share - 1)), row_bytes=1),
            "the log": disk_need(0, int(n_results), int(kept), row_bytes=1),
        }
        check_disk(
            self.journal.folder,
            needs,
            advice="Make room and run the same again, and it is resumed.",
            error=DiskFullError,
        )

    def _runs(self, batch: SourceBatch, done: int, notebook: Notebook) -> PageRuns:
        if isinstance(batch.content, ClickLog):
            if batch.content.has_query and not self.layout.has_query:
                name = self._name_of_log(batch)
                raise ClickLogError(f"ingest: {name} has queries, while the first log has none.")
            return runs_of_log(batch.content, self.layout, done)
        source, segments = self.source, batch.segments
        faults = FaultsOfRows(source.label, lambda row: source.row_name(segments, row))
        return runs_of_table(batch.content, self.roles, self.layout, faults, notebook, done)

    def _types_of_log(
        self, batch: SourceBatch, runs: PageRuns, said: Sequence[dict[str, Any]]
    ) -> Types:
        """The types of what is taken of a log, which have to be those of the first."""
        types = {name: f"{dtype} (a value a page)" for name, dtype in runs.heads.schema.items()}
        types |= {name: str(dtype) for name, dtype in runs.results.schema.items()}
        for column, type_ in said[0].get("types", types).items() if said else ():
            if types[column] != type_:
                raise ClickLogError(
                    f"ingest: the column {column!r} holds {type_} in the first log, and "
                    f"{types[column]} in {self._name_of_log(batch)}."
                )
        return types

    def _name_of_log(self, batch: SourceBatch) -> str:
        several = len(self.source.files) > 1
        return self.source.files[batch.segments[0].file] if several else "a later log"


def _about(batch: SourceBatch, runs: PageRuns) -> dict[str, Any]:
    results = runs.results
    return {
        "place": batch.place,
        "segments": [[s.file, s.first, s.rows] for s in batch.segments],
        "rows": batch.rows,
        "runs": len(runs),
        "results": results.height,
        "bytes": runs.heads.drop(LENGTH, ROW).estimated_size() + results.estimated_size(),
        "from_0": "rank" in results.columns and results["rank"].min() == 0,
    }


def segments_of(said: Sequence[dict[str, Any]]) -> list[Segment]:
    """Where all rows come from that were shuffled."""
    return [Segment(*each) for about in said for each in about["segments"]]


def _totals(said: list[dict[str, Any]], source: BatchSource) -> dict[str, Any]:
    notes = list(source.notes)
    notes += [note for each in said for note in notes_from_json(each["notes"])]
    return {
        "batches": len(said),
        "results": sum(each["results"] for each in said),
        "bytes": sum(each["bytes"] for each in said),
        "from_0": any(each["from_0"] for each in said),
        "notes": notes_as_json(merged_notes(notes)),
    }
