"""From the small columns of a partition back to a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

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
        self._frames, self._number, self._columns, self._notes = frames, number, columns, notes
        self.n_pages = int(entry["pages"])
        self._pages = frames.get("pages", pl.DataFrame())
        if "length" in self._pages.columns:
            self._lengths = self._pages["length"].to_numpy().astype(np.int64)
        else:
            self._lengths = np.full(self.n_pages, entry["length"] or 0, np.int64)
        self._ends = np.cumsum(self._lengths)
        queries = frames["queries"]
        self._last_page_of_query = np.cumsum(queries["pages"].to_numpy().astype(np.int64))
        docs_of_query = queries["docs"].to_numpy().astype(np.int64)
        self._first_doc_of_query = np.cumsum(docs_of_query) - docs_of_query

    def last_page(self, first: int, most_results: int) -> int:
        """The end of pages from `first` on that have at most so many results, or are one page."""
        before = int(self._ends[first] - self._lengths[first])
        last = int(np.searchsorted(self._ends, before + most_results, side="right"))
        return max(last, first + 1)

    def log(self, first: int, last: int) -> ClickLog:
        """The log of pages `first` to `last` (not included)."""
        lengths = self._lengths[first:last]
        start = int(self._ends[first] - self._lengths[first]) if last > first else 0
        rows = slice(start, start + int(lengths.sum()))
        numbers = np.arange(first, last)
        page = np.repeat(np.arange(last - first, dtype=np.uint32), lengths)
        query = np.searchsorted(self._last_page_of_query, numbers, side="right")
        results = self._frames["results"][rows]
        of_pages = self._pages[first:last]
        if "session" in of_pages.columns:
            sessions = of_pages["session"]
        else:
            sessions = pl.Series("session", numbers + (self._number << PAGE_BITS))
        weight = np.ones(last - first)
        if "weight" in of_pages.columns:
            weight = of_pages["weight"].to_numpy().astype(np.float64)
        single = self._part("page_columns", slice(first, last))
        if "query" in self._frames["queries"].columns:
            single.append(self._frames["queries"]["query"].gather(query))
        if "rank" in results.columns:
            rank = results["rank"].cast(pl.Int32)
        else:
            rank = pl.Series(ranks_by_length(lengths))
        found = {
            "session": sessions.gather(page),
            "doc": self._docs(results["doc"], rows, np.repeat(query, lengths)),
            "rank": rank,
            "click": results["click"],
        }
        found |= {column.name: column.gather(page) for column in single}
        found |= {column.name: column for column in self._part("result_columns", rows)}
        return ClickLog(
            pl.DataFrame([found[name].alias(name) for name in self._columns]),
            page,
            sessions,
            weight,
            pages=pl.DataFrame(single),
            order=np.arange(len(page), dtype=np.int64),
            notes=self._notes,
        )

    def _part(self, name: str, rows: slice) -> list[pl.Series]:
        return self._frames[name][rows].get_columns() if name in self._frames else []

    def _docs(self, numbers: pl.Series, rows: slice, query: Integers) -> pl.Series:
        """The documents by their numbers."""
        number = numbers.to_numpy().astype(np.int64)
        if numbers.dtype == pl.UInt8 and "escapes" in self._frames:
            places = self._frames["escapes"]["result"].to_numpy()
            first, last = np.searchsorted(places, [rows.start, rows.stop])
            wide = self._frames["escapes"]["doc"].to_numpy()
            number[places[first:last].astype(np.int64) - rows.start] = wide[first:last]
        number += self._first_doc_of_query[query]
        return self._frames["docs"]["doc"].gather(number)
