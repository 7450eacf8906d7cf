"""finish(): what a whole page shows after its last result."""

from __future__ import annotations

import numpy as np
import pytest

from gecasmo import Abandonment, ClickLog, ClickModel, Parameter, flip, read_log
from gecasmo.errors import ModelError


class Returns(ClickModel):
    """Clicks, perhaps leaves, and comes back more often if nothing was clicked."""

    attraction = Parameter("doc")
    patience = Parameter()
    coming_back = Parameter("device")
    habit = Parameter()

    def start(self, user):
        user.clicked = False

    def browse(self, user, result):
        if flip(self.attraction):
            user.click()
            user.clicked = True
        if not flip(self.patience):
            user.leave()

    def finish(self, user):
        if flip(self.habit) if user.clicked else flip(self.coming_back):
            user.emit("came_back")


def log(click: list[int], came_back: list[bool | None]) -> ClickLog:
    return read_log(
        {
            "session": [1, 1, 1],
            "doc": list("abc"),
            "rank": [1, 2, 3],
            "device": ["phone"] * 3,
            "click": click,
            "came_back": came_back,
        }
    )


VALUES = {"attraction": 0.3, "patience": 0.5, "coming_back": 0.9, "habit": 0.2}


def test_who_left_at_the_first_result_is_still_told_of() -> None:
    model = Returns.with_values(**VALUES)
    seen, not_seen = (
        np.exp(model.log_likelihood(log([1, 0, 0], [x] * 3)))[0] for x in (True, False)
    )
    assert seen / (seen + not_seen) == pytest.approx(0.2)
    # 0.7 for a skip, and after it half of the users are gone.
    quiet = 0.7 * (0.5 + 0.5 * 0.7 * (0.5 + 0.5 * 0.7))
    found = model.log_likelihood(log([0, 0, 0], [True] * 3))
    assert found[0] == pytest.approx(np.log(quiet * 0.9))


def test_one_row_of_the_page_is_enough_and_a_page_may_be_unrecorded() -> None:
    model = Returns.with_values(**VALUES)
    whole = model.log_likelihood(log([0, 1, 0], [True, True, True]))
    for rows in ([True, False, False], [False, False, True], [None, True, None]):
        np.testing.assert_allclose(model.log_likelihood(log([0, 1, 0], rows)), whole)
    neither = model.log_likelihood(log([0, 1, 0], [None, None, None]))
    other = model.log_likelihood(log([0, 1, 0], [False, False, None]))
    np.testing.assert_allclose(np.exp(neither), np.exp(whole) + np.exp(other))


def test_simulated_pages_have_it_at_all_of_their_results() -> None:
    pages = log([0, 0, 0], [False] * 3)
    found = {
        tuple(Returns.with_values(**VALUES).simulate(pages, seed=seed).column("came_back"))
        for seed in range(20)
    }
    assert found == {(True,) * 3, (False,) * 3}


def test_states_of_those_who_left_are_kept_and_named() -> None:
    automaton = Returns().traced_automaton
    away = {automaton.states[edge.source] for edge in automaton.edges if edge.is_away}
    assert away == {"clicked=True, gone for good", "clicked=False, gone for good"}
    assert automaton.page_signals == ("came_back",)
    assert automaton.guard_columns() == []
    assert Returns().needs.signals == ("came_back",)
    assert "[last result]" in str(automaton)


def test_nobody_clicks_after_the_last_result() -> None:
    class Late(ClickModel):
        coin = Parameter()

        def browse(self, user, result):
            if flip(self.coin):
                user.emit("seen")

        def finish(self, user):
            user.click()

    with pytest.raises(ModelError, match="there is nothing to click on any more") as caught:
        str(Late().automaton)
    assert "in finish" in str(caught.value)


def test_a_key_of_results_is_refused_there() -> None:
    class Keyed(ClickModel):
        coin = Parameter("doc")

        def browse(self, user, result):
            if flip(self.coin):
                user.click()

        def finish(self, user):
            if flip(self.coin):
                user.emit("back")

    with pytest.raises(ModelError, match="'coin' has the key 'doc', of which every result"):
        str(Keyed().automaton)


def test_a_signal_is_one_of_results_or_of_pages() -> None:
    class Both(ClickModel):
        coin = Parameter()

        def browse(self, user, result):
            if flip(self.coin):
                user.emit("back")

        def finish(self, user):
            user.emit("back")

    with pytest.raises(ModelError, match=r"Both emits 'back' at a result and in finish\(\)"):
        str(Both().automaton)


def test_good_abandonment_is_told_by_who_asks_again() -> None:
    coins = {"attraction": 0.2, "satisfaction": 0.5, "answer": 0.4, "continuation": 0.5}
    model = Abandonment.with_values(**coins, asking=0.8, asking_anyway=0.1)
    blank = {"session": [1, 1], "query": ["q"] * 2, "doc": list("ab"), "rank": [1, 2]}
    answered = [
        model.posterior(read_log({**blank, "click": [0, 0], "asked_again": [asked] * 2}))
        for asked in (False, True)
    ]
    first, second = (frame["answer_heads"].to_numpy() for frame in answered)
    assert (first > second).all()
