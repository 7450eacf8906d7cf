"""Interest by distance, and the pages of rankers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from gecasmo.simulation import Nearest, Popularity, Uniform
from gecasmo.simulation import market as markets
from gecasmo.simulation.market import Market, draw_pages


def small_market(sensitivity: float = 1.0, n_users: int = 4, n_items: int = 6) -> Market:
    return Market.draw(np.random.default_rng(5), n_users, n_items, sensitivity)


def by_the_book(market: Market, user: int, item: int, salience: float) -> float:
    """Section C of the paper, written out."""
    gap = market.item_places - market.user_places[user]
    similarity = np.sqrt((gap**2).sum(axis=1)) ** -market.distance_sensitivity
    own = similarity[item] * np.exp(salience)
    return own / (similarity.sum() - similarity[item] + own)


@pytest.mark.parametrize("sensitivity", [0.0, 1.0, 2.5])
def test_probabilities_are_those_of_the_formula(sensitivity: float) -> None:
    market = small_market(sensitivity)
    user, item = np.arange(4)[:, None], np.arange(6)
    found = market.probability(user, item, 2.0)
    expected = [[by_the_book(market, u, i, 2.0) for i in range(6)] for u in range(4)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_without_salience_the_choice_is_one_item() -> None:
    market = small_market()
    total = market.probability(np.arange(4)[:, None], np.arange(6), 0.0).sum(axis=1)
    np.testing.assert_allclose(total, 1.0)


@pytest.mark.parametrize(("sensitivity", "salience"), [(400.0, 5.0), (1.0, 2e3), (1.0, -2e3)])
def test_extreme_markets_stay_within_bounds(sensitivity: float, salience: float) -> None:
    market = Market(np.zeros((1, 2)), np.array([[0.0, 0.0], [1e-9, 0.0], [9.0, 9.0]]), sensitivity)
    found = market.probability(np.zeros(3, int), np.arange(3), salience)
    assert (found >= 1e-5).all()
    assert (found <= 1 - 1e-5).all()


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    user, item = np.arange(4)[:, None], np.arange(6)
    whole = small_market().probability(user, item, 5.0)
    monkeypatch.setattr(markets, "_CELLS", 13)
    np.testing.assert_array_equal(small_market().probability(user, item, 5.0), whole)
    rows = np.arange(11)
    assert [part.tolist() for part in markets.in_pieces(rows, 5)] == [
        *([first, first + 1] for first in range(0, 10, 2)),
        [10],
    ]


# -- rankers ---------------------------------------------------------------------------------------
def test_pages_are_drawn_one_by_one_by_weight() -> None:
    market = small_market(n_items=3)
    popularity = np.array([0.5, 0.3, 0.2])
    n = 40_000
    user = np.zeros(n, np.int64)
    items, ranker = draw_pages(
        [Popularity()], market, popularity, user, 2, np.random.default_rng(1)
    )
    assert (ranker == 0).all()
    pages = Counter(map(tuple, items.tolist()))
    for first in range(3):
        for second in set(range(3)) - {first}:
            expected = popularity[first] * popularity[second] / (1 - popularity[first])
            assert abs(pages[first, second] / n - expected) < 4 * np.sqrt(expected / n)


def test_without_noise_the_best_come_first() -> None:
    market = small_market()
    user = np.array([2, 0, 2])
    popularity = np.array([0.1, 0.6, 0.2, 0.5, 0.4, 0.3])
    rng = np.random.default_rng(1)
    items, _ = draw_pages([Popularity(noise=0.0)], market, popularity, user, 4, rng)
    assert items.tolist() == [[1, 3, 4, 5]] * 3
    items, _ = draw_pages([Nearest(noise=0.0)], market, popularity, user, 6, rng)
    gap = market.user_places[user][:, None] - market.item_places
    assert items.tolist() == np.argsort((gap**2).sum(axis=2), axis=1).tolist()


def test_several_rankers_take_turns_at_random() -> None:
    market = small_market()
    rankers = [Uniform(), Popularity(noise=0.0)]
    popularity = np.arange(1.0, 7.0)
    user = np.zeros(4_000, np.int64)
    items, ranker = draw_pages(rankers, market, popularity, user, 6, np.random.default_rng(1))
    assert (np.sort(items, axis=1) == np.arange(6)).all()
    assert abs((ranker == 0).mean() - 0.5) < 0.03
    assert (items[ranker == 1] == np.arange(6)[::-1]).all()
    at_the_top = np.bincount(items[ranker == 0, 0], minlength=6) / (ranker == 0).sum()
    assert np.abs(at_the_top - 1 / 6).max() < 0.035
