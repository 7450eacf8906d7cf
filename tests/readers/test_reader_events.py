"""Streams of events: what makes pages, what is odd and counted, and what is refused."""

from __future__ import annotations

import datetime
import json
import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from reader_helpers import SAMPLES, pages

import gecasmo
from gecasmo.errors import ClickLogError, ClickLogWarning
from gecasmo.logs import ClickLog, read_events

SHOP = SAMPLES / "events" / "shop.csv"
Noted = tuple[ClickLog, dict[str, int]]


def noting(source: Any, **options: Any) -> Noted:
    """Read events, and return the notes; there is one warning if there are any."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        log = read_events(source, **options)
    assert [warning.category for warning in caught] == [ClickLogWarning] * bool(log.notes)
    return log, {note.kind: note.count for note in log.notes}


def stream(*events: tuple[Any, ...], columns: str = "page event doc position query time") -> Any:
    names = columns.split()
    rows = [(*event, *[None] * (len(names) - len(event))) for event in events]
    return pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None)


def test_it_is_public() -> None:
    assert gecasmo.read_events is read_events
    assert "read_events" in gecasmo.__all__


def test_a_shop_with_other_names() -> None:
    log, notes = noting(SHOP)
    assert pages(log, "cart") == [
        ("cats", [("a", 1, 0, 0), ("b", 2, 1, 1)]),
        ("dogs", [("a", 1, 0, 0), ("b", 2, 1, 0)]),
    ]
    assert log.sessions.to_list() == ["s1", "s2"]
    assert log.session_column("device").to_list() == ["phone", "desktop"]
    first, second = (datetime.datetime(2026, 3, 1, 10, n, tzinfo=datetime.UTC) for n in (0, 5))
    assert log.session_column("time").to_list() == [first, second]
    clicked = [
        None,
        first + datetime.timedelta(seconds=4),
        None,
        second + datetime.timedelta(seconds=60),
    ]
    assert log.column("click_time").to_list() == clicked
    assert notes == {
        "columns guessed": 8,
        "events of other kinds": 1,
        "positions from 0": 2,
        "events of pages never shown": 1,
        "clicks on results never shown": 1,
        "duplicate clicks": 1,
    }
    told = {note.kind: str(note) for note in log.notes}
    assert 'page="sid"' in told["columns guessed"]
    assert "signals={'cart': 'add_to_cart'}" in told["columns guessed"]
    assert "'scroll'" in told["events of other kinds"]


def test_what_is_said_is_not_guessed() -> None:
    log, notes = noting(
        SHOP,
        page="sid",
        event="type",
        doc="sku",
        position="pos",
        query="q",
        time="ts",
        impression="view",
        click="add_to_cart",
        signals={"clicked": "click"},
    )
    assert "columns guessed" not in notes
    assert log.click.tolist() == [False, True, False, False]
    assert log.column("clicked").to_list() == [False, True, False, True]


def test_views_are_impressions_only_where_nothing_else_is() -> None:
    shown = [("p", "impression", "a", 1), ("p", "view", "b", 2), ("p", "click", "a", 1)]
    log, notes = noting(stream(*shown))
    assert pages(log) == [(None, [("a", 1, 1)])]
    assert notes == {"events of other kinds": 1}
    log, notes = noting(stream(*shown[1:]), query=None)
    assert pages(log) == [(None, [("b", 2, 0)])]
    assert notes["clicks on results never shown"] == 1


def test_an_event_a_page_with_a_list_of_documents() -> None:
    events = {
        "page": [1, 1, 2],
        "event": ["impression", "click", "impression"],
        "doc": [["a", "b"], ["b"], ["c"]],
        "query": ["x", None, "y"],
    }
    log, notes = noting(events)
    assert pages(log) == [("x", [("a", 1, 0), ("b", 2, 1)]), ("y", [("c", 1, 0)])]
    assert notes == {"lists without positions": 2}
    placed = events | {"position": [[3, 5], [5], [1]]}
    log, notes = noting(placed)
    assert pages(log)[0] == ("x", [("a", 3, 0), ("b", 5, 1)])
    assert notes == {}


def test_lists_that_come_screen_by_screen() -> None:
    events = {
        "page": [1, 1, 1],
        "event": ["impression", "impression", "click"],
        "doc": [["c", "d"], ["a", "b"], ["c"]],
        "time": [20, 10, 30],
    }
    log, notes = noting(events)
    assert pages(log) == [(None, [("a", 1, 0), ("b", 2, 0), ("c", 3, 1), ("d", 4, 0)])]
    assert notes == {"lists without positions": 2, "pages with two results on one position": 1}


def test_fields_inside_of_columns() -> None:
    events = pl.DataFrame(
        {
            "page": ["p", "p"],
            "event": ["impression", "click"],
            "more": ['{"items": [{"id": 7}, {"id": 8}], "q": "x"}', '{"item": {"id": 8}}'],
            "params": [[{"key": "visit", "value": {"int": 5, "text": None}}], []],
        }
    )
    log, _ = noting(events, doc="more.items.id|more.item.id", query="more.q")
    assert pages(log) == [("x", [(7, 1, 0), (8, 2, 1)])]
    log, notes = noting(events, page="params.visit", doc="more.items.id|more.item.id", query=None)
    assert log.sessions.to_list() == [5]
    assert notes["events without a page"] == 1
    with pytest.raises(ClickLogError, match=r"lacks the column 'more\.items\.sku'"):
        read_events(events, doc="more.items.sku")


ROLES = {"page": "s", "doc": "properties.id", "position": "properties.pos"}


@pytest.mark.parametrize("other", ["", "  ", "{broken", "null", '{"price": {"eur": 1}}', "[1]"])
def test_json_text_that_some_events_have_otherwise(other: str) -> None:
    """What is said of the other event plays no part, and hides nothing of these."""
    events = {
        "s": ["1", "1", "1", "1"],
        "event": ["impression", "impression", "scroll", "click"],
        "properties": [
            '{"id": 7, "pos": 1, "price": 2.5}',
            '{"id": "x2", "pos": "2", "price": [1, "a", {"b": 2}]}',
            other,
            '{"id": "x2"}',
        ],
    }
    log, notes = noting(events, **ROLES)
    assert log.column("doc").to_list() == ["7", "x2"]
    assert (log.rank.tolist(), log.click.tolist()) == ([1, 2], [False, True])
    broken = {"texts in 'properties' that are no JSON": 1} if "broken" in other else {}
    assert notes == {"events of other kinds": 1} | broken


def test_columns_without_json_have_no_fields() -> None:
    with pytest.raises(ClickLogError, match=r"lacks the columns 'properties\.id' and"):
        read_events({"s": [1], "event": ["impression"], "properties": ["{broken"]}, **ROLES)


def test_lists_that_are_json_text(tmp_path: Path) -> None:
    """CSV has no other lists."""
    path = tmp_path / "events.csv"
    path.write_text(
        'page,event,doc,position\n1,impression,"[""a"", ""b"", 3]","[2, 3, 4]"\n1,click,b,\n'
        "2,impression,c,1\n"
    )
    log, _ = noting(path)
    assert log.column("doc").to_list() == ["a", "b", "3", "c"]
    assert (log.rank.tolist(), log.click.tolist()) == ([2, 3, 4, 1], [0, 1, 0, 0])
    for name in ("[sic]", "[1]"):
        named = {"page": [1, 1], "event": ["impression", "click"], "doc": [name, name]}
        assert noting(named)[0].column("doc").to_list() == [name]


def test_a_list_of_events_as_json_has_them() -> None:
    """Positions may be texts of floats, and an empty list an empty object, as PHP writes them."""
    shown = [{"id": "a", "at": "1.0"}, {"id": "b", "at": "2.0"}]
    events = [
        {"page": 1, "event": "impression", "properties": json.dumps({"items": shown})},
        {"page": 1, "event": "click", "properties": json.dumps({"items": shown[1:]})},
        {"page": 1, "event": "scroll", "properties": json.dumps({"items": {}})},
    ]
    named = {"doc": "properties.items.id", "position": "properties.items.at"}
    log, _ = noting(events, **named)
    assert pages(log) == [(None, [("a", 1, 0), ("b", 2, 1)])]


def test_whole_numbers_that_floats_hold() -> None:
    """Integers beside missing values are floats in pandas."""
    nan = float("nan")
    events = {
        "page": [1.0, 1.0, nan, 1.0],
        "event": ["impression", "impression", "login", "click"],
        "doc": [8.0, 9.0, nan, 9.0],
    }
    log, _ = noting(events)
    assert log.to_frame().select("session", "doc", "click").rows() == [(1, 8, False), (1, 9, True)]
    for column in ("page", "doc"):
        with pytest.raises(ClickLogError, match=f"{column}: the column holds Float64, and floats"):
            read_events(events | {column: [1.5, 1.0, 1.0, 1.0]})


def test_a_page_can_be_several_columns() -> None:
    events = stream(
        ("v", "impression", "a", 1, "x"),
        ("v", "impression", "a", 1, "y"),
        ("v", "click", "a", 1, "y"),
    )
    with pytest.raises(ClickLogError) as caught:
        read_events(events)
    said = str(caught.value)
    assert "query: 1 page with more than one query, first: page 'v' has 'x' and 'y'" in said
    unsaid = stream(*events.rows()[:2], ("v", "click", "a", 1))
    with pytest.raises(ClickLogError, match='has several searches, try gap="30m", which'):
        read_events(unsaid)
    assert 'page=["page", "query"]' in said
    assert 'gap="30m"' in said
    log, _ = noting(events, page=["page", "query"])
    assert pages(log) == [("x", [("a", 1, 0)]), ("y", [("a", 1, 1)])]


VISIT = stream(
    ("v", "impression", "a", 1, "x", 0),
    ("v", "impression", "b", 2, "x", 1),
    ("v", "click", "b", 2, None, 5),
    ("v", "impression", "b", 1, "x", 100),
    ("v", "impression", "c", 2, "x", 100),
    ("v", "click", "b", 1, None, 90),
    ("v", "click", "a", None, None, 120),
    ("v", "impression", "c", 1, "y", 110),
    ("v", "click", "c", None, None, 111),
    ("w", "impression", "a", 1, "x", 0),
    ("w", "click", "z", 1, "x", None),
)


def test_a_gap_tells_lists_of_a_visit_apart() -> None:
    log, notes = noting(VISIT, gap=50)
    assert dict(zip(log.sessions.to_list(), pages(log), strict=True)) == {
        "v-1": ("x", [("a", 1, 1), ("b", 2, 1)]),
        "v-2": ("x", [("b", 1, 0), ("c", 2, 0)]),
        "v-3": ("y", [("c", 1, 1)]),
        "w-1": ("x", [("a", 1, 0)]),
    }
    assert notes == {
        "events without a time": 1,
        "pages with several lists": 1,
        "duplicate clicks": 1,
    }
    struct, _ = noting(VISIT.with_columns(user=1), page=["user", "page"], gap=50)
    assert struct.sessions[1] == {"user": 1, "page": "v", "list": 2}
    assert pages(struct) == pages(log)


def test_a_gap_of_moments_is_a_text() -> None:
    moments = VISIT.with_columns(pl.col("time").cast(pl.Int64).cast(pl.Datetime("ms")))
    log, _ = noting(moments, gap="50ms")
    assert pages(log) == pages(noting(VISIT, gap=50)[0])
    for source, gap, words in (
        (moments, "soon", r'gap=\'soon\'\): a text such as "30m" is wanted'),
        (VISIT, "30m", "a number, in the unit of the times, is wanted"),
        (VISIT.drop("time"), 5, r"gaps need times, and there are none; name their column: time=\."),
    ):
        with pytest.raises(ClickLogError, match=words):
            read_events(source, gap=gap)


def test_without_positions_times_tell_and_then_rows() -> None:
    shown = [("p", "impression", "b", None, None, 9), ("p", "impression", "a", None, None, 3)]
    log, notes = noting(stream(*shown))
    assert [doc for doc, *_ in pages(log)[0][1]] == ["a", "b"]
    assert notes == {"no clicks": 1, "pages without positions": 1}
    log, _ = noting(stream(*shown), time=None, position=None)
    assert [doc for doc, *_ in pages(log)[0][1]] == ["b", "a"]
    assert "click_time" not in log.columns


def test_positions_that_are_text() -> None:
    log, notes = noting(stream(("p", "impression", "a", "1"), ("p", "impression", "b", " 2")))
    assert log.rank.tolist() == [1, 2]
    assert notes == {"no clicks": 1}


IMPRESSION = ("p", "impression", "a", 1, "q", 5)


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ((None, "click", "a", 1), "events without a page"),
        (("p", None, "a", 1), "events of other kinds"),
        (("p", "click", None, 1), "events without a document"),
        (("p", "impression", None, 1), "events without a document"),
        (("r", "impression", "a", 1), "pages without a query"),
    ],
)
def test_nulls_are_counted(event: tuple[Any, ...], kind: str) -> None:
    log, notes = noting(stream(IMPRESSION, ("p", "click", "a", 1), event))
    assert notes == {kind: 1}
    assert pages(log) == [("q", [("a", 1, 1)])]
    assert next(note for note in log.notes if note.kind == kind).examples == ("row 2",)


@pytest.mark.parametrize("event", [("p", "click", "a", None), ("p", "click", "a", 1, None, None)])
def test_nulls_that_do_no_harm(event: tuple[Any, ...]) -> None:
    log, notes = noting(stream(IMPRESSION, event))
    assert notes == {}
    assert log.click.tolist() == [True]


def test_times_that_cannot_be_read() -> None:
    texts = stream(("p", "impression", "a", 1, "q", "2026-03-01 10:00:00 UTC"), ("p", "click", "a"))
    odd = texts.with_columns(time=pl.Series(["2026-03-01 10:00:00 UTC", "soon"]))
    log, notes = noting(odd)
    assert notes == {"unreadable times": 1}
    assert log.session_column("time")[0].isoformat() == "2026-03-01T10:00:00+00:00"
    assert "click_time" not in log.columns
    with pytest.raises(
        ClickLogError, match=r"time: no value is a time; row 0 has 'soon'\..*time=N"
    ):
        read_events(odd.with_columns(time=pl.lit("soon")))


CLICKS = stream(("p", "click", "a", 1), ("p", "click", "b", 2), ("r", "purchase", "b", 2))


@pytest.mark.parametrize(
    ("source", "options", "words"),
    [
        (CLICKS, {}, r"No event is an impression.*'click' \(2\).*There are 2 clicks"),
        (CLICKS, {}, r"impression=\.\.\..*the log of the search engine has them.*read_counts"),
        (
            CLICKS,
            {"impression": "shown"},
            r"\(impression='shown'\): no event has that name.*'click'",
        ),
        (
            CLICKS,
            {"signals": {"cart": "atc"}},
            r"signals=\{'cart': 'atc'\}\): no event has that name",
        ),
        (CLICKS, {"impression": "click", "click": "click"}, r"'click' is 'impression' already"),
        (CLICKS, {"signals": {"doc": "click"}}, "'doc' cannot be the name of a new column"),
        (CLICKS, {"doc": "sku"}, r"lacks the column 'sku'.*It has: page, event, doc"),
        (CLICKS, {"page": None}, r"\(page=None\): events need one"),
        (CLICKS, {"doc": ["a", "b"]}, "doc is one column; only page can be several"),
        (CLICKS.drop("event"), {}, "lacks the column 'event'.*event=.*read by read_log"),
        (CLICKS.drop("event"), {}, r"read by read_log\..*Is every row a click\? Then impr"),
        (CLICKS.drop("event", "page"), {}, r"'page' and 'event'.*Is every row a click\? Then impr"),
        (CLICKS.rename({"event": "action_name", "doc": "event_attributes"}), {}, 'format="ubi"'),
        (
            stream(IMPRESSION, ("p", "impression", "b", "abc")),
            {},
            r"position: 1 value is not a whole number .*row 1 has 'abc'",
        ),
        (
            stream(IMPRESSION, ("p", "click", "b", -2)),
            {},
            "position: 1 value is negative, first: row 1",
        ),
        (
            {"page": [1], "event": ["impression"], "doc": [["a", "b"]], "position": [[1]]},
            {},
            "1 event with lists of different lengths, first: row 0 has 2 documents and 1 values",
        ),
    ],
)
def test_what_is_refused(source: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ClickLogError, match=f"(?s){words}"):
        read_events(source, **options)


def test_two_documents_at_one_position() -> None:
    log, notes = noting(
        stream(
            ("p", "impression", "b", 1, "q", 1),
            ("p", "impression", "a", 1, "q", 2),
            ("p", "click", "a", 1),
        )
    )
    assert pages(log) == [("q", [("b", 1, 0), ("a", 2, 1)])]
    assert notes == {"pages with two results on one position": 1}


def test_columns_that_cannot_be_kept_are_named() -> None:
    events = stream(IMPRESSION, ("p", "click", "a")).with_columns(
        rank=7, tags=pl.Series([["x"], []]), device=pl.lit("phone")
    )
    log, _ = noting(events)
    assert "device" in log.columns
    told = [str(note) for note in log.notes if note.kind == "columns left out"]
    assert told == [
        "the column 'rank' was left out: it has the name of a column of logs.",
        "the column 'tags' was left out: it has lists or objects.",
    ]


def test_click_times_survive(tmp_path: Path) -> None:
    log, _ = noting(SHOP)
    log.write(tmp_path / "a.parquet")
    for again in (log.take([0, 1]), gecasmo.read_log(tmp_path / "a.parquet")):
        assert again.column("click_time").to_list() == log.column("click_time").to_list()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickLogWarning)
        stored = ClickLog.ingest(log, tmp_path / "c.gclog", keep=["session", "click_time"])
    found = [part.to_frame() for part in stored.partitions()]
    kept = pl.concat(found).sort("session", "rank")["click_time"]
    assert kept.to_list() == log.column("click_time").to_list()
    early, late = log.split(test=0.5, time="time")
    assert (early.sessions.to_list(), late.sessions.to_list()) == (["s1"], ["s2"])
    assert late.column("click_time").to_list() == log.column("click_time").to_list()[2:]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("way", ["lines", "list", "response", "dump", "two files"])
def test_json_of_every_shape(tmp_path: Path, way: str, indent: int | None) -> None:
    """Also such as a search engine gives, whose columns are guessed as in lines."""
    rows = [
        {"search_id": "s1", "type": "view", "sku": "a", "position": "1", "q": "cats"},
        {"search_id": "s1", "type": "view", "sku": "b", "position": "2"},
        {"search_id": "s1", "type": "click", "sku": "b"},
    ]
    hits = [{"_index": "events", "_id": str(n), "_source": row} for n, row in enumerate(rows)]
    texts = {
        "lines": ["\n".join(map(json.dumps, rows))],
        "list": [json.dumps(rows, indent=indent)],
        "response": [json.dumps({"took": 3, "hits": {"total": 3, "hits": hits}}, indent=indent)],
        "dump": ["\n".join(map(json.dumps, hits))],
        "two files": [json.dumps(rows[:1], indent=indent), json.dumps(rows[1:], indent=indent)],
    }[way]
    for n, text in enumerate(texts):
        (tmp_path / f"{n}.json").write_text(text, encoding="utf-8")
    log, _ = noting(str(tmp_path / "*.json"))
    assert pages(log) == [("cats", [("a", 1, 0), ("b", 2, 1)])]


def test_a_table_in_a_response_is_read_and_ingested(tmp_path: Path) -> None:
    rows = [
        {"session": 1, "query": "cats", "doc": doc, "rank": n + 1, "click": n}
        for n, doc in enumerate("ab")
    ]
    response = {"took": 1, "hits": {"hits": [{"_source": row} for row in rows]}}
    path = tmp_path / "found.json"
    path.write_text(json.dumps(response, indent=1), encoding="utf-8")
    assert pages(gecasmo.read_log(path)) == [("cats", [("a", 1, 0), ("b", 2, 1)])]
    stored = ClickLog.ingest(path, tmp_path / "found.gclog")
    assert (stored.n_sessions, stored.n_clicks) == (1, 1)


def test_read_log_says_which_reader_is_meant() -> None:
    with pytest.raises(ClickLogError, match=r"Is a row an event.* read_events reads it"):
        gecasmo.read_log(stream(IMPRESSION).rename({"page": "session", "position": "rank"}))
