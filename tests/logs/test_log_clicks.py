"""Clicks as counts and as words, and rows that repeat an earlier one."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecasmo.errors import ClickLogError, ClickLogWarning
from gecasmo.logs import ClickLog, read_log


def noted(source: Any, **names: Any) -> tuple[ClickLog, dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickLogWarning)
        log = read_log(source, **names)
    return log, {note.kind: note for note in log.notes}


def message(source: Any, **names: Any) -> str:
    with pytest.raises(ClickLogError) as caught:
        read_log(source, **names)
    return str(caught.value)


@pytest.mark.parametrize("dtype", [pl.Int64, pl.UInt8, pl.Float64])
def test_numbers_of_clicks_are_clicks(columns: dict[str, Any], dtype: Any) -> None:
    columns["click"] = pl.Series([1, 0, 3, 0, 12], dtype=dtype)
    log, notes = noted(columns)
    assert log.click.tolist() == [True, False, True, False, True]
    assert log.column("click").to_list() == log.click.tolist()
    (note,) = notes.values()
    assert (note.kind, note.count) == ("results clicked more than once", 2)
    assert "up to 12; each above 0 is a click" in note.what
    assert note.examples == ("row 2 has 3", "row 4 has 12")


def test_numbers_of_clicks_in_lists(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"doc": ["a"], "click": [1]}\n{"doc": ["a", "b"], "click": [0, 2]}\n')
    with pytest.warns(ClickLogWarning, match="results clicked more than once: 1 "):
        log = read_log(path)
    assert log.click.tolist() == [True, False, True]
    assert log.notes[0].examples == ("row 1 has 2",)


@pytest.mark.parametrize("bad", [-1, 0.5, float("inf")])
def test_other_numbers_stay_faults(columns: dict[str, Any], bad: float) -> None:
    columns["click"] = [3, 0, 1, bad, 0]
    what = "negative" if bad == -1 else "not a whole number"
    assert f"click: 1 value is {what}, first: row 3 has {float(bad)}" in message(
        columns | {"click": [float(x) for x in columns["click"]]}
    )


@pytest.mark.parametrize(
    ("yes", "no"), [("yes", "no"), ("Y", "n"), ("TRUE", "False"), ("t", "F"), ("Yes", "f")]
)
@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical])
def test_words_are_clicks(columns: dict[str, Any], yes: str, no: str, dtype: Any) -> None:
    plain = read_log(columns)
    columns["click"] = pl.Series([yes if x else no for x in columns["click"]], dtype=dtype)
    log, notes = noted(columns)
    assert log.click.tolist() == plain.click.tolist()
    assert notes == {}


def test_words_in_a_text_file_are_clicks(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("session,doc,rank,click\n1,a,1,Yes\n1,b,2,no\n")
    assert read_log(path).click.tolist() == [True, False]


WORDS = "clicks are whole numbers, booleans, or yes and no, y and n, true and false, t and f"


@pytest.mark.parametrize(
    ("clicks", "count", "first"),
    [
        (["yes", "no", "maybe", "no", ""], "2 values are", "row 2 has 'maybe'"),
        (["1", "0", "0", "3", "x"], "1 value is", "row 4 has 'x'"),
        (["yes", "no", "1", "no", "0"], "2 values are", "row 2 has '1'"),
    ],
)
def test_other_words_stay_faults(
    columns: dict[str, Any], clicks: list[str], count: str, first: str
) -> None:
    columns["click"] = clicks
    expected = f"click: {count} neither yes nor no (the column holds String), first: {first}"
    assert f"{expected}; {WORDS}" in message(columns)


def test_missing_words_are_missing(columns: dict[str, Any]) -> None:
    columns["click"] = ["yes", None, "no", "no", "no"]
    text = message(columns)
    assert "1 fault:" in text
    assert "click: 1 value is missing (null), first: row 1" in text


def test_repeated_rows_are_read_once(columns: dict[str, Any]) -> None:
    plain = read_log(columns)
    again = {name: [*values, values[3], values[1], values[3]] for name, values in columns.items()}
    again["click"] = [1, 0, 0, 0, 0, 0, 0, 1]
    log, notes = noted(again)
    assert log.to_frame().equals(plain.to_frame())
    assert log.page.tolist() == plain.page.tolist()
    assert log.order.tolist() == plain.order.tolist()
    assert log.lengths.tolist() == [2, 3]
    (note,) = notes.values()
    assert (note.kind, note.count) == ("repeated rows", 3)
    assert "read once, and clicked if one of them is)" in note.what
    assert "session 's1': row 5 repeats row 3" in note.examples


def test_columns_that_differ_in_repeated_rows_are_named(columns: dict[str, Any]) -> None:
    again = {name: [*values, values[0]] for name, values in columns.items()}
    again["price"][5], again["click"] = 9.0, [0, 0, 0, 1, 0, 1]
    log, notes = noted(again)
    assert log.column("price").to_list() == columns["price"]
    assert log.click.tolist() == [True, False, False, True, False]
    assert "the first row counts for 'price')" in notes["repeated rows"].what


def test_other_documents_on_one_rank_stay_a_fault(columns: dict[str, Any]) -> None:
    again = {name: [*values, values[1], values[1]] for name, values in columns.items()}
    again["doc"][6] = "other"
    text = message(again)
    assert "1 fault:" in text
    assert (
        "rank: 1 place with more than one result, first: session 's1' has two results on rank 1 "
        "(row 1 and row 6)"
    ) in text


def test_repeated_rows_of_another_query_stay_a_fault(columns: dict[str, Any]) -> None:
    again = {name: [*values, values[1]] for name, values in columns.items()}
    again["query"][5] = "birds"
    assert "query: 1 page with more than one query" in message(again)


def test_a_document_of_two_columns_can_be_repeated(columns: dict[str, Any]) -> None:
    again = {name: [*values, values[1]] for name, values in columns.items()}
    assert noted(again, doc=["doc", "device"])[1]["repeated rows"].count == 1
    again["device"][5] = "tablet"
    assert "1 place with more than one result" in message(again, doc=["doc", "device"])


def test_a_result_twice_in_the_lists_of_a_page() -> None:
    pages = {"doc": [["a", "b", "a"], ["c"]], "rank": [[1, 2, 1], [1]], "click": [[0, 0, 1], [0]]}
    log, notes = noted(pages | {"device": ["phone", "desk"]})
    assert log.to_frame().select("session", "doc", "click").rows() == [
        (0, "a", True),
        (0, "b", False),
        (1, "c", False),
    ]
    assert log.session_column("device").to_list() == ["phone", "desk"]
    assert notes["repeated rows"].examples == ("session 0: row 0 repeats row 0",)


row = st.tuples(st.integers(0, 2), st.integers(1, 3), st.integers(0, 3))


@settings(deadline=None)
@given(st.lists(row, min_size=1, max_size=12))
def test_repeats_as_a_dict_would_have_them(rows: list[tuple[int, int, int]]) -> None:
    """The document follows from page and rank, so every shared rank is a repeat."""
    expected: dict[tuple[int, int], bool] = {}
    for session, rank, count in rows:
        expected[session, rank] = expected.get((session, rank), False) or count > 0
    source = {
        "session": [session for session, _, _ in rows],
        "doc": [f"d{session}{rank}" for session, rank, _ in rows],
        "rank": [rank for _, rank, _ in rows],
        "click": [count for _, _, count in rows],
    }
    log, notes = noted(source)
    found = log.to_frame().select("session", "rank", "click").rows()
    assert {(session, rank): click for session, rank, click in found} == expected
    assert [key[:2] for key in found] == list(expected)
    repeats = notes["repeated rows"].count if "repeated rows" in notes else 0
    assert repeats == len(rows) - len(expected)
    often = sum(count > 1 for _, _, count in rows)
    assert (notes["results clicked more than once"].count if often else 0) == often
