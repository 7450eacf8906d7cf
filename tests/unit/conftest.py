"""Unit tests run generated kernels as plain Python, unless compiling is what they are about."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def plain(plain_kernels: None) -> None:
    """For all tests of this folder."""
