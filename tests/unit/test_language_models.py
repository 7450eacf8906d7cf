"""Programs that are right: what they mean, and how models are made from them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from unit_examples import Buyer, Mixture, pages

from gecasmo import DBN, EM, GCTR, PBM, ClickModel, Fixed, Parameter, Table, flip, read_log
from gecasmo.errors import ClickLogError, ModelError


# -- what a program means --------------------------------------------------------------------------
def test_emitting_twice_is_emitting_once_and_click_is_a_signal() -> None:
    class Eager(ClickModel):
        coin = Parameter()

        def browse(self, user, result):
            if flip(self.coin):
                user.click()
                user.emit("click")

    automaton = Eager().traced_automaton
    assert automaton.signals == ("click",)
    assert [edge.symbol for edge in automaton.edges] == [("click",), ()]


def test_two_flips_of_one_coin_are_two_flips() -> None:
    class Pair(ClickModel):
        coin = Parameter()

        def browse(self, user, result):
            if flip(self.coin) + flip(self.coin) == 1:
                user.click()

    log = read_log({"session": [1], "doc": ["a"], "rank": [1], "click": [1]})
    chance = np.exp(Pair.with_values(coin=0.3).log_likelihood(log))
    assert chance == pytest.approx([2 * 0.3 * 0.7])


def test_true_and_one_are_different_states() -> None:
    class Typed(ClickModel):
        coin = Parameter()

        def start(self, user):
            user.memory = True

        def browse(self, user, result):
            if flip(self.coin):
                user.click()
                user.memory = 1

    assert Typed().traced_automaton.states == ("memory=True", "memory=1")


def test_a_deleted_attribute_is_forgotten() -> None:
    class Forgetful(ClickModel):
        coin = Parameter()

        def start(self, user):
            user.fresh = True
            user.memory = "text"

        def browse(self, user, result):
            if flip(self.coin):
                user.click()
            if user.fresh:
                user.fresh = False
                del user.memory

    assert Forgetful().traced_automaton.states == ("fresh=True, memory='text'", "fresh=False")


def test_a_column_has_one_value_however_often_it_is_asked() -> None:
    class Twice(ClickModel):
        coin = Parameter()

        def browse(self, user, result):
            if bool(result.is_ad) != bool(result.is_ad):
                user.leave()
            if result.is_ad and flip(self.coin):
                user.click()

    automaton = Twice().traced_automaton
    assert automaton.gone is None
    assert automaton.guard_columns() == ["is_ad"]


def test_leaving_in_start_means_that_nothing_is_looked_at() -> None:
    class Absent(ClickModel):
        present = Parameter()
        coin = Parameter("doc")

        def start(self, user):
            if not flip(self.present):
                user.leave()

        def browse(self, user, result):
            if flip(self.coin):
                user.click()

    log = read_log({"session": [1, 1], "doc": ["a", "b"], "rank": [1, 2], "click": [0, 0]})
    chance = np.exp(Absent.with_values(present=0.75, coin=0.5).log_likelihood(log))
    assert chance == pytest.approx([0.25 + 0.75 * 0.25])


def test_history_keys() -> None:
    class History(ClickModel):
        coin = Parameter("last_click", "distance", "clicks_above")

        def browse(self, user, result):
            if flip(self.coin):
                user.click()

    log = read_log(
        {"session": [1] * 4, "doc": list("abcd"), "rank": [1, 2, 4, 5], "click": [0, 1, 1, 0]}
    )
    rows = History().fit(log).parameters["coin"].sort("distance", "last_click")
    assert set(rows.select("last_click", "distance", "clicks_above").rows()) == {
        (0, 1, 0),
        (0, 2, 0),
        (2, 2, 1),
        (4, 1, 2),
    }


def test_every_result_its_own_row() -> None:
    log = pages(3, 2)
    rows = GCTR(click_rate=Table(key="result")).fit(log).parameters["click_rate"]
    assert rows["result"].to_list() == list(range(6))
    assert rows["heads"].to_list() == log.click.astype(float).tolist()


# -- subclasses ------------------------------------------------------------------------------------
class DeviceDBN(DBN):
    """DBN with another continuation."""

    continuation = Parameter("device")


def test_a_subclass_replaces_a_coin() -> None:
    model = DeviceDBN()
    assert list(model.forms) == ["attraction", "satisfaction", "continuation"]
    assert model.keys["continuation"] == ("device",)
    assert model.relevance == DBN.relevance
    assert str(model.automaton) == str(DBN().automaton)
    assert DBN().keys["continuation"] == ()


def test_a_subclass_is_fitted_by_its_own_keys() -> None:
    log = pages(4, 2, device=["phone"] * 4 + ["desk"] * 4)
    rows = DeviceDBN().fit(log, EM(max_iter=3, tol=0)).parameters["continuation"]
    assert sorted(rows["device"]) == ["desk", "phone"]


def test_a_subclass_may_drop_a_coin() -> None:
    class Endless(DBN):
        continuation = None
        relevance = ("attraction",)

        def browse(self, user, result):
            if flip(self.attraction):
                user.click()
                if flip(self.satisfaction):
                    user.leave()

    assert list(Endless().forms) == ["attraction", "satisfaction"]


# -- forms in the constructor ----------------------------------------------------------------------
def test_an_unknown_coin() -> None:
    with pytest.raises(ModelError) as caught:
        DBN(attractiveness=Table())
    assert str(caught.value) == (
        "DBN has no coin 'attractiveness'. Its coins are: attraction, satisfaction, continuation."
    )


@pytest.mark.parametrize("form", [Table, "Table", None, True, [0.5], {"a": 1}])
def test_something_that_is_no_form(form: object) -> None:
    with pytest.raises(ModelError, match="a form is wanted, such as Table"):
        DBN(continuation=form)


def test_a_number_is_a_fixed_form() -> None:
    form = DBN(continuation=0.9).forms["continuation"]
    assert isinstance(form, Fixed)
    assert form.value == 0.9


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_a_number_that_is_no_probability(value: float) -> None:
    with pytest.raises(ModelError, match="a probability between 0 and 1 is wanted"):
        DBN(continuation=value)


def test_keys_are_replaced_by_forms() -> None:
    model = DBN(attraction=Table(key="doc"), continuation=Table(key=("device", "rank")))
    assert model.keys == {
        "attraction": ("doc",),
        "satisfaction": ("query", "doc"),
        "continuation": ("device", "rank"),
    }


@pytest.mark.parametrize("make", [Table, lambda key: Fixed(0.5, key=key)])
def test_keys_of_forms_are_checked(make) -> None:
    with pytest.raises(ModelError, match="named twice"):
        make(key=("doc", "doc"))
    with pytest.raises(ModelError, match="name of a column"):
        make(key=("doc", 3))


# -- models and logs -------------------------------------------------------------------------------
def without_queries():
    return read_log(pages().to_frame().drop("query"))


def test_a_missing_key_column_suggests_another_key() -> None:
    with pytest.raises(ClickLogError) as caught:
        DBN().fit(without_queries())
    message = str(caught.value)
    assert message.startswith("The coins 'attraction' and 'satisfaction' have a row per 'query'")
    assert "and the log has no such column" in message
    assert "It has: session, doc, rank, click." in message
    assert 'Table(key="doc")' in message


def test_the_suggestion_works() -> None:
    keyed = Table(key="doc")
    model = DBN(attraction=keyed, satisfaction=keyed).fit(without_queries(), EM(max_iter=2, tol=0))
    assert model.parameters["attraction"].columns == ["doc", "probability", "heads", "tails"]


def test_null_keys_are_refused() -> None:
    log = pages(2, 2, device=["phone", None, None, "desk"])
    with pytest.raises(ClickLogError) as caught:
        GCTR(click_rate=Table(key="device")).fit(log)
    assert "2 of 4 results have none (first: row 1)" in str(caught.value)


def test_a_coin_of_start_needs_a_key_of_the_page() -> None:
    for key in ("doc", "rank", "last_click", "result"):
        with pytest.raises(ModelError) as caught:
            Mixture(kind=Table(key=key)).fit(pages())
        assert "The coin 'kind' is flipped in start(), before any result is seen" in (
            str(caught.value)
        )
        assert f"'{key}' varies within pages" in str(caught.value)


@pytest.mark.parametrize("key", ["query", "session", "page_length", "device"])
def test_keys_that_a_coin_of_start_may_have(key: str) -> None:
    log = pages(4, 2, device=["phone"] * 4 + ["desk"] * 4)
    model = Mixture(kind=Table(key=key)).fit(log, EM(max_iter=1, tol=0, restarts=1))
    assert model.parameters["kind"].columns[0] == key


def test_a_coin_of_start_whose_column_is_missing() -> None:
    with pytest.raises(ClickLogError, match="'kind' has a row per 'device'"):
        Mixture(kind=Table(key="device")).fit(pages())


def test_a_guard_column_that_is_missing() -> None:
    with pytest.raises(ClickLogError) as caught:
        Buyer().fit(pages(2, 2, purchase=[False] * 4))
    assert "The model asks for 'is_ad', and the log has no such column." in str(caught.value)
    assert "It has: session, query, doc, rank, click, purchase." in str(caught.value)


def test_a_signal_column_that_is_missing() -> None:
    with pytest.raises(ClickLogError, match="The model emits 'purchase'"):
        Buyer().fit(pages(2, 2, is_ad=[False] * 4))


@pytest.mark.parametrize(
    ("column", "complaint"),
    [
        ([0, 1, 2, 7], "2 values are neither 0 nor 1 (first: row 2 has 2)"),
        (["yes", "no", "yes", "no"], "as yes or no, but the column holds String"),
        ([True, None, False, None], "2 of 4 results have no value there"),
        ([0.0, 0.5, 1.0, 1.0], "1 value is neither 0 nor 1 (first: row 1 has 0.5)"),
    ],
)
def test_a_guard_column_that_is_not_boolean(column: list, complaint: str) -> None:
    with pytest.raises(ClickLogError) as caught:
        Buyer().fit(pages(2, 2, is_ad=column, purchase=[False] * 4))
    assert complaint in str(caught.value)


def test_zeros_and_ones_are_booleans() -> None:
    log = pages(2, 2, is_ad=[0, 1, 1.0, 0], purchase=[0, 0, 0, 0])
    assert Buyer().fit(log, EM(max_iter=1, tol=0)).is_fitted


def test_ids_of_another_type_are_refused() -> None:
    fitted = PBM().fit(pages())
    other = read_log(pages().to_frame().with_columns(pl.int_range(pl.len()).alias("doc")))
    with pytest.raises(ModelError, match="read the log with the same type of ids"):
        fitted.predict_clicks(other)
