"""Texts that are safe to show, numbers in words, and tables."""

from __future__ import annotations

import unicodedata
from xml.etree import ElementTree

import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gecasmo.report import (
    Column,
    TextTable,
    cell,
    counted,
    fitted,
    listed,
    percent,
    printable,
    printable_lines,
)

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


def test_words() -> None:
    assert counted(1, "page") == "1 page"
    assert counted(2000, "page") == "2,000 pages"
    assert counted(2, "page has", "pages have") == "2 pages have"
    assert counted(1.5, "page") == "1.5 pages"
    assert [percent(0, 3), percent(3, 3), percent(1, 3), percent(1, 10**6), percent(1, 0)] == [
        "0 %",
        "100 %",
        "33 %",
        "< 0.01 %",
        "0 %",
    ]
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"


def test_cells_are_for_people() -> None:
    assert cell(0.04808, "share_of_pages") == "4.81 %"
    assert cell(0.04808, "ctr") == "4.81 %"
    assert cell(0.04808, "error") == "0.04808"
    assert cell(13741.3, "flips") == "13,741"
    assert cell(1e15, "flips") == "1,000,000,000,000,000"
    assert cell(1.5e-7, "error") == "1.5e-07"


def test_tables_are_cut_to_the_width_and_to_some_lines() -> None:
    wide = pl.DataFrame(
        {f"a_rather_long_name_{i}": ["some longer text " * 5] * 20 for i in range(9)}
    )
    lines = list(TextTable.of(wide, most=12).lines())
    assert all(len(line) <= 100 for line in lines)
    assert lines[-1] == "  ... and 8 more"
    narrow = list(TextTable.of(pl.DataFrame({"name": ["a", None], "n_pages": [1234, 5]})).lines())
    assert narrow == ["  name  n pages", "  a       1,234", "  -           5"]


def test_columns_without_room_stand_below_with_what_belongs_to_them() -> None:
    names = Column("model", ["a model with a long name", "b"], is_text=True, least=8, wraps=True)
    numbers = [Column(f"number\n{i}", ["1.2345", "2"]) for i in range(3)]
    ends = [Column("interval", ["[1.1, 1.9]", ""], belongs_left=True) for _ in numbers]
    both = [column for pair in zip(numbers, ends, strict=True) for column in pair]
    lines = list(TextTable([names, *both], "All of them").lines(50))
    assert max(map(len, lines)) <= 50
    heads = [line for line in lines if line.startswith("  model")]
    assert [head.split()[1:] for head in heads] == [
        ["0", "interval"],
        ["1", "interval", "2", "interval"],
    ]
    assert lines[0] == "All of them"
    assert " ".join(lines).count("long") == 2


def test_wide_letters_keep_tables_straight() -> None:
    table = TextTable([Column("doc", ["赤い靴", "abc"], is_text=True), Column("n", ["1", "22"])])
    assert list(table.lines()) == ["  doc      n", "  赤い靴   1", "  abc     22"]
