"""Constraints of a fit: what is refused, what is told, and what is kept in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import gecasmo
from gecasmo import (
    BSS,
    DBN,
    EM,
    PBM,
    TACM,
    TCM,
    AtMost,
    Gradient,
    Intents,
    Prefer,
    Table,
    TrustPBM,
    open_log,
    read_log,
)
from gecasmo.errors import ModelError
from gecasmo.testing import plain_python

FEW = EM(3, tol=0)


def clicks(n_pages: int = 30, length: int = 4, seed: int = 0) -> gecasmo.ClickLog:
    rng = np.random.default_rng(seed)
    return read_log(
        {
            "session": np.repeat(np.arange(n_pages), length),
            "query": np.repeat(rng.integers(0, 3, n_pages), length),
            "doc": np.concatenate([rng.permutation(6)[:length] for _ in range(n_pages)]),
            "rank": np.tile(np.arange(1, length + 1), n_pages),
            "click": rng.random(n_pages * length) < 0.4,
        }
    )


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Prefer("attraction", margin=1.5), r"Prefer\(margin=1.5\): a number from 0 to 1"),
        (lambda: Prefer("attraction", margin="much"), r"Prefer\(margin='much'\)"),
        (lambda: Prefer("attraction", clicked_over="all"), "'skipped_above' or 'skipped_next'"),
        (lambda: Prefer("attraction", strength=-1), r"Prefer\(strength=-1\): a finite number"),
        (lambda: AtMost("noise", -0.1), r"AtMost\(share=-0.1\): a number from 0 to 1"),
        (lambda: AtMost("noise", 0.1, strength=float("inf")), r"AtMost\(strength=inf\)"),
    ],
)
def test_constraints_that_cannot_be(make: Any, told: str) -> None:
    with pytest.raises(ModelError, match=told):
        make()


@pytest.mark.parametrize(
    ("model", "asked", "told"),
    [
        (DBN(), [Prefer("atraction")], "no coin 'atraction'. The coins are: attraction"),
        (DBN(), ["attraction"], r"takes Prefer\(...\) and AtMost\(...\), not 'attraction'"),
        (TACM(), [AtMost("reading[True]", 0.1)], "is no coin but the density of a number"),
        (DBN(), [Prefer("continuation")], "'continuation' has the same row for all results"),
        (Intents(), [Prefer("intent_is_0")], "flipped once a page, before the first result"),
    ],
)
def test_constraints_of_coins_that_cannot_keep_them(model: Any, asked: Any, told: str) -> None:
    if "intent" in told or isinstance(model, Intents):
        name = next(iter(model.automaton.start_parameters()))
        asked = [Prefer(name)]
    dwell = pl.when(pl.col("click") == 1).then(1.5)
    log = read_log(clicks().to_frame().with_columns(dwell=dwell))
    with pytest.raises(ModelError, match=told):
        model.fit(log, FEW, constraints=asked)


def test_only_em_keeps_them() -> None:
    with pytest.raises(ModelError, match=r"constraints=: these are kept by EM\(\)"):
        DBN().fit(clicks(), Gradient(), constraints=[Prefer("attraction")])


def test_a_stored_log_says_so(tmp_path: Path) -> None:
    gecasmo.ClickLog.ingest(clicks().to_frame(), tmp_path / "log.gclog")
    log = open_log(tmp_path / "log.gclog")
    with pytest.raises(ModelError, match="constraints=: pages of a stored log"):
        DBN().fit(log, FEW, constraints=[AtMost("attraction", 0.5)])


def test_results_of_a_task_are_not_on_one_page() -> None:
    with pytest.raises(ModelError, match="compares results of one page, and TCM walks over tasks"):
        TCM().fit(clicks(), FEW, constraints=[Prefer("attraction")])


def test_how_they_were_kept_is_told_and_saved(tmp_path: Path) -> None:
    with plain_python():
        model = TrustPBM(trust=0.4, examination=0.8)
        asked = [Prefer("attraction", margin=0.6, strength=3.0), AtMost("attraction", 0.2)]
        model.fit(clicks(), EM(5, tol=0), constraints=asked, threads=1)
        report = model.report_
        assert report is not None
        prefer, most = report.constraints
        assert prefer.within > prefer.without
        assert most.within <= 0.2 + 1e-4
        assert "pairs in order" in repr(report)
        assert "AtMost(coin='attraction', share=0.2, strength=5.0): share of heads" in repr(report)
        model.save(tmp_path / "trust.fit")
        again = gecasmo.load(tmp_path / "trust.fit")
        assert again.report_ is not None
        assert again.report_.constraints == report.constraints
        with pytest.raises(ModelError, match="was fitted under constraints"):
            again.update(clicks(seed=1))


def test_the_log_likelihood_is_that_of_the_clicks() -> None:
    log = clicks(seed=2)
    with plain_python():
        model = PBM(attraction=Table(pseudo_counts=(1, 1)))
        model.fit(log, EM(10, tol=0), constraints=[AtMost("attraction", 0.3)], threads=1)
        assert model.report_ is not None
        assert model.report_.log_likelihood == pytest.approx(model.log_likelihood(log).sum())


def test_coins_that_are_flipped_twice_and_learned_priors_go_along() -> None:
    with plain_python():
        model = gecasmo.CCM().fit(
            clicks(seed=3), constraints=[Prefer("attraction", margin=0.3)], threads=1
        )
        estimates = model.estimates("attraction")
    assert np.isfinite(estimates["probability"].to_numpy()).all()
    assert np.isfinite(estimates["spread"].to_numpy()).all()


def test_noise_is_held_down() -> None:
    with plain_python():
        forms = {"attraction": Table(pseudo_counts=(1, 1)), "care": 0.9}
        log = clicks(60, seed=4)
        free = BSS(**forms, noise=Table(pseudo_counts=(20, 20))).fit(log, FEW, threads=1)
        held = BSS(**forms, noise=Table(pseudo_counts=(20, 20)))
        held.fit(log, FEW, threads=1, constraints=[AtMost("noise", 0.05)])
    p, q = (m.parameters["noise"]["probability"][0] for m in (free, held))
    assert q < p
    assert held.report_ is not None
    assert held.report_.constraints[0].within == pytest.approx(0.05, abs=1e-4)
