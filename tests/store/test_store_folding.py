"""Equal pages are held once, where asked for or where that pays; the outcome is always the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from stored_pages import all_pages, files_of, multiset, pages_of, simulated

from gecasmo import ClickLog, read_log
from gecasmo.errors import ClickLogError
from gecasmo.hashes import hash_values
from gecasmo.logs.store.builder import PartitionBuilder


def pages(frame: pl.DataFrame) -> Any:
    """The pages of a frame, with how often each occurs."""
    return multiset(pages_of(read_log(frame.drop("device", "price"))))


def test_folded_pages_weigh_as_much_as_all_of_them(frame: pl.DataFrame, tmp_path: Path) -> None:
    log = ClickLog.ingest(frame, tmp_path / "log", fold=True)
    found = pages(frame)
    assert log.is_folded
    assert log.n_pages == len(found) < 60
    assert log.n_sessions == log.total_weight == 60
    assert multiset(all_pages(log)) == found
    assert {weight for _, _, weight in all_pages(log)} > {1.0}


def test_weights_of_the_source_are_added_up(frame: pl.DataFrame, tmp_path: Path) -> None:
    weighted = frame.with_columns(often=pl.col("session").str.tail(1).cast(pl.Float64) / 4)
    log = ClickLog.ingest(weighted, tmp_path / "log", fold=True, weight="often")
    read = read_log(weighted.drop("device", "price"), weight="often")
    assert multiset(all_pages(log)) == multiset(pages_of(read))
    assert log.total_weight == read.weight.sum()


@pytest.mark.parametrize(("times", "folds"), [(1, False), (3, True)])
def test_folding_is_decided_from_the_data(
    times: int, folds: bool, frame: pl.DataFrame, tmp_path: Path
) -> None:
    distinct = frame.with_columns(doc=pl.col("doc") + pl.col("session"))
    copies = [
        distinct.with_columns(session=pl.col("session") + f" {copy}") for copy in range(times)
    ]
    log = ClickLog.ingest(pl.concat(copies), tmp_path / "log")
    assert log.is_folded is folds
    assert log.n_sessions == 60 * times
    assert log.n_pages == 60


def pages_of_queries(counts: dict[int, int], repeated: set[int]) -> pl.DataFrame:
    """So many pages of one result for each query, all the same or all different."""
    rows = [(q, 0 if q in repeated else n) for q, count in counts.items() for n in range(count)]
    frame = pl.DataFrame(rows, schema=["query", "doc"], orient="row")
    return frame.with_columns(session=pl.int_range(pl.len()), rank=1, click=False)


def queries_in(partition: int, n_partitions: int) -> list[int]:
    """Queries of one partition."""
    numbers = pl.Series(range(2000))
    bits = n_partitions.bit_length() - 1
    return numbers.filter(hash_values(numbers) >> np.uint64(64 - bits) == partition).to_list()


@pytest.mark.parametrize("partitions", [1, 4, 16, 64])
def test_nothing_is_folded_where_nothing_repeats(partitions: int, tmp_path: Path) -> None:
    """Also if most partitions are empty, as of a log with one query."""
    frame = pages_of_queries({queries_in(21, 64)[0]: 50}, set())
    assert not ClickLog.ingest(frame, tmp_path / "log", partitions=partitions).is_folded


@pytest.mark.parametrize(("repeats", "folds"), [(True, False), (False, True)])
def test_several_partitions_decide_about_folding(
    repeats: bool, folds: bool, tmp_path: Path
) -> None:
    """The first is unlike all the others."""
    odd = set(queries_in(0, 16)[:5])
    others = {query for number in range(1, 16) for query in queries_in(number, 16)[:5]}
    frame = pages_of_queries(dict.fromkeys(odd | others, 30), odd if repeats else others)
    log = ClickLog.ingest(frame, tmp_path / "log", partitions=16)
    assert log.is_folded is folds
    assert log.n_sessions == 80 * 30


def test_of_a_large_log_some_buckets_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gecasmo.logs.store.ingest.FEWEST_SAMPLED_PAGES", 100)
    seen: list[int] = []
    whole_pages = PartitionBuilder.whole_pages

    def noted(builder: PartitionBuilder, runs: Any) -> Any:
        seen.append(len(runs))
        return whole_pages(builder, runs)

    monkeypatch.setattr(PartitionBuilder, "whole_pages", noted)
    queries = [query for number in range(64) for query in queries_in(number, 64)[:3]]
    frame = pages_of_queries(dict.fromkeys(queries, 9), set(queries))
    assert ClickLog.ingest(frame, tmp_path / "log", partitions=64).is_folded
    assert seen[:-64] == [27, 27, 27, 27]  # then all 64 are built


def test_pages_that_differ_in_a_kept_column_are_not_folded(tmp_path: Path) -> None:
    frame = simulated(40, seed=1, n_queries=1, n_docs=1)
    plain = ClickLog.ingest(frame, tmp_path / "plain", fold=True)
    kept = ClickLog.ingest(frame, tmp_path / "kept", fold=True, keep=["device", "price"])
    assert plain.n_pages < kept.n_pages
    assert multiset(all_pages(kept)) == multiset(pages_of(read_log(frame)))


@pytest.mark.parametrize("fold", [False, True])
@pytest.mark.parametrize("keep", [(), ("device", "price")])
def test_large_partitions_are_put_together_in_shares(
    fold: bool,
    keep: tuple[str, ...],
    frame: pl.DataFrame,
    small_steps: Callable[..., None],
    tmp_path: Path,
) -> None:
    whole = ClickLog.ingest(frame, tmp_path / "whole", fold=fold, keep=keep, partitions=2)
    small_steps(rows=17, most=20)
    shares = ClickLog.ingest(frame, tmp_path / "shares", fold=fold, keep=keep, partitions=2)
    assert files_of(whole) == files_of(shares)


def test_very_many_documents_of_a_query(tmp_path: Path) -> None:
    """A byte holds 255 numbers; the few results beyond are kept apart."""
    docs = np.concatenate([np.tile(np.arange(200), 20), np.arange(1000)])
    frame = pl.DataFrame({"session": np.arange(len(docs)) // 10, "query": 1, "doc": docs})
    frame = frame.with_columns(rank=pl.int_range(pl.len()).over("session") + 1, click=False)
    log = ClickLog.ingest(frame, tmp_path / "log", fold=False)
    assert list(tmp_path.rglob("escapes.arrow"))
    assert pl.read_ipc(next(tmp_path.rglob("results.arrow"))).schema["doc"] == pl.UInt8
    assert multiset(all_pages(log)) == multiset(pages_of(read_log(frame)))
    assert [p for piece in log.pieces(0, 90) for p in pages_of(piece)] == all_pages(log)
    many = frame.with_columns(doc=pl.int_range(pl.len()))
    wide = ClickLog.ingest(many, tmp_path / "wide", fold=False)
    assert not list((tmp_path / "wide").rglob("escapes.arrow"))
    assert multiset(all_pages(wide)) == multiset(pages_of(read_log(many)))


def test_ids_of_sessions_leave_nothing_to_fold(frame: pl.DataFrame, tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match="are all different"):
        ClickLog.ingest(frame, tmp_path / "log", fold=True, keep="session")
    assert not ClickLog.ingest(frame, tmp_path / "log", keep="session").is_folded
