"""Samples written by hand, in every format, against pages written by hand."""

from __future__ import annotations

from typing import Any

import pytest
from reader_helpers import SAMPLES, pages, read_noting

from gecasmo.logs import read_log


def page(query: object, text: str) -> tuple[Any, list[tuple[Any, ...]]]:
    """Read "a b* c" as a page of three results with a click on the second; digits are numbers."""
    results = []
    for rank, word in enumerate(text.split(), 1):
        doc = word.rstrip("*")
        results.append((int(doc) if doc.isdecimal() else doc, rank, int(word.endswith("*"))))
    return query, results


TABLE = [
    page("cats", "a b*"),
    page("dogs", "c* a"),
    page("cats", "b* a"),
    page("dogs", "c a"),
    page("cats", "a* b"),
]
UBI = [
    page("red shoes", "s1 s2* s3"),
    page("rain coat", "s4* s2"),
    page("red shoes", "s2* s1 s3*"),
    page("rain coat", "s2 s4"),
    page("red shoes", "s1* s2 s3"),
    page("rain coat", "s4 s2*"),
]
YANDEX = [
    page(8, "71 12* 40 33"),
    page(9, "55* 40 61"),
    page(8, "12* 71 33* 40"),
    page(8, "71 12 33 40"),
    page(9, "40 55* 61"),
    page(8, "71* 12 40 33"),
    page(9, "55* 61* 40"),
    page(8, "33 12 71 40"),
]
CLICKMODELS = [
    page("red shoes", "u1 u2* u3"),
    page("rain coat", "u4* u5 u2*"),
    page("red shoes", "u2* u1 u3"),
    page("red shoes", "u1 u3 u2"),
    page("rain coat", "u5 u4* u2"),
    page("rain coat", "u4* u2 u5"),
]
PYCLICKMODELS = [
    page("red shoes", "d0 d1* d2*"),
    page("red shoes", "d0* d1 d2"),
    page("red shoes", "d1* d0 d2"),
    page("rain coat", "d3* d2"),
    page("rain coat", "d2 d3*"),
    page("rain coat", "d3 d2"),
]
BAIDU = [
    page(17, "3 9* 5"),
    page(18, "4* 2"),
    page(17, "9* 3 5*"),
    page(17, "3 5 9"),
    page(18, "2 4*"),
    page(18, "4* 2 7"),
]
TREC_SESSION = [
    page("red shoes", "cw-1 cw-2* cw-3"),
    page("red leather shoes & boots", "cw-2* cw-4*"),
    page("red shoes", "cw-2* cw-1 cw-3*"),
    page("rain coat", "cw-5 cw-6"),
    page("raincoat größe", "cw-6* cw-5"),
    page("red shoes", "cw-1* cw-2 cw-3"),
]
EXPECTED = {
    "table.csv": ("table", TABLE),
    "table.tsv": ("table", TABLE),
    "table.jsonl": ("table", TABLE),
    "nested.jsonl": ("table", TABLE),
    "ubi.ndjson": ("ubi", UBI),
    "ubi_bulk.ndjson": ("ubi", UBI[:2]),
    "yandex.tsv": ("yandex", YANDEX),
    "clickmodels.tsv": ("clickmodels", CLICKMODELS),
    "pyclickmodels.jsonl": ("pyclickmodels", PYCLICKMODELS),
    "baidu.parquet": ("baidu", BAIDU),
    "trec_session.xml": ("trec-session", TREC_SESSION),
}


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("is_told", [True, False])
def test_a_sample_has_the_pages_we_wrote(name: str, is_told: bool) -> None:
    format, expected = EXPECTED[name]
    log, notes = read_noting(SAMPLES / name, format=format if is_told else None)
    assert pages(log) == expected
    assert notes == {}


def test_ubi_has_carts_purchases_and_times() -> None:
    log = read_log(SAMPLES / "ubi.ndjson")
    assert log.sessions.to_list() == ["q1", "q2", "q3", "q4", "q5", "q6"]
    carts = log.column("doc").filter(log.column("cart")).to_list()
    bought = log.column("doc").filter(log.column("purchase")).to_list()
    assert (carts, bought) == (["s2", "s1"], ["s2"])
    assert log.session_column("client_id").to_list() == ["c1", "c2", "c3", "c4", "c5", "c6"]
    assert [moment.minute for moment in log.session_column("timestamp")] == [0, 5, 9, 12, 20, 31]
    past, future = log.split(test=0.4, time="timestamp")
    assert future.sessions.to_list() == ["q5", "q6"]
    assert past.sessions.to_list() == ["q1", "q2", "q3", "q4"]


@pytest.mark.parametrize("keys", [("queries", "events"), ("events", "queries")])
def test_ubi_is_read_from_two_files(keys: tuple[str, str]) -> None:
    folder = SAMPLES / "ubi_two_files"
    log = read_log({key: folder / f"ubi_{key}.ndjson" for key in keys})
    assert pages(log) == UBI


def test_ubi_is_read_from_a_folder_and_a_glob() -> None:
    assert pages(read_log(SAMPLES / "ubi_two_files", format="ubi")) == UBI
    assert pages(read_log(SAMPLES / "ubi_two_files" / "ubi_*.ndjson")) == UBI


def test_a_signal_can_play_the_click() -> None:
    log, notes = read_noting(SAMPLES / "ubi.ndjson", click="purchase")
    assert [doc for _, results in pages(log) for doc, _, click in results if click] == ["s2"]
    assert notes == {}
    assert "click" in log.columns


def test_yandex_keeps_the_session_the_region_and_the_time() -> None:
    log = read_log(SAMPLES / "yandex.tsv")
    assert log.sessions.to_list()[:3] == ["34-1", "34-2", "35-1"]
    assert log.session_column("visit").to_list() == [34, 34, 35, 36, 37, 38, 39, 40]
    assert log.session_column("region").to_list() == [1, 1, 1, 2, 1, 1, 1, 1]
    assert log.session_column("time_passed").to_list() == [0, 40, 0, 0, 0, 0, 0, 0]


def test_clickmodels_keeps_region_intent_and_layout() -> None:
    log = read_log(SAMPLES / "clickmodels.tsv")
    assert log.sessions.to_list() == ["a1", "a2", "a3", "a4", "a5", "a6"]
    assert log.session_column("intent_weight").to_list() == [0.25, 0, 0.25, 0.5, 0, 0]
    assert log.column("layout").to_list()[:6] == [False, True, False, False, False, False]


def test_pyclickmodels_has_purchases() -> None:
    log = read_log(SAMPLES / "pyclickmodels.jsonl")
    assert pages(log, "purchase")[0] == (
        "red shoes",
        [("d0", 1, 0, 0), ("d1", 2, 1, 0), ("d2", 3, 1, 1)],
    )


def test_pyclickmodels_queries_are_all_search_keys_together() -> None:
    log = read_log(SAMPLES / "pyclickmodels_context.jsonl")
    assert pages(log) == [
        page("red shoes|south|10", "d0 d1*"),
        page("red shoes|north|10", "d1* d0"),
    ]
    assert log.session_column("region").to_list() == ["south", "north"]
    words = read_log(
        SAMPLES / "pyclickmodels_context.jsonl", query="search_term", format="pyclickmodels"
    )
    assert words.session_column("query").to_list() == ["red shoes", "red shoes"]
