"""Corners of beliefs: rows at 0 or 1, interrupted fits, priors that are not learned, going on."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest

from gecasmo import CM, DBN, DCTR, EM, PBM, Empirical, Estimator, Gradient, Table, read_log
from gecasmo.errors import ConvergenceWarning, GecasmoWarning
from gecasmo.estimation.posteriors.learner import Posteriors
from gecasmo.model.answers import beta_interval


def log_of(clicks: list[list[int]], weight: list[float] | None = None) -> Any:
    """Pages of one query with documents a, b, c ... from the top."""
    rows = [
        (page, "q", "abcdefghij"[rank], rank + 1, click, 1.0 if weight is None else weight[page])
        for page, shown in enumerate(clicks)
        for rank, click in enumerate(shown)
    ]
    names = ("session", "query", "doc", "rank", "click", "weight")
    columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
    return read_log(columns, weight="weight")


def some_log(n: int = 300, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    return log_of((rng.random((n, 6)) < 0.3).astype(int).tolist())


def only_by_em() -> Any:
    """A form without derivatives, which no Newton step can move."""
    linear_model = pytest.importorskip("sklearn.linear_model")
    return Estimator(linear_model.LogisticRegression(), "rank")


def test_one_click_is_no_certainty() -> None:
    model = DCTR(click_rate=Table(pseudo_counts=(0, 0))).fit(log_of([[1, 0]]))
    assert model.parameters["click_rate"].sort("doc")["probability"].to_list() == [1.0, 0.0]
    frame = model.estimates("click_rate").sort("doc")
    # Half a flip a side is what intervals count, and then they are about that mean.
    assert frame["probability"].to_list() == pytest.approx([0.75, 0.25], abs=1e-4)
    assert (frame["spread"] > 0.1).all()
    assert frame["low"][0] < 0.6
    assert frame["high"][1] > 0.4
    assert (frame["low"] <= frame["probability"]).all()
    assert (frame["probability"] <= frame["high"]).all()


@pytest.mark.filterwarnings("ignore:The coin.*never flipped")
@pytest.mark.parametrize("pseudo", [(1, 1), (0.2, 3), (0, 0)])
def test_an_interval_is_about_what_is_answered(pseudo: tuple[float, float]) -> None:
    """EM's estimate of a hidden coin is its most likely value; the interval was about its mean."""
    model = DBN(
        attraction=Table(pseudo_counts=pseudo),
        satisfaction=Table(pseudo_counts=pseudo),
        continuation=0.5,
    ).fit(some_log(12))
    for coin in ("attraction", "satisfaction"):
        found = model.estimates(coin)
        low, high = beta_interval(found["probability"], found["spread"], 0.9)
        np.testing.assert_allclose(found["low"], np.minimum(low, found["probability"]))
        np.testing.assert_allclose(found["high"], np.maximum(high, found["probability"]))
        known = model.parameters[coin].filter(pl.col("heads") + pl.col("tails") > 0)
        flips = known["heads"] + known["tails"] + sum(pseudo)
        answer = (known["heads"] + pseudo[0]) / flips
        np.testing.assert_allclose(known["probability"], answer, atol=1e-4)


def test_shared_rows_that_were_never_flipped_have_no_spread() -> None:
    log = log_of([[0, 1], [1, 0], [0, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = PBM(
            attraction=Table(pseudo_counts=(1, 1)), examination=Table(pseudo_counts=(0, 0))
        ).fit(log)
    frame = model.estimates("examination").sort("rank")
    assert frame["spread"].is_not_null().all()
    assert not (frame["spread"] == 0).all()


def test_rows_that_are_given_but_never_shown() -> None:
    model = PBM(examination=Table(fixed={1: 1.0, 20: 0.1})).fit(some_log())
    row = model.estimates("examination", {"rank": [20]})
    assert row.row(0)[1:] == (0.1, 0.0, 0.1, 0.1, 0.0, "given")


@pytest.mark.parametrize("stage", ["learn", "summed_up"])
def test_an_interrupt_keeps_the_fit(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of forms that only EM can move, priors are learned before the last climb."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Posteriors, stage, stop)
    given = {"continuation": only_by_em()} if stage == "learn" else {}
    with pytest.warns(ConvergenceWarning, match="interrupted while"):
        model = DBN(**given).fit(some_log())
    assert model.is_fitted
    assert model.report_ is not None
    assert model.report_.interrupted


@pytest.mark.parametrize("method", [EM(3, tol=0), Gradient(epochs=1)], ids=["steps", "gradient"])
def test_a_prior_that_is_not_learned_is_told(method: Any) -> None:
    if isinstance(method, Gradient):
        pytest.importorskip("torch")
    with pytest.warns(GecasmoWarning, match="prior of attraction was not learned"):
        DBN(attraction=Table(prior="empirical")).fit(some_log(), method)


def test_going_on_learns_the_prior_anew_and_finds_the_same() -> None:
    rng = np.random.default_rng(0)
    n, n_docs = 2_000, 60
    docs = np.argsort(rng.random((n, n_docs)), axis=1)[:, :6]
    pages = {
        "session": np.repeat(np.arange(n), 6),
        "query": np.zeros(6 * n, int),
        "doc": docs.ravel(),
        "rank": np.tile(np.arange(1, 7), n),
    }
    rates = {(0, doc): rate for doc, rate in enumerate(rng.beta(2, 4, n_docs))}
    truth = DBN.with_values(attraction=rates, satisfaction=0.4, continuation=0.8)
    log = truth.simulate(pages, seed=1)
    first = DBN().fit(log)
    again = DBN().fit(log, start=first)
    one, other = (m.states_["attraction"].priors for m in (first, again))
    assert other.mean == pytest.approx(one.mean, abs=0.01)
    assert other.strength == pytest.approx(one.strength, rel=0.1)
    np.testing.assert_allclose(
        again.parameters["attraction"]["probability"],
        first.parameters["attraction"]["probability"],
        atol=0.01,
    )


def test_weights_are_repetitions() -> None:
    rng = np.random.default_rng(3)
    clicks = (rng.random((60, 5)) < 0.3).astype(int).tolist()
    times = rng.integers(1, 4, 60)
    repeated = [page for page, n in zip(clicks, times, strict=True) for _ in range(n)]
    models = [
        DBN().fit(log, EM(tol=1e-9))
        for log in (log_of(clicks, weight=times.astype(float).tolist()), log_of(repeated))
    ]
    frames = [model.estimates("attraction").sort("doc") for model in models]
    for column in ("probability", "spread", "trials"):
        np.testing.assert_allclose(frames[0][column], frames[1][column], rtol=1e-4)


def test_the_order_of_sessions_plays_no_part() -> None:
    log = some_log()
    frame = log.to_frame()
    shuffled = read_log(frame.sample(fraction=1.0, shuffle=True, seed=4))
    frames = [DBN().fit(one).estimates("attraction").sort("doc") for one in (log, shuffled)]
    np.testing.assert_allclose(frames[0]["probability"], frames[1]["probability"], rtol=1e-7)
    np.testing.assert_allclose(frames[0]["spread"], frames[1]["spread"], rtol=1e-6)


def test_pages_that_cannot_be_are_floored() -> None:
    model = CM().fit(some_log(), impossible="floor")
    assert model.estimates("attraction")["spread"].null_count() == 0


def test_a_prior_for_few_rows_is_vague() -> None:
    model = DCTR(click_rate=Table(prior=Empirical())).fit(log_of([[1, 0, 0], [0, 0, 1]]))
    frame = model.estimates("click_rate")
    assert frame["probability"].is_between(0.2, 0.8).all()
