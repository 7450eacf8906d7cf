"""Variational Bayes as users meet it."""

from __future__ import annotations

import numpy as np
import pytest

import gecasmo
from gecasmo import DBN, DCTR, EM, PBM, VB, Empirical, Fixed, Logistic, Table
from gecasmo.errors import ConvergenceWarning, ImpossibleSessionError, ModelError
from gecasmo.simulation.simulated import demo_log

LOG, _ = demo_log(1200, 3)
DECLARED = {coin: Table(pseudo_counts=(1, 2)) for coin in ("attraction", "satisfaction")}


def test_where_nothing_is_hidden_it_is_exact() -> None:
    model = DCTR(**{coin: Table(pseudo_counts=(2, 3)) for coin in DCTR().forms}).fit(LOG, VB())
    (coin,) = model.forms
    counts = model.parameters[coin]
    heads, tails = counts["heads"].to_numpy() + 2, counts["tails"].to_numpy() + 3
    mean = heads / (heads + tails)
    found = model.estimates(coin)
    np.testing.assert_allclose(found["probability"], mean, rtol=1e-9)
    spread = np.sqrt(mean * (1 - mean) / (heads + tails + 1))
    np.testing.assert_allclose(found["spread"], spread, rtol=1e-9)


def test_it_gives_what_em_gives_and_reports_the_elbo(tmp_path) -> None:
    model = DBN(**DECLARED).fit(LOG, VB())
    em = DBN(**DECLARED).fit(LOG)
    climbed = model.history["objective"].to_numpy()
    assert (np.diff(climbed) >= -1e-9 * np.abs(climbed[1:])).all()
    assert model.report_.converged
    assert model.report_.objective == climbed[-1]
    assert abs(model.score(LOG) - em.score(LOG)) < 0.02
    known = model.estimates("attraction")
    assert known.columns == em.estimates("attraction").columns
    assert (known["spread"] > 0).all()
    assert np.corrcoef(known["probability"], em.estimates("attraction")["probability"])[0, 1] > 0.98
    assert model.judgments().frame.height == em.judgments().frame.height
    assert model.evaluate(LOG).log_likelihood == pytest.approx(model.score(LOG))
    model.save(tmp_path / "vb.fit")
    again = gecasmo.load(tmp_path / "vb.fit")
    assert again.estimates("attraction").equals(known)


@pytest.mark.parametrize("by", [(), None])
def test_learned_priors_follow_the_elbo_or_stay(by) -> None:
    forms = {coin: Table(prior=Empirical(by=by)) for coin in DECLARED}
    learned, fixed = (DBN(**forms).fit(LOG, VB(hyper=hyper)) for hyper in ("learned", "fixed"))
    climbed = learned.history["objective"].to_numpy()
    assert (np.diff(climbed) >= -1e-9 * np.abs(climbed[1:])).all()
    before, after = (np.asarray(m.states()["attraction"].pseudo) for m in (fixed, learned))
    assert not np.allclose(before, after)
    # The prior of rows never seen has moved along.
    never = {"query": [10**6], "doc": [10**6]}
    asked = [model.probability("attraction", never)[0] for model in (fixed, learned)]
    assert asked[0] != asked[1]


def test_rows_that_are_given_stay() -> None:
    model = PBM(examination=Table(fixed={1: 1.0}, pseudo_counts=(1, 1))).fit(LOG, VB())
    first = model.estimates("examination", {"rank": [1]})
    assert first["probability"][0] == 1.0
    assert first["spread"][0] == 0.0
    given = DBN(continuation=Fixed(0.9), **DECLARED).fit(LOG, VB())
    assert given.estimates("continuation")["probability"][0] == 0.9


def test_a_stored_log_gives_the_same(tmp_path) -> None:
    stored = gecasmo.ClickLog.ingest(LOG, tmp_path / "log", partitions=4)
    here, there = (DBN(**DECLARED).fit(log, VB()) for log in (LOG, stored))
    keys = ["query", "doc"]
    a, b = (model.estimates("attraction").sort(keys) for model in (here, there))
    np.testing.assert_allclose(a["probability"], b["probability"], atol=1e-6)
    np.testing.assert_allclose(a["spread"], b["spread"], atol=1e-6)
    # Of a log on disk a learned prior is one for all rows.
    learned = DBN().fit(stored, VB())
    assert len(set(learned.states()["attraction"].pseudo)) == 2


def test_any_number_of_threads_gives_the_same_bits() -> None:
    a, b = (DBN(**DECLARED).fit(LOG, VB(), threads=n).parameters["attraction"] for n in (1, 3))
    assert a.equals(b)


def test_what_cannot_be_is_said() -> None:
    with pytest.raises(ModelError, match=r"no update for Logistic\('rank'\) of 'attraction'"):
        DBN(attraction=Logistic("rank")).fit(LOG, VB())
    with pytest.raises(ModelError, match=r"VB\(max_iter=0\)"):
        VB(max_iter=0)
    with pytest.raises(ModelError, match=r"VB\(hyper='sampled'\): choose 'learned' or 'fixed'"):
        VB(hyper="sampled")  # type: ignore[arg-type]
    with pytest.raises(ImpossibleSessionError, match="impossible under"):
        PBM(examination=Fixed(0.0)).fit(LOG, VB())
    with pytest.warns(ConvergenceWarning, match="VB stopped after max_iter=2"):
        DBN(**DECLARED).fit(LOG, VB(max_iter=2))


def test_impossible_pages_can_be_dropped_or_floored() -> None:
    forms = {"examination": Table(fixed={1: 0.0}, pseudo_counts=(1, 1))}
    for how in ("drop", "floor"):
        model = PBM(**forms).fit(LOG, VB(), impossible=how)
        assert model.report_.n_dropped + model.report_.n_floored > 0
        assert np.isfinite(model.report_.objective)


def test_em_is_what_it_was() -> None:
    with pytest.warns(ConvergenceWarning, match="EM stopped after max_iter=2"):
        DBN(**DECLARED).fit(LOG, EM(max_iter=2))
