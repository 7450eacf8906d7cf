"""What cannot be updated says so, and leaves the model as it was."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from updating import day_of, users

from gecasmo import DBN, EM, Empirical, Estimator, Fixed, Table, read_log
from gecasmo.errors import ClickLogError, ImpossibleSessionError, ModelError, NotFittedError
from gecasmo.forms.typical import SmoothFunction

TRUTH = users(3, seed=1)
LOG = day_of(TRUTH, 60, 3, 1)


@pytest.fixture(scope="module")
def fitted():
    return DBN().fit(LOG, progress=False)


@pytest.mark.parametrize("decay", [0, -0.1, 1.01, float("nan"), "0.9", True, None])
def test_a_decay_that_is_none(fitted, decay):
    with pytest.raises(ModelError, match="above 0 and at most 1"):
        fitted.update(LOG, decay)


def test_a_model_without_logs_behind_it():
    with pytest.raises(ModelError, match=r"no log behind them.*fit\(log, start=model\)"):
        users(3, seed=1).update(LOG)
    with pytest.raises(NotFittedError, match="no probabilities yet"):
        DBN().update(LOG)


def test_logs_that_are_none(fitted):
    with pytest.raises(ClickLogError, match="lacks the columns"):
        fitted.update(pl.DataFrame())
    with pytest.raises(ClickLogError, match="takes a ClickLog"):
        fitted.update([LOG])
    with pytest.raises(ClickLogError, match="no results"):
        fitted.update(LOG.take(LOG.weight < 0))


def test_other_methods(fitted):
    class Own:
        augmentation = "minimal"

        def solve(self, problem, progress=None):
            raise AssertionError

    with pytest.raises(ModelError, match="uses EM"):
        fitted.update(LOG, method=Own())
    with pytest.raises(ModelError, match="impossible='no'"):
        fitted.update(LOG, impossible="no")
    with pytest.raises(ModelError, match="threads=0"):
        fitted.update(LOG, threads=0)


def test_a_form_without_memory_is_named():
    pytest.importorskip("sklearn")
    from sklearn.linear_model import LogisticRegression

    model = DBN(attraction=Estimator(LogisticRegression(), "rank"), satisfaction=Fixed(0.5))
    model.fit(LOG, EM(max_iter=3, tol=0), progress=False)
    with pytest.raises(ModelError, match=r"'attraction' cannot be updated.*start=model"):
        model.update(LOG)


def test_a_model_that_forgot_what_is_typical_of_rows_says_so():
    long = day_of(TRUTH, 400, 3, 1)
    model = DBN(attraction=Table(prior=Empirical(by="impressions"))).fit(long, progress=False)
    state = model.states_["attraction"]
    priors = replace(
        state.priors, smooths=(SmoothFunction("rank", np.array([1.0, 2.0]), np.zeros(1)),)
    )
    model.states_["attraction"] = replace(state, priors=priors)
    with pytest.raises(ModelError, match=r"'attraction' cannot be updated: its prior depends on"):
        model.update(LOG)


def test_rows_by_result_are_named():
    model = DBN(attraction=Table(key="result", pseudo_counts=(1, 1)), satisfaction=Fixed(0.5)).fit(
        LOG, progress=False
    )
    with pytest.raises(ModelError, match="rows by 'result'"):
        model.update(LOG)


def test_a_failed_update_changes_nothing(fitted):
    before = fitted.parameters["attraction"]
    odd = read_log(
        pl.DataFrame({"session": [1], "query": [3], "doc": ["d0"], "rank": [1], "click": [0]})
    )
    with pytest.raises(ModelError, match="'query' holds String in the model"):
        fitted.update(odd, progress=False)
    assert fitted.parameters["attraction"].equals(before)
    assert fitted.report_.n_sessions == 60


def test_impossible_pages_are_dealt_with_as_in_a_fit():
    model = DBN(attraction=Table(pseudo_counts=(1, 1)), satisfaction=Fixed(1.0))
    one_click = {"session": [1, 1], "query": ["a", "a"], "doc": ["x", "y"], "rank": [1, 2]}
    model.fit(read_log(pl.DataFrame(one_click | {"click": [1, 0]})), progress=False)
    two = read_log(
        pl.DataFrame(
            {
                "session": [2, 2, 3, 3],
                "query": ["a"] * 4,
                "doc": ["x", "y"] * 2,
                "rank": [1, 2] * 2,
                "click": [1, 1, 0, 1],
            }
        )
    )
    with pytest.raises(ImpossibleSessionError):
        model.update(two, progress=False)
    model.update(two, progress=False, impossible="drop")
    assert model.report_.n_dropped == 1
    assert model.report_.n_sessions == 2
