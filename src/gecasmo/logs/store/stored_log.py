"""`StoredLog`: a click log on disk, larger than memory, a partition at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Note
from gecasmo.logs.store.absent import missing_attribute
from gecasmo.logs.store.decoding import Decoder
from gecasmo.logs.store.manifest import read_manifest
from gecasmo.logs.store.partition_files import checked_file, folder_of, read_frames
from gecasmo.logs.store.summary import html_summary, text_summary

if TYPE_CHECKING:
    from gecasmo.logs.store.splitting import StoredPart


class StoredLog:
    """A click log in a folder on disk; made by `ClickLog.ingest`, opened by `open_log`.

    All pages of a query are in one partition: that of number i holds the pages whose hash has i as
    its first bits (without queries, the hash is that of the session). Partitions, and the pages
    in them, are in order of the hash.

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
    n_queries, n_pairs : int
        Different queries, and pairs of a query and a document.
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
        self.n_pairs: int = manifest["docs"]
        self.n_clicks: int = manifest["clicks"]
        self.total_weight: float = manifest["weight"]
        self.source_columns: dict[str, list[str]] = dict(manifest.get("source_columns", {}))
        self.has_query: bool = manifest["has_query"]
        self.is_folded: bool = manifest["folded"]
        # Else the source had weights of its own, and the sum of two says nothing about pages.
        has_own = "weight" in self.source_columns or self.total_weight != self.n_sessions
        self.weights_are_counts = self.is_folded and not has_own
        self.notes = tuple(
            Note(note["kind"], note["count"], note["what"], tuple(note["examples"]))
            for note in manifest["notes"]
        )

    def __len__(self) -> int:
        return self.n_sessions

    @property
    def n_partitions(self) -> int:
        return len(self._partitions)

    @property
    def partition_pages(self) -> NDArray[np.int64]:
        return np.array([each["pages"] for each in self._partitions], np.int64)

    @property
    def partition_results(self) -> NDArray[np.int64]:
        return np.array([each["results"] for each in self._partitions], np.int64)

    @property
    def bytes(self) -> int:
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
            The most results of a piece; a page with more is a piece of its own.

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
            What stays together: "session" or "query".
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
        from gecasmo.logs.store.splitting import split_stored

        return split_stored(self, test, by, seed)

    def _told(self, log: ClickLog) -> ClickLog:
        """The log with what its weights mean."""
        log.is_folded = self.weights_are_counts
        return log

    def _decoder(self, number: int) -> Decoder:
        entry = self._entry(number)
        frames = read_frames(folder_of(self.path, number), entry)
        return Decoder(frames, number, entry, self.columns, self.notes)

    def check(self, number: int | None = None) -> None:
        """Check that the files of a partition (by default: of all) are what was written.

        Raises
        ------
        ClickLogError
            Naming the first file that is cut off or was changed.
        """
        for each in range(self.n_partitions) if number is None else (number,):
            for name, about in self._entry(each)["files"].items():
                checked_file(folder_of(self.path, each), name, about)

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
            raise missing_attribute(self, name)

    def __repr__(self) -> str:
        return text_summary(self)

    def _repr_html_(self) -> str:
        return html_summary(self)


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
    return StoredLog(path)
