"""What is drawn at random comes as often as enumeration says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy import stats

from oracle.brute_force import told_as
from strategies.cases import Case, Values
from strategies.trees import (
    Ask,
    Bump,
    Count,
    Done,
    Emit,
    Flip,
    Leave,
    Program,
    Set,
    Shown,
    ShownPage,
    Test,
)

CLICK = Emit("click", Done())

CASCADE = Program(
    {"a": ("doc",), "b": ("rank",), "c": ()},
    {},
    Flip("a", Emit("click", Flip("b", Leave(Done()), Done())), Flip("c", Done(), Leave(Done()))),
)
MIXTURE = Program(
    {"a": ("doc",), "b": ("clicks_above",), "s": ("device",)},
    {"mood": False},
    Test(
        "mood", True, Flip("a", CLICK, Done()), Flip("b", CLICK, Flip("a", Leave(Done()), Done()))
    ),
    Flip("s", Set("mood", True, Done()), Done()),
)
HISTORY = Program(
    {"a": ("rank", "last_click"), "b": ("distance",), "c": ()},
    {"count": 0},
    Flip(
        "a",
        Emit("click", Bump("count", Done())),
        Test("count", 2, Flip("c", Emit("buy", Done()), Done()), Flip("b", CLICK, Done())),
    ),
)
TWICE = Program(
    {"a": (), "b": ("doc",)},
    {},
    Ask(
        "is_ad",
        Count(("a", "a"), 1, CLICK, Done()),
        Count(("b", "a", "b"), 2, Emit("buy", CLICK), Done()),
    ),
)
PROGRAMS = {"cascade": CASCADE, "mixture": MIXTURE, "history": HISTORY, "twice": TWICE}

PAGE = ShownPage(
    "q1",
    "phone",
    tuple(
        Shown(doc, rank, {"is_ad": is_ad, "is_new": False})
        for doc, rank, is_ad in ((10, 1, True), (11, 2, False), (10, 4, False))
    ),
)
N = 4000


def agrees(drawn: Counter[Any], wanted: dict[Any, float]) -> None:
    """A chi-square test; rare outcomes are put together. The seed is fixed."""
    assert set(drawn) <= {key for key, p in wanted.items() if p > 0}
    total = sum(drawn.values())
    often = [key for key, p in wanted.items() if p * total >= 8]
    observed = [drawn[key] for key in often]
    expected = [wanted[key] * total for key in often]
    if total - sum(expected) > 1e-6 * total:
        observed.append(total - sum(observed))
        expected.append(total - sum(expected))
    if len(observed) > 1:
        assert stats.chisquare(observed, expected, sum_check=False).pvalue > 1e-4


def many_copies(program: Program, shown: Any) -> Case:
    return Case(program, Values(4), [PAGE] * N, [shown] * N, [1.0] * N, 5)


def by_page(case: Case, values: list[Any]) -> list[tuple[Any, ...]]:
    pages: list[list[Any]] = [[None] * len(PAGE.results) for _ in range(N)]
    for i, t, value in zip(case.table["session"], case.place_of, values, strict=True):
        pages[i][t] = value
    return list(map(tuple, pages))


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_simulated_patterns_come_as_often_as_they_should(name: str) -> None:
    quiet = tuple(frozenset() for _ in PAGE.results)
    case = many_copies(PROGRAMS[name], quiet)
    log = case.model.simulate(case.log, seed=11)
    signals = case.model.traced_automaton.signals
    columns = [log.column(signal).to_list() for signal in signals]
    shown = [
        frozenset(s for s, is_there in zip(signals, row, strict=True) if is_there)
        for row in zip(*columns, strict=True)
    ]
    agrees(Counter(by_page(case, shown)), case.oracles[0].patterns)


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_sampled_stories_follow_the_posterior(name: str) -> None:
    program = PROGRAMS[name]
    quiet = tuple(frozenset() for _ in PAGE.results)
    oracle = many_copies(program, quiet).oracles[0]

    def n_stories(pattern: Any) -> int:
        return len({told_as(t, list(program.keys)) for t in oracle.stories if t.signals == pattern})

    shown = max(sorted(oracle.patterns, key=repr), key=n_stories)
    case = many_copies(program, shown)
    frame = case.model.sample_stories(case.log, seed=12)
    coins = list(program.keys)
    per_result = list(
        zip(
            frame["reached"].to_list(),
            *(frame[c].to_list() if c in frame.columns else [None] * len(frame) for c in coins),
            strict=True,
        )
    )
    starts = list(
        zip(
            [False] * len(frame),
            *(
                frame[f"start_{c}"].to_list()
                if f"start_{c}" in frame.columns
                else [None] * len(frame)
                for c in coins
            ),
            strict=True,
        )
    )
    pages, first = by_page(case, per_result), by_page(case, starts)
    drawn = Counter((start[0], *page) for start, page in zip(first, pages, strict=True))
    wanted: dict[Any, float] = {}
    for told in oracle.stories:
        if told.signals == shown:
            key = told_as(told, coins)
            wanted[key] = wanted.get(key, 0.0) + told.probability / oracle.likelihood(shown)
    assert len(wanted) > 1
    agrees(drawn, wanted)


def test_the_same_seed_draws_the_same() -> None:
    case = many_copies(CASCADE, tuple(frozenset() for _ in PAGE.results))
    one, two, other = (case.model.simulate(case.log, seed=s).click for s in (1, 1, 2))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)
