"""A log at a glance."""

from __future__ import annotations

from typing import Any

import numpy as np

from gecasmo.logs import read_log


def test_the_text_has_the_facts(columns: dict[str, Any]) -> None:
    assert repr(read_log(columns)).splitlines() == [
        "ClickLog",
        "  sessions      2",
        "  results       5",
        "  queries       2",
        "  documents     4",
        "  page lengths  2 to 3 results, median 2.5",
        "  clicks        2, on 100.0% of the pages",
        "  also          price, device",
        "        rank        results     CTR",
        "           1              2  0.0000",
        "           2              2  0.5000",
        "           4              1  1.0000",
    ]


def test_weights_count(columns: dict[str, Any]) -> None:
    text = repr(read_log(columns | {"n": [3, 1, 3, 1, 1]}, weight="n"))
    assert "weights       4 over all sessions" in text
    assert "           2              2  0.7500" in text


def test_the_text_is_small_for_large_logs() -> None:
    n = 50
    log = read_log(
        {
            "session": np.zeros(n, np.int64),
            "doc": np.arange(n),
            "rank": np.arange(n) * 40_000_000 + 1,
            "click": np.zeros(n, np.int64),
        }
        | {f"a_rather_long_feature_name_{i}": np.zeros(n) for i in range(9)}
    )
    lines = repr(log).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "  ... and 40 more ranks"
    assert len(lines) < 25


def test_notebooks_get_a_table(columns: dict[str, Any]) -> None:
    page = read_log(columns | {"<b>": [1] * 5})._repr_html_()
    assert "<tr><th>sessions</th><td>2</td></tr>" in page
    assert "<tr><td>2</td><td>2</td><td>0.5000</td></tr>" in page
    assert "<td>price, device, &lt;b&gt;</td>" in page
