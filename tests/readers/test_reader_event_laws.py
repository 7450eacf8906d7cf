"""Laws of events: their order, repeats and files play no part; and a log is the events of it."""

from __future__ import annotations

import json
import random
import tempfile
import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reader_helpers import MORE, SAMPLES, pages

from gecasmo.errors import ClickLogWarning
from gecasmo.logs import ClickLog, read_events, read_log

Shown = dict[str, tuple[str, list[tuple[str, bool, bool]]]]


def quietly(read: Any, *given: Any, **options: Any) -> ClickLog:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickLogWarning)
        log: ClickLog = read(*given, **options)
    return log


results = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.booleans(), st.booleans()),
    min_size=1,
    max_size=4,
    unique_by=lambda result: result[0],
)
shown_pages = st.dictionaries(
    st.sampled_from(["p1", "p2", "p3", "p4"]),
    st.tuples(st.sampled_from(["cats", "dogs"]), results),
    min_size=1,
    max_size=4,
)


def events_of(shown: Shown, positions: bool) -> list[dict[str, Any]]:
    """What would have been sent; times tell the order where there are no positions."""
    events: list[dict[str, Any]] = []
    for start, (page, (query, its)) in enumerate(shown.items()):
        for rank, (doc, clicked, bought) in enumerate(its, 1):
            event = {"page": page, "doc": doc, "query": query if rank == 1 else None}
            event["position"] = rank if positions else None
            kinds = ["impression", *["click"] * clicked, *["purchase"] * bought]
            for late, kind in enumerate(kinds):
                time = 1000 * start + rank + 100 * late
                events.append(event | {"event": kind, "time": time})
    return events


def by_page(log: ClickLog) -> dict[Any, Any]:
    signals = [name for name in ("purchase", "click_time", "time") if name in log.columns]
    return dict(zip(log.sessions.to_list(), pages(log, *signals), strict=True))


SCHEMA = {
    "page": pl.String,
    "event": pl.String,
    "doc": pl.String,
    "position": pl.Int64,
    "query": pl.String,
    "time": pl.Int64,
}


@settings(deadline=None, max_examples=30 * MORE)
@given(shown_pages, st.booleans(), st.randoms(use_true_random=False), st.booleans())
def test_order_repeats_and_files_play_no_part(
    shown: Shown, positions: bool, order: random.Random, split: bool
) -> None:
    events = events_of(shown, positions)
    log = quietly(read_events, pl.DataFrame(events, schema=SCHEMA))
    for page, (query, its) in shown.items():
        asked, found = by_page(log)[page]
        assert asked == query
        assert [row[:3] for row in found] == [
            (doc, rank, int(clicked)) for rank, (doc, clicked, _) in enumerate(its, 1)
        ]
    again = events + order.choices(events, k=order.randrange(4))
    order.shuffle(again)
    # A repeat that comes late is the same event, dated later.
    repeats = len(again) - len(events)
    if not split:
        other = quietly(read_events, pl.DataFrame(again, schema=SCHEMA))
    else:
        with tempfile.TemporaryDirectory() as folder:
            middle = order.randrange(len(again) + 1)
            for number, part in enumerate((again[:middle], again[middle:])):
                path = Path(folder) / f"{number}.parquet"
                pl.DataFrame(part, schema=SCHEMA).write_parquet(path)
            other = quietly(read_events, f"{folder}/*.parquet")
    assert by_page(other) == by_page(log)
    noted = sum(note.count for note in other.notes if note.kind.startswith("duplicate"))
    assert noted == repeats


@settings(deadline=None, max_examples=30 * MORE)
@given(shown_pages, st.booleans(), st.randoms(use_true_random=False))
def test_a_list_a_page_says_what_single_impressions_say(
    shown: Shown, positions: bool, order: random.Random
) -> None:
    events = events_of(shown, positions=True)
    log = quietly(read_events, pl.DataFrame(events, schema=SCHEMA))
    lists = []
    for page, (query, its) in shown.items():
        docs = [doc for doc, _, _ in its]
        ranks = list(range(1, len(docs) + 1)) if positions else None
        first = next(e["time"] for e in events if e["page"] == page)
        one = {"page": page, "event": "impression", "doc": docs, "position": ranks}
        lists.append(one | {"query": query, "time": first})
    done = [event for event in events if event["event"] != "impression"]
    lists += [e | {"doc": [e["doc"]], "position": [e["position"]]} for e in done]
    order.shuffle(lists)
    schema = SCHEMA | {"doc": pl.List(pl.String), "position": pl.List(pl.Int64)}
    other = quietly(read_events, pl.DataFrame(lists, schema=schema))
    assert by_page(other) == by_page(log)


@settings(deadline=None, max_examples=20 * MORE)
@given(shown_pages, st.booleans(), st.sampled_from(["e.parquet", "e.csv", "e.jsonl.gz"]), st.data())
def test_a_log_written_as_events_is_the_same_log(
    shown: Shown, timed: bool, name: str, data: st.DataObject
) -> None:
    rows = []
    for page, (query, its) in shown.items():
        ranks = sorted(data.draw(st.sets(st.integers(1, 9), min_size=len(its), max_size=len(its))))
        time = data.draw(st.integers(0, 99))
        for rank, (doc, clicked, bought) in zip(ranks, its, strict=True):
            price = data.draw(st.none() | st.integers(0, 5))
            row = {"session": page, "query": query, "doc": doc, "rank": rank, "click": clicked}
            row |= {"purchase": bought, "price": price}
            if timed:
                row |= {"time": time, "click_time": time + rank if clicked else None}
            rows.append(row)
    schema = {"price": pl.Int64, "click_time": pl.Int64}
    frame = pl.DataFrame(rows, schema_overrides={n: t for n, t in schema.items() if n in rows[0]})
    log = quietly(read_log, frame)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        log.write(path, format="events")
        again = quietly(read_log, path)
    assert again.columns[:5] == log.columns[:5]
    unsaid = {n for n in log.columns if log.column(n).null_count() == log.n_results}
    assert set(log.columns) - unsaid <= set(again.columns)
    names = [name for name in log.columns if name not in unsaid]
    assert again.to_frame().select(names).to_dicts() == log.to_frame().select(names).to_dicts()


def test_results_shown_twice_go_there_and_back(tmp_path: Path) -> None:
    log = read_log(
        {"session": [1] * 3, "doc": ["a", "b", "a"], "rank": [1, 2, 5], "click": [0, 0, 1]}
    )
    log.write(tmp_path / "e.csv", format="events")
    again = quietly(read_log, tmp_path / "e.csv")
    assert pages(again) == pages(log)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({"doc": [["a"], []], "click": [[1], []]}, "cannot hold pages without results"),
        ({"session": [1], "doc": [1], "rank": [1], "click": [1], "event": [1]}, "column 'event'"),
    ],
)
def test_what_events_cannot_hold(tmp_path: Path, frame: dict[str, Any], words: str) -> None:
    from gecasmo.errors import ClickLogError

    log = quietly(read_log, frame)
    with pytest.raises(ClickLogError, match=words):
        log.write(tmp_path / "e.parquet", format="events")


@pytest.mark.parametrize("name", ["ubi.ndjson", "ubi_odd.ndjson"])
def test_ubi_is_one_mapping_of_events(name: str) -> None:
    """Its events by themselves, handed to `read_events`, are the pages that its reader makes."""
    records = [json.loads(line) for line in (SAMPLES / name).read_text().splitlines()]
    queries = {r["query_id"]: r for r in reversed(records) if "action_name" not in r}
    events = [r for r in records if "action_name" in r]
    for event in events:
        event["user_query"] = queries.get(event.get("query_id"), {}).get("user_query")
    log = quietly(read_log, SAMPLES / name)
    table = pl.DataFrame(events, infer_schema_length=None)
    mapped = quietly(
        read_events,
        table,
        page="query_id",
        event="action_name",
        doc="event_attributes.object.object_id",
        position="event_attributes.position.ordinal",
        query="user_query",
        time="timestamp",
    )
    names = [n for n in ("cart", "purchase", "click_time") if n in mapped.columns]
    told = {event["query_id"] for event in events if event["action_name"] == "impression"}
    expected = dict(zip(log.sessions.to_list(), pages(log, *names), strict=True))
    found = dict(zip(mapped.sessions.to_list(), pages(mapped, *names), strict=True))
    assert found == {page: its for page, its in expected.items() if page in told}
    assert found
