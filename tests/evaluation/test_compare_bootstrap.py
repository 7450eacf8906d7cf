"""Intervals and verdicts: right, reproducible, and not louder than the data."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from comparing_examples import by_hand, known_models, ragged
from scipy.stats import norm, t

from gecasmo import DBN, EM, GCTR, RCTR, ClickLog, read_log
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.evaluation import compare
from gecasmo.evaluation.bootstrap import (
    METRICS,
    NO_DIFFERENCE,
    interval,
    metrics,
    resampled,
    verdict_of,
)
from gecasmo.simulation import demo_log

FEW = EM(max_iter=2, tol=0)


def expanded(level: float, n: int) -> list[float]:
    """Where quantiles are taken: a Student interval's ends on the normal scale."""
    tail = norm.cdf(t.ppf((1 - level) / 2, n - 1) * np.sqrt(n / (n - 1)))
    return [tail, 1 - tail]


def test_intervals_are_those_of_resampled_logs() -> None:
    """Each sample once more, slowly: sessions weighed by how often their query was drawn."""
    log, test, n_samples, level = ragged(30, 1), ragged(40, 2), 25, 0.8
    models = {name: known_models()[name] for name in ("DBN", "ranks")}
    found = compare(log, models, heldout=test, bootstrap=n_samples, level=level, seed=3, method=FEW)
    queries = test.session_column("query")
    numbers = {query: i for i, query in enumerate(queries.unique(maintain_order=True))}
    group = np.array([numbers[query] for query in queries])
    drawn = resampled(np.eye(len(numbers)), n_samples, 3)
    assert drawn.sum(axis=1).tolist() == [len(numbers)] * n_samples
    samples = {
        name: [by_hand(model, test, test.weight * counts[group]) for counts in drawn]
        for name, model in models.items()
    }
    tails = expanded(level, len(numbers))
    for name in models:
        row = found.table.row(by_predicate=pl.col("model") == name, named=True)
        for metric in METRICS:
            low, high = np.quantile([sample[metric] for sample in samples[name]], tails)
            assert row[f"{metric}_low"] == pytest.approx(low, rel=1e-9)
            assert row[f"{metric}_high"] == pytest.approx(high, rel=1e-9)
    for metric in METRICS:
        paired = [a[metric] - b[metric] for a, b in zip(*samples.values(), strict=True)]
        low, high = np.quantile(paired, tails)
        line = found.differences.filter(model="DBN", against="ranks", metric=metric)
        if line.is_empty():  # the baseline is the best here: it stands the other way round
            continue
        assert line["low"][0] == pytest.approx(low, rel=1e-9)
        assert line["high"][0] == pytest.approx(high, rel=1e-9)


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others() -> None:
    log, test = ragged(30, 1), ragged(40, 2)

    def numbers(seed: int) -> tuple[pl.DataFrame, pl.DataFrame]:
        found = compare(log, known_models(), heldout=test, seed=seed, bootstrap=30, method=FEW)
        return found.table.drop("seconds"), found.differences

    one, again, other = numbers(1), numbers(1), numbers(2)
    assert one[0].equals(again[0])
    assert one[1].equals(again[1])
    assert not one[0].equals(other[0])
    assert one[0]["log_likelihood"].to_list() == other[0]["log_likelihood"].to_list()


def test_samples_do_not_depend_on_how_many_are_made_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sums = np.random.default_rng(0).random((7, 4))
    whole = resampled(sums, 11, 5)
    monkeypatch.setattr("gecasmo.evaluation.bootstrap._NUMBERS_AT_ONCE", 20)
    assert resampled(sums, 11, 5) == pytest.approx(whole, rel=1e-12)


def test_twins_differ_in_nothing() -> None:
    twin = known_models()["DBN"]
    found = compare(
        ragged(30, 1),
        {"one": twin, "other": twin, "ranks": known_models()["ranks"]},
        heldout=ragged(40, 2),
        bootstrap=50,
        method=FEW,
    )
    pair = found.differences.filter(
        pl.col("model").is_in(["one", "other"]) & pl.col("against").is_in(["one", "other"])
    )
    for verdict, difference in pair.select("verdict", "difference").rows():
        assert verdict == NO_DIFFERENCE
        assert difference == 0


def test_rounding_is_no_difference() -> None:
    coin = {
        "coin": GCTR.with_values(click_rate=0.3),
        "other": GCTR.with_values(click_rate=0.3 + 1e-13),
    }
    found = compare(ragged(60, 1), coin, heldout=ragged(60, 2), method=FEW)
    best = found.table.filter(pl.col("model").is_in(["coin", "other"]))["model"].to_list()
    against = found.differences.filter(model=best[1], against=best[0])
    assert set(against["verdict"]) <= {NO_DIFFERENCE}


@pytest.mark.parametrize(
    ("low", "high", "higher_is_better", "verdict"),
    [
        (0.1, 0.2, True, "better"),
        (0.1, 0.2, False, "worse"),
        (-0.2, -0.1, True, "worse"),
        (-0.2, -0.1, False, "better"),
        (-0.1, 0.2, True, NO_DIFFERENCE),
        (0.0, 0.2, True, NO_DIFFERENCE),
        (None, None, True, "not tested"),
    ],
)
def test_verdicts(
    low: float | None, high: float | None, higher_is_better: bool, verdict: str
) -> None:
    assert verdict_of(low, high, higher_is_better) == verdict


def test_the_truth_is_better_and_noise_is_not(compiled: None) -> None:
    log, truth = demo_log(3000, seed=5)
    found = compare(log, {"truth": truth, "DBN": "DBN"}, seed=1)
    assert found.best == "truth"
    for metric in METRICS:
        assert found.verdict("truth", "RCTR", metric) == "better"
    assert found.verdict("DBN", "RCTR") == "better"
    assert found.verdict("DBN", "truth") == "worse"
    text = str(found).splitlines()
    assert any("truth" in line and "better" in line for line in text)


def test_better_is_not_said_of_a_difference_within_the_noise() -> None:
    """Two constants equally far from the truth: one of them looks better, none is."""
    rates = {"low": GCTR.with_values(click_rate=0.33), "high": GCTR.with_values(click_rate=0.37)}
    n = 200
    click = np.random.default_rng(4).permutation(np.arange(n) < 0.35 * n)
    test = read_log(
        {
            "session": np.arange(n),
            "query": np.array([f"q{i % 40}" for i in range(n)]),
            "doc": np.array([f"d{i % 3}" for i in range(n)]),
            "rank": np.ones(n, int),
            "click": click,
        }
    )
    found = compare(ragged(30, 1), rates, heldout=test, method=FEW)
    first, second = (name for name in found.table["model"] if name in rates)
    assert found.best == first
    line = found.differences.filter(model=second, against=first, metric="log_likelihood")
    assert line["difference"][0] < 0
    assert line["verdict"][0] == NO_DIFFERENCE
    assert line["low"][0] < 0 < line["high"][0]


@pytest.mark.parametrize(("n_queries", "least"), [(60, 0.83), (6, 0.82)])
def test_intervals_of_clustered_data_cover_what_they_should(n_queries: int, least: float) -> None:
    """Click rates differ by query. Over queries the intervals cover; over sessions they lie."""
    rng = np.random.default_rng(11)
    n_logs, n_each, truth = 150, 30, 0.3
    hit = {"query": 0, "session": 0}
    for number in range(n_logs):
        rate = rng.beta(3, 7, n_queries)
        click = rng.random((n_queries, n_each)) < rate[:, None]
        square = (click - truth) ** 2
        expected = 0.3 * 0.7**2 + 0.7 * 0.3**2  # the Brier score of always saying 0.3
        for over, table in (("query", square.sum(axis=1)), ("session", square.ravel())):
            results = np.full(len(table), n_each if over == "query" else 1.0)
            blank = np.zeros(len(table))
            sums = np.column_stack([blank, results, table, results, blank, blank])
            drawn = metrics(resampled(sums, 200, number))["brier"]
            low, high = interval(drawn, 0.9, len(table))
            assert low is not None
            assert high is not None
            hit[over] += low <= expected <= high
    assert least <= hit["query"] / n_logs <= 0.97
    assert hit["session"] / n_logs < 0.75


# -- what is drawn ---------------------------------------------------------------------------------
def with_user(log: ClickLog) -> ClickLog:
    users = np.arange(log.n_sessions) % 25
    frame = log.to_frame().with_columns(user=pl.Series(users[log.page]))
    return read_log(frame, weight="weight")


def test_over_any_column_of_the_page() -> None:
    log = with_user(ragged(40, 2))
    wide = {}
    for over, n in (("user", 25), ("session", 40), ("query", 6)):
        found = compare(log, ["GCTR"], heldout=log, over=over, bootstrap=20, method=FEW)
        assert (found.setting.over, found.setting.n_clusters) == (over, n)
        wide[over] = found.table.select("log_likelihood_low", "log_likelihood_high").row(0)
        assert ("too few to trust" in str(found)) == (over == "query")
    assert len(set(wide.values())) == 3


def test_a_column_that_varies_on_a_page_cannot_be_drawn_over() -> None:
    log = ragged(20, 1)
    with pytest.raises(ClickLogError, match=r"compare\(over='doc'\): The column 'doc' has more"):
        compare(log, ["GCTR"], over="doc", method=FEW)
    with pytest.raises(ClickLogError, match=r"compare\(over='user'\): The log has no column"):
        compare(log, ["GCTR"], over="user", method=FEW)


def test_one_query_only_falls_back_to_sessions_and_says_so() -> None:
    log = ragged(30, 1, n_queries=1)
    found = compare(log, ["GCTR"], heldout=log, bootstrap=10, method=FEW)
    assert found.setting.over == "session"
    assert any("one query only" in note for note in found.notes)


def test_one_session_has_no_intervals() -> None:
    one = ragged(30, 1).take([3])
    found = compare(ragged(30, 1), ["GCTR"], heldout=one, method=FEW)
    assert found.table["log_likelihood_low"].to_list() == [None] * 3
    assert set(found.differences["verdict"]) == {"not tested"}
    assert any("one session only" in note for note in found.notes)
    assert "better" not in str(found).replace("is better", "")


def test_without_a_bootstrap_nothing_is_called_better() -> None:
    found = compare(ragged(30, 1), known_models(), heldout=ragged(40, 2), bootstrap=0, method=FEW)
    assert set(found.differences["verdict"]) == {"not tested"}
    assert found.table["brier_high"].null_count() == len(found.table)
    assert "interval" not in str(found)


def test_sessions_that_weigh_nothing_do_not_count() -> None:
    test = ragged(40, 2)
    frame = test.to_frame().with_columns(
        weight=pl.when(pl.col("query") == "q1").then(0.0).otherwise(pl.col("weight"))
    )
    models = {"DBN": known_models()["DBN"]}
    found = [
        compare(ragged(30, 1), models, heldout=log, bootstrap=30, method=FEW)
        for log in (
            read_log(frame, weight="weight"),
            read_log(frame.filter(pl.col("query") != "q1"), weight="weight"),
        )
    ]
    assert found[0].setting.n_clusters == found[1].setting.n_clusters == 5
    for one, other in zip(found[0].table.to_dicts(), found[1].table.to_dicts(), strict=True):
        for name in one:
            if name not in ("seconds", "n_impossible"):
                assert one[name] == pytest.approx(other[name]), name


def test_bad_numbers_are_refused() -> None:
    log = ragged(20, 1)
    for bad in (-1, 2.5, True):
        with pytest.raises(ModelError, match=r"compare\(bootstrap="):
            compare(log, ["GCTR"], bootstrap=bad)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match=r"compare\(level=1\.5\)"):
        compare(log, ["GCTR"], level=1.5)
    with pytest.raises(ModelError, match=r"compare\(ndcg_at=0\)"):
        compare(log, ["GCTR"], ndcg_at=0)
    with pytest.raises(ModelError, match=r"compare\(impossible='hide'\)"):
        compare(log, ["GCTR"], impossible="hide")  # type: ignore[arg-type]


def test_models_that_are_given_are_references_too() -> None:
    assert isinstance(known_models()["ranks"], RCTR)
    assert isinstance(known_models()["DBN"], DBN)
    found = compare(ragged(30, 1), known_models(), heldout=ragged(40, 2), bootstrap=5, method=FEW)
    assert found.setting.baseline == "ranks"
    assert "RCTR" not in found.models
    assert set(found.differences["against"]) == {found.best, "ranks"}
