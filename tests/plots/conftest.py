"""A small log with known numbers and a few fits of it, shared by the tests of the charts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl
import pytest

from gecasmo import DBN, PBM, RCTR, UBM, ClickLog, Table, read_log
from gecasmo.model.base import Model
from gecasmo.testing import plain_python


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    """Few pages: not worth compiling."""
    with plain_python():
        yield


@pytest.fixture(scope="session")
def frame() -> pl.DataFrame:
    """Pages of different lengths with weights; lower ranks are clicked less."""
    rng = np.random.default_rng(7)
    rows = []
    for page in range(40):
        query = int(rng.integers(3))
        weight = float(rng.integers(1, 4))
        for rank, doc in enumerate(rng.permutation(6)[: rng.integers(3, 6)], start=1):
            click = bool(rng.random() < (0.2 + 0.1 * doc) / rank)
            rows.append((f"s{page}", f"q{query}", f"d{doc}", rank, click, weight))
    columns = ["session", "query", "doc", "rank", "click", "times"]
    return pl.DataFrame(rows, schema=columns, orient="row")


@pytest.fixture(scope="session")
def log(frame: pl.DataFrame) -> ClickLog:
    return read_log(frame, weight="times")


def _fit(model: Model, log: ClickLog) -> Model:
    with plain_python():
        return model.fit(log, progress=False)


@pytest.fixture(scope="session")
def dbn(log: ClickLog) -> Model:
    return _fit(DBN(), log)


@pytest.fixture(scope="session")
def pbm(log: ClickLog) -> Model:
    return _fit(PBM(examination=Table(fixed={1: 1.0})), log)


@pytest.fixture(scope="session")
def ubm(log: ClickLog) -> Model:
    return _fit(UBM(examination=Table(fixed={(1, 0): 1.0})), log)


@pytest.fixture(scope="session")
def rctr(log: ClickLog) -> Model:
    return _fit(RCTR(), log)
