"""Answers for logs and models that are larger than memory: a partition of the log at a time.

A stored log has all pages of a query in one partition, and a parted table all rows of a query in
one part, both by the first bits of the query's hash. So a partition needs few parts, and with these
in memory every answer is the ordinary one. This is the one place that brings the two together. A
log of tasks has all pages of a task in one partition instead: any of them can meet any row, so all
rows are in memory for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, TypeVar, runtime_checkable

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError, ImpossibleSessionError, either
from gecasmo.logs import ClickLog, read_log
from gecasmo.logs.clicklog import joined
from gecasmo.logs.notes import Note
from gecasmo.logs.views import View, as_view
from gecasmo.logs.views.view import gathering, tell_gathered

if TYPE_CHECKING:
    from gecasmo.forms.parted_table import PartedTable
    from gecasmo.model.base import Model

Answer = TypeVar("Answer")
ModelOrNone = TypeVar("ModelOrNone", "Model", "Model | None")

# All pages of a query are in one partition, however many. Of one with more results than this,
# so many at a time are in memory as a log; each takes about 50 bytes.
MOST_RESULTS = 5_000_000


@runtime_checkable
class Partitioned(Protocol):
    """A log in partitions, such as a `StoredLog`: by query, unless `partitioned_by` says so."""

    @property
    def n_partitions(self) -> int:
        """Number of parts."""

    def partition(self, number: int) -> ClickLog:
        """Bring one part into memory."""


@runtime_checkable
class AskedElsewhere(Protocol):
    """A log whose parts are on other machines and are asked there, such as a `FrameLog` of Spark.

    What is asked must be a pure function, and answer with data.
    """

    def over_parts(
        self, model: Model, ask: Callable[[Model, ClickLog], Answer]
    ) -> Iterator[Answer]:
        """Ask every part where it lies, and give the answers in order of parts."""


def is_stored(log: Any) -> TypeGuard[Partitioned]:
    """Whether a log comes partition by partition."""
    return not isinstance(log, ClickLog) and isinstance(log, Partitioned)


def as_log(log: Any) -> Any:
    """A log as it is; a data frame or a dictionary of columns is read as one."""
    is_frame = isinstance(log, (Mapping, pl.LazyFrame)) or hasattr(log, "__arrow_c_stream__")
    return read_log(log) if is_frame and not isinstance(log, ClickLog) else log


def in_memory(log: Any) -> ClickLog:
    """The log, if it is one in memory."""
    log = as_log(log)
    if isinstance(log, ClickLog):
        return log
    if is_stored(log):
        raise ClickLogError(
            "This question has an answer for every result, and a stored log has too many of "
            "them. Ask "
            "partition by partition: for pages in log.partitions()."
        )
    raise ClickLogError(
        f"A ClickLog is wanted, not {type(log).__name__}: read_log(source) makes one."
    )


def parted_coins(model: Model) -> dict[str, PartedTable]:
    """The coins of a fitted model whose rows are in files."""
    states = model.states(whole=False)
    found = {coin: model.forms[coin].in_files(state) for coin, state in states.items()}
    return {coin: table for coin, table in found.items() if table is not None}


def partitioned_by(log: Any) -> str:
    """Of what all pages of a log are in one partition."""
    by: str = getattr(log, "partitioned_by", "query")
    return by


def suited(model: Model, log: Partitioned) -> Model:
    """The model, of which `part_view` has the rows that a partition of this log can meet: all of
    them, unless partitions are by query."""
    return model if partitioned_by(log) == "query" else whole_view(model)


def part_view(model: Model, number: int, n_partitions: int, last: int | None = None) -> Model:
    """The model with only those rows in memory that a partition by query can meet.

    Parameters
    ----------
    number, n_partitions : which partition of how many
    last : the partition after the last one, for several neighbouring ones
    """
    parted = parted_coins(model)
    if not parted:
        return model
    assert model.states_ is not None
    # Copies share the kernels, which are made once.
    twin = model.copy()
    twin._structures, twin._libraries = model._both_structures(), model._libraries
    states, counts = dict(model.states_), {}
    for coin, table in parted.items():
        wanted = overlap(number, last or number + 1, n_partitions, table.n_parts)
        states[coin], counts[coin] = table.between(*wanted)
    twin.states_ = states
    if model.report_ is not None:
        twin.report_ = replace(model.report_, counts={**model.report_.counts, **counts})
    return twin


def whole_view(model: Model) -> Model:
    """The model with all rows in memory, which costs what they take."""
    return part_view(model, 0, 1)


def overlap(first: int, last: int, n_partitions: int, n_parts: int) -> tuple[int, int]:
    """From which part to before which one holds what is in partitions `first` to before `last`."""
    return first * n_parts // n_partitions, -(-last * n_parts // n_partitions)


def is_cut(log: Partitioned, n_results: int) -> bool:
    """Whether a partition with so many results is taken in pieces."""
    return n_results > MOST_RESULTS and hasattr(log, "pieces")


def pieces_of(log: Partitioned, number: int, n_results: int) -> Iterator[ClickLog]:
    """The pages of a partition with so many results: one log, or several of about equal size."""
    if not is_cut(log, n_results):
        return iter([log.partition(number)])
    n_pieces = -(-n_results // MOST_RESULTS)
    pieces: Iterator[ClickLog] = log.pieces(number, -(-n_results // n_pieces))  # type: ignore[attr-defined]
    return pieces


def all_pieces(log: Partitioned) -> Iterator[tuple[int, ClickLog]]:
    """All pages of a log that has any, with the number of their partition.

    Nothing here holds on to a log that was handed out.
    """
    results = getattr(log, "partition_results", np.zeros(log.n_partitions, np.int64))
    for number in range(log.n_partitions):
        pieces = pieces_of(log, number, int(results[number]))
        yield from filter(_has_pages, map(partial(_numbered, number), pieces))


def _numbered(number: int, pages: ClickLog) -> tuple[int, ClickLog]:
    return number, pages


def _has_pages(found: tuple[int, ClickLog]) -> bool:
    return found[1].n_sessions > 0


def over_parts(
    model: Model,
    log: ClickLog | Partitioned | AskedElsewhere,
    ask: Callable[[Model, ClickLog], Answer],
    is_blank: bool = False,
) -> Iterator[Answer]:
    """What is said of each part of a log. One in memory is one part; of a stored log those that
    are not empty, large ones in pieces, each with the rows of the model that it can meet; a log of
    Spark asks its executors. Where clicks play no part (`is_blank`), nor does their order."""
    if not isinstance(log, AskedElsewhere) and not is_stored(log):
        yield ask(model, in_memory(log))
        return
    if isinstance(log, AskedElsewhere):
        require_pages(model)
        yield from log.over_parts(model, ask)
        return
    require_parts(model, log, is_blank)
    model, last = suited(model, log), -1
    odd: dict[str, list[Note]] = {}
    for number, pages in all_pieces(log):
        if number != last:
            view, last = part_view(model, number, log.n_partitions), number
        try:
            with gathering(odd):
                answer = ask(view, pages)
        except ImpossibleSessionError as error:
            where = getattr(log, "path", "the log")
            raise ImpossibleSessionError(f"In partition {number} of {where}: {error}") from None
        del pages  # before the next one is read
        yield answer
        del answer
    tell_gathered(odd)
    if last < 0:
        raise ClickLogError("There is nothing to answer: the log has no pages.")


def require_pages(model: Model) -> None:
    """Refuse a model of walks over several pages, which a cluster does not have together."""
    view = as_view(model.view)
    if view.spans_pages:
        raise ClickLogError(
            f"{model.name} reads a log under the view '{view.name}', which follows users from page "
            "to page, and a cluster has pages by query. Store the log on one machine: "
            f"{_ingest(view)}."
        )


def require_parts(model: Model, log: Partitioned, is_blank: bool = False) -> None:
    """Refuse a log that lacks columns of the model's view, or has pages of a walk far apart."""
    view = as_view(model.view)
    if not hasattr(log, "columns") or (is_blank and view.is_sequential):
        return
    again = f"Store it again with these: {_ingest(view)}."
    view.require_columns(log.columns, f"\n  {again}")
    if view.spans_pages and view.together(log.columns) != partitioned_by(log):
        raise ClickLogError(
            f"{model.name} reads a log under the view '{view.name}', which follows users from page "
            f"to page, and this log has its pages apart, by {partitioned_by(log)}. {again}"
        )


def _ingest(view: View) -> str:
    return either(
        f'ClickLog.ingest(source, path, view="{view.name}")',
        f"`gecasmo ingest LOG -o FOLDER --view {view.name}`",
    )


def routed(
    model: Model, coin: str, rows: pl.DataFrame, ask: Callable[[Model, pl.DataFrame], pl.DataFrame]
) -> pl.DataFrame:
    """An ordinary answer about rows of a parted coin, asked part by part, in their order."""
    table = parted_coins(model)[coin]
    order, answers = [], []
    for number, places in table.routed(rows["query"]):
        order.append(places)
        answers.append(ask(part_view(model, number, table.n_parts), rows[pl.Series(places)]))
    if not answers:
        return ask(part_view(model, 0, table.n_parts), rows)
    back = np.argsort(np.concatenate(order), kind="stable")
    return pl.concat(answers, how="vertical_relaxed")[pl.Series(back)]


def some_partitions(
    model: ModelOrNone, log: Partitioned, n_pages: int, seed: int = 0
) -> tuple[ModelOrNone, ClickLog]:
    """About so many pages, all pages of random queries, with the model that answers for them.

    Which query (or task) is in which partition is as good as random, so neighbouring partitions
    will do.
    """
    first = int(np.random.default_rng(seed).integers(log.n_partitions))
    chosen = [log.partition(first)]
    last = first + 1
    while sum(part.n_sessions for part in chosen) < n_pages and last - first < log.n_partitions:
        if last < log.n_partitions:
            chosen.append(log.partition(last))
            last += 1
        else:
            first -= 1
            chosen.insert(0, log.partition(first))
    pages = joined(chosen)
    pages.is_folded = chosen[0].is_folded  # what weights mean is lost on the way
    if model is None:
        return None, pages
    return part_view(suited(model, log), first, log.n_partitions, last), pages
