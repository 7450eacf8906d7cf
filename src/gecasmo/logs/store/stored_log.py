"""`StoredLog`: a click log on disk, larger than memory, a partition at a time.

Below the class: what it looks like at a glance.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.forks import refuse_lost_fork
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.pages import Page
from gecasmo.logs.store.disk import in_bytes
from gecasmo.logs.store.manifest import notes_from_json, read_manifest
from gecasmo.logs.store.partition import Decoder, folder_of, read_frames
from gecasmo.logs.store.plan import NO_SESSIONS

if TYPE_CHECKING:
    from gecasmo.logs.store.split import StoredPart

# Set when a log is made, so the class does not have them.
_OF_EVERY_LOG = ("sessions", "weight", "notes")
_INSTEAD = {
    "take": "log.split(test=0.2, by='query') picks pages at random",
    "write": "for part in log.partitions(): part.write(...) writes files, one a partition",
    "to_frame": "log.partition(i).to_frame() gives a partition, log.head(n).to_frame() some pages",
}


class StoredLog:
    """A click log in a folder on disk; made by `ClickLog.ingest`, opened by `open_log`.

    All pages of a query are in one partition: that of number i holds the pages whose hash has i as
    its first bits (without queries, the hash is that of the session; with `view="tasks"`, that of
    the task). Partitions, and the pages in them, are in order of the hash.

    Parameters
    ----------
    path
        The folder.

    Attributes
    ----------
    path : Path
        The folder.
    n_sessions : int
        Pages of the source.
    n_pages, n_results : int
        Pages and results that are stored; fewer than in the source where equal pages are folded.
    n_source_results : int
        Results of the source.
    total_weight : float
        The weight of all pages.
    columns : list of str
        Names of the columns: the roles first, then all others.
    source_columns : dict of str to list of str
        Which columns of the source were taken for the session, the query, the document, the rank,
        the click and the weight; empty where the source was no table.
    has_query : bool
        Whether the log says which query each page answers.
    is_folded : bool
        Whether equal pages are held once, with a weight.
    weights_are_counts : bool
        Whether the log is folded and the weight of a page is the number of pages of the source
        that it stands for.
    partitioned_by : str
        Of what all pages are in one partition: "query", "session", or the column of tasks.
    n_queries, n_pairs : int
        Different queries, and pairs of a query and a document; 0 where it is not partitioned by
        query, since a query is in many partitions then.
    n_partitions : int
        A power of two.
    partition_pages, partition_results : ndarray of int64
        Pages and results of each partition.
    bytes : int
        What the log takes on the disk.
    fingerprint : str
        Tells whether it is the same log.
    notes : tuple of Note
        What was met in the source and what was done about it.

    Raises
    ------
    ClickLogError
        When there is no stored log, or its manifest is damaged.
    """

    def __init__(self, path: str | Path) -> None:
        folder = Path(path).expanduser()
        manifest, self.fingerprint = read_manifest(folder)
        self._set(folder, manifest)

    def _set(self, path: Path, manifest: Mapping[str, Any]) -> None:
        self.path = path
        self._partitions = manifest["partitions"]
        self.columns: list[str] = list(manifest["columns"])
        self.dtypes: dict[str, str] = dict(manifest["columns"])
        self.n_sessions: int = manifest["sessions"]
        self.n_pages: int = manifest["pages"]
        self.n_results: int = manifest["results"]
        # Logs that were stored before this was noted have only the other number.
        self.n_source_results: int = manifest.get("source_results", self.n_results)
        self.n_queries: int = manifest["queries"]
        self.n_pairs: int = manifest["docs"] if self.n_queries else 0
        self.n_clicks: int = manifest["clicks"]
        self.total_weight: float = manifest["weight"]
        self.source_columns: dict[str, list[str]] = dict(manifest.get("source_columns", {}))
        self.has_query: bool = manifest["has_query"]
        self._walk: str | None = manifest.get("walk")
        self.partitioned_by = self._walk or ("query" if self.has_query else "session")
        self.is_folded: bool = manifest["folded"]
        # Else the source had weights of its own, and the sum of two says nothing about pages.
        has_own = "weight" in self.source_columns or self.total_weight != self.n_sessions
        self.weights_are_counts = self.is_folded and not has_own
        self.notes = tuple(notes_from_json(manifest["notes"]))

    def __len__(self) -> int:
        return self.n_sessions

    __iter__ = None  # a partition would be read for each page; `partitions` reads each once

    def __getitem__(self, which: int) -> Page:
        """Return one page to look at, by its number among those that are stored."""
        if not 0 <= which < self.n_pages:
            raise IndexError(f"there is no page {which}; {self.n_pages:,} are stored.")
        ends = np.cumsum(self.partition_pages)
        number = int(np.searchsorted(ends, which, side="right"))
        first = which - int(ends[number]) + int(self.partition_pages[number])
        return self._decoder(number).log(first, first + 1)[0]

    @property
    def n_partitions(self) -> int:
        """Number of partitions."""
        return len(self._partitions)

    @property
    def partition_pages(self) -> NDArray[np.int64]:
        """Number of pages of each partition."""
        return np.array([each["pages"] for each in self._partitions], np.int64)

    @property
    def partition_results(self) -> NDArray[np.int64]:
        """Number of results of each partition."""
        return np.array([each["results"] for each in self._partitions], np.int64)

    @property
    def bytes(self) -> int:
        """Size of all files on disk."""
        return sum(int(f["bytes"]) for each in self._partitions for f in each["files"].values())

    def partition(self, number: int) -> ClickLog:
        """Read a partition.

        Parameters
        ----------
        number
            Which one, from 0.

        Returns
        -------
        ClickLog
            Its pages, in order of the hash of their query; of one query, in order of the source. A
            page weighs as much as all those of the source that it stands for. Pages are called
            number * 2**32, number * 2**32 + 1, ... unless the log keeps the ids of its sessions.

        Raises
        ------
        ClickLogError
            When a file of it is cut off or was changed.
        """
        decoder = self._decoder(number)
        return self._told(decoder.log(0, decoder.n_pages))

    def partitions(self) -> Iterator[ClickLog]:
        """Read all partitions, one after the other."""
        return (self.partition(number) for number in range(self.n_partitions))

    def pieces(self, number: int, most_results: int) -> Iterator[ClickLog]:
        """Read a partition piece by piece, for those that are very large.

        All pages of a query are in one partition, so where a query has a tenth of a log, a
        partition has that, too. In a piece, each result takes about 50 bytes of memory; what waits
        takes little more than on the disk.

        Parameters
        ----------
        number
            Which partition, from 0.
        most_results
            The most results of a piece; a page with more is a piece of its own, and so is a task.

        Yields
        ------
        ClickLog
            Pages one after the other as in `partition`, called as they are there.
        """
        decoder = self._decoder(number)
        first = 0
        while first < decoder.n_pages:
            last = decoder.last_page(first, most_results)
            yield self._told(decoder.log(first, last))
            first = last

    def head(self, pages: int = 5) -> ClickLog:
        """Read the first pages of the first partition that has any, for a look."""
        filled = np.flatnonzero(self.partition_pages)
        decoder = self._decoder(int(filled[0]) if len(filled) else 0)
        return self._told(decoder.log(0, min(pages, decoder.n_pages)))

    def split(
        self, test: float = 0.2, by: str = "session", seed: int = 0
    ) -> tuple[StoredPart, StoredPart]:
        """Split the log into a training part and a test part, without a copy of it.

        The log is read once to count what is in each part; a part picks its pages whenever it is
        read. Both are used like any stored log, and can be split again.

        Parameters
        ----------
        test
            The share of the test part, between 0 and 1. By query, about this share of the
            queries, since each is drawn on its own. By session, this share of up to a million
            sessions, and each part gets at least one; of more, about this share. Of folded pages
            each session that a page stands for is drawn on its own, so a page can be in both
            parts, with the weight of each.
        by
            What stays together: "session" or "query", or the column of tasks.
        seed
            Seed of the random choice. Whether a query is in the test part depends on nothing but
            the seed and the share, so that it is in the same part of each log that has it; whether
            a session is, also on the log and its partitions.

        Returns
        -------
        train, test : StoredPart

        Raises
        ------
        ClickLogError
            When there is no such split: a log without queries has none by query, and a folded log
            whose source had weights of its own none by session. When a part would be empty.
        """
        from gecasmo.logs.store.split import split_stored

        return split_stored(self, test, by, seed)

    def _told(self, log: ClickLog) -> ClickLog:
        """The log with what its weights mean."""
        log.is_folded = self.weights_are_counts
        return log

    def _decoder(self, number: int) -> Decoder:
        refuse_lost_fork()
        entry = self._entry(number)
        frames = read_frames(folder_of(self.path, number), entry, self.dtypes, self._walk)
        return Decoder(frames, number, entry, self.columns, self.notes, self._walk)

    def check(self, number: int | None = None) -> None:
        """Check that the files of a partition (by default: of all) are what was written.

        Raises
        ------
        ClickLogError
            Naming the first file that is cut off or was changed.
        """
        for each in range(self.n_partitions) if number is None else (number,):
            self._decoder(each)

    def _entry(self, number: int) -> dict[str, Any]:
        if not 0 <= number < self.n_partitions:
            raise ClickLogError(
                f"{self.path}: there is no partition {number}; they are numbered from 0 to "
                f"{self.n_partitions - 1}."
            )
        entry: dict[str, Any] = self._partitions[number]
        return entry

    if not TYPE_CHECKING:  # else every name would seem to be one of a stored log

        def __getattr__(self, name: str) -> Any:
            kind = type(self).__name__
            public = not name.startswith("_")
            if not public or not (hasattr(ClickLog, name) or name in _OF_EVERY_LOG):
                what = f"{kind!r} object has no attribute {name!r}"
                raise AttributeError(what, name=name, obj=self)
            instead = f"; {_INSTEAD[name]}" if name in _INSTEAD else ""
            raise NotInMemoryError(
                f"A stored log has no {name!r}: its pages are on the disk. Use a part of it in "
                f"memory: log.partition(i).{name} (all of them: for part in log.partitions()), or "
                f"for a few pages log.head(n).{name}{instead}."
            )

    def __repr__(self) -> str:
        facts = _facts(self)
        width = max(len(name) for name, _ in facts)
        lines = [f"  {name:<{width}}  {value}" for name, value in facts]
        return "\n".join([type(self).__name__, *lines])

    def _repr_html_(self) -> str:
        facts = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in _facts(self)
        )
        return f"<div><b>{type(self).__name__}</b><table>{facts}</table></div>"


def open_log(path: str | Path) -> StoredLog:
    """Open a log that `ClickLog.ingest` or `gecasmo ingest` has stored on disk.

    Parameters
    ----------
    path
        Its folder, such as "big.gclog".

    Returns
    -------
    StoredLog
        Nothing of it is in memory yet.

    Raises
    ------
    ClickLogError
        When there is no stored log, or its manifest is damaged.
    """
    refuse_lost_fork()
    return StoredLog(path)


class NotInMemoryError(ClickLogError, AttributeError):
    """A stored log was asked for something that only a log in memory has."""


def _facts(log: StoredLog) -> list[tuple[str, str]]:
    facts = [("folder", str(log.path))]
    part_of = getattr(log, "part_of", None)
    if part_of is not None:
        facts.append(("part", part_of()))
    facts.append(("sessions", f"{log.n_sessions:,}"))
    facts.append(("results", f"{log.n_source_results:,}"))
    if log.is_folded:
        stored = f"into {log.n_pages:,} different pages with {log.n_results:,} results"
        facts.append(("folded", stored))
    if log.partitioned_by == "query":
        facts.append(
            ("queries", f"{log.n_queries:,}, in {log.n_pairs:,} pairs of query and document")
        )
    facts.append(("clicks", f"{log.n_clicks:,}"))
    if log.source_columns:
        taken = [
            role if names == [role] else f"{role} = {' + '.join(names)}"
            for role, names in log.source_columns.items()
            if role != "weight"
        ]
        facts.append(("columns", _shortened(", ".join(taken))))
    weighed = "weight" in log.source_columns
    if weighed or log.total_weight != log.n_sessions:
        of = f", of the column {log.source_columns['weight'][0]!r}" if weighed else ""
        facts.append(("weights", f"{log.total_weight:,.6g} over all sessions{of}"))
    extra = log.columns[log.columns.index("click") + 1 :]
    if extra:
        facts.append(("also", _shortened(", ".join(extra))))
    if part_of is None:
        per_page = log.bytes / max(log.n_pages, 1)
        kind = "stored page" if log.is_folded else "page"
        facts.append(("on disk", f"{in_bytes(log.bytes)}, {per_page:.1f} bytes a {kind}"))
    by = "" if log._walk is None else f", by {log._walk}"
    facts.append(("partitions", f"{log.n_partitions:,}{by}"))
    for note in log.notes:
        often = "" if note.kind == NO_SESSIONS else f": {note.count:,}"
        facts.append(("noted", _shortened(f"{note.kind}{often}")))
    return facts


def _shortened(text: str, width: int = 64) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."
