"""Columns guessed from their names."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gecasmo.logs.guessing import guess_roles
from gecasmo.logs.suggestions import SYNONYMS


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


names = [name for text in SYNONYMS.values() for name in text.split()]


@settings(deadline=None)
@given(st.lists(st.sampled_from([*names, *SYNONYMS, "price"]), unique=True))
def test_no_column_plays_two_parts(columns: list[str]) -> None:
    guessed = guess_roles(columns)
    assert len(set(guessed.values())) == len(guessed)
    assert set(guessed.values()) <= set(columns)
    assert not set(guessed) & set(columns)
    assert not set(guessed.values()) & {"session", "query", "doc", "rank", "click"}
