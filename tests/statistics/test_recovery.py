"""Simulate users whose coins are known, and get the coins back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl
import pytest

from gecasmo import CM, DBN, DCM, EM, PBM, SDBN, UBM, ClickModel, Table, read_log
from gecasmo.logs import ClickLog

THOROUGH = EM(max_iter=5_000, tol=1e-9)


def shuffled_pages(n_pages: int, n_docs: int, length: int, rng: np.random.Generator) -> ClickLog:
    """Pages of one query that show some of its documents in random order."""
    shown = np.argsort(rng.random((n_pages, n_docs)), axis=1)[:, :length]
    return read_log(
        {
            "session": np.repeat(np.arange(n_pages), length),
            "query": np.zeros(n_pages * length, np.int64),
            "doc": shown.ravel(),
            "rank": np.tile(np.arange(1, length + 1), n_pages),
        },
        click=None,
    )


def by_doc(values: np.ndarray) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "query": np.zeros(len(values), np.int64),
            "doc": np.arange(len(values)),
            "probability": values,
        }
    )


def objectives(fitted: ClickModel, truth: ClickModel, log: ClickLog) -> tuple[float, float]:
    """Of the fit, and of the truth on the same log with the same priors."""
    at_truth = fitted.copy().fit(log, EM(max_iter=1, tol=0), start=truth)
    return fitted.history["objective"][-1], at_truth.history["objective"][0]


# -- a log with many empty pages -------------------------------------------------------------------
def test_many_empty_pages_do_not_mislead_the_continuation_of_dbn() -> None:
    """A well-known library answers 1.00 here."""
    estimates = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        truth = DBN.with_values(
            attraction=by_doc(rng.beta(2, 1.2, 30)),
            satisfaction=by_doc(rng.beta(2, 2, 30)),
            continuation=0.60,
        )
        log = truth.simulate(shuffled_pages(1_500, 30, 8, rng), seed=seed)
        estimates.append(DBN().fit(log).parameters["continuation"]["probability"][0])
        ones = Table(pseudo_counts=(1, 1))
        fitted = DBN(attraction=ones, satisfaction=ones).fit(log, THOROUGH, intervals=False)
        at_fit, at_truth = objectives(fitted, truth, log)
        assert at_fit >= at_truth
    errors = np.array(estimates) - 0.60
    assert abs(errors.mean()) < 0.025, estimates
    assert np.abs(errors).max() < 0.06, estimates


# -- every global coin of every identifiable model -------------------------------------------------
N_SEEDS, N_PAGES, N_DOCS, LENGTH = 20, 20_000, 6, 4


@dataclass
class Case:
    """A model, its true global coins by row, and forms that make it identifiable."""

    model: type[ClickModel]
    coins: dict[str, dict[Any, float] | float]
    forms: Callable[[], dict[str, Table]] = dict
    by_doc: tuple[str, ...] = ("attraction",)
    keys: dict[str, list[str]] = field(default_factory=dict)


def weak(**options: Any) -> Table:
    """A prior too weak to be seen, yet there: no row ends at exactly 0 or 1."""
    return Table(pseudo_counts=(0.1, 0.1), **options)


EXAMINATION = {1: 1.0, 2: 0.7, 3: 0.5, 4: 0.3}
BROWSING = {(t, last): 0.9 / (t - last) ** 0.5 for t in range(1, 5) for last in range(t)}
BROWSING[1, 0] = 1.0

CASES = {
    "DBN": Case(
        DBN,
        {"continuation": 0.8},
        lambda: {"continuation": weak()},
        by_doc=("attraction", "satisfaction"),
    ),
    # Without keys of their own SDBN and CM have no global coin, so here one gets no key.
    "SDBN": Case(SDBN, {"satisfaction": 0.4}, lambda: {"satisfaction": weak(key=())}),
    "CM": Case(CM, {"attraction": 0.3}, lambda: {"attraction": weak(key=())}, by_doc=()),
    "DCM": Case(
        DCM,
        {"continuation": {1: 0.8, 2: 0.7, 3: 0.6}},
        lambda: {"continuation": weak()},
        keys={"continuation": ["rank"]},
    ),
    "PBM": Case(
        PBM,
        {"examination": EXAMINATION},
        lambda: {"examination": weak(fixed={1: 1.0})},
        keys={"examination": ["rank"]},
    ),
    "UBM": Case(
        UBM,
        {"examination": BROWSING},
        lambda: {"examination": weak(fixed={(1, 0): 1.0})},
        keys={"examination": ["rank", "last_click"]},
    ),
}


def simulated(case: Case, seed: int) -> tuple[ClickLog, ClickModel]:
    rng = np.random.default_rng(seed)
    values: dict[str, Any] = {name: by_doc(rng.uniform(0.2, 0.8, N_DOCS)) for name in case.by_doc}
    for coin, value in case.coins.items():
        form = case.forms().get(coin, Table())
        values[coin] = (Table(key=form.key), value)
    truth = case.model.with_values(**values)
    return truth.simulate(shuffled_pages(N_PAGES, N_DOCS, LENGTH, rng), seed=seed), truth


def estimated(fitted: ClickModel, case: Case) -> np.ndarray:
    """The global coins in the order of the case."""
    found: list[float] = []
    for coin, value in case.coins.items():
        frame = fitted.parameters[coin]
        if not isinstance(value, dict):
            found.append(frame["probability"][0])
            continue
        rows = {
            key if len(key) > 1 else key[0]: probability
            for *key_parts, probability in frame.select(*case.keys[coin], "probability").rows()
            for key in [tuple(key_parts)]
        }
        found += [rows[key] for key in value]
    return np.array(found)


def true_values(case: Case) -> np.ndarray:
    return np.concatenate(
        [list(v.values()) if isinstance(v, dict) else [v] for v in case.coins.values()]
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_global_coins_are_recovered_without_bias(case: Case) -> None:
    errors = []
    for seed in range(N_SEEDS):
        log, truth = simulated(case, seed)
        forms = {name: weak() for name in case.by_doc} | case.forms()
        fitted = case.model(**forms).fit(log, THOROUGH, intervals=False)
        errors.append(estimated(fitted, case) - true_values(case))
        at_fit, at_truth = objectives(fitted, truth, log)
        assert at_fit >= at_truth - 1e-9 * abs(at_truth)
    found = np.array(errors)
    mean, spread = found.mean(axis=0), found.std(axis=0, ddof=1)
    is_free = spread > 0  # an anchored row has no error at all
    assert (found[:, ~is_free] == 0).all()
    assert (np.abs(mean) < 3 * spread / np.sqrt(N_SEEDS))[is_free].all(), (mean, spread)
    assert spread.max() < 0.05  # the claim above is worth something
