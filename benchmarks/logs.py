"""Simulated click logs: people who behave as DBN says, on pages of ten results.

Two kinds of log, equal in everything but the pages that are shown:

    distinct    every page has a ranking of its own, so hardly any page is shown twice
    repeating   a query has a few fixed rankings, as with a search engine that changes slowly
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gecasmo import ClickLog, read_log

N_RANKS = 10
N_CANDIDATES = 20
PAGES_PER_QUERY = 50
CONTINUATION = 0.9
ZIPF_EXPONENT = 1.1
RANKING_NOISE = 0.3
RANKING_SHARES = (0.6, 0.3, 0.1)  # how often each fixed ranking of a query is shown
KINDS = ("distinct", "repeating")
_CHUNK = 200_000


@dataclass(frozen=True)
class SimulatedLog:
    """`doc[page, rank - 1]` is the number of a (query, document) pair."""

    kind: str
    query: NDArray[np.int32]
    doc: NDArray[np.int32]
    click: NDArray[np.uint8]

    @property
    def n_pages(self) -> int:
        return len(self.query)

    def distinct_share(self) -> float:
        """The share of pages that would be left if pages showing the same were one."""
        rows = np.ascontiguousarray(self.doc).view(np.dtype((np.void, self.doc.itemsize * N_RANKS)))
        return len(np.unique(rows)) / self.n_pages

    def distinct_patterns_share(self) -> float:
        """The same, but pages must also agree in what was clicked."""
        signed = self.doc * 2 + self.click
        rows = np.ascontiguousarray(signed).view(np.dtype((np.void, signed.itemsize * N_RANKS)))
        return len(np.unique(rows)) / self.n_pages

    def columns(self) -> dict[str, NDArray[np.integer]]:
        """One row a result, as a log file would have it."""
        n_pages = self.n_pages
        return {
            "session": np.repeat(np.arange(n_pages, dtype=np.int32), N_RANKS),
            "query": np.repeat(self.query, N_RANKS),
            "doc": self.doc.ravel(),
            "rank": np.tile(np.arange(1, N_RANKS + 1, dtype=np.int32), n_pages),
            "click": self.click.ravel(),
        }

    def read(self) -> ClickLog:
        return read_log(self.columns())


def simulate_log(kind: str, n_pages: int, seed: int = 1) -> SimulatedLog:
    """Draw queries (zipf), rankings and clicks."""
    rng = np.random.default_rng([seed, n_pages, KINDS.index(kind)])
    n_queries = max(1, n_pages // PAGES_PER_QUERY)
    attraction = rng.beta(1.0, 3.0, n_queries * N_CANDIDATES)
    satisfaction = rng.beta(2.0, 2.0, n_queries * N_CANDIDATES)
    popularity = np.arange(1, n_queries + 1, dtype=float) ** -ZIPF_EXPONENT
    query = rng.choice(n_queries, n_pages, p=popularity / popularity.sum()).astype(np.int32)
    if kind == "distinct":
        doc = _new_rankings(rng, query, attraction)
    else:
        doc = _fixed_rankings(rng, query, attraction, n_queries)
    return SimulatedLog(kind, query, doc, _draw_clicks(rng, doc, attraction, satisfaction))


def _new_rankings(
    rng: np.random.Generator, query: NDArray[np.int32], attraction: NDArray[np.float64]
) -> NDArray[np.int32]:
    """A noisy ranking by attraction for each page."""
    doc = np.empty((len(query), N_RANKS), np.int32)
    for first in range(0, len(query), _CHUNK):
        part = slice(first, first + _CHUNK)
        candidates = query[part, None] * N_CANDIDATES + np.arange(N_CANDIDATES, dtype=np.int32)
        score = attraction[candidates] + RANKING_NOISE * rng.standard_normal(candidates.shape)
        best = np.argsort(-score, axis=1)[:, :N_RANKS]
        doc[part] = np.take_along_axis(candidates, best, axis=1)
    return doc


def _fixed_rankings(
    rng: np.random.Generator,
    query: NDArray[np.int32],
    attraction: NDArray[np.float64],
    n_queries: int,
) -> NDArray[np.int32]:
    """A choice among the few rankings of the page's query."""
    n_rankings = len(RANKING_SHARES)
    every_query = np.repeat(np.arange(n_queries, dtype=np.int32), n_rankings)
    rankings = _new_rankings(rng, every_query, attraction)
    chosen = rng.choice(n_rankings, len(query), p=RANKING_SHARES)
    return rankings[query * n_rankings + chosen]


def _draw_clicks(
    rng: np.random.Generator,
    doc: NDArray[np.int32],
    attraction: NDArray[np.float64],
    satisfaction: NDArray[np.float64],
) -> NDArray[np.uint8]:
    n_pages = len(doc)
    click = np.zeros((n_pages, N_RANKS), np.uint8)
    is_there = np.ones(n_pages, bool)
    for place in range(N_RANKS):
        shown = doc[:, place]
        is_clicked = is_there & (rng.random(n_pages) < attraction[shown])
        is_satisfied = is_clicked & (rng.random(n_pages) < satisfaction[shown])
        click[:, place] = is_clicked
        is_there &= ~is_satisfied & (rng.random(n_pages) < CONTINUATION)
    return click
