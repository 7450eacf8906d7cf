"""A small log that the tests share."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def columns() -> dict[str, Any]:
    """Two pages, rows neither sorted nor adjacent, with a feature of the result and of the page."""
    return {
        "session": ["s2", "s1", "s2", "s1", "s1"],
        "query": ["cats", "dogs", "cats", "dogs", "dogs"],
        "doc": ["b", "a", "a", "c", "d"],
        "rank": [2, 1, 1, 4, 2],
        "click": [1, 0, 0, 1, 0],
        "price": [1.5, 2.0, 3.0, 4.5, 5.0],
        "device": ["phone", "desk", "phone", "desk", "desk"],
    }
