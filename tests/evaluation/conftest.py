"""Comparisons run generated kernels as plain Python, unless a test asks for compiled ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gecasmo.testing import plain_python

sys.path.insert(0, str(Path(__file__).parents[1]))  # the strategies stand beside this folder


@pytest.fixture(autouse=True)
def plain(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile nothing; tests that ask for the fixture `compiled` are left alone."""
    if "compiled" in request.fixturenames:
        yield
        return
    with plain_python():
        yield


@pytest.fixture
def compiled() -> None:
    """Ask for compiled kernels."""
