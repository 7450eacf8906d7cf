"""The second half of an ingest: partition after partition is put together, folded and written."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import Any

import numpy as np
import polars as pl

from gecasmo.logs.notes import Note
from gecasmo.logs.roles import Roles
from gecasmo.logs.store import noting
from gecasmo.logs.store.compacting import compact
from gecasmo.logs.store.folding import first_likes
from gecasmo.logs.store.gathering import Gathering, Pages
from gecasmo.logs.store.journal import Journal
from gecasmo.logs.store.layout import Layout
from gecasmo.logs.store.manifest import FORMAT, NAME, VERSION, sums_of
from gecasmo.logs.store.options import Wishes
from gecasmo.logs.store.partition_files import folder_of, write_partition
from gecasmo.logs.store.pieces import LENGTH, hash_of_runs
from gecasmo.logs.store.planning import partitions_for
from gecasmo.logs.store.spill import Spill, bucket_of, rows_of_runs
from gecasmo.logs.store.writing import sync_folder, write_json

# Of so many partitions, one is looked at to decide about folding.
SAMPLED = 16


class Finishing:
    """The way from spilled rows to the files of a stored log."""

    def __init__(
        self, journal: Journal, spill: Spill, layout: Layout, roles: Roles, wishes: Wishes
    ) -> None:
        self.journal, self.spill = journal, spill
        self.layout, self.roles, self.wishes = layout, roles, wishes

    def run(
        self, label: str, workers: Executor, tell: Callable[[str, int, int | None], None]
    ) -> list[Note]:
        """Write the partitions that are not written yet, and the manifest.

        Returns
        -------
        list of Note
            What was met and changed, for a warning.
        """
        spilled = self.journal.content["spilled"]
        self.gathering = Gathering(self.layout, self.roles, label, spilled["from_0"])
        self.n_partitions = self._number_of_partitions(spilled)
        self.fold = self._whether_to_fold()
        self._write_all(workers, tell)
        return self._write_manifest(spilled)

    def _number_of_partitions(self, spilled: dict[str, Any]) -> int:
        known: int | None = self.journal.content.get("partitions")
        if known is None:
            known = self.wishes.partitions or partitions_for(
                spilled["results"], spilled["bytes"], self.wishes.memory
            )
            self.journal.save(partitions=known)
        return known

    def _whether_to_fold(self) -> bool:
        known: bool | None = self.journal.content.get("fold")
        if known is None:
            known = self.wishes.fold
            if known is None:
                known = self._pays()
            self.journal.save(fold=known)
        return known

    def _pays(self) -> bool:
        """Whether folding at least halves the pages of a sixteenth of the partitions."""
        if self.layout.keeps_session:
            return False
        n_pages = n_different = 0
        for number in range(0, self.n_partitions, SAMPLED):
            pages = self._pages(number)
            n_pages += pages.n_pages
            n_different += len(np.unique(first_likes(pages)))
        return 2 * n_different <= n_pages

    def _pages(self, number: int) -> Pages:
        """The pages of a partition, in the order of the source."""
        per_bucket, per_partition = self._ratio()
        first = number * per_partition // per_bucket
        runs, results, _ = self.spill.read(first, first + max(per_partition, 1))
        if per_bucket > 1 and runs.height:
            runs, results = self._only(number, runs, results)
        return self.gathering.pages(runs, results, lambda row: f"row {row}")

    def _ratio(self) -> tuple[int, int]:
        """Partitions in a bucket, and buckets in a partition; one of them is 1."""
        n_buckets = self.spill.n_buckets
        return max(self.n_partitions // n_buckets, 1), max(n_buckets // self.n_partitions, 1)

    def _only(
        self, number: int, runs: pl.DataFrame, results: pl.DataFrame
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The runs of one of several partitions that share a bucket."""
        key = runs["query" if self.layout.has_query else "session"]
        mine = np.flatnonzero(bucket_of(hash_of_runs(key), self.n_partitions) == number)
        lengths = runs[LENGTH].to_numpy().astype(np.int64)
        return runs[mine], results[rows_of_runs(lengths, mine)]

    def _write_all(self, workers: Executor, tell: Callable[[str, int, int | None], None]) -> None:
        todo = [n for n in range(self.n_partitions) if not self._note(n).exists()]
        done = self.n_partitions - len(todo)
        running: set[Future[None]] = set()
        from gecasmo.logs.store.ingesting import N_WORKERS

        try:
            for number in todo:
                running.add(workers.submit(self._write, number))
                if len(running) >= N_WORKERS:
                    done += self._finish(running)
                    tell("writing", done, self.n_partitions)
            while running:
                done += self._finish(running)
                tell("writing", done, self.n_partitions)
        finally:
            for each in running:
                each.cancel()
            wait(running)

    def _finish(self, running: set[Future[None]]) -> int:
        ready, _ = wait(running, return_when=FIRST_COMPLETED)
        running -= ready
        for each in ready:
            each.result()
        return len(ready)

    def _write(self, number: int) -> None:
        pages = self._pages(number)
        entry = write_partition(
            folder_of(self.journal.log, number), compact(pages, self.fold, self.layout.has_query)
        )
        types = {name: str(dtype) for name, dtype in self._types(pages).items()}
        write_json(
            self._note(number),
            {"entry": entry, "types": types, "notes": noting.as_json(pages.notes)},
        )

    def _note(self, number: int) -> Any:
        return self.journal.done / f"partition-{number:05}.json"

    def _types(self, pages: Pages) -> dict[str, pl.DataType]:
        session = pages.sessions.dtype if pages.sessions is not None else pl.Int64()
        types: dict[str, pl.DataType] = {"session": session}
        if self.layout.has_query:
            types["query"] = pages.queries.dtype
        types |= {"doc": pages.doc.dtype, "rank": pl.Int32(), "click": pl.Boolean()}
        extras = {**pages.page_columns.schema, **pages.result_columns.schema}
        return types | {name: extras[name] for name in self.layout.kept}

    def _write_manifest(self, spilled: dict[str, Any]) -> list[Note]:
        notes_of = [json.loads(self._note(n).read_text()) for n in range(self.n_partitions)]
        met = noting.from_json(spilled["notes"])
        if spilled["from_0"]:
            title = self.roles.title("rank")
            what = f"{title}: ranks start at 0 here; they were shifted to start at 1."
            met.append(Note("ranks from 0", 1, what))
        for each in notes_of:
            met += noting.from_json(each["notes"])
        met = noting.merged(met)
        entries = [each["entry"] for each in notes_of]
        write_json(
            self.journal.log / NAME,
            {
                "format": FORMAT,
                "version": VERSION,
                "columns": notes_of[0]["types"],
                "has_query": self.layout.has_query,
                "keeps_session": self.layout.keeps_session,
                "folded": self.fold,
                **sums_of(entries),
                "notes": noting.as_json([*met, *self.layout.notes()]),
                "partitions": entries,
            },
        )
        sync_folder(self.journal.log)
        return met
