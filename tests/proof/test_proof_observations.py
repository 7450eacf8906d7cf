"""Numbers through which users are seen: random programs against enumeration, and laws."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from gecasmo.estimation import Coin, Expectation
from gecasmo.estimation.coins import Coins
from oracle.brute_force import given_numbers
from strategies.cases import Case, make_plain, observed_cases
from strategies.checks import close_to, many
from strategies.trees import Observe, as_model


def density(case: Case) -> Any:
    """The density of a number, written out."""

    def at(name: str, x: float) -> float:
        mean, deviation = case.distribution(name)._parts()
        z = (x - mean) / deviation
        return math.exp(-z * z / 2) / (deviation * math.sqrt(2 * math.pi))

    return at


def told_of(case: Case, number: int, length: int | None = None) -> list[tuple[float, Any]]:
    """The stories that a page may be, down to some result, each with its weight."""
    oracle, shown = case.page(number)
    return given_numbers(oracle.stories, shown, case.numbers[number], density(case), length)


@many(40)
@given(observed_cases())
def test_likelihoods_are_sums_over_stories(case: Case) -> None:
    expected = [math.fsum(p for p, _ in told_of(case, n)) for n in case.session_of]
    close_to(np.exp(case.model.log_likelihood(case.log)), expected)


@many(25)
@given(observed_cases())
def test_clicks_are_foretold_from_what_was_seen_above(case: Case) -> None:
    found = case.model.predict_conditional_clicks(case.log)
    marginal = case.model.predict_clicks(case.log)
    for row, (session, place) in enumerate(zip(case.table["session"], case.place_of, strict=True)):
        above = told_of(case, session, place)
        clicked = math.fsum(p for p, told in above if "click" in told.signals[place])
        close_to(found[row], clicked / math.fsum(p for p, _ in above))
        close_to(marginal[row], case.oracles[session].marginal_click(place))


@many(16)
@given(observed_cases())
@pytest.mark.parametrize("kernel", ["e_step", "e_step_scaled"])
def test_counts_are_shares_of_stories(kernel: str, case: Case) -> None:
    """Every flip that the program makes, and how much of each number belongs to each density."""
    expected: dict[Any, Any] = defaultdict(lambda: [0.0, 0.0])
    total = 0.0
    for number, weight in enumerate(case.weights):
        told = told_of(case, number)
        whole = math.fsum(p for p, _ in told)
        total += weight * math.log(whole)
        for p, one in told:
            for fall in one.falls:
                expected[fall.coin, fall.row][fall.heads] += weight * p / whole
            for place, column, name in one.seen:
                value = case.numbers[number].get((place, column))
                if value is not None:
                    expected[name, (value,)][True] += weight * p / whole
    for augmentation in ("full", "minimal"):
        found, log_likelihood, model = counted(case, augmentation, kernel)
        close_to(log_likelihood, total)
        for coin, rows, sides in found:
            for place, row in enumerate(rows):
                if augmentation == "full":
                    close_to(sides[:, place], expected.pop((coin, row), [0.0, 0.0]))
        if augmentation == "full":
            assert not [key for key, own in expected.items() if max(own) > 1e-9]
            full = {coin: sides for coin, _, sides in found}
        else:
            for coin, rows, sides in found:
                if model.forms[coin].is_joint:
                    close_to(sides, full[coin])
                    continue
                theta = np.array([case.values(coin, row) for row in rows])
                scores = [s[1] * (1 - theta) - s[0] * theta for s in (sides, full[coin])]
                close_to(*scores)


def counted(case: Case, augmentation: Any, kernel: str) -> Any:
    """Expected counts by coin and row, from generated source."""
    model = case.model
    encoded = model.encode(case.log, "e_step", augmentation)
    library = model.library(encoded.plan, counting=True)
    expectation = Expectation(encoded, library, augmentation, threads=1)
    if kernel == "e_step_scaled":
        expectation.is_small = False
    coins = Coins(
        [Coin(n, f, r) for (n, f), r in zip(model.forms.items(), encoded.rows, strict=True)]
    )
    states = [model.states()[coin] for coin in model.forms]
    counts = expectation.run(coins.weights(states))
    assert counts.n_impossible == 0
    found = [
        (coin, rows.frame.rows() if rows.keys else [()] * len(rows), counts.tables[number])
        for number, (coin, rows) in enumerate(zip(model.forms, encoded.rows, strict=True))
    ]
    return found, counts.log_likelihood + coins.left_out(states, counts), model


@many(16)
@given(observed_cases())
def test_posteriors_weigh_stories(case: Case) -> None:
    found = case.model.posterior(case.log)
    stories = case.model.sample_stories(case.log, seed=3)
    for row, (session, place) in enumerate(zip(case.table["session"], case.place_of, strict=True)):
        told = told_of(case, session)
        whole = math.fsum(p for p, _ in told)
        reached = math.fsum(p for p, one in told if place in one.looked) / whole
        close_to(found["reached"][row], reached)
        assert reached > 0 or not stories["reached"][row]
        for coin in case.program.keys:
            here = [
                (p / whole, [f.heads for f in one.falls if (f.coin, f.place) == (coin, place)])
                for p, one in told
            ]
            if f"{coin}_heads" in found.columns:
                close_to(found[f"{coin}_flipped"][row], sum(p for p, falls in here if falls))
                close_to(found[f"{coin}_heads"][row], sum(p for p, falls in here if any(falls)))


@many(12)
@given(observed_cases())
def test_without_numbers_it_is_the_model_that_observes_nothing(case: Case) -> None:
    """The same likelihood, the same hidden data, the same generated source."""
    bare = replace(case.program, browse=without(case.program.browse), densities=())
    plain = make_plain(
        as_model(bare).with_values(**{c: v for c, v in case.tables().items() if c in bare.keys})
    )
    case.numbers[:] = [{} for _ in case.numbers]
    close_to(case.model.log_likelihood(case.log), plain.log_likelihood(case.log))
    ours, others = (m.expected_counts(case.log) for m in (case.model, plain))
    for coin, frame in others.items():
        assert frame.equals(ours[coin])


def without(tree: Any) -> Any:
    """A tree in which nothing is observed."""
    if isinstance(tree, Observe):
        return without(tree.then)
    below = [name for name in ("heads", "tails", "yes", "no", "then") if hasattr(tree, name)]
    return replace(tree, **{name: without(getattr(tree, name)) for name in below})
