"""What all tests have in common, wherever they run."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from gecasmo.testing import plain_python

# The same examples in every run, so that a failure belongs to the change that made it; a soak
# (GECASMO_EXAMPLES) looks for new ones.
settings.register_profile("same", derandomize=True, database=None, deadline=None)
if "GECASMO_EXAMPLES" not in os.environ:
    settings.load_profile("same")


@pytest.fixture(autouse=True)
def _a_terminal_of_100_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def plain_kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile nothing; tests that ask for the fixture `compiled` are left alone."""
    if "compiled" in request.fixturenames:
        yield
        return
    with plain_python():
        yield


@pytest.fixture
def compiled() -> None:
    """Ask for compiled kernels."""
