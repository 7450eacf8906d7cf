"""Any model clicks, with numbers of its own, and users differ."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from scipy.special import logit

from gecasmo import CCM, CM, DBN, DCTR, PBM, UBM, ClickModel, Fixed, Parameter, Table, flip
from gecasmo.errors import ModelError
from gecasmo.models import CATALOGUE
from gecasmo.simulation import Simulated, cookie_log, paper_log
from gecasmo.testing import plain_python


@pytest.fixture(autouse=True)
def plain():
    """Many models, few pages: not worth compiling."""
    with plain_python():
        yield


def few(seed: int = 1, n_users: int = 60, **options) -> Simulated:
    return paper_log(seed, n_users=n_users, n_items=20, list_size=5, **options)


# Markets have no columns for guards, and no keys beyond theirs.
@pytest.mark.parametrize("name", [n for n, m in CATALOGUE.items() if m().needs[1:] == ((), (), ())])
def test_every_model_of_the_zoo_that_it_has_the_columns_for_clicks(name: str) -> None:
    simulated = few(model=CATALOGUE[name])
    assert simulated.oracle.name == name
    assert simulated.log.click.any()
    _, test = simulated.log.split(test=0.3, by="user", seed=1)
    evaluation = simulated.oracle.evaluate(test)
    assert evaluation.n_impossible == 0
    coins = list(CATALOGUE[name]().declared_keys)
    assert all(simulated.truth[coin].is_between(0, 1).all() for coin in coins)
    told = {name.removeprefix("start_") for name in simulated.truth.columns}
    assert {f"{coin}_flips" for coin in coins} <= told


def test_examination_fades_from_the_top_or_from_the_last_click() -> None:
    by_rank = few(model=PBM, continuation=0.7).truth
    np.testing.assert_allclose(by_rank["examination"], 0.7 ** (by_rank["rank"].to_numpy() - 1))
    simulated = few(model=UBM, continuation=0.7)
    click = simulated.log.click.reshape(-1, 5)
    last = np.zeros(len(click), int)
    for rank in range(1, 6):
        found = simulated.truth.filter(pl.col("rank") == rank)["examination"]
        np.testing.assert_allclose(found, 0.7 ** (rank - last - 1))
        last[click[:, rank - 1]] = rank


def test_a_coin_flipped_twice_shows_both_falls() -> None:
    falls = few(model=CCM).truth["attraction_flips"].unique().to_list()
    assert {"tails", "heads heads", "heads tails"} <= set(falls)


def test_a_click_rate_by_document_is_its_attraction() -> None:
    one, other = few(model=DCTR, warm_up=0.0), few(model=DBN, warm_up=0.0)
    assert (one.truth["click_rate"] == other.truth["attraction"]).all()
    assert (one.log.click == (one.truth["click_rate_flips"] == "heads").to_numpy()).all()


def test_values_come_before_distance() -> None:
    values = {
        "attraction": 0.25,
        "continuation": Fixed(1.0),
        "satisfaction": (Table(key="rank"), 0.5),
    }
    truth = few(values=values).truth
    assert truth["attraction"].unique().to_list() == [0.25]
    assert truth["continuation"].unique().to_list() == [1.0]
    assert truth["satisfaction"].unique().to_list() == [0.5]


def test_values_by_document_need_no_query() -> None:
    attraction = {doc: 0.02 * (doc + 1) for doc in range(20)}
    simulated = few(values={"attraction": attraction})
    expected = simulated.log.column("doc").replace_strict(attraction)
    assert simulated.truth["attraction"].equals(expected)
    assert simulated.oracle.keys["attraction"] == ("doc",)


def test_values_by_a_column_of_the_log() -> None:
    patience = {1: 0.9, 2: 0.5, 3: 0.1}
    simulated = cookie_log(
        1,
        n_users=80,
        warm_up_sessions=20,
        model=DBN,
        values={"continuation": (Table(key="device"), patience)},
    )
    device = simulated.log.column("device")
    assert simulated.truth["continuation"].equals(
        device.replace_strict(patience).alias("continuation")
    )


class Shopper(ClickModel):
    """Some clicks end in a purchase, and some people are only looking."""

    buyer = Parameter()
    attraction = Parameter("query", "doc")
    satisfaction = Parameter("query", "doc")
    sale = Parameter("doc")

    def start(self, user):
        user.buys = flip(self.buyer)

    def browse(self, user, result):
        if flip(self.attraction):
            user.click()
            if user.buys and flip(self.sale):
                user.emit("purchase")
                user.leave()
            elif flip(self.satisfaction):
                user.leave()


class Mobile(ClickModel):
    """Coins by columns of which the simulation knows nothing."""

    thumb = Parameter("device")
    eye = Parameter("rank", "device")
    attraction = Parameter("query", "doc")

    def browse(self, user, result):
        if flip(self.thumb) and flip(self.eye) and flip(self.attraction):
            user.click()


class Hasty(ClickModel):
    """Coins by every kind of key that the simulation has numbers for, under names of their own."""

    mood = Parameter()
    start_of_page = Parameter("rank")
    gap = Parameter("distance")
    both = Parameter("last_click", "rank")
    liking = Parameter("doc")
    need = Parameter("query")

    def browse(self, user, result):
        read = flip(self.mood) and flip(self.start_of_page) and flip(self.gap)
        if read and flip(self.both) and flip(self.liking) and flip(self.need):
            user.click()


def test_coins_get_numbers_by_their_keys() -> None:
    simulated = few(model=Hasty, continuation=0.7)
    truth, rank = simulated.truth, simulated.truth["rank"].to_numpy()
    assert truth["mood"].unique().to_list() == truth["need"].unique().to_list() == [0.5]
    np.testing.assert_allclose(truth["start_of_page"], 0.7 ** (rank - 1))
    np.testing.assert_allclose(truth["gap"], truth["both"])
    assert (truth["gap"].to_numpy() > truth["start_of_page"].to_numpy()).any()  # below a click
    assert truth["liking"].n_unique() > 20


def test_a_model_of_ones_own_with_a_signal_and_a_start() -> None:
    values = {"buyer": 0.5, "sale": dict.fromkeys(range(20), 0.4)}
    simulated = few(model=Shopper, values=values)
    assert simulated.log.column("purchase").any()
    bought = simulated.truth.filter(simulated.log.column("purchase"))
    assert bought["start_buyer_flips"].unique().to_list() == ["heads"]
    assert bought["sale_flips"].unique().to_list() == ["heads"]
    assert bought["click"].all()


# -- users differ ----------------------------------------------------------------------------------
def test_users_add_to_the_logit_of_a_coin() -> None:
    simulated = few(n_users=600, user_spread={"continuation": 0.5, "attraction": 2.0})
    users = simulated.users
    assert abs(users["continuation_offset"].std() - 0.5) < 0.06
    assert abs(users["attraction_offset"].std() - 2.0) < 0.25
    assert abs(np.corrcoef(users["continuation_offset"], users["attraction_offset"])[0, 1]) < 0.15
    offset = simulated.log.to_frame().select("user").join(users, on="user", maintain_order="left")
    truth = simulated.truth
    np.testing.assert_allclose(
        logit(truth["continuation"]), logit(0.9) + offset["continuation_offset"], atol=1e-9
    )
    np.testing.assert_allclose(
        logit(truth["attraction"]),
        logit(truth["satisfaction"]) + offset["attraction_offset"],
        atol=1e-9,
    )


def test_who_is_eager_clicks_more() -> None:
    simulated = few(n_users=600, user_spread={"attraction": 2.0})
    rate = simulated.log.to_frame().group_by("user").agg(pl.col("click").mean())
    both = rate.join(simulated.users, on="user")
    assert np.corrcoef(both["click"], both["attraction_offset"])[0, 1] > 0.3


@pytest.mark.parametrize("model", [PBM, UBM])
def test_users_differ_in_tables_too(model: type[ClickModel]) -> None:
    simulated = few(model=model, user_spread={"examination": 1.0})
    assert simulated.oracle.keys["examination"][0] == "user"
    plain = few(model=model).oracle.parameters["examination"]
    own = simulated.oracle.parameters["examination"].join(simulated.users, on="user")
    keys = [key for key in simulated.oracle.keys["examination"] if key != "user"]
    both = own.join(plain, on=keys, suffix="_of_all").filter(pl.col("probability_of_all") < 1)
    np.testing.assert_allclose(
        logit(both["probability"]),
        logit(both["probability_of_all"]) + both["examination_offset"],
        atol=1e-9,
    )
    assert (own.filter(pl.col("rank") == 1)["probability"] == 1).all()


def test_users_differ_on_top_of_values_by_user() -> None:
    by_user = (Table(key="user"), {user: 0.2 + 0.01 * user for user in range(54)})
    options = {"values": {"continuation": by_user}, "user_spread": {"continuation": 1.0}}
    simulated = few(**options)
    own = simulated.oracle.parameters["continuation"].join(simulated.users, on="user")
    expected = logit(0.2 + 0.01 * own["user"].to_numpy()) + own["continuation_offset"]
    np.testing.assert_allclose(logit(own["probability"]), expected, atol=1e-9)


def test_no_spread_is_no_difference() -> None:
    with_none, without = few(user_spread={"continuation": 0.0}), few()
    assert_frame_equal(with_none.log.to_frame(), without.log.to_frame())


# -- mistakes --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model": Mobile},
            r'no numbers for these coins of Mobile: thumb, eye.\n.*"thumb": 0.5, "eye": 0.5',
        ),
        ({"model": DBN()}, "a class of click models is wanted"),
        ({"model": "DBN"}, "a class of click models is wanted"),
        ({"values": {"patience": 0.5}}, "values: DBN has no coin 'patience'. Its coins are"),
        ({"user_spread": {"patience": 0.5}}, "user_spread: DBN has no coin 'patience'"),
        ({"user_spread": {"attraction": -0.5}}, "a standard deviation is wanted"),
        ({"values": {"continuation": 1.5}}, "is not a probability"),
        (
            {"values": {"continuation": ("often", 1.0)}, "user_spread": {"continuation": 1.0}},
            "give a number, a dictionary by key",
        ),
        (
            {"model": PBM, "values": {"examination": {1: 1.0, 2: 0.5}}},
            r"values of 'examination' lack rows that occur, such as \{'rank': 3\}",
        ),
        (
            {"model": CM, "values": {"attraction": (Table(key="rank"), {1: 0.5})}},
            r"values of 'attraction' lack rows that occur, such as \{'rank': 2\}",
        ),
    ],
)
def test_mistakes_are_answered(options: dict, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        few(**options)
