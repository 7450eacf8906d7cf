"""The pairs of query and document that a fit was about, with the features that relevance reads.

Tables know their pairs by their rows. A form on features has rows by features, so a model whose
relevance rests on one keeps its pairs: without them nobody could ask for the relevance of "all
pairs" once the log is gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from gecasmo.encoding.match import match
from gecasmo.errors import GecasmoError
from gecasmo.forms import Table
from gecasmo.language.parameter import HISTORY_KEYS, POSITION_KEYS
from gecasmo.logs import ClickLog
from gecasmo.model.answers import coin_probability, expected_counts
from gecasmo.model.relevance import coins_of_relevance, factors_of

if TYPE_CHECKING:
    from gecasmo.model.base import Model

PAIR = ("query", "doc")
EXAMINATIONS = "*examinations*"


def pairs_of_fit(model: Model, log: ClickLog) -> pl.DataFrame | None:
    """The distinct pairs of a log with the columns that relevance is found by, and how often each
    is expected to have been examined; None where rows tell the pairs, or relevance is no matter of
    pairs alone."""
    coins = coins_of_relevance(model)
    if not any(model.forms[coin].columns for coin in coins) or "doc" not in log.columns:
        return None
    needed = {name for coin in coins for name in model.forms[coin].columns}
    # What a form that reads pages says of a pair, it says of a page with nothing else on it.
    needed |= {name for c in coins if c not in model.page_readers for name in model.keys[c]}
    if needed & {*HISTORY_KEYS, *POSITION_KEYS, "result"}:
        return None
    pair = [name for name in PAIR if name in log.columns]
    columns = [*pair, *(name for name in log.columns if name in needed and name not in pair)]
    pairs = log.to_frame().select(columns).unique(maintain_order=True)
    if pairs.select(pair).is_duplicated().any() or pairs["doc"].null_count():
        return None  # a feature that is not the same wherever the pair is shown
    return pairs.sort(pair).with_columns(_examinations(model, pairs.sort(pair), log))


def _examinations(model: Model, pairs: pl.DataFrame, log: ClickLog) -> pl.Series:
    """How often each pair is expected to have been examined: the flips of the coins of the first
    factor of relevance, as if each pair had a row of its own at the probability that its features
    give it."""
    assert model.states_ is not None
    assert model.report_ is not None
    unknown = pl.Series(EXAMINATIONS, [None] * len(pairs), dtype=pl.Float64)
    if model.report_.n_dropped or model.report_.n_floored:
        return unknown  # not all pages of the log have a say
    keys = tuple(name for name in PAIR if name in pairs.columns)
    table, coins = Table(key=keys), factors_of(model)[0].coins
    twin = model.copy()
    twin._structures, twin._libraries = model._both_structures(), model._libraries
    assert twin.states_ is not None
    for coin in coins:
        probability = pl.Series("probability", coin_probability(model, coin, pairs))
        twin.forms[coin] = table
        twin.states_[coin] = table.given(pairs.select(keys).with_columns(probability), keys, coin)
    try:
        rows, counts = expected_counts(twin, log, "minimal")
    except GecasmoError:
        return unknown
    total = np.zeros(len(pairs))
    for number in map(list(twin.forms).index, coins):
        flips = np.append(counts.tables[number].sum(axis=0), 0.0)
        total += flips[match(pairs, rows[number].frame, keys)]
    return pl.Series(EXAMINATIONS, total)


def merged_pairs(
    before: pl.DataFrame | None, after: pl.DataFrame | None, decay: float
) -> pl.DataFrame | None:
    """The pairs of an updated fit: old ones count less, and features are those seen last."""
    if before is None or after is None or before.columns != after.columns:
        return after
    pair = [name for name in PAIR if name in after.columns]
    old = before.with_columns(pl.col(EXAMINATIONS) * decay)
    both = pl.concat([after, old], how="vertical_relaxed")
    total = both.group_by(pair, maintain_order=True).agg(
        pl.exclude(EXAMINATIONS).first(), pl.col(EXAMINATIONS).sum()
    )
    return total.sort(pair)
