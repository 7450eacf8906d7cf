"""Changes of pages: the same results in another order, or fewer of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError, ModelError, option
from gecasmo.logs import ClickLog
from gecasmo.logs.runs import offsets
from gecasmo.report import counted

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Change:
    """What is done to every page.

    Subclasses say by `key` where each result goes: results of a page are put in order of these
    numbers, from small to large, and those with a NaN are taken away.
    """

    def key(self, log: ClickLog, place: Integers) -> Floats:
        """The number of each result of a log; `place` is its place in its page, from 1."""
        raise NotImplementedError

    def missing(self, log: ClickLog) -> set[str]:
        """What the change is about and a log does not show, in words."""
        return set()

    def apply(self, log: ClickLog) -> ClickLog:
        """The changed pages; pages on which nothing is left are refused."""
        place = np.empty(log.n_results, np.int64)
        place[log.order] = np.arange(log.n_results) - np.repeat(log.starts[:-1], log.lengths) + 1
        key = self.key(log, place)
        page = log.page.astype(np.int64)
        kept = np.flatnonzero(~np.isnan(key))
        rows = kept[np.lexsort((place[kept], key[kept], page[kept]))]
        counts = np.bincount(page[rows], minlength=log.n_sessions)
        if (counts == 0).any():
            empty = int(np.argmin(counts > 0))
            raise ClickLogError(
                f"{self}: nothing is left of {int((counts == 0).sum()):,} pages, the first is "
                f"session {log.sessions[empty]!r}."
            )
        # The first places of the page are filled, with the ranks that these had.
        starts = offsets(counts)
        within = np.arange(len(rows)) - np.repeat(starts[:-1], counts)
        rank = log.rank[log.order[np.repeat(log.starts[:-1], counts) + within]]
        frame = log.to_frame().select(log.columns)[pl.Series(rows)]
        return ClickLog(
            frame.with_columns(pl.Series("rank", rank)),
            np.repeat(np.arange(log.n_sessions), counts).astype(np.uint32),
            log.sessions,
            log.weight,
        )


@dataclass(frozen=True)
class Swap(Change):
    """Exchange the results at two ranks; pages that end above either stay as they are."""

    first: int
    second: int

    def __post_init__(self) -> None:
        for rank in (self.first, self.second):
            _require_rank(rank)

    def key(self, log: ClickLog, place: Integers) -> Floats:
        """Their places, exchanged."""
        has_both = (log.lengths >= max(self.first, self.second))[log.page]
        key = place.astype(float)
        key[has_both & (place == self.first)] = self.second
        key[has_both & (place == self.second)] = self.first
        return key

    def __str__(self) -> str:
        return f"ranks {self.first} and {self.second} exchanged"


@dataclass(frozen=True)
class Move(Change):
    """Put a document at a rank, wherever it is shown; of one query, if one is named."""

    doc: Any
    rank: int = 1
    query: Any = None

    def __post_init__(self) -> None:
        _require_rank(self.rank)

    def key(self, log: ClickLog, place: Integers) -> Floats:
        """Its new place, just before or behind what is there."""
        chosen = _chosen(log, self.doc, self.query)
        key = place.astype(float)
        comes_from_above = place[chosen] < self.rank
        key[chosen] = self.rank + np.where(comes_from_above, 0.5, -0.5)
        return key

    def missing(self, log: ClickLog) -> set[str]:
        """The document, if it is nowhere."""
        return _missing(log, self.doc, self.query)

    def __str__(self) -> str:
        return f"{_told(self.doc, self.query)} at rank {self.rank}"


@dataclass(frozen=True)
class Drop(Change):
    """Take a document away, wherever it is shown; of one query, if one is named."""

    doc: Any
    query: Any = None

    def key(self, log: ClickLog, place: Integers) -> Floats:
        """No number for it."""
        return np.where(_chosen(log, self.doc, self.query), np.nan, place.astype(float))

    def missing(self, log: ClickLog) -> set[str]:
        """The document, if it is nowhere."""
        return _missing(log, self.doc, self.query)

    def __str__(self) -> str:
        return f"without {_told(self.doc, self.query)}"


@dataclass(frozen=True)
class OrderBy(Change):
    """Put results in the order of a column, such as another ranker's score; largest first."""

    column: str
    descending: bool = True

    def key(self, log: ClickLog, place: Integers) -> Floats:
        """The column, turned round if the largest come first."""
        if self.column not in log.columns:
            raise ClickLogError(
                f"{option('order_by', self.column)}: the log has no such column; it has: "
                f"{', '.join(log.columns)}."
            )
        values = log.column(self.column)
        if not values.dtype.is_numeric():
            raise ClickLogError(f"The column '{self.column}' has {values.dtype}, not numbers.")
        numbers = values.cast(pl.Float64).fill_nan(None)
        if numbers.null_count():
            row = int(numbers.is_null().arg_max() or 0)
            raise ClickLogError(
                f"The column '{self.column}' has no number in {numbers.null_count():,} of "
                f"{len(numbers):,} rows, first in row {row}."
            )
        found: Floats = numbers.to_numpy()
        return -found if self.descending else found

    def __str__(self) -> str:
        return (
            f"in the order of '{self.column}', {'largest' if self.descending else 'smallest'} first"
        )


@dataclass(frozen=True)
class Cut(Change):
    """Make pages shorter: only so many results are left."""

    length: int

    def __post_init__(self) -> None:
        _require_rank(self.length)

    def key(self, log: ClickLog, place: Integers) -> Floats:
        """No number below the new end."""
        return np.where(place > self.length, np.nan, place.astype(float))

    def __str__(self) -> str:
        return f"at most {counted(self.length, 'result')}"


def _require_rank(rank: Any) -> None:
    if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or rank < 1:
        raise ModelError(f"{rank!r} is no rank: a whole number, at least 1.")


def _chosen(log: ClickLog, doc: Any, query: Any) -> NDArray[np.bool_]:
    """The results that show a document, of one query if one is named."""
    chosen = _equals(log.column("doc"), doc)
    if query is not None:
        chosen = chosen & _equals(log.column("query"), query)
    return chosen


def _missing(log: ClickLog, doc: Any, query: Any) -> set[str]:
    return set() if _chosen(log, doc, query).any() else {_told(doc, query)}


def _told(doc: Any, query: Any) -> str:
    return f"document {doc!r}" + ("" if query is None else f" of query {query!r}")


def _equals(column: pl.Series, value: Any) -> NDArray[np.bool_]:
    """Where a column has a value, which a command line gives as text."""
    if isinstance(value, str) and column.dtype not in (pl.String, pl.Categorical, pl.Enum):
        column = column.cast(pl.String)
    found: NDArray[np.bool_] = (column == value).fill_null(False).to_numpy()
    return found


@dataclass(frozen=True)
class Rearranged(Change):
    """Whatever a function makes of a log: it gives each result a number to be ordered by."""

    order: Callable[[ClickLog], Any]

    def key(self, log: ClickLog, place: Integers) -> Floats:
        """What the function says."""
        found = np.asarray(self.order(log), float)
        if found.shape != (log.n_results,):
            raise ClickLogError(
                f"The function gave {found.size:,} numbers for {log.n_results:,} results."
            )
        return found

    def __str__(self) -> str:
        return "in the order that a function says"


@dataclass(frozen=True)
class Several(Change):
    """One change after the other."""

    changes: tuple[Change, ...]

    def missing(self, log: ClickLog) -> set[str]:
        """What any of them does not find."""
        return set().union(*(change.missing(log) for change in self.changes))

    def apply(self, log: ClickLog) -> ClickLog:
        """What the last one makes of what those before it have made."""
        for change in self.changes:
            log = change.apply(log)
        return log

    def __str__(self) -> str:
        return ", then ".join(map(str, self.changes))


def as_change(given: Any) -> Change:
    """A change as it is, or several as one; a function orders results by the numbers that it gives
    them, small first, and takes those away that get a NaN."""
    if isinstance(given, Change):
        return given
    if isinstance(given, (list, tuple)) and given:
        changes = tuple(map(as_change, given))
        return changes[0] if len(changes) == 1 else Several(changes)
    if callable(given):
        return Rearranged(given)
    raise ModelError(
        f"{given!r} is no change of pages: Swap(2, 5), Move('doc', 1), Drop('doc'), "
        "OrderBy('score') and Cut(5) of gecasmo.pages are some."
    )
