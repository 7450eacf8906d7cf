"""Faults within a format, each with a message of its own."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from reader_helpers import pages, read_noting

from gecasmo.errors import ClickLogError
from gecasmo.logs import read_log

BAIDU: dict[str, list[Any]] = {
    "query_doc_ids": [[3, 9], [4, 2]],
    "clicks": [[0, 1], [1, 0]],
    "positions": [[1, 2], [1, 2]],
}
BAIDU_FAULTS = [
    ({"clicks": None}, r"lacks a column with the clicks of each page: one of clicks, click\. It"),
    ({"query_doc_ids": None}, r"lacks a column with the docs of each page"),
    ({"clicks": [0, 1]}, r"the clicks should be lists, one list a page"),
    ({"clicks": [[0, 1], None]}, r"row 1: the list of clicks is missing \(null\)"),
    ({"query_doc_ids": [[3, None], [4, 2]]}, r"row 0: a value in the docs is missing \(null\)"),
    ({"mask": [[True, True], [True, None]]}, r"row 1: a value in the masks is missing \(null\)"),
    ({"clicks": [[0.0, 0.5], [1.0, 0.0]]}, r"row 0: clicks are whole numbers from 0, not 0\.5"),
    ({"clicks": [[0, 1], [-1, 0]]}, r"row 1: clicks are whole numbers from 0, not -1"),
    ({"positions": [[1, 2], [1]]}, r"row 1: lists of different lengths, 2 docs and 1 ranks"),
    ({"positions": [[1, 1], [1, 2]]}, r"session 0 has two results on rank 1"),
    ({"query_doc_ids": [], "clicks": [], "positions": []}, r"is empty: there are no pages in it"),
]


def write_baidu(tmp_path: Path, changes: dict[str, Any]) -> Path:
    columns = {name: values for name, values in (BAIDU | changes).items() if values is not None}
    path = tmp_path / "log.parquet"
    pl.DataFrame(columns).write_parquet(path)
    return path


@pytest.mark.parametrize(("changes", "message"), BAIDU_FAULTS)
def test_faults_of_baidu(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ClickLogError, match=message):
        read_log(write_baidu(tmp_path, changes), format="baidu")


def test_baidu_pads_told_by_a_number(tmp_path: Path) -> None:
    log, notes = read_noting(write_baidu(tmp_path, {"n": [1, 2]}))
    assert pages(log) == [(0, [(3, 1, 0)]), (0, [(4, 1, 1), (2, 2, 0)])]
    assert notes == {"clicks on results never shown": 1, "pages without a query": 2}


def test_baidu_pads_may_be_null(tmp_path: Path) -> None:
    padded = {
        "query_doc_ids": [[3, None], [4, 2]],
        "clicks": [[1, None], [1, 0]],
        "positions": [[1, None], [1, 2]],
        "mask": [[True, False], [True, True]],
    }
    log, notes = read_noting(write_baidu(tmp_path, padded))
    assert pages(log) == [(0, [(3, 1, 1)]), (0, [(4, 1, 1), (2, 2, 0)])]
    assert notes == {"pages without a query": 2}


def test_baidu_reads_arrays_and_hashes(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {"url_md5": [["x", "y"]], "query_md5": ["q"], "click": [[0, 1]]},
        schema_overrides={"click": pl.Array(pl.Int8, 2)},
    )
    frame.write_parquet(tmp_path / "log.parquet")
    assert pages(read_log(tmp_path / "log.parquet")) == [("q", [("x", 1, 0), ("y", 2, 1)])]


SEARCH = {"search_keys": {"search_term": "a"}, "judgment_keys": [{"session": [{"doc": "d"}]}]}
LINES = {
    "pyclickmodels": [
        (SEARCH | {"search_keys": {}}, "search_keys should be an object such as"),
        (SEARCH | {"search_keys": {"click": 1}}, "a search key cannot be called 'click' here"),
        (SEARCH | {"judgment_keys": {}}, "judgment_keys should be a list of sessions"),
        (SEARCH | {"judgment_keys": [[]]}, "judgment_keys should hold objects with the key"),
        (SEARCH | {"judgment_keys": [{"doc": "d", "click": "yes"}]}, "clicks are whole numbers"),
        (SEARCH | {"judgment_keys": [{"doc": True}]}, "a result needs a 'doc'"),
    ],
    "ubi": [
        (
            {"query_id": "q", "query_response_hit_ids": "d"},
            "query_response_hit_ids should be a lis",
        ),
        (
            {"action_name": "click", "event_attributes": {"position": {"ordinal": -1}}},
            "position.ordinal should not be negative",
        ),
    ],
}


@pytest.mark.parametrize(
    ("format", "record", "message"),
    [(format, *case) for format, cases in LINES.items() for case in cases],
)
def test_faults_of_records(tmp_path: Path, format: str, record: Any, message: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f"\n{json.dumps(record)}\n")
    with pytest.raises(ClickLogError, match=rf"log\.jsonl, line 2: {message}.*The line is '"):
        read_log(path, format=format)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        (("[null]", "[false]", "[0]"), "the results should be texts or whole numbers"),
        (("1", "[]", "[]"), "the last three fields should be JSON lists"),
        (('["u"]', "[]", "[0]"), "lists of different lengths: 1 results and 0 layout"),
        (('["u"]', "[false]", "[1e400]"), "clicks are whole numbers from 0, not inf"),
        (('["u"]', "[false]", f"[{10**19}]"), "clicks are whole numbers from 0, not 1000"),
    ],
)
def test_faults_of_clickmodels(tmp_path: Path, lists: tuple[str, ...], message: str) -> None:
    path = tmp_path / "log.tsv"
    path.write_text("\t".join(["a", "q", "1", "0", *lists]) + "\n")
    with pytest.raises(ClickLogError, match=f"line 1: {message}"):
        read_log(path, format="clickmodels")


def test_json_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text("[" * 100_000 + "\n")
    with pytest.raises(ClickLogError, match=r"line 1: (JSON nested too deeply|not valid JSON)"):
        read_log(path, format="ubi")


def test_ubi_in_parquet_with_attributes_as_text_and_times_as_times(tmp_path: Path) -> None:
    place = json.dumps({"object": {"object_id": 7}, "position": {"ordinal": 1}})
    moment = datetime.datetime(2026, 3, 1, 10, 0)
    frame = pl.DataFrame(
        {
            "query_id": ["q", "q", "q"],
            "user_query": ["words", None, None],
            "action_name": [None, "impression", "click"],
            "event_attributes": [None, place, place],
            "timestamp": [moment, moment, moment],
        }
    )
    frame.write_parquet(tmp_path / "ubi.parquet")
    log, notes = read_noting(tmp_path / "ubi.parquet")
    assert pages(log) == [("words", [(7, 1, 1)])]
    assert log.session_column("timestamp")[0] == moment.replace(tzinfo=datetime.UTC)
    assert notes == {}


def test_ubi_in_parquet_without_query_ids_is_refused(tmp_path: Path) -> None:
    pl.DataFrame({"action_name": ["click"]}).write_parquet(tmp_path / "ubi.parquet")
    with pytest.raises(ClickLogError, match=r"lacks the column 'query_id'.* It has: action_name"):
        read_log(tmp_path / "ubi.parquet", format="ubi")


def test_ubi_errors_in_parquet_name_the_row(tmp_path: Path) -> None:
    frame = pl.DataFrame({"query_id": ["q", None], "user_query": ["a", "b"]})
    frame.write_parquet(tmp_path / "ubi.parquet")
    with pytest.raises(ClickLogError, match=r"ubi\.parquet, row 1: neither an event"):
        read_log(tmp_path / "ubi.parquet")


REFUSED: list[tuple[str, dict[str, list[Any]], str]] = [
    ("yandex", {"query": [["q"], []], "doc": [["a"], []], "click": [[1], []]}, "without a query"),
    (
        "ubi",
        {"query": ["q"], "doc": [["a"]], "click": [[1]], "cart": [[2]]},
        "the column 'cart', which is not true or false everywhere",
    ),
    (
        "pyclickmodels",
        {"query": ["q"], "doc": [["a"]], "click": [[1]], "search_term": ["r"]},
        "the query 'q' beside a search_term of its own",
    ),
    (
        "pyclickmodels",
        {"query": ["q"], "doc": [[datetime.date(2026, 3, 1)]], "click": [[1]]},
        "the doc of this log, which is Date",
    ),
    (
        "pyclickmodels",
        {
            "query": ["a|nan"],
            "search_term": ["a"],
            "x": [float("nan")],
            "doc": [["a"]],
            "click": [[1]],
        },
        "numbers that are not finite, as in the column 'x'",
    ),
    ("yandex", {"query": [b"q"], "doc": [["a"]], "click": [[1]]}, "the query of this log, which"),
]


@pytest.mark.parametrize(("format", "columns", "message"), REFUSED)
def test_logs_that_do_not_fit(
    tmp_path: Path, format: str, columns: dict[str, list[Any]], message: str
) -> None:
    with pytest.raises(ClickLogError, match=message):
        read_log(pl.DataFrame(columns)).write(tmp_path / "log.x", format=format)
    assert list(tmp_path.iterdir()) == []


def test_baidu_is_written_as_parquet_only(tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match=r"Write to a name that ends in \.parquet"):
        read_log({"doc": [["a"]], "click": [[1]]}).write(tmp_path / "log.csv", format="baidu")


def test_numbers_too_large_for_integers_are_text(tmp_path: Path) -> None:
    path = tmp_path / "log.tsv"
    path.write_text(f"a\tq\t1\t0\t[{10**20}, 7]\t[false, false]\t[1, 0]\n")
    log = read_log(path)
    assert pages(log) == [("q", [(str(10**20), 1, 1), ("7", 2, 0)])]


CLICK = {"action_name": "click", "query_id": "q", "event_attributes": {"object": {"object_id": 1}}}


def test_ubi_events_without_their_queries_ask_for_them(tmp_path: Path) -> None:
    events = tmp_path / "events.ndjson"
    lost = [CLICK, CLICK | {"query_id": "r"}, CLICK | {"query_id": None}, CLICK]
    events.write_text("".join(f"{json.dumps(event)}\n" for event in lost))
    for source in (events, {"events": events}):
        with pytest.raises(ClickLogError) as caught:
            read_log(source)
        said = str(caught.value)
        assert "events.ndjson: no event belongs to a known query" in said
        assert "nothing says what was shown" in said
        assert "Clicks alone can only be counted" in said
        assert "There are 4 events, and no query record" in said
        assert "events of unknown queries: 3 (" in said
        assert "events without a query: 1 (" in said
        assert 'read_log({"queries": ..., "events": ...}), or a folder' in said
        assert 'format="ubi"' in said
    queries = tmp_path / "queries.ndjson"
    queries.write_text('{"query_id": "q", "user_query": "w", "query_response_hit_ids": [1]}\n')
    log, notes = read_noting({"queries": queries, "events": events})
    assert pages(log) == [("w", [(1, 1, 1)])]
    assert notes["events of unknown queries"] == 1


def test_ubi_without_any_record_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "events.ndjson"
    path.write_text('{"index": {"_index": "ubi_events"}}\n')
    with pytest.raises(ClickLogError, match="is empty: there are neither queries nor events in it"):
        read_log(path)
