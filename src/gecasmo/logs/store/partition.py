"""A partition as it is stored: its small columns, its files, and the way back to a log.

Pages are in order of hash, documents numbered by query. Files are written whole, and checked when
they are read.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Note
from gecasmo.logs.pages import rows_that_differ
from gecasmo.logs.store.disk import arrow_bytes, sync_folder, telling_full_disk, write_whole
from gecasmo.logs.store.merge import Merged, Slim, merge, ranks_by_length, smallest
from gecasmo.logs.store.pieces import Integers

ESCAPE = 255
# A number that does not fit takes five bytes or more instead of one.
SHARE_OF_ESCAPES = 0.15
# Pages without an id of their own are numbered within the partition, above this place.
PAGE_BITS = 32


@dataclass
class Compact:
    """A partition as it is stored.

    Attributes
    ----------
    queries
        "query" (if there are queries), and how many "pages" and "docs" each has.
    docs
        The documents of each query, one query after the other, the most frequent first.
    pages
        Whatever is not the same for all of "length", "weight" and "session".
    page_columns, result_columns
        What else is kept.
    results
        "doc" (its number among those of its query; in bytes, 255 where that does not fit),
        "click", and "rank" unless it is 1, 2, 3, ... everywhere.
    escapes
        "result" and "doc": the numbers that do not fit, by place.
    facts
        The counts.
    """

    queries: pl.DataFrame
    docs: pl.DataFrame
    pages: pl.DataFrame
    page_columns: pl.DataFrame
    results: pl.DataFrame
    result_columns: pl.DataFrame
    escapes: pl.DataFrame
    facts: dict[str, int | float | None]


def compact(slims: Sequence[Slim], fold: bool, has_query: bool) -> Compact:
    """Make the columns of a partition.

    Parameters
    ----------
    slims
        All its pages; in several shares where they are too many to be put together at once.
    fold
        Whether pages that are the same are held once, with their weights added up.
    has_query
        Whether the log has queries; else all pages share one list of documents.

    Returns
    -------
    Compact
    """
    merged = merge(slims, fold, has_query)
    queries = pl.DataFrame(
        {
            "pages": merged.pages_of_query.astype(np.uint32),
            "docs": merged.docs_of_query.astype(np.uint32),
        }
    )
    if has_query:
        queries = queries.insert_column(0, merged.queries.alias("query"))
    stored = _stored_numbers(merged.doc)
    page_columns, result_columns = _columns(merged)
    return Compact(
        queries=queries,
        docs=merged.docs.alias("doc").to_frame(),
        pages=_page_frame(merged),
        page_columns=page_columns,
        results=_result_frame(stored, merged),
        result_columns=result_columns,
        escapes=_escapes(merged.doc, stored),
        facts={
            "sessions": sum(share.n_sessions for share in slims),
            "pages": len(merged.lengths),
            "results": len(merged.doc),
            "queries": len(merged.queries) if has_query else 0,
            "docs": len(merged.docs),
            "clicks": sum(share.n_clicks for share in slims),
            "weight": float(sum(share.total_weight for share in slims)),
            "source_results": sum(share.n_results for share in slims),
            "length": _the_one(merged.lengths),
        },
    )


def _columns(merged: Merged) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What else is kept; a column that has one value on every page is held once a page."""
    lengths = merged.lengths
    of_pages, of_results = merged.page_columns.get_columns(), []
    if merged.result_columns.width:
        page = np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths)
        firsts = np.cumsum(lengths) - lengths
        for values in merged.result_columns:
            if (lengths > 0).all() and len(rows_that_differ(values, page, firsts)) == 0:
                of_pages.append(values.gather(firsts))
            else:
                of_results.append(values)
    return pl.DataFrame(of_pages), pl.DataFrame(of_results)


def _page_frame(merged: Merged) -> pl.DataFrame:
    lengths, weight = merged.lengths, merged.weight
    columns = []
    if _the_one(lengths) is None and len(lengths):
        columns.append(pl.Series("length", smallest(lengths)))
    if not (weight == 1).all():
        whole = (weight == np.floor(weight)).all() and weight.max() < 2**32
        values = smallest(weight.astype(np.int64)) if whole else weight
        columns.append(pl.Series("weight", values))
    if merged.sessions is not None:
        columns.append(merged.sessions.alias("session"))
    return pl.DataFrame(columns)


def _result_frame(stored: NDArray[np.unsignedinteger], merged: Merged) -> pl.DataFrame:
    columns = [
        pl.Series("doc", stored),
        pl.Series("click", merged.click, dtype=pl.Boolean),
    ]
    if merged.rank is not None:
        columns.append(pl.Series("rank", smallest(merged.rank)))
    return pl.DataFrame(columns)


def _stored_numbers(numbers: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """Numbers in a byte each, with a mark where they do not fit; wider ones if many do not."""
    if int((numbers >= ESCAPE).sum()) <= SHARE_OF_ESCAPES * len(numbers):
        small: NDArray[np.unsignedinteger] = np.minimum(numbers, ESCAPE).astype(np.uint8)
        return small
    wide: NDArray[np.unsignedinteger] = numbers if numbers.itemsize > 1 else numbers.astype("u2")
    return wide


def _escapes(
    numbers: NDArray[np.unsignedinteger], stored: NDArray[np.unsignedinteger]
) -> pl.DataFrame:
    places = np.flatnonzero(numbers >= ESCAPE) if stored.itemsize == 1 else np.zeros(0, np.int64)
    return pl.DataFrame({"result": smallest(places), "doc": smallest(numbers[places])})


def _the_one(values: Integers) -> int | None:
    """The value that all have, if there is one."""
    if len(values) == 0 or not (values == values[0]).all():
        return None
    return int(values[0])


def folder_of(log: Path, number: int) -> Path:
    """Where a partition is."""
    return log / f"partition-{number:05}"


def write_partition(folder: Path, compact: Compact) -> dict[str, Any]:
    """Write a partition; it appears under its name when all of it is on the disk.

    Parameters
    ----------
    folder
        Where to.
    compact
        What it holds.

    Returns
    -------
    dict
        The counts, and the size and checksum of each file, for the manifest.
    """
    temporary = folder.with_name(f"{folder.name}.part")
    with telling_full_disk(folder):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    files = {}
    for field in fields(compact):
        frame = getattr(compact, field.name)
        # What is not there is the same for all, or not there: the facts tell.
        if isinstance(frame, pl.DataFrame) and frame.width and not _is_left_out(field.name, frame):
            data = arrow_bytes(frame)
            name = f"{field.name}.arrow"
            write_whole(temporary / name, data)
            files[name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    with telling_full_disk(folder):
        sync_folder(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.replace(folder)
        sync_folder(folder.parent)
    return {**compact.facts, "files": files}


def _is_left_out(name: str, frame: pl.DataFrame) -> bool:
    return name == "escapes" and frame.height == 0


def checked_file(folder: Path, name: str, entry: Mapping[str, Any]) -> bytes:
    """The content of a file of a partition, if it is what was written."""
    path = folder / name
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise ClickLogError(
            f"{path} cannot be read: {problem.strerror or problem}. It is a part of a stored log; "
            "ingest the log again."
        ) from problem
    if len(data) != entry["bytes"]:
        raise ClickLogError(
            f"{path} has {len(data):,} bytes instead of {entry['bytes']:,}: it was cut off or "
            "changed. It is a part of a stored log; ingest the log again."
        )
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise ClickLogError(
            f"{path} was changed since it was written: its checksum differs. It is a part of a "
            "stored log; ingest the log again."
        )
    return data


def read_frames(folder: Path, entry: Mapping[str, Any]) -> dict[str, pl.DataFrame]:
    """Read the files of a partition, by their names without the ending."""
    return {
        name.removesuffix(".arrow"): pl.read_ipc(checked_file(folder, name, about))
        for name, about in entry["files"].items()
    }


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
