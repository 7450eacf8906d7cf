"""What cannot be read is refused, with the place and an example."""

from __future__ import annotations

import pytest
from reader_helpers import SAMPLES

from gecasmo.errors import ClickLogError
from gecasmo.logs import read_log

BROKEN = {
    "yandex_no_region.tsv": (None, r"line 2: a Q line needs a query and a region. .*1\\t9\\tQ\\t5"),
    "yandex_two_clicks.tsv": (None, r"line 2: a C line has one result after the C"),
    "yandex_time.tsv": (None, r"line 2: the time is not a whole number. The line is '1\\tsoon"),
    "yandex_spaces.txt": ("yandex", r"line 1: a line needs a session, a time .* with tabs between"),
    "yandex_empty_result.tsv": (None, r"line 1: a field is empty"),
    "latin1_yandex.tsv": (None, r"line 2: the text is not UTF-8; byte 26 of the file is 0xe9"),
    "clickmodels_lengths.tsv": (None, r"line 2: lists of different lengths: 3 results and 2 clic"),
    "clickmodels_fields.tsv": (None, r"line 2: 7 fields with tabs between were expected, not 5"),
    "clickmodels_python_list.tsv": (None, r"line 2: a number and three JSON lists were expected"),
    "clickmodels_clicks.tsv": (None, r"line 1: clicks are whole numbers from 0, not -1"),
    "pyclickmodels_cut.jsonl": (None, r"line 2: not valid JSON"),
    "pyclickmodels_no_doc.jsonl": (None, r"line 1: a result needs a 'doc'"),
    "pyclickmodels_no_session.jsonl": (None, r"line 1: each entry .* needs a list under 'session'"),
    "ubi_not_json.ndjson": (None, r"line 2: not valid JSON"),
    "ubi_neither.ndjson": (None, r"line 2: neither an event .* nor a query .*The line is '.\"user"),
    "ubi_position.ndjson": (None, r"line 2: position.ordinal should be a whole number, not 'first"),
    "ubi_list.ndjson": ("ubi", r"line 1: a JSON object was expected, one a line"),
    "baidu_lengths.parquet": (None, r"row 1: lists of different lengths, 2 docs and 1 clicks"),
    "trec_session_doctype.xml": (None, r"doctype.xml: a document type .* is not read; take it out"),
    "trec_session_cut.xml": (None, r"is not well-formed XML: no element found: line \d+"),
    "trec_session_rank.xml": (None, r"session 2, interaction 1: a click needs a rank .*'third'"),
    "wrong_columns.csv": (None, r"lacks the columns 'session', 'doc', 'rank' and 'click'"),
    "no_rows.csv": (None, r"there are no rows"),
    "cut.jsonl": (None, r"line 2: not valid JSON .*The line is '.\"session"),
    "lengths.jsonl": (None, r"1 page with lists of different lengths, first: row 1 has 3 in 'doc'"),
    "latin1.csv": (
        None,
        r"line 3: the text is not UTF-8; byte 50 of the file is 0xe9, near b's2,ca",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_sample_is_refused(name: str) -> None:
    format, message = BROKEN[name]
    with pytest.raises(ClickLogError, match=message) as caught:
        read_log(SAMPLES / "broken" / name, format=format)
    assert str(SAMPLES / "broken" / name) in str(caught.value)


def test_every_broken_sample_is_tried() -> None:
    assert {path.name for path in (SAMPLES / "broken").iterdir()} == set(BROKEN)


@pytest.mark.parametrize(
    "format", ["yandex", "clickmodels", "pyclickmodels", "ubi", "baidu", "trec-session"]
)
def test_another_format_than_the_file_has(format: str) -> None:
    others = {"baidu": "yandex.tsv", "ubi": "clickmodels.tsv"}
    with pytest.raises(ClickLogError):
        read_log(SAMPLES / others.get(format, "baidu.parquet"), format=format)
    with pytest.raises(ClickLogError):
        read_log(SAMPLES / "table.csv", format=format)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ClickLogError, match=r"There is no format 'trec'\. There are: ubi, "):
        read_log(SAMPLES / "table.csv", format="trec")


def test_a_ubi_dict_of_other_things_is_refused() -> None:
    with pytest.raises(ClickLogError, match="a dict with the paths of 'queries' and 'events'"):
        read_log({"clicks": SAMPLES / "ubi.ndjson"}, format="ubi")
