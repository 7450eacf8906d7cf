"""Logs with one row a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from gecasmo.errors import ClickLogError
from gecasmo.logs import read_log


@pytest.fixture
def pages() -> dict[str, Any]:
    return {
        "query": ["cats", "dogs", "cats"],
        "doc": [["a", "b"], [], ["c"]],
        "click": [[1, 0], [], [1]],
        "device": ["phone", "desk", "phone"],
    }


def message(source: Any, **names: Any) -> str:
    with pytest.raises(ClickLogError) as caught:
        read_log(source, **names)
    return str(caught.value)


def test_pages_are_numbered_and_results_ranked_as_listed(pages: dict[str, Any]) -> None:
    log = read_log(pages)
    assert log.sessions.to_list() == [0, 1, 2]
    assert log.rank.tolist() == [1, 2, 1]
    assert log.column("query").to_list() == ["cats", "cats", "cats"]


def test_a_page_without_results_is_a_session(pages: dict[str, Any]) -> None:
    log = read_log(pages)
    assert len(log) == 3
    assert log.lengths.tolist() == [2, 0, 1]
    assert log.starts.tolist() == [0, 2, 2, 3]
    assert log.session_column("query").to_list() == ["cats", "dogs", "cats"]
    assert log.session_column("device").to_list() == ["phone", "desk", "phone"]
    assert log.take([1, 2]).session_column("device").to_list() == ["desk", "phone"]


def test_a_page_without_results_has_no_value_of_a_list(pages: dict[str, Any]) -> None:
    pages["vertical"] = [["web", "web"], [], ["news"]]
    log = read_log(pages)
    assert log.session_column("vertical").to_list() == ["web", None, "news"]


def test_given_ranks_and_sessions_are_used(pages: dict[str, Any]) -> None:
    pages |= {"session": ["x", "y", "z"], "rank": [[5, 2], [], [1]], "n": [2, 3, 4]}
    log = read_log(pages, weight="n")
    assert log.rank.tolist() == [5, 2, 1]
    assert log.order.tolist() == [1, 0, 2]
    assert log.sessions.to_list() == ["x", "y", "z"]
    assert log.weight.tolist() == [2.0, 3.0, 4.0]
    assert log.weight.flags.writeable
    assert log.page.flags.writeable


def test_arrays_are_lists_too() -> None:
    frame = pl.DataFrame(
        {"doc": [["a", "b"], ["c", "d"]], "click": [[0, 1], [1, 0]], "f": [[[1, 2]] * 2] * 2},
        schema={
            "doc": pl.Array(pl.String, 2),
            "click": pl.Array(pl.Int8, 2),
            "f": pl.Array(pl.Int64, (2, 2)),
        },
    )
    log = read_log(frame)
    assert log.column("doc").to_list() == ["a", "b", "c", "d"]
    assert log.column("f").to_list() == [[1, 2]] * 4


def test_pages_without_clicks(pages: dict[str, Any]) -> None:
    del pages["click"]
    assert read_log(pages, click=None).click.tolist() == [False] * 3


def test_a_log_of_empty_pages_only() -> None:
    log = read_log(
        {"query": ["a", "b"], "doc": pl.Series([[], []], dtype=pl.List(pl.String))}, click=None
    )
    assert (log.n_sessions, log.n_results) == (2, 0)
    assert "sessions" in repr(log)


def test_lists_of_a_page_have_one_length(pages: dict[str, Any]) -> None:
    pages["click"] = [[1, 0], [1], [-7]]
    text = message(pages)
    assert (
        "lists: 1 page with lists of different lengths, first: row 1 has 0 in 'doc' and 1 in "
        "'click'"
    ) in text
    assert "click: 1 value is negative, first: row 2 has -7" in text


def test_a_list_may_not_be_missing(pages: dict[str, Any]) -> None:
    pages["click"][2] = None
    assert "click: 1 list is missing (null), first: row 2" in message(pages)


def test_values_in_lists_may_not_be_missing(pages: dict[str, Any]) -> None:
    pages["doc"][2] = [None]
    assert "doc: 1 value is missing (null), first: row 2" in message(pages)


def test_a_page_without_results_is_checked_too(pages: dict[str, Any]) -> None:
    pages["query"][1] = None
    pages["n"] = [1.0, -2.0, 1.0]
    text = message(pages, weight="n")
    assert "query: 1 value is missing (null), first: row 1" in text
    assert "weight ('n'): 1 value is negative, first: row 1 has -2.0" in text


def test_a_session_has_one_row(pages: dict[str, Any]) -> None:
    pages["session"] = ["x", "y", "x"]
    assert (
        "session: 1 row with the session of an earlier row, while a nested log has one row a "
        "page, first: row 2 has 'x'"
    ) in message(pages)


def test_lists_stand_where_they_belong(pages: dict[str, Any]) -> None:
    pages |= {"rank": [1, 2, 3], "session": [["x", "y"], [], ["z"]]}
    text = message(pages)
    assert "rank: one value a page, while other columns hold lists of results" in text
    assert "session: a list, while a nested log has one session a row" in text


def test_a_named_rank_has_to_be_there(pages: dict[str, Any]) -> None:
    assert "lacks the column 'place'" in message(pages, rank="place")


def test_empty_pages_survive_a_file(pages: dict[str, Any], tmp_path: Path) -> None:
    pages |= {"n": [2, 3, 4], "price": [[1.5, 2.5], [], [3.5]]}
    log = read_log(pages, weight="n")
    log.write(tmp_path / "log.parquet")
    again = read_log(tmp_path / "log.parquet", weight="weight")
    assert again.columns == log.columns
    assert again.to_frame().equals(log.to_frame())
    assert again.lengths.tolist() == [2, 0, 1]
    assert again.session_column("query").to_list() == ["cats", "dogs", "cats"]
    assert again.weight.tolist() == [2.0, 3.0, 4.0]


def test_text_files_cannot_hold_empty_pages(pages: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match="text files cannot hold pages without results"):
        read_log(pages).write(tmp_path / "log.csv")


def test_a_log_without_columns_of_pages_can_be_parted(tmp_path: Path) -> None:
    log = read_log({"doc": [["a", "b"], [], ["c"], ["a"]], "click": [[1, 0], [], [1], [0]]})
    assert log.page_columns is None
    part = log.take([1, 2])
    assert part.sessions.to_list() == [1, 2]
    assert part.lengths.tolist() == [0, 1]
    assert part.take([1]).column("doc").to_list() == ["c"]
    train, test = log.split(test=0.5)
    assert sorted(train.sessions.to_list() + test.sessions.to_list()) == [0, 1, 2, 3]
    flipped = log.with_signals({"click": ~log.click}).take([0])
    assert flipped.click.tolist() == [False, True]
    part.write(tmp_path / "part.parquet")
    assert read_log(tmp_path / "part.parquet").lengths.tolist() == [0, 1]


def test_the_last_column_of_pages_can_become_a_signal() -> None:
    log = read_log({"doc": [["a"], []], "click": [[1], []], "seen": [True, False]})
    changed = log.with_signals({"seen": [False]})
    assert changed.take([0]).column("seen").to_list() == [False]
    assert changed.session_column("seen").to_list() == [False, None]
