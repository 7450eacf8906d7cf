"""A log and models in parts; kernels run as plain Python."""

from __future__ import annotations

from pathlib import Path

import pytest
from stored_examples import FakeStore, fitted, parted, small_log

from gecasmo.logs import ClickLog
from gecasmo.model import Model
from gecasmo.testing import plain_python


@pytest.fixture(autouse=True)
def plain(plain_kernels: None) -> None:
    """For all tests of this folder."""


@pytest.fixture(scope="session")
def log() -> ClickLog:
    return small_log()


@pytest.fixture(scope="session")
def model(log: ClickLog) -> Model:
    with plain_python():
        return fitted(log)


@pytest.fixture(scope="session")
def store(log: ClickLog) -> FakeStore:
    return FakeStore(log, 8)


@pytest.fixture
def split(model: Model, tmp_path: Path) -> Model:
    """The same model with the rows of its tables by query in four files each."""
    return parted(model, tmp_path / "rows", 4)
