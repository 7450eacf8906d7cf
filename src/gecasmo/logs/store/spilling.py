"""The first half of an ingest: all rows of the source are read once, and spilled."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from gecasmo.errors import ClickLogError
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.faults import Faults
from gecasmo.logs.store import noting
from gecasmo.logs.store.agreeing import (
    Types,
    refuse_other_types,
    refuse_queries,
    types_of_log,
    types_of_table,
)
from gecasmo.logs.store.batches import Batch, Source
from gecasmo.logs.store.checking import needed_columns, piece_of_table
from gecasmo.logs.store.gathering import FaultsOfRows
from gecasmo.logs.store.journal import Journal, signature
from gecasmo.logs.store.layout import Layout, lay_out, lay_out_log
from gecasmo.logs.store.locating import Locator, row_name
from gecasmo.logs.store.opening import open_source
from gecasmo.logs.store.options import Wishes
from gecasmo.logs.store.parquet import ParquetFiles
from gecasmo.logs.store.pieces import Piece, piece_of_log
from gecasmo.logs.store.planning import batch_rows, buckets_for, warn_of_row_groups
from gecasmo.logs.store.sizes import check_disk, disk_need
from gecasmo.logs.store.spill import Spill
from gecasmo.logs.store.text import TextFiles, Widened
from gecasmo.logs.store.writing import DiskFullError

Progress = Callable[[str, int, int | None], None]


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
                    "resume=False."
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
        "notes": noting.as_json([*batch.notes, *piece.notebook.notes]),
    }


def _totals(said: list[dict[str, Any]], source: Source) -> dict[str, Any]:
    notes = list(getattr(source, "notes", ()))
    notes += [note for each in said for note in noting.from_json(each["notes"])]
    return {
        "results": sum(each["results"] for each in said),
        "bytes": sum(each["bytes"] for each in said),
        "from_0": any(each["from_0"] for each in said),
        "notes": noting.as_json(noting.merged(notes)),
    }
