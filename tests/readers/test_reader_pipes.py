"""Standard input, glances, and JSON tables."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
import pytest
from reader_helpers import SAMPLES, pages, read_noting

from gecasmo.errors import ClickLogError
from gecasmo.logs import peek, read_log

NAMES = [
    "table.csv",
    "table.tsv",
    "table.jsonl",
    "nested.jsonl",
    "yandex.tsv",
    "clickmodels.tsv",
    "pyclickmodels.jsonl",
    "ubi.ndjson",
    "baidu.parquet",
    "trec_session.xml",
]


class Pipe:
    """Standard input with bytes in it."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


@pytest.mark.parametrize("name", NAMES)
def test_a_pipe_reads_the_same(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr("sys.stdin", Pipe((SAMPLES / name).read_bytes()))
    assert pages(read_log("-")) == pages(read_log(SAMPLES / name))


@pytest.mark.parametrize("name", NAMES)
def test_a_packed_pipe_reads_the_same(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if name.endswith(".parquet"):
        pytest.skip("Parquet is packed within")
    monkeypatch.setattr("sys.stdin", Pipe(gzip.compress((SAMPLES / name).read_bytes())))
    assert pages(read_log("-")) == pages(read_log(SAMPLES / name))


def test_a_table_in_parquet_comes_through_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    data = io.BytesIO()
    pl.read_csv(SAMPLES / "table.csv").write_parquet(data)
    monkeypatch.setattr("sys.stdin", Pipe(data.getvalue()))
    assert pages(read_log("-")) == pages(read_log(SAMPLES / "table.csv"))


def test_a_real_pipe() -> None:
    code = "import gecasmo; print(len(gecasmo.read_log('-', format='yandex')))"
    data = (SAMPLES / "yandex.tsv").read_bytes()
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    assert done.stdout.strip() == b"8"


def test_an_empty_pipe_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Pipe(b""))
    with pytest.raises(ClickLogError, match="standard input is empty"):
        read_log("-")


def test_messages_name_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Pipe(b"1\t0\tQ\t5\t0\t10\n1\tx\tC\t10\n"))
    with pytest.raises(ClickLogError, match=r"^standard input, line 2: "):
        read_log("-")


def test_a_glance_keeps_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Pipe((SAMPLES / "shop.csv").read_bytes()))
    seen = peek("-")
    assert seen.format == "table"
    assert seen.columns == ("sid", "search_term", "product_id", "position", "clicked")
    log = read_log(
        seen.source,
        session="sid",
        query="search_term",
        doc="product_id",
        rank="position",
        click="clicked",
    )
    assert pages(log) == pages(read_log(SAMPLES / "table.csv"))


@pytest.mark.parametrize("name", NAMES)
def test_a_glance_tells_the_format(name: str) -> None:
    kind = name.split(".")[0].replace("nested", "table").replace("_", "-")
    seen = peek(SAMPLES / name)
    assert seen.format == kind
    assert bool(seen.columns) == (kind == "table")
    assert pages(read_log(seen.source)) == pages(read_log(SAMPLES / name))


def test_a_glance_at_what_is_no_file() -> None:
    frame = pl.DataFrame({"sid": [1], "url": ["a"]})
    for source in (frame, frame.lazy(), frame.to_dict(as_series=False), frame.to_pandas()):
        seen = peek(source)
        assert (seen.format, seen.columns) == ("table", ("sid", "url"))
    assert peek(frame.to_arrow()).columns == ("sid", "url")
    pair = {"queries": SAMPLES / "ubi.ndjson"}
    assert peek(pair).format == "ubi"
    with pytest.raises(ClickLogError, match="There is no format 'excel'"):
        peek(frame, format="excel")


def test_a_table_whose_columns_are_named_stays_a_table() -> None:
    roles = {"query": "query_id", "doc": "query_doc_ids", "rank": None, "click": "clicks"}
    log = read_log(SAMPLES / "baidu.parquet", **roles)
    assert log.lengths.tolist() == [4] * 6
    assert "mask" in log.columns


def test_a_table_that_also_has_a_query_id_stays_a_table(tmp_path: Path) -> None:
    frame = pl.read_csv(SAMPLES / "table.csv").with_columns(
        query_id=pl.col("session"), action_name=pl.lit("x"), user_query=pl.col("query")
    )
    for name in ("log.parquet", "log.jsonl"):
        path = tmp_path / name
        getattr(frame, "write_parquet" if path.suffix == ".parquet" else "write_ndjson")(path)
        log, notes = read_noting(path)
        assert pages(log) == pages(read_log(SAMPLES / "table.csv"))
        assert notes == {}


ROWS: list[dict[str, Any]] = [
    {"session": "007", "doc": "1", "rank": 1, "click": True, "seen": 0.5},
    {"session": "007", "doc": "2", "rank": 2, "click": False, "extra": [1, 2]},
]


def test_json_ids_keep_their_type(tmp_path: Path) -> None:
    path = tmp_path / "log.ndjson"
    pl.DataFrame(ROWS[:1]).write_ndjson(path)
    log = read_log(path)
    assert log.sessions.to_list() == ["007"]
    assert log.column("doc").to_list() == ["1"]


@pytest.mark.parametrize("ending", ["jsonl", "ndjson", "json", "jsonl.gz", "json.zst"])
def test_every_ending_of_json_lines(tmp_path: Path, ending: str) -> None:
    log = read_log(SAMPLES / "table.csv")
    path = tmp_path / f"log.{ending}"
    log.write(path)
    assert read_log(path).to_frame().equals(log.to_frame())


def test_a_json_list_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text('[\n {"session": 1, "doc": "a", "rank": 1, "click": 1},\n {"session": 1,')
    with pytest.raises(ClickLogError, match=r"log.json cannot be read: "):
        read_log(path)
    path.write_text(path.read_text() + ' "doc": "b", "rank": 2, "click": 0}]')
    assert pages(read_log(path)) == [(None, [("a", 1, 1), ("b", 2, 0)])]


def test_json_with_a_missing_value_is_told(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"session": 1, "doc": "a", "rank": 1, "click": 1}\n{"session": 1, "rank": 2}')
    with pytest.raises(ClickLogError, match=r"doc: 1 value is missing \(null\), first: row 1"):
        read_log(path)


def test_json_files_of_a_glob_are_one_table(tmp_path: Path) -> None:
    lines = (SAMPLES / "table.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "1.jsonl").write_text("".join(lines[:3]).rstrip("\n"))
    (tmp_path / "2.jsonl").write_text("".join(lines[3:]))
    assert pages(read_log(tmp_path / "*.jsonl")) == pages(read_log(SAMPLES / "table.jsonl"))


@pytest.mark.parametrize("name", NAMES)
def test_a_named_pipe_without_an_ending(tmp_path: Path, name: str) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = Thread(target=path.write_bytes, args=[(SAMPLES / name).read_bytes()])
    writer.start()
    log = read_log(path)
    writer.join()
    assert pages(log) == pages(read_log(SAMPLES / name))


@pytest.mark.parametrize("flags", [[], ["--format", "table"]])
def test_what_a_shell_puts_in_the_place_of_a_command(flags: list[str]) -> None:
    program = f"{sys.executable} -c 'from gecasmo.cli import main; main()'"
    command = f"{program} check <(cat {SAMPLES / 'table.csv'}) --json {' '.join(flags)}"
    ended = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=False, timeout=120
    )
    assert '"pages": 5' in ended.stdout, ended.stderr


def test_an_empty_named_pipe_is_told(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = Thread(target=path.write_bytes, args=[b""])
    writer.start()
    with pytest.raises(ClickLogError, match="pipe is empty: nothing came through"):
        read_log(path, format="table")
    writer.join()
