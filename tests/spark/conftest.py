"""Clicks that all tests of Spark read, and the session that most of them ask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl
import pytest
from spark_sessions import started

N_PAGES, N_DOCS = 400, 6


@pytest.fixture(scope="session")
def spark(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """A session of the kind that a test is marked with; there is one at a time."""
    yield from started(request.param, tmp_path_factory)


@pytest.fixture(scope="session")
def clicks() -> pl.DataFrame:
    """Clicks on pages of up to six results; some pages are shown again and again."""
    random = np.random.default_rng(5)
    rows = []
    for session_id in range(N_PAGES):
        query = int(random.integers(25))
        length = int(random.integers(3, 7))
        for rank, doc in enumerate(random.permutation(N_DOCS)[:length], 1):
            chance = 0.7 * ((7 * query + 3 * doc) % 10 / 10) / rank**0.5
            rows.append(
                (session_id, f"query {query}", int(doc), rank, bool(random.random() < chance))
            )
    return pl.DataFrame(rows, schema=["session", "query", "doc", "rank", "click"], orient="row")


@pytest.fixture(scope="session")
def clicks_file(clicks: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The clicks in two Parquet files."""
    folder = tmp_path_factory.mktemp("clicks") / "log"
    folder.mkdir()
    half = len(clicks) // 2
    clicks[:half].write_parquet(folder / "0.parquet")
    clicks[half:].write_parquet(folder / "1.parquet")
    return str(folder)
