"""What all tests have in common, wherever they run."""

import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import settings
from numba.core.dispatcher import Dispatcher

from gecasmo.kernels import library
from gecasmo.kernels.cache import plain_kernel
from gecasmo.testing import plain_python
from tracing import untraced

# Compiling runs no line of ours, and neither does a generated kernel as plain Python: coverage need
# not watch, which doubles the time that they take.
Dispatcher.compile = untraced(Dispatcher.compile)
library.plain_kernel = lambda source, name: untraced(plain_kernel(source, name))

# The same examples in every run, so that a failure belongs to the change that made it; a soak
# (GECASMO_EXAMPLES) looks for new ones. No example has to be done in a given time.
settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.register_profile("new", deadline=None)
settings.load_profile("new" if "GECASMO_EXAMPLES" in os.environ else "same")


# Tests do not wait for the disk; those about power cuts look at what is pushed to it.
os.fsync = os.fstat


# Packages that tests of extras need; `make lowest` does without them.
OPTIONAL = re.compile(
    r"^(?:import|from) (ir_measures|lightgbm|pyspark|safetensors|sklearn|skops|torch|xgboost)\b",
    flags=re.MULTILINE,
)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out files of tests that import a package of an extra that is not installed."""
    if collection_path.suffix != ".py":
        return None
    wanted = OPTIONAL.findall(collection_path.read_text(encoding="utf-8"))
    return True if any(find_spec(name) is None for name in wanted) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests of Spark first: there they stay with one worker, and so on one cluster."""
    items.sort(key=lambda item: "spark" not in item.path.parts)


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
def checked_kernels() -> Iterator[None]:
    """Kernels that tell where they leave an array: plain ones, or compiled with such checks."""
    if "NUMBA_BOUNDSCHECK" in os.environ:
        yield
    else:
        with plain_python():
            yield


@pytest.fixture
def compiled() -> None:
    """Ask for compiled kernels."""
