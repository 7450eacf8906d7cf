"""Odd things in logs: each has a treatment, a count and an example."""

from __future__ import annotations

import pytest
from reader_helpers import SAMPLES, examples, pages, read_noting

from gecasmo.logs import ClickLog, Note, read_log


def test_yandex() -> None:
    log, notes = read_noting(SAMPLES / "yandex_odd.tsv")
    assert notes == {
        "blank lines": 1,
        "unknown action names": 1,
        "events out of order": 1,
        "results shown twice on a page": 1,
        "events without a query": 1,
        "clicks on results never shown": 1,
        "clicks on an earlier page": 1,
        "duplicate clicks": 1,
        "repeated queries in a session": 1,
        "pages without results": 1,
    }
    assert pages(log) == [
        (5, [(10, 1, 1), (11, 2, 1), (10, 3, 0)]),
        (5, [(12, 1, 0), (13, 2, 1)]),
        (6, []),
    ]
    assert log.sessions.to_list() == ["1-1", "1-2", "3-1"]
    assert examples(log, "duplicate clicks") == ["yandex_odd.tsv, line 3"]
    assert examples(log, "clicks on results never shown") == ["yandex_odd.tsv, line 4"]
    assert examples(log, "results shown twice on a page") == ["yandex_odd.tsv, line 1: '10'"]
    assert examples(log, "events out of order") == ["yandex_odd.tsv, line 8"]


def test_clickmodels() -> None:
    log, notes = read_noting(SAMPLES / "clickmodels_odd.tsv")
    assert notes == {
        "blank lines": 1,
        "duplicate clicks": 2,
        "clicks on results never shown": 2,
        "pages with entries beyond their results": 2,
        "intent weights outside 0 to 1": 1,
        "pages without results": 1,
        "results shown twice on a page": 1,
        "regions": 2,
    }
    assert pages(log) == [
        ("red shoes", [("u1", 1, 0), ("u2", 2, 1)]),
        ("rain coat", [("u4", 1, 1), ("u4", 2, 0)]),
        ("no luck", []),
    ]
    assert log.sessions.to_list() == ["c1-1", "c1-2", "c2-1"]


def test_clickmodels_with_objects_for_lists() -> None:
    log, notes = read_noting(SAMPLES / "clickmodels_extended.tsv")
    assert pages(log) == [
        ("red shoes", [("u1", 1, 0), ("u2", 2, 1), ("u3", 3, 0)]),
        ("rain coat", [("u4", 1, 1), ("u5", 2, 0)]),
    ]
    assert log.column("layout").to_list() == [False, True, False, False, False]
    assert notes == {
        "clicks on results never shown": 2,
        "pages with entries beyond their results": 1,
        "results beyond a gap": 1,
    }


def test_pyclickmodels() -> None:
    log, notes = read_noting(SAMPLES / "pyclickmodels_odd.jsonl")
    assert notes == {
        "duplicate clicks": 2,
        "duplicate purchases": 1,
        "unknown fields of results": 1,
        "pages without results": 1,
        "results shown twice on a page": 1,
    }
    assert pages(log, "purchase") == [
        ("red shoes", [("d0", 1, 1, 1), ("d0", 2, 0, 0)]),
        ("red shoes", []),
    ]


def test_baidu() -> None:
    log, notes = read_noting(SAMPLES / "baidu_odd.parquet")
    assert notes == {
        "pages without a query": 3,
        "columns that do not fit the pages": 1,
        "clicks on results never shown": 1,
        "duplicate clicks": 1,
        "results shown twice on a page": 1,
        "pages without results": 1,
    }
    assert pages(log) == [
        (0, [(3, 1, 0), (9, 2, 1)]),
        (0, [(4, 1, 0), (4, 2, 1), (2, 3, 0)]),
        (0, []),
    ]
    assert log.column("media_type").to_list() == [1, 2, 3, 3, 4]
    assert examples(log, "clicks on results never shown") == ["baidu_odd.parquet, row 0"]


def test_ubi() -> None:
    log, notes = read_noting(SAMPLES / "ubi_odd.ndjson")
    assert pages(log, "purchase") == [
        ("red shoes", [("s1", 1, 0, 0), ("s2", 2, 1, 0)]),
        ("red shoes", [("s3", 1, 0, 0), ("s4", 2, 0, 1)]),
        ("rain coat", []),
        ("boots", [("s7", 1, 0, 0), ("s8", 2, 0, 0)]),
        ("hats", [("s5", 1, 0, 0), ("s6", 2, 0, 0), ("s3", 3, 1, 0)]),
        ("socks", [("s1", 1, 0, 0), ("s1", 4, 1, 0)]),
    ]
    assert notes == {
        "unreadable timestamps": 1,
        "repeated query records": 1,
        "unknown action names": 1,
        "events without a query": 1,
        "events without an object": 1,
        "events of unknown queries": 1,
        "positions from 0": 5,
        "pages without impressions": 2,
        "duplicate impressions": 1,
        "pages without positions": 1,
        "pages with two results on one position": 1,
        "pages without a query text": 1,
        "results shown twice on a page": 1,
        "events out of order": 1,
        "clicks on results never shown": 1,
        "duplicate clicks": 1,
        "repeated queries in a session": 1,
        "pages without results": 1,
    }
    lines = {
        "duplicate clicks": 7,
        "clicks on results never shown": 8,
        "events without a query": 10,
        "events of unknown queries": 12,
        "pages without a query text": 16,
    }
    for kind, line in lines.items():
        assert examples(log, kind) == [f"ubi_odd.ndjson, line {line}"]


def test_ubi_without_impressions_shows_the_hits() -> None:
    log, notes = read_noting(SAMPLES / "ubi_hits_only.ndjson")
    assert pages(log) == [("red shoes", [("s1", 1, 0), ("s2", 2, 1)])]
    assert notes == {"pages without impressions": 1, "views": 1}
    assert log.session_column("timestamp")[0].isoformat() == "2026-03-01T10:00:00+00:00"


def test_notes_stay_with_the_log_and_its_parts() -> None:
    log, _ = read_noting(SAMPLES / "yandex_odd.tsv")
    parts = [log.take([0]), *log.split(test=0.5), log.with_signals({"click": ~log.click})]
    for part in parts:
        assert part.notes == log.notes
    assert isinstance(log.notes, tuple)
    assert all(isinstance(note, Note) for note in log.notes)


def test_the_summary_shows_the_notes() -> None:
    log, _ = read_noting(SAMPLES / "yandex_odd.tsv")
    assert "noted         duplicate clicks: 1\n" in repr(log)
    assert max(map(len, repr(log).splitlines())) <= 80
    assert "<th>noted</th><td>duplicate clicks: 1</td>" in log._repr_html_()


def test_a_log_without_oddities_has_no_notes() -> None:
    log = read_log({"session": [1], "doc": ["a"], "rank": [1], "click": [0]})
    assert log.notes == ()
    assert "noted" not in repr(log)


@pytest.mark.filterwarnings("ignore")
def test_a_note_is_a_sentence() -> None:
    log: ClickLog = read_log(SAMPLES / "yandex_odd.tsv")
    what = {note.kind: str(note) for note in log.notes}
    assert what["duplicate clicks"] == "duplicate clicks: 1 (a result is clicked once)."
    assert "'S'" in what["unknown action names"]
