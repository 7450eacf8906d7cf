"""Relevance by features: judgments with intervals of `Logistic` and `Sum`, also of pairs never
shown, from a fit or from its file."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from scipy.special import expit

import gecasmo
from gecasmo import DBN, PBM, Logistic, Sum, Table
from gecasmo.judgments import JudgmentsError, judge
from gecasmo.testing import plain_python

N_DOCS = 12


def items() -> pl.DataFrame:
    rng = np.random.default_rng(5)
    return pl.DataFrame(
        {
            "query": np.repeat(["red", "blue"], N_DOCS // 2),
            "doc": [f"{number:03d}" for number in range(N_DOCS)],
            "bm25": rng.normal(size=N_DOCS).round(3),
            "price": rng.integers(10, 90, N_DOCS),
        }
    )


@pytest.fixture(scope="module")
def log():
    rng = np.random.default_rng(1)
    known, n_pages, shown = items(), 400, 4
    chosen = [rng.permutation(N_DOCS // 2)[:shown] + (page % 2) * 6 for page in range(n_pages)]
    pages = known[pl.Series(np.concatenate(chosen))].with_columns(
        session=pl.Series(np.repeat(np.arange(n_pages), shown)),
        rank=pl.Series(np.tile(np.arange(1, shown + 1), n_pages)),
    )
    liked = known.select("query", "doc", probability=1 / (1 + (-pl.col("bm25")).exp()))
    truth = DBN.with_values(attraction=liked, satisfaction=0.4, continuation=0.9)
    with plain_python():
        return truth.simulate(pages, seed=2)


@pytest.fixture(scope="module")
def described(log):
    form = {"attraction": Sum(Logistic("bm25", "price")), "satisfaction": Logistic("bm25")}
    with plain_python():
        return DBN(**form).fit(log, progress=False)


@pytest.fixture(scope="module")
def plain_regression(log):
    form = {"attraction": Logistic("bm25", "price"), "satisfaction": Logistic("bm25")}
    with plain_python():
        return DBN(**form).fit(log, progress=False)


def test_a_sum_gives_judgments_with_intervals_of_all_pairs_of_the_fit(described):
    found = described.judgments()
    assert len(found) == N_DOCS
    assert found.n_judged
    assert not found.n_without_interval
    frame = found.frame
    assert ((frame["low"] < frame["relevance"]) & (frame["relevance"] < frame["high"])).all()
    flips = described.report_.counts["attraction"].sum()
    np.testing.assert_allclose(frame["examinations"].sum(), flips)
    assert "unless features tell" in " ".join(str(found).split())
    assert set(frame["rests_on"]) == {"attraction: query, doc; satisfaction: features"}


def test_examinations_of_a_regression_are_counted_by_pair(plain_regression, log):
    found = plain_regression.judgments()
    assert found.n_judged == N_DOCS
    flips = plain_regression.report_.counts["attraction"].sum()
    np.testing.assert_allclose(found.frame["examinations"].sum(), flips)
    by_hand = (
        plain_regression.posterior(log)
        .group_by("query", "doc")
        .agg(pl.col("attraction_flipped").sum())
    )
    both = found.frame.join(by_hand, on=["query", "doc"])
    np.testing.assert_allclose(both["examinations"], both["attraction_flipped"], rtol=1e-9)
    assert any("features alone" in remark for remark in found.remarks)


def test_the_interval_of_a_regression_is_that_of_its_coefficients(plain_regression):
    """Held against draws of coefficients from their covariance."""
    state = plain_regression.states()["attraction"]
    rows = items().select("bm25", "price")
    told = plain_regression.estimates("attraction", rows)
    rng = np.random.default_rng(0)
    drawn = rng.multivariate_normal(state.coefficients, state.covariance, 40_000)
    numeric = (rows.to_numpy() - state.coding.shift) / state.coding.scale
    values = expit(drawn[:, :1] + drawn[:, 1:] @ numeric.T)
    np.testing.assert_allclose(told["probability"], values.mean(axis=0), atol=2e-3)
    np.testing.assert_allclose(told["spread"], values.std(axis=0), rtol=0.03)
    ends = np.quantile(values, (0.05, 0.95), axis=0)
    np.testing.assert_allclose(told.select("low", "high").to_numpy().T, ends, atol=8e-3)


def test_levels_have_errors_too_and_unseen_ones_larger_ones(log):
    with plain_python():
        model = DBN(attraction=Logistic("doc"), satisfaction=0.4).fit(log, progress=False)
    told = model.estimates("attraction", {"doc": ["000", "never"]})
    assert told["spread"][0] < 0.1 < told["spread"][1]
    state = model.states()["attraction"]
    one = np.zeros(len(state.coefficients))
    one[[0, 1]] = 1.0  # the intercept, and the first level
    at = model.probability("attraction", {"doc": ["000"]})[0]
    delta = at * (1 - at) * np.sqrt(one @ state.covariance @ one)
    np.testing.assert_allclose(told["spread"][0], delta, rtol=0.05)


def test_a_row_without_flips_has_the_width_of_its_prior(described):
    """Features say where, the spread says how far from that."""
    state = described.states()["attraction"]
    new = {"query": ["red"], "doc": ["new"], "bm25": [0.2], "price": [50]}
    told = described.estimates("attraction", new)
    assert told["rests_on"].to_list() == ["features"]
    assert told["trials"].to_list() == [0.0]
    rng = np.random.default_rng(0)
    inner = state.told
    drawn = rng.multivariate_normal(inner.coefficients, inner.covariance, 40_000)
    at = (np.array([0.2, 50]) - inner.coding.shift) / inner.coding.scale
    logits = drawn[:, 0] + drawn[:, 1:] @ at + state.belief.spreads[0] * rng.normal(size=40_000)
    np.testing.assert_allclose(told["spread"], expit(logits).std(), rtol=0.03)
    seen = described.estimates("attraction")
    assert seen["trials"].min() > 20
    assert seen["spread"].max() < told["spread"][0]


def test_given_spreads_are_taken_as_they_are(log):
    with plain_python():
        form = Sum(Logistic("bm25"), spread=0.5)
        model = DBN(attraction=form, satisfaction=0.4).fit(log, progress=False)
    assert model.states()["attraction"].belief.spreads[0] == 0.5


@pytest.mark.parametrize("name", ["described", "plain_regression"])
def test_a_saved_fit_judges_as_the_fit_does(name, tmp_path, request):
    model = request.getfixturevalue(name)
    model.save(tmp_path / "fit.gecasmo")
    again = gecasmo.load(tmp_path / "fit.gecasmo")
    assert again.judgments().frame.equals(model.judgments().frame)
    frame = items().with_columns(query=pl.lit("other"))
    assert judge(again, pairs=frame).frame.equals(judge(model, pairs=frame).frame)


def test_features_may_come_in_a_frame_of_their_own(described):
    asked = pl.DataFrame({"query": ["red", "blue"], "doc": ["000", "new"]})
    known = pl.DataFrame({"doc": ["new", "000"], "bm25": [1.0, -1.0], "price": [20, 30]})
    found = described.judgments(pairs=asked, features=known)
    whole = asked.join(known, on="doc", how="left")
    assert found.frame.equals(described.judgments(pairs=whole).frame)
    examined = dict(zip(found.frame["doc"], found.frame["examinations"], strict=True))
    assert examined["new"] == 0 < examined["000"]
    # Without pairs those of the fit are judged, by what the frame says now.
    dearer = items().with_columns(pl.col("price") + 40)
    moved = described.judgments(features=dearer).frame
    assert len(moved) == N_DOCS
    assert not moved["relevance"].equals(described.judgments().frame["relevance"])


def test_features_of_a_fit_are_found_by_their_key(log):
    table = items().select("doc", "bm25")
    form = Logistic("bm25", key="doc")
    with plain_python():
        model = DBN(attraction=form, satisfaction=0.4).fit(
            log, features={"attraction": table}, progress=False
        )
    assert model.judgments().n_judged == N_DOCS


def test_what_is_missing_is_named(described, log):
    asked = pl.DataFrame({"query": ["red"], "doc": ["000"]})
    with pytest.raises(JudgmentsError, match=r"The pairs lack bm25.*features="):
        described.judgments(pairs=asked)
    with pytest.raises(JudgmentsError, match="has no row for 1 of 1 pairs, such as"):
        described.judgments(pairs=asked, features=items().filter(pl.col("doc") != "000"))
    twice = pl.concat([items(), items().with_columns(pl.col("bm25") + 1)])
    with pytest.raises(JudgmentsError, match="more than one row for"):
        described.judgments(features=twice)
    with pytest.raises(JudgmentsError, match="some of those that the relevance of DBN reads"):
        described.judgments(features=items().select("doc", width="price"))
    with plain_python():
        table = DBN().fit(log, progress=False)
    with pytest.raises(JudgmentsError, match="reads no features"):
        table.judgments(features=items())


def test_a_feature_that_changes_from_page_to_page_is_no_matter_of_pairs(log):
    """Whose relevance it is cannot be known, so it has to be asked."""
    frame = log.to_frame().with_columns(hour=pl.col("session") % 24)
    with plain_python():
        model = DBN(attraction=Logistic("hour"), satisfaction=Table()).fit(frame, progress=False)
    assert model.pairs_ is None
    with pytest.raises(JudgmentsError, match="depends on hour"):
        model.judgments()


def test_updates_know_old_and_new_pairs(log):
    first = log.to_frame().filter(pl.col("query") == "red")
    with plain_python():
        model = PBM(attraction=Logistic("bm25")).fit(first, progress=False)
        assert len(model.judgments()) == N_DOCS // 2
        before = model.pairs_["*examinations*"].sum()
        model.update(log, decay=0.5, progress=False)
    assert len(model.judgments()) == N_DOCS
    assert model.pairs_["*examinations*"].sum() > before
