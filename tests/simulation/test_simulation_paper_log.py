"""The log behind the figure: what was published about it, and what must hold for any such log."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from gecasmo import ClickLog
from gecasmo.errors import ModelError
from gecasmo.simulation import Nearest, Popularity, Simulated, Uniform, paper_log
from gecasmo.simulation.market import Market
from gecasmo.simulation.simulated import Experiment

RANK_CTR = (0.548, 0.337, 0.204, 0.126, 0.077, 0.048, 0.030, 0.019, 0.011, 0.007)


@pytest.fixture(scope="module")
def paper() -> Simulated:
    return paper_log()


@pytest.fixture(scope="module")
def small() -> Simulated:
    return paper_log(3, n_users=400)


def rank_ctr(log: ClickLog) -> np.ndarray:
    return np.array([log.click[log.rank == rank].mean() for rank in np.unique(log.rank)])


# -- what was published ----------------------------------------------------------------------------
def test_sessions_per_user(paper: Simulated) -> None:
    log = paper.log
    visits = log.session_column("user").value_counts()["count"]
    assert len(visits) == len(paper.users) == 18_000
    assert abs(log.n_sessions - 36_000) < 4 * np.sqrt(2 * 18_000)
    assert abs((visits == 1).mean() - 0.5) < 0.02
    train, _ = log.split(test=0.3, by="user", seed=1)
    assert abs(train.n_sessions - 25_057) < 700


def test_click_rates_by_rank(paper: Simulated) -> None:
    np.testing.assert_allclose(rank_ctr(paper.log), RANK_CTR, atol=0.008)


def test_mean_attraction_over_all_users_and_items() -> None:
    market = Market.draw(np.random.default_rng(1), 2_000, 100)
    attraction = market.probability(np.arange(2_000)[:, None], np.arange(100), 5.0)
    assert abs(attraction.mean() - 0.54) < 0.01


@pytest.mark.parametrize("seed", [1992, 1])
def test_perplexities_of_the_oracle(paper: Simulated, seed: int) -> None:
    simulated = paper if seed == 1992 else paper_log(seed)
    _, test = simulated.log.split(test=0.3, by="user", seed=seed)
    evaluation = simulated.oracle.evaluate(test)
    assert 1.330 < evaluation.marginal.pooled < 1.339
    assert 1.300 < evaluation.conditional.pooled < 1.308


# -- what must hold --------------------------------------------------------------------------------
def test_columns(small: Simulated) -> None:
    assert small.log.columns == [
        *("session", "doc", "rank", "click", "user", "visit", "ranker"),
        *("user_x", "user_y", "item_x", "item_y"),
    ]
    assert small.truth.columns == [
        *("session", "doc", "rank", "click", "reached"),
        *("attraction", "satisfaction", "continuation"),
        *("attraction_flips", "satisfaction_flips", "continuation_flips"),
    ]
    assert small.users.columns == ["user", "user_x", "user_y"]
    assert small.items.columns == ["doc", "popularity", "item_x", "item_y"]
    assert "truth" not in repr(small)


def test_sessions_are_pages_of_one_user(small: Simulated) -> None:
    log = small.log
    assert log.sessions.to_list() == list(range(log.n_sessions))
    assert (log.lengths == 10).all()
    assert log.to_frame().group_by("session").agg(pl.col("doc").n_unique())["doc"].unique()[0] == 10
    sessions = pl.DataFrame(
        {"user": log.session_column("user"), "visit": log.session_column("visit")}
    )
    counted = sessions.group_by("user").agg(pl.col("visit").max(), pl.len())
    assert (counted["visit"] == counted["len"]).all()
    assert not sessions.is_duplicated().any()


def test_truth_and_log_tell_the_same_story(paper: Simulated) -> None:
    truth, log = paper.truth, paper.log
    shared = ["session", "doc", "rank", "click"]
    assert_frame_equal(truth.select(shared), log.to_frame().select(shared))
    reached = truth["reached"].to_numpy().reshape(-1, 10)
    fell = {
        coin: truth[f"{coin}_flips"].to_numpy().reshape(-1, 10)
        for coin in ("attraction", "satisfaction", "continuation")
    }
    click = log.click.reshape(-1, 10)
    assert reached[:, 0].all()
    assert ((fell["attraction"] == "heads") == click).all()
    assert (np.isin(fell["attraction"], ["heads", "tails"]) == reached).all()
    assert (np.isin(fell["satisfaction"], ["heads", "tails"]) == click).all()
    assert ((fell["continuation"] == "heads")[:, :-1] == reached[:, 1:]).all()
    assert not (reached[:, 1:] & (fell["satisfaction"] == "heads")[:, :-1]).any()


@pytest.mark.parametrize("coin", ["attraction", "satisfaction", "continuation"])
def test_coins_fall_as_often_as_their_probabilities_say(paper: Simulated, coin: str) -> None:
    flipped = paper.truth.filter(pl.col(f"{coin}_flips").is_not_null())
    p = flipped[coin].to_numpy()
    heads = (flipped[f"{coin}_flips"] == "heads").to_numpy()
    for part in np.array_split(np.argsort(p, kind="stable"), 5):
        spread = np.sqrt((p[part] * (1 - p[part])).sum())
        assert abs(heads[part].sum() - p[part].sum()) < 4 * spread


def test_the_places_in_the_log_give_the_true_attraction(small: Simulated) -> None:
    rows = pl.concat(
        [small.log.to_frame().select("user_x", "user_y", "item_x", "item_y"), small.truth],
        how="horizontal",
    ).sample(100, seed=1)
    places = small.items.select("item_x", "item_y").to_numpy()
    for row in rows.iter_rows(named=True):
        to_all = np.hypot(*(places - (row["user_x"], row["user_y"])).T)
        own = np.exp(5) / np.hypot(row["item_x"] - row["user_x"], row["item_y"] - row["user_y"])
        expected = own / ((1 / to_all).sum() + own * (1 - np.exp(-5)))
        assert abs(row["attraction"] - expected) < 1e-9
        assert row["satisfaction"] == row["attraction"]
        assert row["continuation"] == 0.9


def test_the_oracle_answers_for_any_part(small: Simulated) -> None:
    log, oracle = small.log, small.oracle
    whole = oracle.log_likelihood(log)
    wanted = np.random.default_rng(1).random(log.n_sessions) < 0.4
    np.testing.assert_allclose(oracle.log_likelihood(log.take(wanted)), whole[wanted])
    assert oracle.predict_clicks(log, frame=True)["unseen"].list.len().max() == 0


def test_saliences_and_sensitivity_do_what_they_say() -> None:
    def mean(coin: str, **options: float) -> float:
        return paper_log(1, n_users=200, **options).truth[coin].mean()

    assert mean("attraction", attraction_salience=2.0) < 0.3 < mean("attraction")
    assert mean("satisfaction", attraction_salience=2.0) > 0.5
    assert mean("satisfaction", satisfaction_salience=9.0) > 0.95
    flat = paper_log(1, n_users=200, distance_sensitivity=0.0).truth["attraction"]
    np.testing.assert_allclose(flat, np.exp(5) / (99 + np.exp(5)))


def test_popularity_is_the_count_of_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    logs = []
    click = Experiment._click

    def recorded(self, pages):
        logs.append(click(self, pages))
        return logs[-1]

    monkeypatch.setattr(Experiment, "_click", recorded)
    simulated = paper_log(1, n_users=5_000)
    assert len(logs) == 2
    warm_up = logs[0][0]
    assert warm_up.column("ranker").unique().to_list() == ["Uniform()"]
    assert warm_up.column("user").max() == 499
    clicks, looks = np.zeros(100), np.zeros(100)
    docs = warm_up.column("doc").to_numpy().reshape(-1, 10)
    for doc, clicked in zip(docs, warm_up.click.reshape(-1, 10), strict=True):
        last = max(np.flatnonzero(clicked), default=9)  # without clicks, everything was looked at
        np.add.at(looks, doc[: last + 1], 1)
        np.add.at(clicks, doc[clicked], 1)
    assert (looks > 0).all()
    expected = np.maximum(clicks / looks, 1e-5)
    np.testing.assert_allclose(simulated.items["popularity"], expected, rtol=1e-12)


def test_without_warm_up_all_items_are_equally_popular() -> None:
    simulated = paper_log(1, n_users=100, warm_up=0.0)
    assert len(simulated.users) == 100
    assert (simulated.items["popularity"] == 1.0).all()
    one = paper_log(1, n_users=1, warm_up=0.5)
    assert len(one.users) == 1


def test_items_the_warm_up_saw_no_click_on_come_last() -> None:
    simulated = paper_log(2, n_users=40, n_items=500, list_size=5, warm_up=0.05)
    known = simulated.items.filter(pl.col("popularity") > 1e-5)["doc"]
    assert 1 <= len(known) < 5
    first = simulated.log.to_frame().filter(pl.col("rank") <= len(known))["doc"]
    assert first.is_in(known.implode()).mean() > 0.95


# -- seeds -----------------------------------------------------------------------------------------
def test_one_seed_one_log(small: Simulated) -> None:
    again, other = paper_log(3, n_users=400), paper_log(4, n_users=400)
    assert_frame_equal(again.log.to_frame(), small.log.to_frame())
    assert_frame_equal(again.truth, small.truth)
    assert_frame_equal(again.items, small.items)
    assert other.log.n_sessions != small.log.n_sessions
    assert not other.items["item_x"].equals(small.items["item_x"])


def test_users_and_visits_do_not_depend_on_what_is_shown(small: Simulated) -> None:
    other = paper_log(3, n_users=400, rankers=Uniform(), continuation=0.5)
    assert_frame_equal(other.users, small.users)
    assert other.log.column("user").equals(small.log.column("user"))
    assert not other.log.column("doc").equals(small.log.column("doc"))


# -- rankers ---------------------------------------------------------------------------------------
def test_better_rankers_get_more_clicks() -> None:
    rankers = [Nearest(noise=0.2), Popularity(), Uniform(), Popularity(noise=0.0)]
    simulated = paper_log(1, n_users=2_000, rankers=rankers)
    log = simulated.log
    by_ranker = {
        name: rank_ctr(log.take((log.session_column("ranker") == name).to_numpy()))[0]
        for name in log.column("ranker").unique()
    }
    assert set(by_ranker) == {repr(ranker) for ranker in rankers}
    assert by_ranker["Nearest(noise=0.2)"] > by_ranker["Popularity(noise=1.0)"] + 0.1
    assert by_ranker["Popularity(noise=0.0)"] > by_ranker["Uniform()"]
    simulated.oracle.evaluate(log)


class Alphabetical:
    """A ranker as a user may write one."""

    noise = 0.0

    def scores(self, market, popularity, user):
        return -np.arange(market.n_items)

    def __repr__(self) -> str:
        return "a to z"


def test_a_ranker_of_ones_own() -> None:
    log = paper_log(1, n_users=50, rankers=Alphabetical()).log
    assert (log.column("doc") + 1 == log.column("rank")).all()
    assert log.column("ranker").unique().to_list() == ["a to z"]


# -- mistakes --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_users": 0}, "n_users >= 1"),
        ({"list_size": 101}, "1 <= list_size <= n_items"),
        ({"distance_sensitivity": -1.0}, "distance_sensitivity >= 0"),
        ({"attraction_salience": float("nan")}, "finite saliences"),
        ({"seed": -1, "n_users": 0}, "needs seed >= 0, n_users >= 1"),
        ({"sessions_parameter": 0.0, "warm_up": 1.0}, "0 < sessions_parameter <= 1, 0 <= warm_up"),
        ({"continuation": 1.2}, "0 <= continuation <= 1"),
        ({"rankers": []}, "some rankers are wanted"),
        ({"rankers": "popular"}, "some rankers are wanted"),
        ({"rankers": Nearest(noise=-1.0)}, "noise of a ranker should not be negative"),
    ],
)
def test_arguments_that_make_no_sense(options: dict, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        paper_log(**options)
