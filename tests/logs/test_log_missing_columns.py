"""Columns that are not there, and what is suggested instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gecasmo.errors import ClickLogError, ClickLogWarning
from gecasmo.logs import read_log


def message(source: Any, **names: Any) -> str:
    with pytest.raises(ClickLogError) as caught:
        read_log(source, **names)
    return str(caught.value)


def test_the_message_says_what_is_there_and_what_was_meant(
    columns: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    frame = pl.DataFrame(columns).select("session", "query", "doc", "rank", "click")
    frame.rename({"rank": "rang", "click": "klick"}).write_parquet("clicks.parquet")
    assert message("clicks.parquet") == (
        "clicks.parquet lacks the columns 'rank' and 'click'.\n"
        "  It has: session, query, doc, rang, klick.\n"
        '  Perhaps: read_log("clicks.parquet", rank="rang", click="klick")'
    )
    read_log("clicks.parquet", rank="rang", click="klick")


@pytest.mark.parametrize(
    ("role", "name"),
    [
        ("session", "session_id"),
        ("session", "impression_id"),
        ("session", "serp_id"),
        ("session", "visit_id"),
        ("query", "user_query"),
        ("query", "q"),
        ("doc", "url"),
        ("doc", "object_id"),
        ("doc", "sku"),
        ("doc", "asin"),
        ("doc", "product_id"),
        ("rank", "position"),
        ("rank", "Pos"),
        ("click", "is_click"),
        ("click", "Clicked"),
        ("click", "click_count"),
    ],
)
def test_usual_names_are_taken_and_told(columns: dict[str, Any], role: str, name: str) -> None:
    expected = read_log(columns).to_frame()
    columns[name] = columns.pop(role)
    with pytest.warns(ClickLogWarning) as warned:
        log = read_log(columns)
    assert log.to_frame().equals(expected)
    assert str(warned[0].message) == f'the dict: columns guessed by their names: {role}="{name}".'


def test_what_the_user_asked_comes_before_the_id_of_the_query(columns: dict[str, Any]) -> None:
    columns["user_query"] = columns.pop("query")
    columns["query_id"] = columns["session"]
    with pytest.warns(ClickLogWarning, match='query="user_query"'):
        assert read_log(columns).column("query")[0] == "cats"


def test_what_is_named_is_not_guessed(columns: dict[str, Any]) -> None:
    columns["url"] = columns.pop("doc")
    assert 'Perhaps: read_log(data, doc="url")' in message(columns, doc="urle")
    columns["q"] = columns.pop("query")
    assert not read_log(columns, doc="url", query=None).has_query


def test_a_misspelt_name_is_corrected_and_the_rest_of_the_call_kept(
    columns: dict[str, Any],
) -> None:
    columns["user"] = columns.pop("session")
    columns["url"] = columns.pop("doc")
    text = message(columns, session=["usr", "query"], doc="url")
    assert "lacks the column 'usr'" in text
    assert 'Perhaps: read_log(data, session=["user", "query"], doc="url")' in text


def test_without_a_guess_there_is_another_way(columns: dict[str, Any]) -> None:
    del columns["rank"], columns["click"]
    text = message(columns)
    assert "Perhaps" not in text
    assert "rank=None takes the order of the rows" in text
    assert "click=None reads the pages alone" in text


def test_faults_of_other_columns_are_told_too(columns: dict[str, Any]) -> None:
    columns["dok"] = columns.pop("doc")
    columns["click"][3] = -2
    text = message(columns)
    assert text.startswith("The dict lacks the column 'doc'.")
    assert text.endswith(
        "  And what is there has 1 fault:\n"
        "  - click: 1 value is negative, first: row 3 has -2; clicks are whole numbers from 0"
    )


def test_an_empty_dict_has_no_columns() -> None:
    assert "It has: no columns at all." in message({})


def test_a_log_without_queries_is_fine(columns: dict[str, Any]) -> None:
    del columns["query"]
    log = read_log(columns)
    assert not log.has_query
    assert "query" not in log.columns


def test_a_named_query_or_weight_has_to_be_there(columns: dict[str, Any]) -> None:
    text = message(columns, query="search", weight="w")
    assert "lacks the columns 'search' and 'w'" in text


def test_a_long_log_needs_sessions(columns: dict[str, Any]) -> None:
    assert "session: a log with one row a result needs a session column" in message(
        columns, session=None
    )


def test_a_log_needs_documents(columns: dict[str, Any]) -> None:
    assert "doc=None): every result needs a document" in message(columns, doc=None)


def test_only_ids_are_made_of_several_columns(columns: dict[str, Any]) -> None:
    assert "rank is one column name; only session and doc" in message(columns, rank=["a", "b"])
    assert "the list should hold column names" in message(columns, session=[])


@pytest.mark.parametrize("more", [{}, {"session": [1, 2], "rank": [3, 1]}])
def test_a_table_of_clicks_lacks_impressions(more: dict[str, Any]) -> None:
    """One row a click: the message says what is missing, and what can still be done."""
    with pytest.raises(ClickLogError, match=r"Is every row a click\? Then impressions are missing"):
        read_log({"query": ["cats", "cats"], "doc": ["a", "b"], "time": [1, 2], **more})


@pytest.mark.parametrize("name", ["impressions", "views", "impression_count"])
def test_counts_are_recognised(name: str) -> None:
    text = message({"query": ["cats"], "doc": ["a"], "rank": [1], name: [9], "clicks": [2]})
    assert "Are these counts of impressions and clicks? read_counts reads them" in text


def test_events_are_recognised() -> None:
    text = message({"session": [1], "query": ["cats"], "doc": ["a"], "event_type": ["click"]})
    assert "Is a row an event, such as an impression or a click? read_events" in text
    assert "every row a click" not in text
