"""Judgment tests run kernels as plain Python and have a model whose estimates they choose."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from judgment_examples import Believer, fitted_dbn, searches

from gecasmo.testing import plain_python


@pytest.fixture(autouse=True)
def plain() -> Iterator[None]:
    with plain_python():
        yield


@pytest.fixture(scope="session")
def log():
    return searches()


@pytest.fixture(scope="session")
def model(log):
    return fitted_dbn(log)


@pytest.fixture
def believer() -> Believer:
    return Believer.example()
