"""Time left of a fit, told from its gains."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecasmo.cli.progress import Pace, left_words


def climb(pace: Pace, rate: float, n: int, seconds_each: float = 2.0) -> None:
    objective = -5.0
    for iteration in range(n + 1):
        pace.note(iteration, objective, 1.0 + seconds_each * iteration)
        objective += rate**iteration


@given(st.floats(0.3, 0.95), st.integers(5, 15), st.floats(1e-9, 1e-4))
def test_gains_that_shrink_evenly_tell_the_end(rate: float, n: int, tol: float) -> None:
    pace = Pace(tol)
    climb(pace, rate, n)
    # The gain of iteration k is rate^(k - 1): so it falls below tol at
    end = 1 + math.log(tol) / math.log(rate)
    left = pace.iterations_left()
    assert left is not None
    assert left == pytest.approx(max(end - n, 1.0), rel=0.02, abs=0.1)
    seconds = pace.seconds_left(10_000)
    assert seconds is not None
    assert seconds == (pytest.approx(2.0 * left), False)


def test_before_anything_is_known_the_most_is_told() -> None:
    pace = Pace(1e-6)
    pace.note(0, -5.0, 0.0)
    assert pace.seconds_left(100) is None
    pace.note(2, -4.0, 3.0)
    assert pace.seconds_left(100) == (pytest.approx(1.5 * 98), True)
    assert pace.iterations_left() is None


def test_gains_that_do_not_shrink_tell_nothing() -> None:
    pace = Pace(1e-6)
    climb(pace, 1.0, 9)
    assert pace.iterations_left() is None
    assert pace.seconds_left(50) == (pytest.approx(2.0 * 41), True)


def test_slow_convergence_is_bounded_by_the_most_iterations() -> None:
    pace = Pace(1e-12)
    climb(pace, 0.99, 10)
    assert pace.seconds_left(20) == (pytest.approx(2.0 * 10), True)


def test_without_a_stop_rule_there_is_only_the_most() -> None:
    pace = Pace(0.0)
    climb(pace, 0.5, 8)
    assert pace.iterations_left() is None


def test_another_climb_begins_anew() -> None:
    pace = Pace(1e-6)
    climb(pace, 0.5, 8)
    pace.note(0, -9.0, 30.0)
    assert pace.n_climbs == 2
    assert pace.iterations_left() is None


@pytest.mark.parametrize(
    ("seconds", "is_most", "words"),
    [
        (6.2, False, "about 0:06 left"),
        (80, True, "at most 1:20 left"),
        (3725, False, "about 1:02:05 left"),
    ],
)
def test_words(seconds: float, is_most: bool, words: str) -> None:
    assert left_words(seconds, is_most) == words
