"""What tests of stored logs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from stored_pages import simulated


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Read and write little at a time, so that small logs take many steps."""

    def set_(rows: int = 50, chunk: int = 300, most: int = 10**9) -> None:
        monkeypatch.setattr("gecasmo.logs.store.intake.batch_rows", lambda *_: rows)
        monkeypatch.setattr("gecasmo.logs.store.intake.chunk_bytes", lambda *_: chunk)
        monkeypatch.setattr("gecasmo.logs.packed.CHUNK", chunk)
        monkeypatch.setattr("gecasmo.logs.store.ingest.most_rows", lambda *_: most)

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
