"""Columns guessed from their names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reader_helpers import pages, read_noting

from gecasmo.errors import ClickLogError
from gecasmo.logs import read_log
from gecasmo.logs.roles import LISTS, SYNONYMS, guess_roles


def test_usual_names() -> None:
    columns = ["sid", "search_term", "product_id", "position", "clicked", "price"]
    assert guess_roles(columns) == {
        "session": "sid",
        "query": "search_term",
        "doc": "product_id",
        "rank": "position",
        "click": "clicked",
    }


def test_spelling_does_not_matter() -> None:
    assert guess_roles(["SessionID", "Query ID", "docId", "Pos", "is-clicked"]) == {
        "session": "SessionID",
        "query": "Query ID",
        "doc": "docId",
        "rank": "Pos",
        "click": "is-clicked",
    }


def test_what_has_its_own_name_is_not_guessed() -> None:
    assert guess_roles(["session", "query", "doc", "rank", "click", "url", "sid"]) == {}


def test_nothing_is_made_up() -> None:
    assert guess_roles(["a", "b"]) == {}
    assert guess_roles([]) == {}


def test_a_weight_is_never_guessed() -> None:
    assert "weight" not in guess_roles(["sid", "url", "n", "count", "weights"])


@pytest.mark.parametrize(
    "name", ["results", "docs", "urls", "items", "products", "documents", "hits", "doc_ids"]
)
def test_lists_go_by_plurals(name: str, tmp_path: Path) -> None:
    columns = ["sessionId", "q", name, "positions", "clicks", "user"]
    expected = {"session": "sessionId", "query": "q", "doc": name, "rank": "positions"}
    assert guess_roles(columns) == expected | {"click": "clicks"}
    path = tmp_path / "log.ndjson"
    page = {"sessionId": "s", "q": "w", name: ["a", "b"], "clicks": [0, 2], "user": 7}
    path.write_text(json.dumps(page | {"positions": [2, 1]}))
    log, _ = read_noting(path, **guess_roles(columns))
    assert pages(log) == [("w", [("b", 1, 1), ("a", 2, 0)])]


def test_the_one_name_comes_before_the_many() -> None:
    assert guess_roles(["results", "url", "ranks"])["doc"] == "url"


@pytest.mark.parametrize("name", ["results", "items", "products", "hits"])
@pytest.mark.parametrize("rank", ["rank", "position"])
def test_beside_a_rank_a_plural_is_a_number(name: str, rank: str) -> None:
    assert "doc" not in guess_roles(["sid", name, rank, "clicked"])
    assert guess_roles(["sid", "urls", rank, "clicked"])["doc"] == "urls"


NESTED = {"sid": ["s"], "shown": [["a"]], "clicks": [[1]], "user": [3], "results": [10]}


def message(columns: dict[str, Any], **roles: Any) -> str:
    with pytest.raises(ClickLogError) as caught:
        read_log(columns, **roles)
    return str(caught.value)


def test_the_only_other_list_has_the_documents() -> None:
    said = message(NESTED, session="sid", click="clicks")
    assert said.startswith("The dict lacks the column 'doc'.\n  It has: sid, shown, clicks, user")
    assert said.endswith('read_log(data, session="sid", doc="shown", click="clicks")')


def test_what_cannot_be_guessed_is_asked_for() -> None:
    said = message(NESTED | {"prices": [[1]]}, session="sid", click="clicks")
    assert said.splitlines() == [
        "The dict lacks the column 'doc'.",
        "  It has: sid, shown, clicks, user, results, prices.",
        '  Taken: session="sid", click="clicks".',
        "  Say which column it is: doc=...; not taken are shown, user, results, prices.",
    ]


def test_a_nested_log_is_not_asked_for_ranks() -> None:
    columns = NESTED | {"dooc": [["a"]], "clik": [[1]]}
    del columns["shown"], columns["sid"], columns["clicks"]
    said = message(columns)
    assert said.startswith("The dict lacks the columns 'doc' and 'click'.")
    assert said.endswith('Perhaps: read_log(data, doc="dooc", click="clik")')


def test_a_column_may_be_the_query_and_a_part_of_the_page() -> None:
    columns = ["session_id", "search_term", "sku", "position", "clicked"]
    named = {"session": ["session_id", "search_term"]}
    assert guess_roles(columns, named)["query"] == "search_term"
    assert "query" not in guess_roles(columns, {"session": "search_term"})
    assert guess_roles([*columns, "qid"], named)["query"] == "qid"


names = [name for text in (*SYNONYMS.values(), *LISTS.values()) for name in text.split()]


@settings(deadline=None)
@given(st.lists(st.sampled_from([*names, *SYNONYMS, "price"]), unique=True))
def test_no_column_plays_two_parts(columns: list[str]) -> None:
    guessed = guess_roles(columns)
    assert len(set(guessed.values())) == len(guessed)
    assert set(guessed.values()) <= set(columns)
    assert not set(guessed) & set(columns)
    assert not set(guessed.values()) & {"session", "query", "doc", "rank", "click"}


def test_names_of_shops_and_of_events() -> None:
    columns = ["visit_id", "query_id", "user_query", "sku", "position", "click_count"]
    assert guess_roles(columns) == {
        "session": "visit_id",
        "query": "user_query",
        "doc": "sku",
        "rank": "position",
        "click": "click_count",
    }
    assert guess_roles(["session", "asin", "rank", "click"]) == {"doc": "asin"}
    assert guess_roles(["session", "object_id", "rank", "click"]) == {"doc": "object_id"}
