"""Limits are monotone: who asks for less never loses a verdict, and a switch asks for nothing."""

from __future__ import annotations

import os

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judgment_examples import judged_like
from scipy import stats

from gecasmo.judgments import FIXED_CUTS, RULES, judge

EXAMPLES = 40 * int(os.environ.get("GECASMO_EXAMPLES", "1"))
# Each from the strictest to the loosest.
LIMITS = {
    "max_width": (0.05, 0.2, 0.4, 0.8, None),
    "min_examinations": (100.0, 10.0, 3.0, 0.0),
    "min_probability": (1.0, 0.7, 0.5, 0.2, 0.0),
    "min_order": (0.99, 0.8, 0.5, 0.0),
}


def skewed_model(seed: int, n: int = 60):
    """Pairs with few and many examinations; rare clicks, so that beliefs are skewed."""
    rng = np.random.default_rng(seed)
    mean = np.clip(rng.beta(0.5, rng.choice([1.0, 8.0, 30.0]), n), 1e-4, 1 - 1e-4)
    trials = np.exp(rng.uniform(np.log(0.3), np.log(500), n))
    spread = np.sqrt(mean * (1 - mean) / (trials + rng.choice([2.0, 10.0]) + 1))
    options = {"spread": spread.tolist(), "trials": trials.tolist()}
    return judged_like(mean.tolist(), n_queries=int(rng.choice([1, 6, 20])), **options)


@given(
    seed=st.integers(0, 10_000),
    rule=st.sampled_from(sorted(RULES)),
    grades=st.sampled_from([2, 4, 7]),
    strict=st.fixed_dictionaries({n: st.integers(0, len(v) - 1) for n, v in LIMITS.items()}),
    looser=st.fixed_dictionaries({n: st.integers(0, 4) for n in LIMITS}),
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_looser_limits_take_no_verdict_away(seed, rule, grades, strict, looser):
    model = skewed_model(seed)
    options = {"rule": rule, "grades": grades}
    first = judge(model, **options, **{n: LIMITS[n][place] for n, place in strict.items()})
    loose = {
        n: LIMITS[n][min(place + looser[n], len(LIMITS[n]) - 1)] for n, place in strict.items()
    }
    second = judge(model, **options, **loose)
    before, after = (found.frame.sort("query", "doc") for found in (first, second))
    assert first.grading.cuts == second.grading.cuts
    was_judged = before["verdict"] == "judged"
    assert (
        after.filter(was_judged)["grade"].to_list() == before.filter(was_judged)["grade"].to_list()
    )
    kept = after.filter(before["verdict"] != "insufficient")
    assert "insufficient" not in kept["verdict"].to_list()
    assert second.n_judged >= first.n_judged
    assert second.n_insufficient <= first.n_insufficient


@given(seed=st.integers(0, 10_000), grades=st.integers(3, 10))
@settings(max_examples=EXAMPLES, deadline=None)
def test_two_grades_are_the_easiest(seed, grades):
    """Of two grades one is right with a half at least, however skewed beliefs are."""
    model = skewed_model(seed)
    assert judge(model, grades=2).n_judged >= judge(model, grades=grades).n_judged
    assert judge(model, grades=2).n_undecided == 0


def test_a_grade_is_the_most_probable_one():
    values, spread = [0.02, 0.03, 0.3], [0.03, 0.004, 0.05]
    found = judge(judged_like(values * 20, spread=spread * 20), grades=3)
    frame = found.frame.unique("relevance").sort("relevance")
    edges = [0.0, *found.grading.cuts, 1.0]
    for row in frame.rows(named=True):
        strength = row["relevance"] * (1 - row["relevance"]) / row["spread"] ** 2 - 1
        truth = stats.beta(row["relevance"] * strength, (1 - row["relevance"]) * strength)
        chances = np.diff(truth.cdf(edges))
        assert row["grade_probability"] == pytest.approx(chances.max(), abs=1e-9)
        assert row["grade"] == int(np.argmax(chances))


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_switch_grades_every_pair_and_says_how_sure_each_is(rule, tmp_path):
    model = skewed_model(5)
    found = judge(model, rule=rule, every_pair=True)
    assert (found.n_judged, found.n_insufficient, found.n_undecided) == (len(found), 0, 0)
    assert found.frame["grade"].null_count() == 0
    assert found.frame["grade_probability"].null_count() == 0
    assert rule in FIXED_CUTS or found.frame["grade_probability"].min() < 0.5
    assert found.to_dict()["every_pair"] is True
    said = " ".join(str(found).split())
    assert "every pair is graded, however little is known about it" in said
    assert "no grade:" not in said
    assert found.write(tmp_path / "a.qrels").judgments == len(found)
    # Where limits give a grade, it is the same.
    usual = judge(model, rule=rule).frame.filter(pl.col("verdict") == "judged")
    same = usual.join(found.frame, on=["query", "doc"])
    assert (same["grade"] == same["grade_right"]).all()


def test_the_switch_grades_pairs_whose_interval_nobody_knows():
    values = [0.1, 0.5, 0.9]
    nothing = {"low": [None] * 3, "high": [None] * 3, "spread": [None] * 3}
    model = judged_like(values, **nothing)
    assert judge(model, rule="threshold", max_width=None).n_judged == 0
    found = judge(model, rule="threshold", every_pair=True)
    assert found.n_judged == 3
    assert found.frame.sort("relevance")["grade"].to_list() == [0, 2, 3]
    assert found.frame["grade_probability"].to_list() == [None] * 3
