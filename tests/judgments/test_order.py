"""How sure the order is, against Monte Carlo and by what has to hold."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judgment_examples import judged_like

from gecasmo.judgments import judge
from gecasmo.judgments.order import order_of

DRAWS = 40_000


def chances_by_draws(mean, spread, seed):
    """How often each is above each other; equal ones count as half."""
    rng = np.random.default_rng(seed)
    strength = mean * (1 - mean) / np.where(spread > 0, spread, 1e-3) ** 2 - 1
    drawn = rng.beta(mean * strength, (1 - mean) * strength, (DRAWS, len(mean)))
    drawn = np.where(spread > 0, drawn, mean)
    above = np.array([(one[:, None] > drawn).mean(axis=0) for one in drawn.T])
    return above + np.array([(one[:, None] == drawn).mean(axis=0) for one in drawn.T]) / 2


def some_query(seed):
    """Pairs of any width in the order of their relevance, some certain, some judged."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([2, 3, 6, 25]))
    mean = np.sort(1 / (1 + np.exp(-rng.normal(-1.5, rng.choice([0.05, 0.5, 1.5]), n))))[::-1]
    strength = np.exp(rng.uniform(0, np.log(rng.choice([20, 2_000, 1e6])), n))
    spread = np.sqrt(mean * (1 - mean) / (strength + 1))
    spread[rng.random(n) < rng.choice([0.0, 0.3])] = 0
    return mean, spread, rng.random(n) < 0.6


@pytest.mark.parametrize("seed", range(24))
def test_order_and_above_agree_with_draws(seed):
    mean, spread, judged = some_query(seed)
    frame = pl.DataFrame({"relevance": mean, "spread": spread})
    order, above = order_of(frame, pl.Series(judged))
    drawn = chances_by_draws(mean, spread, seed)
    place = np.arange(len(mean))
    order, above = order.to_list(), above.to_list()
    right = np.where(place[:, None] < place, drawn, 1 - drawn)
    known = judged & (place[:, None] != place)
    for row in place:
        if known[row].any():
            assert order[row] == pytest.approx(right[row][known[row]].mean(), abs=0.015)
        else:
            assert order[row] is None
    np.testing.assert_allclose(above[:-1], drawn[place[:-1], place[1:]], atol=0.02)
    assert above[-1] is None


@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_queries_do_not_know_each_other(sizes, seed):
    rng = np.random.default_rng(seed)
    frames = [
        pl.DataFrame(
            {
                "query": [number] * size,
                "relevance": np.sort(rng.uniform(0.01, 0.9, size))[::-1],
                "spread": rng.choice([0.0, 0.01, 0.05], size),
            }
        )
        for number, size in enumerate(sizes)
    ]
    judged = [pl.Series(rng.random(size) < 0.5, dtype=pl.Boolean) for size in sizes]
    together = order_of(pl.concat(frames), pl.concat(judged))
    alone = [order_of(frame, own) for frame, own in zip(frames, judged, strict=True)]
    for column in (0, 1):
        assert together[column].equals(pl.concat([own[column] for own in alone]))


def test_certain_pairs_have_a_certain_order_and_equal_ones_none():
    frame = pl.DataFrame({"relevance": [0.9, 0.5, 0.5, 0.0], "spread": [0.0] * 4})
    order, above = order_of(frame, pl.Series([True] * 4))
    assert order.to_list() == pytest.approx([1, 5 / 6, 5 / 6, 1])
    assert above.to_list() == [1, 0.5, 1, None]


def test_who_has_no_interval_is_compared_with_nobody():
    spread = pl.Series([0.0, None, 0.0], dtype=pl.Float64)
    frame = pl.DataFrame({"relevance": [0.9, 0.5, 0.1], "spread": spread})
    order, above = order_of(frame, pl.Series([True] * 3))
    assert order.to_list() == [1, None, 1]
    assert above.to_list() == [1, None, None]


def test_a_large_query_takes_no_square_of_its_size():
    n = 30_000
    mean = np.linspace(0.9, 0.1, n)
    frame = pl.DataFrame({"query": ["q"] * n, "relevance": mean, "spread": [0.02] * n})
    order, above = order_of(frame, pl.Series([True] * n))
    assert above[0] == pytest.approx(0.5, abs=0.01)
    # For normal truths, the integral over all gaps of the probability of the wrong order.
    assert order[n // 2] == pytest.approx(1 - 2 * 0.02 / np.sqrt(np.pi) / 0.8, abs=0.002)


def test_a_wide_pair_is_ordered_against_the_judged_ones_of_its_query():
    values, spread = [0.05, 0.9, 0.45, 0.45], [0.01, 0.01, 0.15, 0.15]
    trials, query = [500.0, 500.0, 4.0, 4.0], ["a", "a", "a", "alone"]
    model = judged_like(values, query=query, spread=spread, trials=trials)
    found = judge(model, rule="threshold", max_width=0.3)
    frame = found.frame.sort("doc")
    assert frame["verdict"].to_list() == ["judged", "judged", "ordered", "insufficient"]
    assert frame["grade"].to_list() == [0, 3, None, None]
    assert frame["order"][2] > 0.99
    assert frame["order"][3] is None
    assert frame["rating"][2] == frame["rating"][3] == pytest.approx(1.2, abs=0.2)
    assert (found.n_judged, found.n_ordered, found.n_insufficient) == (2, 1, 1)
    data = found.to_dict()
    assert (data["judged"], data["ordered"], data["insufficient"]) == (2, 1, 1)
    assert data["order"] == pytest.approx(frame["order"].mean())
    assert data["grade_probability"] == pytest.approx(frame["grade_probability"][:2].mean())
    assert judge(model, rule="threshold", max_width=0.3, min_order=1).n_ordered == 0
