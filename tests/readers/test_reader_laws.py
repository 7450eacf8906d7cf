"""The fast readers against slow ones, and laws that hold whatever the log."""

from __future__ import annotations

import json
import random
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reader_helpers import MORE, SAMPLES, pages, read_noting

from gecasmo.errors import ClickLogWarning
from gecasmo.logs import ClickLog, read_log

visits = st.sampled_from(["1", "2", "x"])
urls = st.sampled_from(["10", "11", "12"])
query_lines = st.tuples(
    visits, st.integers(0, 4), st.just("Q"), st.sampled_from("ab"), st.lists(urls, max_size=4)
)
click_lines = st.tuples(visits, st.integers(0, 4), st.just("C"), urls)


def read_text(text: str, format: str) -> ClickLog:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.txt"
        path.write_text(text)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClickLogWarning)
            return read_log(path, format=format)


def slow_yandex(lines: list[tuple[Any, ...]]) -> tuple[list[Any], Counter[str]]:
    """One line after the other, as the page on readers tells it."""
    notes: Counter[str] = Counter()
    latest: dict[str, int] = {}
    for visit, time, *_ in lines:
        notes["events out of order"] += time < latest.get(visit, 0)
        latest[visit] = max(time, latest.get(visit, 0))
    found: dict[int, dict[str, Any]] = {}
    asked = {line[0] for line in lines if line[2] == "Q"}
    for number, line in sorted(enumerate(lines), key=lambda pair: (pair[1][1], pair[0])):
        before = [page for page in found.values() if page["visit"] == line[0]]
        if line[2] == "Q":
            found[number] = {"visit": line[0], "query": line[3], "urls": line[4], "clicks": set()}
            continue
        if line[0] not in asked:
            notes["events without a query"] += 1
            continue
        showing = [page for page in before if line[3] in page["urls"]]
        if not showing:
            notes["clicks on results never shown"] += 1
            continue
        page = showing[-1]
        notes["clicks on an earlier page"] += page is not before[-1]
        place = page["urls"].index(line[3])
        notes["duplicate clicks"] += place in page["clicks"]
        page["clicks"].add(place)
    in_file = [found[number] for number in sorted(found)]
    for page in in_file:
        notes["results shown twice on a page"] += len(page["urls"]) - len(set(page["urls"]))
        notes["pages without results"] += not page["urls"]
    repeated = Counter((page["visit"], page["query"]) for page in in_file)
    notes["repeated queries in a session"] += sum(count - 1 for count in repeated.values())
    expected = [
        (page["query"], [(int(u), i + 1, int(i in page["clicks"])) for i, u in enumerate(p)])
        for page in in_file
        for p in [page["urls"]]
    ]
    return expected, +notes


@settings(deadline=None, max_examples=30 * MORE)
@given(st.lists(query_lines | click_lines, min_size=1, max_size=14))
def test_yandex_reads_like_a_slow_reader(lines: list[tuple[Any, ...]]) -> None:
    lines = [*lines, ("1", 0, "Q", "a", ["10"])]
    texts = []
    for line in lines:
        rest = [line[3], "0", *line[4]] if line[2] == "Q" else [line[3]]
        texts.append("\t".join([line[0], str(line[1]), line[2], *rest]))
    log = read_text("\n".join(texts) + "\n", "yandex")
    expected, notes = slow_yandex(lines)
    assert pages(log) == expected
    assert {note.kind: note.count for note in log.notes} == dict(notes)


results = st.lists(
    st.tuples(st.sampled_from(["s1", "s2", "s3", "s4"]), st.integers(0, 2), st.integers(0, 1)),
    max_size=4,
    unique_by=lambda result: result[0],
)


def ubi_lines(shown: list[list[tuple[str, int, int]]]) -> list[str]:
    records: list[dict[str, Any]] = []
    for number, page in enumerate(shown):
        records.append({"query_id": f"q{number}", "user_query": f"words {number % 2}"})
        for rank, (doc, clicks, purchases) in enumerate(page, 1):
            place = {"object": {"object_id": doc}, "position": {"ordinal": rank}}
            for action, count in (("impression", 1), ("click", clicks), ("purchase", purchases)):
                event = {"action_name": action, "query_id": f"q{number}"}
                records += [event | {"event_attributes": place}] * count
    return [json.dumps(record) for record in records]


@settings(deadline=None, max_examples=30 * MORE)
@given(st.lists(results, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_ubi_records_plays_no_part(
    shown: list[list[tuple[str, int, int]]], order: random.Random
) -> None:
    lines = ubi_lines(shown)
    order.shuffle(lines)
    log = read_text("\n".join(lines), "ubi")
    by_id = dict(zip(log.sessions.to_list(), pages(log, "purchase"), strict=True))
    assert by_id == {
        f"q{number}": (
            f"words {number % 2}",
            [(doc, rank, int(c > 0), int(p > 0)) for rank, (doc, c, p) in enumerate(page, 1)],
        )
        for number, page in enumerate(shown)
    }
    repeats = sum(max(clicks - 1, 0) for page in shown for _, clicks, _ in page)
    noted = {note.kind: note.count for note in log.notes}
    assert noted.get("duplicate clicks", 0) == repeats
    assert set(noted) <= {"duplicate clicks", "pages without results"}


def as_parquet(tmp_path: Path, name: str, flat: bool) -> Path:
    """The records of a file of JSON lines as Parquet, with attributes nested or in columns."""
    records = [json.loads(line) for line in (SAMPLES / name).read_text().splitlines()]
    if flat:
        for record in records:
            attributes = record.pop("event_attributes", {})
            for part, values in attributes.items():
                for key, value in values.items():
                    record[f"event_attributes.{part}.{key}"] = value
    path = tmp_path / "ubi.parquet"
    pl.DataFrame(records, infer_schema_length=None).write_parquet(path)
    return path


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("name", ["ubi.ndjson", "ubi_odd.ndjson"])
def test_ubi_reads_the_same_from_parquet(tmp_path: Path, name: str, flat: bool) -> None:
    log, notes = read_noting(as_parquet(tmp_path, name, flat))
    expected, expected_notes = read_noting(SAMPLES / name)
    assert log.to_frame().equals(expected.to_frame())
    assert notes == expected_notes


def test_ubi_events_alone_make_a_log_without_queries() -> None:
    log, notes = read_noting(SAMPLES / "ubi_two_files" / "ubi_events.ndjson")
    whole = read_log(SAMPLES / "ubi.ndjson")
    assert not log.has_query
    assert [results for _, results in pages(log)] == [results for _, results in pages(whole)]
    assert notes == {"pages without a query text": 6}


def test_ubi_views_show_what_was_shown_where_nothing_else_does() -> None:
    lines = [line.replace('"impression"', '"view"') for line in ubi_lines([[("s1", 1, 0)]])]
    log = read_text("\n".join(lines), "ubi")
    assert pages(log) == [("words 0", [("s1", 1, 1)])]
    assert [note.kind for note in log.notes] == ["views"]


def test_ubi_records_of_an_index_dump() -> None:
    plain = ubi_lines([[("s1", 0, 0), ("s2", 1, 1)]])
    lines = [json.dumps({"_index": "ubi_x", "_source": json.loads(text)}) for text in plain]
    assert pages(read_text("\n".join(lines), "ubi")) == pages(read_text("\n".join(plain), "ubi"))
