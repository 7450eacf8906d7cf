"""How well does a model foretell the click rate at rank 1 of what it also saw elsewhere?

Chapelle and Zhang, WWW 2009. For pairs of query and document shown at rank 1 in the test part and
at other ranks in training: sqrt(sum n (ctr - p)^2 / sum n), n being how often they were at rank 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.evaluation.parts import comparable
from gecasmo.logs import ClickLog

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TopPairs:
    """The test results at rank 1 that count (`rows`), and the pair each of them shows."""

    rows: NDArray[np.int64]
    pair: NDArray[np.int64]
    n_pairs: int
    click: Floats
    weight: Floats


def top_pairs(train: ClickLog, test: ClickLog) -> TopPairs:
    """The pairs to be foretold; documents alone where there are no queries."""
    names = ["query", "doc"] if train.has_query and test.has_query else ["doc"]
    here, there = comparable(test, train, names)
    elsewhere = there.filter(pl.Series((train.rank != 1) & (train.weight[train.page] > 0))).unique()
    at_top = (test.rank == 1) & (test.weight[test.page] > 0)
    found = (
        here.with_row_index("row")
        .filter(pl.Series(at_top))
        .join(elsewhere, on=names, how="semi", maintain_order="left")
    )
    rows = found["row"].to_numpy().astype(np.int64)
    pairs = found.select(names).unique(maintain_order=True).with_row_index("pair")
    pair = found.join(pairs, on=names, how="left", maintain_order="left")["pair"].to_numpy()
    return TopPairs(
        rows=rows,
        pair=pair.astype(np.int64),
        n_pairs=len(pairs),
        click=test.click[rows].astype(np.float64),
        weight=test.weight[test.page[rows]],
    )


def ctr_rmse(pairs: TopPairs, marginal: Floats) -> float | None:
    """The root of the mean squared error, each pair weighing as much as its pages; None if there
    is no pair. `marginal` has the click probability of every test result."""
    if not pairs.n_pairs:
        return None
    n, clicks, foretold = (
        np.bincount(pairs.pair, weights=pairs.weight * values, minlength=pairs.n_pairs)
        for values in (np.ones(len(pairs.rows)), pairs.click, marginal[pairs.rows])
    )
    return float(np.sqrt((n * (clicks / n - foretold / n) ** 2).sum() / n.sum()))
