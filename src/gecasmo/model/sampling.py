"""The pages of a stored log from which a fit learns what all queries have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.encoding import Rows
from gecasmo.encoding.matching import match
from gecasmo.estimation.beliefs.learning import PAGES
from gecasmo.estimation.parts.problem import PartedProblem
from gecasmo.estimation.parts.sample import Sample
from gecasmo.forms import TableState
from gecasmo.hashing import hash_values
from gecasmo.logs import ClickLog
from gecasmo.logs.joining import joined
from gecasmo.logs.store.stored_log import StoredLog

if TYPE_CHECKING:
    from gecasmo.model.base import Model
    from gecasmo.model.parts import Settings


@dataclass(frozen=True)
class DrawnSample:
    """A sample, with what tells groups of its rows apart."""

    sample: Sample
    typical: dict[str, dict[str, pl.Series]]

    def nothing(self, number: int) -> TableState:
        """The state of a local coin that has no rows."""
        coin = self.sample.problem.coins[number]
        rows = Rows(coin.rows.keys, [c.clear() for c in coin.rows.frame.get_columns()], 0)
        state: TableState = coin.form.begin(rows, None)
        return state


def sample_of(
    model: Model,
    log: StoredLog,
    settings: Settings,
    problem: PartedProblem,
    rows: Mapping[int, Rows],
) -> DrawnSample:
    """Put a sample of the pages into memory."""
    from gecasmo.model.fitting import Builder

    pages = sample_pages(log)
    build = Builder(model, pages, settings.method, None, None, settings.impossible)
    own = build.problem()
    own.expectation.scale = problem.n_pages / max(own.n_pages, 1e-300)
    index = {}
    for number, shared in rows.items():
        here = own.coins[number].rows
        if here.keys and "result" not in here.keys:
            index[number] = match(here.frame, shared.frame, here.keys)
        else:
            index[number] = np.arange(len(here))
    return DrawnSample(Sample(own, problem.local, index, {}), build.typical)


def sample_pages(log: StoredLog, n_pages: int = PAGES) -> ClickLog:
    """The first pages in the order of the hash of their query, with whole queries."""
    if log.n_pages <= 2 * n_pages:
        return joined([part for part in log.partitions() if part.n_sessions])
    chosen: list[ClickLog] = []
    left = n_pages
    for part in log.partitions():
        if part.n_sessions <= left:
            if part.n_sessions:
                chosen.append(part)
            left -= part.n_sessions
        else:
            chosen.append(part.take(_first_queries(part, left)))
            break
        if left <= 0:
            break
    return joined(chosen)


def _first_queries(part: ClickLog, n_pages: int) -> Any:
    """The first pages, up to the end of the query that the last of them is of."""
    if not part.has_query:
        return np.arange(part.n_sessions) < n_pages
    hashes = hash_values(part.session_column("query"))
    last = hashes[n_pages - 1]
    return np.arange(part.n_sessions) <= int(np.flatnonzero(hashes == last).max())
