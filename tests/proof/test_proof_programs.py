"""Random programs on random logs: generated source, reference and enumeration agree."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from gecasmo.compiler import close, full, merge, minimal, minimise, reference, refine, unclosed
from gecasmo.estimation import Expectation
from gecasmo.estimation.coins import as_weights
from strategies.cases import Case, cases
from strategies.checks import close_to, many


def reference_page(case: Case, number: int) -> reference.ReferencePage:
    """A page as the reference wants it."""
    page, shown = case.pages[number], case.shown[number]
    signals = case.model.structure.traced.signals
    clicks: list[int] = []
    values: dict[str, list[float]] = {coin: [] for coin in case.program.keys}
    rows: dict[str, list[Any]] = {coin: [] for coin in case.program.keys}
    from strategies.trees import _row

    for place, result in enumerate(page.results):
        for coin, keys in case.program.keys.items():
            row = _row(keys, page, place, clicks)
            rows[coin].append(row)
            values[coin].append(case.values(coin, row))
        if "click" in shown[place]:
            clicks.append(result.rank)
    made = reference.ReferencePage(
        [tuple(name for name in signals if name in s) for s in shown],
        {coin: np.array(v) for coin, v in values.items()},
        [result.guards for result in page.results],
        {coin: v[0] for coin, v in values.items()},
    )
    made.names = rows  # type: ignore[attr-defined]
    return made


def counts_of(case: Case, augmentation: str, kernel: str) -> tuple[dict[Any, Any], float]:
    """Expected counts per (coin, row) and the log-likelihood, from generated source."""
    model = case.model
    encoded = model.encode(case.log, "e_step", augmentation)  # type: ignore[arg-type]
    expectation = Expectation(
        encoded, model.library(encoded.plan, counting=True), augmentation, threads=1
    )
    if kernel == "e_step_scaled":
        expectation.is_small = False
    weights = [
        as_weights(np.asarray(form.predict(model.states()[coin], rows), dtype=np.float64))
        for (coin, form), rows in zip(model.forms.items(), encoded.rows, strict=True)
    ]
    counts = expectation.run(weights)
    assert counts.n_impossible == 0
    found = {}
    for number, (coin, rows) in enumerate(zip(model.forms, encoded.rows, strict=True)):
        names = rows.frame.rows() if rows.keys else [()]
        for name, (tails, heads) in zip(names, counts.tables[number].T, strict=True):
            found[coin, name] = (heads, tails)
    return found, counts.log_likelihood


def same_counts(found: dict[Any, Any], wanted: dict[Any, Any]) -> None:
    for key in found.keys() | wanted.keys():
        close_to(found.get(key, (0.0, 0.0)), wanted.get(key, (0.0, 0.0)), 1e-9)


def oracle_counts(case: Case) -> dict[Any, list[float]]:
    total: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for number, weight in enumerate(case.weights):
        oracle, shown = case.page(number)
        for key, (heads, tails) in oracle.counts(shown).items():
            total[key][0] += weight * heads
            total[key][1] += weight * tails
    return total


def reference_counts(case: Case, staircase: Any) -> dict[Any, list[float]]:
    total: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for number, weight in enumerate(case.weights):
        page = reference_page(case, number)
        expected = reference.e_step(staircase, page)
        for side, counts in enumerate((expected.heads, expected.tails)):
            for (coin, place, _), amount in counts.items():
                name = page.names[coin][place or 0]  # type: ignore[attr-defined]
                total[coin, name][side] += weight * amount
    return total


def log_likelihoods(case: Case) -> np.ndarray:
    return np.array([math.log(o.likelihood(s)) for o, s in map(case.page, range(len(case.pages)))])


# -- likelihood --------------------------------------------------------------------------------


@many(50)
@given(cases())
def test_filter_gives_the_likelihood_of_each_session(case: Case) -> None:
    close_to(case.model.log_likelihood(case.log), log_likelihoods(case)[case.session_of])


@many(50)
@given(cases())
def test_reference_gives_the_likelihood_of_each_page(case: Case) -> None:
    structure = case.model.structure
    for number, wanted in enumerate(log_likelihoods(case)):
        page = reference_page(case, number)
        for staircase in (structure.minimal, structure.full):
            close_to(reference.e_step(staircase, page).log_likelihood, wanted)
            close_to(np.log(reference.filter_page(staircase, page)).sum(), wanted)


@pytest.mark.parametrize("augmentation", ["minimal", "full"])
@pytest.mark.parametrize("kernel", ["e_step", "e_step_scaled"])
@many(40)
@given(case=cases())
def test_e_step_gives_the_likelihood_of_the_log(augmentation: str, kernel: str, case: Case) -> None:
    _, found = counts_of(case, augmentation, kernel)
    close_to(found, log_likelihoods(case) @ case.weights)


@many(50)
@given(cases())
def test_filter_gives_conditional_click_probabilities(case: Case) -> None:
    found = case.model.predict_conditional_clicks(case.log)
    for row, (number, place) in enumerate(zip(case.table["session"], case.place_of, strict=True)):
        oracle, shown = case.page(number)
        close_to(found[row], oracle.conditional_click(shown, place))


@many(80)
@given(cases())
def test_marginal_click_probabilities(case: Case) -> None:
    found = case.model.predict_clicks(case.log)
    for row, (number, place) in enumerate(zip(case.table["session"], case.place_of, strict=True)):
        close_to(found[row], case.oracles[number].marginal_click(place))


@many(50)
@given(cases())
def test_all_patterns_of_a_page_sum_to_one(case: Case) -> None:
    for oracle in case.oracles:
        close_to(oracle.total(), 1.0)
    oracle, page = case.oracles[0], case.pages[0]
    every = list(oracle.patterns)
    whole = Case(case.program, case.values, [page] * len(every), every, [1.0] * len(every), 0)
    close_to(np.exp(whole.model.log_likelihood(whole.log)).sum(), 1.0)


# -- counts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["e_step", "e_step_scaled"])
@many(50)
@given(case=cases())
def test_full_counts_are_those_of_every_flip(kernel: str, case: Case) -> None:
    found, _ = counts_of(case, "full", kernel)
    same_counts(found, oracle_counts(case))


@many(30)
@given(cases())
def test_reference_counts_every_flip(case: Case) -> None:
    same_counts(reference_counts(case, case.model.structure.full), oracle_counts(case))


@pytest.mark.parametrize("kernel", ["e_step", "e_step_scaled"])
@many(50)
@given(case=cases())
def test_minimal_counts_are_those_of_the_staircase(kernel: str, case: Case) -> None:
    found, _ = counts_of(case, "minimal", kernel)
    same_counts(found, reference_counts(case, case.model.structure.minimal))


@many(50)
@given(cases())
def test_score_does_not_depend_on_the_augmentation(case: Case) -> None:
    least, _ = counts_of(case, "minimal", "e_step")
    most, _ = counts_of(case, "full", "e_step")
    for key in least.keys() | most.keys():
        theta = case.values(*key)
        scores = [
            heads * (1 - theta) - tails * theta
            for heads, tails in (least.get(key, (0, 0)), most.get(key, (0, 0)))
        ]
        close_to(scores[0], scores[1], 1e-9)


@many(40)
@given(cases(extremes=False))
def test_heads_and_tails_add_up_to_the_number_of_flips(case: Case) -> None:
    """Told by the frames that a user sees."""
    wanted: dict[str, float] = defaultdict(float)
    for number, weight in enumerate(case.weights):
        oracle, shown = case.page(number)
        total = oracle.likelihood(shown)
        for told in oracle.stories:
            if told.signals == shown:
                for fall in told.falls:
                    wanted[fall.coin] += weight * told.probability / total
    frames = case.model.expected_counts(case.log, augmentation="full")
    for coin, frame in frames.items():
        close_to(frame["heads"].sum() + frame["tails"].sum(), wanted[coin], 1e-9)


# -- passes ------------------------------------------------------------------------------------


@many(50)
@given(cases())
def test_no_pass_changes_a_likelihood(case: Case) -> None:
    """Every pattern, for merge, minimise, and the staircase cut at any height."""
    traced = case.model.structure.traced
    rounds = refine(traced)
    staircases = [unclosed(merge(traced)), unclosed(minimise(traced)), full(traced)]
    staircases += [unclosed(merge(minimise(traced))), minimal(traced)]
    staircases += [close(traced, rounds, steps) for steps in range(len(rounds))]
    oracle, page = case.oracles[0], case.pages[0]
    patterns = sorted(oracle.patterns, key=repr)[:24]
    one = Case(case.program, case.values, [page] * len(patterns), patterns, [1.0] * 24, 0)
    one.__dict__["model"] = case.model
    for number, pattern in enumerate(patterns):
        shown = reference_page(one, number)
        for staircase in staircases:
            found = reference.filter_page(staircase, shown).prod()
            close_to(found, oracle.likelihood(pattern))


# -- stories -----------------------------------------------------------------------------------


@many(50)
@given(cases())
def test_posterior_of_what_happened(case: Case) -> None:
    frame = case.model.posterior(case.log)
    starting = case.model.structure.traced.start_parameters()
    for row, (number, place) in enumerate(zip(case.table["session"], case.place_of, strict=True)):
        oracle, shown = case.page(number)
        close_to(frame["reached"][row], oracle.reached(shown, place))
        for coin in case.program.keys:
            if f"{coin}_flipped" in frame.columns:
                found = (frame[f"{coin}_flipped"][row], frame[f"{coin}_heads"][row])
                close_to(found, oracle.coin(shown, coin, place))
            if coin in starting:
                found = (frame[f"start_{coin}_flipped"][row], frame[f"start_{coin}_heads"][row])
                close_to(found, oracle.coin(shown, coin, None))


def told_columns(
    case: Case, frame: Any, number: int
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A page of a decoded frame, by place."""
    n_results = len(case.pages[number].results)
    columns: list[dict[str, Any]] = [{} for _ in range(n_results)]
    start: dict[str, Any] = {}
    for row, (session, place) in enumerate(zip(case.table["session"], case.place_of, strict=True)):
        if session != number:
            continue
        columns[place]["reached"] = frame["reached"][row]
        for coin in case.program.keys:
            if coin in frame.columns:
                columns[place][coin] = frame[coin][row]
            if f"start_{coin}" in frame.columns:
                start[coin] = frame[f"start_{coin}"][row]
    return columns, start


@many(50)
@given(cases())
def test_decoded_story_is_the_most_likely_one(case: Case) -> None:
    frame = case.model.decode(case.log)
    for number in range(len(case.pages)):
        oracle, shown = case.page(number)
        columns, start = told_columns(case, frame, number)
        close_to(oracle.matching(shown, columns, start), oracle.best(shown))


@many(30)
@given(cases())
def test_sampled_stories_are_possible_ones(case: Case) -> None:
    for seed in range(2):
        frame = case.model.sample_stories(case.log, seed=seed)
        for number in range(len(case.pages)):
            oracle, shown = case.page(number)
            assert oracle.matching(shown, *told_columns(case, frame, number)) > 0


@many(30)
@given(cases())
def test_simulated_pages_are_possible_ones(case: Case) -> None:
    simulated, truth = case.model.simulate(case.log, seed=7, truth=True)
    signals = case.model.structure.traced.signals
    columns = {name: simulated.column(name).to_list() for name in signals}
    for number in range(len(case.pages)):
        shown: list[Any] = [None] * len(case.pages[number].results)
        rows = zip(case.table["session"], case.place_of, strict=True)
        for row, (session, place) in enumerate(rows):
            if session == number:
                # What the whole page shows is told of its last result.
                told = signals if place == len(shown) - 1 else set(signals) - {"back"}
                shown[place] = frozenset(name for name in told if columns[name][row])
        oracle = case.oracles[number]
        assert oracle.matching(tuple(shown), *told_columns(case, truth, number)) > 0
