"""Comparisons run generated kernels as plain Python, unless a test asks for compiled ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # the strategies stand beside this folder


@pytest.fixture(autouse=True)
def plain(plain_kernels: None) -> None:
    """For all tests of this folder."""
