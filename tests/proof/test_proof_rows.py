"""The likelihood of a row as a function of its probability, against enumeration of every story."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from gecasmo import CCM, DBN, PBM, UBM, Table, read_log
from gecasmo.estimation import Expectation
from gecasmo.estimation.coins import as_weights
from gecasmo.estimation.posteriors.likelihood import Asked, RowLikelihood
from gecasmo.estimation.posteriors.sweeps import Sweeps
from gecasmo.testing import plain_python
from oracle.brute_force import Oracle
from strategies.cases import Case, cases
from strategies.checks import close_to, many
from strategies.trees import as_story

POINTS = (3, 12, 20, 28)


def likelihoods(
    model: Any, log: Any, augmentation: str = "minimal", prior: float = 1.0
) -> tuple[dict[str, RowLikelihood], Any, Expectation, list[Any]]:
    """The likelihoods of the rows of all coins that have some, at a model's probabilities."""
    encoded = model.encode(log, "e_step", augmentation)
    expectation = Expectation(encoded, model.library(encoded.plan, counting=True), augmentation)
    weights = [
        as_weights(np.asarray(form.predict(model.states()[coin], rows)))
        for (coin, form), rows in zip(model.forms.items(), encoded.rows, strict=True)
    ]
    asked = {
        coin: Asked(
            number,
            weights[number][1],
            np.full((2, len(encoded.rows[number])), prior),
            np.ones(len(encoded.rows[number]), bool),
        )
        for number, coin in enumerate(model.forms)
        if encoded.plan.coins[number].scope != "global"
    }
    # In a first sweep every row stands at its probability.
    found = Sweeps(expectation).run(weights, list(asked.values())).likelihoods
    by_coin = {coin: found[one.coin] for coin, one in asked.items()}
    return by_coin, encoded, expectation, weights


def at(likelihood: RowLikelihood, row: int, point: int) -> float:
    return float(1 / (1 + np.exp(-(likelihood.low[row] + likelihood.step[row] * point))))


@pytest.mark.parametrize("augmentation", ["minimal", "full"])
@many(25)
@given(case=cases(extremes=False, max_pages=4, max_results=3))
def test_against_enumeration(augmentation: str, case: Case) -> None:
    with plain_python():
        found, encoded, _, _ = likelihoods(case.model, case.log, augmentation)
    names = list(case.model.forms)
    for coin, likelihood in found.items():
        rows = encoded.rows[names.index(coin)].frame.rows()
        for number in range(min(len(rows), 2)):
            key = rows[number]
            told = [_log_likelihood(case, coin, key, at(likelihood, number, k)) for k in POINTS]
            ours = likelihood.values[number, list(POINTS)]
            worth = ours > -25  # below that, both are nothing
            if worth.any():
                first = int(np.argmax(worth))
                close_to((ours - ours[first])[worth], (np.array(told) - told[first])[worth], 1e-6)


def _log_likelihood(case: Case, coin: str, key: Any, value: float) -> float:
    """Of all pages, with one row of one coin set to a value; by enumeration."""

    def probability(name: str, row: Any) -> float:
        own = row if isinstance(row, tuple) else (row,)
        return value if name == coin and own == key else case.values(name, row)

    total = 0.0
    for page, shown, weight in zip(case.pages, case.shown, case.weights, strict=True):
        total += weight * np.log(
            Oracle(as_story(case.program, page), probability).likelihood(shown)
        )
    return total


def small_log(n: int, repeats: bool, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    docs = [rng.choice(5, 4, replace=repeats) for _ in range(n)]
    return read_log(
        {
            "session": np.repeat(np.arange(n), 4),
            "query": np.repeat(rng.integers(0, 3, n), 4),
            "doc": np.concatenate(docs),
            "rank": np.tile(np.arange(1, 5), n),
            "click": rng.random(4 * n) < 0.3,
        }
    )


@pytest.mark.parametrize("repeats", [False, True], ids=["once", "shown twice"])
@pytest.mark.parametrize(
    "model",
    [
        DBN.with_values(attraction=0.3, satisfaction=0.6, continuation=0.8),
        UBM.with_values(attraction=0.3, examination=0.7),
        PBM.with_values(attraction=0.3, examination=0.7),
        CCM.with_values(
            attraction=0.3,
            continuation_after_skip=0.9,
            continuation_after_click=0.7,
            continuation_after_satisfaction=0.4,
        ),
        DBN(attraction=Table(key="doc"), continuation=Table(key="query")),
    ],
    ids=lambda model: f"{model.name} {model.keys.get('continuation', '')}",
)
def test_against_e_steps_at_every_point(model: Any, repeats: bool) -> None:
    """Moving a row and running the whole log again gives the same; compiled, on more pages."""
    log = small_log(200, repeats, seed=5)
    if not model.is_fitted:
        model = model.fit(log)
    found, _, expectation, weights = likelihoods(model, log)
    names = list(model.forms)
    for coin, likelihood in found.items():
        number = names.index(coin)
        for row in range(0, len(likelihood), 4):
            told = []
            for point in POINTS:
                moved = [w.copy() for w in weights]
                p = at(likelihood, row, point)
                moved[number][:, row] = 1 - p, p
                told.append(expectation.run(moved).log_likelihood)
            ours = likelihood.values[row, list(POINTS)]
            worth = ours > -200
            first = int(np.argmax(worth))
            close_to((ours - ours[first])[worth], (np.array(told) - told[first])[worth], 1e-7)


@pytest.mark.parametrize("length", [20, 40])
def test_a_coin_that_long_pages_flip_all_over(length: int) -> None:
    rng = np.random.default_rng(length)
    n = 60
    log = read_log(
        {
            "session": np.repeat(np.arange(n), length),
            "query": np.repeat(rng.integers(0, 3, n), length),
            "doc": np.tile(np.arange(length), n),
            "rank": np.tile(np.arange(1, length + 1), n),
            "click": rng.random(n * length) < 0.1,
        }
    )
    model = DBN(
        attraction=Table(key="query"), satisfaction=Table(key=()), continuation=Table(key="query")
    ).fit(log)
    found, _, expectation, weights = likelihoods(model, log)
    for coin in ("attraction", "continuation"):
        number = list(model.forms).index(coin)
        for row in range(3):
            told = []
            for point in POINTS:
                moved = [w.copy() for w in weights]
                p = at(found[coin], row, point)
                moved[number][:, row] = 1 - p, p
                told.append(expectation.run(moved).log_likelihood)
            ours = found[coin].values[row, list(POINTS)]
            close_to(ours - ours[1], np.array(told) - told[1], 1e-7)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_same_on_any_number_of_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from gecasmo.estimation.posteriors import likelihood as module
    from gecasmo.kernels.threads import using_threads

    monkeypatch.setattr(module, "_RESULTS_AT_ONCE", 1_000)
    log = small_log(3_000, False, seed=1)
    model = DBN.with_values(attraction=0.3, satisfaction=0.6, continuation=0.8)
    one, _, _, _ = likelihoods(model, log)
    with using_threads(threads):
        other, _, _, _ = likelihoods(model, log)
    for coin, likelihood in one.items():
        assert np.array_equal(likelihood.values, other[coin].values)
        assert np.array_equal(likelihood.known, other[coin].known)
        assert likelihood.known.all()
