"""From the small columns of a partition back to a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Note
from gecasmo.logs.store.pieces import Integers
from gecasmo.logs.store.slimming import ranks_by_length

# Pages without an id of their own are numbered within the partition, above this place.
PAGE_BITS = 32


class Decoder:
    """The columns of a partition, and the logs of its pages.

    Parameters
    ----------
    frames
        What its files hold, by their names.
    number
        Which partition it is.
    entry
        What the manifest says about it.
    columns
        The columns of the log, in order.
    notes
        The notes of the whole log.
    """

    def __init__(
        self,
        frames: Mapping[str, pl.DataFrame],
        number: int,
        entry: Mapping[str, Any],
        columns: Sequence[str],
        notes: Sequence[Note],
    ) -> None:
        self.frames, self.number, self.entry = frames, number, entry
        self._columns, self._notes = columns, notes
        self.n_pages = int(entry["pages"])
        self._pages = frames.get("pages", pl.DataFrame())
        if "length" in self._pages.columns:
            self.lengths = self._pages["length"].to_numpy().astype(np.int64)
        else:
            self.lengths = np.full(self.n_pages, entry["length"] or 0, np.int64)
        self._ends = np.cumsum(self.lengths)
        queries = frames["queries"]
        self._last_page_of_query = np.cumsum(queries["pages"].to_numpy().astype(np.int64))
        docs_of_query = queries["docs"].to_numpy().astype(np.int64)
        self._first_doc_of_query = np.cumsum(docs_of_query) - docs_of_query

    def with_frames(self, frames: Mapping[str, pl.DataFrame], n_pages: int) -> Decoder:
        """The same for some of the pages."""
        entry = {**self.entry, "pages": n_pages}
        return Decoder(frames, self.number, entry, self._columns, self._notes)

    def last_page(self, first: int, most_results: int) -> int:
        """The end of pages from `first` on that have at most so many results, or are one page."""
        before = int(self._ends[first] - self.lengths[first])
        last = int(np.searchsorted(self._ends, before + most_results, side="right"))
        return max(last, first + 1)

    def weights(self, first: int, last: int) -> NDArray[np.float64]:
        """The weight of each of some pages."""
        if "weight" not in self._pages.columns:
            return np.ones(last - first)
        return self._pages["weight"][first:last].to_numpy().astype(np.float64)

    def sessions(self, first: int, last: int) -> pl.Series:
        """What each of some pages is called."""
        if "session" in self._pages.columns:
            return self._pages["session"][first:last]
        return pl.Series("session", np.arange(first, last) + (self.number << PAGE_BITS))

    def queries(self, first: int, last: int) -> Integers:
        """Which query of the partition each of some pages answers."""
        numbers = np.arange(first, last)
        return np.searchsorted(self._last_page_of_query, numbers, side="right").astype(np.int64)

    def rows(self, first: int, last: int) -> slice:
        """Where the results of some pages stand."""
        start = int(self._ends[first] - self.lengths[first]) if last > first else 0
        return slice(start, start + int(self.lengths[first:last].sum()))

    def log(self, first: int, last: int) -> ClickLog:
        """The log of pages `first` to `last` (not included)."""
        lengths, rows = self.lengths[first:last], self.rows(first, last)
        page = np.repeat(np.arange(last - first, dtype=np.uint32), lengths)
        query = self.queries(first, last)
        results = self.frames["results"][rows]
        sessions = self.sessions(first, last)
        single = self._part("page_columns", slice(first, last))
        if "query" in self.frames["queries"].columns:
            single.append(self.frames["queries"]["query"].gather(query))
        if "rank" in results.columns:
            rank = results["rank"].cast(pl.Int32)
        else:
            rank = pl.Series(ranks_by_length(lengths))
        found = {
            "session": sessions.gather(page),
            "doc": self.frames["docs"]["doc"].gather(self.docs(first, last)),
            "rank": rank,
            "click": results["click"],
        }
        found |= {column.name: column.gather(page) for column in single}
        found |= {column.name: column for column in self._part("result_columns", rows)}
        return ClickLog(
            pl.DataFrame([found[name].alias(name) for name in self._columns]),
            page,
            sessions,
            self.weights(first, last),
            pages=pl.DataFrame(single),
            order=np.arange(len(page), dtype=np.int64),
            notes=self._notes,
        )

    def _part(self, name: str, rows: slice) -> list[pl.Series]:
        return self.frames[name][rows].get_columns() if name in self.frames else []

    def docs(self, first: int, last: int) -> Integers:
        """Which document of the partition each result of some pages is."""
        rows = self.rows(first, last)
        numbers = self.frames["results"]["doc"][rows]
        number = numbers.to_numpy().astype(np.int64)
        if numbers.dtype == pl.UInt8 and "escapes" in self.frames:
            places = self.frames["escapes"]["result"].to_numpy()
            start, end = np.searchsorted(places, [rows.start, rows.stop])
            wide = self.frames["escapes"]["doc"].to_numpy()
            number[places[start:end].astype(np.int64) - rows.start] = wide[start:end]
        query = np.repeat(self.queries(first, last), self.lengths[first:last])
        found: Integers = number + self._first_doc_of_query[query]
        return found
