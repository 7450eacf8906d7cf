"""Simulated users on the pages of a stored log, chunk by chunk into another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.logs import ClickLog
from gecasmo.model.stories import simulate
from gecasmo.model.streaming import Partitioned, all_pieces, part_view

if TYPE_CHECKING:
    from gecasmo.model.base import Model

# Results that are simulated at a time.
_AT_A_TIME = 1_000_000
_ROLES = ("session", "query", "doc", "rank", "click")


def simulate_stored(model: Model, log: Any, path: Any, seed: int, truth: bool = False) -> Any:
    """New clicks on the pages of a stored log, as a stored log at `path`."""
    from gecasmo.logs.store.ingesting import ingest

    if truth:
        raise ClickLogError(
            "What was hidden on the pages of a stored log would fill memory. Ask partition by "
            "partition: model.simulate(log.partition(0), truth=True)."
        )
    if path is None:
        raise ClickLogError(
            "Clicks on a stored log may not fit into memory: say where to store them, such as "
            'simulate(log, path="simulated.gclog").'
        )
    if Path(path).expanduser().resolve() == Path(log.path).resolve():
        raise ClickLogError(f"{path} is the log whose pages are to be simulated; name another.")
    keep = [name for name in log.columns if name not in _ROLES]
    return ingest(simulated_logs(model, log, seed), path, keep=keep, partitions=log.n_partitions)


def simulated_logs(model: Model, log: Partitioned, seed: int) -> Iterator[ClickLog]:
    """New clicks on the pages of a stored log, some pages at a time.

    A page that stands for several equal ones is shown so many times, since its users click each in
    their own way; with weights that are no whole numbers, it is shown once and keeps its weight.
    """
    last, turn = -1, 0
    for number, pages in all_pieces(log):
        if number != last:
            view, last, turn = part_view(model, number, log.n_partitions), number, 0
        for chunk in _chunks(pages, bool(getattr(log, "is_folded", True))):
            yield simulate(view, chunk, _seed(seed, number, turn), truth=False)
            turn += 1
        del pages  # before the next one is read


def _seed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0])


def unfolded(log: ClickLog) -> ClickLog:
    """Each page as often as its weight says, if all weights are whole numbers."""
    sessions, has_weights = _sessions(log, True)
    return repeated(log, sessions, has_weights)


def _sessions(log: ClickLog, is_folded: bool) -> tuple[NDArray[np.int64], bool]:
    """Each session as often as it occurred, and whether there are other weights to be kept."""
    repeats = np.ones(log.n_sessions, np.int64)
    if is_folded and np.all(log.weight == np.round(log.weight)):
        repeats = log.weight.astype(np.int64)
    return np.repeat(np.arange(log.n_sessions), repeats), not np.array_equal(repeats, log.weight)


def _chunks(log: ClickLog, is_folded: bool) -> Iterator[ClickLog]:
    """A partition in pieces, each page as often as it occurred."""
    sessions, has_weights = _sessions(log, is_folded)
    ends = np.cumsum(log.lengths[sessions])
    borders = np.searchsorted(ends, np.arange(_AT_A_TIME, ends[-1:].sum(), _AT_A_TIME))
    for chosen in np.split(sessions, borders):
        if len(chosen):
            yield repeated(log, chosen, has_weights)


def repeated(log: ClickLog, sessions: NDArray[np.int64], has_weights: bool = False) -> ClickLog:
    """A log of these sessions of another, as often as they are named, numbered from 0."""
    lengths = log.lengths[sessions]
    page = np.repeat(np.arange(len(sessions)), lengths)
    within = np.arange(len(page)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    rows = log.order[np.repeat(log.starts[:-1][sessions], lengths) + within]
    frame = log.to_frame().select(log.columns)[pl.Series(rows)]
    numbers = pl.Series("session", np.arange(len(sessions)))
    return ClickLog(
        frame.with_columns(numbers.gather(pl.Series(page)).alias("session")),
        page.astype(np.uint32),
        numbers,
        log.weight[sessions] if has_weights else np.ones(len(sessions)),
    )
