"""The pages of one task, one after the other, as one walk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.notes import Notebook
from gecasmo.logs.pages import number_by_first_appearance, shown
from gecasmo.logs.runs import Integers, offsets, rows_of_runs
from gecasmo.logs.selection import comparable_times, has_no_time
from gecasmo.logs.views.view import View, Walks, changes, runs_within, sorted_rows
from gecasmo.report import counted, listed

FOLLOWS = "query_follows"
TASK = ("task", "visit", "session_id", "task_session")
WHEN = ("page_number", "time", "time_passed", "timestamp")


@dataclass(frozen=True)
class Tasks(View):
    """All pages that a user saw for one task: searches after searches, or pages of a feed.

    A log has a column `task` (or `visit`, or `session_id`, as readers call it) and `page_number` or
    `time` (or `time_passed`, or `timestamp`), by which its pages are in order; each with one value
    a page. The first of these that is there counts; a `page_number` stays as it is.
    """

    name: ClassVar[str] = "tasks"
    spans_pages: ClassVar[bool] = True
    guards: ClassVar[tuple[str, ...]] = (
        "first_on_page",
        "last_on_page",
        "first_page",
        "shown_before",
    )
    keys: ClassVar[tuple[str, ...]] = ("page_number", "page_rank")
    signals: ClassVar[tuple[str, ...]] = (FOLLOWS,)

    @property
    def needs(self) -> tuple[tuple[str, ...], ...]:
        """What makes a task, and the order of its pages."""
        return (TASK, WHEN)

    def together(self, columns: Sequence[str]) -> str:
        """The column that says which pages are of one task."""
        return self.reads(columns)[0]

    def example(self, page: Integers, rank: Integers) -> dict[str, NDArray[Any]]:
        """Two pages a task."""
        return {"task": page // 2, "page_number": page % 2 + 1}

    def walks(self, log: ClickLog) -> Walks:
        """The pages of each task in order."""
        notes, odd = Notebook(), Notebook()
        ids, task = _tasks(log)
        session = _in_order(log, task, notes, odd)
        is_new = changes(task[session])  # where a task begins, among the sessions in order
        page_of_task = runs_within(np.ones(len(session), bool), is_new)
        _refuse_other_weights(log, session, is_new)
        lengths = log.lengths[session]
        empty = session[lengths == 0]
        odd.add(
            "pages of tasks without results",
            len(empty),
            "they count as pages of their task, and nothing can be said about them",
            (f"session {shown(log.sessions, number)}" for number in empty),
        )
        in_chain = rows_of_runs(log.starts[:-1][session], lengths)
        rows = in_chain if log.is_sorted else log.order[in_chain]
        filled = lengths > 0
        starts = offsets(np.bincount(np.cumsum(is_new) - 1, weights=lengths).astype(np.int64))
        walk_of_session = np.empty(log.n_sessions, np.int64)
        walk_of_session[session] = np.cumsum(is_new) - 1
        # Ranks of a page go on where those of the page before ended.
        ends = np.zeros(len(session), np.int64)
        last_row = np.cumsum(lengths) - 1
        ends[filled] = log.rank[rows[last_row[filled]]]
        before = np.cumsum(ends) - ends
        before -= before[np.maximum.accumulate(np.where(is_new, np.arange(len(session)), 0))]
        page = np.repeat(np.arange(len(session)), lengths)  # in the order of walks
        first_on_page, last_on_page = np.zeros((2, len(rows)), bool)
        first_on_page[last_row[filled] - lengths[filled] + 1] = True
        last_on_page[last_row[filled]] = True
        is_last_page = np.append(is_new[1:], True)[: len(is_new)]

        def shown_before() -> pl.Series:
            doc = number_by_value(log.column("doc"))[rows]
            together = walk_of_session[session][page] * (int(doc.max(initial=0)) + 1) + doc
            order = np.argsort(together, kind="stable")  # walks are in order already
            first = np.maximum.accumulate(
                np.where(changes(together[order]), np.arange(len(order)), 0)
            )
            seen = np.empty(len(rows), bool)
            seen[order] = page_of_task[page[order]] > page_of_task[page[order[first]]]
            return pl.Series(seen)

        columns: dict[str, Any] = {
            "first_on_page": lambda: pl.Series(first_on_page),
            "last_on_page": lambda: pl.Series(last_on_page),
            "first_page": lambda: pl.Series((page_of_task == 0)[page]),
            "shown_before": shown_before,
        }
        if "page_number" not in log.columns:
            columns["page_number"] = lambda: pl.Series(page_of_task[page] + 1)
        if FOLLOWS not in log.columns:  # else the log has recorded it
            columns[FOLLOWS] = lambda: pl.Series(last_on_page & ~is_last_page[page])
        return Walks(
            rows=rows,
            starts=starts,
            rank=(log.rank[rows] + before[page]).astype(np.int32),
            first_session=session[is_new],
            walk_of_session=walk_of_session,
            columns=columns,
            ids=ids,
            notes=tuple(notes.notes),
            odd=tuple(odd.notes),
        )


def number_by_value(values: pl.Series) -> NDArray[np.int64]:
    """Whole numbers from 0 on that are equal where values are."""
    if values.dtype.is_integer() and not values.null_count() and len(values):
        low, high = values.min(), values.max()
        if int(high) - int(low) < 2**31:  # type: ignore[arg-type]
            return (values - low).to_numpy().astype(np.int64)
    return number_by_first_appearance(values)[0].astype(np.int64)


def _present(log: ClickLog, names: tuple[str, ...]) -> str:
    return next(name for name in names if name in log.columns)


def _tasks(log: ClickLog) -> tuple[pl.Series, NDArray[np.int64]]:
    """The ids of tasks in order of appearance, and the number of each session's task."""
    tasks = log.session_column(_present(log, TASK))
    lost = np.flatnonzero(tasks.is_null().to_numpy())
    if len(lost):
        raise ClickLogError(
            "The view 'tasks' needs the task of every page: "
            f"{counted(len(lost), 'page has', 'pages have')} none (first: session "
            f"{shown(log.sessions, lost[0])})."
        )
    number, first = number_by_first_appearance(tasks)
    return tasks.gather(pl.Series(first)), number.astype(np.int64)


def _in_order(
    log: ClickLog, task: NDArray[np.int64], notes: Notebook, odd: Notebook
) -> NDArray[np.int64]:
    """The sessions, task by task and page by page."""
    name = _present(log, WHEN)
    values = log.session_column(name)
    lost = has_no_time(values)
    if lost.any():
        first = int(lost.arg_max() or 0)
        raise ClickLogError(
            f"The view 'tasks' needs the column '{name}' of every page: "
            f"{counted(int(lost.sum()), 'page has', 'pages have')} none (first: session "
            f"{shown(log.sessions, first)})."
        )
    said = comparable_times(values, name, reader="The view 'tasks'")
    times = said.rank("dense").to_numpy().astype(np.int64)
    session = sorted_rows(task, times)
    tied = np.flatnonzero(~changes(task[session]) & ~changes(times[session]))
    if len(tied) and name == "page_number":
        one, other = session[tied[0] - 1], session[tied[0]]
        of = shown(log.session_column(_present(log, TASK)), other)
        raise ClickLogError(
            f"{counted(len(tied), 'page has', 'pages have')} the 'page_number' of another page of "
            f"the same task (first: sessions {shown(log.sessions, one)} and "
            f"{shown(log.sessions, other)} of the task {of} are both {shown(values, other)})."
        )
    odd.add(
        "pages at the same time as another of their task",
        len(tied),
        "they stay in the order of the log",
        (f"session {shown(log.sessions, session[at])}" for at in tied),
    )
    within = np.flatnonzero(~changes(task[session]))
    late = session[within[session[within] < session[within - 1]]]
    notes.add(
        "pages of tasks out of order",
        len(late),
        f"they are read in the order of '{name}'",
        (f"session {shown(log.sessions, number)}" for number in late),
    )
    return session


def _refuse_other_weights(
    log: ClickLog, session: NDArray[np.int64], is_new: NDArray[np.bool_]
) -> None:
    """A walk counts as often as its pages, so these have to agree."""
    differs = np.flatnonzero(~is_new & changes(log.weight[session]))
    if len(differs):
        one, other = session[differs[0] - 1], session[differs[0]]
        both = listed(
            f"{shown(log.sessions, which)} weighs {log.weight[which]:g}" for which in (one, other)
        )
        raise ClickLogError(
            f"The view 'tasks' needs pages of one task to weigh the same: session {both}."
        )
