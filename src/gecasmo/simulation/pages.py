"""Pages as a search engine would show them, and a log of known users on them."""

from __future__ import annotations

import numpy as np
import polars as pl

from gecasmo.logs import ClickLog, read_log
from gecasmo.model import ClickModel


def random_pages(
    n_pages: int,
    seed: int,
    *,
    n_queries: int,
    quality: np.ndarray,
    length: int = 10,
    noise: float = 0.3,
    zipf: float = 1.1,
) -> pl.DataFrame:
    """Pages of a ranker that knows quality imperfectly.

    Queries follow a zipf law. Document d of query q has `quality[q, d]`; a page shows the best
    `length` documents of its query by quality plus normal noise, drawn anew for each page.
    """
    rng = np.random.default_rng([seed, 1])  # a stream of its own, whoever else uses the seed
    popularity = np.arange(1, n_queries + 1, dtype=float) ** -zipf
    query = rng.choice(n_queries, size=n_pages, p=popularity / popularity.sum())
    score = quality[query] + noise * rng.standard_normal((n_pages, quality.shape[1]))
    shown = np.argsort(-score, axis=1)[:, :length]
    return pl.DataFrame(
        {
            "session": np.repeat(np.arange(n_pages), length),
            "query": np.repeat(query, length),
            "doc": shown.ravel(),
            "rank": np.tile(np.arange(1, length + 1), n_pages),
        }
    )


def demo_log(n_pages: int, seed: int) -> tuple[ClickLog, ClickModel]:
    """A simulated log and the model that made it, a DBN with continuation 0.9."""
    from gecasmo.models import DBN

    rng = np.random.default_rng([seed, 2])
    n_queries, n_docs = max(1, n_pages // 50), 20
    attraction = rng.beta(1.0, 3.0, (n_queries, n_docs))
    satisfaction = rng.beta(2.0, 2.0, (n_queries, n_docs))
    keys = {
        "query": np.repeat(np.arange(n_queries), n_docs),
        "doc": np.tile(np.arange(n_docs), n_queries),
    }
    truth = DBN.with_values(
        attraction=pl.DataFrame({**keys, "probability": attraction.ravel()}),
        satisfaction=pl.DataFrame({**keys, "probability": satisfaction.ravel()}),
        continuation=0.9,
    )
    pages = random_pages(n_pages, seed, n_queries=n_queries, quality=attraction)
    return truth.simulate(read_log(pages, click=None), seed=seed), truth
