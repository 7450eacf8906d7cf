"""A log at a glance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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


def test_a_page_can_be_looked_at(columns: dict[str, Any]) -> None:
    log = read_log(columns)
    assert repr(log[1]).splitlines() == [
        "Page 's1' of the query 'dogs': 3 results, 1 clicked",
        "  rank  doc  click  price  device",
        "     1  a    no         2  desk",
        "     2  d    no         5  desk",
        "     4  c    yes      4.5  desk",
    ]
    assert log[-2].session == log[0].session == "s2"
    assert [len(page) for page in log] == [2, 3]
    assert "<td>desk</td>" in log[1]._repr_html_()
    with pytest.raises(IndexError, match="there is no page 2; the log has 2"):
        log[2]


def test_a_page_without_results_and_queries_can_be_looked_at() -> None:
    log = read_log({"doc": [[], ["a"]], "click": [[], [1]], "n": [1, 7]}, weight="n")
    assert repr(log[0]) == "Page 0: 0 results, 0 clicked\n  rank  doc  click"
    assert repr(log[1]).startswith("Page 1, which counts 7 times: 1 result, 1 clicked\n")
    nested = read_log({"query": ["x"], "doc": [[]], "click": [[]]})
    assert nested[0].query == "x"


def test_the_head_of_a_log(columns: dict[str, Any]) -> None:
    log = read_log(columns)
    assert log.head(1).sessions.to_list() == ["s2"]
    assert len(log.head()) == len(log.head(9)) == 2
    assert len(log.head(0)) == 0
