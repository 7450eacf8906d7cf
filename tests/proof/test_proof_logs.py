"""The order of sessions, how a log is cut up, and how many threads there are change no answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecasmo import EM, read_log
from gecasmo.models import CATALOGUE
from strategies.cases import Case, cases, make_plain
from strategies.checks import close_to, many
from strategies.trees import as_model


def counts_by_row(model: Any, log: Any, augmentation: Any = "minimal") -> dict[Any, np.ndarray]:
    frames = model.expected_counts(log, augmentation=augmentation)
    return {
        (coin, row[:-2]): np.array(row[-2:])
        for coin, frame in frames.items()
        for row in frame.rows()
    }


def add(*parts: dict[Any, np.ndarray]) -> dict[Any, np.ndarray]:
    return {
        key: sum((part[key] for part in parts if key in part), np.zeros(2))
        for key in set().union(*parts)
    }


def same(found: dict[Any, np.ndarray], wanted: dict[Any, np.ndarray]) -> None:
    for key in found.keys() | wanted.keys():
        close_to(found.get(key, np.zeros(2)), wanted.get(key, np.zeros(2)), 1e-11)


@many(25)
@given(case=cases(), seed=st.integers(0, 1000))
def test_sessions_in_any_order(case: Case, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(case.pages))
    other = replace(
        case,
        pages=[case.pages[i] for i in order],
        shown=[case.shown[i] for i in order],
        weights=[case.weights[i] for i in order],
        row_order=seed,
    )
    same(counts_by_row(other.model, other.log), counts_by_row(case.model, case.log))
    by_page = dict(zip(case.session_of, case.model.log_likelihood(case.log), strict=True))
    moved = dict(zip(other.session_of, other.model.log_likelihood(other.log), strict=True))
    for place, i in enumerate(order):
        close_to(moved[place], by_page[i])


@pytest.mark.parametrize("augmentation", ["minimal", "full"])
@many(25)
@given(case=cases(), seed=st.integers(0, 1000))
def test_counts_of_two_halves_add_up(augmentation: str, case: Case, seed: int) -> None:
    first = np.random.default_rng(seed).random(case.log.n_sessions) < 0.5
    parts = [case.log.take(mask) for mask in (first, ~first) if mask.any()]
    found = add(*(counts_by_row(case.model, part, augmentation) for part in parts))
    same(found, counts_by_row(case.model, case.log, augmentation))


@many(25)
@given(case=cases())
def test_weight_two_is_a_repeated_session(case: Case) -> None:
    n = len(case.pages)
    heavy = replace(case, weights=[2.0 if i % 2 else 1.0 for i in range(n)])
    twice = [i for i in range(n) for _ in range(2 if i % 2 else 1)]
    repeated = replace(
        case,
        pages=[case.pages[i] for i in twice],
        shown=[case.shown[i] for i in twice],
        weights=[1.0] * len(twice),
    )
    same(counts_by_row(heavy.model, heavy.log), counts_by_row(repeated.model, repeated.log))
    close_to(heavy.model.score(heavy.log), repeated.model.score(repeated.log))
    fits = []
    for one in (heavy, repeated):
        model = make_plain(as_model(case.program)())
        model.fit(one.log, EM(4, tol=0, accelerate=False, restarts=1), threads=1)
        fits.append(model)
    for coin, frame in fits[0].parameters.items():
        keys = frame.columns[:-3]
        other = fits[1].parameters[coin]
        if keys:
            frame, other = frame.sort(keys), other.sort(keys)
        close_to(frame["probability"], other["probability"], 1e-9)


@many(20)
@given(case=cases())
def test_weight_zero_is_no_session(case: Case) -> None:
    ghost = replace(
        case,
        pages=[*case.pages, case.pages[0]],
        shown=[*case.shown, case.shown[0]],
        weights=[*case.weights, 0.0],
    )
    same(counts_by_row(ghost.model, ghost.log), counts_by_row(case.model, case.log))
    close_to(ghost.model.score(ghost.log), case.model.score(case.log))


# -- threads -----------------------------------------------------------------------------------


def big_log(n_pages: int = 5000, length: int = 5, n_queries: int = 200) -> Any:
    """More than 20,000 results, below which one thread does all the work."""
    generator = np.random.default_rng(1)
    return read_log(
        {
            "session": np.repeat(np.arange(n_pages), length),
            "query": np.repeat(generator.integers(0, n_queries, n_pages), length),
            "doc": generator.integers(0, 30, n_pages * length),
            "rank": np.tile(np.arange(1, length + 1), n_pages),
            "click": generator.random(n_pages * length) < 0.2,
            "weight": np.repeat(generator.choice([1.0, 0.7, 2.3], n_pages), length),
        },
        weight="weight",
    )


@pytest.mark.parametrize("name", ["DBN", "UBM", "PBM", "CCM"])
def test_fits_are_the_same_bit_by_bit_on_any_number_of_threads(name: str) -> None:
    log = big_log()
    fits = [
        CATALOGUE[name]().fit(log, EM(6, tol=0), threads=threads) for threads in (1, 2, 3, 2, 1)
    ]
    first = fits[0]
    for other in fits[1:]:
        assert first.history["objective"].to_list() == other.history["objective"].to_list()
        for coin, frame in first.parameters.items():
            assert frame.equals(other.parameters[coin])


def test_answers_are_the_same_bit_by_bit_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = big_log()
    model = CATALOGUE["DBN"].with_values(attraction=0.3, satisfaction=0.4, continuation=0.8)
    answers = []
    for threads in (1, 2, 3):
        monkeypatch.setattr("gecasmo.model.page_run.default_threads", lambda n=threads: n)
        answers.append(
            (
                model.log_likelihood(log),
                model.predict_clicks(log),
                model.predict_conditional_clicks(log),
                model.simulate(log, seed=1).click,
            )
        )
    for other in answers[1:]:
        for a, b in zip(answers[0], other, strict=True):
            assert np.array_equal(a, b)


def test_a_log_in_another_order_fits_the_same() -> None:
    log = big_log(2000)
    frame = pl.DataFrame({name: log.column(name) for name in log.columns})
    shuffled = read_log(frame.sample(fraction=1.0, shuffle=True, seed=4))
    plain = read_log(frame)
    a, b = (CATALOGUE["DBN"]().fit(one, EM(10, tol=0)) for one in (plain, shuffled))
    for coin, table in a.parameters.items():
        keys = table.columns[:-3]
        other = b.parameters[coin]
        if keys:
            table, other = table.sort(keys), other.sort(keys)
        close_to(table["probability"], other["probability"], 1e-9)
