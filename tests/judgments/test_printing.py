"""Texts that are safe to show in a terminal and in a chart."""

from __future__ import annotations

import unicodedata
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gecasmo.judgments.printing import fitted, printable, printable_lines

ANYTHING = st.text(st.characters(categories=None))  # halves of characters, too


@given(ANYTHING)
@example("\x1b[31mred\x07\x00\x7f\x9b\u2028\u202e\u2066\ud83d\ufffe\uffff")
def test_nothing_harmful_is_left(text):
    shown = printable(text)
    assert len(shown) == len(text)
    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cs", "Zl", "Zp"}
    shown.encode()
    mended = ElementTree.fromstring(f"<a>{shown.replace('&', '').replace('<', '')}</a>").text or ""
    assert mended == shown.replace("&", "").replace("<", "")
    assert printable(shown) == shown
    assert all(was == is_ or is_ == "?" for was, is_ in zip(text, shown, strict=True))


@given(ANYTHING)
def test_lines_and_tabs_stay_where_they_are_ours(text):
    shown = printable_lines(text)
    for was, is_ in zip(text, shown, strict=True):
        assert is_ == (was if was in "\n\t" else printable(was))


@pytest.mark.parametrize(
    "text",
    ["red shoes", "赤い\u3000靴", "می\u200cخواهم", "👩\u200d💻", "a\u00a0b", "e\u0301", "\ue000"],
)
def test_letters_of_all_languages_stay(text):
    assert printable(text) == printable_lines(text) == text


def test_other_things_than_text():
    assert printable(17) == "17"
    assert printable(None) == "None"
    assert printable({"shop": "a\x1b"}) == "{'shop': 'a\\x1b'}"


@given(ANYTHING, st.integers(2, 30))
@example("赤い靴" * 9, 7)
@example("e\u0301" * 20, 5)
def test_fitted_texts_take_their_columns(text, width):
    shown = fitted(text, width)
    wide = sum(
        0
        if unicodedata.category(c) in ("Mn", "Me", "Cf")
        else 1 + (unicodedata.east_asian_width(c) in "WF")
        for c in shown
    )
    assert wide == width
    assert printable(shown) == shown
    assert shown.rstrip().endswith("..") or shown.rstrip(" ") == printable(text).rstrip(" ")


def test_a_very_long_id_takes_no_time():
    assert fitted("x" * 300_000, 10) == "xxxxxxxx.."
