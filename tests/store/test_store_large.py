"""Large logs are stored by kernels, pages in order without a table; no bit of a log differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from stored_pages import files_of, simulated

from gecasmo import ClickLog
from gecasmo.errors import ClickLogError
from gecasmo.logs import arrays
from gecasmo.logs.pages import number_by_first_appearance
from gecasmo.logs.store.builder import PartitionBuilder
from gecasmo.logs.store.page_runs import PageRuns, first_equal, first_equal_within, hash_ids
from gecasmo.logs.store.sources import Segment, SourceBatch, joined, read_ahead
from gecasmo.testing import plain_python


def numbered(frame: pl.DataFrame) -> pl.DataFrame:
    """The same log with numbers for all ids."""
    return frame.with_columns(
        session=pl.col("session").str.slice(1).cast(pl.Int64),
        doc=pl.col("doc").str.slice(4).cast(pl.Int32),
    )


def scattered(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows in no order, so that no run is a page."""
    return frame.sample(fraction=1, shuffle=True, seed=3)


LOGS: dict[str, tuple[Callable[[pl.DataFrame], pl.DataFrame], dict[str, Any]]] = {
    "texts": (lambda frame: frame, {}),
    "numbers": (numbered, {"fold": True}),
    "columns": (numbered, {"keep": ["device", "price"], "fold": False}),
    "scattered": (scattered, {"fold": True}),
    "from 0": (lambda frame: frame.with_columns(pl.col("rank") - 1), {}),
    "gaps": (lambda frame: frame.with_columns(pl.col("rank") * 2), {"fold": True}),
    "counts": (lambda frame: frame.with_columns(pl.col("click").cast(pl.Int64) * 2), {}),
    "no queries": (lambda frame: numbered(frame).drop("query"), {"query": None}),
    "nested": (
        lambda frame: (
            numbered(frame)
            .group_by("session", "query", maintain_order=True)
            .agg("doc", "rank", "click")
        ),
        {"fold": True},
    ),
}


def stored(frame: pl.DataFrame, path: Path, **options: Any) -> dict[str, bytes]:
    return files_of(ClickLog.ingest(frame, path, partitions=4, **options))


@pytest.mark.filterwarnings("ignore::gecasmo.errors.ClickLogWarning")
@pytest.mark.parametrize("name", LOGS)
def test_large_logs_are_stored_as_small_ones(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change, options = LOGS[name]
    frame = change(simulated(300, seed=1))
    small = stored(frame, tmp_path / "small", **options)
    monkeypatch.setattr(PartitionBuilder, "_is_in_order", lambda *_: False)
    assert stored(frame, tmp_path / "checked", **options) == small
    monkeypatch.undo()
    monkeypatch.setattr(arrays, "LARGE_LOG", 0)
    for is_compiled in (False, True):
        with nullcontext() if is_compiled else plain_python():
            assert stored(frame, tmp_path / f"{is_compiled}", **options) == small


@pytest.mark.parametrize("is_large", [False, True])
def test_what_is_at_fault_in_pages_in_order_is_told(
    is_large: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "LARGE_LOG", 0 if is_large else 10**9)
    frame = numbered(simulated(40, seed=2))
    second = int(np.flatnonzero(frame["rank"].to_numpy() == 2)[-1])
    rank = frame["rank"].to_numpy().copy()
    rank[second] = 1
    with pytest.raises(ClickLogError, match=rf"two results on rank 1 \(row {second - 1} and row"):
        ClickLog.ingest(frame.with_columns(rank=pl.Series(rank)), tmp_path / "log")


@pytest.mark.parametrize("seed", range(5))
def test_first_of_a_group(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(seed)
    keys = random.integers(0, 9, 200).astype(np.uint64)
    group = random.integers(0, 5, 200).astype(np.uint32)
    expected = first_equal(keys * np.uint64(100) + group)
    assert np.array_equal(first_equal_within(keys, group), expected)
    monkeypatch.setattr(arrays, "LARGE_LOG", 0)
    assert np.array_equal(first_equal_within(keys, group), expected)


def test_runs_are_taken_with_all_their_columns() -> None:
    lengths = np.array([2, 0, 3, 1], np.uint32)
    results = pl.DataFrame(
        {
            "click": [True, False, False, True, True, False],
            "doc": ["a", "b", "c", "d", "e", "f"],
            "small": pl.Series([1, 2, 3, 4, 5, 6], dtype=pl.Int8),
            "gaps": [1, None, 3, 4, None, 6],
            "price": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5],
            "when": pl.Series([1, 2, 3, 4, 5, 6]).cast(pl.Datetime),
        }
    )
    taken = PageRuns(pl.DataFrame({"\0length": lengths}), results).take(np.array([2, 1, 0]))
    assert taken.lengths.tolist() == [3, 0, 2]
    assert taken.results.equals(results[[2, 3, 4, 0, 1]])
    assert taken.results.schema == results.schema


def test_ids_are_hashed_as_before() -> None:
    texts = pl.Series(["b", "a", "b", None])
    assert len(set(hash_ids(texts).tolist())) == 3
    numbers = pl.Series([3, -1, 3, 2**40])
    each = [int(hash_ids(numbers[i : i + 1])[0]) for i in range(4)]
    assert hash_ids(numbers).tolist() == each


def test_numbers_that_rise_are_numbered_in_order() -> None:
    for values in (pl.Series([3, 5, 9]), pl.Series([3, 5, 5]), pl.Series([5, 3, 5])):
        numbers, firsts = number_by_first_appearance(values)
        assert values.gather(firsts).gather(numbers).to_list() == values.to_list()
        assert np.array_equal(np.unique(numbers), np.arange(len(firsts)))


def parts(n: int, ends_badly: bool = True) -> Iterator[SourceBatch]:
    for number in range(n):
        frame = pl.DataFrame({"x": [number]})
        yield SourceBatch(frame, (Segment(0, number, 1),), {"row": number + 1})
    if ends_badly:
        raise ClickLogError("the file is cut off")


def test_batches_read_ahead_are_the_same() -> None:
    assert [batch.place for batch in read_ahead(parts(3, False))] == [{"row": n} for n in (1, 2, 3)]
    found: list[SourceBatch] = []
    with pytest.raises(ClickLogError, match="cut off"):
        found.extend(read_ahead(parts(2)))
    assert [batch.place["row"] for batch in found] == [1, 2]


def test_what_is_wrong_with_a_part_is_raised_after_those_before_it() -> None:
    found: list[SourceBatch] = []
    with pytest.raises(ClickLogError, match="cut off"):
        found.extend(joined(parts(5), rows=2))
    assert [batch.rows for batch in found] == [2, 2, 1]
