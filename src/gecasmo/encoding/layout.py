"""Where the pages that kernels read stand, and the values of keys at their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.columns import (
    Labelled,
    coded,
    history_in_chain,
    in_chain,
    integers,
    is_plain_integer,
    labels,
)
from gecasmo.encoding.folds import Folded, PageOrder
from gecasmo.language.parameter import HISTORY_KEYS
from gecasmo.logs import ClickLog
from gecasmo.logs.arrays import narrowest, page_results
from gecasmo.logs.runs import Integers, offsets, rows_of_runs


@dataclass(frozen=True)
class PageLevel:
    """Places that row numbers are wanted for: some sessions, one place each or all their results.

    `start` says where each session begins among the places, `run_start` where each query does.
    """

    sessions: Integers
    start: Integers
    run_start: Integers
    is_by_page: bool = False

    @property
    def n_places(self) -> int:
        """Number of places: results of all pages of the level."""
        return int(self.start[-1])


class Layout:
    """The pages of a log in the order of the kernels.

    Row numbers are needed per page, per result of every page (where clicks above decide), or per
    result of every group of pages that show the same.
    """

    def __init__(self, log: ClickLog, order: PageOrder, folded: Folded) -> None:
        self.log, self.folded = log, folded
        self.bucket_runs = order.bucket_runs()
        self.kept, self.run_start = folded.kept, folded.run_start
        self.obs_start = offsets(log.lengths[self.kept])
        self._picked: dict[tuple[str, int], NDArray[Any]] = {}

    @property
    def bucket_start(self) -> Integers:
        """Where each of the 256 buckets begins among the pages."""
        return self.run_start[self.bucket_runs]

    @cached_property
    def by_pattern(self) -> PageLevel:
        """Pages with their clicks, once for each page and pattern of clicks."""
        return PageLevel(self.kept, self.obs_start, self.obs_start[self.run_start])

    @cached_property
    def by_page_shown(self) -> PageLevel:
        """Pages without their clicks, once for each list of results that was shown."""
        group = self.folded.group
        if group is None:
            return self.by_pattern
        is_first = np.r_[True, group[1:] != group[:-1]][: len(group)]
        sessions = self.kept[is_first]
        start = offsets(self.log.lengths[sessions])
        return PageLevel(sessions, start, start[offsets(is_first)[self.run_start]])

    @cached_property
    def by_page(self) -> PageLevel:
        """Pages with results; others never read a row."""
        filled = self.log.lengths[self.kept] > 0
        sessions = self.kept[filled]
        return PageLevel(
            sessions, np.arange(len(sessions) + 1), offsets(filled)[self.run_start], True
        )

    @cached_property
    def row_start(self) -> Integers:
        """Where the results of each page begin among those of groups."""
        if self.folded.group is None:
            return self.obs_start[:-1]
        return self.by_page_shown.start[self.folded.group]

    def level(self, keys: Sequence[str], scope: str) -> PageLevel:
        """The places at which a coin with these keys and of this scope wants rows."""
        if scope == "page":
            return self.by_page
        has_history = any(key in HISTORY_KEYS for key in keys)
        return self.by_pattern if has_history else self.by_page_shown

    def buckets(self, level: PageLevel) -> NDArray[np.uint8]:
        """The bucket of every place."""
        sizes = np.diff(level.run_start[self.bucket_runs])
        return np.repeat(np.arange(256, dtype=np.uint8), sizes)

    def places(self, level: PageLevel) -> Integers:
        """The place of each place in chain order."""
        if level.is_by_page:
            return self.log.starts[level.sessions]
        return rows_of_runs(self.log.starts[level.sessions], self.log.lengths[level.sessions])

    def with_empty(self, codes: NDArray[Any], level: PageLevel) -> NDArray[Any]:
        """Codes of a level; where it is by page, for pages without results as well."""
        if not level.is_by_page or len(codes) == len(self.kept):
            return codes
        every = np.zeros(len(self.kept), codes.dtype)
        every[self.log.lengths[self.kept] > 0] = codes
        return every

    def pick(self, values: NDArray[Any], level: PageLevel) -> NDArray[Any]:
        """Of values in chain order, those at the places of a level."""
        if level.is_by_page:
            return values[self.log.starts[level.sessions]]
        if level is self.by_pattern and self.is_as_given:
            return values
        return page_results(values, self.log.starts, level.sessions, level.start)

    @cached_property
    def is_as_given(self) -> bool:
        """Whether all pages stand in the order of the log."""
        sessions = self.kept
        return len(sessions) == self.log.n_sessions and bool(
            (sessions == np.arange(len(sessions))).all()
        )

    def clicks(self, level: PageLevel) -> NDArray[np.bool_]:
        """Whether there is a click, at the places of a level."""
        return self._once("click", level, lambda: in_chain(self.log, self.log.click))

    def ranks(self, level: PageLevel) -> NDArray[np.unsignedinteger]:
        """The ranks at the places of a level, in a narrow type."""
        lengths = np.diff(level.start)
        longest = int(lengths.max(initial=0))
        if not level.is_by_page and self.log.has_plain_ranks and (lengths == longest).all():
            every = np.arange(1, longest + 1, dtype=narrowest(longest + 1))
            return np.tile(every, len(lengths))
        return self._once("rank", level, self._small_ranks)

    def _once(self, name: str, level: PageLevel, make: Callable[[], NDArray[Any]]) -> NDArray[Any]:
        if (name, id(level)) not in self._picked:
            self._picked[name, id(level)] = self.pick(make(), level)
        return self._picked[name, id(level)]

    def _small_ranks(self) -> NDArray[np.unsignedinteger]:
        rank = in_chain(self.log, self.log.rank)
        return rank.astype(narrowest(int(rank.max(initial=0)) + 1))

    def at(self, key: str, coin: str, nullable: bool, level: PageLevel) -> Labelled:
        """The values of a key at the places of a level."""
        log = self.log
        found: NDArray[Any]
        if key == "rank":
            found = self.ranks(level)
            return Labelled(found, integers(key, np.int32), int(found.max(initial=0)) + 1)
        if key in HISTORY_KEYS:
            found = history_in_chain(key, self.clicks(level), self.ranks(level), level.start)
            return Labelled(found, integers(key, np.int32), int(found.max(initial=0)) + 1)
        if key == "page_length":
            found = np.repeat(log.lengths[level.sessions], np.diff(level.start))
            return Labelled(found, integers(key, np.int64))
        found = self.pick(labels(log, key, coin, nullable), level)
        column = log.column(key) if key in log.columns and key != "session" else None
        if column is not None and is_plain_integer(column):
            return Labelled(found, integers(key, found.dtype))
        values = coded(log, key, coin, nullable).values
        return Labelled(found, lambda which: values.gather(pl.Series(which)).alias(key))
