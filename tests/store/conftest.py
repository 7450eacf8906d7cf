"""What tests of stored logs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Read and write little at a time, so that small logs take many steps."""

    def set_(rows: int = 50, chunk: int = 300, most: int = 10**9) -> None:
        monkeypatch.setattr("gecasmo.logs.store.ingesting.batch_rows", lambda *_: rows)
        monkeypatch.setattr("gecasmo.logs.store.opening.chunk_bytes", lambda *_: chunk)
        monkeypatch.setattr("gecasmo.logs.compression.CHUNK", chunk)
        monkeypatch.setattr("gecasmo.logs.store.finishing.most_rows", lambda *_: most)

    return set_


@pytest.fixture
def frame() -> pl.DataFrame:
    """A log of 60 pages, some of which are the same."""
    return simulated(60, seed=4)


@pytest.fixture
def parquet(frame: pl.DataFrame, tmp_path: Path) -> str:
    """The same in three files; sessions go over their borders."""
    for number, start in enumerate(range(0, frame.height, 85)):
        frame.slice(start, 85).write_parquet(tmp_path / f"part-{number}.parquet")
    return str(tmp_path / "part-*.parquet")


def simulated(n_pages: int, seed: int, n_queries: int = 7, n_docs: int = 4) -> pl.DataFrame:
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 6, n_pages)
    n_results = int(lengths.sum())
    rank = np.arange(n_results) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
    return pl.DataFrame(
        {
            "session": np.repeat([f"s{n}" for n in range(n_pages)], lengths),
            "query": np.repeat(random.integers(0, n_queries, n_pages), lengths),
            "doc": [f"doc {n}" for n in random.integers(0, n_docs, n_results)],
            "rank": rank,
            "click": random.random(n_results) < 0.2,
            "device": np.repeat(random.choice(["phone", "desk"], n_pages), lengths),
            "price": random.integers(0, 3, n_results) * 1.5,
        }
    )
