"""A stored log is split without a copy, as one in memory is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from stored_pages import all_pages, assert_well_stored, multiset, pages_of, simulated

import gecasmo
from gecasmo import ClickLog
from gecasmo.errors import ClickLogError
from gecasmo.logs import clicklog
from gecasmo.logs.store import StoredLog, split

COUNTS = ("n_sessions", "n_source_results", "n_clicks", "total_weight")


def stored(path: Path, frame: pl.DataFrame | None = None, **options: Any) -> StoredLog:
    frame = simulated(300, seed=1, n_queries=40) if frame is None else frame
    return ClickLog.ingest(frame, path / "log", **{"partitions": 4, "fold": False} | options)


def counted(log: StoredLog) -> dict[str, float]:
    """The counts of a log, from its pages."""
    n_clicks = n_sources = 0.0
    pairs = set()
    queries = set()
    for part in log.partitions():
        times = part.weight if part.is_folded else np.ones(part.n_sessions)
        n_sources += times.sum()
        n_clicks += (times[part.page] * part.click).sum()
        of_results = part.column("query").to_list() if part.has_query else [None] * part.n_results
        pairs |= set(zip(of_results, part.column("doc").to_list(), strict=True))
        queries |= set(of_results)
    return {
        "n_sessions": n_sources,
        "n_clicks": n_clicks,
        "n_pairs": len(pairs),
        "n_queries": len(queries - {None}),
    }


@pytest.mark.parametrize("by", ["session", "query"])
@pytest.mark.parametrize("fold", [False, True])
def test_the_parts_are_the_whole(by: str, fold: bool, tmp_path: Path) -> None:
    log = stored(tmp_path, fold=fold)
    train, test = log.split(test=0.3, by=by, seed=5)
    together = multiset(all_pages(train)) + multiset(all_pages(test))
    assert together == multiset(all_pages(log))
    for name in COUNTS:
        assert getattr(train, name) + getattr(test, name) == getattr(log, name)
    for part in (train, test):
        assert isinstance(part, StoredLog)
        assert_well_stored(part)
        assert part.n_pages > 0
        assert {name: getattr(part, name) for name in counted(part)} == counted(part)
        assert part.is_folded is fold
        assert part.columns == log.columns
        part.check()


def test_a_query_is_in_one_part_and_the_share_is_about_met(tmp_path: Path) -> None:
    log = stored(tmp_path, simulated(2000, seed=2, n_queries=2000))
    train, test = log.split(test=0.25, by="query", seed=3)
    in_parts = [
        {query for page in part.partitions() for query in page.column("query").to_list()}
        for part in (train, test)
    ]
    assert not in_parts[0] & in_parts[1]
    assert len(in_parts[1]) == test.n_queries
    n_queries = log.n_queries
    assert abs(test.n_queries - n_queries / 4) < 5 * np.sqrt(n_queries * 0.25 * 0.75)


def test_the_share_of_sessions_is_met(tmp_path: Path) -> None:
    train, test = stored(tmp_path).split(test=0.2, seed=3)
    assert (train.n_sessions, test.n_sessions) == (240, 60)


def test_with_very_many_sessions_the_share_is_met_by_chance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(split, "MOST_COUNTED", 10)
    log = stored(tmp_path, simulated(2000, seed=2, n_queries=2000))
    train, test = log.split(test=0.3)
    assert 0.25 < test.n_sessions / log.n_sessions < 0.35
    assert train.n_sessions + test.n_sessions == 2000


def test_the_split_depends_on_the_seed_alone(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "other").mkdir()
    frame = simulated(300, seed=1, n_queries=40)
    log = stored(tmp_path / "one", frame)
    other = stored(tmp_path / "other", frame.reverse(), partitions=16)

    def queries(log: StoredLog, seed: int) -> set[Any]:
        _, test = log.split(by="query", seed=seed)
        return {query for part in test.partitions() for query in part.column("query")}

    assert queries(log, 0) == queries(log, 0) == queries(other, 0)
    assert queries(log, 0) != queries(log, 1)


def test_a_query_is_in_the_same_part_of_every_log(tmp_path: Path) -> None:
    """What is learned of a query on one day must not leak into the test part of another."""
    sides: dict[Any, set[int]] = {}
    for day, n_queries in enumerate((15, 40)):
        (tmp_path / str(day)).mkdir()
        log = stored(tmp_path / str(day), simulated(200, seed=day, n_queries=n_queries))
        for seed in range(4, 10):
            for is_test, side in enumerate(log.split(test=0.3, by="query", seed=seed)):
                for part in side.partitions():
                    for query in part.column("query"):
                        sides.setdefault((seed, query), set()).add(is_test)
    assert len(sides) == 6 * 40
    assert all(len(found) == 1 for found in sides.values())


def test_a_part_without_queries_is_told(tmp_path: Path) -> None:
    log = stored(tmp_path, simulated(20, seed=1, n_queries=2))
    with pytest.raises(ClickLogError, match="the test part would have no pages; try another"):
        log.split(test=1e-9, by="query")


def test_weights_that_add_up_to_the_pages_are_no_counts(tmp_path: Path) -> None:
    frame = simulated(200, seed=1, n_queries=3).with_columns(
        often=pl.when(pl.col("session").rank("dense") % 2 == 0).then(0.5).otherwise(1.5)
    )
    log = stored(tmp_path, frame, fold=True, weight="often")
    assert log.total_weight == log.n_sessions
    assert not log.weights_are_counts
    with pytest.raises(ClickLogError, match="by='query', or ingest it with fold=False"):
        log.split()


def test_sessions_with_ids_do_not_depend_on_partitions(tmp_path: Path) -> None:
    found = []
    for number in (1, 8):
        (tmp_path / str(number)).mkdir()
        log = stored(tmp_path / str(number), partitions=number, keep="session")
        _, test = log.split(seed=2)
        found.append({session for part in test.partitions() for session in part.sessions})
    assert found[0] == found[1]
    assert len(found[0]) == 60


def test_parts_of_parts_are_drawn_anew(tmp_path: Path) -> None:
    log = stored(tmp_path)
    for by in ("session", "query"):
        rest, test = log.split(test=0.2, by=by)
        train, valid = rest.split(test=0.25, by=by)
        parts = [multiset(all_pages(part)) for part in (train, valid, test)]
        assert parts[0] + parts[1] + parts[2] == multiset(all_pages(log))
        assert len({part.fingerprint for part in (log, rest, test, train, valid)}) == 5


def test_pages_keep_their_names_and_columns(tmp_path: Path) -> None:
    log = stored(tmp_path, keep=["device", "price"])
    by_name = {
        name: page
        for part in log.partitions()
        for name, page in zip(part.sessions, pages_of(part), strict=True)
    }
    for side in log.split(test=0.4):
        for part in side.partitions():
            for name, page in zip(part.sessions, pages_of(part), strict=True):
                assert by_name[name] == page


@pytest.mark.parametrize("most", [1, 7, 10**6])
def test_pieces_are_the_partition(most: int, tmp_path: Path) -> None:
    for part in stored(tmp_path).split(test=0.4, seed=1):
        for number in range(part.n_partitions):
            pieces = [page for piece in part.pieces(number, most) for page in pages_of(piece)]
            assert pieces == pages_of(part.partition(number))
        assert pages_of(part.head(2)) == all_pages(part)[:2]


def test_documents_beyond_a_byte_are_found(tmp_path: Path) -> None:
    frame = simulated(3000, seed=6, n_queries=2, n_docs=300)
    often = frame.with_columns(doc=pl.when(pl.col("rank") > 1).then(pl.lit("d")).otherwise("doc"))
    log = stored(tmp_path, often, partitions=1)
    assert (log.path / "partition-00000" / "escapes.arrow").exists()
    train, test = log.split(test=0.5)
    assert multiset(all_pages(train)) + multiset(all_pages(test)) == multiset(all_pages(log))


def test_sessions_of_folded_pages_are_drawn_one_by_one(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "session": np.arange(4000),
            "query": np.repeat([1, 2], 2000),
            "doc": "a",
            "rank": 1,
            "click": np.tile([True, False], 2000),
        }
    )
    log = stored(tmp_path, frame, fold=True)
    assert log.n_pages == 4
    train, test = log.split(test=0.2, seed=7)
    assert train.n_pages == test.n_pages == 4
    weight = np.concatenate([part.weight for part in test.partitions()])
    assert (np.abs(weight - 200) < 5 * np.sqrt(1000 * 0.2 * 0.8)).all()
    assert len(set(weight)) > 1
    again = log.split(test=0.2, seed=7)[1]
    assert np.array_equal(weight, np.concatenate([part.weight for part in again.partitions()]))


def test_logs_without_queries_are_split_by_session(tmp_path: Path) -> None:
    log = stored(tmp_path, simulated(100, seed=3).drop("query"))
    train, test = log.split(test=0.1)
    assert (train.n_sessions, test.n_sessions) == (90, 10)
    assert multiset(all_pages(train)) + multiset(all_pages(test)) == multiset(all_pages(log))
    with pytest.raises(ClickLogError, match="no queries; split it by 'session'"):
        log.split(by="query")


def test_folded_logs_with_weights_are_split_by_query_alone(tmp_path: Path) -> None:
    frame = simulated(300, seed=1, n_queries=20).with_columns(
        often=pl.col("session").str.tail(1).cast(pl.Float64) / 4 + 0.25
    )
    log = stored(tmp_path, frame, fold=True, weight="often")
    with pytest.raises(ClickLogError, match="by='query', or ingest it with fold=False"):
        log.split()
    train, test = log.split(by="query")
    assert train.total_weight + test.total_weight == log.total_weight
    assert (train.n_sessions, test.n_sessions) == (train.n_pages, test.n_pages)
    assert not train.partition(0).is_folded


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": 0}, "between 0 and 1"),
        ({"test": 1.0}, "between 0 and 1"),
        ({"test": "0.3"}, "'0.3'.*a number between 0 and 1"),
        ({"test": True}, "a number between 0 and 1"),
        ({"by": "device"}, "by 'session' or by 'query'"),
        ({"seed": -1}, "from 0 on"),
    ],
)
def test_what_cannot_be_split_is_told(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ClickLogError, match=message):
        stored(tmp_path).split(**options)


def test_one_query_cannot_be_split(tmp_path: Path) -> None:
    with pytest.raises(ClickLogError, match="at least two different values, and the log has 1"):
        stored(tmp_path, simulated(20, seed=1, n_queries=1)).split(by="query")


def test_the_parts_print_what_they_are(tmp_path: Path) -> None:
    train, test = stored(tmp_path).split(by="query", seed=9)
    assert "training, 0.8 of the log by query, seed 9" in repr(train)
    assert "StoredPart" in repr(test)
    assert "test, 0.2 of the log" in test._repr_html_()


def test_a_fit_of_a_part_is_that_of_the_same_pages_in_memory(tmp_path: Path) -> None:
    log = stored(tmp_path, fold=True)
    for by in ("query", "session"):
        train, test = log.split(test=0.3, by=by)
        method = gecasmo.EM(max_iter=5, tol=0)
        model = gecasmo.PBM().fit(train, method=method)
        frames = [
            part.to_frame().with_columns(weight=pl.Series(part.weight[part.page]))
            for part in train.partitions()
        ]
        pages = gecasmo.read_log(pl.concat(frames), weight="weight")
        memory = gecasmo.PBM().fit(pages, method=method)
        joined = clicklog.joined([part for part in test.partitions() if part.n_sessions])
        assert model.score(test) == pytest.approx(memory.score(joined), abs=1e-9)
        assert model.report_ is not None
        assert model.report_.n_sessions == train.n_sessions
        found, expected = model.evaluate(test), memory.evaluate(joined)
        assert found.log_likelihood == pytest.approx(expected.log_likelihood, abs=1e-9)


def test_a_changed_file_is_noticed_by_the_parts(tmp_path: Path) -> None:
    log = stored(tmp_path)
    train, _ = log.split()
    path = next(log.path.rglob("results.arrow"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ClickLogError, match="cut off"):
        list(train.partitions())
    with pytest.raises(ClickLogError, match="cut off"):
        train.check()


@pytest.mark.parametrize("name", ["column", "click", "weight", "take", "to_frame", "page", "write"])
def test_what_only_a_log_in_memory_has_is_told(name: str, tmp_path: Path) -> None:
    log = stored(tmp_path)
    for each in (log, log.split()[0]):
        assert not hasattr(each, name)
        assert getattr(each, name, None) is None
        with pytest.raises(AttributeError, match=rf"log\.partition\(i\)\.{name}") as raised:
            getattr(each, name)
        assert isinstance(raised.value, ClickLogError)


def test_other_names_are_ordinary_errors(tmp_path: Path) -> None:
    log = stored(tmp_path)
    assert not hasattr(log, "nonsense")
    assert not hasattr(log, "_frame")
    with pytest.raises(AttributeError, match="'StoredLog' object has no attribute 'nonsense'"):
        getattr(log, "nonsense")  # noqa: B009 - a checker of types would not let it pass
