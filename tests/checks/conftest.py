"""These logs are tiny: generated kernels mostly run as plain Python."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def plain(plain_kernels: None) -> None:
    """For all tests of this folder."""
