"""The first half of an ingest: a source is opened, and all its rows are read once, and spilled.

Batches have to hold the same columns, so that they can be put together. Where a fault is found
later, the row of the source that a spilled row came from is found again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gecasmo.errors import ClickLogError, either
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.formats.table import kind_of_files
from gecasmo.logs.inputs import Opened
from gecasmo.logs.notes import Faults
from gecasmo.logs.reader import recognise
from gecasmo.logs.roles import Roles
from gecasmo.logs.store.batches import Batch, FormatFiles, Frames, Schema, Segment, Source
from gecasmo.logs.store.disk import DiskFullError, check_disk, disk_need
from gecasmo.logs.store.journal import Journal, signature
from gecasmo.logs.store.manifest import merged_notes, notes_as_json, notes_from_json
from gecasmo.logs.store.pages import FaultsOfRows
from gecasmo.logs.store.parquet import ParquetFiles
from gecasmo.logs.store.pieces import Integers, Piece, needed_columns, piece_of_log, piece_of_table
from gecasmo.logs.store.plan import (
    Layout,
    Wishes,
    batch_rows,
    buckets_for,
    chunk_bytes,
    lay_out,
    lay_out_log,
    warn_of_row_groups,
)
from gecasmo.logs.store.spill import Spill, bucket_of, rows_of_runs
from gecasmo.logs.store.text import TextFiles, Widened

Progress = Callable[[str, int, int | None], None]
Types = dict[str, str]


def open_source(source: Any, wishes: Wishes, roles: Roles) -> tuple[Source, list[Path]]:
    """Open a source, and find its format.

    Parameters
    ----------
    source
        What `ClickLog.ingest` takes.
    wishes
        What was asked for.
    roles
        Which column plays which part.

    Returns
    -------
    source : Source
    paths : list of Path
        Its files, where it has any.
    """
    source, found = recognise(source, wishes.format, roles)
    files = source if isinstance(source, Opened) else ()
    paths = [file.path for file in files if file.path is not None]
    if found.name != "table":
        return FormatFiles(source, found, wishes), paths
    return _tables(source, wishes, roles) if files else Frames(source), paths


def _tables(source: Opened, wishes: Wishes, roles: Roles) -> Source:
    kind = kind_of_files(source)
    if kind == "parquet":
        return ParquetFiles(source)
    return TextFiles(source, kind, roles.id_columns, chunk_bytes(wishes.memory), wishes.max_line)


class Spilling:
    """The way from a source to spilled rows.

    Parameters
    ----------
    source
        What `ClickLog.ingest` takes.
    wishes
        What was asked for.
    journal
        Of the ingest.
    tell
        Told how many rows were read.

    Attributes
    ----------
    source
        It, opened.
    roles, layout
        Which column plays which part, and what is kept; known after `run`.
    """

    def __init__(self, source: Any, wishes: Wishes, journal: Journal, tell: Progress) -> None:
        self.wishes, self.journal, self.tell = wishes, journal, tell
        self.source, self._paths = open_source(source, wishes, wishes.roles())

    def begin(self, resume: bool) -> None:
        """Go on with what another process has left, if it was the same ingest."""
        wishes = self.wishes
        is_again = self.journal.begin(self._signature(), wishes.as_json(), resume, wishes.memory)
        if is_again and "types" in self.journal.content and isinstance(self.source, TextFiles):
            self.source.remember(self.journal.content["types"])

    def _signature(self) -> list[list[Any]] | None:
        return signature(self._paths) if self._paths and self.source.can_resume else None

    def _layout(self) -> Layout:
        # Which roles have a column is settled anew whenever more of the columns is known.
        self.roles = self.wishes.roles()
        schema = self.source.schema()
        if schema is None:
            first = self.source.first  # type: ignore[attr-defined]
            return lay_out_log(first, self.wishes)
        return lay_out(schema, self.roles, self.wishes, Faults(self.source.label))

    def run(self, workers: Executor) -> Spill:
        """Read and spill what is not spilled yet."""
        while True:
            self.layout = self._layout()
            plan = self.journal.content.get("plan") or self._plan()
            spill = Spill(self.journal.spill, plan["buckets"])
            spill.open()
            if self.journal.content.get("spilled"):
                return spill
            schema = self.source.schema()
            types = None if schema is None else types_of_table(schema, plan["columns"])
            if types is not None and any(each.get("types") != types for each in spill.said):
                spill.clear()
            try:
                self._spill(spill, plan, types, workers)
            except Widened:
                assert isinstance(self.source, TextFiles)
                # In this order: after a kill in between, there are the old types and no batches.
                spill.clear()
                self.journal.save(plan=None, types=self.source.remembered())
            else:
                self._refuse_changed_inputs()
                self.journal.save(spilled=_totals(spill.said, self.source))
                return spill

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
        schema = self.source.schema()
        n_rows = self.source.n_rows()
        columns = [] if schema is None else needed_columns(self.roles, self.layout)
        read = {name: (schema or {})[name] for name in columns}
        memory = self.journal.content["memory"]
        buckets = buckets_for(n_rows, read, self.layout.nested, memory)
        plan = {
            "rows": n_rows,
            "buckets": max(buckets, min(self.wishes.partitions or 1, 4096)),
            "batch_rows": batch_rows(read, memory),
            "columns": columns,
        }
        known: dict[str, Any] = {"plan": plan, "layout": self.layout.as_json()}
        if isinstance(self.source, TextFiles):
            # With another memory, another process would see other types in another first chunk.
            known["types"] = self.source.remembered()
        self.journal.save(**known)
        if isinstance(self.source, ParquetFiles):
            warn_of_row_groups(*self.source.largest_row_group(columns), self.wishes.memory)
        return plan

    def _spill(
        self, spill: Spill, plan: dict[str, Any], types: Types | None, workers: Executor
    ) -> None:
        said = spill.said
        place = said[-1]["place"] if said else None
        done, pages = sum(s["rows"] for s in said), sum(s["runs"] for s in said)
        for batch in self.source.batches(plan["columns"], plan["batch_rows"], place):
            piece = self._piece(batch, pages)
            there = types or self._types_of_log(batch, piece, said)
            spill.add(piece, {"types": there, **_about(batch, piece)}, workers)
            done, pages = done + batch.rows, pages + piece.n_runs
            self._check_disk(spill, done, plan["rows"])
            self.tell("reading", done, plan["rows"])
        if not pages:
            faults = Faults(self.source.label)
            faults.add("there are no rows")
            faults.raise_if_any()

    def _check_disk(self, spill: Spill, done: int, n_rows: int | None) -> None:
        """Refuse to go on when the rest will not fit, as far as can be told from the beginning."""
        if n_rows is None or not done:
            return
        share = max(n_rows / done, 1.0)
        n_results = sum(each["results"] for each in spill.said) * share
        kept = sum(each["bytes"] for each in spill.said) * share if self.layout.kept else 0
        needs = {
            "rows on their way": disk_need(0, 0, int(spill.size * (share - 1)), row_bytes=1),
            "the log": disk_need(0, int(n_results), int(kept), row_bytes=1),
        }
        check_disk(
            self.journal.folder,
            needs,
            advice="Make room and run the same again, and it goes on.",
            error=DiskFullError,
        )

    def _piece(self, batch: Batch, pages: int) -> Piece:
        if isinstance(batch.content, ClickLog):
            refuse_queries(batch.content, self.layout, self._name_of_log(batch))
            return piece_of_log(batch.content, self.layout)
        source, segments = self.source, batch.segments
        faults = FaultsOfRows(source.label, lambda row: row_name(segments, row, source))
        return piece_of_table(batch.content, self.roles, self.layout, faults, pages)

    def _types_of_log(self, batch: Batch, piece: Piece, said: list[dict[str, Any]]) -> Types:
        types = types_of_log(piece)
        if said:
            refuse_other_types(said[0].get("types", types), types, self._name_of_log(batch))
        return types

    def _name_of_log(self, batch: Batch) -> str:
        several = len(self.source.files) > 1
        return self.source.files[batch.segments[0].file] if several else "a later log"

    def locator(self, spill: Spill) -> Locator:
        """What finds the rows of the source that spilled rows were."""
        plan = self.journal.content["plan"]
        nested = self.layout.nested
        return Locator(self.source, plan, spill.said, lambda b: self._piece(b, 0), nested)


def _about(batch: Batch, piece: Piece) -> dict[str, Any]:
    return {
        "place": batch.place,
        "segments": [[s.file, s.first, s.rows] for s in batch.segments],
        "rows": batch.rows,
        "runs": piece.n_runs,
        "results": piece.results.height,
        "bytes": piece.runs.estimated_size() + piece.results.estimated_size(),
        "from_0": piece.has_rank_0,
        "notes": notes_as_json([*batch.notes, *piece.notebook.notes]),
    }


def _totals(said: list[dict[str, Any]], source: Source) -> dict[str, Any]:
    notes = list(getattr(source, "notes", ()))
    notes += [note for each in said for note in notes_from_json(each["notes"])]
    return {
        "results": sum(each["results"] for each in said),
        "bytes": sum(each["bytes"] for each in said),
        "from_0": any(each["from_0"] for each in said),
        "notes": notes_as_json(merged_notes(notes)),
    }


def types_of_table(schema: Schema, columns: Sequence[str]) -> Types:
    """The types with which columns of tables are read, to be said of each batch."""
    return {name: repr(schema.get(name)) for name in columns}


def types_of_log(piece: Piece) -> Types:
    """The types of what is taken of a log, to be said of each batch."""
    of_pages = {name: f"{dtype} (a value a page)" for name, dtype in piece.runs.schema.items()}
    return of_pages | {name: str(dtype) for name, dtype in piece.results.schema.items()}


def refuse_queries(log: ClickLog, layout: Layout, name: str) -> None:
    """Refuse a log with queries after logs that have none; they would be lost."""
    if log.has_query and not layout.has_query:
        raise ClickLogError(f"ingest: {name} has queries, while the first log has none.")


def refuse_other_types(first: Types, types: Types, name: str) -> None:
    """Refuse a log with other types than the first has."""
    for column, type_ in first.items():
        if types[column] != type_:
            raise ClickLogError(
                f"ingest: the column {column!r} holds {type_} in the first log, and "
                f"{types[column]} in {name}."
            )


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
