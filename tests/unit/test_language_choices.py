"""choose(): one of several values, and coins with a row per hidden state."""

from __future__ import annotations

import numpy as np
import pytest

from gecasmo import Choice, ClickModel, Fixed, Intents, Parameter, Table, choose, flip, read_log
from gecasmo.errors import ModelError


class Kinds(ClickModel):
    """Three kinds of users; a coin by kind, and one by whether they have clicked."""

    kind = Choice("device", n=3)
    taste = Parameter("doc", state="kind")
    patience = Parameter(state="clicked")

    def start(self, user):
        user.kind = choose(self.kind)
        user.clicked = False

    def browse(self, user, result):
        if flip(self.taste):
            user.click()
            user.clicked = True
        if not flip(self.patience):
            user.leave()


LOG = read_log(
    {
        "session": [1, 1, 2, 2],
        "doc": list("abab"),
        "rank": [1, 2, 1, 2],
        "device": ["phone"] * 2 + ["desk"] * 2,
        "click": [1, 0, 0, 1],
    }
)


def test_coins_are_called_by_value() -> None:
    coins = ["kind[0]", "kind[1]", "taste[0]", "taste[1]", "taste[2]"]
    assert list(Kinds().forms) == [*coins, "patience[False]", "patience[True]"]
    assert repr(Kinds.kind) == "Choice('device', n=3)"
    assert repr(Kinds.taste) == "Parameter('doc', state='kind')"
    assert Kinds().needs.keys == ("device",)


def test_forms_for_all_values_or_for_each() -> None:
    one = Kinds(taste=Table(key="rank"), kind=Table(key=())).keys
    assert one["taste[2]"] == ("rank",)
    assert one["kind[1]"] == ()
    each = Kinds(patience=[Fixed(0.5), Fixed(0.8)]).forms
    assert (repr(each["patience[False]"]), repr(each["patience[True]"])) == (
        "Fixed(0.5)",
        "Fixed(0.8)",
    )
    with pytest.raises(ModelError, match=r"a list of 3 is wanted, .* not of 2"):
        Kinds.with_values(kind=[0.2, 0.3, 0.5], taste=[0.1, 0.2], patience=0.5)


@pytest.mark.parametrize("given", [[0.2, 0.3, 0.5], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
def test_probabilities_of_values_go_in_and_come_out(given: list[float]) -> None:
    by_device = {"phone": given, "desk": given[::-1]}
    model = Kinds.with_values(kind=by_device, taste=[0.1, 0.5, 0.9], patience=1.0)
    found = model.by_value("kind")
    for device, wanted in by_device.items():
        rows = found.filter(device=device).sort("value")
        np.testing.assert_allclose(rows["probability"], wanted, atol=1e-12)
    first = model.predict_clicks(LOG)[0]
    assert first == pytest.approx(np.dot(given, [0.1, 0.5, 0.9]))


def test_what_was_chosen_is_counted() -> None:
    fitted = Kinds().fit(LOG, progress=False)
    found = fitted.by_value("kind")
    assert found["chosen"].sum() == pytest.approx(2)
    assert found.height == 6
    tastes = fitted.by_value("taste")
    assert tastes.columns == ["doc", "probability", "heads", "tails", "value"]
    assert tastes["value"].unique().sort().to_list() == [0, 1, 2]


def test_a_subclass_may_have_more_values() -> None:
    class More(Intents):
        intent = Choice("query", n=4)

    assert [coin for coin in More().forms if coin.startswith("attraction")] == [
        f"attraction[{value}]" for value in range(4)
    ]
    assert len(Intents().forms) == 4
    assert More().automaton.n_states == 4


@pytest.mark.parametrize("n", [1, 0, 33, 2.0, None, True])
def test_numbers_of_values_that_make_no_sense(n: object) -> None:
    with pytest.raises(ModelError, match="a whole number of values is wanted, from 2 to 32"):
        Choice(n=n)


def test_values_by_state_and_by_key() -> None:
    known = {"kind": [0.2, 0.3, 0.5], "patience": {True: 0.25, False: 1.0}}
    listed = Kinds.with_values(taste=[0.1, 0.5, 0.9], **known)
    by_value = Kinds.with_values(taste={2: 0.9, 0: 0.1, 1: 0.5}, **known)
    assert by_value.score(LOG) == listed.score(LOG)
    docs = dict.fromkeys(LOG.to_frame()["doc"].unique(), 0.5)
    by_doc = Kinds.with_values(taste=docs, **known)
    assert by_doc.score(LOG) == pytest.approx(Kinds.with_values(taste=0.5, **known).score(LOG))
    mixed = Kinds.with_values(taste={0: docs, 1: docs, 2: 0.5}, **known)
    assert mixed.score(LOG) == pytest.approx(by_doc.score(LOG))


def test_shares_that_are_none() -> None:
    with pytest.raises(ModelError, match="add up to 1"):
        Kinds.with_values(kind=[0.2, 0.2, 0.2], taste=0.1, patience=1.0)


def test_mistakes_name_the_line() -> None:
    class Wrong(ClickModel):
        coin = Parameter("doc", state="kind")

        def start(self, user):
            user.kind = "new"

        def browse(self, user, result):
            if flip(self.coin):
                user.click()

    with pytest.raises(ModelError, match=r"no row for user.kind = 'new'; .* False, True") as caught:
        str(Wrong().automaton)
    assert "in browse" in str(caught.value)

    class Flipped(Wrong):
        def start(self, user):
            user.kind = choose(self.coin)

    with pytest.raises(ModelError, match=r"choose\(\) takes a Choice of the model"):
        str(Flipped().automaton)
    with pytest.raises(ModelError, match="the name of an attribute of the user is wanted"):
        Parameter(state="no name")
    with pytest.raises(ModelError, match="no choice, and no coin with a state in its key"):
        Kinds().by_value("flavour")
