"""Posterior predictive checks: a right model passes, a wrong one is told where."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

import gecasmo
from gecasmo import CM, DBN, VB, Gibbs, Table, plots
from gecasmo.errors import ModelError
from gecasmo.simulation.simulated import demo_log

LOG, TRUTH = demo_log(300, 5)
FORMS = {coin: Table(pseudo_counts=(1, 1)) for coin in ("attraction", "satisfaction")}


def test_a_right_model_passes_and_a_wrong_one_does_not() -> None:
    model = DBN(**FORMS).fit(LOG)
    check = model.check_fit(LOG, draws=40, seed=1)
    assert min(check.p_values.values()) > 0.05
    assert "Nothing here speaks against the model" in repr(check)
    # A cascade ends at the first click, so two clicks on a page cannot be.
    wrong = (
        CM(attraction=FORMS["attraction"])
        .fit(LOG, impossible="drop")
        .check_fit(LOG, draws=40, seed=1)
    )
    assert wrong.p_values["clicks"] == pytest.approx(1 / 41)
    assert "At odds with the model: pages by number of clicks" in repr(wrong)
    two = wrong.frame.filter((pl.col("family") == "clicks") & (pl.col("value") == "2"))
    assert two["expected"][0] == 0
    assert two["observed"][0] > 0.05


def test_observed_statistics_are_those_of_the_log() -> None:
    log = gecasmo.read_log(
        {
            "session": [1, 1, 1, 2, 2, 2, 3, 3],
            "query": [1] * 8,
            "doc": [1, 2, 3, 1, 2, 3, 1, 2],
            "rank": [1, 2, 3, 1, 2, 3, 1, 2],
            "click": [0, 1, 1, 0, 0, 0, 1, 0],
        }
    )
    model = DBN().with_values(attraction=0.5, satisfaction=0.2, continuation=0.8)
    frame = model.check_fit(log, draws=20).frame
    found = {(family, value): x for family, value, x in frame["family", "value", "observed"].rows()}
    assert (
        found["clicks", "0"] == found["clicks", "1"] == found["clicks", "2"] == pytest.approx(1 / 3)
    )
    assert found["rank", "rank 1"] == pytest.approx(1 / 3)
    assert found["rank", "rank 3"] == pytest.approx(1 / 2)
    assert found["last", "no click"] == found["last", "rank 1"] == pytest.approx(1 / 3)
    assert found["last", "rank 3"] == pytest.approx(1 / 3)
    assert found["skips", "0"] == found["skips", "1"] == pytest.approx(1 / 2)
    # What is expected without any uncertainty is what the model predicts.
    rate = frame.filter((pl.col("family") == "rank") & (pl.col("value") == "rank 1"))["expected"][0]
    assert abs(rate - 0.5) < 4 * np.sqrt(0.25 / 60)


@pytest.mark.filterwarnings("ignore:The chains of Gibbs")
def test_after_any_method_stored_or_not_with_a_chart(tmp_path) -> None:
    stored = gecasmo.ClickLog.ingest(LOG, tmp_path / "log", partitions=2)
    for method in (VB(), Gibbs(draws=30, warmup=20, chains=2)):
        model = DBN(**FORMS).fit(LOG, method)
        check = model.check_fit(stored, draws=30, pages=200)
        assert check.n_sessions <= 400
        assert check.n_draws == 30
    again = model.check_fit(LOG, draws=20, pages=100)
    assert again.n_sessions == 100
    assert again.frame.equals(model.check_fit(LOG, draws=20, pages=100).frame)
    assert "<table" in again._repr_html_()
    chart = again.plot()
    assert "p = " in json.dumps(chart.to_dict())
    plots.save(chart, tmp_path / "check.svg")
    assert (tmp_path / "check.svg").stat().st_size > 1000
    assert "fit_check" in dir(model.plot)


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(ModelError, match=r"check_fit\(draws=1\): at least 20"):
        TRUTH.check_fit(LOG, draws=1)
