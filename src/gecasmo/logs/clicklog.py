"""`ClickLog`: pages with ranked results and clicks, as columns; and several logs as one."""

from __future__ import annotations

import html
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from gecasmo.errors import ClickLogError
from gecasmo.logs.notes import Note
from gecasmo.logs.pages import (
    Page,
    chain_order,
    first_rows,
    is_chain,
    page_starts,
    rows_that_differ,
    shown,
    values_of_pages,
)
from gecasmo.logs.selection import FIXED, as_mask, as_signal, in_test_part
from gecasmo.report import shortened

if TYPE_CHECKING:
    from gecasmo.logs.store import StoredLog
    from gecasmo.logs.views import View

RANKS_SHOWN = 10


class ClickLog:
    """Result pages and the clicks on them; made by `read_log`, and never changed.

    Parameters
    ----------
    frame
        One row a result: "session", "query" (if there are queries), "doc", "rank", "click", and
        whatever else the source had.
    page
        The session of each result; sessions are numbered in order of first appearance. None where
        `starts` says it all.
    sessions
        The id of each session.
    weight
        The weight of each session.
    pages
        Columns with one value a session, for sessions that have no results to hold them.
    order
        The rows by session, then rank, when known already.
    starts
        Where each session starts among the rows, with their number at the end; given only if the
        rows are in order already, by session, then rank.
    notes
        What the reader met.

    Attributes
    ----------
    page : ndarray of uint32
        The session of each result.
    rank : ndarray of int32
        The rank of each result, from 1.
    click : ndarray of bool
        Whether each result was clicked.
    sessions : pl.Series
        The id of each session, in order of first appearance.
    weight : ndarray of float64
        The weight of each session.
    notes : tuple of Note
        What the reader met in the source and what it did about it, counted; a part of a log has
        the notes of the whole.
    """

    def __init__(
        self,
        frame: pl.DataFrame,
        page: NDArray[np.uint32] | None,
        sessions: pl.Series,
        weight: NDArray[np.float64],
        *,
        pages: pl.DataFrame | None = None,
        order: NDArray[np.int64] | None = None,
        starts: NDArray[np.int64] | None = None,
        notes: Iterable[Note] = (),
    ) -> None:
        self._frame = frame
        # Without columns a frame does not know its height, so it cannot be filtered like the rest.
        self._pages = None if pages is None or pages.width == 0 else pages
        self._known_order = order
        self._known_starts = starts
        self._known_page = page
        self.sessions = sessions
        self.weight = weight
        self.notes = tuple(notes)

    @property
    def page_columns(self) -> pl.DataFrame | None:
        """Columns with one value a session, if the log came from a nested source that has any."""
        return self._pages

    @property
    def columns(self) -> list[str]:
        """Names of the columns: the roles first, then all others."""
        return self._frame.columns

    @property
    def n_sessions(self) -> int:
        """Number of sessions, with those that have no results."""
        return len(self.sessions)

    @property
    def n_results(self) -> int:
        """Number of results over all sessions."""
        return self._frame.height

    @property
    def total_weight(self) -> float:
        """The weight of all sessions."""
        return float(self.weight.sum())

    @property
    def has_query(self) -> bool:
        """Whether the log says which query each page answers."""
        return "query" in self._frame.columns

    def __len__(self) -> int:
        return self.n_sessions

    def __getitem__(self, which: int) -> Page:
        """Return one page to look at, by its number among the sessions; -1 is the last."""
        number = operator.index(which)
        if not -self.n_sessions <= number < self.n_sessions:
            raise IndexError(f"there is no page {number}; the log has {self.n_sessions:,}.")
        number %= self.n_sessions
        results = self._frame[self.order[self.starts[number] : self.starts[number + 1]]]
        query = results["query"].first() if self.has_query else None
        if self._pages is not None and "query" in self._pages.columns:
            query = self._pages["query"][number]
        roles = ("session", "query", "rank", "doc", "click")
        results = results.select(
            "rank", "doc", "click", *(n for n in self.columns if n not in roles)
        )
        return Page(self.sessions[number], query, float(self.weight[number]), results)

    def head(self, pages: int = 5) -> ClickLog:
        """Return the log of the first sessions, for a look."""
        return self.take(np.arange(self.n_sessions) < pages)

    is_folded = False  # whether a weight says how many equal pages a page stands for

    def n_sources(self, chosen: NDArray[np.bool_] | None = None) -> int:
        """How many pages of the source these pages stand for; by default all of them."""
        weight = self.weight if chosen is None else self.weight[chosen]
        return round(float(weight.sum())) if self.is_folded else len(weight)

    # What follows is made when it is first asked for: a large log may never need all of it. Arrays
    # are writable, since kernels compiled for these would not take Polars' own memory.
    @cached_property
    def page(self) -> NDArray[np.uint32]:
        """The session of each result."""
        if self._known_page is not None:
            return self._known_page
        return np.repeat(np.arange(self.n_sessions, dtype=np.uint32), self.lengths)

    @cached_property
    def rank(self) -> NDArray[np.int32]:
        """The rank of each result, from 1."""
        return self._frame["rank"].to_numpy(writable=True).astype(np.int32, copy=False)

    @cached_property
    def click(self) -> NDArray[np.bool_]:
        """Whether each result was clicked."""
        return self._frame["click"].to_numpy(writable=True).astype(np.bool_, copy=False)

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Row indices by session, then rank."""
        if self._known_order is not None:
            return self._known_order
        if self._known_starts is not None:
            return np.arange(self.n_results)
        return chain_order(self.page, self.rank)

    @cached_property
    def is_sorted(self) -> bool:
        """Whether the rows are in order already: by session, then rank."""
        if self._known_starts is not None:
            return True
        if self._known_order is not None:
            return bool((self._known_order == np.arange(len(self._known_order))).all())
        return is_chain(self.page, self.rank)

    @cached_property
    def has_plain_ranks(self) -> bool:
        """Whether the ranks of every page are 1, 2, 3, ..."""
        rank = self.rank if self.is_sorted else self.rank[self.order]
        step = np.diff(rank, prepend=rank[:1])
        starts = self.starts[:-1][self.lengths > 0]
        step[starts] = rank[starts]
        return bool((step == 1).all())

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Where each session starts in `order`, with the number of results at the end."""
        if self._known_starts is not None:
            return self._known_starts
        return page_starts(self.page, self.n_sessions)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Number of results of each session."""
        return np.diff(self.starts)

    @cached_property
    def _firsts(self) -> NDArray[np.int64]:
        if self._known_starts is not None:
            return np.where(self.lengths > 0, self._known_starts[:-1], -1)
        return first_rows(self.page, self.n_sessions)

    def column(self, name: str) -> pl.Series:
        """Return a column, one value a result, in the order of the source.

        Parameters
        ----------
        name
            One of `columns`; the roles go by their own names ("query", not what it was called in
            the source).

        Returns
        -------
        pl.Series

        Raises
        ------
        ClickLogError
            When there is no such column.
        """
        if name not in self._frame.columns:
            there = ", ".join(self.columns)
            raise ClickLogError(f"The log has no column {name!r}. It has: {there}.")
        return self._frame[name]

    def is_page_constant(self, name: str) -> bool:
        """Whether all results of a page have the same value of a column, on every page.

        Parameters
        ----------
        name
            One of `columns`.

        Returns
        -------
        bool
        """
        return len(rows_that_differ(self.column(name), self.page, self._firsts)) == 0

    def session_column(self, name: str) -> pl.Series:
        """Return a column that has one value a page, one value a session.

        Parameters
        ----------
        name
            One of `columns`.

        Returns
        -------
        pl.Series
            In the order of `sessions`. A session without results has the value that a nested
            source gave it, else null.

        Raises
        ------
        ClickLogError
            When there is no such column, or it varies on a page.
        """
        values = self.column(name)
        if name == "session":
            return self.sessions
        if self._pages is not None and name in self._pages.columns:
            return self._pages[name]
        differing = rows_that_differ(values, self.page, self._firsts)
        if len(differing):
            page = self.page[differing[0]]
            one, other = shown(values, self._firsts[page]), shown(values, differing[0])
            raise ClickLogError(
                f"The column {name!r} has more than one value on a page: "
                f"session {shown(self.sessions, page)} has {one} and {other}."
            )
        return values_of_pages(values, self._firsts)

    def take(self, sessions: ArrayLike) -> ClickLog:
        """Return the log of some of the sessions.

        Parameters
        ----------
        sessions
            Which sessions: a boolean for each, or the indices of those wanted, each at most once.

        Returns
        -------
        ClickLog
            Its sessions and rows are in the order of this log, whatever the order of the indices.

        Raises
        ------
        ClickLogError
            When the selection does not fit the log.
        """
        wanted = as_mask(sessions, self.n_sessions)
        mask = pl.Series(wanted, dtype=pl.Boolean)
        page, starts = None, None
        if self._known_starts is not None:
            rows = np.repeat(wanted, self.lengths)
            starts = np.zeros(int(wanted.sum()) + 1, np.int64)
            np.cumsum(self.lengths[wanted], out=starts[1:])
        else:
            rows = wanted[self.page]
            page = (np.cumsum(wanted) - 1)[self.page[rows]].astype(np.uint32)
        return ClickLog(
            self._frame.filter(pl.Series(rows, dtype=pl.Boolean)),
            page,
            self.sessions.filter(mask),
            self.weight[wanted],
            pages=None if self._pages is None else self._pages.filter(mask),
            starts=starts,
            notes=self.notes,
        )

    def with_signals(self, signals: Mapping[str, ArrayLike]) -> ClickLog:
        """Return the same pages with boolean columns replaced or added.

        Parameters
        ----------
        signals
            A boolean for each result, by name; "click" replaces the clicks.

        Returns
        -------
        ClickLog

        Raises
        ------
        ClickLogError
            When a signal does not fit the results, or would replace what makes the pages.
        """
        return self._with_columns(
            [as_signal(name, values, self.n_results) for name, values in signals.items()]
        )

    def with_numbers(self, numbers: Mapping[str, ArrayLike]) -> ClickLog:
        """Return the same pages with columns of numbers replaced or added.

        Parameters
        ----------
        numbers
            A number for each result, by name; NaN becomes null.

        Returns
        -------
        ClickLog

        Raises
        ------
        ClickLogError
            When there are not as many numbers as results.
        """
        columns = [
            pl.Series(name, np.asarray(values, np.float64), nan_to_null=True)
            for name, values in numbers.items()
        ]
        taken = (*FIXED, "click")
        wrong = [own for own in columns if len(own) != self.n_results or own.name in taken]
        if wrong:
            raise ClickLogError(
                f"with_numbers: {wrong[0].name!r} has {len(wrong[0]):,} values for "
                f"{self.n_results:,} results, or is what makes the pages."
            )
        return self._with_columns(columns)

    def _with_columns(self, columns: list[pl.Series]) -> ClickLog:
        names = [column.name for column in columns]
        return ClickLog(
            self._frame.with_columns(columns),
            self._known_page,
            self.sessions,
            self.weight,
            pages=None if self._pages is None else self._pages.drop(names, strict=False),
            order=self.__dict__.get("order", self._known_order),
            starts=self._known_starts,
            notes=self.notes,
        )

    def split(
        self, test: float = 0.2, by: str = "session", seed: int = 0, time: str | None = None
    ) -> tuple[ClickLog, ClickLog]:
        """Split the sessions into a training part and a test part.

        Parameters
        ----------
        test
            The share of the test part, between 0 and 1: of the groups, or, with `time`, of the
            sessions. Each part gets at least one.
        by
            What stays together: "session", "query", or any column with one value a page.
        seed
            Seed of the random choice. The order of the rows plays no part in it.
        time
            A column with one value a page: numbers, times, or texts that are numbers or dates,
            all written in one form; where these can be read in several ways, with the form, such
            as "day:%d/%m/%Y". The latest sessions by this column are then the test part. Sessions
            as late as the last training session stay with it, so the test part can be smaller than
            asked for, and is later than all of the training part.

        Returns
        -------
        train, test : ClickLog

        Raises
        ------
        ClickLogError
            When there is no such split.
        """
        in_test = in_test_part(self, test=test, by=by, seed=seed, time=time)
        return self.take(~in_test), self.take(in_test)

    def view(self, view: str | View, **options: Any) -> ClickLog:
        """Return the log in the order of a view; models apply the one that they name by themselves.

        Parameters
        ----------
        view
            "pages", "grids", "tasks" or "walks", or an object of `gecasmo.logs.views`.
        options
            Those of the view, such as `order="columns"` of "grids".

        Returns
        -------
        ClickLog
            A session is a walk, with the columns of the view. Its `back` brings a value for each of
            its rows back to the rows of this log.

        Raises
        ------
        ClickLogError
            When the log lacks columns that the view needs.
        """
        from gecasmo.logs.views import as_view

        return as_view(view, **options).apply(self)

    def to_frame(self) -> pl.DataFrame:
        """Return the log as a data frame with one row a result.

        Returns
        -------
        pl.DataFrame
            In the order of the source, under canonical names; with a column "weight" unless every
            session weighs 1. Sessions without results have no row.
        """
        if np.all(self.weight == 1):
            return self._frame
        return self._frame.with_columns(weight=pl.Series(self.weight[self.page]))

    def write(self, path: str | Path, format: str | None = None) -> None:
        """Write the log to a file that `read_log` reads.

        Parameters
        ----------
        path
            Where to. For a table the suffix tells which kind: .parquet, .csv, .tsv or .jsonl, text
            also followed by .gz or .zst. Text files do not keep data types (ids such as "12" come
            back as integers from CSV and TSV). A log with sessions that have no results is written
            with one row a page, which only Parquet and JSON lines can hold. When there is a column
            "weight", pass ``weight="weight"`` to `read_log`.
        format
            One of `gecasmo.logs.formats.FORMATS`; None is a table.

        Raises
        ------
        ClickLogError
            When the format cannot hold the log, or the file cannot be written.
        """
        from gecasmo.logs.formats import write_as

        write_as("table" if format is None else format, self, Path(path).expanduser())

    @staticmethod
    def ingest(
        source: Any,
        path: str | Path,
        *,
        session: str | Sequence[str] | None = "session",
        query: str | None = "query",
        doc: str | Sequence[str] = "doc",
        rank: str | None = "rank",
        click: str | None = "click",
        weight: str | None = None,
        keep: str | Sequence[str] = (),
        view: str | View | Sequence[str | View] = (),
        memory: int | str = "4GB",
        partitions: int | None = None,
        fold: bool | str = "auto",
        resume: bool = True,
        overwrite: bool = False,
        progress: Callable[[str, int, int | None], None] | None = None,
        format: str | None = None,
        max_line: int | None = None,
        separator: str | None = None,
    ) -> StoredLog:
        """Store a log of any size on disk, with bounded memory; see `gecasmo.logs.store.ingest`.

        Returns
        -------
        StoredLog
        """
        from gecasmo.logs.store.ingest import ingest

        return ingest(
            source,
            path,
            session=session,
            query=query,
            doc=doc,
            rank=rank,
            click=click,
            weight=weight,
            keep=keep,
            view=view,
            memory=memory,
            partitions=partitions,
            fold=fold,
            resume=resume,
            overwrite=overwrite,
            progress=progress,
            format=format,
            max_line=max_line,
            separator=separator,
        )

    def __repr__(self) -> str:
        facts, (rates, left) = _facts(self), _click_rates(self)
        width = max(len(name) for name, _ in facts)
        lines = ["ClickLog", *(f"  {name:<{width}}  {value}" for name, value in facts)]
        if rates:
            lines.append(f"  {'rank':>10}  {'results':>13}  {'CTR':>6}")
            lines += [f"  {rank:>10}  {shown:>13,}  {rate:>6.4f}" for rank, shown, rate in rates]
        if left:
            lines.append(f"  ... and {left:,} more ranks")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        facts, (rates, left) = _facts(self), _click_rates(self)
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in facts
        )
        table = "".join(
            f"<tr><td>{rank}</td><td>{shown:,}</td><td>{rate:.4f}</td></tr>"
            for rank, shown, rate in rates
        )
        more = f"<p>... and {left:,} more ranks</p>" if left else ""
        return (
            f"<div><b>ClickLog</b><table>{rows}</table>"
            f"<table><tr><th>rank</th><th>results</th><th>CTR</th></tr>{table}</table>{more}</div>"
        )


def joined(logs: Sequence[ClickLog]) -> ClickLog:
    """The pages of some logs with the same columns, one log after the other.

    Parameters
    ----------
    logs
        At least one; no session may be in two of them.

    Returns
    -------
    ClickLog
    """
    if len(logs) == 1:
        return logs[0]
    before = np.cumsum([0, *(log.n_sessions for log in logs)])
    page = np.concatenate(
        [log.page.astype(np.uint32) + np.uint32(n) for log, n in zip(logs, before, strict=False)]
    )
    columns = [log.to_frame().select(logs[0].columns) for log in logs]
    by_page = [log.page_columns for log in logs if log.page_columns is not None]
    everywhere = [n for n in logs[0].columns if all(n in frame.columns for frame in by_page)]
    return ClickLog(
        pl.concat(columns, how="vertical_relaxed", rechunk=True),
        page,
        pl.concat([log.sessions for log in logs]),
        np.concatenate([log.weight for log in logs]),
        pages=pl.concat([frame.select(everywhere) for frame in by_page])
        if len(by_page) == len(logs)
        else None,
        notes=logs[0].notes,
    )


def _facts(log: ClickLog) -> list[tuple[str, str]]:
    facts = [("sessions", f"{log.n_sessions:,}"), ("results", f"{log.n_results:,}")]
    if log.has_query:
        facts.append(("queries", f"{log.session_column('query').n_unique():,}"))
    facts.append(("documents", f"{log.column('doc').n_unique():,}"))
    if log.n_sessions:
        shortest, longest = int(log.lengths.min()), int(log.lengths.max())
        middle = float(np.median(log.lengths))
        lengths = f"{shortest:,} to {longest:,} results, median {middle:g}"
        facts.append(("page lengths", f"{longest:,} results" if shortest == longest else lengths))
        clicked = len(np.unique(log.page[log.click])) / log.n_sessions
        facts.append(("clicks", f"{int(log.click.sum()):,}, on {clicked:.1%} of the pages"))
    if not np.all(log.weight == 1):
        total = f"{log.weight.sum():,.6g} over all sessions; they count in the CTR"
        facts.append(("weights", total))
    extra = log.columns[log.columns.index("click") + 1 :]
    if extra:
        facts.append(("also", shortened(", ".join(extra), 60)))
    facts += [("noted", shortened(f"{note.kind}: {note.count:,}", 60)) for note in log.notes]
    return facts


def _click_rates(log: ClickLog) -> tuple[list[tuple[int, int, float]], int]:
    """Return rank, results and click-through rate for the first ranks, and how many are left."""
    weight = log.weight[log.page]
    frame = pl.DataFrame({"rank": log.rank, "weight": weight, "clicked": weight * log.click})
    rates = frame.group_by("rank").agg(
        pl.len().alias("shown"), pl.col("clicked").sum() / pl.col("weight").sum()
    )
    top = rates.sort("rank").head(RANKS_SHOWN)
    return [(rank, shown, rate) for rank, shown, rate in top.rows()], rates.height - top.height
