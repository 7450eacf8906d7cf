"""Answers about partitions that are taken in pieces are those about the log in memory."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from stored_examples import parted

from gecasmo import ClickLog, open_log
from gecasmo.judgments import judge
from gecasmo.logs.store import StoredLog
from gecasmo.model import Model
from gecasmo.model import log_parts as streaming
from gecasmo.model.stored_fit import sample_pages

KEYS = ["query", "doc"]


@pytest.fixture(scope="module")
def stored(log: ClickLog, tmp_path_factory: pytest.TempPathFactory) -> StoredLog:
    path = tmp_path_factory.mktemp("store") / "small.gclog"
    ClickLog.ingest(log, path, partitions=2)
    return open_log(path)


@pytest.fixture(params=[61, 300])
def cut(request: pytest.FixtureRequest, stored: StoredLog, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many results a piece has at most; pieces cut through queries."""
    monkeypatch.setattr(streaming, "MOST_RESULTS", request.param)
    pieces = [pages for _, pages in streaming.all_pieces(stored)]
    assert max(pages.n_results for pages in pieces) <= request.param
    assert sum(pages.n_sessions for pages in pieces) == stored.n_pages
    both = [pages.session_column("query") for pages in pieces]
    assert any(a[-1] == b[0] for a, b in pairwise(both))
    return int(request.param)


@pytest.fixture(params=[False, True], ids=["rows in memory", "rows in files"])
def asked(request: pytest.FixtureRequest, model: Model, tmp_path: Path) -> Model:
    return parted(model, tmp_path / "rows", 4) if request.param else model


def test_scores_and_evaluations(cut, asked, model, stored, log):
    assert asked.score(stored) == pytest.approx(model.score(log), rel=1e-12)
    found, wanted = asked.evaluate(stored), model.evaluate(log)
    for name, value in wanted.to_dict().items():
        assert found.to_dict()[name] == pytest.approx(value, rel=1e-12), name
    whole = [model.log_likelihood(pages) for pages in stored.partitions()]
    np.testing.assert_allclose(asked.log_likelihood(stored), np.concatenate(whole), rtol=1e-12)


def test_predictions(cut, asked, model, stored, log, tmp_path):
    for name in ("file.parquet", "folder"):
        asked.predict(stored, tmp_path / name)
        found = pl.read_parquet(tmp_path / name)
        wanted = pl.concat(
            [model.predict_conditional_clicks(p, frame=True) for p in stored.partitions()]
        )
        columns = ["session", "rank"]
        assert found.select(columns).sort(columns).equals(wanted.select(columns).sort(columns))
        a, b = (x.sort(columns)["probability"].to_numpy() for x in (found, wanted))
        np.testing.assert_allclose(a, b, rtol=1e-12)


def test_expected_counts(cut, asked, model, stored, log):
    found, wanted = asked.expected_counts(stored), model.expected_counts(log)
    for coin in ("attraction", "satisfaction"):
        ours, theirs = (counts[coin].sort(KEYS) for counts in (found, wanted))
        assert ours.select(KEYS).equals(theirs.select(KEYS))
        for side in ("heads", "tails"):
            np.testing.assert_allclose(ours[side], theirs[side], rtol=1e-11)
    one, other = found["continuation"], wanted["continuation"]
    assert one["heads"].item() == pytest.approx(other["heads"].item(), rel=1e-11)


def test_simulated_users(cut, asked, stored, tmp_path):
    made = asked.simulate(stored, seed=1, path=tmp_path / "1.gclog")
    assert made.total_weight == stored.total_weight
    assert made.n_clicks > 0
    if cut == 300:  # many small pieces take long, and chance comes from the seed in the same way
        again = asked.simulate(stored, seed=1, path=tmp_path / "2.gclog")
        assert made.n_clicks == again.n_clicks


def test_judgments_and_their_traffic(cut, model, stored, log):
    found, wanted = judge(model, pairs=stored), judge(model, pairs=log)
    columns = [*KEYS, "grade"]
    assert found.frame.select(columns).sort(KEYS).equals(wanted.frame.select(columns).sort(KEYS))
    ours, theirs = (wanted.worth_judging(5, log=x).pairs.sort(KEYS) for x in (stored, log))
    assert ours.select(KEYS).equals(theirs.select(KEYS))


def test_a_sample_has_whole_queries_but_for_very_large_ones(cut, stored, log):
    n_wanted = 45
    found = sample_pages(stored, n_wanted)
    pages = pl.concat([part.session_column("query") for part in stored.partitions()])
    first = found.session_column("query")
    assert first.equals(pages[: len(first)])
    assert n_wanted <= len(first) <= 2 * n_wanted
    last = int((pages == pages[n_wanted - 1]).arg_true().max()) + 1
    assert len(first) == min(last, 2 * n_wanted)
    few = sample_pages(stored, 3)  # no query has so few pages
    assert few.n_sessions == 6
