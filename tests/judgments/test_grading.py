"""Rules against independent computation."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judgment_examples import judged_like

from gecasmo.judgments import RULES, judge

VALUES = st.lists(st.floats(0.01, 0.99), min_size=1, max_size=40)


def graded(model, **options):
    return judge(model, **options).frame.sort(pl.col("doc").str.slice(1).cast(int))


@given(VALUES, st.integers(2, 10))
@settings(max_examples=60, deadline=None)
def test_thresholds_count_the_cut_points_that_are_reached(values, grades):
    frame = graded(judged_like(values), rule="threshold", grades=grades)
    expected = [sum(value >= step / grades for step in range(1, grades)) for value in values]
    assert frame["grade"].to_list() == expected


def test_explicit_thresholds_and_values_on_a_cut_point():
    model = judged_like([0.05, 0.1, 0.2, 0.5, 0.7])
    frame = graded(model, rule="threshold", grades=3, thresholds=[0.1, 0.5])
    assert frame["grade"].to_list() == [0, 1, 1, 2, 2]


@given(st.lists(st.integers(1, 999), min_size=12, max_size=60, unique=True), st.integers(2, 6))
@settings(max_examples=60, deadline=None)
def test_quantiles_give_equal_shares(numbers, grades):
    values = [number / 1000 for number in numbers]
    found = judge(judged_like(values), rule="quantile", grades=grades)
    shares = list(found.by_grade.values())
    assert sum(shares) == len(values)
    assert max(shares) - min(shares) <= 2
    frame = found.frame.sort("relevance")
    assert frame["grade"].is_sorted()


@given(VALUES, st.integers(2, 6))
@settings(max_examples=60, deadline=None)
def test_quantiles_respect_order_and_ties(values, grades):
    frame = graded(judged_like(values + values), rule="quantile", grades=grades).sort("relevance")
    grade = frame["grade"].to_numpy()
    assert np.all(np.diff(grade) >= 0)
    assert frame.group_by("relevance").agg(pl.n_unique("grade"))["grade"].max() == 1


def test_insufficient_pairs_have_no_say_in_the_quantiles():
    values = [0.1, 0.2, 0.3, 0.4, 0.9, 0.9, 0.9, 0.9]
    trials = [100.0] * 4 + [1.0] * 4
    frame = graded(judged_like(values, trials=trials), rule="quantile", grades=2)
    assert frame["grade"].to_list() == [0, 0, 1, 1, None, None, None, None]
    assert frame["grade_low"].to_list() == [0, 0, 1, 1, 1, 1, 1, 1]


def test_quantiles_within_each_query():
    # Query 0 holds the even places, query 1 the odd ones.
    values = [0.1, 0.5, 0.2, 0.6, 0.3, 0.7, 0.4, 0.8]
    frame = graded(judged_like(values, 2), rule="quantile-per-query", grades=2)
    assert frame["grade"].to_list() == [0, 0, 0, 0, 1, 1, 1, 1]
    everywhere = graded(judged_like(values, 2), rule="quantile", grades=2)
    assert everywhere["grade"].to_list() == [0, 1, 0, 1, 0, 1, 0, 1]


def test_a_query_with_few_pairs_is_graded_by_the_cut_points_over_all():
    values = [0.1, 0.2, 0.3, 0.4, 0.15]
    model = judged_like(values, query=["a", "a", "a", "a", "lonely"])
    frame = graded(model, rule="quantile-per-query", grades=4)
    cuts = np.quantile(values, [0.25, 0.5, 0.75])
    assert frame["grade"].to_list() == [0, 1, 2, 3, int((cuts <= 0.15).sum())]


def test_the_rule_interval_grades_the_lower_end():
    model = judged_like(
        [0.6, 0.6], low=[0.55, 0.3], high=[0.65, 0.65], spread=[0.02, 0.1], trials=[500.0, 20.0]
    )
    frame = graded(model, rule="interval", grades=4)
    assert frame["grade"].to_list() == [2, 1]
    assert frame["grade_low"].to_list() == [2, 1]
    assert frame["grade_high"].to_list() == [2, 2]
    assert graded(model, rule="threshold", grades=4)["grade"].to_list() == [2, 2]


def test_without_any_judged_pair_there_are_no_grades():
    found = judge(judged_like([0.1, 0.2], trials=[0.0, 0.0]))
    assert found.frame["grade"].null_count() == 2
    assert found.by_grade == {0: 0, 1: 0, 2: 0, 3: 0}
    # Nobody has looked at them, but it was told which is better.
    assert (found.n_judged, found.n_ordered, found.n_insufficient) == (0, 2, 0)
    assert found.to_dict()["grade_probability"] is None
    alone = judge(judged_like([0.1, 0.2], n_queries=2, trials=[0.0, 0.0]))
    assert (alone.n_ordered, alone.n_insufficient) == (0, 2)
    assert alone.to_dict()["order"] is None


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_tells_its_cut_points(rule):
    found = judge(judged_like([0.1, 0.2, 0.3, 0.4, 0.5]), rule=rule, grades=3)
    text = str(found.grading)
    assert text.startswith(f"{rule}: ")
    for cut in found.grading.cuts:
        assert f"{cut:.4g}" in text
    assert found.to_dict()["cuts"] == list(found.grading.cuts)
    assert len(found.grading.cuts) == 2


@pytest.mark.parametrize("rule", ["quantile", "quantile-per-query"])
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.9] * 4, [1] * 4),
        ([0.9] * 5, [1] * 5),  # the middle of five lies at the second cut, and gets the lower grade
        ([0.1, 0.9, 0.9, 0.9, 0.9, 0.9], [0, 2, 2, 2, 2, 2]),
        ([0.1, 0.1, 0.1, 0.1, 0.1, 0.9], [1, 1, 1, 1, 1, 3]),
        ([0.1, 0.2, 0.3, 0.4], [0, 1, 2, 3]),
        ([0.1, 0.2, 0.3, 0.4, 0.4 + 1e-12], [0, 1, 2, 3, 3]),
    ],
)
def test_equal_relevances_get_the_grade_of_their_middle(values, expected, rule):
    assert graded(judged_like(values), rule=rule)["grade"].to_list() == expected


@given(st.lists(st.integers(1, 6), min_size=4, max_size=40), st.integers(2, 6))
@settings(max_examples=80, deadline=None)
def test_ties_by_hand(numbers, grades):
    values = [number / 10 for number in numbers]
    frame = graded(judged_like(values), rule="quantile", grades=grades)
    ordered = sorted(values)
    for value, grade in zip(values, frame["grade"], strict=True):
        places = [i for i, other in enumerate(ordered) if other == value]
        middle = sum(places) / len(places)
        cuts = [step * (len(values) - 1) / grades for step in range(1, grades)]
        # In doubt equal values take the lower grade; a single one has reached its cut point.
        bonus = 1e-9 if len(places) == 1 else -1e-9
        inside = [cut for cut in cuts if cut > places[0] + 1e-9]
        outside = len(cuts) - len(inside)
        assert grade == outside + sum(middle + bonus >= cut for cut in inside)
