"""A partition as it is stored: its files, and the way back to a log.

Pages are in order of hash, documents numbered by query. Files are written whole, and checked when
they are read.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.files import synced
from gecasmo.frames import WIDE
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.inputs import naming
from gecasmo.logs.notes import Note
from gecasmo.logs.pages import rows_that_differ
from gecasmo.logs.runs import Integers
from gecasmo.logs.store.builder import QUERY, CodedPages, groups_of, ranks_by_length, smallest
from gecasmo.logs.store.disk import arrow_bytes, telling_full_disk, write_whole
from gecasmo.logs.store.page_runs import LENGTH, ROW, WEIGHT
from gecasmo.logs.values import LARGEST_RANK, is_plain

ESCAPE = 255
# A number that does not fit takes five bytes or more instead of one.
SHARE_OF_ESCAPES = 0.15
# Pages without an id of their own are numbered within the partition, above this place.
PAGE_BITS = 32
# More pages of a partition than this have a result somewhere.
MOST_EMPTY_PAGES = 1 << 24
# Columns of files that are none of the log.
_OWN = {("queries", "pages"), ("queries", "docs"), ("pages", "length"), ("pages", "weight")}


def stored_frames(pages: CodedPages, by_query: bool) -> dict[str, pl.DataFrame]:
    """The files of a partition, by their names without the ending; empty ones are not written.

    - queries: "query" (if partitions are by query), and how many "pages" and "docs" each has
    - docs: the documents of each query, one query after the other, the most frequent first
    - pages: whatever is not the same for all of "length", "weight" and "session"
    - results: "doc" (its number among those of its query; in bytes, 255 where that does not fit),
      "click", and "rank" unless it is 1, 2, 3, ... everywhere
    - escapes: "result" and "doc": the numbers that do not fit, by place
    - page_columns, result_columns: what else is kept
    """
    results = pages.runs.results
    n_groups = len(pages.queries) if by_query else 1
    sizes = {"pages": groups_of(pages.runs, by_query), "docs": pages.docs["query"].to_numpy()}
    queries = [pages.queries.alias("query")] if by_query else []
    for name, group in sizes.items():
        count = np.bincount(group, minlength=n_groups)
        queries.append(pl.Series(name, count.astype(np.uint32)))
    number = results["doc"].to_numpy()
    stored = _stored_numbers(number)
    roles = [pl.Series("doc", stored), results["click"]]
    if "rank" in results.columns:
        roles.append(pl.Series("rank", smallest(results["rank"].to_numpy())))
    page_columns, result_columns = _other_columns(pages)
    frames = {
        "queries": pl.DataFrame(queries),
        "docs": pages.docs.select("doc"),
        "pages": _page_frame(pages),
        "page_columns": page_columns,
        "results": pl.DataFrame(roles),
        "result_columns": result_columns,
    }
    too_large = np.flatnonzero(number >= ESCAPE)
    if stored.itemsize == 1 and len(too_large):
        escapes = {"result": smallest(too_large), "doc": smallest(number[too_large])}
        frames["escapes"] = pl.DataFrame(escapes)
    return frames


def stored_facts(pages: CodedPages, by_query: bool) -> dict[str, int | float | None]:
    """What the manifest counts of a partition."""
    return {
        "sessions": pages.sessions,
        "pages": len(pages.runs),
        "results": pages.runs.results.height,
        "queries": len(pages.queries) if by_query else 0,
        "docs": pages.docs.height,
        "clicks": pages.clicks,
        "weight": pages.weight,
        "source_results": pages.results,
        "length": _the_one(pages.runs.lengths),
    }


def _other_columns(pages: CodedPages) -> tuple[pl.DataFrame, pl.DataFrame]:
    """What else is kept; a column that has one value on every page is held once a page."""
    heads, lengths = pages.runs.heads, pages.runs.lengths
    own = (LENGTH, ROW, WEIGHT, QUERY, "session")
    of_pages = [column for column in heads if column.name not in own]
    of_results = []
    others = [c for c in pages.runs.results if c.name not in ("doc", "rank", "click")]
    if others:
        page = np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths)
        firsts = np.cumsum(lengths) - lengths
        for values in others:
            if (lengths > 0).all() and len(rows_that_differ(values, page, firsts)) == 0:
                of_pages.append(values.gather(firsts))
            else:
                of_results.append(values)
    return pl.DataFrame(of_pages), pl.DataFrame(of_results)


def _page_frame(pages: CodedPages) -> pl.DataFrame:
    heads, lengths = pages.runs.heads, pages.runs.lengths
    weight = heads[WEIGHT].to_numpy()
    columns = []
    if _the_one(lengths) is None and len(lengths):
        columns.append(pl.Series("length", smallest(lengths)))
    if not (weight == 1).all():
        whole = (weight == np.floor(weight)).all() and weight.max() < 2**32
        values = smallest(weight.astype(np.int64)) if whole else weight
        columns.append(pl.Series("weight", values))
    if "session" in heads.columns:
        columns.append(heads["session"])
    return pl.DataFrame(columns)


def _stored_numbers(numbers: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
    """Numbers in a byte each, with a mark where they do not fit; wider ones if many do not."""
    if int((numbers >= ESCAPE).sum()) <= SHARE_OF_ESCAPES * len(numbers):
        small: NDArray[np.unsignedinteger] = np.minimum(numbers, ESCAPE).astype(np.uint8)
        return small
    wide: NDArray[np.unsignedinteger] = numbers if numbers.itemsize > 1 else numbers.astype("u2")
    return wide


def _the_one(values: Integers) -> int | None:
    """The value that all have, if there is one."""
    if len(values) == 0 or not (values == values[0]).all():
        return None
    return int(values[0])


def folder_of(log: Path, number: int) -> Path:
    """Where a partition is."""
    return log / f"partition-{number:05}"


def write_partition(folder: Path, pages: CodedPages, by_query: bool) -> dict[str, Any]:
    """Write a partition; it appears under its name when all of it is on the disk.

    What is returned is for the manifest: the counts, and the size and checksum of each file.
    """
    temporary = folder.with_name(f"{folder.name}.part")
    with telling_full_disk(folder):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
    files = {}
    for name, frame in stored_frames(pages, by_query).items():
        if frame.width:
            data = arrow_bytes(frame)
            write_whole(temporary / f"{name}.arrow", data)
            about = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            files[f"{name}.arrow"] = about
    with telling_full_disk(folder):
        synced(temporary)
        shutil.rmtree(folder, ignore_errors=True)
        temporary.replace(folder)
        synced(folder.parent)
    return {**stored_facts(pages, by_query), "files": files}


def checked_file(folder: Path, name: str, entry: Mapping[str, Any]) -> bytes:
    """The content of a file of a partition, if it is what was written."""
    path = folder / name
    try:
        about = path.stat()
        # Before it is read: pipes and devices have no end.
        is_file, n_bytes = stat.S_ISREG(about.st_mode), about.st_size
        data = path.read_bytes() if is_file and n_bytes == entry["bytes"] else b""
    except OSError as problem:
        raise _damaged(path, f"cannot be read: {problem.strerror or problem}") from problem
    if not is_file or n_bytes != entry["bytes"]:
        found = f"has {n_bytes:,} bytes instead of {entry['bytes']:,}: it was cut off or changed"
        raise _damaged(path, found if is_file else "is no file")
    if hashlib.sha256(data).hexdigest() != entry["sha256"]:
        raise _damaged(path, "was changed since it was written: its checksum differs")
    return data


def _damaged(path: Path, what: str) -> ClickLogError:
    return ClickLogError(f"{path} {what}. It is a part of a stored log; ingest the log again.")


def read_frames(
    folder: Path, entry: Mapping[str, Any], types: Mapping[str, str], walk: str | None = None
) -> dict[str, pl.DataFrame]:
    """Read the files of a partition, by their names without the ending, and check them.

    `types` are those of the columns of the log, as the manifest says, and `walk` is the column by
    which pages are in partitions, if that is no role.
    """
    frames = {}
    for name, about in entry["files"].items():
        data = checked_file(folder, name, about)
        with naming(str(folder / name), quietly=True):
            frames[name.removesuffix(".arrow")] = pl.read_ipc(data)
    _PartitionCheck(folder, frames, entry, types, walk).check()
    return frames


class _PartitionCheck:
    """Refuses frames that do not fit together.

    Checksums tell damage; whoever makes files on purpose makes checksums, too. What is read here is
    used as indices by code that does not look, so each is held against what it points into.
    """

    def __init__(
        self,
        folder: Path,
        frames: Mapping[str, pl.DataFrame],
        entry: Mapping[str, Any],
        types: Mapping[str, str],
        walk: str | None,
    ) -> None:
        self.folder, self.frames, self.entry, self.types = folder, frames, entry, types
        self.walk, self.by_query = walk, "query" in types and walk is None
        home = "queries" if self.by_query else "page_columns"
        self.homes = {"query": home, "doc": "docs", "session": "pages"}
        if walk is not None:
            self.homes[walk] = "page_columns"
        self.n_pages, self.n_results = entry["pages"], entry["results"]

    def check(self) -> None:
        sizes = {"results": self.n_results, "result_columns": self.n_results}
        sizes |= {"pages": self.n_pages, "page_columns": self.n_pages, "docs": self.entry["docs"]}
        sizes["queries"] = self.entry["queries"] if self.by_query else 1
        for name, wanted in sizes.items():
            if name in self.frames and (height := self.frames[name].height) != wanted:
                self._refuse(name, f"has {height:,} rows instead of {wanted:,}")
        self._check_columns()
        lengths = self._lengths()
        ends = np.cumsum(lengths)
        filled = np.flatnonzero(lengths)
        self._check_docs((ends - lengths)[filled], self._docs_of_pages(filled))
        if "rank" in self.frames["results"].columns:
            rank = self._numbers("results", "rank", 1, LARGEST_RANK)
            rises = rank[1:] > rank[:-1]
            rises[ends[(ends > 0) & (ends < len(rank))] - 1] = True
            if not rises.all():
                self._refuse("results", "has ranks that do not rise on a page")
        if self._column("results", "click").dtype != pl.Boolean:
            self._refuse("results", "has clicks that are not yes or no")
        if "weight" in self.frames.get("pages", pl.DataFrame()).columns:
            weight = self._column("pages", "weight")
            if not weight.dtype.is_numeric() or not np.isfinite(
                weight.cast(pl.Float64).to_numpy().sum()
            ):
                self._refuse("pages", "has weights that are no finite numbers")
            if (weight < 0).any():
                self._refuse("pages", "has negative weights")

    def _lengths(self) -> Integers:
        """How many results each page has."""
        pages = self.frames.get("pages", pl.DataFrame())
        if "length" in pages.columns:
            lengths = self._numbers("pages", "length", 0, self.n_results).astype(np.int64)
            if int(lengths.sum()) != self.n_results:
                self._refuse("pages", "has lengths that do not add up to the results")
            return lengths
        length = self.entry["length"]
        if length is None and self.n_pages:
            self._refuse("pages", "does not say how long pages are")
        # Where nothing in a file stands for a page, any number could be claimed.
        is_believed = length or pages.width or self.n_pages <= MOST_EMPTY_PAGES
        if self.n_pages * (length or 0) != self.n_results or not is_believed:
            self._refuse("results", f"cannot have {self.n_pages:,} pages of {length} results")
        return np.full(self.n_pages, length or 0, np.int64)

    def _docs_of_pages(self, page: Integers) -> Integers:
        """How many documents the query of each of some pages has."""
        n_docs = self.entry["docs"]
        pages = self._numbers("queries", "pages", 0, self.n_pages).astype(np.int64)
        docs = self._numbers("queries", "docs", 0, n_docs).astype(np.int64)
        if int(pages.sum()) != self.n_pages or int(docs.sum()) != n_docs:
            self._refuse("queries", "has numbers of pages or documents that do not add up")
        query = self.frames["queries"].get_column("query", default=pl.Series([]))
        if docs[query.is_null().arg_true().to_numpy()].any():
            self._refuse("queries", "has results without a query")
        found: Integers = docs[np.searchsorted(np.cumsum(pages), page, side="right")]
        return found

    def _check_docs(self, starts: Integers, n_docs: Integers) -> None:
        """Numbers of documents, on pages that start there and have queries with so many of them."""
        stored = self._numbers("results", "doc", 0, 2**32)
        is_small = stored.dtype == np.uint8
        if is_small and "escapes" in self.frames:
            place = self._numbers("escapes", "result", 0, self.n_results - 1).astype(np.int64)
            wide = self._numbers("escapes", "doc", ESCAPE, 2**32)
            if (place[1:] <= place[:-1]).any() or len(place) != (stored == ESCAPE).sum():
                self._refuse("escapes", "is not about the results that are marked")
            page = np.searchsorted(starts, place, side="right") - 1
            if (stored[place] != ESCAPE).any() or (wide >= n_docs[page]).any():
                self._refuse("escapes", "has numbers of documents that are not there")
            stored = np.where(stored == ESCAPE, np.uint8(0), stored)
        elif "escapes" in self.frames:
            self._refuse("escapes", "is not about the results that are marked")
        if len(starts) and (np.maximum.reduceat(stored, starts) >= n_docs).any():
            self._refuse("results", "has numbers of documents that are not there")

    def _check_columns(self) -> None:
        """Columns with the types that the manifest says, each once, and ids without gaps."""
        found = {"rank", "click"}
        for name in ("queries", "docs", "pages", "page_columns", "result_columns"):
            for column in self.frames.get(name, pl.DataFrame()):
                if (name, column.name) in _OWN:
                    continue
                is_home = self.homes.get(column.name, name) == name and (
                    column.name in self.homes or name.endswith("_columns")
                )
                same = _kind(str(column.dtype)) == _kind(self.types.get(column.name, ""))
                if not (is_home and same) or column.name in found:
                    self._refuse(name, f"has a column {column.name!r} that is not as was noted")
                if column.name in ("doc", "session", self.walk):
                    self._column(name, column.name)
                found.add(column.name)
        # Sessions whose ids are not kept are numbered.
        if lost := self.types.keys() - found - {"session"}:
            self._refuse("results", f"comes without the column {min(lost)!r}")

    def _column(self, name: str, column: str) -> pl.Series:
        frame = self.frames[name]
        if column not in frame.columns or frame[column].null_count():
            self._refuse(name, f"has no {column!r}, or not everywhere")
        return frame[column]

    def _numbers(self, name: str, column: str, low: int, high: int) -> NDArray[Any]:
        """A column of whole numbers between two."""
        values = self._column(name, column)
        is_wide = values.dtype in WIDE
        if is_wide or not is_plain(values, high) or (values < low).any():
            self._refuse(name, f"has values of {column!r} that cannot be")
        return values.to_numpy()

    def _refuse(self, name: str, what: str) -> NoReturn:
        raise _damaged(self.folder / f"{name}.arrow", what)


def _kind(type_: str) -> str:
    """A type without its details, which another version of Polars may print otherwise."""
    return type_.partition("(")[0]


class Decoder:
    """The columns of a partition, and the logs of its pages.

    `frames` are what its files hold, by their names, `entry` is what the manifest says about it;
    `columns` and `notes` are those of the log; pages that are the same in the column `walk` stand
    together and stay together.
    """

    def __init__(
        self,
        frames: Mapping[str, pl.DataFrame],
        number: int,
        entry: Mapping[str, Any],
        columns: Sequence[str],
        notes: Sequence[Note],
        walk: str | None = None,
    ) -> None:
        self.walk = walk
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
        return Decoder(frames, self.number, entry, self._columns, self._notes, self.walk)

    def last_page(self, first: int, most_results: int) -> int:
        """The end of pages from `first` on that have at most so many results, or are one page, or
        the pages of one walk."""
        before = int(self._ends[first] - self.lengths[first])
        last = int(np.searchsorted(self._ends, before + most_results, side="right"))
        last = max(last, first + 1)
        if self.walk is None or last == self.n_pages:
            return last
        run = self.page_values(self.walk)[first:].rle_id().to_numpy()
        at = last - first
        begins = int(np.searchsorted(run, run[at]))  # of the walk that would be cut
        if begins == 0:
            begins = int(np.searchsorted(run, run[at], side="right"))
        return first + begins

    def weights(self, first: int, last: int) -> NDArray[np.float64]:
        """The weight of each of some pages."""
        if "weight" not in self._pages.columns:
            return np.ones(last - first)
        # Of whatever width: NumPy has no integers of 128 bits.
        weights: NDArray[np.float64] = self._pages["weight"][first:last].cast(pl.Float64).to_numpy()
        return weights

    def sessions(self, first: int, last: int) -> pl.Series:
        """What each of some pages is called."""
        if "session" in self._pages.columns:
            return self._pages["session"][first:last]
        return pl.Series("session", np.arange(first, last) + (self.number << PAGE_BITS))

    def queries(self, first: int, last: int) -> Integers:
        """Which query of the partition each of some pages answers."""
        numbers = np.arange(first, last)
        return np.searchsorted(self._last_page_of_query, numbers, side="right").astype(np.int64)

    def page_values(self, name: str) -> pl.Series:
        """The value of each page in a column that has one a page, other than the query that
        partitions are by."""
        if name == "session":
            return self.sessions(0, self.n_pages)
        return self.frames["page_columns"][name]

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
