"""A few pages that stand for a log: those whose rows have the most data, each kind once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.checks.traffic import page_hashes, pair_codes, totals
from gecasmo.encoding.columns import coded, in_chain
from gecasmo.logs import ClickLog
from gecasmo.model import Model

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Scores of a page of T results take T * T results to be looked at, and a column per row.
MOST_LOOKS = 60_000
LONGEST = 300
_AT_A_TIME = 30
MOST_ROWS = 500


@dataclass(frozen=True)
class PageSample:
    """Some pages with the weight of all that are like them."""

    log: ClickLog
    weight: Floats
    is_whole: bool  # whether every page of the log is among them

    @property
    def n_pages(self) -> int:
        """How many pages were chosen."""
        return self.log.n_sessions


def choose_pages(model: Model, log: ClickLog) -> PageSample | None:
    """Pages for a close look; None if all are too long for that.

    What a row's neighbours say about it only shows where it is met again and again, so pages with
    much-shown pairs come first, a number of each query at a time. Pages that are alike in results
    and clicks are taken once.
    """
    usable = (log.lengths > 0) & (log.weight > 0)
    kept = np.flatnonzero(usable & (log.lengths <= LONGEST))
    if not len(kept):
        return None
    hashes = page_hashes(log, with_clicks=True)[kept]
    extra = _other_keys(model)
    if extra:
        # Pages alike in documents may differ in what else decides their rows.
        first, number = kept, np.arange(len(kept))
    else:
        _, index, number = np.unique(hashes, return_index=True, return_inverse=True)
        first = kept[index]
    weight = totals(number, log.weight[kept], len(first))
    order = _in_turn(log, first, np.argsort(-_popularity(log)[first], kind="stable"))
    looks = np.cumsum(log.lengths[first[order]] ** 2)
    n_pages = max(5, int(np.searchsorted(looks, MOST_LOOKS)))
    order = order[:n_pages]
    while True:
        chosen = first[order]
        part = log.take(chosen)
        n_rows = sum(len(rows) for rows in model.encode(part, "e_step", merge=False).rows)
        if n_rows <= MOST_ROWS or len(order) <= 1:
            break
        order = order[: max(1, int(0.8 * len(order) * MOST_ROWS / n_rows))]
    # `take` keeps the order of the log.
    by_session = np.argsort(chosen)
    is_whole = len(order) == len(first) and len(kept) == int(usable.sum())
    return PageSample(part, weight[order][by_session], is_whole)


def shuffled(log: ClickLog, copies: int, seed: int) -> ClickLog:
    """The same pages with their results in random order, several times over.

    Everything that the log says about a result moves with it, except its rank.
    """
    generator = np.random.default_rng(seed)
    frame = log.to_frame().select(log.columns)
    rank_of_place = log.rank[log.order]
    parts, pages = [], []
    for copy in range(copies):
        order = np.lexsort((generator.random(log.n_results), log.page))
        rank = np.empty(log.n_results, np.int32)
        rank[order] = rank_of_place
        pages.append(log.page + np.uint32(copy * log.n_sessions))
        parts.append(
            frame.with_columns(
                pl.Series("rank", rank).cast(frame["rank"].dtype),
                pl.lit(False).alias("click"),
            )
        )
    # One copy keeps the ids of its sessions, in case a coin goes by them; more need new ones.
    sessions = log.sessions if copies == 1 else pl.Series(np.arange(copies * log.n_sessions))
    everything = pl.concat(parts)
    return ClickLog(
        everything.with_columns(sessions.gather(np.concatenate(pages)).alias("session")),
        np.concatenate(pages),
        sessions.alias("session"),
        np.tile(log.weight, copies),
    )


def _in_turn(log: ClickLog, sessions: Integers, order: Integers) -> Integers:
    """The same order, except that after so many pages of a query others have their turn."""
    if not log.has_query:
        return order
    query = in_chain(log, coded(log, "query", "query", nullable=True).codes)
    own = pl.DataFrame({"query": query[log.starts[:-1][sessions[order]]]})
    turn = own.select(pl.int_range(pl.len()).over("query") // _AT_A_TIME).to_series().to_numpy()
    picked: Integers = order[np.argsort(turn, kind="stable")]
    return picked


def _popularity(log: ClickLog) -> Floats:
    """How often the pairs of a page were shown, on average."""
    pair = pair_codes(log)
    counts = pl.DataFrame({"pair": pair}).select(pl.len().over("pair")).to_series().to_numpy()
    total = totals(log.page, counts, log.n_sessions)
    mean: Floats = total / np.maximum(log.lengths, 1)
    return mean


def _other_keys(model: Model) -> list[str]:
    """Columns beyond query, document, rank and click that decide which row a result uses."""
    known = {"query", "doc", "rank", "page_length", "last_click", "distance", "clicks_above"}
    automaton = model.counting_structure.traced
    asked = {key for keys in model.keys.values() for key in keys}
    asked |= {name for wanted in model.wanted().values() for name in wanted.columns}
    asked |= {*automaton.guard_columns(), *automaton.signals}
    return sorted(asked - known - {"click", "is_last_click"})
