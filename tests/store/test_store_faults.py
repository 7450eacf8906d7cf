"""Faults of a log are told as `read_log` tells them, with the file and the row."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from stored_pages import all_pages, multiset, pages_of

from gecasmo import ClickLog, read_log
from gecasmo.errors import ClickLogError, ClickLogWarning


def at(row: int, column: str, value: Any) -> pl.Expr:
    """A column with another value in one row."""
    return (
        pl.when(pl.int_range(pl.len()) == row).then(value).otherwise(pl.col(column)).alias(column)
    )


FAULTS = {
    "no document": [at(120, "doc", None)],
    "no query": [at(120, "query", None)],
    "no session": [at(120, "session", None)],
    "negative rank": [at(120, "rank", -1)],
    "no rank": [at(120, "rank", None)],
    "odd click": [pl.col("click").cast(pl.Int64), at(120, "click", -3)],
    "two results on a rank": [
        pl.when(pl.col("session") == "s41").then(pl.col("rank").replace(2, 1)).otherwise("rank")
    ],
    "two queries": [at(120, "query", 99)],
    "floats as ids": [pl.col("query") + 0.5],
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_are_those_of_read_log(
    name: str,
    frame: pl.DataFrame,
    tmp_path: Path,
    small_steps: Callable[..., None],
) -> None:
    for change in FAULTS[name]:
        frame = frame.with_columns(change)
    path = tmp_path / "in.parquet"
    frame.write_parquet(path)
    with pytest.raises(ClickLogError) as read:
        read_log(path)
    small_steps(rows=45)
    with pytest.raises(ClickLogError) as ingested:
        ClickLog.ingest(path, tmp_path / "log", partitions=1)
    assert _without_repetition(str(ingested.value)) == _without_repetition(str(read.value))
    # From several files, rows are those of their file.
    frame.head(100).write_parquet(tmp_path / "x1.parquet")
    frame.slice(100).write_parquet(tmp_path / "x2.parquet")
    with pytest.raises(ClickLogError) as ingested:
        ClickLog.ingest(str(tmp_path / "x?.parquet"), tmp_path / "log", partitions=1)
    if "row 120" in str(read.value):
        assert f"row 20 of {tmp_path / 'x2.parquet'}" in str(ingested.value)


def _without_repetition(message: str) -> str:
    """Counts and types may be those of a batch."""
    return re.sub(r"[0-9,]+ (places?|pages?|values? (is|are))", "n", message)


@pytest.mark.parametrize(
    ("options", "is_found"),
    [
        ({"keep": "session"}, True),
        ({"query": None}, True),
        ({}, False),  # as the limits in docs/stored-logs.md say
    ],
)
def test_pages_with_the_session_of_a_page_of_another_batch(
    options: dict[str, Any],
    is_found: bool,
    tmp_path: Path,
    small_steps: Callable[..., None],
) -> None:
    ids = [*range(40), 0]
    frame = pl.DataFrame(
        {
            "session": ids,
            "query": [n % 7 for n in ids],
            "doc": [[1, 2]] * 41,
            "click": [[0, 1]] * 41,
        }
    )
    path = tmp_path / "in.parquet"
    frame.write_parquet(path, row_group_size=10)
    refused = "session: 1 row with the session of an earlier row, .* row 40 has 0"
    with pytest.raises(ClickLogError, match=refused):
        read_log(path)
    small_steps(rows=10)
    if is_found:
        with pytest.raises(ClickLogError, match=refused):
            ClickLog.ingest(path, tmp_path / "log", partitions=4, **options)
    else:
        log = ClickLog.ingest(path, tmp_path / "log", partitions=4, **options)
        assert log.n_sessions == 41
    small_steps(rows=100)
    with pytest.raises(ClickLogError, match=refused):
        ClickLog.ingest(path, tmp_path / "again", partitions=4, **options)


def test_missing_columns(frame: pl.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match="lacks the column 'doc'") as error:
        ClickLog.ingest(frame.rename({"doc": "dooc"}), tmp_path / "log")
    assert 'doc="dooc"' in str(error.value)


@pytest.mark.parametrize("kind", ["frame", "frames", "csv", "parquet"])
def test_usual_names_are_taken_and_told(frame: pl.DataFrame, tmp_path: Path, kind: str) -> None:
    renamed = frame.rename({"doc": "url"})
    path = tmp_path / f"log.{kind}"
    if kind == "csv":
        renamed.write_csv(path)
    elif kind == "parquet":
        renamed.write_parquet(path)
    source = {"frame": renamed, "frames": iter([renamed])}.get(kind, path)
    with pytest.warns(ClickLogWarning, match='columns guessed by their names: doc="url"'):
        log = ClickLog.ingest(source, tmp_path / "log")
    assert log.source_columns["doc"] == ["url"]
    assert "columns guessed" in [note.kind for note in log.notes]


def test_rows_of_frames_are_named_as_well_as_possible(
    frame: pl.DataFrame, tmp_path: Path, small_steps: Callable[..., None]
) -> None:
    small_steps(rows=45)
    with pytest.raises(ClickLogError, match=r"row 120 has -1"):
        ClickLog.ingest(frame.with_columns(at(120, "rank", -1)), tmp_path / "log")
    with pytest.raises(ClickLogError, match=r"row 4 and row 6"):
        ClickLog.ingest(frame.with_columns(rank=1), tmp_path / "log", partitions=1)


def test_weights_have_to_be_one_a_page(frame: pl.DataFrame, tmp_path: Path) -> None:
    weighted = frame.with_columns(often=pl.int_range(pl.len()))
    with pytest.raises(ClickLogError, match=r"weight \('often'\): .* with more than one weight"):
        ClickLog.ingest(weighted, tmp_path / "log", weight="often")


def test_notes_are_counted_over_all_batches(
    frame: pl.DataFrame, tmp_path: Path, small_steps: Callable[..., None]
) -> None:
    counted = frame.with_columns(pl.col("rank") - 1, click=pl.col("click").cast(pl.Int64) * 2)
    counted = pl.concat([counted, counted[:9]])
    with pytest.warns(ClickLogWarning) as read:
        expected = read_log(counted)
    small_steps(rows=30)
    with pytest.warns(ClickLogWarning) as ingested:
        log = ClickLog.ingest(counted, tmp_path / "log", keep="all", partitions=4)
    assert len(ingested) == len(read) == 1
    kinds = {note.kind: note.count for note in log.notes}
    told = {note.kind: note.count for note in expected.notes}
    assert kinds == told | {"ranks from 0": 1}
    assert "repeated rows: 9 (" in str(ingested[0].message)
    assert multiset(all_pages(log)) == multiset(pages_of(expected))


def test_what_is_not_kept_is_no_warning(frame: pl.DataFrame, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        log = ClickLog.ingest(frame, tmp_path / "log")
    assert "'device' and 'price'" in log.notes[0].what
