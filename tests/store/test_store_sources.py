"""Files of all kinds, tables and logs: read in small steps, they are what `read_log` reads."""

from __future__ import annotations

import gzip
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import zstandard
from stored_pages import all_pages, multiset, pages_of, simulated

from gecasmo import ClickLog, open_log, read_log
from gecasmo.errors import ClickLogError, ClickLogWarning
from gecasmo.logs.store import StoredLog

SAMPLES = Path(__file__).parents[1] / "readers" / "samples"


def assert_same(stored: StoredLog, source: Any, **roles: Any) -> None:
    """All of the log is stored, with its types."""
    read = read_log(source, **roles)
    assert stored.columns == read.columns
    assert stored.dtypes == {name: str(read.column(name).dtype) for name in read.columns}
    assert multiset(all_pages(stored, session=True)) == multiset(pages_of(read, session=True))


def write(frame: pl.DataFrame, path: Path) -> None:
    """Write a table of the kind that its name says."""
    plain = path.name.removesuffix(".gz").removesuffix(".zst")
    if plain.endswith(".parquet"):
        frame.write_parquet(path)
        return
    text = frame.write_ndjson() if plain.endswith("jsonl") else None
    text = text or frame.write_csv(separator="\t" if plain.endswith("tsv") else ",")
    data = text.encode()
    if path.suffix == ".gz":
        data = gzip.compress(data)
    if path.suffix == ".zst":
        data = zstandard.compress(data)
    path.write_bytes(data)


KINDS = ["parquet", "csv", "tsv", "jsonl", "csv.gz", "jsonl.zst"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n_files", [1, 3])
def test_files_of_all_kinds(
    kind: str, n_files: int, frame: pl.DataFrame, tmp_path: Path, small_steps: Callable[..., None]
) -> None:
    small_steps(rows=30)
    # Ids that need quotes, and a session that goes on in another file.
    odd = frame.with_columns(doc=pl.col("doc").replace("doc 2", 'a "quoted", text\nof two lines'))
    size = -(-odd.height // n_files)
    for number in range(n_files):
        write(odd.slice(number * size, size), tmp_path / f"in-{number}.{kind}")
    source = str(tmp_path / f"in-*.{kind}")
    assert_same(ClickLog.ingest(source, tmp_path / "log", keep="all"), source)


@pytest.mark.parametrize("kind", KINDS)
def test_types_that_show_only_at_the_end(
    kind: str, frame: pl.DataFrame, tmp_path: Path, small_steps: Callable[..., None]
) -> None:
    """What looks like integers in the first chunk is text in the last."""
    small_steps(rows=30)
    late = pl.int_range(pl.len()) == 190
    text = pl.col("query").cast(pl.String)
    frame = frame.with_columns(
        query=pl.when(pl.col("session") == "s58").then(pl.lit("007")).otherwise(text),
        empty=pl.when(late).then(3),
        price=pl.when(late).then(0.25).otherwise(pl.int_range(pl.len())),
        code=pl.when(late).then(pl.lit("x")).otherwise(pl.lit("007")),
    )
    path = tmp_path / f"in.{kind}"
    write(frame, path)
    assert_same(ClickLog.ingest(path, tmp_path / "log", keep="all"), path)


@pytest.mark.parametrize("kind", ["parquet", "jsonl"])
def test_nested_files(kind: str, tmp_path: Path, small_steps: Callable[..., None]) -> None:
    small_steps(rows=7)
    lists = ["doc", "rank", "click", "price"]
    pages = simulated(50, seed=2).group_by("session", "query", "device", maintain_order=True)
    frame = pages.agg(lists).with_columns(
        pl.when(pl.int_range(pl.len()) % 9 == 4).then([]).otherwise(pl.col(lists)).name.keep()
    )
    path = tmp_path / f"in.{kind}"
    write(frame, path)
    log = ClickLog.ingest(path, tmp_path / "log", keep="all")
    assert_same(log, path)
    assert any((part.lengths == 0).any() for part in log.partitions())


def test_pages_without_any_ids(tmp_path: Path, small_steps: Callable[..., None]) -> None:
    small_steps(rows=2)
    frame = pl.DataFrame({"doc": [[1, 2], [2], [1, 2]] * 3, "click": [[0, 1], [1], [0, 0]] * 3})
    log = ClickLog.ingest(frame, tmp_path / "log", partitions=4)
    assert not log.has_query
    assert_same(log, frame)


def test_several_columns_make_an_id(frame: pl.DataFrame, tmp_path: Path) -> None:
    roles = {"session": ["session", "device"], "doc": ["doc", "device"]}
    assert_same(ClickLog.ingest(frame, tmp_path / "log", keep="all", **roles), frame, **roles)


def test_tables_and_logs_one_after_the_other(frame: pl.DataFrame, tmp_path: Path) -> None:
    parts = [frame.head(90), frame.slice(90)]
    assert_same(ClickLog.ingest(iter(parts), tmp_path / "a", keep="all"), frame)
    assert_same(ClickLog.ingest(frame.lazy(), tmp_path / "b", keep="all"), frame)
    assert_same(ClickLog.ingest(frame.to_dict(), tmp_path / "c", keep="all"), frame)
    assert_same(ClickLog.ingest(read_log(frame), tmp_path / "d", keep="all"), frame)
    # Logs bring whole pages, whatever they are called.
    log = read_log(frame)
    assert ClickLog.ingest([log, log], tmp_path / "e").n_sessions == 120
    with pytest.raises(ClickLogError, match="cannot be mixed"):
        ClickLog.ingest([log, frame], tmp_path / "g")
    with pytest.raises(ClickLogError, match="there is nothing in the source"):
        ClickLog.ingest([], tmp_path / "h")
    with pytest.raises(ClickLogError, match="cannot read a int"):
        ClickLog.ingest(3, tmp_path / "i")
    with pytest.raises(ClickLogError, match="'doc' holds String in the first"):
        ClickLog.ingest([frame, frame.with_columns(doc=1)], tmp_path / "j")


@pytest.mark.parametrize("partitions", [1, 4])
def test_ids_that_logs_share_are_refused_where_they_are_kept(
    partitions: int, frame: pl.DataFrame, tmp_path: Path
) -> None:
    log = read_log(frame)
    refused = r"session: [0-9]+ pages? with the id of a page of an earlier log, first: 's[0-9]+' "
    with pytest.raises(ClickLogError, match=refused + ".*leave 'session' out of it") as error:
        ClickLog.ingest([log, log], tmp_path / "a", keep="session", partitions=partitions)
    assert "nested" not in str(error.value)
    plain = read_log(frame.drop("query"))
    with pytest.raises(ClickLogError, match=refused + ".*without queries keeps the ids") as error:
        ClickLog.ingest([plain, plain], tmp_path / "b", partitions=partitions)
    assert "nested" not in str(error.value)
    other = read_log(frame.drop("query").with_columns(pl.col("session") + " again"))
    both = ClickLog.ingest([plain, other], tmp_path / "c", partitions=partitions)
    assert both.n_sessions == 120


def test_logs_that_do_not_fit_together(frame: pl.DataFrame, tmp_path: Path) -> None:
    log, text = read_log(frame), read_log(frame.with_columns(pl.col("query").cast(pl.String)))
    with pytest.raises(ClickLogError, match=r"'query' holds Int64 .* and String .* a later log"):
        ClickLog.ingest([log, log, text], tmp_path / "a")
    with pytest.raises(ClickLogError, match="a later log has queries, while the first log has no"):
        ClickLog.ingest([read_log(frame.drop("query")), log], tmp_path / "b")


@pytest.mark.parametrize(
    "name",
    [
        "yandex.tsv",
        "clickmodels.tsv",
        "pyclickmodels.jsonl",
        "baidu.parquet",
        "trec_session.xml",
        "ubi.ndjson",
    ],
)
def test_other_formats(name: str, tmp_path: Path) -> None:
    source = SAMPLES / name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ClickLogWarning)
        assert_same(ClickLog.ingest(source, tmp_path / "log", keep="all"), source)


def test_files_of_another_format_one_after_the_other(
    tmp_path: Path, small_steps: Callable[..., None]
) -> None:
    data = (SAMPLES / "pyclickmodels.jsonl").read_bytes()
    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_bytes(data)
    one = ClickLog.ingest(tmp_path / "0.jsonl", tmp_path / "one", format="pyclickmodels")
    source = str(tmp_path / "*.jsonl")
    all_ = ClickLog.ingest(source, tmp_path / "all", format="pyclickmodels", fold=True)
    assert all_.n_sessions == 3 * one.n_sessions
    assert all_.n_pages <= one.n_pages


def test_files_that_do_not_fit_together(frame: pl.DataFrame, tmp_path: Path) -> None:
    frame.write_parquet(tmp_path / "a.parquet")
    frame.with_columns(doc=1).write_parquet(tmp_path / "b.parquet")
    with pytest.raises(ClickLogError, match=r"b.parquet has other columns than .*: 'doc' holds"):
        ClickLog.ingest(str(tmp_path / "*.parquet"), tmp_path / "log")
    frame.write_csv(tmp_path / "a.csv")
    frame.rename({"doc": "url"}).write_csv(tmp_path / "b.csv")
    with pytest.raises(ClickLogError, match=r"b.csv has other columns than .*a.csv"):
        ClickLog.ingest(str(tmp_path / "*.csv"), tmp_path / "log")
    with pytest.raises(ClickLogError, match="one kind of log file"):
        ClickLog.ingest(str(tmp_path / "a.*"), tmp_path / "log")


@pytest.mark.parametrize("row", [3, 150])
def test_lines_at_fault_are_named(
    row: int, frame: pl.DataFrame, tmp_path: Path, small_steps: Callable[..., None]
) -> None:
    small_steps(rows=30)
    path = tmp_path / "in.csv"
    lines = frame.write_csv().splitlines(keepends=True)
    path.write_text("".join([*lines[:row], lines[row].replace("\n", ",x,y\n"), *lines[row + 1 :]]))
    with pytest.raises(ClickLogError, match=rf"in.csv, line {row + 1}: 9 fields"):
        ClickLog.ingest(path, tmp_path / "log")
    path = tmp_path / "in.jsonl"
    lines = frame.write_ndjson().splitlines(keepends=True)
    path.write_text("".join([*lines[:row], "{oops\n", *lines[row + 1 :]]))
    with pytest.raises(ClickLogError, match=rf"in.jsonl, line {row + 1}: not valid JSON"):
        ClickLog.ingest(path, tmp_path / "log")


def test_empty_and_broken_files(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("")
    with pytest.raises(ClickLogError, match="is empty"):
        ClickLog.ingest(tmp_path / "in.csv", tmp_path / "log")
    (tmp_path / "in.csv").write_text("session,doc,rank,click\n")
    with pytest.raises(ClickLogError, match="there are no rows"):
        ClickLog.ingest(tmp_path / "in.csv", tmp_path / "log")
    (tmp_path / "in.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(ClickLogError, match=r"in.parquet cannot be read"):
        ClickLog.ingest(tmp_path / "in.parquet", tmp_path / "log")
    (tmp_path / "in.csv").write_text("session,doc,rank,click\n" + "1" * 999)
    with pytest.raises(ClickLogError, match="longer than max_line=100"):
        ClickLog.ingest(tmp_path / "in.csv", tmp_path / "log", max_line=100)


def test_the_summary_says_which_columns_were_taken(frame: pl.DataFrame, tmp_path: Path) -> None:
    named = frame.rename({"doc": "url"}).with_columns(often=pl.lit(2))
    session = ["session", "device"]
    log = ClickLog.ingest(named, tmp_path / "log", doc="url", weight="often", session=session)
    assert "session = session + device, query, doc = url, rank, click\n" in repr(log)
    assert "120 over all sessions, of the column 'often'" in repr(log)
    assert log.source_columns["weight"] == ["often"]
    assert open_log(log.path).split()[0].source_columns == log.source_columns
    assert ClickLog.ingest(read_log(frame), tmp_path / "of a log").source_columns == {}
