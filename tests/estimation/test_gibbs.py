"""Gibbs sampling as users meet it."""

from __future__ import annotations

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gecasmo
from gecasmo import DBN, PBM, VB, Fixed, Gibbs, Logistic, Table, read_log
from gecasmo.errors import (
    ClickLogError,
    ConvergenceWarning,
    ImpossibleSessionError,
    ModelError,
    SavedModelError,
    without,
)
from gecasmo.estimation import Problem
from gecasmo.estimation.draws import effective_draws, r_hat
from gecasmo.estimation.ridge_moves import find_ridges
from gecasmo.model.part_builder import Builder, Settings
from gecasmo.simulation.simulated import demo_log

LOG, _ = demo_log(1200, 3)
DECLARED = {coin: Table(pseudo_counts=(1, 2)) for coin in ("attraction", "satisfaction")}
SHORT = Gibbs(draws=60, warmup=20, chains=2, seed=1)

pytestmark = pytest.mark.filterwarnings("ignore:The chains of Gibbs")


@pytest.fixture(scope="module")
def model() -> Any:
    with without(ConvergenceWarning):  # so few draws
        return DBN(**DECLARED).fit(LOG, SHORT)


def test_it_gives_what_em_gives(model: Any) -> None:
    em = DBN(**DECLARED).fit(LOG)
    known, other = model.estimates("attraction"), em.estimates("attraction")
    assert known.columns == other.columns
    assert np.corrcoef(known["probability"], other["probability"])[0, 1] > 0.98
    assert abs(np.median(known["spread"] / other["spread"]) - 1) < 0.05
    assert model.judgments().frame.height == em.judgments().frame.height
    assert model.evaluate(LOG).log_likelihood == pytest.approx(em.score(LOG), abs=0.02)
    draws = model.draws("attraction")
    assert draws.shape == (2, 60, len(known))
    # The mean of draws is that of the Betas that they were drawn from, up to chance.
    spread = known["spread"].to_numpy() / np.sqrt(120)
    away = (draws.mean(axis=(0, 1)) - known["probability"].to_numpy()) / spread
    assert np.abs(away).max() < 6
    told = model.draws().diagnostics()
    assert told["quantity"].to_list()[0] == "log-likelihood"
    assert "continuation" in told["quantity"].to_list()
    assert "60 draws from each of 2 chains" in repr(model.draws())


def test_draws_are_the_same_bits_on_any_number_of_threads() -> None:
    log, _ = demo_log(2500, 4)
    assert log.n_results > 20_000  # fewer are not shared out
    method = Gibbs(draws=3, warmup=1, chains=2, seed=2)
    a, b = (DBN().fit(log, method, threads=n) for n in (1, 3))
    for coin in a.forms:
        assert np.array_equal(a.draws(coin), b.draws(coin))
    other = DBN(**DECLARED).fit(log, Gibbs(draws=3, warmup=1, chains=2, seed=3))
    assert not np.array_equal(a.draws("continuation"), other.draws("continuation"))


def test_moves_along_ridges_are_the_same_bits_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, _ = demo_log(2500, 4)
    found: list[Any] = []
    monkeypatch.setattr(
        "gecasmo.estimation.gibbs.find_ridges",
        lambda *of: found.append(find_ridges(*of)) or found[-1],
    )
    method = Gibbs(draws=8, warmup=24, chains=2, seed=2)
    a, b = (PBM().fit(log, method, threads=n) for n in (1, 3))
    assert len(found[0]) == 1
    assert found[0] == found[1]
    for coin in a.forms:
        assert np.array_equal(a.draws(coin), b.draws(coin))
    assert np.array_equal(a.draws().priors["attraction"], b.draws().priors["attraction"])


def test_impossible_pages_can_be_dropped_or_floored() -> None:
    forms = {"examination": Table(fixed={1: 0.0}, pseudo_counts=(1, 1))}
    dropped, floored = (PBM(**forms).fit(LOG, SHORT, impossible=how) for how in ("drop", "floor"))
    assert dropped.report_.n_dropped == floored.report_.n_floored > 0
    for model in (dropped, floored):
        assert np.isfinite(model.report_.objective)
        assert (model.draws("examination")[..., 0] == 0).all()


def test_priors_are_sampled_or_fixed() -> None:
    sampled = DBN().fit(LOG, SHORT)
    priors = sampled.draws().priors["attraction"]
    assert priors.shape == (2, 60, 2)
    assert priors[..., 0].std() > 0
    assert "prior strength of attraction" in sampled.draws().diagnostics()["quantity"].to_list()
    fixed = DBN().fit(LOG, Gibbs(draws=5, warmup=2, chains=1, hyper="fixed"))
    assert not fixed.draws().priors


def test_few_draws_of_many_rows_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    method = Gibbs(draws=40, warmup=2, chains=2)
    whole = DBN(**DECLARED).fit(LOG, method)
    monkeypatch.setattr("gecasmo.estimation.gibbs._MOST_KEPT", 1000)
    few = DBN(**DECLARED).fit(LOG, method)
    assert few.draws("attraction").shape[1] == 10
    assert np.array_equal(whole.draws("attraction")[:, ::4], few.draws("attraction"))
    assert whole.estimates("attraction").equals(few.estimates("attraction"))  # of all draws
    asked = DBN(**DECLARED).fit(LOG, Gibbs(draws=40, warmup=2, chains=2, keep=20))
    assert asked.draws("attraction").shape[1] == 20


def test_an_interrupted_fit_keeps_its_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    from gecasmo.estimation.gibbs import _Chains

    sweep, stop = _Chains._sweep, [30, 1]

    def watched(self: Any, chain: int, number: int) -> float:
        if [number, chain] == stop:
            raise KeyboardInterrupt
        return sweep(self, chain, number)

    monkeypatch.setattr(_Chains, "_sweep", watched)
    with pytest.warns(ConvergenceWarning, match="interrupted after 10 of 60 draws"):
        model = DBN(**DECLARED).fit(LOG, SHORT)
    assert model.report_.interrupted
    assert model.draws("attraction").shape[1] == 10
    assert np.isfinite(model.draws("attraction")).all()
    assert (model.estimates("attraction")["spread"] > 0).all()
    stop[0] = 5  # in the warm-up: nothing is to be kept
    with pytest.raises(KeyboardInterrupt):
        DBN(**DECLARED).fit(LOG, SHORT)


def test_progress_tells_r_hat() -> None:
    told = []
    problem = Problem.of(Builder(DBN(**DECLARED), LOG, Settings(SHORT)).part(), False)
    SHORT.solve(problem, lambda *step: told.append(step))
    assert told[0][3] == "warming up"
    assert told[-1][3].startswith("R-hat ")
    assert told[-1][:2] == (80, 80)


def test_a_page_of_weight_three_is_three_pages() -> None:
    once = {
        "session": [1, 1, 2, 2],
        "query": [1] * 4,
        "doc": [1, 2, 1, 2],
        "rank": [1, 2, 1, 2],
        "click": [1, 0, 0, 0],
        "weight": [3, 3, 2, 2],
    }
    thrice = {
        "session": np.repeat(np.arange(5), 2),
        "query": [1] * 10,
        "doc": [1, 2] * 5,
        "rank": [1, 2] * 5,
        "click": [1, 0] * 3 + [0, 0] * 2,
    }
    forms = {coin: Table(pseudo_counts=(1, 1)) for coin in DBN().forms}
    method = Gibbs(draws=400, warmup=20, chains=2)
    logs = (read_log(once, weight="weight"), read_log(thrice))
    a, b = (DBN(**forms).fit(log, method).estimates("attraction") for log in logs)
    np.testing.assert_allclose(a["probability"], b["probability"], atol=0.02)
    np.testing.assert_allclose(a["spread"], b["spread"], atol=0.02)
    once["weight"] = [0.5] * 4
    with pytest.raises(ClickLogError, match="weights have to be whole numbers"):
        DBN().fit(read_log(once, weight="weight"), SHORT)


def test_a_stored_log_gives_the_same_posterior(tmp_path: Path, model: Any) -> None:
    stored = gecasmo.ClickLog.ingest(LOG, tmp_path / "log", partitions=4)
    there = DBN(**DECLARED).fit(stored, SHORT)
    keys = ["query", "doc"]
    a, b = (m.estimates("attraction").sort(keys) for m in (model, there))
    assert np.corrcoef(a["probability"], b["probability"])[0, 1] > 0.99
    means = [m.estimates("continuation") for m in (model, there)]
    error = means[0]["spread"][0]
    assert abs(means[0]["probability"][0] - means[1]["probability"][0]) < 2 * error
    # Learned priors are drawn, one for all rows of a coin.
    learned = DBN().fit(stored, SHORT)
    assert learned.draws().priors["attraction"].std(axis=(0, 1)).min() > 0
    assert len(set(learned.states()["attraction"].pseudo)) == 2


def test_draws_are_saved_if_asked_for(tmp_path: Path, model: Any) -> None:
    model.save(tmp_path / "small.fit")
    small = gecasmo.load(tmp_path / "small.fit")
    assert small.estimates("attraction").equals(model.estimates("attraction"))
    assert small.draws_ is None
    # Without them, draws are from what is believed of each row.
    assert small.draws("attraction", n=5).shape == (1, 5, len(model.estimates("attraction")))
    model.save(tmp_path / "large.fit", draws=True)
    large = gecasmo.load(tmp_path / "large.fit")
    assert np.array_equal(large.draws("attraction"), model.draws("attraction"))
    assert large.draws().diagnostics().equals(model.draws().diagnostics())
    # A file that says something else is not believed.
    crafted = tmp_path / "crafted.fit"
    with zipfile.ZipFile(tmp_path / "large.fit") as old, zipfile.ZipFile(crafted, "w") as new:
        members = {name: old.read(name) for name in old.namelist()}
        words = json.loads(members["model.json"])
        words["draws"]["draws"] = 7
        members["model.json"] = json.dumps(words).encode()
        manifest = json.loads(members.pop("manifest.json"))
        manifest["sha256"]["model.json"] = hashlib.sha256(members["model.json"]).hexdigest()
        members["manifest.json"] = json.dumps(manifest).encode()
        for name, content in members.items():
            new.writestr(name, content)
    with pytest.raises(SavedModelError, match="not as many as they are said to be"):
        gecasmo.load(crafted)


def test_what_cannot_be_is_said(model: Any) -> None:
    for options, told in (
        ({"draws": 0}, r"Gibbs\(draws=0\): at least 1"),
        ({"chains": 0}, r"Gibbs\(chains=0\): at least 1"),
        ({"warmup": -1}, r"Gibbs\(warmup=-1\): at least 0"),
        ({"draws": 1.5}, r"Gibbs\(draws=1.5\): a whole number"),
        ({"hyper": "learned"}, r"choose 'sampled' or 'fixed'"),
        ({"augmentation": "tiny"}, "choose 'minimal' or 'full'"),
    ):
        with pytest.raises(ModelError, match=told):
            Gibbs(**options)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"Gibbs has no update for Logistic\('rank'\)"):
        DBN(attraction=Logistic("rank")).fit(LOG, SHORT)
    with pytest.raises(ImpossibleSessionError, match="impossible under"):
        PBM(examination=Fixed(0.0)).fit(LOG, SHORT)
    with pytest.raises(ModelError, match="has no coin 'continuatoin'"):
        model.draws("continuatoin")
    with pytest.raises(ModelError, match="has no draws of its own"):
        DBN(**DECLARED).fit(LOG, VB()).draws()
    with pytest.raises(ModelError, match="no posterior of rows"):
        DBN(attraction=Logistic("rank"), **{"satisfaction": Table()}).fit(LOG).draws("attraction")


def test_chains_that_do_not_agree_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gecasmo.estimation.gibbs.AGREED", 0.5)
    with pytest.warns(ConvergenceWarning, match="The chains of Gibbs do not agree: R-hat of"):
        model = DBN(**DECLARED).fit(LOG, Gibbs(draws=8, warmup=1, chains=2))
    assert not model.report_.converged


def test_r_hat_and_effective_draws() -> None:
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(4, 2000))
    assert abs(r_hat(noise) - 1) < 0.005
    assert abs(effective_draws(noise) / 8000 - 1) < 0.1
    assert r_hat(noise + np.arange(4)[:, None]) > 1.3
    slow = np.zeros((4, 2000))
    for t in range(1, 2000):  # an autoregression of 0.8 is worth a ninth of its length
        slow[:, t] = 0.8 * slow[:, t - 1] + noise[:, t]
    assert abs(effective_draws(slow) / (8000 / 9) - 1) < 0.25
    assert np.isnan(r_hat(noise[:, :3]))
    assert r_hat(np.zeros((2, 10))) == 1.0
