"""A model is chosen by pages that it has not seen, and a simpler one where that is as good."""

from __future__ import annotations

import numpy as np
import pytest

from gecasmo import DBN, PBM, ClickLog, read_log
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.evaluation import select_model, selection
from gecasmo.simulation import demo_log
from gecasmo.testing import plain_python


@pytest.fixture(scope="module")
def log() -> ClickLog:
    return demo_log(90, seed=2)[0]


def scored(log: ClickLog, behind: float, noise: float) -> selection.Selection:
    """DBN is ahead of the simpler PBM by so much on average."""
    rng = np.random.default_rng(1)
    best = -2 + rng.normal(0, 1, log.n_sessions)
    spread = noise * rng.normal(0, 1, log.n_sessions)
    scores = {"PBM": best - behind + spread - spread.mean(), "DBN": best}
    return selection._selected(log, {"PBM": PBM(), "DBN": DBN()}, scores, 3, 0.9)


def test_the_best_is_taken_where_it_is_clearly_ahead() -> None:
    log = demo_log(4_000, seed=1)[0]
    found = scored(log, behind=0.5, noise=0.1)
    assert (found.best, found.chosen, found.model.name) == ("DBN", "DBN", "DBN")
    assert found.table["behind"].to_list() == pytest.approx([0, 0.5], abs=0.02)
    assert "DBN predicts pages that it has not seen best, of 2 candidates." in str(found)


def test_a_simpler_one_is_taken_where_it_is_not_clearly_behind() -> None:
    log = demo_log(4_000, seed=1)[0]
    found = scored(log, behind=0.02, noise=2.0)
    low, high = found.table.select("behind_low", "behind_high").row(1)
    assert low < 0 < high
    assert (found.best, found.chosen) == ("DBN", "PBM")
    assert "PBM is simpler, and not clearly behind it (0.0200 a page" in found.reason


def test_pages_are_predicted_by_models_that_have_not_seen_them(log: ClickLog) -> None:
    with plain_python():
        found = select_model(log, ["RCTR", "GCTR"], folds=2, seed=1)
        again = select_model(log, ["RCTR", "GCTR"], folds=2, seed=1)
    assert found.table.equals(again.table)
    assert not found.model.is_fitted
    assert found.n_sessions == 90
    assert set(found.to_dict()) == {"chosen", "best", "reason", "sessions", "folds", "candidates"}
    # A page of the fit itself would say more: each session is in one test part.
    assert found.table["log_likelihood"].is_between(-20, 0).all()


def test_of_a_large_log_whole_queries_are_looked_at() -> None:
    log = demo_log(600, seed=3)[0]
    some = selection._some_queries(log, 200, np.random.default_rng(0))
    assert some.n_sessions <= 200
    counts = log.session_column("query").value_counts()
    kept = some.session_column("query").value_counts()
    assert kept.join(counts, on=["query", "count"]).height == kept.height


def test_what_cannot_be_chosen_from() -> None:
    tiny = read_log({"session": [1, 2], "doc": ["a", "b"], "rank": [1, 1], "click": [1, 0]})
    with pytest.raises(ClickLogError, match="2 sessions cannot be put into 3 parts"):
        select_model(tiny)
    for options, words in (({"folds": 1}, "folds=1"), ({"level": 2.0}, "level=2.0")):
        with pytest.raises(ModelError, match=words):
            select_model(tiny, **options)
    with pytest.raises(ModelError, match="at least one model"):
        select_model(tiny, [])
