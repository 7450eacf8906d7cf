"""Simulated users on stored logs, propensities from them, and what a check says of them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from stored_examples import FakeStore

from gecasmo import DBN, ClickLog, check, read_log
from gecasmo.errors import ClickLogError
from gecasmo.judgments import propensities
from gecasmo.model.log_parts import joined, some_partitions
from gecasmo.model.stories import repeated, simulated_logs, unfolded


def test_pages_come_as_often_as_they_occurred(split, log, store):
    n_pages = 0
    for clicked in simulated_logs(split, store, seed=1):
        assert np.all(clicked.weight == 1)
        n_pages += clicked.n_sessions
    assert n_pages == int(log.weight.sum())


def test_clicks_do_not_depend_on_where_the_rows_are(model, split, store):
    for one, other in zip(
        simulated_logs(model, store, 5), simulated_logs(split, store, 5), strict=True
    ):
        assert one.to_frame().equals(other.to_frame())


def test_partitions_and_seeds_have_clicks_of_their_own(model, log):
    """The same pages twice: nobody clicks twice alike."""
    once = log.take(np.arange(60))
    twin = FakeStore(once, 1)
    twin.logs, twin.n_partitions = [once, once], 2
    first, second = (clicked.click for clicked in simulated_logs(model, twin, 1))
    other, _ = (clicked.click for clicked in simulated_logs(model, twin, 2))
    assert np.any(first != second)
    assert np.any(first != other)


def test_simulated_clicks_follow_the_model(log):
    truth = DBN.with_values(attraction=0.3, satisfaction=1.0, continuation=1.0)
    store = FakeStore(log, 4)
    clicks = np.concatenate([c.click[c.rank == 1] for c in simulated_logs(truth, store, 3)])
    assert clicks.mean() == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / len(clicks)))


def test_a_simulated_log_is_stored(split, log, store, tmp_path):
    made = split.simulate(store, seed=4, path=tmp_path / "made.gclog")
    assert made.n_sessions == int(log.weight.sum())
    assert set(made.columns) == set(log.columns)
    n_clicks = sum(int(c.click.sum()) for c in simulated_logs(split, store, 4))
    stored = sum(float((p.click * p.weight[p.page]).sum()) for p in made.partitions())
    assert stored == n_clicks


def test_a_simulation_has_to_be_stored_somewhere(model, log, store):
    with pytest.raises(ClickLogError, match="say where to store them"):
        model.simulate(store)
    with pytest.raises(ClickLogError, match="name another"):
        model.simulate(store, path=store.path)
    with pytest.raises(ClickLogError, match="Ask partition by partition"):
        model.simulate(store, path="x.gclog", truth=True)
    with pytest.raises(ClickLogError, match="is for stored logs"):
        model.simulate(log, path="x.gclog")


def test_weights_that_are_no_counts_stay():
    log = read_log(
        {
            "session": [1, 2],
            "query": ["a", "a"],
            "doc": [1, 2],
            "rank": 1,
            "click": 0,
            "w": [0.5, 2],
        },
        weight="w",
    )
    assert unfolded(log).weight.tolist() == [0.5, 2.0]
    twice = repeated(log, np.array([1, 1, 0]))
    assert twice.column("doc").to_list() == [2, 2, 1]
    assert twice.sessions.to_list() == [0, 1, 2]


def test_several_partitions_as_one_log(log, store):
    together = joined([pages for pages in store.logs if pages.n_sessions])
    assert together.n_sessions == log.n_sessions
    order = ["session", "rank"]
    assert together.to_frame().sort(order).equals(log.to_frame().sort(order))


@pytest.mark.parametrize("n_pages", [1, 120, 10**6])
def test_a_sample_of_queries_has_all_their_pages(split, model, log, store, n_pages):
    view, pages = some_partitions(split, store, n_pages)
    assert pages.n_sessions >= min(n_pages, log.n_sessions)
    queries = pages.session_column("query").unique()
    assert pages.n_sessions == int(log.session_column("query").is_in(queries.implode()).sum())
    assert view.score(pages) == pytest.approx(model.score(pages), rel=1e-12)


def curve(frame: pl.DataFrame) -> np.ndarray:
    return frame.select("rank", "examination", "propensity").to_numpy()


def test_propensities_are_means_over_all_partitions(split, model, log, store):
    wanted = propensities(model, log, draws=0)
    for asked in (model, split):
        found = propensities(asked, store, draws=0)
        np.testing.assert_allclose(curve(found), curve(wanted), rtol=1e-12)
        assert found["low"].null_count() == len(found)


def test_propensities_have_intervals(split, store):
    found = propensities(split, store, draws=2, seed=2)
    assert found["low"].null_count() == 0
    assert (found["low"] <= found["examination"]).all()
    assert (found["high"] >= found["examination"]).all()


def test_given_numbers_are_certain(log, store):
    truth = DBN.with_values(attraction=0.4, satisfaction=0.5, continuation=0.8)
    found, wanted = propensities(truth, store), propensities(truth, log)
    np.testing.assert_allclose(found.to_numpy(), wanted.to_numpy(), rtol=1e-12)


def test_a_check_looks_at_a_part_and_says_so(split, store, monkeypatch):
    monkeypatch.setattr("gecasmo.checks.log_check.STORED_PAGES", 50)
    found = check(store, split)
    told = [finding.message for finding in found.findings if finding.topic == "sample"]
    assert len(told) == 1
    assert "Of 400 stored pages" in told[0]


def test_a_check_of_a_small_store_sees_all(log, store):
    found, wanted = check(store), check(log)
    assert [f.message for f in found.findings] == [f.message for f in wanted.findings]


def test_a_check_of_a_model_that_is_not_fitted(store, monkeypatch):
    monkeypatch.setattr("gecasmo.checks.log_check.STORED_PAGES", 50)
    assert any("quick fit" in f.message for f in check(store, "DBN").findings)


def test_no_sample_of_nothing(model, log):
    assert isinstance(some_partitions(model, FakeStore(log.take([]), 4), 10)[1], ClickLog)
    with pytest.raises(ClickLogError, match="the log has no pages"):
        propensities(model, FakeStore(log.take([]), 4))


def test_whole_tables_are_there_for_those_who_want_them(split, model):
    assert len(split.states()["attraction"].rows) == len(model.states()["attraction"].rows)
    assert split.states() is not split.states_
    assert model.states() is model.states_
