"""What each candidate does to users at each rank, and the search for the best order of it.

Every candidate stands at every rank once if the candidates of a query are turned round a page of
the wanted size. Of these pages, which nobody has seen, the kernel `chains` writes the matrices; the
search (`gecasmo.kernels.static.page_search`) knows nothing else of a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import comb
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ModelError
from gecasmo.forms import FormState
from gecasmo.kernels.static import static_kernel
from gecasmo.kernels.static.page_search import add_moments, page_vectors, search_pages
from gecasmo.kernels.static.page_sets import search_sets
from gecasmo.kernels.threads import default_threads, run_jobs
from gecasmo.logs.runs import offsets
from gecasmo.model.beliefs import drawn_states
from gecasmo.model.page_run import PageRun
from gecasmo.pages.candidates import Candidates, Rules, pages_of
from gecasmo.pages.outlook import require_downward
from gecasmo.pages.worth import Worth

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]

# Bytes that the matrices of some queries may take at a time.
_ROOM = 1 << 27
# Orders of sets that may be kept at a time, and how many sets are worth it.
_MOST_VECTORS, _MOST_SETS, _MOST_IN_SETS = 1 << 15, 1 << 13, 16
# How often prices of repeats are changed to lower the bound.
_ROUNDS = 40
# A page is proven best if no page can be better by more than that, as a share.
EXACT = 1e-9


@dataclass(frozen=True)
class Found:
    """The best pages of some queries.

    Attributes
    ----------
    pages : by query and rank, the number of a candidate of the query; -1 below the end, and all
        over where no page keeps to the rules
    score : what was maximised
    bound : what no page exceeds
    widths : how many orders of a set were kept at most, where sets were gone through; else 0
    """

    pages: Integers
    score: Floats
    bound: Floats
    widths: Integers


class Chains:
    """The matrices of the candidates of some queries, and the searches over them."""

    def __init__(
        self, model: Model, candidates: Candidates, size: int | None, worth: Worth, rules: Rules
    ) -> None:
        require_downward(model)
        self.model, self.candidates = model, candidates
        self.sizes = candidates.sizes(size)
        counts = candidates.counts
        # Page r of a query has candidate r + t at rank t, so that i is at t of page i - t.
        per_query = counts * self.sizes
        self.place_start = offsets(per_query)
        query = np.repeat(np.arange(len(counts)), per_query)
        within = np.arange(len(query)) - self.place_start[query]
        turn, rank = within // self.sizes[query], within % self.sizes[query]
        rows = candidates.starts[query] + (turn + rank) % counts[query]
        page = offsets(counts)[query] + turn
        log = pages_of(model, candidates.frame, rows.astype(np.int64), page, rank + 1)
        self.run = PageRun(model, log, "chains", merge=False)
        _refuse_lags(self.run)
        encoded = self.run.encoded
        places = encoded.result_places()
        # `place` is by candidate and rank.
        i, t = np.divmod(within, self.sizes[query])
        there = self.place_start[query] + (i - t) % counts[query] * self.sizes[query] + t
        self.place = places[there]
        self.first_page = encoded.page_of_session[offsets(counts)[:-1]].astype(np.int64)
        price = np.empty((log.n_results, worth.n_events))
        price[places] = worth.of_results(log.n_results, log.column)
        self.price = price
        self._histories(worth, log.n_results)
        self.pin = candidates.pins(rules, self.sizes)
        self.kinds, self.most, self.near = candidates.kinds(rules)
        self.load(None)

    def _histories(self, worth: Worth, n_results: int) -> None:
        """Which click histories there are, and what a click makes of them."""
        longest = int(self.sizes.max(initial=1))
        used = {key for coin in self.run.encoded.plan.coins for key in coin.history}
        by_last, by_count = bool(used & {"last_click", "distance"}), "clicks_above" in used
        self.is_doubled = bool(worth.quiet) and not (by_last or by_count)
        n_counts = self.run.count_size if by_count else 1
        self.n_own = (longest + 1 if by_last else 1) * n_counts
        self.n_all = 2 if self.is_doubled else self.n_own
        t = np.arange(longest + 1)
        if self.is_doubled:
            self.n_histories = np.minimum(t + 1, 2)
            self.after = np.ones((longest + 1, 2), np.int64)
        else:
            last, count = np.divmod(np.arange(self.n_all), n_counts)
            after = np.broadcast_to(t[:, None] + 1 if by_last else last, (longest + 1, self.n_all))
            clicks = np.minimum(count + 1, n_counts - 1) if by_count else count
            self.after = np.minimum(after * n_counts + clicks, self.n_all - 1)
            reached = t + 1 if by_last or by_count else np.ones(longest + 1, np.int64)
            self.n_histories = reached * n_counts if by_last else reached
        self.n_states = self.model.structure.full.body.n_states
        self.end = np.zeros((self.n_all, self.n_states))
        self.end[0] = worth.quiet

    def load(self, states: Mapping[str, FormState] | None) -> None:
        """Work out the matrices, on demand with other states of all forms."""
        if states is not None:
            self.run.change(states)
        n, n_pages = self.run.encoded.n_results, self.run.encoded.n_pages
        begin = np.zeros((n_pages, self.n_states))
        skip, click = (np.zeros((n, self.n_own, self.n_states, self.n_states)) for _ in range(2))
        reward = np.zeros((n, self.n_own, self.n_states))
        self.run.run(self.price, begin, skip, click, reward)
        if self.is_doubled:
            skip, click, reward = (np.repeat(array, 2, axis=1) for array in (skip, click, reward))
        self.begin = np.ascontiguousarray(begin[self.first_page])
        self.skip, self.click, self.reward = skip, click, reward

    def cautious(self, found: Found, quantile: float, draws: int, seed: int) -> None:
        """Let each result count with a low quantile of what it brings where it stands.

        What it brings is worked out for draws from the posterior, all else being as on the best
        page that was found. A quantile is that of the normal distribution with the same moments.
        """
        values = np.zeros((len(self.sizes), len(self.n_histories), self.n_all, self.n_states))
        given = (self.candidates.starts, self.place_start, self.sizes, self.place)
        self._run(page_vectors, *given, *self._matrices, self.end, *self._walk, found.pages, values)
        kept = (self.skip, self.click, self.reward)
        sums, squares = np.zeros_like(self.reward), np.zeros_like(self.reward)
        n = 0
        for states in drawn_states(self.model, draws, seed):
            self.load(states)
            moments = (values, sums, squares)
            self._run(add_moments, *given, *self._matrices, *self._walk, *moments)
            n += 1
        self.run.change(self.model.states())
        spread = np.sqrt(np.maximum(squares - sums**2 / n, 0.0) / max(n - 1, 1))
        self.skip, self.click, self.reward = kept
        self.reward = self.reward + NormalDist().inv_cdf(quantile) * spread

    def search(self, shown: Integers, effort: int) -> Found:
        """The best page of each query: greedy with exchanges, and a bound; by sets of candidates
        where these are few, else branch and bound with so many nodes a query."""
        n = len(self.sizes)
        pages = np.full((n, int(self.sizes.max(initial=1))), -1, np.int64)
        score, bound = np.full(n, -np.inf), np.full(n, np.inf)
        widths = np.zeros(n, np.int64)
        everyone = np.arange(n)
        self._search(everyone, shown, _ROUNDS, 0, pages, score, bound)
        if effort > 0:
            counts = self.candidates.counts
            few = [
                _n_sets(int(own), int(size)) <= _MOST_SETS and own <= _MOST_IN_SETS
                for own, size in zip(counts, self.sizes, strict=True)
            ]
            small = np.flatnonzero(_is_open(score, bound) & np.array(few, bool))
            if len(small):
                room = min(_MOST_VECTORS, _ROOM // (self.n_all * self.n_states * 8))
                out = (pages, score, bound, widths)
                self._run(search_sets, *self._asked(small), room, *out, asked=small)
            left = np.flatnonzero(_is_open(score, bound))
            if len(left):
                begin = np.where(pages[:, :1] >= 0, pages, shown)
                self._search(left, begin, _ROUNDS, effort, pages, score, bound)
        pages[np.isneginf(score)] = -1
        return Found(pages, score, np.maximum(bound, score), widths)

    def _search(
        self, asked: Integers, shown: Integers, rounds: int, nodes: int, *out: Floats | Integers
    ) -> None:
        shown = np.ascontiguousarray(shown)
        self._run(search_pages, *self._asked(asked), shown, rounds, nodes, *out, asked=asked)

    @property
    def _matrices(self) -> tuple[Floats, Floats, Floats]:
        return self.skip, self.click, self.reward

    @property
    def _walk(self) -> tuple[Integers, Integers]:
        return self.n_histories, self.after

    def _asked(self, asked: Integers) -> tuple[Any, ...]:
        where = (asked, self.candidates.starts, self.place_start, self.sizes, self.place)
        rules = (self.pin, self.kinds, self.most, self.near)
        return (*where, *self._matrices, self.begin, self.end, *self._walk, *rules)

    def _run(self, function: Any, *arguments: Any, asked: Integers | None = None) -> None:
        """Run a kernel over queries, on threads."""
        n = len(self.sizes) if asked is None else len(asked)
        cuts = np.unique(np.linspace(0, n, min(2 * default_threads(), n) + 1).astype(int))
        jobs = [[int(a), int(b), *arguments] for a, b in pairwise(cuts)]
        if jobs:
            run_jobs(static_kernel(function, jobs[0]), jobs)


def _is_open(score: Floats, bound: Floats) -> NDArray[np.bool_]:
    """For which queries it is not proven that the page is the best."""
    with np.errstate(invalid="ignore"):
        gap = bound - score
    known = np.isneginf(bound) | (np.isfinite(score) & (gap <= EXACT * (1 + np.abs(score))))
    return ~known


def is_proven(found: Found) -> NDArray[np.bool_]:
    """For which queries no page is better than the one found."""
    return ~_is_open(found.score, found.bound)


def _n_sets(n: int, size: int) -> int:
    return sum(comb(n, k) for k in range(size + 1)) if n <= _MOST_IN_SETS else 1 << 60


def _refuse_lags(run: PageRun) -> None:
    literals = [lit for edge in run.structure.full.body.edges for lit in edge.literals]
    lagging = [lit.parameter for lit in literals if lit.lag]
    if lagging:
        raise ModelError(
            f"{run.model.name} flips '{lagging[0]}' of the result above, so that what a result "
            "does depends on the one above it; page_value and what_if take such models."
        )


def in_pieces(model: Model, candidates: Candidates, size: int | None) -> Iterator[Candidates]:
    """The candidates of some queries at a time, so that their matrices fit into memory."""
    automaton = model.structure.full.body
    sizes = candidates.sizes(size)
    keys = {key for own in model.keys.values() for key in own}
    longest = int(sizes.max(initial=1)) + 1
    n_histories = longest if keys & {"last_click", "distance"} else 2
    n_histories *= longest if "clicks_above" in keys else 1
    each = 8 * n_histories * automaton.n_states * (2 * automaton.n_states + 4)
    piece = (np.cumsum(candidates.counts * sizes) * each) // _ROOM
    query = np.repeat(piece, candidates.counts)
    if not piece.any():
        yield candidates
        return
    for number in np.unique(piece):
        yield candidates.kept(query == number)


def chosen_rows(candidates: Candidates, pages: Integers) -> tuple[Integers, Integers, Integers]:
    """Rows of candidates, query and rank of all results of some pages."""
    query, place = np.nonzero(pages >= 0)
    return candidates.starts[query] + pages[query, place], query, place + 1


def page_log(model: Model, candidates: Candidates, pages: Integers) -> Any:
    """Pages of queries as a log; a page for each query that has one."""
    rows, query, rank = chosen_rows(candidates, pages)
    number = pl.Series(query).rle_id().to_numpy().astype(np.int64)
    return pages_of(model, candidates.frame, rows, number, rank)
