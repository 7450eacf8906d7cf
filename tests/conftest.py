"""What all tests have in common, wherever they run."""

import os

import pytest
from hypothesis import settings

# The same examples in every run, so that a failure belongs to the change that made it; a soak
# (GECASMO_EXAMPLES) looks for new ones.
settings.register_profile("same", derandomize=True, database=None, deadline=None)
if "GECASMO_EXAMPLES" not in os.environ:
    settings.load_profile("same")


@pytest.fixture(autouse=True)
def _a_terminal_of_100_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
