"""Conditional scores know the clicks above and nothing else, for every model of the zoo."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from comparing_examples import known_models, ragged
from hypothesis import given, settings
from hypothesis import strategies as st

from gecasmo import ClickLog, read_log
from gecasmo.errors import ModelError
from gecasmo.evaluation import leak_test
from gecasmo.testing import plain_python
from strategies.zoo import ON_PAGES, ZooCase


@settings(deadline=None, max_examples=40)
@given(st.sampled_from(sorted(ON_PAGES)), st.integers(0, 10_000), st.booleans(), st.data())
def test_flipping_clicks_at_or_below_a_result_does_not_move_it(
    name: str, seed: int, extremes: bool, data: Any
) -> None:
    # Of counting models with zeros and ones there may be no page at all that can be read.
    extremes = extremes and not name.startswith("Counting")
    case = ZooCase(name, seed, n_pages=4, extremes=extremes)
    log, model = case.log, case.model()
    rank = data.draw(st.integers(1, int(log.rank.max())), label="rank")
    coins = data.draw(
        st.lists(st.booleans(), min_size=log.n_results, max_size=log.n_results), label="clicks"
    )
    other = log.with_signals(
        {
            signal: np.where(log.rank >= rank, coins, log.column(signal).to_numpy())
            for signal in model.structure.traced.signals
        }
    )
    with plain_python():
        before, after = (
            model.predict_conditional_clicks(one, impossible="floor") for one in (log, other)
        )
    # Everything down to the rank itself: what is above did not change either.
    still = log.rank <= rank
    assert after[still] == pytest.approx(before[still], abs=1e-12)


@pytest.mark.parametrize("name", sorted(ON_PAGES))
def test_the_zoo_passes_the_public_test(name: str) -> None:
    case = ZooCase(name, 3, n_pages=6)
    model = case.model()
    with plain_python():
        found = leak_test(model, case.log, signals=model.structure.traced.signals)
    assert found.passed
    assert found.largest < 1e-9
    assert str(found).startswith("No leak")
    longest = int(case.log.lengths.max())
    assert found.n_comparisons == 3 * 2 * case.log.n_results
    assert longest > 1


class Fake:
    """Answers by a rule; the conditional rule gets clicks in the order of the page."""

    def __init__(self, conditional: Any, marginal: Any = lambda clicks: 0.3) -> None:
        self.conditional, self.marginal = conditional, marginal

    def _answer(self, log: ClickLog, rule: Any, by_place: bool) -> np.ndarray:
        answer = np.zeros(log.n_results)
        for page in range(log.n_sessions):
            rows = log.order[log.starts[page] : log.starts[page + 1]]
            clicks = log.click[rows]
            for place, row in enumerate(rows):
                answer[row] = rule(clicks, place) if by_place else rule(clicks)
        return answer

    def predict_conditional_clicks(self, log: ClickLog, *, impossible: str = "raise") -> Any:
        assert impossible == "floor"
        return self._answer(log, self.conditional, True)

    def predict_clicks(self, log: ClickLog) -> Any:
        return self._answer(log, self.marginal, False)


def test_an_honest_fake_passes() -> None:
    assert leak_test(Fake(lambda clicks, place: 0.1 + 0.8 * clicks[:place].mean()
                          if place else 0.5), ragged(20, 1)).passed  # fmt: skip


LEAKS = {
    "its own click": lambda clicks, place: 0.5 + 0.01 * clicks[place],
    "the next click": lambda clicks, place: 0.5 + 0.01 * clicks[place + 1 :][:1].sum(),
    "the last of the page": lambda clicks, place: 0.5 + 0.01 * clicks[-1],
    "whether the page has a click": lambda clicks, place: 0.4 + 0.1 * clicks.any(),
    "how many there are": lambda clicks, place: clicks.mean(),
    "not a number": lambda clicks, place: np.nan if clicks.all() else 0.5,
}


@pytest.mark.parametrize("rule", LEAKS)
def test_a_leak_is_found(rule: str) -> None:
    log = ragged(30, 1)
    found = leak_test(Fake(LEAKS[rule]), log)
    assert not found.passed
    assert set(found.leaks["kind"]) == {"conditional"}
    assert "Leak: " in str(found)
    kind, session, rank, _change, before, after = found.leaks.row(0)
    assert kind == "conditional"
    where = (log.sessions.gather(log.page) == session).to_numpy() & (log.rank == rank)
    assert where.sum() == 1
    assert before != after
    assert f"session '{session}', rank {rank}" in str(found)


def test_a_marginal_probability_that_knows_clicks_is_found() -> None:
    found = leak_test(Fake(lambda clicks, place: 0.5, lambda clicks: clicks.mean()), ragged(20, 1))
    assert set(found.leaks["kind"]) == {"marginal"}
    assert found.largest == 1


def test_the_line_tells_how_far_a_probability_moved() -> None:
    log = read_log({"session": [1, 1], "doc": [1, 2], "rank": [1, 2], "click": [0, 0]})
    found = leak_test(Fake(LEAKS["its own click"]), log)
    rows = found.leaks.select("rank", "change", "before", "after").rows()
    assert rows == [
        (1, "flipped", 0.5, 0.51),
        (2, "flipped", 0.5, 0.51),
        (1, "all clicked", 0.5, 0.51),
        (2, "all clicked", 0.5, 0.51),
    ]
    assert found.largest == pytest.approx(0.01)


def test_a_part_of_a_large_log() -> None:
    log = ragged(60, 1)
    found = leak_test(known_models()["DBN"], log, most_sessions=7, most_places=2)
    assert found.passed
    part = log.take(np.unique(np.linspace(0, 59, 7).astype(int)))
    assert found.n_results == part.n_results
    assert found.n_comparisons < 3 * 2 * part.n_results
    assert not leak_test(Fake(LEAKS["its own click"]), log, most_sessions=5, most_places=1).passed


def test_other_signals_can_be_flipped_too() -> None:
    log = ragged(20, 1)
    log = log.with_signals({"cart": log.click & (log.rank == 1)})

    class Cart(Fake):
        def predict_conditional_clicks(self, log: ClickLog, *, impossible: str = "raise") -> Any:
            return 0.5 + 0.1 * log.column("cart").to_numpy()

    peeking = Cart(None)
    assert leak_test(peeking, log).passed  # clicks alone do not show it
    assert not leak_test(peeking, log, signals=("click", "cart")).passed
    with pytest.raises(ModelError, match=r"leak_test\(signals=...\): the log has no column 'buy'"):
        leak_test(peeking, log, signals=("buy",))
