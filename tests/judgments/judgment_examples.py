"""Small logs and models for the tests of judgments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl

from gecasmo import DBN, ClickLog, Table
from gecasmo.model.answers import beta_interval
from gecasmo.testing import plain_python

QUERIES = ("red shoes", 'a "quoted", thing', "ünïcode 鞋", "007")
DOCS = ("d1", "d 2", "d,3", "0004", 'd"5')


def searches(n_pages: int = 400, seed: int = 3) -> ClickLog:
    """Pages on nasty ids; the later queries are rare, so that some pairs lack data."""
    rng = np.random.default_rng(seed)
    query = rng.choice(len(QUERIES), n_pages, p=[0.55, 0.33, 0.1, 0.02])
    docs = np.stack([rng.permutation(len(DOCS))[:4] for _ in range(n_pages)])
    pages = {
        "session": np.repeat(np.arange(n_pages), 4),
        "query": [QUERIES[q] for q in query for _ in range(4)],
        "doc": [DOCS[d] for page in docs for d in page],
        "rank": np.tile(np.arange(1, 5), n_pages),
    }
    liked = {
        (q, d): p for q in QUERIES for d, p in zip(DOCS, (0.1, 0.3, 0.5, 0.2, 0.7), strict=True)
    }
    truth = DBN.with_values(attraction=liked, satisfaction=0.5, continuation=0.9)
    with plain_python():
        return truth.simulate(pl.DataFrame(pages), seed=seed)


def fitted_dbn(log: ClickLog) -> DBN:
    with plain_python():
        return DBN().fit(log, progress=False)


class Believer:
    """Something with the face of a fitted model and estimates that a test can choose."""

    name = "Believer"

    def __init__(self, tables: dict[str, pl.DataFrame], relevance: tuple[str, ...]) -> None:
        self.tables = tables
        self.relevance = relevance
        self.forms = {coin: Table() for coin in tables}
        self.report_ = SimpleNamespace(converged=True, interrupted=False)
        self.pairs_, self.features_ = None, {}
        self.asked: list[float] = []
        self.structure = SimpleNamespace(traced=SimpleNamespace(edges=()))
        columns = {"query", "doc", "rank", "device"}
        self.keys = {
            coin: tuple(name for name in table.columns if name in columns)
            for coin, table in tables.items()
        }

    @classmethod
    def example(cls) -> Believer:
        attraction = pl.DataFrame(
            {
                "query": ["a", "a", "a", "b", "b"],
                "doc": ["x", "y", "z", "x", "w"],
                "probability": [0.8, 0.4, 0.6, 0.1, 0.5],
                "spread": [0.02, 0.05, 0.25, 0.01, 0.05],
                "trials": [400.0, 90.0, 3.0, 800.0, 8.0],
                "rests_on": ["query, doc", "query, doc", "prior", "query, doc", "query, doc"],
            }
        )
        satisfaction = pl.DataFrame(
            {
                "doc": ["w", "x", "y", "z"],
                "probability": [0.9, 0.5, 0.25, 0.2],
                "spread": [0.01, 0.1, 0.05, 0.2],
                "trials": [4.0, 300.0, 30.0, 1.0],
                "rests_on": ["doc", "doc", "doc", "prior"],
            }
        )
        tables = {"attraction": attraction, "satisfaction": satisfaction}
        return cls(tables, ("attraction", "satisfaction"))

    def states(self, whole: bool = True) -> dict[str, Any]:
        return {}

    def estimates(self, coin: str, rows: Any = None, *, level: float = 0.9) -> pl.DataFrame:
        self.asked.append(level)
        table, keys = self.tables[coin], list(self.keys[coin])
        if rows is not None:
            table = rows.select(keys).join(table, on=keys, how="left", maintain_order="left")
            usual = {"probability": 0.5, "spread": 0.28, "trials": 0.0, "rests_on": "prior"}
            is_unseen = pl.col("probability").is_null()
            table = table.with_columns(
                pl.when(is_unseen).then(pl.lit(value)).otherwise(pl.col(name)).alias(name)
                for name, value in usual.items()
            )
        if "low" not in table.columns:
            low, high = beta_interval(table["probability"], table["spread"], level)
            table = table.with_columns(low=low, high=high)
        return table


def judged_like(values: list[float], n_queries: int = 1, **more: Any) -> Believer:
    """A model with one coin and these relevances, all of them certain unless told otherwise."""
    n = len(values)
    if not {"spread", "low"} & set(more):
        more |= {"low": values, "high": values}
    table = pl.DataFrame(
        {
            "query": [f"q{i % n_queries}" for i in range(n)],
            "doc": [f"d{i}" for i in range(n)],
            "probability": values,
            "spread": [0.0] * n,
            "trials": [1000.0] * n,
            "rests_on": ["query, doc"] * n,
            **more,
        }
    )
    return Believer({"attraction": table}, ("attraction",))
