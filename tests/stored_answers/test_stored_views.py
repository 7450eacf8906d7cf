"""Stored logs under views: the answers are those of the log in memory, and refusals say what to do.

Pages of a task are of several queries. Where a log is stored for tasks, they are in one partition,
and rows by query are met in many; a fit of tasks makes one part of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from gecasmo import DBN, EM, VB, ClickLog, ClickModel, Table, load, read_log
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.estimation.disk import DiskParts
from gecasmo.logs.store.stored_log import StoredLog
from gecasmo.logs.views import as_view
from gecasmo.model import log_parts
from gecasmo.models import CATALOGUE

pytestmark = pytest.mark.filterwarnings("ignore::gecasmo.errors.GecasmoWarning")
TOLERANCE = {"rtol": 1e-9, "atol": 1e-12}
VIEWED = [name for name, model in CATALOGUE.items() if as_view(model.view).name != "pages"]
OVER_PAGES = [name for name in VIEWED if as_view(CATALOGUE[name].view).spans_pages]


def source(
    model: type[ClickModel], n_pages: int = 36, seed: int = 5, n_queries: int = 5
) -> pl.DataFrame:
    """Pages as a log tells them, in no order: tasks of one to five pages at times that are tied now
    and then, and clicks in an order of their own."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 5, n_pages)
    page = np.repeat(np.arange(n_pages), lengths)
    rank = np.arange(len(page)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
    task, at = np.sort(rng.integers(0, n_pages // 3, n_pages)), rng.integers(0, 40, n_pages)
    table = pl.DataFrame(
        {
            "session": [f"s{number}" for number in page],
            "query": [f"q{number}" for number in rng.integers(0, n_queries, n_pages)[page]],
            "doc": rng.integers(0, 6, len(page)),
            "rank": rank,
            "visit": [f"v{number}" for number in task[page]],
            "time": at[page],
            "row": (rank + 1) // 2,
            "column": rank % 2,
            "click": False,
            "device": rng.integers(0, 2, n_pages)[page],
        }
    )
    coins = dict.fromkeys(model._parameters(), 0.6)
    if model().foreseen:
        model, coins = CATALOGUE["WalkCM"], dict.fromkeys(CATALOGUE["WalkCM"]._parameters(), 0.5)
    shuffled = read_log(table[pl.Series(rng.permutation(len(page)))])
    return model.with_values(**coins).simulate(shuffled, seed=seed).to_frame()


def both(name: str, folder: Path, **options: Any) -> tuple[ClickLog, StoredLog]:
    """The log in memory and on disk, where nothing but the view says what is kept."""
    model = CATALOGUE[name]
    table = source(model)
    view = as_view(model.view).name
    stored = ClickLog.ingest(
        table, folder / "log", view=view, keep=["session"], partitions=4, **options
    )
    return read_log(table), stored


def fitted(name: str, log: Any, **options: Any) -> Any:
    model = CATALOGUE[name]()
    return model.fit(log, EM(5, tol=0, accelerate=False), progress=False, **options)


def same(
    one: pl.DataFrame, other: pl.DataFrame, keys: list[str], tolerance: Any = TOLERANCE
) -> None:
    """Two frames with the same rows in any order."""
    assert one.columns == other.columns
    if keys:
        one, other = one.sort(keys, nulls_last=True), other.sort(keys, nulls_last=True)
    for name in one.columns:
        if one[name].dtype.is_float():
            found = [frame[name].fill_null(-1.0).to_numpy() for frame in (one, other)]
            np.testing.assert_allclose(*found, **tolerance, err_msg=name)
        else:
            assert one[name].to_list() == other[name].to_list(), name


@pytest.mark.parametrize("name", VIEWED)
def test_all_answers_are_those_in_memory(name: str, tmp_path: Path) -> None:
    log, stored = both(name, tmp_path)
    assert stored.partitioned_by == ("visit" if name in OVER_PAGES else "query")
    in_memory, on_disk = fitted(name, log), fitted(name, stored)
    for coin, rows in in_memory.parameters.items():
        keys = list(in_memory.keys[coin])
        same(rows, on_disk.parameters[coin].select(rows.columns), keys)
        told = [model.estimates(coin, rows.select(keys)) for model in (in_memory, on_disk)]
        same(*told, keys)
    for model in (in_memory, on_disk):
        found = [model.evaluate(each).to_dict() for each in (log, stored)]
        np.testing.assert_allclose(*map(list, map(dict.values, found)), **TOLERANCE)
        np.testing.assert_allclose(model.score(log), model.score(stored), **TOLERANCE)
        for coin, rows in model.expected_counts(log).items():
            same(rows, model.expected_counts(stored)[coin], list(model.keys[coin]))
    if in_memory.foreseen:
        for each in (log, stored):
            with pytest.raises(ModelError, match="cannot predict clicks"):
                in_memory.predict(each, tmp_path / "none.parquet")
        assert not (tmp_path / "none.parquet").exists()
    else:
        for each, file in ((log, "memory.parquet"), (stored, "disk.parquet")):
            in_memory.predict(each, tmp_path / file)
        predicted = [pl.read_parquet(tmp_path / f"{file}.parquet") for file in ("memory", "disk")]
        columns = [column for column in predicted[0].columns if column != "unseen"]
        same(*(frame.select(columns) for frame in predicted), ["session", "rank"])
    pairs = ["query", "doc"]
    judged = [in_memory.judgments(pairs=each).frame for each in (log, stored)]
    same(*judged, pairs)
    same(judged[0], on_disk.judgments(pairs=stored).frame, pairs)
    day = read_log(source(CATALOGUE[name], n_pages=20, seed=8))
    updated = [model.update(day, progress=False).parameters for model in (in_memory, on_disk)]
    for coin, rows in updated[0].items():
        same(rows, updated[1][coin].select(rows.columns), list(in_memory.keys[coin]))


def test_default_fits_of_tasks_learn_what_they_learn_in_memory(tmp_path: Path) -> None:
    """Priors by rank and exposure, intervals and verdicts: rows by query are met in every
    partition, so all partitions are one part."""
    name = "SessionDBN"
    table = source(CATALOGUE[name], n_pages=160, n_queries=30)
    stored = ClickLog.ingest(table, tmp_path / "log", view="tasks", partitions=4)
    log = read_log(table)
    models = [CATALOGUE[name]().fit(each, progress=False) for each in (log, stored)]
    assert len(models[0].parameters["attraction"]) > 100
    np.testing.assert_allclose(*(m.report_.log_likelihood for m in models), **TOLERANCE)
    loose = {"rtol": 1e-6, "atol": 1e-9}
    for coin in models[0].forms:
        keys = list(models[0].keys[coin])
        same(*(model.estimates(coin) for model in models), keys, loose)
    pairs = ["query", "doc"]
    judged = [model.judgments(pairs=log).frame for model in models]
    same(*judged, pairs, loose)
    assert judged[1].select("low", "high").null_count().sum_horizontal().sum() == 0
    model = models[1]
    model.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    same(model.estimates("attraction"), again.estimates("attraction"), pairs)
    found = [CATALOGUE[name]().fit(each, VB(3), progress=False) for each in (log, stored)]
    np.testing.assert_allclose(*(m.report_.log_likelihood for m in found), **TOLERANCE)


def test_a_fit_of_tasks_is_resumed(tmp_path: Path, monkeypatch: Any) -> None:
    """What was answered before a fit was killed is not asked again, and the end is the same."""
    _, stored = both("SessionDBN", tmp_path)
    model = CATALOGUE["SessionDBN"]
    whole = model().fit(stored, progress=False)
    run, asked = DiskParts._one_part, []

    def killed(*given: Any) -> Any:
        asked.append(1)
        if len(asked) == 4:
            raise RuntimeError("killed")
        return run(*given)

    monkeypatch.setattr(DiskParts, "_one_part", killed)
    with pytest.raises(RuntimeError, match="killed"):
        model().fit(stored, checkpoint=tmp_path / "fit", progress=False)
    resumed = model().fit(stored, checkpoint=tmp_path / "fit", progress=False)
    assert resumed.report_.log_likelihood == whole.report_.log_likelihood
    assert resumed.estimates("attraction").equals(whole.estimates("attraction"))


@pytest.mark.parametrize("name", ["SessionDBN", "WalkCM"])
def test_pieces_of_a_partition_keep_walks_whole(
    name: str, tmp_path: Path, monkeypatch: Any
) -> None:
    log, stored = both(name, tmp_path)
    monkeypatch.setattr(log_parts, "MOST_RESULTS", 4)
    pieces = [piece for _, piece in log_parts.all_pieces(stored)]
    assert len(pieces) > 10
    if name in OVER_PAGES:
        tasks = [task for piece in pieces for task in piece.column("visit").unique()]
        assert len(tasks) == len(set(tasks))
    in_memory, on_disk = (fitted(name, each, intervals=False) for each in (log, stored))
    for coin, rows in in_memory.parameters.items():
        same(rows, on_disk.parameters[coin].select(rows.columns), list(in_memory.keys[coin]))
    np.testing.assert_allclose(in_memory.score(log), in_memory.score(stored), **TOLERANCE)


@pytest.mark.parametrize("name", [name for name in VIEWED if not CATALOGUE[name]().foreseen])
def test_clicks_are_simulated_into_a_log_for_the_same_models(
    name: str, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("gecasmo.model.stories._AT_A_TIME", 20)
    _, stored = both(name, tmp_path)
    model = CATALOGUE[name]
    truth = model.with_values(**dict.fromkeys(model._parameters(), 0.5))
    made = truth.simulate(stored, path=tmp_path / "made", seed=2)
    assert made.partitioned_by == stored.partitioned_by
    assert (made.n_sessions, made.n_results) == (stored.n_sessions, stored.n_results)
    again = fitted(name, made, intervals=False)
    assert np.isfinite(again.report_.log_likelihood)
    if name == "WalkCM":
        assert "click_order" in made.columns


def test_pages_of_tasks_serve_other_models_too(tmp_path: Path) -> None:
    """Rows by query are met in many partitions, also by a model whose rows are in files."""
    log, by_task = both("SessionDBN", tmp_path)
    by_query = ClickLog.ingest(log, tmp_path / "queries", partitions=4)
    method, quick = EM(4, tol=0, accelerate=False), {"progress": False, "intervals": False}
    models = [DBN().fit(each, method, **quick) for each in (log, by_task, by_query)]
    for model in models:
        for each in (by_task, by_query):
            np.testing.assert_allclose(models[0].score(log), model.score(each), **TOLERANCE)
    again = [
        DBN().fit(by_task, EM(1, tol=0, accelerate=False), start=model, **quick) for model in models
    ]
    likelihoods = [model.report_.log_likelihood for model in again]
    np.testing.assert_allclose(likelihoods, likelihoods[0], **TOLERANCE)
    by_task_key = DBN(attraction=Table(key=("visit", "doc")))
    found = [by_task_key.copy().fit(each, method, **quick) for each in (log, by_task)]
    np.testing.assert_allclose(*(each.report_.log_likelihood for each in found), **TOLERANCE)


def test_impossible_pages_go_with_their_task_from_disk_as_well(tmp_path: Path) -> None:
    log, stored = both("SessionDBN", tmp_path)
    model = CATALOGUE["SessionDBN"]
    sure = model.with_values(attraction=0.5, satisfaction=1.0, continuation=0.5, persistence=0.5)
    for impossible in ("drop", "floor"):
        found = [sure.evaluate(each, impossible=impossible) for each in (log, stored)]
        assert found[0].n_sessions == found[1].n_sessions
        assert (found[0].n_sessions < log.n_sessions) == (impossible == "drop")
        np.testing.assert_allclose(*(each.log_likelihood for each in found), **TOLERANCE)
    how: dict[str, Any] = {"progress": False, "intervals": False, "impossible": "drop"}
    fits = [
        model(satisfaction=1.0).fit(each, EM(3, tol=0), **how).report_ for each in (log, stored)
    ]
    assert fits[0].n_dropped == fits[1].n_dropped > 0
    np.testing.assert_allclose(*(each.log_likelihood for each in fits), **TOLERANCE)


def test_split_keeps_tasks_together(tmp_path: Path) -> None:
    log, stored = both("TCM", tmp_path)
    train, test = stored.split(0.3, by="visit", seed=1)
    tasks = [
        {task for part in each.partitions() for task in part.column("visit")}
        for each in (train, test)
    ]
    assert not tasks[0] & tasks[1]
    assert tasks[0] | tasks[1] == set(log.column("visit"))
    assert (train.partitioned_by, train.n_sessions + test.n_sessions) == ("visit", log.n_sessions)
    by_query = stored.split(0.4, by="query", seed=3)
    asked = [{q for part in each.partitions() for q in part.column("query")} for each in by_query]
    assert not asked[0] & asked[1]
    with pytest.raises(ClickLogError, match="by 'session' or by 'query' or by 'visit'"):
        stored.split(by="device")


def test_what_is_kept_and_in_which_order(tmp_path: Path) -> None:
    log, stored = both("TCM", tmp_path)
    assert stored.columns == [
        *("session", "query", "doc", "rank", "click", "visit", "time", "query_follows")
    ]
    assert "by visit" in repr(stored)
    first = {session: number for number, session in enumerate(log.sessions)}
    for part in stored.partitions():
        assert part.session_column("visit").n_unique() == len(part.session_column("visit").rle())
        for task in part.session_column("visit").unique():
            pages = part.sessions.filter(part.session_column("visit") == task)
            assert [first[page] for page in pages] == sorted(first[page] for page in pages)
    again = StoredLog(stored.path)
    assert (again.partitioned_by, again.n_queries) == ("visit", 0)
    assert again[3].query == stored[3].query


@pytest.mark.parametrize("kind", ["table", "log", "nested"])
def test_every_kind_of_source_is_stored_for_tasks(kind: str, tmp_path: Path) -> None:
    table = source(CATALOGUE["TCM"])
    given: Any = {"table": table, "log": read_log(table)}.get(kind)
    if kind == "nested":
        pages = ["session", "query", "visit", "time"]
        table = table.drop("query_follows")
        given = table.sort("rank").group_by(pages, maintain_order=True).agg("doc", "rank", "click")
    stored = ClickLog.ingest(given, tmp_path / "log", view="tasks", partitions=4)
    model = CATALOGUE["TCM"]
    truth = model.with_values(**dict.fromkeys(model._parameters(), 0.7))
    with pytest.warns(match="pages at the same time as another of their task") as told:
        found = truth.score(stored)
    assert len(told) == 1  # of all partitions together
    in_memory = given if kind == "log" else read_log(given)
    np.testing.assert_allclose(found, truth.score(in_memory), **TOLERANCE)


def test_what_is_lacking_is_said_with_the_command(tmp_path: Path) -> None:
    table = source(CATALOGUE["TCM"])
    plain = ClickLog.ingest(table, tmp_path / "plain", partitions=2)
    kept = ClickLog.ingest(table, tmp_path / "kept", keep="all", partitions=2)
    for name in VIEWED:
        model = CATALOGUE[name]
        truth = model.with_values(**dict.fromkeys(model._parameters(), 0.5))
        view = as_view(model.view)
        for ask in (model().fit, truth.score, truth.evaluate):
            with pytest.raises(ClickLogError) as problem:
                ask(plain)
            for names in view.needs:
                assert " or ".join(map(repr, names)) in str(problem.value)
            assert f'ClickLog.ingest(source, path, view="{view.name}")' in str(problem.value)
    for ask in (CATALOGUE["TCM"]().fit,):
        with pytest.raises(ClickLogError, match=r"apart, by query\. Store it again .*tasks"):
            ask(kept)
    with pytest.raises(ClickLogError, match="'task' or 'visit' or 'session_id'"):
        ClickLog.ingest(table.drop("visit"), tmp_path / "none", view="tasks")
    with pytest.raises(ClickLogError, match="'click_order' or 'click_time'"):
        ClickLog.ingest(table, tmp_path / "none", view=["tasks", "walks"])
    with pytest.raises(ClickLogError, match="no page stands for another"):
        ClickLog.ingest(table, tmp_path / "none", view="tasks", fold=True)


def test_pages_without_a_task_or_with_several_are_named(tmp_path: Path) -> None:
    table = source(CATALOGUE["TCM"]).sort("session", "rank")
    lost = table.with_columns(
        visit=pl.when(pl.col("session") == "s3").then(None).otherwise("visit")
    )
    several = table.with_columns(
        visit=pl.when((pl.col("session") == "s8") & (pl.col("rank") == 1))
        .then(pl.lit("other"))
        .otherwise("visit")
    )
    assert (table["session"] == "s8").sum() > 1
    for given in (lost, read_log(lost)):
        with pytest.raises(ClickLogError, match=r"'visit': 1 page has none \(first: session 's3'"):
            ClickLog.ingest(given, tmp_path / "log", view="tasks")
    with pytest.raises(ClickLogError, match=r"visit: 1 page with more than one visit, first: .*s8"):
        ClickLog.ingest(several, tmp_path / "log", view="tasks")


def test_a_cluster_has_pages_by_query_and_says_so() -> None:
    class Cluster:
        def over_parts(self, model: Any, ask: Any) -> Any:
            return iter([])

    model = CATALOGUE["TCM"]
    truth = model.with_values(**dict.fromkeys(model._parameters(), 0.5))
    with pytest.raises(ClickLogError, match=r'a cluster has pages by query.*view="tasks"'):
        list(log_parts.over_parts(truth, Cluster(), lambda model, pages: None))
