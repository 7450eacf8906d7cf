"""Answers about a log that was really stored, folded and cut into partitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from stored_examples import parted

from gecasmo import ClickLog, open_log, read_log
from gecasmo.judgments import judge
from gecasmo.logs.store import StoredLog
from gecasmo.model import Model


@pytest.fixture(scope="module")
def pages(log: ClickLog) -> ClickLog:
    """Every page as often as it weighs, so that there is something to fold."""
    session = np.repeat(np.arange(log.n_sessions), log.weight.astype(int))
    copies = [log.take([number]).to_frame().drop("weight", strict=False) for number in session]
    frame = pl.concat(
        [copy.with_columns(session=pl.lit(n)) for n, copy in enumerate(copies)], how="vertical"
    )
    return read_log(frame)


@pytest.fixture(scope="module")
def stored(pages: ClickLog, tmp_path_factory: pytest.TempPathFactory) -> StoredLog:
    path = tmp_path_factory.mktemp("store") / "small.gclog"
    ClickLog.ingest(pages, path, partitions=8, fold=True)
    return open_log(path)


@pytest.fixture(params=[False, True], ids=["rows in memory", "rows in files"])
def asked(request: pytest.FixtureRequest, model: Model, tmp_path: Path) -> Model:
    return parted(model, tmp_path / "rows", 4) if request.param else model


def test_pages_were_folded(stored, pages):
    assert stored.n_pages < stored.n_sessions == pages.n_sessions


def test_scores_and_evaluations(asked, model, stored, pages):
    assert asked.score(stored) == pytest.approx(model.score(pages), rel=1e-12)
    found, wanted = asked.evaluate(stored), model.evaluate(pages)
    assert str(found) == str(wanted)
    for name, value in wanted.to_dict().items():
        assert found.to_dict()[name] == pytest.approx(value, rel=1e-12), name


def test_predictions_have_weights(asked, model, stored, pages, tmp_path):
    asked.predict(stored, tmp_path / "p.parquet", kind="marginal")
    found = pl.read_parquet(tmp_path / "p.parquet")
    assert float(found["weight"].sum()) == pages.n_results
    mean = float((found["probability"] * found["weight"]).sum())
    assert mean == pytest.approx(float(np.sum(model.predict_clicks(pages))), rel=1e-12)


def test_expected_counts(asked, model, stored, pages):
    found, wanted = asked.expected_counts(stored), model.expected_counts(pages)
    keys = ["query", "doc"]
    for coin in ("attraction", "satisfaction"):
        ours, theirs = (counts[coin].sort(keys) for counts in (found, wanted))
        assert ours.select(keys).equals(theirs.select(keys))
        np.testing.assert_allclose(ours["heads"], theirs["heads"], rtol=1e-11)


def test_judgments(asked, model, stored, pages):
    keys = ["query", "doc"]
    found, wanted = judge(asked, pairs=stored).frame, judge(model, pairs=pages).frame
    assert found.select(*keys, "grade").sort(keys).equals(wanted.select(*keys, "grade").sort(keys))


def test_simulated_users(asked, stored, tmp_path):
    made = asked.simulate(stored, seed=1, path=tmp_path / "made.gclog")
    assert made.n_sessions == stored.n_sessions
    assert made.total_weight == stored.total_weight
    assert set(made.columns) == set(stored.columns)
    again = asked.simulate(stored, seed=1, path=tmp_path / "again.gclog")
    assert made.n_clicks == again.n_clicks
