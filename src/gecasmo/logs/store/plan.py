"""What somebody asked of an ingest, and what follows from it for the work.

The wishes are checked; it is settled which columns of the source go into the log and which are left
out; and how much is read at a time, and into how many parts the log is divided, so that memory
suffices.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from gecasmo.errors import ClickLogError, GecasmoWarning, either, option, tell
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Faults, Note
from gecasmo.logs.roles import Given, Roles, extra_columns
from gecasmo.logs.store.disk import SMALLEST_MEMORY, in_bytes, parse_bytes
from gecasmo.logs.views import View, as_view
from gecasmo.report import listed

Schema = dict[str, pl.DataType]

MOST_PARTITIONS = 1 << 16
ALL = "all"
SESSION = "session"
NO_SESSIONS = "session ids not kept"  # a kind of note
# Partitions that are put together at the same time.
N_WORKERS = min(os.cpu_count() or 1, 2)
# What is there whatever the amount: the caches of allocators, one a thread, and what is too small
# to be counted.
FIXED_BYTES = 38 * 10**6
# With less, nothing is loaded that has a size of its own, such as what calls compiled kernels.
FEWEST_FOR_KERNELS = 256 * 10**6
# Shares of the rest of the memory that was granted. While reading there are several copies of a
# batch (read ahead, in order of buckets, compressed); while writing, several partitions are put
# together at once.
SHARE_OF_A_BATCH = 1 / 13
SHARE_OF_A_PARTITION = 1 / 6
MOST_OF_A_PARTITION = 1 / 3  # hashes are not even
# What the checks and the order take for each result, beside several copies of its columns.
BYTES_OF_A_RESULT = 100
COPIES = 3
# What it takes, at the most, while the parts of a partition are put together.
BYTES_OF_A_SMALL_RESULT = 30
FEWEST_BUCKETS, MOST_BUCKETS = 16, 4096
# Rows of a batch, whatever the memory. A column of 2 million takes 16 MB, which allocators keep for
# the next one, while larger pieces come from the system, page by page, each time. With many buckets
# it has to be more, since each of them is a stream of its own.
FEWEST_ROWS_AT_MOST, MOST_ROWS, ROWS_OF_A_BUCKET = 2_000_000, 5_000_000, 20_000
BUCKETS_OF_UNKNOWN = 1024
_TEXT_BYTES, _LIST_LENGTH = 40, 10


@dataclass(frozen=True)
class Wishes:
    """The arguments of an ingest, checked; `ClickLog.ingest` explains them."""

    given: Mapping[str, Given]  # the column of each role
    keep: tuple[str, ...]  # names of further columns; "session" for the ids of pages
    keep_all: bool
    memory: int  # in bytes
    partitions: int | None  # None chooses
    fold: bool | None  # None decides from the data
    format: str | None  # None recognises it
    max_line: int  # in bytes
    separator: str | None = None  # None finds it
    views: tuple[View, ...] = ()  # for which columns are kept, and pages of one walk are together

    def as_json(self) -> dict[str, Any]:
        """What decides about the outcome; the memory does not."""
        columns = {
            role: list(names) if names is not None and not isinstance(names, str) else names
            for role, names in self.given.items()
        }
        return {
            "columns": columns,
            "keep": ALL if self.keep_all else list(self.keep),
            "partitions": self.partitions,
            "fold": self.fold,
            "format": self.format,
            **({} if self.separator is None else {"separator": self.separator}),
            **({} if not self.views else {"views": [view.to_data() for view in self.views]}),
        }

    @property
    def keeps_session(self) -> bool:
        """Whether the ids of sessions were asked for."""
        return self.keep_all or SESSION in self.keep


def wishes(
    given: Mapping[str, Given],
    keep: str | Sequence[str],
    memory: int | str,
    partitions: int | None,
    fold: bool | str,
    format: str | None,
    max_line: int,
    separator: str | None = None,
    view: str | View | Sequence[str | View] = (),
) -> Wishes:
    """Check the arguments of an ingest; `ClickLog.ingest` explains them."""
    names = (keep,) if isinstance(keep, str) else tuple(keep)
    if not all(isinstance(name, str) for name in names):
        raise ClickLogError(
            f"{option('keep', keep, of='ingest')}: column names are needed, or 'all'."
        )
    if fold not in (True, False, "auto"):
        raise ClickLogError(f"ingest(fold={fold!r}): True, False or 'auto'.")
    views = tuple(map(as_view, (view,) if isinstance(view, str | View) else view))
    if fold is True and any(each.spans_pages for each in views):
        raise ClickLogError(
            f"{option('view', of='ingest')}: users are followed from page to page, so no page "
            f"stands for another; leave out {either('fold=True', '--fold')}."
        )
    bytes_ = parse_bytes(memory)
    if bytes_ < SMALLEST_MEMORY:
        raise ClickLogError(
            f"{option('memory', memory, of='ingest')}: at least {in_bytes(SMALLEST_MEMORY)} are "
            "needed."
        )
    is_number = isinstance(partitions, int) and not isinstance(partitions, bool)
    is_power = is_number and partitions == power_of_two(partitions or 0) <= MOST_PARTITIONS
    if partitions is not None and not is_power:
        raise ClickLogError(
            f"{option('partitions', partitions, of='ingest')}: a power of two from 1 to "
            f"{MOST_PARTITIONS}."
        )
    if fold is True and (SESSION in names or ALL in names):
        raise ClickLogError(
            f"{either('ingest(fold=True)', '--fold')}: pages that keep the ids of their sessions "
            f"are all different; leave 'session' out of {either('keep', '--keep')}, or do not fold."
        )
    return Wishes(
        given=dict(given),
        keep=tuple(dict.fromkeys(names)),
        keep_all=ALL in names,
        memory=bytes_,
        partitions=partitions,
        fold=None if fold == "auto" else bool(fold),
        format=format,
        max_line=max_line,
        separator=separator,
        views=views,
    )


@dataclass(frozen=True)
class LogLayout:
    """The columns of the rows on their way into a stored log."""

    nested: bool  # whether the source has one row a page
    whole: bool  # whether pages come whole; else rows of a session can be far from each other
    has_query: bool
    has_rank: bool
    has_weight: bool
    has_session: bool
    keeps_session: bool  # whether the ids of sessions are kept in the log
    kept: tuple[str, ...]  # names of further columns that are kept, and of those that are not
    left_out: tuple[str, ...]
    walk: str | None = (
        None  # the column of walks over several pages, which decides about partitions
    )
    taken: tuple[str, ...] = ()  # what is to be said about columns that lost their name to a role

    @property
    def carries_session(self) -> bool:
        """Whether the ids of sessions are needed until the pages are put together."""
        return self.keeps_session or not self.whole

    @property
    def key(self) -> str:
        """What decides about the partition of a page."""
        return self.walk or ("query" if self.has_query else "session")

    @property
    def by_query(self) -> bool:
        """Whether all pages of a query are in one partition, and share a list of documents."""
        return self.key == "query"

    def notes(self) -> list[Note]:
        """What is to be said about columns that are not in the log."""
        notes = [Note("columns left out", 1, what) for what in self.taken]
        if self.left_out:
            names = listed([repr(name) for name in self.left_out])
            noun = "column" if len(self.left_out) == 1 else "columns"
            where = either("keep", "--keep")
            what = f"not kept: the {noun} {names} (name them in {where} to have them)."
            notes.append(Note("columns not kept", len(self.left_out), what))
        if self.has_session and not self.keeps_session:
            what = (
                f"not kept: the ids of sessions (ingest with {option('keep', 'session')} has "
                "them); pages are numbered."
            )
            notes.append(Note(NO_SESSIONS, 1, what))
        return notes


def lay_out(schema: Schema, roles: Roles, wishes: Wishes, faults: Faults) -> LogLayout:
    """Decide about the columns of a table; roles are settled here, and missing columns raised."""
    nested = roles.is_nested(schema)
    roles.settle(schema, nested, faults)
    faults.raise_if_any()
    extras, taken = extra_columns(list(schema), roles)
    has = {role: bool(names) for role, names in roles.columns.items()}
    return LogLayout(
        nested=nested,
        whole=nested,
        has_query=has["query"],
        walk=_walk(extras, wishes),
        has_rank=has["rank"],
        has_weight=has["weight"],
        has_session=has["session"],
        keeps_session=wishes.keeps_session or not has["query"],
        taken=tuple(taken),
        **_kept_or_not(extras, wishes, schema),
    )


def lay_out_log(log: ClickLog, wishes: Wishes) -> LogLayout:
    """Decide about the columns of logs that were read already; a weight is always taken over."""
    extras = log.columns[log.columns.index("click") + 1 :]
    return LogLayout(
        nested=False,
        whole=True,
        has_query=log.has_query,
        walk=_walk(extras, wishes),
        has_rank=True,
        has_weight=True,
        has_session=True,
        keeps_session=wishes.keeps_session or not log.has_query,
        **_kept_or_not(extras, wishes, log.columns),
    )


def _kept_or_not(
    extras: list[str], wishes: Wishes, there: Iterable[str]
) -> dict[str, tuple[str, ...]]:
    """The further columns that are kept, and the others; names that are not there are refused."""
    of_views = [name for view in wishes.views for name in view.reads(extras)]
    if wishes.keep_all:
        return {"kept": tuple(extras), "left_out": ()}
    roles = ("query", "doc", "rank", "click", "weight")
    used = {name for role in roles for name in _as_list(wishes.given[role])}
    kept = [name for name in wishes.keep if name not in (SESSION, *roles) and name not in used]
    kept = list(dict.fromkeys([*kept, *of_views]))
    absent = [name for name in kept if name not in extras]
    if absent:
        raise ClickLogError(
            f"{option('keep', of='ingest')}: there is no column "
            f"{listed([repr(name) for name in absent])} to keep. The source has: "
            f"{', '.join(there)}."
        )
    left_out = (name for name in extras if name not in kept)
    return {"kept": tuple(kept), "left_out": tuple(left_out)}


def _walk(extras: Sequence[str], wishes: Wishes) -> str | None:
    """The column of what spans pages, so that its pages are in one partition."""
    found = {v.together(extras): v.name for v in wishes.views if v.spans_pages}
    if len(found) > 1:
        raise ClickLogError(
            f"{option('view', of='ingest')}: a log can be partitioned by one of "
            f"{listed(map(repr, found))}, not by both."
        )
    return next(iter(found), None)


def _as_list(names: Any) -> list[str]:
    if names is None:
        return []
    return [names] if isinstance(names, str) else list(names)


def shared(memory: int) -> int:
    """What is left of the memory for rows."""
    return max(memory - FIXED_BYTES, memory // 4)


def bytes_of_row(schema: Schema) -> int:
    """About how much memory a row of a table takes."""
    return max(sum(_bytes_of(dtype) for dtype in schema.values()), 1)


def _bytes_of(dtype: pl.DataType) -> int:
    if isinstance(dtype, pl.List | pl.Array):
        inner = dtype.inner
        return 8 + _LIST_LENGTH * _bytes_of(inner() if isinstance(inner, type) else inner)
    if isinstance(dtype, pl.Struct):
        fields = (f.dtype() if isinstance(f.dtype, type) else f.dtype for f in dtype.fields)
        return sum(map(_bytes_of, fields))
    if dtype.is_numeric() or dtype.is_temporal() or dtype == pl.Boolean:
        return 8
    return _TEXT_BYTES


def batch_rows(schema: Schema, memory: int, buckets: int) -> int:
    """How many rows of a table are read at a time."""
    granted = max(shared(memory) * SHARE_OF_A_BATCH / bytes_of_row(schema), 1000)
    most = min(max(ROWS_OF_A_BUCKET * buckets, FEWEST_ROWS_AT_MOST), MOST_ROWS)
    return int(min(granted, most))


def partitions_for(n_results: int, n_bytes: int, memory: int) -> int:
    """How many partitions it takes until each can be put together in its share of the memory.

    Of the whole log, `n_results` are its results, and `n_bytes` what their columns take in memory.
    """
    need = BYTES_OF_A_RESULT * n_results + COPIES * n_bytes
    return min(power_of_two(need / (shared(memory) * SHARE_OF_A_PARTITION)), MOST_PARTITIONS)


def buckets_for(n_rows: int | None, schema: Schema | None, nested: bool, memory: int) -> int:
    """Into how many buckets batches are divided, before all is known about the log."""
    if n_rows is None or schema is None:
        return BUCKETS_OF_UNKNOWN
    n_results = n_rows * (_LIST_LENGTH if nested else 1)
    expected = partitions_for(n_results, n_rows * bytes_of_row(schema), memory)
    return min(max(expected, FEWEST_BUCKETS), MOST_BUCKETS)


def power_of_two(number: float) -> int:
    """The smallest power of two that is not below a number."""
    power = 1
    while power < number:
        power *= 2
    return power


def warn_of_row_groups(name: str, needed: int, memory: int) -> None:
    """Tell that reading one row group takes too much, since it cannot be read in part."""
    if needed > memory // 2:
        tell(
            f"{name}: reading a row group of it takes about {in_bytes(needed)}, so more than "
            f"{option('memory', shown=in_bytes(memory))} will be used. To stay within it, grant "
            f"{in_bytes(2 * needed)} or write the file with smaller row groups.",
            GecasmoWarning,
        )


def warn_of_partitions(largest: int, memory: int, chosen: int | None) -> None:
    """Tell that the largest partition takes too much.

    That is one query with very many pages, unless the number of partitions was chosen.
    """
    beside = int(shared(memory) * SHARE_OF_A_PARTITION)  # what another worker does meanwhile
    needed = FIXED_BYTES + beside + largest * BYTES_OF_A_SMALL_RESULT
    if needed > memory:
        why, advice = "since all pages of a query are in one", ""
        if chosen is not None:
            why = f"with {option('partitions', chosen)}"
            advice = " Ask for more partitions, or leave their number open."
        tell(
            f"A partition has {largest:,} results, {why}; to put it together takes about "
            f"{in_bytes(needed)}, more than {option('memory', shown=in_bytes(memory))}.{advice}",
            GecasmoWarning,
        )


def chunk_bytes(memory: int) -> int:
    """How many bytes of a text file are read at a time; columns take several times as much."""
    return int(min(max(memory / 64, 1 << 16), 64 << 20))


def most_rows(n_results: int, n_bytes: int, memory: int) -> int:
    """How many results may be put together at once."""
    each = BYTES_OF_A_RESULT + COPIES * n_bytes / max(n_results, 1)
    return max(int(shared(memory) * MOST_OF_A_PARTITION / each), 1)
