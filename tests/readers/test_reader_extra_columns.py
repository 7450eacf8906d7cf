"""Columns that play no part: a format keeps them, or refuses them before it writes anything."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reader_helpers import CANNOT_HOLD_EMPTY_PAGES, FILES, pages, read_noting

from gecasmo.errors import ClickLogError, ClickLogWarning
from gecasmo.logs import ClickLog, read_log

# Plain names, names that the formats have a place for, and names that readers use within.
NAMES_OF_EXTRAS = (
    *("price", "page", "row", "number", "result", "at", "kind", "id", "weight"),
    *("region", "layout", "intent_weight", "visit", "time_passed", "client_id", "session_id"),
    *("timestamp", "purchase", "cart", "search_term", "query_doc_ids", "mask", "n", "positions"),
)
VALUES = {
    pl.Int64: st.integers(-5, 5),
    pl.Float64: st.sampled_from([0.0, 0.25, 1.5, -2.0, 1e20]),
    pl.String: st.sampled_from(["x", "Ünï", "a b", "a|b", "a,b", '"q"', "12", "007", ""]),
    pl.Boolean: st.booleans(),
}


@st.composite
def extra_columns(draw: st.DrawFn, lengths: list[int], nulls: bool) -> list[pl.Series]:
    """Up to three columns, of a value a page or a list a page."""
    made = []
    for name in draw(st.lists(st.sampled_from(NAMES_OF_EXTRAS), max_size=3, unique=True)):
        dtype = draw(st.sampled_from(list(VALUES)))
        value = VALUES[dtype] | st.none() if nulls else VALUES[dtype]
        if draw(st.booleans()):
            made.append(pl.Series(name, [draw(value) for _ in lengths], dtype))
        else:
            lists = [[draw(value) for _ in range(length)] for length in lengths]
            made.append(pl.Series(name, lists, pl.List(dtype)))
    return made


@st.composite
def logs(draw: st.DrawFn, empty_pages: bool) -> tuple[ClickLog, list[str]]:
    """A log, nested or long at the source, and the names of its extra columns."""
    lengths = draw(st.lists(st.integers(0 if empty_pages else 1, 3), min_size=1, max_size=3))
    extras = draw(extra_columns(lengths, draw(st.booleans())))
    columns = [
        pl.Series("session", [f"s{n}" for n in range(len(lengths))]),
        pl.Series("query", [draw(st.sampled_from(["cats", "dogs"])) for _ in lengths]),
        pl.Series("doc", [[f"d{i}" for i in range(n)] for n in lengths], pl.List(pl.String)),
        pl.Series("click", [[i == 1 for i in range(n)] for n in lengths], pl.List(pl.Boolean)),
    ]
    log = read_log(pl.DataFrame([*columns, *extras]), rank=None)
    if 0 not in lengths and draw(st.booleans()):
        log = read_log(log.to_frame())
    return log, [extra.name for extra in extras]


def as_text(value: Any) -> str | None:
    """Make values alike that text files cannot tell apart."""
    if value is None or value == "":
        return None
    text = str(value).lower() if isinstance(value, bool) else str(value)
    try:
        return repr(float(text))
    except ValueError:
        return text


def values(log: ClickLog, name: str, exact: bool) -> list[Any]:
    found = log.column(name)[log.order].to_list()
    return found if exact else [as_text(value) for value in found]


def refused(log: ClickLog, path: Path, format: str) -> str | None:
    try:
        log.write(path, format=format)
    except ClickLogError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", FILES)
@settings(deadline=None, max_examples=40)
@given(st.data())
def test_extra_columns_are_kept_or_refused(name: str, data: st.DataObject) -> None:
    log, extras = data.draw(logs(empty_pages=name not in CANNOT_HOLD_EMPTY_PAGES))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        refusal = refused(log, path, FILES[name])
        if refusal is not None:
            assert FILES[name] != "table"
            assert any(extra in refusal for extra in extras) or "query" in refusal
            assert list(Path(folder).iterdir()) == []
            return
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClickLogWarning)  # pages without results are noted
            again = read_log(path, format=FILES[name])
    assert pages(again) == pages(log)
    exact = name.endswith(".parquet")
    for extra in extras:
        if extra not in again.columns:
            assert set(values(log, extra, exact)) <= {None}  # nothing was said, nothing is lost
            continue
        assert values(again, extra, exact) == values(log, extra, exact)
        if log.page_columns is not None and extra in log.page_columns.columns and exact:
            assert again.session_column(extra).to_list() == log.session_column(extra).to_list()


LONG = {"session": [1, 1], "query": ["a", "a"], "doc": ["x", "y"], "rank": [1, 2], "click": [0, 1]}
NESTED = {"session": [1, 2], "query": ["a", "b"], "doc": [["x"], []], "click": [[1], []]}


@pytest.mark.parametrize("name", ["price", "page", "query_doc_ids"])
def test_baidu_keeps_a_column_of_results(name: str, tmp_path: Path) -> None:
    read_log(LONG | {name: [3, 4]}).write(tmp_path / "log.parquet", format="baidu")
    again, notes = read_noting(tmp_path / "log.parquet")
    assert again.column(name).to_list() == [3, 4]
    assert again.column("doc").to_list() == ["x", "y"]
    assert notes == {}


@pytest.mark.parametrize("name", ["device", "page"])
def test_baidu_keeps_a_column_of_pages(name: str, tmp_path: Path) -> None:
    read_log(NESTED | {name: ["p", "q"]}).write(tmp_path / "log.parquet", format="baidu")
    again, notes = read_noting(tmp_path / "log.parquet")
    assert again.session_column(name).to_list() == ["p", "q"]
    assert notes == {"pages without results": 1}


def test_a_search_key_may_be_called_page(tmp_path: Path) -> None:
    columns = NESTED | {"query": ["a|1", "b|2"], "search_term": ["a", "b"], "page": [1, 2]}
    read_log(columns).write(tmp_path / "log.jsonl", format="pyclickmodels")
    again, _ = read_noting(tmp_path / "log.jsonl")
    assert again.session_column("page").to_list() == [1, 2]


@pytest.mark.parametrize("values", [[[7], []], [7, 8]])
def test_a_column_called_weight_that_is_none_is_kept(values: list[Any], tmp_path: Path) -> None:
    read_log(NESTED | {"weight": values}).write(tmp_path / "log.jsonl")
    assert read_log(tmp_path / "log.jsonl").column("weight").to_list() == [7]


@pytest.mark.parametrize(
    ("format", "name", "message"),
    [
        ("ubi", "timestamp", "the column 'timestamp' of String, where it has moments"),
        ("clickmodels", "intent_weight", "the column 'intent_weight' of String, where it has num"),
        ("yandex", "time_passed", "the column 'time_passed' of String, where it has whole num"),
        ("baidu", "query_doc_ids", "a column called 'query_doc_ids' beside its own"),
    ],
)
def test_a_column_of_another_type_is_refused(
    format: str, name: str, message: str, tmp_path: Path
) -> None:
    log = read_log(NESTED | {name: ["soon", "late"]})
    with pytest.raises(ClickLogError, match=f"cannot be written: .* cannot hold {message}"):
        log.write(tmp_path / "log.parquet", format=format)
    assert list(tmp_path.iterdir()) == []
