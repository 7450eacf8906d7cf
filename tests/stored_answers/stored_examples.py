"""Logs in partitions and models in parts, made from small ones in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from gecasmo import DBN, EM, Table, read_log
from gecasmo.forms import TableState
from gecasmo.forms.parted_table import FolderSource, PartedTable, part_of, write_part
from gecasmo.logs import ClickLog
from gecasmo.model import Model
from gecasmo.simulation import random_pages


class FakeStore:
    """What a stored log has to offer, from a log in memory."""

    def __init__(self, log: ClickLog, n_partitions: int) -> None:
        part = part_of(log.session_column("query"), n_partitions)
        self.logs = [log.take(part == number) for number in range(n_partitions)]
        self.n_partitions = n_partitions
        self.path = Path("made_up.gclog")
        self.n_sessions, self.n_results = log.n_sessions, log.n_results
        self.n_pages = log.n_sessions
        self.total_weight = float(log.weight.sum())
        self.columns, self.has_query = log.columns, log.has_query
        self.n_opened = 0

    def partition(self, number: int) -> ClickLog:
        self.n_opened += 1
        return self.logs[number]

    def partitions(self) -> Iterator[ClickLog]:
        return map(self.partition, range(self.n_partitions))


def small_log(n_pages: int = 400, seed: int = 3) -> ClickLog:
    rng = np.random.default_rng(seed)
    quality = rng.beta(1.0, 2.0, (12, 6))
    pages = random_pages(n_pages, seed, n_queries=12, quality=quality, length=4)
    pages = pages.with_columns(
        query=pl.format("question {}", "query"), weight=pl.Series(1.0 + pages["session"] % 3)
    )
    truth = DBN.with_values(attraction=0.4, satisfaction=0.5, continuation=0.8)
    blank = read_log(pages, click=None, weight="weight")
    return truth.simulate(blank, seed=seed)


def fitted(log: ClickLog, **forms: Any) -> Model:
    forms = forms or {"satisfaction": Table(pseudo_counts=(1, 2), fixed={("question 0", 1): 0.25})}
    return DBN(**forms).fit(log, EM(max_iter=60, tol=1e-5), progress=False)


def split_table(
    folder: Path, coin: int, state: TableState, counts: np.ndarray | None, n_parts: int
) -> PartedTable:
    """Put a table that is in memory into files."""
    counts = np.zeros((2, len(state.rows))) if counts is None else counts
    part = part_of(state.rows.frame["query"], n_parts)
    files = []
    for number in range(n_parts):
        rows = np.flatnonzero(part == number)
        files.append(write_part(folder, coin, number, state.of_rows(rows), counts[:, rows]))
    return PartedTable(state, files, FolderSource(folder))


def parted(model: Model, folder: Path, n_parts: int) -> Model:
    """A copy whose tables by query are in files."""
    twin = model.copy()
    assert twin.states_ is not None
    counts = {} if model.report_ is None else dict(model.report_.counts)
    for number, (coin, form) in enumerate(model.forms.items()):
        state = twin.states_[coin]
        if isinstance(form, Table) and "query" in model.keys[coin] and len(state.rows):
            own = counts.pop(coin, None)
            twin.states_[coin] = split_table(folder, number, state, own, n_parts)
    if model.report_ is not None:
        twin.report_ = replace(model.report_, counts=counts)
    return twin


def in_partition_order(log: ClickLog, store: FakeStore) -> np.ndarray:
    """Where the sessions of a store are in its log."""
    place = {session: number for number, session in enumerate(log.sessions)}
    return np.array([place[session] for part in store.logs for session in part.sessions])
