"""The second half of an ingest: partition after partition is put together, folded and written."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from typing import Any

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError
from gecasmo.logs.notes import Note
from gecasmo.logs.roles import Roles
from gecasmo.logs.store.disk import sync_folder, write_json
from gecasmo.logs.store.intake import Locator
from gecasmo.logs.store.journal import Journal
from gecasmo.logs.store.manifest import (
    FORMAT,
    NAME,
    VERSION,
    merged_notes,
    notes_as_json,
    notes_from_json,
    sums_of,
)
from gecasmo.logs.store.merge import Slim, slim
from gecasmo.logs.store.pages import Gathering, Pages, likes_of
from gecasmo.logs.store.partition import compact, folder_of, write_partition
from gecasmo.logs.store.plan import (
    N_WORKERS,
    Layout,
    Wishes,
    most_rows,
    partitions_for,
    warn_of_partitions,
)
from gecasmo.logs.store.spill import Shares, Spill, spread

# Of so many buckets, one is looked at to decide about folding; of a small log more, until there are
# so many buckets with so many pages.
SAMPLED = 16
FEWEST_SAMPLED_BUCKETS, FEWEST_SAMPLED_PAGES = 4, 4000


class Finishing:
    """The way from spilled rows to the files of a stored log."""

    def __init__(
        self,
        journal: Journal,
        spill: Spill,
        layout: Layout,
        roles: Roles,
        wishes: Wishes,
        locator: Locator,
    ) -> None:
        self.journal, self.spill = journal, spill
        self.layout, self.roles, self.wishes = layout, roles, wishes
        self.locator = locator

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
        self.most_rows = most_rows(spilled["results"], spilled["bytes"], self.wishes.memory)
        self.fold = self._whether_to_fold()
        if not self.fold:
            warn_of_partitions(self._largest(), self.wishes.memory, self.wishes.partitions)
        self._write_all(workers, tell)
        return self._write_manifest(spilled)

    def _number_of_partitions(self, spilled: dict[str, Any]) -> int:
        known: int | None = self.journal.content.get("partitions")
        if known is None:
            known = self.wishes.partitions or partitions_for(
                spilled["results"], spilled["bytes"], self.journal.content["memory"]
            )
            self.journal.save(partitions=known)
        return known

    def _largest(self) -> int:
        """How many results the largest partition has."""
        rows = self.spill.rows()
        if self.n_partitions < len(rows):
            rows = rows.reshape(self.n_partitions, -1).sum(axis=1)
        return int(rows.max())

    def _whether_to_fold(self) -> bool:
        known: bool | None = self.journal.content.get("fold")
        if known is None:
            known = self.wishes.fold
            if known is None:
                known = self._pays()
            self.journal.save(fold=known)
        return known

    def _pays(self) -> bool:
        """Whether folding at least halves the pages of a sixteenth of the buckets."""
        if self.layout.keeps_session:
            return False
        n_pages = n_different = 0
        buckets = spread(self.spill.filled())
        for n_seen, bucket in enumerate(buckets):
            is_enough = n_seen >= FEWEST_SAMPLED_BUCKETS and n_pages >= FEWEST_SAMPLED_PAGES
            if is_enough and n_seen * SAMPLED >= len(buckets):
                break
            shares = Shares(self.spill, self.layout, bucket, self.spill.n_buckets, self.most_rows)
            try:
                pages = self._pages(shares, 0)
            except ClickLogError:
                # Told when all of its partition is put together, with the first of its faults.
                return False
            n_pages += pages.n_pages
            n_different += len(np.unique(likes_of(pages)))
        return 0 < 2 * n_different <= n_pages

    def _pages(self, shares: Shares, share: int) -> Pages:
        """Some pages of a partition, in the order of the source."""
        found = shares.read(share)

        def name(row: int) -> str:
            place = row if found.rows is None else int(found.rows[row])
            return self.locator.name(found.sizes, shares.first, shares.last, place)

        return self.gathering.pages(found.runs, found.results, found.order, name)

    def _write_all(self, workers: Executor, tell: Callable[[str, int, int | None], None]) -> None:
        todo = [n for n in range(self.n_partitions) if not self._note(n).exists()]
        done = self.n_partitions - len(todo)
        running: set[Future[None]] = set()
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
        has_query = self.layout.has_query
        shares = Shares(self.spill, self.layout, number, self.n_partitions, self.most_rows)
        slims: list[Slim] = []
        notes: list[Note] = []
        for share in range(shares.number):
            pages = self._pages(shares, share)
            notes += pages.notes
            types = {name: str(dtype) for name, dtype in self._types(pages).items()}
            slims.append(slim(pages, self.fold, has_query))
            del pages
        entry = write_partition(
            folder_of(self.journal.log, number), compact(slims, self.fold, has_query)
        )
        about = {"entry": entry, "types": types, "notes": notes_as_json(merged_notes(notes))}
        write_json(self._note(number), about)

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

    def _source_columns(self) -> dict[str, list[str]]:
        """Which columns of the source were taken for what; logs have the roles already."""
        if self.layout.whole and not self.layout.nested:
            return {}
        return {role: list(names) for role, names in self.roles.columns.items() if names}

    def _write_manifest(self, spilled: dict[str, Any]) -> list[Note]:
        notes_of = [json.loads(self._note(n).read_text()) for n in range(self.n_partitions)]
        met = notes_from_json(spilled["notes"])
        if spilled["from_0"]:
            title = self.roles.title("rank")
            what = f"{title}: ranks start at 0 here; they were shifted to start at 1."
            met.append(Note("ranks from 0", 1, what))
        for each in notes_of:
            met += notes_from_json(each["notes"])
        met = merged_notes(met)
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
                "source_columns": self._source_columns(),
                **sums_of(entries),
                "source_results": sum(each["source_results"] for each in entries),
                "notes": notes_as_json([*met, *self.layout.notes()]),
                "partitions": entries,
            },
        )
        sync_folder(self.journal.log)
        return met
