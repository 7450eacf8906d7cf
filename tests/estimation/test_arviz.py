"""Posteriors for ArviZ, tried with ArviZ itself."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from gecasmo import DBN, GCTR, RCTR, VB, Fixed, Gibbs, Table
from gecasmo.errors import GecasmoWarning, ImpossibleSessionError, without
from gecasmo.evaluation import compare
from gecasmo.simulation.simulated import demo_log

pytestmark = [
    pytest.mark.filterwarnings("ignore:The chains of Gibbs"),
    pytest.mark.filterwarnings("ignore::UserWarning:arviz"),
    pytest.mark.filterwarnings("ignore::FutureWarning:arviz"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # its ways with others
]
LOG, _ = demo_log(300, 6)
SHORT = Gibbs(draws=60, warmup=20, chains=2)


@pytest.fixture(scope="module", autouse=True)
def arviz() -> Any:
    """It takes seconds to be imported: whoever has none of these tests to run need not wait."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("arviz")


@pytest.fixture(scope="module")
def model() -> Any:
    forms = {"attraction": Table(key="doc", pseudo_counts=(1, 2)), "satisfaction": Fixed(0.4)}
    with without(UserWarning):
        return DBN(**forms).fit(LOG, SHORT)


def test_draws_have_names_and_places(arviz: Any, model: Any) -> None:
    data = model.to_arviz()
    posterior = data["posterior"]
    assert np.array_equal(posterior["attraction"].values, model.draws("attraction"))
    assert posterior["continuation"].dims == ("chain", "draw")
    docs = model.parameters["attraction"]["doc"].cast(str).to_list()
    assert posterior["attraction"].coords["attraction_row"].values.tolist() == docs
    summary = arviz.summary(data, var_names=["continuation"])
    ours = model.draws().diagnostics()
    (line,) = ours.filter(ours["quantity"] == "continuation").iter_rows(named=True)
    assert float(summary["mean"].iloc[0]) == pytest.approx(line["mean"], abs=1e-3)
    # Its R-hat is of ranks and its draws of their bulk; ours are plain.
    assert float(summary["r_hat"].iloc[0]) == pytest.approx(line["r_hat"], abs=0.03)
    assert float(summary["ess_bulk"].iloc[0]) == pytest.approx(line["effective_draws"], rel=0.35)


def test_likelihoods_of_pages_for_leave_one_out(arviz: Any, model: Any) -> None:
    data = model.to_arviz(LOG)
    found = data["log_likelihood"]["page"]
    assert found.shape == (2, 60, LOG.n_sessions)
    assert found.coords["session"].values.tolist() == LOG.sessions.to_list()
    # At one draw: the likelihood of a model with just those probabilities.
    twin = model.copy()
    draw = {coin: model.draws(coin)[1, 7] for coin in ("attraction", "continuation")}
    for coin, probability in draw.items():
        twin.states_[coin] = _at(twin.states_[coin], probability)
    np.testing.assert_allclose(found.values[1, 7], twin.log_likelihood(LOG), rtol=1e-9)
    loo = arviz.loo(data)
    rival = RCTR(**{coin: Table(pseudo_counts=(1, 1)) for coin in RCTR().forms})
    other = rival.fit(LOG, SHORT).to_arviz(LOG)
    table = arviz.compare({"DBN": data, "RCTR": other})
    assert set(table.index) == {"DBN", "RCTR"}
    assert float(loo.elpd_loo if hasattr(loo, "elpd_loo") else loo.elpd) < 0
    assert arviz.plot_trace(data, var_names=["continuation"]) is not None
    assert arviz.plot_rank(data, var_names=["continuation"]) is not None


def test_nested_models_are_also_scored_by_leaving_pages_out(arviz: Any) -> None:
    models = {"GCTR": GCTR(), "RCTR": RCTR()}
    found = compare(LOG, models, nested=True, replicates=19, loo=True, bootstrap=0).nested
    assert found is not None
    (row,) = found.to_dicts()
    # The same by hand.
    method = Gibbs(draws=500, warmup=250, chains=2, seed=0)
    each = [
        arviz.loo(model.fit(LOG, method).to_arviz(LOG), pointwise=True) for model in models.values()
    ]
    pages = [np.asarray(getattr(loo, "elpd_i", getattr(loo, "loo_i", None))) for loo in each]
    gain = pages[1] - pages[0]
    assert row["loo_difference"] == pytest.approx(gain.sum())
    assert row["loo_error"] == pytest.approx(np.sqrt(len(gain)) * gain.std())
    assert row["loo_difference"] > 5 * row["loo_error"] > 0
    assert row["p"] == 0.05


def _at(state: Any, probability: Any) -> Any:
    from dataclasses import replace

    return replace(state, probability=probability)


def test_other_fits_are_drawn_from_what_they_believe(monkeypatch: pytest.MonkeyPatch) -> None:
    forms = {"attraction": Table(key="doc", pseudo_counts=(1, 2)), "satisfaction": Fixed(0.4)}
    vb = DBN(**forms).fit(LOG, VB())
    data = vb.to_arviz(LOG, n=50)
    assert data["posterior"]["attraction"].shape[:2] == (1, 50)
    spread = data["posterior"]["attraction"].values.std(axis=(0, 1))
    ratio = spread / vb.estimates("attraction")["spread"].to_numpy()
    assert abs(np.median(ratio) - 1) < 0.1
    monkeypatch.setattr("gecasmo.model.beliefs._MOST_LIKELIHOODS", 3000)
    with pytest.warns(GecasmoWarning, match="every 5 are given to ArviZ"):
        assert vb.to_arviz(LOG, n=50)["log_likelihood"]["page"].shape[1] == 10
    monkeypatch.undo()
    with pytest.raises(ImpossibleSessionError):
        DBN(attraction=Fixed(0.0)).with_values(
            attraction=0.0, satisfaction=0.1, continuation=0.5
        ).to_arviz(LOG)
