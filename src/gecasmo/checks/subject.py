"""What is looked at: the model, its rows and probabilities, and a few pages that stand for a log.

Those are pages whose rows have the most data, each kind once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding import EncodedLog, Rows
from gecasmo.encoding.columns import coded, in_chain
from gecasmo.errors import GecasmoError, GecasmoWarning, ModelError, without
from gecasmo.estimation import EM, Counts, Expectation
from gecasmo.estimation.coins import as_weights
from gecasmo.forms import FormState
from gecasmo.hashes import mix
from gecasmo.logs import ClickLog
from gecasmo.model import Model
from gecasmo.models import model_named

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]

# A quick fit looks at so many pages for so many iterations: enough to see where things are.
QUICK_PAGES = 20_000
QUICK_ITERATIONS = 30
_THINGS = ("query", "doc", "session", "result")
_ODD = np.uint64(0x9E3779B97F4A7C15)

# Scores of a page of T results take T * T results to be looked at, and a column per row.
MOST_LOOKS = 60_000
LONGEST = 300
_AT_A_TIME = 30
MOST_ROWS = 500


def as_model(model: Any) -> Model:
    """The model that a name, a class or a model stands for."""
    if isinstance(model, str):
        return model_named(model)()
    if isinstance(model, type) and issubclass(model, Model):
        model = model()  # type: ignore[call-arg]
    if not isinstance(model, Model):
        raise ModelError(
            f"check(log, {model!r}): a model is wanted, its class, or a name such as 'DBN'."
        )
    return model


def is_about_things(keys: Sequence[str]) -> bool:
    """Whether rows by these keys belong to single things in the log, and not to all of it."""
    return any(key in _THINGS for key in keys)


@dataclass
class CheckedModel:
    """A model with probabilities, and a log without pages that are impossible under them.

    `is_fitted` tells whether the probabilities come from the user's fit or from a quick one.
    """

    model: Model
    log: ClickLog
    states: dict[str, FormState]
    is_fitted: bool

    @cached_property
    def encoded(self) -> EncodedLog:
        """The log as the E-step reads it."""
        return self.model.encode(self.log, "e_step")

    @cached_property
    def counts(self) -> Counts:
        """Expected heads and tails of every row of the log."""
        return expect(self.model, self.encoded, self.probabilities(self.encoded.rows))

    @cached_property
    def fixed(self) -> list[Bools]:
        """Which rows of each coin are given."""
        return [
            form.given_rows(rows)
            for form, rows in zip(self.model.forms.values(), self.encoded.rows, strict=True)
        ]

    def probabilities(self, rows: list[Rows] | tuple[Rows, ...]) -> list[Floats]:
        """The probability of each of these rows, per coin."""
        return predict(self.model, self.states, rows)


def coin_to_give(subject: CheckedModel, coins: Sequence[str]) -> str:
    """Of coins that need a given row, the one in which it is most natural: shared, and small."""
    names = list(subject.model.forms)

    def order(coin: str) -> tuple[bool, int]:
        n_rows = len(subject.encoded.rows[names.index(coin)])
        return is_about_things(subject.model.keys[coin]), n_rows

    return min(coins, key=order)


def predict(
    model: Model, states: dict[str, FormState], rows: list[Rows] | tuple[Rows, ...]
) -> list[Floats]:
    """The probabilities of rows, per coin."""
    return [
        form.probabilities(states[coin], its, coin)
        for (coin, form), its in zip(model.forms.items(), rows, strict=True)
    ]


def expect(model: Model, encoded: EncodedLog, probabilities: list[Floats]) -> Counts:
    """The E-step at these probabilities."""
    library = model.library(encoded.plan, counting=True)
    return Expectation(encoded, library).run([as_weights(p) for p in probabilities])


def begin(model: Model, rows: list[Rows], seed: int | None = None) -> dict[str, FormState]:
    """The states that a fit would start from, or random ones; coins that share a form share it."""
    generator = None if seed is None else np.random.default_rng(seed)
    known: dict[tuple[int, int], FormState] = {}
    states = {}
    for (coin, form), its in zip(model.forms.items(), rows, strict=True):
        key = (id(form), id(its))
        if key not in known:
            known[key] = form.begin(its, generator)
        states[coin] = known[key]
    return states


def quick_states(model: Model, log: ClickLog, seed: int) -> dict[str, FormState] | None:
    """States near the optimum, from a part of the log; None where no fit is possible."""
    part = some_pages(log, QUICK_PAGES, seed)
    twin = model.copy()
    try:
        # That so few iterations do not converge is no news to the user of a check.
        with without(GecasmoWarning):
            method = EM(max_iter=QUICK_ITERATIONS, restarts=1)
            twin.fit(part, method, progress=False, impossible="drop")
    except GecasmoError:
        return None
    return twin.states()


def some_pages(log: ClickLog, most: int, seed: int) -> ClickLog:
    """At most so many pages: those of random queries, as whole as can be."""
    if log.n_sessions <= most:
        return log
    generator = np.random.default_rng(seed)
    if log.has_query:
        query = coded(log, "query", "query", nullable=True)
        filled = log.lengths > 0
        codes = np.zeros(log.n_sessions, np.int64)
        codes[filled] = in_chain(log, query.codes)[log.starts[:-1][filled]]
        order = np.argsort(generator.permutation(len(query.values))[codes], kind="stable")
    else:
        order = generator.permutation(log.n_sessions)
    return log.take(np.sort(order[:most]))


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


def pair_codes(log: ClickLog) -> NDArray[np.int64]:
    """A number for the query and document of each result; without queries, of the document."""
    doc = coded(log, "doc", "doc", nullable=True)
    if not log.has_query:
        return doc.codes.astype(np.int64)
    query = coded(log, "query", "query", nullable=True)
    return query.codes.astype(np.int64) * len(doc.values) + doc.codes


def page_hashes(log: ClickLog, *, with_clicks: bool) -> NDArray[np.uint64]:
    """A number per page; equal for pages with the same query, documents, ranks (and clicks)."""
    value = in_chain(log, pair_codes(log)).astype(np.uint64) * _ODD
    value = mix(value + in_chain(log, log.rank).astype(np.uint64))
    if with_clicks:
        value = mix(value ^ in_chain(log, log.click).astype(np.uint64))
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(value)])
    sums: NDArray[np.uint64] = total[log.starts[1:]] - total[log.starts[:-1]]
    return sums


def totals(numbers: NDArray[Any], weights: NDArray[Any], size: int) -> Floats:
    """The sum of the weights that belong to each of the numbers 0 to size - 1."""
    return np.bincount(numbers, weights=weights, minlength=size).astype(np.float64)


def times_met(encoded: EncodedLog, coin: int) -> Floats:
    """How often each row of a coin could have been flipped: results (or pages) that use it."""
    n_rows = len(encoded.rows[coin])
    plan = encoded.plan.coins[coin]
    lengths = np.diff(encoded.obs_start)
    if plan.scope == "page":
        return totals(encoded.codes[plan.codes], encoded.weight * (lengths > 0), n_rows)
    weight = np.repeat(encoded.weight, lengths)
    if plan.scope == "global":
        # Without a key there is one row; rows that a model numbers itself are met as it says.
        return np.full(n_rows, weight.sum())
    return totals(rows_at_results(encoded, coin), weight, n_rows)


def rows_at_results(encoded: EncodedLog, coin: int) -> Integers:
    """The row of a coin at every result of the encoded pages, page by page."""
    plan = encoded.plan.coins[coin]
    lengths = np.diff(encoded.obs_start)
    if plan.scope == "global":
        return np.zeros(encoded.n_results, np.int64)
    if plan.scope == "page":
        return np.repeat(encoded.page_rows(plan.codes).astype(np.int64), lengths)
    return encoded.result_rows(plan.codes, bool(plan.history)).astype(np.int64)
