"""The pages of a stored log from which a fit learns what all queries have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
from gecasmo.model.streaming import all_pieces

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
    """The first pages in the order of the hash of their query, with whole queries.

    Only a query that would double the sample is cut off.
    """
    if log.n_pages <= 2 * n_pages:
        return joined([part for part in log.partitions() if part.n_sessions])
    chosen: list[ClickLog] = []
    n_chosen = 0
    for _, pages in all_pieces(log):
        last = _last_of_query(pages, n_pages - n_chosen)
        if n_chosen >= n_pages:
            # The query that the last pages are of may go on in the next piece of its partition.
            last = _continued(chosen[-1], pages)
        # A query with a large share of the log would crowd out the others, and fill memory.
        last = min(last, 2 * n_pages - n_chosen)
        chosen.append(pages if last == pages.n_sessions else _first(pages, last))
        n_chosen += last
        if last < pages.n_sessions:
            break
    return joined([part for part in chosen if part.n_sessions])


def _first(pages: ClickLog, n_pages: int) -> ClickLog:
    return pages.take(np.arange(pages.n_sessions) < n_pages)


def _last_of_query(pages: ClickLog, n_pages: int) -> int:
    """So many pages, and those up to the end of the query that the last of them is of."""
    if n_pages >= pages.n_sessions:
        return pages.n_sessions
    if not pages.has_query or n_pages <= 0:
        return max(n_pages, 0)
    hashes = hash_values(pages.session_column("query"))
    return int(np.flatnonzero(hashes == hashes[n_pages - 1]).max()) + 1


def _continued(before: ClickLog, pages: ClickLog) -> int:
    """How many pages go on with the last query of those before."""
    if not pages.has_query:
        return 0
    last = hash_values(before.session_column("query")[-1:])
    return int((hash_values(pages.session_column("query")) == last).sum())
