"""What a view is, what it makes of a log, and the way back to the user's rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Literal
from weakref import WeakKeyDictionary, ref

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from gecasmo.errors import ClickLogError, GecasmoWarning, tell
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Note, in_one_message, merged_notes
from gecasmo.logs.selection import as_mask
from gecasmo.report import listed

Integers = NDArray[np.int64]
Visits = Literal["any", "all"]


@dataclass(frozen=True)
class Walks:
    """What a view makes of a log.

    Attributes
    ----------
    rows
        The rows of the log in the order in which users come by, walk after walk.
    starts
        Where each walk begins among these, with their number at the end.
    rank
        The place of each row in its walk, as a rank: it rises along the walk.
    first_session
        The first session of each walk: its id and its weight are those of the walk.
    walk_of_session
        The walk that each session is in; None if a session may be in several.
    columns
        What follows from the order, by name: makes a value for each row of the walks.
    ids
        The id of each walk, where it is not that of its first session.
    notes
        What was met in the log, and what was done about it.
    odd
        Those of the notes that a user should be told.
    """

    rows: Integers
    starts: Integers
    rank: NDArray[np.int32]
    first_session: Integers
    walk_of_session: Integers | None
    columns: Mapping[str, Callable[[], pl.Series]]
    ids: pl.Series | None = None
    notes: tuple[Note, ...] = ()
    odd: tuple[Note, ...] = ()


@dataclass(frozen=True)
class View:
    """A way to read a log; options are fields of subclasses, and are saved with a model."""

    name: ClassVar[str] = ""
    # Whether a walk goes over several pages, whose queries differ.
    spans_pages: ClassVar[bool] = False
    # Whether each walk begins where the one before ended, so that walks are made one by one.
    is_sequential: ClassVar[bool] = False
    # The columns that it makes: yes/no columns, keys, and signals.
    guards: ClassVar[tuple[str, ...]] = ()
    keys: ClassVar[tuple[str, ...]] = ()
    signals: ClassVar[tuple[str, ...]] = ()
    # Those keys that tell of what users do later: a model with such a key can foretell nothing.
    foreseen: ClassVar[tuple[str, ...]] = ()

    @property
    def needs(self) -> tuple[tuple[str, ...], ...]:
        """The columns that a log has to have; of several in a tuple, one will do."""
        return ()

    def example(self, page: Integers, rank: Integers) -> dict[str, NDArray[Any]]:
        """Columns with which pages of any log can be read so, for those who make logs up."""
        return {}

    def walks(self, log: ClickLog) -> Walks:
        """The walks of the users of a log that has all that is needed."""
        raise NotImplementedError

    def apply(self, log: ClickLog) -> ClickLog:
        """The log under this view; a log that is seen so already stays as it is.

        Raises
        ------
        ClickLogError
            When the log lacks columns, or they make no sense.
        """
        if isinstance(log, ViewedLog) and log.seen_as == self:
            return log
        known = _known.setdefault(log, {})
        viewed = known[self]() if self in known else None
        if viewed is None:
            self.require_columns(log.columns)
            viewed = ViewedLog(log, self, self.walks(log))
            known[self] = ref(viewed)
        return viewed

    def together(self, columns: Sequence[str]) -> str:
        """Of the columns of a log that of what must not be split: "session", unless walks go over
        several."""
        return "session"

    def reads(self, columns: Sequence[str]) -> list[str]:
        """Those of the columns of a log that the view is made from."""
        self.require_columns(columns)
        needed = [next(name for name in names if name in columns) for names in self.needs]
        return [*needed, *(name for name in self.signals if name in columns)]

    def to_data(self) -> dict[str, Any]:
        """Its name and options, as `as_view` takes them."""
        return {"given": self.name, **asdict(self)}

    def require_columns(self, columns: Sequence[str], advice: str = "") -> None:
        """Refuse the columns of a log that lacks some, by a message that names them."""
        lacking = [names for names in self.needs if not any(n in columns for n in names)]
        if lacking:
            which = listed(" or ".join(map(repr, names)) for names in lacking)
            raise ClickLogError(
                f"The view '{self.name}' needs the column{'s' * (len(lacking) > 1)} {which}, which "
                f"the log does not have.\n  It has: {', '.join(columns)}.{advice}"
            )


# What was odd in the parts of a log that are looked at one after the other, by view.
_gathered: ContextVar[dict[str, list[Note]] | None] = ContextVar("gathered", default=None)


@contextmanager
def gathering(odd: dict[str, list[Note]]) -> Iterator[None]:
    """Within this block, put down what views find odd instead of telling it."""
    token = _gathered.set(odd)
    try:
        yield
    finally:
        _gathered.reset(token)


def tell_gathered(odd: Mapping[str, Sequence[Note]]) -> None:
    """Tell of all parts together what was odd."""
    for view, notes in odd.items():
        _tell_odd(view, merged_notes(notes))


def _tell_odd(view: str, notes: Sequence[Note]) -> None:
    tell(in_one_message(f"The view '{view}'", notes), GecasmoWarning)


# While somebody uses a log under a view it is made once. The reference is weak, since such a log
# holds the one it was made from.
_known: WeakKeyDictionary[ClickLog, dict[View, ref[ViewedLog]]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Pages(View):
    """Page by page, rank by rank: the log as it is."""

    name: ClassVar[str] = "pages"

    def apply(self, log: ClickLog) -> ClickLog:
        """The log itself."""
        return log


class ViewedLog(ClickLog):
    """A log in the order of a view: a "session" of it is a walk.

    `rank` is the place in the walk and `page_rank` that on the page. Columns are made when they are
    first asked for.

    Attributes
    ----------
    source : the log that it was made from
    seen_as : the view
    rows : the row of the source that each row comes from
    """

    def __init__(self, source: ClickLog, seen_as: View, walks: Walks) -> None:
        self.source, self.seen_as, self.walks = source, seen_as, walks
        self.rows = walks.rows
        self._columns: dict[str, pl.Series] = {}
        self._pages = self._known_order = self._known_page = None
        self._known_starts = walks.starts
        if walks.ids is None:
            self.sessions = source.sessions.gather(pl.Series(walks.first_session))
        else:
            self.sessions = walks.ids
        self.weight = source.weight[walks.first_session]
        self.notes = (*source.notes, *walks.notes, *walks.odd)
        self.is_folded = source.is_folded
        if walks.odd and (gathered := _gathered.get()) is not None:
            gathered.setdefault(seen_as.name, []).extend(walks.odd)
        elif walks.odd:
            _tell_odd(seen_as.name, walks.odd)

    # -- the way back --------------------------------------------------------------------------
    @cached_property
    def is_plain(self) -> bool:
        """Whether users come by each row of the source exactly once."""
        n_rows = self.source.n_results
        return len(self.rows) == n_rows and bool(
            (np.bincount(self.rows, minlength=n_rows) == 1).all()
        )

    def back(self, values: NDArray[Any], visits: Visits | None = None) -> NDArray[Any]:
        """Bring a value for each row of the walks back to the rows of the source.

        Where users come by a row several times, values can only be probabilities, or yes and no, of
        things that are independent: "any" of the visits, or "all" of them.
        """
        if self.is_plain:
            found = np.empty_like(values)
            found[self.rows] = values
            return found
        if visits is None:
            raise ClickLogError(
                f"Users may pass a result several times under the view '{self.seen_as.name}', and "
                f'this has an answer for each visit: ask of log.view("{self.seen_as.name}").'
            )
        n_rows = self.source.n_results
        if values.dtype == np.bool_:
            start, combine = visits == "all", np.logical_and if visits == "all" else np.logical_or
            yes_no: NDArray[Any] = np.full(n_rows, start)
            combine.at(yes_no, self.rows, values)
            return yes_no
        product = np.ones(n_rows)
        np.multiply.at(product, self.rows, values if visits == "all" else 1 - values)
        return product if visits == "all" else 1 - product

    def back_from_walks(self, values: NDArray[Any]) -> NDArray[Any]:
        """Bring a value for each walk back to the sessions of the source."""
        return values[self._walk_of_session()]

    def whole(self, sessions: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Some sessions of the source with all others of the same walks."""
        if self.walks.walk_of_session is None:
            return sessions
        walk = self._walk_of_session()
        return np.bincount(walk, weights=sessions, minlength=self.n_sessions)[walk] > 0

    def _walk_of_session(self) -> Integers:
        if self.walks.walk_of_session is None:
            raise ClickLogError(
                f"Under the view '{self.seen_as.name}' a session has several walks. Ask of "
                f'log.view("{self.seen_as.name}"): there, each walk is a session.'
            )
        return self.walks.walk_of_session

    # -- as a log ------------------------------------------------------------------------------
    @property
    def has_query(self) -> bool:
        """Whether each walk has one query."""
        return self.source.has_query and not self.seen_as.spans_pages

    @property
    def columns(self) -> list[str]:
        """Names of the columns: those of the log, then those of the view."""
        return list(dict.fromkeys([*self.source.columns, "page_rank", *self.walks.columns]))

    @property
    def n_results(self) -> int:
        """Number of results that users come by."""
        return len(self.rows)

    @cached_property
    def rank(self) -> NDArray[np.int32]:
        """The place of each result in its walk, from 1."""
        return self.walks.rank

    @cached_property
    def click(self) -> NDArray[np.bool_]:
        """Whether each result was clicked."""
        if "click" in self.walks.columns:
            return self.column("click").to_numpy(writable=True)
        return self.source.click[self.rows]

    def column(self, name: str) -> pl.Series:
        """Return a column, one value a row of the walks."""
        if name not in self._columns:
            self._columns[name] = self._make(name).alias(name)
        return self._columns[name]

    def _make(self, name: str) -> pl.Series:
        if name == "session":
            return self.sessions.gather(pl.Series(self.page))
        if name == "rank":
            return pl.Series(self.rank)
        if name == "page_rank":
            return pl.Series(self.source.rank[self.rows])
        if name in self.walks.columns:
            return self.walks.columns[name]()
        column = self.source.column(name)
        if len(self.rows) == len(column) and (self.rows == np.arange(len(column))).all():
            return column
        return column.gather(pl.Series(self.rows))

    @cached_property
    def _frame(self) -> pl.DataFrame:  # type: ignore[override]
        return pl.DataFrame([self.column(name) for name in self.columns])

    def take(self, sessions: ArrayLike) -> ClickLog:
        """Return the log of some of the walks, with all their pages."""
        wanted = as_mask(sessions, self.n_sessions)
        chosen = self.source.take(self.back_from_walks(wanted))
        return self.seen_as.apply(chosen)

    def with_signals(self, signals: Mapping[str, ArrayLike]) -> ClickLog:
        """Return the same walks with boolean columns replaced or added."""
        return self.seen_as.apply(self.source.with_signals(self._of_source(signals)))

    def with_numbers(self, numbers: Mapping[str, ArrayLike]) -> ClickLog:
        """Return the same walks with columns of numbers replaced or added."""
        return self.seen_as.apply(self.source.with_numbers(self._of_source(numbers)))

    def _of_source(self, columns: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
        if not self.is_plain:
            raise ClickLogError(
                f"Users may pass a result several times under the view '{self.seen_as.name}', so "
                "signals belong to the log itself: log.with_signals(...)."
            )
        return {name: self.back(np.asarray(values)) for name, values in columns.items()}


def made(columns: Mapping[str, ArrayLike]) -> dict[str, Callable[[], pl.Series]]:
    """Columns that are there already, as `Walks` wants them."""
    found = {name: pl.Series(np.asarray(values)) for name, values in columns.items()}
    return {name: partial(found.__getitem__, name) for name in found}


def places(rows: Iterable[int], log: ClickLog) -> list[str]:
    """Where some rows of a log are, in words."""
    return [f"session {log.sessions[int(log.page[row])]!r}, rank {log.rank[row]}" for row in rows]


def sorted_rows(*keys: NDArray[Any]) -> Integers:
    """Row numbers by the first key, then the second, ...; rows that agree stay in order.

    Keys are whole numbers. Together they make one, which rises but for short stretches: pages are
    mostly in order, and a stable sort is fast there.
    """
    if _is_sorted(keys):  # as most logs are
        return np.arange(len(keys[0]))
    lows = [int(key.min()) for key in keys]
    sizes = [int(key.max()) - low + 1 for key, low in zip(keys, lows, strict=True)]
    if math.prod(sizes) >= 2**62:
        return np.lexsort(keys[::-1])
    together = keys[0].astype(np.int64) - lows[0]
    for key, low, size in zip(keys[1:], lows[1:], sizes[1:], strict=True):
        together *= size
        together += key
        together -= low
    return np.argsort(together, kind="stable")


def _is_sorted(keys: Sequence[NDArray[Any]]) -> bool:
    is_equal = np.ones(max(len(keys[0]) - 1, 0), bool)
    for key in keys:
        if (is_equal & (key[1:] < key[:-1])).any():
            return False
        is_equal &= key[1:] == key[:-1]
    return True


def changes(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Where a value differs from the one before; the first one does."""
    found = np.ones(len(values), bool)
    found[1:] = values[1:] != values[:-1]
    return found


def runs_within(begins: NDArray[np.bool_], outer: NDArray[np.bool_]) -> Integers:
    """The number of each row's run, counted from 0 anew wherever an outer run begins.

    Both are told by where they begin; where an outer run does, an inner one does as well.
    """
    number = np.cumsum(begins) - 1
    first = np.maximum.accumulate(np.where(outer, np.arange(len(outer)), 0))
    return number - number[first]
