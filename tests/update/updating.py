"""Small logs for tests of updates."""

from __future__ import annotations

import numpy as np
import polars as pl

import gecasmo
from gecasmo import ClickLog, read_log


def log_of(rows: list[tuple[str, str, int, int]], first: int = 0) -> ClickLog:
    """A log of pages with one result: query, doc, clicked, how often."""
    return read_log(
        pl.DataFrame(
            {
                "session": [first + n for n in range(len(rows))],
                "query": [row[0] for row in rows],
                "doc": [row[1] for row in rows],
                "rank": [1] * len(rows),
                "click": [row[2] for row in rows],
                "weight": [float(row[3]) for row in rows],
            }
        ),
        weight="weight",
    )


def users(n_queries: int, seed: int) -> gecasmo.DBN:
    """A DBN with values of its own for a few queries."""
    rng = np.random.default_rng(seed)
    keys = {
        "query": np.repeat([f"q{n}" for n in range(n_queries)], 6),
        "doc": np.tile([f"d{n}" for n in range(6)], n_queries),
    }
    n = 6 * n_queries
    return gecasmo.DBN.with_values(
        attraction=pl.DataFrame({**keys, "probability": rng.beta(2, 3, n)}),
        satisfaction=pl.DataFrame({**keys, "probability": rng.beta(2, 2, n)}),
        continuation=0.8,
    )


def day_of(truth: gecasmo.DBN, n_pages: int, n_queries: int, day: int, first: int = 0) -> ClickLog:
    """Pages of a day: five of six documents in any order, of queries from `first` on."""
    rng = np.random.default_rng([day, 5])
    query = rng.integers(first, first + n_queries, n_pages)
    docs = np.argsort(rng.random((n_pages, 6)), axis=1)[:, :5]
    pages = pl.DataFrame(
        {
            "session": np.repeat(np.arange(n_pages) + 1_000_000 * day, 5),
            "query": np.repeat([f"q{n}" for n in query], 5),
            "doc": [f"d{n}" for n in docs.ravel()],
            "rank": np.tile(np.arange(1, 6), n_pages),
        }
    )
    return truth.simulate(read_log(pages, click=None), seed=day)


def joined(logs: list[ClickLog], weights: list[float] | None = None) -> ClickLog:
    """Several logs as one, each page of a log with the same weight."""
    names = ("session", "query", "doc", "rank", "click")
    frames = [
        pl.DataFrame([log.column(name) for name in names]).with_columns(
            weight=pl.lit(float(weight)) * pl.Series(log.weight[log.page])
        )
        for log, weight in zip(logs, weights or [1.0] * len(logs), strict=True)
    ]
    return read_log(pl.concat(frames), weight="weight")


def by_key(model: gecasmo.ClickModel, coin: str) -> pl.DataFrame:
    """The estimates of a coin in the order of their keys."""
    frame = model.estimates(coin)
    keys = list(model.keys[coin])
    return frame.sort(keys) if keys else frame
