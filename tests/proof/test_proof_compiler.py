"""Programs that mean the same compile to the same, and programs that only look the same do not."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from gecasmo import ClickModel, Parameter, flip
from gecasmo.compiler import minimal, minimise, reference, refine
from gecasmo.models import CCM, DBN, DCM, PBM, UBM


class LazyPBM(ClickModel):
    examination = Parameter("rank")
    attraction = Parameter("query", "doc")

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.examination) and flip(self.attraction):
            user.click()


class LazyUBM(ClickModel):
    examination = Parameter("rank", "last_click")
    attraction = Parameter("query", "doc")

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.examination) and flip(self.attraction):
            user.click()


class EagerDCM(ClickModel):
    attraction = Parameter("query", "doc")
    continuation = Parameter("rank")

    def browse(self, user: Any, result: Any) -> None:
        attracted, continues = flip(self.attraction), flip(self.continuation)
        if attracted:
            user.click()
            if not continues:
                user.leave()


class EagerDBN(ClickModel):
    attraction = Parameter("query", "doc")
    satisfaction = Parameter("query", "doc")
    continuation = Parameter()

    def browse(self, user: Any, result: Any) -> None:
        attracted, satisfied = flip(self.attraction), flip(self.satisfaction)
        continues = flip(self.continuation)
        if attracted:
            user.click()
        if (attracted and satisfied) or not continues:
            user.leave()


class EagerCCM(ClickModel):
    attraction = Parameter("query", "doc")
    continuation_after_skip = Parameter()
    continuation_after_click = Parameter()
    continuation_after_satisfaction = Parameter()

    def browse(self, user: Any, result: Any) -> None:
        attracted, again = flip(self.attraction), flip(self.attraction)
        skip = flip(self.continuation_after_skip)
        click = flip(self.continuation_after_click)
        satisfied = flip(self.continuation_after_satisfaction)
        if attracted:
            user.click()
            continues = satisfied if again else click
        else:
            continues = skip
        if not continues:
            user.leave()


def described(edges: Any) -> list[Any]:
    return sorted(
        (e.source, e.target, e.symbol, tuple(sorted(e.literals)), e.guards, e.multiplicity)
        for e in edges
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [(PBM, LazyPBM), (UBM, LazyUBM), (DCM, EagerDCM), (DBN, EagerDBN), (CCM, EagerCCM)],
)
def test_eager_and_lazy_twins_are_one_model(one: Any, other: Any) -> None:
    a, b = one().structure.minimal, other().structure.minimal
    assert described(a.body.edges) == described(b.body.edges)
    assert [described(s.edges) for s in a.closing] == [described(s.edges) for s in b.closing]


class Silent(ClickModel):
    """After leaving, the user wanders between two states that never click."""

    a = Parameter()
    b = Parameter()
    c = Parameter()

    def start(self, user: Any) -> None:
        user.where = "reading"

    def browse(self, user: Any, result: Any) -> None:
        if user.where == "reading":
            if flip(self.a):
                user.click()
                user.where = "idle"
        elif user.where == "idle":
            user.where = "away" if flip(self.b) else "idle"
        else:
            user.where = "idle" if flip(self.c) else "away"


class Tired(ClickModel):
    """A class drawn in start that matters only after the second click."""

    tired = Parameter()
    a = Parameter()
    b = Parameter()

    def start(self, user: Any) -> None:
        user.tired = flip(self.tired)
        user.clicks = 0

    def browse(self, user: Any, result: Any) -> None:
        coin = self.b if user.tired and user.clicks == 2 else self.a
        if flip(coin):
            user.click()
            user.clicks = min(user.clicks + 1, 2)


class Two(ClickModel):
    """Two states with the same future, in which the coins are flipped in another order."""

    a = Parameter()
    b = Parameter()

    def start(self, user: Any) -> None:
        user.side = False

    def browse(self, user: Any, result: Any) -> None:
        one, two = (self.a, self.b) if user.side else (self.b, self.a)
        if flip(one) and flip(two):
            user.click()
        user.side = not user.side


class BothWays(ClickModel):
    """One coin comes up both ways on one edge."""

    a = Parameter()

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.a) and not flip(self.a):
            user.click()


class Differ(ClickModel):
    """A click if two flips of one coin differ: 2 p (1 - p)."""

    p = Parameter()

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.p) + flip(self.p) == 1:
            user.click()


def probability(model: Any, clicks: tuple[int, ...], **values: float) -> float:
    page = reference.ReferencePage(
        [("click",) if c else () for c in clicks],
        {coin: np.full(len(clicks), v) for coin, v in values.items()},
        start=values,
    )
    return float(reference.filter_page(model.structure.minimal, page).prod())


def test_silent_wandering_is_one_state() -> None:
    model = Silent()
    assert model.traced_automaton.n_states == 3
    assert model.automaton.n_states == 2
    assert len(model.automaton.edges) == 3
    assert {lit.parameter for e in model.automaton.edges for lit in e.literals} == {"a"}


def test_tired_needs_a_staircase_of_three() -> None:
    model = Tired()
    staircase = model.structure.minimal
    assert len(refine(model.traced_automaton)) - 1 == 3
    assert len(staircase.closing) == 3
    for length, flips in ((1, 0), (2, 0), (3, 1)):
        start = staircase.initial_for(length)
        assert sum(len(edge.literals) > 0 for edge in start) == 2 * flips


def test_two_flip_orders_are_one_state() -> None:
    assert Two().traced_automaton.n_states == 2
    assert Two().automaton.n_states == 1


def test_one_coin_both_ways_on_one_edge() -> None:
    model = BothWays()
    assert math.isclose(probability(model, (1,), a=0.3), 0.3 * 0.7)
    assert math.isclose(probability(model, (0, 1), a=0.3), (1 - 0.21) * 0.21)


def test_two_flips_that_differ_count_twice() -> None:
    model = Differ()
    assert math.isclose(probability(model, (1,), p=0.3), 2 * 0.3 * 0.7)
    assert math.isclose(probability(model, (0,), p=0.3), 0.3**2 + 0.7**2)


@pytest.mark.parametrize("model", [Silent, Tired, Two, BothWays, Differ], ids=lambda m: m.__name__)
def test_traps_sum_to_one(model: Any) -> None:
    made = model()
    values = {coin: 0.2 + 0.15 * i for i, coin in enumerate(made.forms)}
    for length in range(1, 5):
        total = sum(probability(made, c, **values) for c in product((0, 1), repeat=length))
        assert math.isclose(total, 1.0, rel_tol=1e-12)


def test_minimising_twice_changes_nothing() -> None:
    for model in (DBN, CCM, PBM, Tired, Silent, Two):
        once = minimise(model().traced_automaton)
        assert minimise(once).n_states == once.n_states
        body = minimal(model().traced_automaton).body
        assert minimal(body).body.n_states == body.n_states
