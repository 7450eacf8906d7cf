"""Users over time: the clock, the devices, the cookies."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from gecasmo.errors import ModelError
from gecasmo.simulation import Habits, Simulated, Uniform, cookie_log
from gecasmo.simulation.lifetimes import Cookies, draw_visits

MONTH = 43_200.0


@pytest.fixture(scope="module")
def visits() -> pl.DataFrame:
    found, _ = draw_visits(Habits(), 20_000, 2 * MONTH, np.random.default_rng(1))
    return found


@pytest.fixture(scope="module")
def simulated() -> Simulated:
    return cookie_log(1, n_users=2_000)


# -- the laws --------------------------------------------------------------------------------------
def test_lifetimes_have_the_means_they_should() -> None:
    habits, rng = Habits(), np.random.default_rng(1)
    mean = float(np.dot(habits.lifetime_means, habits.lifetime_weights))
    n = 100_000
    cookies, users = habits.lifetimes(n, rng), habits.user_lifetimes(n, rng)
    assert abs(cookies.mean() - mean) < 4 * cookies.std() / np.sqrt(n)
    assert abs(users.mean() - 2 * mean) < 4 * users.std() / np.sqrt(n)
    assert (users > 0).all()


def one_user_after_the_other(n_users: int, until: float, seed: int) -> dict[str, list[float]]:
    """The clock as one would tell it, with loops; per user sessions, cookies and device changes."""
    rng, habits = np.random.default_rng(seed), Habits()
    means, weights = np.array(habits.lifetime_means), np.array(habits.lifetime_weights)
    first = np.array(habits.first_device) / np.sum(habits.first_device)
    switch = [np.array(row) / np.sum(row) for row in habits.next_device]

    def lifetime() -> float:
        return rng.exponential(rng.choice(means, p=weights))

    told: dict[str, list[float]] = {"sessions": [], "cookies": [], "changes": []}
    clock = 0.0
    for _ in range(n_users):
        clock += rng.exponential(5.0)
        time, n_sessions, n_cookies, n_changes = clock, 0, 0, 0
        leaves = clock + sum(lifetime() for _ in range(rng.geometric(0.5)))
        device = rng.choice(3, p=first)
        expires: dict[int, float] = {}
        while time < min(leaves, until):
            n_sessions += 1
            if time >= expires.get(device, 0.0):
                n_cookies += 1
                expires[device] = time + lifetime()
            time += rng.random() ** (-1 / 0.111) - 1
            before, device = device, rng.choice(3, p=switch[device])
            n_changes += before != device and time < min(leaves, until)
        for name, value in zip(told, (n_sessions, n_cookies, n_changes), strict=True):
            told[name].append(value)
    return told


def test_the_clock_agrees_with_one_that_is_told_user_by_user() -> None:
    n_users, until = 4_000, MONTH
    slow = one_user_after_the_other(n_users, until, 1)
    found, _ = draw_visits(Habits(), n_users, until, np.random.default_rng(2))
    change = (pl.col("device") != pl.col("device").shift(1)).sum()
    by_user = (
        found.sort("user", "visit")
        .group_by("user")
        .agg(sessions=pl.len(), cookies=pl.col("cookie").n_unique(), changes=change)
    )
    for name, told in slow.items():
        fast = np.zeros(n_users)
        fast[by_user["user"].to_numpy()] = by_user[name].to_numpy()
        error = np.hypot(np.std(told), np.std(fast)) / np.sqrt(n_users)
        assert abs(np.mean(told) - fast.mean()) < 4 * error, name


def test_arrivals_and_absences(visits: pl.DataFrame) -> None:
    assert visits["time"].is_sorted()
    assert visits["time"].is_between(0, 2 * MONTH).all()
    first = visits.filter(pl.col("visit") == 1).sort("user")
    assert first["time"].is_sorted()
    assert abs(first["time"].diff().mean() - 5.0) < 0.15
    absence = visits.sort("user", "visit").select(
        pl.col("time").diff().over("user"), early=pl.col("time").shift(1).over("user") < MONTH
    )
    short = absence.filter(pl.col("early"), pl.col("time") < 60.0)["time"]
    # Nobody's window has closed within an hour, so below an hour the law is seen as it is.
    expected = (1 - 11**-0.111) / (1 - 61**-0.111)
    assert abs((short < 10).mean() - expected) < 4 * np.sqrt(0.25 / len(short))


def test_a_cookie_is_one_device_of_one_user(visits: pl.DataFrame) -> None:
    owners = visits.group_by("cookie").agg(pl.col("user", "device").n_unique())
    assert owners["user"].max() == owners["device"].max() == 1
    first_seen = visits.unique("cookie", keep="first", maintain_order=True)["cookie"]
    assert first_seen.to_list() == list(range(len(first_seen)))
    # Once replaced, a cookie never comes back.
    runs = visits.sort("user", "device", "visit").with_columns(run=pl.col("cookie").rle_id())
    assert runs.group_by("cookie").agg(pl.col("run").n_unique())["run"].max() == 1


def test_cookies_by_hand() -> None:
    habits = Habits(lifetime_means=(1e9,), lifetime_weights=(1.0,))
    cookies = Cookies(habits, 2, np.random.default_rng(1))
    both = np.array([0, 1])
    assert cookies.shown(both, np.array([0, 0]), np.array([0.0, 1.0])).tolist() == [0, 1]
    assert cookies.shown(both, np.array([2, 0]), np.array([2.0, 3.0])).tolist() == [2, 1]
    assert cookies.shown(both, np.array([0, 0]), np.array([4.0, 5.0])).tolist() == [0, 1]
    cookies.expires[1, 0] = 6.0
    assert cookies.shown(both, np.array([2, 0]), np.array([6.0, 6.0])).tolist() == [2, 3]


def test_very_heavy_absences_end_in_one_session_each() -> None:
    found, lives = draw_visits(Habits(absence_shape=1e-4), 500, MONTH, np.random.default_rng(1))
    assert len(found) < 550
    assert len(lives) == 500


# -- the log ---------------------------------------------------------------------------------------
def test_columns_and_order_of_time(simulated: Simulated) -> None:
    log = simulated.log
    assert log.columns == [
        *("session", "doc", "rank", "click", "user", "visit", "time", "device", "cookie"),
        *("window", "ranker", "user_x", "user_y", "item_x", "item_y"),
    ]
    assert simulated.users.columns == ["user", "user_x", "user_y", "arrival", "lifetime"]
    time = log.session_column("time")
    assert time.is_sorted()
    assert (log.session_column("window") == (time // MONTH).cast(pl.Int64) + 1).all()
    assert log.session_column("window").unique().to_list() == [1, 2]
    assert set(log.column("user").unique()) == set(simulated.users["user"])
    joined = log.to_frame().join(simulated.users, on="user")
    assert (joined["time"] >= joined["arrival"]).all()
    assert (joined["time"] < joined["arrival"] + joined["lifetime"]).all()


def test_users_of_the_paper_never_give_up(simulated: Simulated) -> None:
    assert simulated.oracle.name == "SDBN"
    truth = simulated.truth
    satisfied = (truth["satisfaction_flips"] == "heads").fill_null(False).to_numpy()
    reached = truth["reached"].to_numpy().reshape(-1, 10)
    goes_on = reached & ~satisfied.reshape(-1, 10)
    assert (reached[:, 1:] == goes_on[:, :-1]).all()
    _, test = simulated.log.split(test=0.1, by="user", seed=1)
    assert simulated.oracle.evaluate(test).n_impossible == 0


def test_the_warm_up_is_left_out() -> None:
    options: dict[str, Any] = {"n_users": 300, "rankers": Uniform()}
    short, none = cookie_log(1, **options), cookie_log(1, warm_up_sessions=0, **options)
    assert none.log.n_sessions == short.log.n_sessions + 250
    assert none.log.session_column("time")[250] == short.log.session_column("time")[0]
    assert (none.items["popularity"] == 1).all()
    assert short.items["popularity"].n_unique() > 20


def test_one_seed_one_log() -> None:
    one, again, other = (cookie_log(seed, n_users=200) for seed in (1, 1, 2))
    assert_frame_equal(one.log.to_frame(), again.log.to_frame())
    assert_frame_equal(one.truth, again.truth)
    assert one.log.session_column("time")[0] != other.log.session_column("time")[0]


# -- mistakes --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0.0}, "window > 0"),
        ({"n_windows": 0, "warm_up_sessions": -1}, "n_windows >= 1, warm_up_sessions >= 0"),
        ({"n_users": 10}, r"10 users have \d+ sessions within 86400 minutes, and the first 250"),
        ({"window": 1e-9, "warm_up_sessions": 0}, "have 0 sessions within"),
    ],
)
def test_arguments_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        cookie_log(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arrival_gap": 0.0, "absence_shape": -1.0}, "arrival_gap=0.0 .*; absence_shape=-1.0"),
        ({"lifetime_phases": 0.0}, r"lifetime_phases=0.0 should be in \(0, 1\]"),
        ({"lifetime_means": (1.0,)}, "should be equally many"),
        ({"first_device": (1.0, 1.0)}, "next_device should have 2 rows of 2 weights"),
        ({"first_device": (1.0, -1.0, 0.0)}, "are no weights"),
        ({"lifetime_weights": (0.0,) * 5}, "are no weights"),
    ],
)
def test_habits_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Habits(**options)
