"""Bad values: each is counted, shown, and told together with all others."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from gecasmo.errors import ClickLogError
from gecasmo.logs import read_log


def message(source: Any, **names: Any) -> str:
    with pytest.raises(ClickLogError) as caught:
        read_log(source, **names)
    return str(caught.value)


def test_clicks_are_not_negative(columns: dict[str, Any]) -> None:
    columns["click"] = [1, 0, -2, 1, -1]
    assert message(pl.DataFrame(columns)) == (
        "The data frame cannot be read as a click log; 1 fault:\n"
        "  - click: 2 values are negative, first: row 2 has -2; clicks are whole numbers from 0"
    )


def test_clicks_are_not_text(columns: dict[str, Any]) -> None:
    columns["click"] = ["1", "0", "0", "1", "0"]
    expected = "click: 5 values are text, not numbers (the column holds String), first: row 0 has"
    text = message(columns)
    assert f"{expected} '1'; cast them first, as in df.with_columns(pl.col(\"click\")" in text


def test_faults_go_by_the_name_in_the_source(columns: dict[str, Any]) -> None:
    columns["clicked"] = [0, 0, 0, 0, 0.5]
    del columns["click"]
    expected = "click ('clicked'): 1 value is not a whole number, first: row 4 has 0.5"
    assert expected in message(columns, click="clicked")


@pytest.mark.parametrize("role", ["session", "query", "doc", "rank", "click", "weight"])
def test_nothing_may_be_missing(columns: dict[str, Any], role: str) -> None:
    columns["weight"] = [1.0] * 5
    columns[role] = [None, *columns[role][1:-1], None]
    text = message(columns, weight="weight")
    assert f"  - {role}: 2 values are missing (null), first: row 0" in text
    assert ("after a left join" in text) == (role == "click")
    assert "1 fault:" in text


@pytest.mark.parametrize("role", ["rank", "click"])
def test_not_a_number_is_missing(columns: dict[str, Any], role: str) -> None:
    columns[role] = [float(x) for x in columns[role][:-1]] + [float("nan")]
    assert f"{role}: 1 value is missing (null), first: row 4" in message(columns)


def test_a_part_of_an_id_may_not_be_missing(columns: dict[str, Any]) -> None:
    columns["query"][1] = None
    text = message(columns, session=["session", "query"], query=None)
    assert "session ('session', 'query'): 1 value is missing (null), first: row 1" in text


def test_two_results_on_one_rank(columns: dict[str, Any]) -> None:
    columns["rank"] = [2, 1, 1, 1, 1]
    assert (
        "rank: 1 place with more than one result, first: session 's1' has two results on rank 1 "
        "(row 1 and row 3)"
    ) in message(columns)


def test_a_page_with_two_queries(columns: dict[str, Any]) -> None:
    columns["query"][4] = "birds"
    assert (
        "query: 1 page with more than one query, first: session 's1' has 'dogs' and 'birds'; "
        'if a session covers several searches, try session=["session", "query"]'
    ) in message(columns)
    log = read_log(columns, session=["session", "query"])
    assert log.n_sessions == 3


def test_no_rows(columns: dict[str, Any]) -> None:
    assert "1 fault:\n  - there are no rows" in message(pl.DataFrame(columns).head(0))


@pytest.mark.parametrize("role", ["session", "query", "doc"])
def test_floats_are_no_ids(columns: dict[str, Any], role: str) -> None:
    columns[role] = [1.0] * 5
    text = message(columns)
    assert f"{role}: the column holds Float64, and floats do not make reliable ids" in text
    assert f'as in df.with_columns(pl.col("{role}").cast(pl.String))' in text


def test_a_missing_float_id_is_told_as_both(columns: dict[str, Any]) -> None:
    columns["doc"] = [1.0, None, 2.0, 3.0, 4.0]
    text = message(columns)
    assert "doc: 1 value is missing (null), first: row 1" in text
    assert "doc: the column holds Float64" in text


def test_a_float_in_an_id_of_several_columns_is_named(columns: dict[str, Any]) -> None:
    text = message(columns, session=["session", "price"])
    assert 'pl.col("price").cast(pl.String)' in text


def test_lists_are_no_ids(columns: dict[str, Any]) -> None:
    columns["query"] = [["a"], ["b"], ["a"], ["b"], ["b"]]
    assert "query: the column holds List(String), and that cannot be an id" in message(columns)


def test_all_faults_are_told_at_once() -> None:
    source = {
        "session": ["a", None, "a", "a"],
        "query": ["q", "r", "z", None],
        "doc": [1.0, 2.0, 3.0, 4.0],
        "rank": [1.5, -1.0, 2.0, 2.0],
        "click": [0, 1, -2, None],
        "w": [1.0, -1.0, 2.0, float("inf")],
    }
    lines = message(source, weight="w").splitlines()
    assert lines[0] == "The dict cannot be read as a click log; 12 faults:"
    assert [line.split(":")[0].strip(" -") for line in lines[1:]] == [
        "session",
        "query",
        "doc",
        "rank",
        "rank",
        "rank",
        "click",
        "click",
        "query",
        "weight ('w')",
        "weight ('w')",
        "weight ('w')",
    ]


TWICE = {
    "visit": [1] * 4,
    "term": ["boots"] * 4,
    "doc": list("xyxz"),
    "rank": [1, 2, 1, 2],
    "click": [0, 1, 0, 0],
}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, "session= needs what tells them apart, such as the id of the page or the time"),
        ({"timestamp": [8, 8, 9, 9]}, 'try session=["visit", "term", "timestamp"]'),
        ({"query_id": list("aabb")}, 'try session=["visit", "term", "query_id"]'),
        ({"timestamp": [8] * 4}, "session= needs what tells them apart"),
    ],
)
def test_a_query_asked_twice_is_told_apart(more: dict[str, Any], expected: str) -> None:
    with pytest.raises(ClickLogError) as caught:
        read_log(TWICE | more, session=["visit", "term"], query="term")
    assert expected in str(caught.value)
    assert "such as one query asked twice" in str(caught.value)
    if "timestamp" in expected:
        assert (
            len(read_log(TWICE | more, session=["visit", "term", "timestamp"], query="term")) == 2
        )
