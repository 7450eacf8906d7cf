"""The judge itself: it imports nothing it judges, and is right where one can check by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oracle.brute_force import Oracle, filter_floored
from oracle.stories import CLICK, QUIET, ZOO, Shown
from strategies.checks import close_to

TESTS = Path(__file__).parents[1]


def test_the_oracle_imports_nothing_it_judges() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import oracle.brute_force, oracle.stories, oracle.two_rate\n"
        "assert not [name for name in sys.modules if name.startswith('gecasmo')]"
    )
    subprocess.run([sys.executable, "-c", code, str(TESTS)], check=True)


def one_result(flip: Any) -> tuple[frozenset, ...]:
    """PBM on one result."""
    flip.look(0)
    examined, attracted = flip("e"), flip("a")
    return (CLICK if examined and attracted else QUIET,)


def test_one_skip_by_hand() -> None:
    oracle = Oracle(one_result, lambda coin, row: {"e": 0.5, "a": 0.4}[coin])
    skip = (QUIET,)
    assert len(oracle.stories) == 4
    close_to(oracle.total(), 1.0)
    close_to(oracle.likelihood(skip), 0.8)
    close_to(oracle.counts(skip)["a", ()], [0.25, 0.75])
    close_to(oracle.marginal_click(0), 0.2)
    close_to(oracle.best(skip), 0.3)
    close_to(oracle.coin(skip, "a", 0), (1.0, 0.25))


def test_sides_of_probability_zero_are_never_taken() -> None:
    oracle = Oracle(one_result, lambda coin, row: {"e": 1.0, "a": 0.0}[coin])
    assert len(oracle.stories) == 1
    assert oracle.likelihood((CLICK,)) == 0.0


def test_an_impossible_observation_is_passed_over() -> None:
    oracle = Oracle(ZOO["CM"](Shown("q", ("a", "b", "c"), (1, 2, 3))), lambda coin, row: 0.3)
    page = filter_floored(oracle, (CLICK, QUIET, CLICK))
    close_to(page.shown, [0.3, 1.0, 0.0])
    assert page.missing == [False, False, True]


@pytest.mark.parametrize("name", list(ZOO))
def test_stories_sum_to_one(name: str) -> None:
    oracle = Oracle(ZOO[name](Shown("q", ("a", "b", "a"), (1, 2, 4))), lambda coin, row: 0.3)
    close_to(oracle.total(), 1.0)
