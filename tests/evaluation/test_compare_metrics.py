"""Every number of the table against a plain computation."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from comparing_examples import by_hand, known_models, ragged
from hypothesis import given, settings
from hypothesis import strategies as st

from gecasmo import EM, GCTR, RCTR, read_log
from gecasmo.evaluation import calibration, compare
from gecasmo.evaluation.metrics import ctr_rmse, top_pairs

FEW = EM(max_iter=2, tol=0)


@pytest.mark.parametrize("weighted", [True, False])
def test_every_metric_by_hand(weighted: bool) -> None:
    log, test = ragged(30, 1, weighted), ragged(40, 2, weighted)
    models = known_models()
    found = compare(log, models, heldout=test, bootstrap=0, method=FEW)
    for name, model in models.items():
        row = found.table.row(by_predicate=pl.col("model") == name, named=True)
        for metric, value in by_hand(model, test).items():
            assert row[metric] == pytest.approx(value, rel=1e-12), (name, metric)
        evaluation = model.evaluate(test)
        assert row["marginal_perplexity_arithmetic"] == pytest.approx(
            evaluation.marginal.arithmetic, rel=1e-12
        )
        assert row["brier"] == pytest.approx(evaluation.brier, rel=1e-12)
        assert row["ece"] == pytest.approx(evaluation.ece, rel=1e-12)
        by_rank = found.by_rank.filter(model=name).select("rank", "results", "marginal")
        theirs = evaluation.by_rank.select("rank", "results", "marginal")
        assert by_rank["rank"].to_list() == theirs["rank"].to_list()
        assert by_rank["results"].to_list() == pytest.approx(theirs["results"].to_list())
        assert by_rank["marginal"].to_list() == pytest.approx(theirs["marginal"].to_list())


def test_the_highest_log_likelihood_comes_first() -> None:
    found = compare(ragged(30, 1), known_models(), heldout=ragged(40, 2), bootstrap=0, method=FEW)
    assert found.table["log_likelihood"].to_list() == sorted(
        found.table["log_likelihood"], reverse=True
    )
    assert found.best == found.table["model"][0]


def test_gain_is_the_way_made_from_the_baseline_to_one() -> None:
    found = compare(ragged(30, 1), known_models(), heldout=ragged(40, 2), bootstrap=20, method=FEW)
    table = {row["model"]: row for row in found.table.to_dicts()}
    for kind in ("conditional", "marginal"):
        metric = f"{kind}_perplexity_pooled"
        base = table["ranks"][metric]
        for row in table.values():
            gain = (base - row[metric]) / (base - 1)
            assert row[f"{kind}_gain"] == pytest.approx(gain)
        assert table["ranks"][f"{kind}_gain"] == 0
        # The baseline is measured against itself in every sample.
        assert table["ranks"][f"{kind}_gain_low"] == table["ranks"][f"{kind}_gain_high"] == 0


def test_gain_over_a_perfect_baseline_is_undefined() -> None:
    log = read_log({"session": [1, 2], "query": [1, 1], "doc": [1, 1], "rank": [1, 1],
                    "click": [1, 1]})  # fmt: skip
    perfect = RCTR.with_values(click_rate=1.0)
    found = compare(
        log, {"perfect": perfect, "coin": GCTR.with_values(click_rate=0.5)}, heldout=log, method=FEW
    )
    row = found.table.row(by_predicate=pl.col("model") == "coin", named=True)
    assert row["marginal_gain"] is None
    assert found.reasons["coin"]["marginal_gain"] == "the click rate by rank is perfect here"
    assert "undefined" in str(found)


def test_click_rates_by_rank_observed_and_predicted() -> None:
    log, test = ragged(30, 1), ragged(40, 2)
    models = known_models()
    found = compare(log, models, heldout=test, bootstrap=0, method=FEW)
    weight = test.weight[test.page]
    for name, rank, results, observed, predicted in found.ctr_by_rank.rows():
        there = test.rank == rank
        assert results == pytest.approx(weight[there].sum())
        assert observed == pytest.approx(np.average(test.click[there], weights=weight[there]))
        if name in models:
            chance = models[name].predict_clicks(test)[there]
            assert predicted == pytest.approx(np.average(chance, weights=weight[there]))


# -- CTR prediction --------------------------------------------------------------------------------
def test_ctr_rmse_by_hand() -> None:
    train, test = ragged(30, 3), ragged(60, 4)
    model = known_models()["DBN"]
    chance = model.predict_clicks(test)
    elsewhere = {
        (q, d) for q, d, rank in train.to_frame().select("query", "doc", "rank").rows() if rank != 1
    }
    sums: dict[tuple[str, str], list[float]] = {}
    for row, (q, d, rank) in enumerate(test.to_frame().select("query", "doc", "rank").rows()):
        if rank == 1 and (q, d) in elsewhere:
            w = test.weight[test.page[row]]
            mine = sums.setdefault((q, d), [0.0, 0.0, 0.0])
            for place, value in enumerate((1.0, float(test.click[row]), chance[row])):
                mine[place] += w * value
    top = sum(n * (c / n - p / n) ** 2 for n, c, p in sums.values())
    expected = np.sqrt(top / sum(n for n, _, _ in sums.values()))
    pairs = top_pairs(train, test)
    assert pairs.n_pairs == len(sums) > 3
    assert ctr_rmse(pairs, chance) == pytest.approx(expected, rel=1e-12)
    found = compare(train, {"DBN": model}, heldout=test, bootstrap=0, method=FEW)
    row = found.table.row(by_predicate=pl.col("model") == "DBN", named=True)
    assert row["ctr_rmse"] == pytest.approx(expected, rel=1e-12)


def test_ctr_rmse_is_undefined_without_such_pairs() -> None:
    log = read_log({"session": [1, 2, 3], "query": [1, 1, 1], "doc": [1, 1, 2],
                    "rank": [1, 1, 1], "click": [0, 1, 0]})  # fmt: skip
    found = compare(log, ["GCTR"], heldout=log, method=FEW)
    assert found.table["ctr_rmse"].to_list() == [None] * 3
    assert "rank 1" in found.reasons["GCTR"]["ctr_rmse"]
    assert "ctr_rmse undefined" in str(found)


# -- calibration -----------------------------------------------------------------------------------
@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.booleans(),
            st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.05, 0.1, 0.5, 0.95, 1.0])),
            st.sampled_from([0.0, 0.5, 1.0, 3.0]),
        ),
        min_size=1,
    ).filter(lambda rows: sum(row[2] for row in rows) > 0)
)
def test_calibration_by_hand(rows: list[tuple[bool, float, float]]) -> None:
    click, chance, weight = (np.array(column) for column in zip(*rows, strict=True))
    found = calibration(click, chance, weight, n_bins=10)
    total = weight.sum()
    assert found.brier == pytest.approx(sum(w * (c - p) ** 2 for c, p, w in rows) / total)
    error, n_bins = 0.0, 0
    for number in range(10):
        here = [r for r in rows if min(int(r[1] * 10), 9) == number]
        mass = sum(w for _, _, w in here)
        if mass > 0:
            n_bins += 1
            error += abs(sum(w * (p - c) for c, p, w in here)) / total
    assert found.ece == pytest.approx(error, abs=1e-12)
    assert len(found.bins) == n_bins
    assert found.bins["results"].sum() == pytest.approx(total)


def test_reliability_bins_are_kept_per_model() -> None:
    test = ragged(40, 2)
    models = known_models()
    found = compare(ragged(30, 1), models, heldout=test, bootstrap=0, method=FEW)
    for name, model in models.items():
        bins = found.calibration.filter(model=name)
        alone = model.evaluate(test).calibration.bins
        assert bins.drop("model").equals(alone)
        share = bins["results"] / bins["results"].sum()
        ece = float((share * (bins["predicted"] - bins["observed"]).abs()).sum())
        row = found.table.row(by_predicate=pl.col("model") == name, named=True)
        assert row["ece"] == pytest.approx(ece)
