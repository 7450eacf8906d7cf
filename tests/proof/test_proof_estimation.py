"""EM climbs, stops where the score is zero, and ends no lower than the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecasmo import EM, Table, read_log
from gecasmo.models import CATALOGUE
from strategies.cases import Case, cases, make_plain
from strategies.checks import close_to, many
from strategies.trees import as_model
from strategies.zoo import SHAPES, ZooCase, with_columns_of


def climbs(history: Any) -> None:
    objective = history["objective"].to_numpy()
    assert np.isfinite(objective).all()
    assert (np.diff(objective) >= -1e-9 * np.maximum(1, np.abs(objective[1:]))).all()


@pytest.mark.filterwarnings("ignore:The coin .* never flipped")  # said without pseudo-counts
@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("augmentation", ["minimal", "full"])
@many(20)
@given(case=cases(), counts=st.sampled_from([(1.0, 1.0), (0.0, 0.0), (0.5, 2.0)]))
def test_em_never_lowers_the_objective(
    augmentation: str, accelerate: bool, case: Case, counts: Any
) -> None:
    forms = {coin: Table(pseudo_counts=counts) for coin in case.program.keys}
    model = make_plain(as_model(case.program)(**forms))
    method = EM(12, tol=0, accelerate=accelerate, augmentation=augmentation, restarts=1, seed=3)
    climbs(model.fit(case.log, method, threads=1).history)


@many(20)
@given(case=cases(extremes=False))
def test_a_fit_from_the_truth_ends_no_lower(case: Case) -> None:
    model = make_plain(as_model(case.program)())
    model.fit(case.log, EM(20, tol=0, restarts=1), start=case.model, threads=1)
    objective = model.history["objective"]
    assert objective[-1] >= objective[0] - 1e-9
    # What the history begins with is the penalised objective at the truth, by enumeration.
    likelihood = sum(
        w * np.log(o.likelihood(s))
        for w, o, s in zip(case.weights, case.oracles, case.shown, strict=True)
    )
    close_to(model.history["log_likelihood"][0], likelihood, 1e-9)


@many(20)
@given(case=cases(extremes=False), counts=st.sampled_from([(1.0, 1.0), (0.5, 2.0)]))
def test_one_m_step_is_the_formula(case: Case, counts: Any) -> None:
    """(heads + a) / (heads + tails + a + b) of the oracle's counts at the truth."""
    forms = {coin: Table(pseudo_counts=counts) for coin in case.program.keys}
    model = make_plain(as_model(case.program)(**forms))
    method = EM(1, tol=0, accelerate=False, augmentation="full", restarts=1)
    model.fit(case.log, method, start=case.model, threads=1)
    total: dict[Any, np.ndarray] = {}
    for weight, oracle, shown in zip(case.weights, case.oracles, case.shown, strict=True):
        for key, sides in oracle.counts(shown).items():
            total[key] = total.get(key, np.zeros(2)) + weight * np.array(sides)
    for coin, frame in model.parameters.items():
        for row in frame.rows():
            heads, tails = total.get((coin, row[:-3]), np.zeros(2))
            close_to(row[-3], (heads + counts[0]) / (heads + tails + sum(counts)), 1e-9)


@pytest.mark.parametrize("augmentation", ["minimal", "full"])
@pytest.mark.parametrize("name", ["DBN", "UBM", "CCM", "DCM"])
def test_the_score_is_zero_at_the_fixed_point(name: str, augmentation: str) -> None:
    case = ZooCase(name, seed=21, n_pages=40)
    a, b = 1.0, 1.5
    cls = CATALOGUE[name]
    model = cls(**{coin: Table(pseudo_counts=(a, b)) for coin in cls._parameters()})
    if augmentation == "full":
        make_plain(model)
    model.fit(case.log, EM(600, tol=0, augmentation=augmentation))
    climbs(model.history)
    for frame in model.parameters.values():
        theta, heads, tails = (frame[c].to_numpy() for c in ("probability", "heads", "tails"))
        close_to(heads + a - (heads + tails + a + b) * theta, 0 * theta, 1e-5)


@pytest.mark.parametrize("name", ["DBN", "UBM", "CCM"])
def test_both_augmentations_end_at_the_same_objective(name: str) -> None:
    case = ZooCase(name, seed=22, n_pages=30)
    ends = []
    for augmentation in ("minimal", "full"):
        model = make_plain(CATALOGUE[name]())
        model.fit(case.log, EM(400, tol=0, augmentation=augmentation), threads=1)
        ends.append(model.history["objective"][-1])
    close_to(ends[0], ends[1], 1e-6)


def simulated(name: str, seed: int, n_pages: int = 400) -> tuple[Any, Any]:
    """A log drawn from the model itself, and the model that drew it."""
    generator = np.random.default_rng(seed)
    docs = np.concatenate([generator.permutation(6)[:5] for _ in range(n_pages)])
    table = {
        "session": np.repeat(np.arange(n_pages), 5),
        "query": np.repeat(generator.integers(0, 3, n_pages), 5),
        "doc": docs,
        "rank": np.tile(np.arange(1, 6), n_pages),
        "click": np.zeros(5 * n_pages, int),
    }
    keys = {
        "query": list(range(3)),
        "doc": list(range(6)),
        "rank": list(range(1, 6)),
        "last_click": list(range(5)),
        "clicks_above": list(range(5)),
    }
    values: dict[str, Any] = {}
    for coin, parameter in CATALOGUE[name]._parameters().items():
        grid: list[tuple[Any, ...]] = [()]
        for key in parameter.keys:
            grid = [(*row, value) for row in grid for value in keys.get(key, range(6))]
        drawn = {row: float(generator.uniform(0.1, 0.9)) for row in grid}
        values[coin] = drawn if parameter.keys else drawn[()]
    truth = CATALOGUE[name].with_values(**values)
    return truth.simulate(with_columns_of(truth, read_log(table)), seed=seed), truth


@pytest.mark.parametrize("name", SHAPES)
def test_a_fit_ends_no_lower_than_the_truth(name: str) -> None:
    log, truth = simulated(name, seed=31)
    at_truth = CATALOGUE[name]().fit(
        log, EM(1, tol=0, accelerate=False), start=truth, impossible="drop"
    )
    model = CATALOGUE[name]().fit(log, EM(300, tol=0), impossible="drop")
    climbs(model.history)
    assert model.history["objective"][-1] >= at_truth.history["objective"][0] - 1e-6


@pytest.mark.parametrize("name", ["GCTR", "RCTR", "DCTR", "CountingDCM", "CountingSDBN"])
def test_models_without_hidden_data_need_one_step(name: str) -> None:
    log, _ = simulated(name, seed=32)
    once = CATALOGUE[name]().fit(log, EM(1, tol=0, accelerate=False), impossible="drop")
    often = CATALOGUE[name]().fit(log, EM(9, tol=0, accelerate=False), impossible="drop")
    for coin, frame in once.parameters.items():
        close_to(frame["probability"], often.parameters[coin]["probability"], 1e-12)


def test_exactly_so_many_m_steps_are_made() -> None:
    log, _ = simulated("DBN", seed=33, n_pages=50)
    for n in (1, 4):
        model = CATALOGUE["DBN"]().fit(log, EM(n, tol=0, accelerate=False))
        assert model.history["iteration"].to_list() == list(range(n + 1))
