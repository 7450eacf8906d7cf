"""A log written and read through every format is the same log."""

from __future__ import annotations

import gzip
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reader_helpers import CANNOT_HOLD_EMPTY_PAGES, FILES, SAMPLES, pages, read_noting

from gecasmo.errors import ClickLogError, ClickLogWarning
from gecasmo.logs import FORMATS, ClickLog, read_log

text_ids = st.sampled_from(["d1", "d2", "Ünï", "x y", "http://a/b?c=d", '"q"', "a,b", "'", "[1]"])
number_ids = st.integers(-3, 9)
queries = st.sampled_from(["cats", "dogs", "cats and dogs", "Q", "größe", '{"a": 1}'])


@st.composite
def logs(draw: st.DrawFn, empty_pages: bool = True) -> ClickLog:
    """Pages with plain ranks; ids all text or all numbers; a result at most once on a page."""
    docs = st.lists(draw(st.sampled_from([text_ids, number_ids])), max_size=5, unique=True)
    if not empty_pages:
        docs = docs.filter(bool)
    shown = draw(st.lists(docs, min_size=1, max_size=5))
    asked = draw(st.lists(queries, min_size=len(shown), max_size=len(shown)))
    clicks = [draw(st.lists(st.booleans(), min_size=len(p), max_size=len(p))) for p in shown]
    dtype = pl.String if any(isinstance(d, str) for p in shown for d in p) else pl.Int64
    if draw(st.booleans()):
        names: list[Any] = [f"s{draw(st.integers(0, 9))}-{n}" for n in range(len(shown))]
    else:
        names = list(range(len(shown)))
    columns = [
        pl.Series("session", names),
        pl.Series("query", asked),
        pl.Series("doc", shown, pl.List(dtype)),
        pl.Series("click", clicks, pl.List(pl.Boolean)),
    ]
    return read_log(pl.DataFrame(columns))


def through(log: ClickLog, name: str, is_told: bool) -> ClickLog:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        log.write(path, format=FILES[name])
        assert [file.name for file in Path(folder).iterdir()] == [name]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ClickLogWarning)  # pages without results are noted
            return read_log(path, format=FILES[name] if is_told else None)


def test_every_format_that_can_be_written_is_tried() -> None:
    assert set(FILES.values()) == {one.name for one in FORMATS.values() if one.write}


@pytest.mark.parametrize("name", FILES)
@settings(deadline=None, max_examples=40)
@given(st.data(), st.booleans())
def test_the_pages_are_the_same(name: str, data: st.DataObject, is_told: bool) -> None:
    log = data.draw(logs(empty_pages=name not in CANNOT_HOLD_EMPTY_PAGES))
    again = through(log, name, is_told)
    assert pages(again) == pages(log)
    if FILES[name] != "pyclickmodels":
        assert again.sessions.to_list() == log.sessions.to_list()
    assert not any(note.kind.startswith("duplicate") for note in again.notes)
    assert not any("never shown" in note.kind for note in again.notes)


@pytest.mark.parametrize("name", ["log.parquet", "log.jsonl.gz", "ubi.ndjson", "baidu.parquet"])
@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(1, 9), st.booleans()), min_size=1, unique_by=lambda r: r[0]),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
    st.booleans(),
)
def test_ranks_with_gaps_and_results_shown_twice(
    name: str, shown: list[list[tuple[int, bool]]], has_query: bool, numbers: bool
) -> None:
    rows = [
        (f"s{n}", f"q{n % 2}", rank % 3 if numbers else f"d{rank % 3}", rank, click)
        for n, page in enumerate(shown)
        for rank, click in page
    ]
    frame = pl.DataFrame(rows, schema=["session", "query", "doc", "rank", "click"], orient="row")
    log = read_log(frame if has_query else frame.drop("query"))
    assert pages(through(log, name, is_told=True) if name in FILES else _table(log, name)) == pages(
        log
    )


def _table(log: ClickLog, name: str) -> ClickLog:
    with tempfile.TemporaryDirectory() as folder:
        log.write(Path(folder) / name)
        return read_log(Path(folder) / name)


SAMPLE_FILES = {
    "yandex.tsv": "yandex",
    "clickmodels.tsv": "clickmodels",
    "pyclickmodels.jsonl": "pyclickmodels",
    "pyclickmodels_context.jsonl": "pyclickmodels",
    "ubi.ndjson": "ubi",
    "baidu.parquet": "baidu",
}


@pytest.mark.parametrize("name", SAMPLE_FILES)
def test_a_sample_goes_through_its_own_format_whole(name: str, tmp_path: Path) -> None:
    log = read_log(SAMPLES / name)
    log.write(tmp_path / name, format=SAMPLE_FILES[name])
    again, notes = read_noting(tmp_path / name, format=SAMPLE_FILES[name])
    assert again.to_frame().equals(log.to_frame())
    assert notes == {}


@pytest.mark.parametrize("name", SAMPLE_FILES)
def test_a_written_log_is_the_same_bytes_every_time(name: str, tmp_path: Path) -> None:
    log = read_log(SAMPLES / name)
    contents = []
    for number in range(2):
        path = tmp_path / (f"{number}.parquet" if name == "baidu.parquet" else f"{number}.gz")
        log.write(path, format=SAMPLE_FILES[name])
        contents.append(path.read_bytes())
    assert contents[0] == contents[1]


def test_yandex_files_read_as_the_format_says(tmp_path: Path) -> None:
    read_log(SAMPLES / "table.csv").write(tmp_path / "log.tsv", format="yandex")
    lines = (tmp_path / "log.tsv").read_text().splitlines()
    assert lines[:3] == ["s1\t0\tQ\tcats\t0\ta\tb", "s1\t0\tC\tb", "s2\t0\tQ\tdogs\t0\tc\ta"]


def test_pyclickmodels_files_read_as_the_format_says(tmp_path: Path) -> None:
    read_log(SAMPLES / "table.csv").write(tmp_path / "log.gz", format="pyclickmodels")
    first = json.loads(gzip.decompress((tmp_path / "log.gz").read_bytes()).splitlines()[0])
    assert first == {
        "search_keys": {"search_term": "cats"},
        "judgment_keys": [{"session": [{"doc": "a", "click": 0}, {"doc": "b", "click": 1}]}],
    }


def test_baidu_files_number_the_pairs(tmp_path: Path) -> None:
    read_log(SAMPLES / "table.csv").write(tmp_path / "log.parquet", format="baidu")
    table = pl.read_parquet(tmp_path / "log.parquet")
    assert table["query_doc_ids"].to_list() == [[0, 1], [2, 3], [1, 0], [2, 3], [0, 1]]
    assert table["clicks"].to_list() == [[0, 1], [1, 0], [1, 0], [0, 0], [1, 0]]
    assert table["positions"].to_list() == [[1, 2]] * 5
    assert table["n"].to_list() == [2] * 5


GAPS = {"session": [1, 1], "query": ["q", "q"], "doc": ["a", "b"], "rank": [1, 3], "click": [0, 1]}
TWICE = GAPS | {"doc": ["a", "a"], "rank": [1, 2]}
TABBED = GAPS | {"query": ["q\tr", "q\tr"], "rank": [1, 2]}
PRICED = GAPS | {"rank": [1, 2], "price": [1.5, 2.5]}
NO_QUERY = {name: values for name, values in GAPS.items() if name != "query"} | {"rank": [1, 2]}
STRUCT = GAPS | {"rank": [1, 2], "part": ["x", "x"]}
REFUSED = [
    ("yandex", GAPS, {}, "cannot hold ranks with gaps. Session 1 has one"),
    ("clickmodels", GAPS, {}, "cannot hold ranks with gaps"),
    ("pyclickmodels", GAPS, {}, "cannot hold ranks with gaps"),
    ("yandex", TWICE, {}, "a click on the second place of a result that is twice on its page"),
    ("yandex", TABBED, {}, r"cannot hold the query 'q\\tr'. Ids in it must not be empty"),
    ("clickmodels", TABBED, {}, r"cannot hold the query 'q\\tr'"),
    ("yandex", PRICED, {}, r"cannot hold the columns 'price'. Leave them out with read_log\(log"),
    ("clickmodels", PRICED, {}, "cannot hold the columns 'price'"),
    ("pyclickmodels", PRICED, {}, "cannot hold the columns 'price'"),
    ("ubi", PRICED, {}, "cannot hold the columns 'price'"),
    ("yandex", NO_QUERY, {}, "cannot hold a log without queries"),
    ("clickmodels", NO_QUERY, {}, "cannot hold a log without queries"),
    ("pyclickmodels", NO_QUERY, {}, "cannot hold a log without queries"),
    ("ubi", STRUCT | {"n": [2, 2]}, {"weight": "n"}, "cannot hold"),
    ("baidu", GAPS | {"n": [2, 2]}, {"weight": "n"}, "cannot hold weights"),
    ("yandex", {**GAPS, "rank": [1, 2], "n": [2, 2]}, {"weight": "n"}, "cannot hold weights"),
    ("baidu", GAPS | {"mask": [1, 2]}, {}, "a column called 'mask' beside its own"),
    ("ubi", STRUCT, {"session": ["session", "part"]}, "cannot hold"),
]


@pytest.mark.parametrize(("format", "columns", "roles", "message"), REFUSED)
def test_what_a_format_cannot_hold_is_refused(
    format: str, columns: dict[str, Any], roles: dict[str, Any], message: str, tmp_path: Path
) -> None:
    log = read_log(columns, **roles)
    with pytest.raises(ClickLogError, match=message):
        log.write(tmp_path / "log.parquet", format=format)
    assert list(tmp_path.iterdir()) == []


def test_tables_that_text_cannot_hold(tmp_path: Path) -> None:
    empty = read_log({"doc": [["a"], []], "click": [[1], []]})
    for name in ("log.csv", "log.tsv.gz"):
        with pytest.raises(ClickLogError, match="text files cannot hold pages without results"):
            empty.write(tmp_path / name)
    odd = read_log(PRICED | {"price": [1.0, float("nan")]})
    with pytest.raises(ClickLogError, match=r"JSON cannot hold the column 'price', .* not finite"):
        odd.write(tmp_path / "log.jsonl")
    with pytest.raises(ClickLogError, match="There is no format 'xml'"):
        odd.write(tmp_path / "log.xml", format="xml")
    with pytest.raises(ClickLogError, match=r"no/log.tsv cannot be written: there is no folder"):
        read_log(SAMPLES / "table.csv").write(tmp_path / "no" / "log.tsv", format="yandex")
    assert list(tmp_path.iterdir()) == []
