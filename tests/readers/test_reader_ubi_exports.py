"""What UBI 1.3 has, and how its indices are exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from reader_helpers import SAMPLES, pages, read_noting

from gecasmo.errors import ClickLogError
from gecasmo.logs import read_log
from gecasmo.logs.formats import ubi_records


def event(action: str, doc: str, ordinal: Any, second: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "application": "shop",
        "action_name": action,
        "query_id": "q1",
        "session_id": "v1",
        "client_id": "c1",
        "user_id": "u1",
        "timestamp": f"2026-03-01T10:00:{second:02d}.000Z",
        "message_type": None,
        "user_query": "tv",
        "event_attributes": {
            "object": {"object_id": doc, "object_id_field": "asin"},
            "position": {"ordinal": ordinal},
        },
    } | more


EVENTS = [
    event("impression", "B1", 1),
    event("impression", "B2", 2),
    event("click", "B2", 2, 7),
    event("click", "B2", 2, 5),
]
QUERY = {
    "query_id": "q1",
    "user_query": "tv",
    "application": "primary-search",
    "client_id": "c1",
    "query_attributes": {"filters": ["brand:é"], "page": 1},
    "query_response_hit_ids": ["B1", "B2"],
    "timestamp": "2026-03-01T09:59:59Z",
}


def written(path: Path, records: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return path


def test_events_alone_know_their_query(tmp_path: Path) -> None:
    log, notes = read_noting(written(tmp_path / "e.ndjson", EVENTS))
    assert pages(log) == [("tv", [("B1", 1, 0), ("B2", 2, 1)])]
    assert notes == {"duplicate clicks": 1}
    for name, value in (("user_id", "u1"), ("application", "shop"), ("session_id", "v1")):
        assert log.session_column(name).to_list() == [value]
    assert [str(time) for time in log.column("click_time")] == ["None", "2026-03-01 10:00:05+00:00"]


def test_the_query_record_counts_before_events(tmp_path: Path) -> None:
    other = event("click", "B1", 1, 9, user_query="television")
    log, notes = read_noting(written(tmp_path / "u.ndjson", [*EVENTS, other, QUERY]))
    assert pages(log)[0] == ("tv", [("B1", 1, 1), ("B2", 2, 1)])
    assert notes == {"duplicate clicks": 1, "events with another query": 1}
    assert log.session_column("application").to_list() == ["primary-search"]
    attributes = log.session_column("query_attributes")[0]
    assert json.loads(attributes) == QUERY["query_attributes"]
    log.write(tmp_path / "again.ndjson", format="ubi")
    again, _ = read_noting(tmp_path / "again.ndjson")
    assert again.to_frame().equals(log.to_frame())


def test_the_same_from_parquet(tmp_path: Path) -> None:
    records = [*EVENTS, QUERY]
    pl.DataFrame(records, infer_schema_length=None).write_parquet(tmp_path / "u.parquet")
    log, _ = read_noting(tmp_path / "u.parquet")
    expected, _ = read_noting(written(tmp_path / "u.ndjson", records))
    assert log.to_frame().equals(expected.to_frame())


def responses(records: list[Any]) -> dict[str, Any]:
    hits = [{"_index": "ubi_events", "_id": str(n), "_source": r} for n, r in enumerate(records)]
    return {"took": 3, "hits": {"total": {"value": len(hits)}, "hits": hits}}


WAYS = {
    "list": lambda records: json.dumps(records),
    "pretty list": lambda records: json.dumps(records, indent=2),
    "response": lambda records: json.dumps(responses(records), indent=2),
    "two responses": lambda records: (
        f"{json.dumps(responses(records[:2]))}\n{json.dumps(responses(records[2:]))}\n"
    ),
    "list of hits": lambda records: json.dumps(responses(records)["hits"]["hits"]),
}


@pytest.mark.parametrize("name", ["ubi.ndjson", "ubi_odd.ndjson"])
@pytest.mark.parametrize("way", WAYS)
def test_lists_and_responses_of_searches(tmp_path: Path, way: str, name: str) -> None:
    records = [json.loads(line) for line in (SAMPLES / name).read_text().splitlines()]
    path = tmp_path / "ubi.json"
    path.write_text(WAYS[way](records))
    expected, expected_notes = read_noting(SAMPLES / name)
    for options in ({}, {"format": "ubi"}):
        log, notes = read_noting(path, **options)
        assert log.to_frame().equals(expected.to_frame())
        assert notes == expected_notes
    for note in log.notes:
        assert all("ubi.json, record " in example for example in note.examples)


def test_faults_in_a_list_name_the_record(tmp_path: Path) -> None:
    path = tmp_path / "ubi.json"
    path.write_text(json.dumps([*EVENTS, {"user_query": "lost"}]))
    with pytest.raises(
        ClickLogError, match=r"ubi\.json, record 5: neither an event.*The record is"
    ):
        read_log(path, format="ubi")
    path.write_text(json.dumps([EVENTS[0]])[:-2])
    with pytest.raises(ClickLogError, match=r"ubi\.json, line 1: not valid JSON"):
        read_log(path, format="ubi")


def test_positions_may_be_text_and_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [event(e["action_name"], *_place(e)) for e in EVENTS]
    monkeypatch.setattr(ubi_records, "fields_of", None)  # what reads records one by one
    log, _ = read_noting(written(tmp_path / "e.ndjson", texts))
    assert pages(log) == [("tv", [("B1", 1, 0), ("B2", 2, 1)])]


def _place(record: dict[str, Any]) -> tuple[str, str]:
    attributes = record["event_attributes"]
    return attributes["object"]["object_id"], str(attributes["position"]["ordinal"])


@pytest.mark.parametrize("ordinal", ["first", "1.5", "-1", True, ""])
def test_positions_that_are_none(tmp_path: Path, ordinal: Any) -> None:
    path = written(tmp_path / "e.ndjson", [EVENTS[0], event("impression", "B2", ordinal)])
    with pytest.raises(ClickLogError, match=r"line 2: position\.ordinal should"):
        read_log(path)
