"""Pages in the order of their query's hash; of those that are the same in all that counts, one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.columns import coded, in_chain, is_plain_integer
from gecasmo.hashes import Hashes, hash_values, mix
from gecasmo.logs import ClickLog
from gecasmo.logs.arrays import dense, differing_pages, hash_pages, number_runs, stable_order
from gecasmo.logs.runs import Integers, offsets

N_BUCKETS = 256
_FEW_PAGES = 50_000
_SAMPLED_BUCKETS = 16


class PageOrder(NamedTuple):
    """Sessions by the hash of their query; pages of a query are a run, and stay together.

    Within a run those with the same clicks stand together: what a kernel does next depends on
    clicks, and processors guess that it is what was done before.
    Without queries, and for pages without results, each page is a run of its own.
    """

    sessions: Integers
    run_start: Integers  # where each run begins among the sessions in order, and the end
    hashes: Hashes  # one a run

    def bucket_start(self) -> Integers:
        """Where each of the 256 buckets begins among the sessions in order."""
        return self.run_start[self.bucket_runs()]

    def bucket_runs(self) -> Integers:
        """Where each of the 256 buckets begins among the runs."""
        buckets = self.hashes >> np.uint64(56)
        every = np.arange(N_BUCKETS + 1, dtype=np.uint64)
        return np.searchsorted(buckets, every).astype(np.int64)


def order_pages(log: ClickLog) -> PageOrder:
    """Put the pages of a log in order."""
    if not log.has_query:
        hashes = hash_values(log.sessions)
        sessions = np.argsort(hashes, kind="stable")
        return PageOrder(sessions, np.arange(len(sessions) + 1), hashes[sessions])
    filled = log.lengths > 0
    numbers = np.empty(log.n_sessions, np.int64)
    query, values = _queries(log, filled)
    numbers[filled] = query
    empty = np.flatnonzero(~filled)  # pages without results have no query of their own
    numbers[empty] = len(values) + np.arange(len(empty))
    hashes = np.concatenate([hash_values(values), mix(empty)])
    by_hash = np.argsort(hashes, kind="stable")
    place = np.empty(len(by_hash), np.int64)
    place[by_hash] = np.arange(len(by_hash))
    numbers = place[numbers]
    run_start = offsets(np.bincount(numbers, minlength=len(hashes)))
    by_clicks = np.argsort(_first_clicks(log), kind="stable")
    sessions = by_clicks[stable_order(numbers[by_clicks], len(hashes))]
    return PageOrder(sessions, run_start, hashes[by_hash])


def _first_clicks(log: ClickLog) -> NDArray[np.uint8]:
    """A bit for each of the first eight results of a page, whether it was clicked."""
    clicks, lengths = in_chain(log, log.click), log.lengths
    longest = int(lengths.max(initial=0))
    if longest and (lengths == longest).all():
        found: NDArray[np.uint8] = np.packbits(clicks.reshape(-1, longest)[:, :8], axis=1)[:, 0]
        return found
    found = np.zeros(len(lengths), np.uint8)
    for place in range(min(longest, 8)):
        has = np.flatnonzero(lengths > place)
        found[has] |= clicks[log.starts[has] + place].astype(np.uint8) << np.uint8(7 - place)
    return found


def _queries(log: ClickLog, filled: NDArray[np.bool_]) -> tuple[NDArray[np.integer], pl.Series]:
    """The number of the query of each page that has results, and the queries."""
    column = log.column("query")
    if column.null_count():
        coded(log, "query", "query")  # says so
    starts = log.starts[:-1] if filled.all() else log.starts[:-1][filled]
    column = column.gather(starts if log.is_sorted else log.order[starts])
    if is_plain_integer(column):
        codes, distinct = dense(column.to_numpy()) if len(column) else (starts, column.to_numpy())
        return codes, pl.Series(distinct)
    frame = pl.DataFrame({"value": column})
    known = frame.unique(maintain_order=True).with_row_index("code")
    numbered = frame.join(known, on="value", how="left", maintain_order="left", nulls_equal=True)
    return numbered["code"].to_numpy().astype(np.int64), known["value"]


class Folded(NamedTuple):
    """Pages in the order of the kernels.

    `kept` are the sessions that stand for themselves and their likes; `page_of_session` is the
    place in `kept` of the session that stands for each. `group` numbers the kept pages by the
    results they show, whatever was clicked; None where each is a group of its own. `run_start`
    says where the pages of each query begin among those kept.
    """

    kept: Integers
    page_of_session: NDArray[np.uint32]
    group: Integers | None
    run_start: Integers


def fold(
    log: ClickLog,
    order: PageOrder,
    shown: Sequence[NDArray[Any]],
    seen: Sequence[NDArray[Any]],
    merge: bool,
) -> Folded:
    """Fold pages, and group them, if that at least halves them.

    Pages of one query are the same if they agree in the columns `shown`, which decide what rows a
    result uses, and `seen`, which say what was observed; these are in chain order.
    """
    if not (merge and log.has_query and _is_promising(log, order, shown, seen)):
        return _apart(order)
    found = _equal_pages(log, order.sessions, order.run_start, shown, seen)
    n_sessions = log.n_sessions
    do_fold = 2 * found.n_patterns <= n_sessions
    n_pages = found.n_patterns if do_fold else n_sessions
    do_group = 2 * found.n_groups <= n_pages
    if not (do_fold or do_group) or not _is_right(log, order, found, shown, seen):
        return _apart(order)
    if do_fold:
        first, number = found.pattern_first, found.pattern
    else:
        first, number = np.arange(n_sessions), np.arange(n_sessions)
    # Pages that show the same stand together, in the order in which they first appear.
    by_group = stable_order(found.group[first], found.n_groups)
    place = np.empty(n_pages, np.uint32)
    place[by_group] = np.arange(n_pages, dtype=np.uint32)
    page_of_session = np.empty(n_sessions, np.uint32)
    page_of_session[order.sessions] = place[number]
    first = first[by_group]
    group = found.group[first] if do_group else None
    run_start = offsets(found.patterns_of_run) if do_fold else order.run_start
    return Folded(order.sessions[first], page_of_session, group, run_start)


def _apart(order: PageOrder) -> Folded:
    """Every page for itself."""
    n_sessions = len(order.sessions)
    page_of_session = np.empty(n_sessions, np.uint32)
    page_of_session[order.sessions] = np.arange(n_sessions, dtype=np.uint32)
    return Folded(order.sessions, page_of_session, None, order.run_start)


class _Equal(NamedTuple):
    """Per page in order, the number of its pattern (what it shows and what was seen) and of its
    group (what it shows), and per number the page that is its first."""

    pattern: Integers
    pattern_first: Integers
    group: Integers
    group_first: Integers
    patterns_of_run: Integers

    @property
    def n_patterns(self) -> int:
        return len(self.pattern_first)

    @property
    def n_groups(self) -> int:
        return len(self.group_first)


def _equal_pages(
    log: ClickLog,
    sessions: Integers,
    run_start: Integers,
    shown: Sequence[NDArray[Any]],
    seen: Sequence[NDArray[Any]],
) -> _Equal:
    """Which pages are equal, as far as hashes can tell."""
    # Pages are read in the order of the log: memory likes that.
    by_log = np.sort(sessions)
    place = sessions if len(by_log) == log.n_sessions else np.searchsorted(by_log, sessions)
    hashes = hash_pages(shown, log.starts, by_log)
    both = mix(hashes) + hash_pages(seen, log.starts, by_log)
    groups = number_runs(hashes[place], run_start)
    patterns = number_runs(both[place], run_start)
    n_pages = np.diff(run_start)
    found = [
        np.repeat(offsets(one.n_distinct)[:-1], n_pages) + one.numbers for one in (patterns, groups)
    ]
    return _Equal(found[0], patterns.first_at, found[1], groups.first_at, patterns.n_distinct)


def _is_right(
    log: ClickLog,
    order: PageOrder,
    found: _Equal,
    shown: Sequence[NDArray[Any]],
    seen: Sequence[NDArray[Any]],
) -> bool:
    """Whether pages are as equal as their hashes: not to fold is never wrong."""
    likes = np.empty(log.n_sessions, np.int64)
    likes[order.sessions] = order.sessions[found.group_first[found.group]]
    if differing_pages(shown, log.starts, likes).any():
        return False
    likes[order.sessions] = order.sessions[found.pattern_first[found.pattern]]
    return not differing_pages(seen, log.starts, likes).any()


def _is_promising(
    log: ClickLog,
    order: PageOrder,
    shown: Sequence[NDArray[Any]],
    seen: Sequence[NDArray[Any]],
) -> bool:
    """Whether a sixteenth of the queries says that merging may halve the pages."""
    if log.n_sessions < _FEW_PAGES:
        return True
    n_runs = int(order.bucket_runs()[_SAMPLED_BUCKETS])
    run_start = order.run_start[: n_runs + 1]
    sample = order.sessions[: run_start[-1]]
    found = _equal_pages(log, sample, run_start, shown, seen)
    # A little more than half: the rest of the queries may repeat more.
    return (
        len(sample) == 0
        or found.n_patterns < 0.75 * len(sample)
        or found.n_groups < 0.75 * found.n_patterns
    )
