"""Values that are JSON, but that nobody means: each is one clear error with file and line."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

from gecasmo import read_log
from gecasmo.errors import ClickLogError, ClickLogWarning

LARGE = "1" + "0" * 400  # larger than any float
ENDLESS = "1" + "0" * 5000  # more digits than Python reads
DEEP = "[" * 100_000 + "]" * 100_000
HALF = "\\ud83d"


def clickmodels(
    urls: str = '["a", "b"]', layout: str = "[false, false]", clicks: str = "[1, 0]"
) -> str:
    return f"digest\tquery\t0\t0.5\t{urls}\t{layout}\t{clicks}\n"


def pyclickmodels(doc: str = '"a"', click: str = "1", term: str = '"x"') -> str:
    page = f'[{{"session": [{{"doc": {doc}, "click": {click}}}]}}]'
    return f'{{"search_keys": {{"search_term": {term}}}, "judgment_keys": {page}}}\n'


def table(doc: str = '"a"', rank: int = 1) -> str:
    return f'{{"session": 1, "doc": {doc}, "rank": {rank}, "click": 0}}\n'


def by_place(place: str) -> str:
    return clickmodels(f'{{"0": "a", "{place}": "b"}}', "{}", "{}")


HOSTILE = {
    "large clicks": ("clickmodels", clickmodels(clicks=f"[{LARGE}, 0]"), "not 1000+...0+"),
    "endless clicks": ("clickmodels", clickmodels(clicks=f"[{ENDLESS}, 0]"), "4300 digits"),
    "large place": ("clickmodels", by_place(LARGE), "too large to be a place"),
    "endless place": ("clickmodels", by_place(ENDLESS), "too large to be a place"),
    "half a result": ("clickmodels", clickmodels(f'["{HALF}", "b"]'), "half a character"),
    "half a layout": ("clickmodels", clickmodels(layout=f'["{HALF}", 1]'), "half a character"),
    "half a place": ("clickmodels", by_place(HALF), "half a character"),
    "deep results": ("clickmodels", clickmodels(DEEP), "(recursion depth|Stack overflow)"),
    "large click": ("pyclickmodels", pyclickmodels(click=LARGE), "whole numbers from 0, not 1000"),
    "endless click": ("pyclickmodels", pyclickmodels(click=ENDLESS), "4300 digits"),
    "half a doc": ("pyclickmodels", pyclickmodels(doc=f'"{HALF}"'), "half a character"),
    "deep term": ("pyclickmodels", pyclickmodels(term=DEEP), "nested too deeply"),
    "deep value": ("table", table(DEEP, 2), "JSON nested too deeply"),
    "deep line": ("table", DEEP + "\n", "JSON nested too deeply"),
    "half of a pair": ("table", table(f'"x{HALF}"', 2), r"half a character, \\ud83d"),
    "other half": ("table", table('"\\uDE00"', 2), r"half a character, \\uDE00"),
    "halves apart": ("table", table(f'"{HALF} \\ude00"', 2), "half a character"),
}
FIRST = {"clickmodels": clickmodels(), "pyclickmodels": pyclickmodels(), "table": table()}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("is_told", [True, False])
def test_a_hostile_value_is_one_error(case: str, is_told: bool, tmp_path: Path) -> None:
    format, line, message = HOSTILE[case]
    path = tmp_path / ("log.tsv" if format == "clickmodels" else "log.jsonl")
    path.write_text(FIRST[format] + line)
    with pytest.raises(ClickLogError, match=rf"{path.name}, line 2: .*{message}") as caught:
        read_log(path, format=format if is_told else None)
    assert len(str(caught.value)) < 600
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("depth", range(900, 1001, 2))
def test_depths_that_are_read_and_hardly_written(depth: int, tmp_path: Path) -> None:
    """Reading may still go well where writing as text does not."""
    nested = "[" * depth + "]" * depth
    for format, line in (
        ("clickmodels", clickmodels(layout=f"[{nested}, 1]")),
        ("pyclickmodels", pyclickmodels(term=nested)),
    ):
        path = tmp_path / "log.txt"
        path.write_text(FIRST[format] + line)
        with contextlib.suppress(ClickLogError):  # whatever Python's own depth is just now
            assert read_log(path, format=format).n_sessions == 2


def test_whole_pairs_and_backslashes_are_no_halves(tmp_path: Path) -> None:
    docs = ["😀", "\\ud83d", "\\\\ud83d", "x"]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(table(json.dumps(doc), at + 1) for at, doc in enumerate(docs)))
    assert "\\ud83d\\ude00" in path.read_text()
    assert read_log(path).column("doc").to_list() == docs
    path.write_text(clickmodels(json.dumps(docs[:2])))
    assert read_log(path, format="clickmodels").column("doc").to_list() == docs[:2]


def test_a_list_has_halves_too(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text("[" + table().strip() + ",\n\n" + table(f'"{HALF}"', 2).strip() + "]")
    with pytest.raises(ClickLogError, match=r"log\.json, line 3: a text has half a character"):
        read_log(path)


def test_half_a_character_within_a_text_of_json(tmp_path: Path) -> None:
    """UBI's flat exports have attributes as a text; what cannot be read there is no attribute."""
    attributes = '{"object": {"object_id": "half"}, "position": {"ordinal": 1}}'
    inner = json.dumps(attributes.replace("half", HALF))
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"query_id": "q", "user_query": "w", "query_response_hit_ids": ["a"]}\n'
        f'{{"query_id": "q", "action_name": "click", "event_attributes": {inner}}}\n'
    )
    with pytest.warns(ClickLogWarning, match="events without an object: 1"):
        log = read_log(path, format="ubi")
    assert log.click.sum() == 0
