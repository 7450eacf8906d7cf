"""Columns that are not there, and what is suggested instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gecasmo.errors import ClickLogError
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
    frame.rename({"doc": "url", "click": "clicked"}).write_parquet("clicks.parquet")
    assert message("clicks.parquet") == (
        "clicks.parquet lacks the columns 'doc' and 'click'.\n"
        "  It has: session, query, url, rank, clicked.\n"
        '  Perhaps: read_log("clicks.parquet", doc="url", click="clicked")'
    )
    read_log("clicks.parquet", doc="url", click="clicked")


@pytest.mark.parametrize(
    ("role", "name"),
    [
        ("session", "session_id"),
        ("session", "impression_id"),
        ("session", "serp_id"),
        ("doc", "url"),
        ("doc", "document"),
        ("doc", "item"),
        ("doc", "product_id"),
        ("rank", "position"),
        ("rank", "Pos"),
        ("click", "is_click"),
        ("click", "Clicked"),
        ("click", "clik"),
    ],
)
def test_usual_names_are_recognised(columns: dict[str, Any], role: str, name: str) -> None:
    columns[name] = columns.pop(role)
    text = message(columns)
    assert text.startswith(f"The dict lacks the column '{role}'.\n  It has: ")
    assert f'Perhaps: read_log(data, {role}="{name}")' in text


@pytest.mark.parametrize("name", ["query_id", "q", "search_term"])
def test_the_query_is_suggested_along(columns: dict[str, Any], name: str) -> None:
    columns[name] = columns.pop("query")
    columns["url"] = columns.pop("doc")
    assert f'Perhaps: read_log(data, query="{name}", doc="url")' in message(columns)


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
    columns["url"] = columns.pop("doc")
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
