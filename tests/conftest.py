"""Every test has a terminal of the same width, wherever it runs."""

import pytest


@pytest.fixture(autouse=True)
def _a_terminal_of_100_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
