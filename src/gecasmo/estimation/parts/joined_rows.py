"""The rows of a coin in the pieces of a partition, found piece by piece.

Pages of a partition stand in the order of the hash of their query. So of two neighbouring pieces
only the last query of the one may go on in the other, and rows that belong to queries go on where
they ended. All other rows are the same if their keys are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding import Rows
from gecasmo.encoding.matching import match
from gecasmo.estimation.parts.shared_rows import SharedRows

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Places:
    """Where the rows of a piece are among those of all pieces.

    The first `n_continued` rows are of a query that was met before, whose rows begin at `start`.
    """

    index: Integers
    n_continued: int = 0
    start: int = 0
    has_old: bool = False  # whether some rows were met before


class RowsByQuery:
    """Rows query by query, of which only those of the last query may be met again."""

    def __init__(self, coin: str) -> None:
        self.coin = coin
        self._done: list[Rows] = []
        self._n_done = 0
        self._open = SharedRows(coin)  # the rows of the last query

    def add(self, rows: Rows) -> Places:
        """The places of the rows of the next piece."""
        query = rows.frame["query"]
        n_continued = 0
        if len(last := self._open.rows()) and _is_same(query, last.frame["query"]):
            n_continued = int((query == query[0]).sum())
        start, n_rows = self._n_done, len(rows)
        index = np.empty(n_rows, np.int64)
        if n_continued:
            index[:n_continued] = start + self._open.add(_slice(rows, 0, n_continued))
            n_old = len(last)
        else:
            n_old = 0
        if n_continued < n_rows:
            self._close()
            index[n_continued:] = self._n_done + np.arange(n_rows - n_continued)
            first_of_last = n_rows - int((query == query[-1]).sum())
            self._finish(_slice(rows, n_continued, first_of_last))
            self._open.add(_slice(rows, first_of_last, n_rows))
        has_old = bool((index[:n_continued] < start + n_old).any())
        return Places(index, n_continued, start, has_old)

    def rows(self) -> Rows:
        """All rows that were met."""
        pieces = [*self._done, self._open.rows()]
        frame = pl.concat([piece.frame for piece in pieces], how="vertical_relaxed")
        attached = {
            name: pl.concat([piece.attached[name] for piece in pieces])
            for name in pieces[-1].attached
        }
        return Rows(pieces[-1].keys, frame.rechunk().get_columns(), len(frame), attached)

    def _close(self) -> None:
        self._finish(self._open.rows())
        self._open = SharedRows(self.coin)

    def _finish(self, rows: Rows) -> None:
        if len(rows):
            self._done.append(rows)
            self._n_done += len(rows)


class RowsByValue:
    """Rows of any other key."""

    def __init__(self, coin: str) -> None:
        self._rows = SharedRows(coin)
        self._n_rows = 0

    def add(self, rows: Rows) -> Places:
        """The places of the rows of the next piece."""
        index = self._rows.add(rows)
        has_old = bool((index < self._n_rows).any())
        self._n_rows = max(self._n_rows, int(index.max(initial=-1)) + 1)
        return Places(index, has_old=has_old)

    def rows(self) -> Rows:
        """All rows that were met."""
        return self._rows.rows()


def _is_same(query: pl.Series, other: pl.Series) -> bool:
    """Whether the first values are the same."""
    found = match(query[:1].to_frame("query"), other[:1].to_frame("query"), ["query"])
    return bool(found[0] >= 0)


def _slice(rows: Rows, first: int, last: int) -> Rows:
    return Rows(
        rows.keys,
        rows.frame[first:last].get_columns(),
        last - first,
        {name: column[first:last] for name, column in rows.attached.items()},
    )
