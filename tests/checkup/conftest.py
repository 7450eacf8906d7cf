"""These logs are tiny: generated kernels mostly run as plain Python."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gecasmo.testing import plain_python


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
