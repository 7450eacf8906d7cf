"""Logistic forms: the M-step, standard errors, features of every kind, and what may go wrong."""

from __future__ import annotations

import copy
import itertools
import pickle
import time
import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

import gecasmo
from gecasmo import DBN, EM, GCTR, UBM, ClickModel, Logistic, Parameter, Table, flip, read_log
from gecasmo.encoding import Rows
from gecasmo.errors import ConvergenceWarning, GecasmoWarning, ModelError
from gecasmo.estimation import information
from gecasmo.forms import linear
from gecasmo.forms.features import CodedFeatures, DesignMatrix
from gecasmo.forms.linear import WeightedRegression
from gecasmo.logs import ClickLog

THOROUGH = EM(max_iter=3000, tol=1e-12)


# -- made-up data ----------------------------------------------------------------------------------
def rows_of(**columns: Any) -> Rows:
    series = [pl.Series(name, values) for name, values in columns.items()]
    return Rows(tuple(columns), series, len(series[0]))


def some_rows(seed: int, n: int = 60) -> tuple[Rows, np.ndarray, np.ndarray]:
    """Two numbers and a category, with heads and tails that are no whole numbers."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(7, 3, n), rng.exponential(100, n)
    c = rng.choice(["red", "green", "blue", "grey"], n)
    flips = rng.gamma(1.5, 4, n)
    p = expit(0.4 * (x - 7) - 0.01 * y + (c == "red") - 0.5 * (c == "grey"))
    heads = rng.binomial(50, p) / 50 * flips
    return rows_of(x=x, y=y, c=c), heads, flips - heads


def m_step(form: Logistic, rows: Rows, heads: np.ndarray, tails: np.ndarray) -> Any:
    return form.fit(rows, heads, tails, form.begin(rows, None))


def standardised(rows: Rows, columns: tuple[str, ...], centre: bool) -> np.ndarray:
    """What the form says it does inside, written out: numbers standardised, texts one-hot."""
    numbers, texts = [], []
    for name in columns:
        values = rows.frame[name].to_numpy()
        if rows.frame[name].dtype == pl.String:
            texts += [(values == level).astype(float) for level in sorted(set(values))]
        else:
            numbers.append((values - (values.mean() if centre else 0.0)) / values.std())
    return np.column_stack([*numbers, *texts])


def clicks(n: int, length: int = 4, seed: int = 0, **columns: Any) -> dict[str, Any]:
    """Columns of pages without clicks; functions get a generator and the number of results."""
    rng = np.random.default_rng(seed)
    table: dict[str, Any] = {
        "session": np.repeat(np.arange(n), length),
        "query": np.repeat(rng.integers(0, 3, n), length),
        "doc": rng.integers(0, 12, n * length),
        "rank": np.tile(np.arange(1, length + 1), n),
    }
    for name, make in columns.items():
        table[name] = make(rng, n * length) if callable(make) else make
    return table


def one_coin(n: int, chance: Any, seed: int = 0, **columns: Any) -> ClickLog:
    """A log whose clicks are flips of one coin; `chance` computes it from the columns."""
    table = clicks(n, seed=seed, **columns)
    rng = np.random.default_rng(seed + 1)
    p = chance(table)
    return read_log({**table, "click": rng.random(len(p)) < p})


def browsed(n: int, seed: int, length: int = 5, n_docs: int = 40) -> ClickLog:
    """Users of a DBN whose coins are logistic in a feature of the document."""
    rng = np.random.default_rng(seed)
    taste = np.random.default_rng(77).normal(2, 2, n_docs).round(2)
    doc = rng.integers(0, n_docs, n * length)
    pages = read_log(
        {
            "session": np.repeat(np.arange(n), length),
            "query": np.repeat(rng.integers(0, 50, n), length),
            "doc": doc,
            "rank": np.tile(np.arange(1, length + 1), n),
            "x": taste[doc],
        },
        click=None,
    )
    truth = DBN.with_values(
        attraction=(Table(key="x"), dict(zip(taste, expit(-1.0 + 0.4 * taste), strict=True))),
        satisfaction=(Table(key="x"), dict(zip(taste, expit(0.5 - 0.3 * taste), strict=True))),
        continuation=0.8,
    )
    return truth.simulate(pages, seed=seed)


def dbn_of_x() -> DBN:
    return DBN(
        attraction=Logistic("x", l2=0),
        satisfaction=Logistic("x", l2=0),
        continuation=Table(pseudo_counts=(0, 0)),
    )


def terms(model: Any, coin: str = "click_rate") -> dict[str, tuple[float, float | None]]:
    frame = model.parameters[coin].select("term", "coefficient", "standard_error")
    return {term: (value, error) for term, value, error in frame.rows()}


# -- the M-step ------------------------------------------------------------------------------------
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("l2", [0.2, 1.0, 30.0])
@pytest.mark.parametrize("columns", [("x",), ("x", "y"), ("c",), ("y", "c", "x")])
def test_the_m_step_is_that_of_scikit_learn(columns, l2: float, intercept: bool) -> None:
    rows, heads, tails = some_rows(1)
    form = Logistic(*columns, l2=l2, intercept=intercept)
    features = standardised(rows, columns, centre=intercept)
    rival = LogisticRegression(
        C=1 / l2, fit_intercept=intercept, solver="newton-cholesky", tol=1e-12, max_iter=1000
    )
    rival.fit(
        np.vstack([features, features]),
        np.repeat([1, 0], len(rows)),
        sample_weight=np.concatenate([heads, tails]),
    )
    found = form.predict(m_step(form, rows, heads, tails), rows)
    np.testing.assert_allclose(found, rival.predict_proba(features)[:, 1], rtol=1e-6)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("columns", [("x",), ("c",), ("y", "c", "x")])
def test_without_a_prior_the_m_step_is_maximum_likelihood(columns, intercept: bool) -> None:
    rows, heads, tails = some_rows(2)
    features = standardised(rows, columns, centre=False)
    if intercept:
        features = np.column_stack([np.ones(len(rows)), features])

    def loss(b: np.ndarray) -> tuple[float, np.ndarray]:
        logits = features @ b
        value = heads @ np.logaddexp(0, -logits) + tails @ np.logaddexp(0, logits)
        return value, features.T @ ((heads + tails) * expit(logits) - heads)

    best = minimize(loss, np.zeros(features.shape[1]), jac=True, method="BFGS", tol=1e-9)
    form = Logistic(*columns, l2=0, intercept=intercept)
    state = m_step(form, rows, heads, tails)
    np.testing.assert_allclose(form.predict(state, rows), expit(features @ best.x), rtol=1e-5)
    assert form.penalty(state) == 0


def test_the_m_step_never_ends_below_its_start() -> None:
    """Also not from far away, where plain Newton steps jump to and fro."""
    rows, heads, tails = some_rows(3)
    form = Logistic("x", "y", "c", l2=0.1)
    state = form.begin(rows, None)
    best = form.predict(m_step(form, rows, heads, tails), rows)
    for scale in (1, 5, 25):
        vector = np.random.default_rng(scale).normal(0, scale, len(state.coefficients))
        found = form.fit(rows, heads, tails, form.from_vector(state, vector))
        np.testing.assert_allclose(form.predict(found, rows), best, rtol=1e-5)


def test_rows_without_flips_play_no_part() -> None:
    rows, heads, tails = some_rows(4)
    heads[10:], tails[10:] = 0.0, 0.0
    form = Logistic("x", l2=0)
    few = rows_of(x=rows.frame["x"][:10])
    full = form.predict(m_step(form, rows, heads, tails), rows)
    alone = form.predict(m_step(form, few, heads[:10], tails[:10]), few)
    np.testing.assert_allclose(full[:10], alone, rtol=1e-7)


def test_a_coin_that_is_never_flipped_stays_at_its_prior() -> None:
    rows, heads, _ = some_rows(5)
    nothing = np.zeros_like(heads)
    for l2 in (0, 1):
        form = Logistic("x", "c", l2=l2)
        assert form.predict(m_step(form, rows, nothing, nothing), rows).tolist() == [0.5] * 60


@pytest.mark.parametrize("l2", [0, 0.5])
@pytest.mark.parametrize("intercept", [True, False])
def test_all_ways_to_solve_the_equations_agree(monkeypatch, l2: float, intercept: bool) -> None:
    rows, heads, tails = some_rows(6, n=200)
    form = Logistic("x", "y", "c", l2=l2, intercept=intercept)
    usual = form.predict(m_step(form, rows, heads, tails), rows)
    with monkeypatch.context() as patch:
        patch.setattr(linear, "_DENSE", 0)  # conjugate gradients
        np.testing.assert_allclose(
            form.predict(m_step(form, rows, heads, tails), rows), usual, rtol=1e-6
        )
    with monkeypatch.context() as patch:
        patch.setattr(linear, "_PIECE", 7)  # rows in pieces, on threads
        np.testing.assert_allclose(
            form.predict(m_step(form, rows, heads, tails), rows), usual, rtol=1e-9
        )


@pytest.mark.parametrize("intercept", [True, False])
def test_effects_of_levels_are_deviations_from_their_average(intercept: bool) -> None:
    for l2 in (0, 1):
        rows, heads, tails = some_rows(7)
        form = Logistic("c", l2=l2, intercept=intercept)
        effects = m_step(form, rows, heads, tails).coefficients
        assert len(effects) == 4 + intercept
        if intercept:
            assert effects[1:].sum() == pytest.approx(0, abs=1e-9)


# -- the design matrix -----------------------------------------------------------------------------
@st.composite
def designs(draw: Any) -> tuple[DesignMatrix, np.ndarray, np.random.Generator]:
    """A design and the same matrix written out; level -1 is one that was never seen."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, n_numeric = draw(st.integers(1, 30)), draw(st.integers(0, 3))
    sizes = draw(st.lists(st.integers(1, 5), max_size=3))
    intercept = draw(st.booleans())
    numeric = rng.normal(size=(n, n_numeric))
    levels = tuple(rng.integers(-1, size, n) for size in sizes)
    dense = [np.ones((n, 1))] if intercept else []
    dense += [numeric]
    dense += [np.eye(s + 1)[column][:, :s] for column, s in zip(levels, sizes, strict=True)]
    return DesignMatrix(CodedFeatures(numeric, levels), sizes, intercept), np.hstack(dense), rng


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(made=designs())
def test_the_design_is_a_one_hot_matrix(made: Any) -> None:
    design, dense, rng = made
    n, k = dense.shape
    assert (design.n_rows, design.n_columns) == (n, k)
    vector, per_row, weight = rng.normal(size=k), rng.normal(size=n), rng.uniform(0, 2, n)
    close = {"rtol": 1e-11, "atol": 1e-11}
    np.testing.assert_allclose(design.times(vector), dense @ vector, **close)
    np.testing.assert_allclose(design.transposed_times(per_row), dense.T @ per_row, **close)
    normal = dense.T @ (weight[:, None] * dense)
    np.testing.assert_allclose(design.normal_matrix(weight), normal, **close)
    np.testing.assert_allclose(design.squares(weight), np.diag(normal), **close)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(made=designs(), variance=st.sampled_from([None, 0.01, 1.0, 100.0]))
def test_newton_ends_where_the_slope_is_zero(made: Any, variance: float | None) -> None:
    design, dense, rng = made
    n, k = dense.shape
    heads, tails = rng.gamma(1, 2, n) + 0.1, rng.gamma(1, 2, n) + 0.1
    precision = rng.uniform(0.1, 2, k)
    offsets = None if variance is None else np.zeros(n)
    solution = WeightedRegression(design, heads, tails, precision, variance).maximise(
        np.zeros(k), offsets
    )
    logits = dense @ solution.coefficients
    if variance is not None:
        assert solution.offsets is not None
        logits = logits + solution.offsets
    residual = heads - (heads + tails) * expit(logits)
    np.testing.assert_allclose(dense.T @ residual, precision * solution.coefficients, atol=1e-4)
    if variance is not None:
        np.testing.assert_allclose(residual, solution.offsets / variance, atol=1e-4)
    assert not solution.is_separated


# -- coefficients ----------------------------------------------------------------------------------
def test_coefficients_are_in_the_units_of_the_columns() -> None:
    log = one_coin(
        300,
        lambda t: expit(0.02 * t["x"] - 2 + (t["c"] == "b")),
        x=lambda rng, n: rng.normal(100, 40, n).round(1),
        c=lambda rng, n: rng.choice(list("abc"), n),
    )
    model = GCTR(click_rate=Logistic("x", "c", l2=0.3)).fit(log)
    assert list(terms(model)) == ["intercept", "x", "c=a", "c=b", "c=c"]
    value = {term: coefficient for term, (coefficient, _) in terms(model).items()}
    assert value["c=a"] + value["c=b"] + value["c=c"] == pytest.approx(0, abs=1e-9)
    asked = pl.DataFrame({"x": [0.0, 150.0, -3.0, 80.0], "c": ["a", "c", "b", "never seen"]})
    by_hand = [
        value["intercept"] + value["x"] * x + value.get(f"c={c}", 0.0) for x, c in asked.rows()
    ]
    np.testing.assert_allclose(logit(model.probability("click_rate", asked)), by_hand, rtol=1e-9)
    np.testing.assert_allclose(
        model.predict_clicks(log), model.probability("click_rate", log.to_frame())
    )
    frame = model.coefficients["click_rate"]
    assert frame.equals(model.parameters["click_rate"])
    np.testing.assert_allclose(frame["odds_ratio"], np.exp(frame["coefficient"]))
    np.testing.assert_allclose(frame["z"], frame["coefficient"] / frame["standard_error"])


def test_coefficients_without_an_intercept_multiply_the_columns_as_they_are() -> None:
    log = one_coin(
        200,
        lambda t: expit(0.3 * t["x"]),
        x=lambda rng, n: rng.normal(3, 1, n).round(1),
        c=lambda rng, n: rng.choice(list("ab"), n),
    )
    model = GCTR(click_rate=Logistic("x", "c", intercept=False)).fit(log)
    value = {term: coefficient for term, (coefficient, _) in terms(model).items()}
    assert list(value) == ["x", "c=a", "c=b"]
    found = model.probability("click_rate", {"x": [0.0, 2.0], "c": ["zzz", "b"]})
    np.testing.assert_allclose(logit(found), [0.0, 2 * value["x"] + value["c=b"]], atol=1e-12)


def test_adding_a_number_to_a_column_changes_nothing_and_scaling_scales() -> None:
    log = one_coin(200, lambda t: expit(t["x"]), x=lambda rng, n: rng.normal(0, 1, n).round(2))
    moved = read_log(log.to_frame().with_columns(x=1e6 + 1000 * pl.col("x")))
    first, second = (terms(GCTR(click_rate=Logistic("x")).fit(data)) for data in (log, moved))
    np.testing.assert_allclose(second["x"], np.array(first["x"]) / 1000, rtol=1e-6)
    assert first["intercept"][0] == pytest.approx(second["intercept"][0] + 1e6 * second["x"][0])


# -- standard errors -------------------------------------------------------------------------------
def textbook(features: np.ndarray, p: np.ndarray) -> np.ndarray:
    return np.linalg.inv(features.T @ ((p * (1 - p))[:, None] * features))


@pytest.mark.parametrize("key", [None, "result"])
def test_with_nothing_hidden_errors_are_those_of_the_textbook(key: str | None) -> None:
    log = one_coin(
        400,
        lambda t: expit(0.5 * t["x"] - 0.8 * t["y"]),
        x=lambda rng, n: rng.normal(5, 2, n).round(0),
        y=lambda rng, n: rng.integers(0, 2, n),
    )
    model = GCTR(click_rate=Logistic("x", "y", l2=0, key=key)).fit(log)
    features = np.column_stack([np.ones(log.n_results), log.column("x"), log.column("y")])
    covariance = textbook(features, model.predict_clicks(log))
    np.testing.assert_allclose(
        model.parameters["click_rate"]["standard_error"], np.sqrt(np.diag(covariance)), rtol=1e-5
    )


def test_errors_of_levels_are_those_of_deviations_from_their_average() -> None:
    log = one_coin(
        400,
        lambda t: np.choose(t["kind"], [0.2, 0.5, 0.7, 0.4]),
        kind=lambda rng, n: rng.choice(4, n, p=[0.7, 0.2, 0.08, 0.02]),
    )
    log = read_log(log.to_frame().with_columns(c=pl.col("kind").cast(pl.String)))
    model = GCTR(click_rate=Logistic("c", l2=0)).fit(log)
    # Each level by itself has a logit of its own; their average and deviations are linear in them.
    one_hot = np.eye(4)[log.column("kind").to_numpy()]
    by_level = textbook(one_hot, model.predict_clicks(log))
    change = np.vstack([np.full((1, 4), 0.25), np.eye(4) - 0.25])
    np.testing.assert_allclose(
        model.parameters["click_rate"]["standard_error"],
        np.sqrt(np.diag(change @ by_level @ change.T)),
        rtol=1e-5,
    )


def test_weights_of_sessions_count_as_repetitions_also_in_the_errors() -> None:
    log = one_coin(60, lambda t: expit(t["x"]), x=lambda rng, n: rng.normal(0, 1, n).round(1))
    heavy = read_log(log.to_frame().with_columns(w=pl.lit(4.0)), weight="w")
    light, heavier = (terms(GCTR(click_rate=Logistic("x", l2=0)).fit(t)) for t in (log, heavy))
    for term in ("intercept", "x"):
        assert heavier[term][0] == pytest.approx(light[term][0], rel=1e-6)
        assert heavier[term][1] == pytest.approx(light[term][1] / 2, rel=1e-5)


def marginal(model: DBN, log: ClickLog) -> Any:
    """The log-likelihood as a function of the five numbers of `dbn_of_x`, in plain units."""
    scales = {coin: model.states()[coin].coding for coin in ("attraction", "satisfaction")}

    def value(numbers: np.ndarray) -> float:
        twin = model.copy()
        assert twin.states_ is not None
        for place, (coin, coding) in enumerate(scales.items()):
            intercept, slope = numbers[2 * place : 2 * place + 2]
            vector = np.array([intercept + slope * coding.mean[0], slope * coding.scale[0]])
            form: Any = twin.forms[coin]
            twin.states_[coin] = form.from_vector(twin.states_[coin], vector)
        form = twin.forms["continuation"]
        twin.states_["continuation"] = form.from_vector(twin.states_["continuation"], numbers[4:])
        return twin.score(log) * log.n_sessions

    return value


def numbers_of(model: DBN) -> np.ndarray:
    slopes = [model.parameters[c]["coefficient"] for c in ("attraction", "satisfaction")]
    return np.concatenate([*slopes, logit(model.parameters["continuation"]["probability"])])


def test_at_the_fit_the_slope_of_the_marginal_likelihood_is_zero() -> None:
    log = browsed(300, seed=1)
    model = dbn_of_x().fit(log, THOROUGH)
    at, value = numbers_of(model), marginal(model, log)
    errors = np.concatenate(
        [model.parameters[c]["standard_error"] for c in ("attraction", "satisfaction")]
    )
    for place in range(5):
        step = np.zeros(5)
        step[place] = 1e-4
        slope = (value(at + step) - value(at - step)) / 2e-4
        # In units of a standard error: the fit is off by a thousandth of one at most.
        assert abs(slope) * (errors[place] if place < 4 else 0.1) < 1e-3


def test_hidden_flips_widen_the_errors_to_those_of_the_marginal_likelihood() -> None:
    log = browsed(400, seed=2)
    model = dbn_of_x().fit(log, THOROUGH)
    at, value, n, h = numbers_of(model), marginal(model, log), 5, 2e-3
    curvature = np.zeros((n, n))
    for i, j in itertools.combinations_with_replacement(range(n), 2):
        corners = [
            a * b * value(at + h * (a * np.eye(n)[i] + b * np.eye(n)[j]))
            for a in (1, -1)
            for b in (1, -1)
        ]
        curvature[i, j] = curvature[j, i] = -sum(corners) / (4 * h * h)
    expected = np.sqrt(np.diag(np.linalg.inv(curvature)))
    found = [model.parameters[c]["standard_error"] for c in ("attraction", "satisfaction")]
    np.testing.assert_allclose(np.concatenate(found), expected[:4], rtol=2e-3)
    # Had the flips been seen, less would be open.
    for coin, errors in zip(("attraction", "satisfaction"), found, strict=True):
        counts = model.expected_counts(log)[coin]
        x = np.column_stack([np.ones(len(counts)), counts["x"]])
        p = model.probability(coin, counts)
        weight = (counts["heads"] + counts["tails"]).to_numpy() * p * (1 - p)
        complete = np.sqrt(np.diag(np.linalg.inv(x.T @ (weight[:, None] * x))))
        assert (np.array(errors) > 1.05 * complete).all()


def test_ninety_percent_intervals_cover_the_truth_about_that_often() -> None:
    covered = []
    for seed in range(40):
        model = dbn_of_x().fit(browsed(250, seed=100 + seed), EM(max_iter=2000, tol=1e-9))
        for coin, truth in (("attraction", (-1.0, 0.4)), ("satisfaction", (0.5, -0.3))):
            frame = model.parameters[coin]
            off = (frame["coefficient"] - pl.Series(truth)) / frame["standard_error"]
            covered += (off.abs() < norm.ppf(0.95)).to_list()
    assert len(covered) == 160
    assert 0.83 < np.mean(covered) < 0.96


def test_a_prior_narrows_the_errors() -> None:
    log = browsed(200, seed=3)
    errors = [
        DBN(attraction=Logistic("x", l2=l2)).fit(log).parameters["attraction"]["standard_error"][1]
        for l2 in (0, 1, 100)
    ]
    assert errors[0] > errors[1] > errors[2]


def test_rare_levels_have_errors_of_their_own() -> None:
    """Information of a handful of flips stands beside that of a hundred thousand."""
    table = clicks(25_000, c=lambda rng, n: np.where(np.arange(n) < 6, "rare", "common"))
    click = np.random.default_rng(0).random(100_000) < 0.3
    click[:6] = [True, False, False, True, False, False]
    model = GCTR(click_rate=Logistic("c", l2=0)).fit(read_log({**table, "click": click}))
    expected = np.sqrt(1 / (6 * (1 / 3) * (2 / 3))) / 2  # half a difference, half of it unknown
    assert terms(model)["c=rare"][1] == pytest.approx(expected, rel=1e-3)


def test_errors_from_a_part_of_the_pages_are_about_the_same(monkeypatch) -> None:
    log = browsed(4_000, seed=5)
    full = terms(dbn_of_x().fit(log), "attraction")
    monkeypatch.setattr(information, "_PAGES", 800)
    part = terms(dbn_of_x().fit(log), "attraction")
    for term in full:
        assert part[term][1] != full[term][1]
        assert part[term][1] == pytest.approx(full[term][1], rel=0.15)


def test_what_only_some_queries_have_is_not_lost_with_a_part_of_the_pages(monkeypatch) -> None:
    table = clicks(3_000)
    table["query"] = np.repeat(np.arange(3_000) % 100, 4)
    table["c"] = np.where(table["query"] < 4, "some", "others")
    click = np.random.default_rng(0).random(12_000) < 0.3
    log = read_log({**table, "click": click})
    full = terms(GCTR(click_rate=Logistic("c")).fit(log))
    monkeypatch.setattr(information, "_PAGES", 100)
    part = terms(GCTR(click_rate=Logistic("c")).fit(log))
    assert part["c=some"][1] == pytest.approx(full["c=some"][1], rel=0.3)


def test_many_coefficients_have_errors_that_say_what_they_leave_out(monkeypatch) -> None:
    """With nothing hidden they leave out nothing, and so can be compared."""
    log = one_coin(500, lambda t: 0.2 + 0.05 * t["doc"])
    form = {"categorical": "doc", "l2": 0.5}
    exact = terms(GCTR(click_rate=Logistic("doc", **form)).fit(log))
    monkeypatch.setattr(information, "MOST_PARAMETERS", 5)
    with pytest.warns(GecasmoWarning, match="too many coefficients for exact standard errors"):
        model = GCTR(click_rate=Logistic("doc", **form)).fit(log)
    for term, (_, error) in terms(model).items():
        assert error == pytest.approx(exact[term][1], rel=1e-5)


# -- features of every kind ------------------------------------------------------------------------
def fitted(column: Any, n: int = 150, **options: Any) -> GCTR:
    rng = np.random.default_rng(5)
    log = read_log({**clicks(n), "f": column, "click": rng.random(4 * n) < 0.4})
    return GCTR(click_rate=Logistic("f", **options)).fit(log)


def test_truth_values_are_numbers() -> None:
    flags = np.random.default_rng(0).random(600) < 0.5
    as_flags, as_numbers = fitted(pl.Series(flags)), fitted(flags.astype(float))
    assert terms(as_flags) == terms(as_numbers)
    np.testing.assert_allclose(
        as_flags.probability("click_rate", {"f": [True, False]}),
        as_numbers.probability("click_rate", {"f": [1.0, 0.0]}),
    )


@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt64, pl.Int32, pl.Float32])
def test_numbers_of_any_type(dtype: Any) -> None:
    values = np.random.default_rng(0).integers(0, 100, 600)
    wide, narrow = fitted(values.astype(float)), fitted(pl.Series(values, dtype=dtype))
    assert {k: pytest.approx(v) for k, v in terms(narrow).items()} == terms(wide)
    assert narrow.probability("click_rate", {"f": [3]})[0] == pytest.approx(
        wide.probability("click_rate", {"f": [3.0]})[0]
    )


def test_numbers_that_are_names() -> None:
    values = np.random.default_rng(0).integers(0, 3, 600)
    as_names, as_texts = fitted(values, categorical="f"), fitted(values.astype(str))
    assert list(terms(as_names)) == ["intercept", "f=0", "f=1", "f=2"]
    assert terms(as_names) == terms(as_texts)


def test_texts_of_any_type() -> None:
    values = np.random.default_rng(0).choice(["low", "high", "mid"], 600)
    plain = fitted(pl.Series(values))
    for dtype in (pl.Categorical, pl.Enum(["low", "mid", "high"])):
        other = fitted(pl.Series(values).cast(dtype))
        assert {k: pytest.approx(v) for k, v in terms(other).items()} == terms(plain)
        for asked in (pl.String, dtype):
            frame = pl.DataFrame({"f": pl.Series(["high", "low"]).cast(asked)})
            np.testing.assert_allclose(
                other.probability("click_rate", frame), plain.probability("click_rate", frame)
            )


def test_a_categorical_of_another_log_is_matched_by_its_texts() -> None:
    first = pl.Series(["a", "b", "c"] * 200, dtype=pl.Categorical)
    model = fitted(first)
    second = pl.Series(["c", "z", "a"], dtype=pl.Categorical)
    np.testing.assert_allclose(
        model.probability("click_rate", {"f": second}),
        model.probability("click_rate", {"f": ["c", "z", "a"]}),
    )


@pytest.mark.parametrize("l2", [0, 0.01, 1])
def test_a_level_never_seen_counts_as_average(l2: float) -> None:
    log = one_coin(
        300,
        lambda t: np.choose(t["kind"], [0.2, 0.5, 0.8]),
        kind=lambda rng, n: rng.integers(0, 3, n),
    )
    log = read_log(log.to_frame().with_columns(c=pl.col("kind").cast(pl.String)))
    model = GCTR(click_rate=Logistic("c", l2=l2)).fit(log)
    *seen, unseen = logit(model.probability("click_rate", {"c": ["0", "1", "2", "3"]}))
    assert unseen == pytest.approx(np.mean(seen), abs=1e-6)
    other = read_log(log.to_frame().with_columns(c=pl.lit("new")))
    frame = model.predict_clicks(other, frame=True)
    np.testing.assert_allclose(logit(frame["probability"]), unseen)
    assert frame["unseen"].to_list() == [["click_rate"]] * len(frame)
    assert model.predict_clicks(log, frame=True)["unseen"].to_list() == [[]] * len(frame)


def test_missing_numbers_count_as_the_mean() -> None:
    values = np.random.default_rng(0).normal(50, 10, 600).round(0)
    holes = np.arange(600) % 7 == 0
    with_holes = pl.Series(values).set(pl.Series(holes), None)
    model = fitted(with_holes, missing="mean")
    for broken in (np.nan, np.inf, -np.inf):
        other = fitted(np.where(holes, broken, values), missing="mean")
        assert terms(other) == terms(model)
    # The mean is that of the rows: of the distinct values, each of which is a row.
    mean = np.unique(values[~holes]).mean()
    asked = pl.DataFrame({"f": [None, np.nan, np.inf, mean]}, strict=False)
    found = model.probability("click_rate", asked)
    np.testing.assert_allclose(found, found[-1])
    by_hand = fitted(np.where(holes, mean, values), l2=0)
    assert terms(fitted(with_holes, missing="mean", l2=0))["f"][0] == pytest.approx(
        terms(by_hand)["f"][0], rel=1e-6
    )


def test_missing_texts_are_a_level_of_their_own() -> None:
    values = np.random.default_rng(0).choice(["a", "b"], 600).tolist()
    values[::5] = [None] * 120
    model = fitted(pl.Series(values, dtype=pl.String), missing="mean")
    named = fitted([value or "?" for value in values])
    assert set(terms(model)) == {"intercept", "f=None", "f=a", "f=b"}
    assert terms(model)["f=None"][0] == pytest.approx(terms(named)["f=?"][0], rel=1e-6)
    asked = pl.DataFrame({"f": pl.Series([None, "a", None], dtype=pl.String)})
    np.testing.assert_allclose(
        model.probability("click_rate", asked),
        named.probability("click_rate", {"f": ["?", "a", "?"]}),
    )
    nothing = pl.DataFrame({"f": [None]})  # a column without a type
    assert model.probability("click_rate", nothing)[0] == model.probability("click_rate", asked)[0]


def test_a_missing_text_that_the_fit_had_none_of_counts_as_average() -> None:
    model = fitted(["a", "b", "b"] * 200, missing="mean")
    asked = pl.DataFrame({"f": ["a", "b", None]})
    a, b, missing = logit(model.probability("click_rate", asked))
    assert missing == pytest.approx((a + b) / 2, abs=1e-6)


def test_a_column_of_nothing_but_holes_says_nothing() -> None:
    with pytest.warns(GecasmoWarning, match="the column 'f' is constant, so it says nothing"):
        model = fitted(pl.Series([None] * 600, dtype=pl.Float64), missing="mean")
    assert terms(model)["f"] == (0.0, None)


def test_very_large_and_very_small_numbers() -> None:
    values = np.random.default_rng(0).normal(0, 1, 600)
    usual = fitted(values)
    for scale in (1e-200, 1e-14, 1e14, 1e200):
        model = fitted(scale * values)
        np.testing.assert_allclose(
            model.probability("click_rate", {"f": scale * values}),
            usual.probability("click_rate", {"f": values}),
            rtol=1e-6,
        )


# -- separation and other bad luck -----------------------------------------------------------------
def warned(fit: Any) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = fit()
    return result, [str(w.message) for w in caught]


@pytest.mark.parametrize("n", [5, 250, 10_000])
@pytest.mark.parametrize("kind", ["number", "heads", "tails", "level", "no heads but a prior"])
def test_separation_is_said_and_stays_finite(n: int, kind: str) -> None:
    """Also if one level of few flips has only tails in a log of tens of thousands."""
    rng = np.random.default_rng(n)
    x = rng.normal(0, 1, 4 * n)
    c = np.where(np.arange(4 * n) % (4 * n // 3) == 0, "rare", rng.choice(["a", "b"], 4 * n))
    click = {
        "number": x > 0.3,
        "heads": np.ones(4 * n, bool),
        "tails": np.zeros(4 * n, bool),
        "level": (rng.random(4 * n) < 0.5) & (c != "rare"),
        "no heads but a prior": np.zeros(4 * n, bool),
    }[kind]
    log = read_log({**clicks(n), "x": x, "c": c, "click": click})
    l2 = 1 if kind == "no heads but a prior" else 0
    columns = ("c",) if kind == "level" else ("x",)
    model, said = warned(lambda: GCTR(click_rate=Logistic(*columns, l2=l2)).fit(log))
    assert len(said) == 1
    if kind in ("number", "level"):
        assert "The coin 'click_rate': its features separate heads from tails" in said[0]
        assert f"(largest: {'c=rare' if kind == 'level' else 'x'})" in said[0]
        assert "l2 > 0 or fewer features give an estimate" in said[0]
    else:
        side = "heads" if kind == "heads" else "tails"
        assert f"as far as the log shows it always comes up {side}" in said[0]
        assert "the best intercept would be infinite" in said[0]
    assert model.parameters["click_rate"]["coefficient"].is_finite().all()
    found = model.predict_clicks(log)
    assert ((found > 0) & (found < 1)).all()
    assert np.abs(found - click)[c == "rare"].max() < 1e-3
    errors = model.parameters["click_rate"]["standard_error"].drop_nulls()
    assert len(errors) == 0 or errors.max() > 10  # nobody takes such a coefficient for certain


def test_coefficients_that_creep_to_infinity_are_said_too() -> None:
    """With hidden flips no single M-step is separated: each goes a little further."""
    log = read_log({**clicks(100), "click": np.random.default_rng(0).random(400) < 0.4})
    model, said = warned(lambda: DBN(continuation=Logistic("query")).fit(log))
    assert len(said) == 1
    assert "The coin 'continuation': as far as the log shows it always comes up heads" in said[0]
    assert model.parameters["continuation"]["coefficient"].is_finite().all()


def test_a_prior_gives_separated_data_an_estimate() -> None:
    x = np.random.default_rng(0).normal(0, 1, 400)
    log = read_log({**clicks(100), "x": x, "click": x > 0})
    model, said = warned(lambda: GCTR(click_rate=Logistic("x", l2=1)).fit(log))
    assert not said
    assert 1 < terms(model)["x"][0] < 100


@pytest.mark.parametrize("l2", [0, 1])
@pytest.mark.parametrize("kind", ["prices", "outliers", "one surprise"])
def test_heavy_tails_are_no_separation(kind: str, l2: float) -> None:
    """Logits beyond 20 are nothing special where a feature has no bounds."""
    rng = np.random.default_rng(1)
    x = rng.lognormal(0, 1.5, 8_000) if kind == "prices" else rng.standard_t(2, 8_000)
    p = expit(x - 2)
    click = rng.random(8_000) < p
    if kind == "one surprise":
        x[17], click[17] = 60.0, False
    log = read_log({**clicks(2_000), "x": x, "click": click})
    model, said = warned(lambda: GCTR(click_rate=Logistic("x", l2=l2)).fit(log))
    assert not said
    z = (x - x.mean()) / x.std()
    rival = LogisticRegression(C=1 / max(l2, 1e-12), solver="newton-cholesky", tol=1e-10)
    rival.fit(z[:, None], click)
    assert terms(model)["x"][0] == pytest.approx(rival.coef_[0, 0] / x.std(), rel=1e-4)
    assert model.history["objective"].is_finite().all()
    assert model.history["objective"].is_sorted()


def test_the_unexpected_is_unlikely_but_never_impossible() -> None:
    log = one_coin(300, lambda t: expit(3 * t["x"]), x=lambda rng, n: rng.normal(0, 1, n))
    model = GCTR(click_rate=Logistic("x")).fit(log)
    for x, click in ((1e6, False), (-1e6, True)):
        surprise = read_log({**clicks(1), "x": np.full(4, x), "click": [click] * 4})
        assert -200 < model.score(surprise) < -100


def test_a_constant_column_is_said_and_does_no_harm() -> None:
    log = one_coin(100, lambda t: expit(t["x"]), x=lambda rng, n: rng.normal(0, 1, n).round(1))
    frame = log.to_frame().with_columns(k=pl.lit(3.7), t=pl.lit("same"))
    alone = GCTR(click_rate=Logistic("x", l2=0)).fit(log)
    for l2 in (0, 1):
        model, said = warned(
            lambda l2=l2: GCTR(click_rate=Logistic("x", "k", "t", l2=l2)).fit(read_log(frame))
        )
        assert said == [
            f"The coin 'click_rate': the column '{name}' is constant, so it says nothing."
            for name in ("k", "t")
        ]
        assert terms(model)["k"][0] == pytest.approx(0, abs=1e-9)
        assert terms(model)["t=same"][0] == pytest.approx(0, abs=1e-9)
        if l2 == 0:
            assert terms(model)["x"] == pytest.approx(terms(alone)["x"], rel=1e-5)
            assert terms(model)["k"][1] is None  # the data do not tell


def test_without_an_intercept_a_constant_column_is_one() -> None:
    log = one_coin(100, lambda t: expit(t["x"] + 1), x=lambda rng, n: rng.normal(0, 1, n).round(1))
    frame = log.to_frame().with_columns(k=pl.lit(2.0))
    with_one = GCTR(click_rate=Logistic("x", l2=0)).fit(log)
    model = GCTR(click_rate=Logistic("x", "k", l2=0, intercept=False)).fit(read_log(frame))
    assert 2 * terms(model)["k"][0] == pytest.approx(terms(with_one)["intercept"][0], rel=1e-5)


@pytest.mark.parametrize("l2", [0, 1])
def test_collinear_columns_are_named_and_their_sum_is_right(l2: float) -> None:
    log = one_coin(
        200,
        lambda t: expit(t["x"] - t["y"]),
        x=lambda rng, n: rng.normal(0, 1, n).round(1),
        y=lambda rng, n: rng.normal(0, 1, n).round(1),
    )
    frame = log.to_frame().with_columns(twice=2 * pl.col("x") + 5)
    model, said = warned(
        lambda: GCTR(click_rate=Logistic("x", "y", "twice", l2=l2)).fit(read_log(frame))
    )
    assert len(said) == 1
    assert "the columns x, twice are collinear: only their combined effect is known" in said[0]
    found = terms(model)
    assert np.isfinite([coefficient for coefficient, _ in found.values()]).all()
    assert found["x"][0] == pytest.approx(2 * found["twice"][0], rel=1e-4)  # equal, standardised
    if l2 == 0:
        alone = terms(GCTR(click_rate=Logistic("x", "y", l2=0)).fit(log))
        assert found["x"][0] + 2 * found["twice"][0] == pytest.approx(alone["x"][0], rel=1e-5)
        assert found["y"] == pytest.approx(alone["y"], rel=1e-5)
        assert found["x"][1] is None  # what the data do not tell apart has no error
        assert found["twice"][1] is None


def test_columns_that_differ_by_a_number_are_not_collinear_without_an_intercept() -> None:
    log = one_coin(100, lambda t: expit(t["x"]), x=lambda rng, n: rng.normal(0, 1, n).round(1))
    frame = log.to_frame().with_columns(y=pl.col("x") + 2)
    GCTR(click_rate=Logistic("x", "y", intercept=False)).fit(read_log(frame))  # no warning


def test_a_hundred_thousand_levels() -> None:
    rng = np.random.default_rng(0)
    n_levels, n = 100_000, 60_000
    table = clicks(n)
    effect, level = rng.normal(0, 1, n_levels), rng.integers(0, n_levels, 4 * n)
    x = rng.normal(0, 1, 4 * n).round(0)
    click = rng.random(4 * n) < expit(effect[level] + 0.5 * x - 1)
    log = read_log({**table, "c": level, "x": x, "click": click})
    began = time.perf_counter()
    form = Logistic("c", "x", categorical="c")
    with pytest.warns(GecasmoWarning, match="it has too many coefficients for standard errors"):
        model = GCTR(click_rate=form).fit(log)
    frame = model.parameters["click_rate"]
    assert time.perf_counter() - began < 60
    # The slope of the objective, level by level, is zero.
    p = model.predict_clicks(log)
    seen = np.unique(level)
    pull = np.bincount(level, weights=click - p, minlength=n_levels)[seen]
    np.testing.assert_allclose(pull, frame["coefficient"][2:], atol=1e-4)
    assert abs((click - p).sum()) < 1e-3
    assert terms(model)["x"][0] == pytest.approx(0.5, abs=0.15)
    assert frame["standard_error"].null_count() == len(frame)


# -- starting at another model ---------------------------------------------------------------------
def test_a_fit_goes_on_where_it_stopped() -> None:
    log = browsed(200, seed=8)
    model = DBN(attraction=Logistic("x"), satisfaction=Logistic("x"))
    with pytest.warns(ConvergenceWarning):
        model.fit(log, EM(max_iter=3, tol=1e-9))
    before = model.history["objective"][-1]
    model.fit(log, EM(max_iter=2000, tol=1e-9), start=model)
    assert model.history["objective"][0] == before
    fresh = DBN(attraction=Logistic("x"), satisfaction=Logistic("x")).fit(
        log, EM(max_iter=2000, tol=1e-9)
    )
    assert model.history["objective"][-1] == pytest.approx(fresh.history["objective"][-1], abs=1e-5)


@pytest.mark.parametrize("l2", [0.1, 20])
def test_where_a_fit_starts_does_not_decide_where_it_ends(l2: float) -> None:
    """The prior belongs to the scales of this log, not to those of another."""

    def make(seed: int, width: float, levels: str) -> ClickLog:
        return one_coin(
            150,
            lambda t: expit(0.3 * t["x"] - 1),
            seed=seed,
            x=lambda rng, n: rng.normal(3, width, n).round(1),
            c=lambda rng, n: rng.choice(list(levels), n),
        )

    here, there = make(1, 1, "abc"), make(2, 10, "bcd")
    form = Logistic("x", "c", l2=l2)
    other = GCTR(click_rate=form).fit(there)
    fresh = GCTR(click_rate=form).fit(here)
    model = GCTR(click_rate=form).fit(here, start=other)
    assert {k: pytest.approx(v, rel=1e-5) for k, v in terms(model).items()} == terms(fresh)
    # It did start there: what the other model says of levels that both know.
    kept = read_log(here.to_frame().with_columns(c=pl.col("c").replace("a", "b")))
    first = GCTR(click_rate=form).fit(kept, EM(1, tol=0), start=other).history["log_likelihood"][0]
    assert first == pytest.approx(other.log_likelihood(kept).sum())


def test_a_form_with_an_intercept_does_not_misread_one_without() -> None:
    log = one_coin(
        150,
        lambda t: expit(t["x"]),
        x=lambda rng, n: rng.normal(1, 1, n).round(1),
        c=lambda rng, n: rng.choice(list("ab"), n),
    )
    forms = [Logistic("x", "c", intercept=intercept) for intercept in (True, False)]
    fits = [GCTR(click_rate=form).fit(log) for form in forms]
    for form, fresh, other in zip(forms, fits, fits[::-1], strict=True):
        model = GCTR(click_rate=form).fit(log, start=other)
        assert {k: pytest.approx(v, rel=1e-5) for k, v in terms(model).items()} == terms(fresh)


def test_starting_at_tables_means_the_closest_regression() -> None:
    log = browsed(200, seed=9)
    values = DBN.with_values(attraction=0.2, satisfaction=0.7, continuation=0.9)
    model = DBN(attraction=Logistic("x"), satisfaction=Logistic("x"))
    model.fit(log, EM(max_iter=1, tol=0), start=values)
    assert model.history["log_likelihood"][0] == pytest.approx(values.log_likelihood(log).sum())
    fit = DBN(attraction=Table(key="x"), satisfaction=Table(key="x")).fit(log)
    model.fit(log, EM(max_iter=1, tol=0), start=fit)
    flat = DBN(attraction=Logistic("x")).fit(log, EM(max_iter=1, tol=0)).history["log_likelihood"]
    assert model.history["log_likelihood"][0] > flat[0] + 10


def test_a_regression_is_a_start_for_tables_of_its_columns() -> None:
    log = browsed(200, seed=10)
    regression = dbn_of_x().fit(log)
    tables = DBN(attraction=Table(key="x"), satisfaction=Table(key="x"))
    tables.fit(log, EM(max_iter=1, tol=0), start=regression)
    assert tables.history["log_likelihood"][0] == pytest.approx(
        regression.log_likelihood(log).sum()
    )


def test_a_start_with_other_rows_is_refused() -> None:
    log = browsed(50, seed=11)
    tables, regression = DBN().fit(log), DBN(attraction=Logistic("x")).fit(log)
    with pytest.raises(ModelError, match="Rows by x cannot be found in a table by query, doc"):
        DBN(attraction=Logistic("x")).fit(log, start=tables)
    with pytest.raises(ModelError, match="Rows by query, doc have no column 'x': a model to start"):
        DBN().fit(log, start=regression)
    with pytest.raises(ModelError, match="Rows by doc cannot be found in a table by query, doc"):
        DBN(attraction=Table(key="doc")).fit(log, start=tables)


def test_random_starts_differ_so_that_mixtures_part() -> None:
    rows = rows_of(c=["a", "b", "c"])
    for form in (Logistic("c"), Logistic("c", intercept=False)):
        starts = [
            form.predict(form.begin(rows, np.random.default_rng(seed)), rows) for seed in range(3)
        ]
        assert len({start.round(6).tobytes() for start in starts}) == 3
        assert all((start != 0.5).all() for start in starts)


# -- keeping ---------------------------------------------------------------------------------------
def test_save_and_load_bit_by_bit(tmp_path: Any) -> None:
    log = one_coin(
        200,
        lambda t: expit(t["x"]),
        x=lambda rng, n: rng.normal(0, 1, n).round(1),
        y=lambda rng, n: rng.integers(0, 3, n),
        c=lambda rng, n: rng.choice(["a", "b", "ü, ="], n),
    )
    holes = log.to_frame().with_columns(
        x=pl.when(pl.col("y") == 1).then(None).otherwise(pl.col("x")),
        twice=2 * pl.col("y"),
    )
    log = read_log(holes)
    form = Logistic("x", "y", "c", "twice", categorical="y", missing="mean", l2=0)
    model = GCTR(click_rate=form).fit(log)
    model.save(tmp_path / "model")
    again = gecasmo.load(tmp_path / "model")
    assert repr(again.forms["click_rate"]) == repr(form)
    assert again.parameters["click_rate"].equals(model.parameters["click_rate"])
    np.testing.assert_array_equal(again.predict_clicks(log), model.predict_clicks(log))
    asked = pl.DataFrame({"x": [None, 3.0], "y": [7, 1], "c": ["?", "a"], "twice": [0, 9]})
    np.testing.assert_array_equal(
        again.probability("click_rate", asked), model.probability("click_rate", asked)
    )
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_errors_that_the_data_do_not_tell_are_saved_as_such(tmp_path: Any) -> None:
    log = one_coin(80, lambda t: expit(t["x"]), x=lambda rng, n: rng.normal(0, 1, n).round(1))
    log = read_log(log.to_frame().with_columns(y=3 * pl.col("x")))
    model, _ = warned(lambda: GCTR(click_rate=Logistic("x", "y", l2=0)).fit(log))
    assert model.parameters["click_rate"]["standard_error"].null_count() == 2
    model.save(tmp_path / "model")
    assert (
        gecasmo.load(tmp_path / "model")
        .parameters["click_rate"]
        .equals(model.parameters["click_rate"])
    )


def test_fits_can_be_pickled_and_copied() -> None:
    log = one_coin(50, lambda t: expit(t["x"]), x=lambda rng, n: rng.normal(0, 1, n).round(1))
    model = GCTR(click_rate=Logistic("x")).fit(log)
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), model.copy()):
        np.testing.assert_array_equal(twin.predict_clicks(log), model.predict_clicks(log))


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Logistic("a"), "Logistic('a')"),
        (Logistic("a", "b", l2=0.25), "Logistic('a', 'b', l2=0.25)"),
        (Logistic("a", l2=0, intercept=False), "Logistic('a', l2=0, intercept=False)"),
        (Logistic("a", categorical="a"), "Logistic('a', categorical=('a',))"),
        (
            Logistic("a", missing="mean", key="result"),
            "Logistic('a', missing='mean', key='result')",
        ),
        (Logistic("a", key=("q", "d")), "Logistic('a', key=('q', 'd'))"),
    ],
)
def test_a_form_prints_as_it_is_written(form: Logistic, text: str) -> None:
    assert repr(form) == text
    assert repr(eval(text)) == text


def test_the_model_says_what_its_forms_read() -> None:
    log = browsed(60, seed=1)
    model = DBN(attraction=Logistic("x"))
    assert "Logistic('x')" in repr(model)
    assert "2 coefficients" in repr(model.fit(log))
    assert model.keys == {
        "attraction": ("x",),
        "satisfaction": ("query", "doc"),
        "continuation": (),
    }


# -- what a row is ---------------------------------------------------------------------------------
def test_rows_are_the_distinct_combinations_of_the_columns() -> None:
    log = one_coin(
        200,
        lambda t: np.full(len(t["doc"]), 0.4),
        device=lambda rng, n: np.repeat(rng.choice(["phone", "desk"], n // 4), 4),
        age=lambda rng, n: np.repeat(rng.integers(0, 3, n // 4), 4),
    )
    model = DBN(continuation=Logistic("device", "age"))
    counts = model.fit(log, EM(max_iter=3, tol=0)).expected_counts(log)["continuation"]
    assert counts.columns[:2] == ["device", "age"]
    assert len(counts) == 6


def test_one_row_per_result_says_the_same_as_one_per_combination() -> None:
    log = browsed(150, seed=4)
    fits = [
        DBN(attraction=Logistic("x", l2=0, key=key), satisfaction=Logistic("x", l2=0, key=key)).fit(
            log, THOROUGH
        )
        for key in (None, "doc", "result")
    ]
    assert len(fits[2].expected_counts(log)["attraction"]) == log.n_results
    for other in fits[1:]:
        for coin in ("attraction", "satisfaction"):
            for term, (value, error) in terms(fits[0], coin).items():
                assert terms(other, coin)[term] == pytest.approx((value, error), rel=1e-3)


class Ads(ClickModel):
    """Users may overlook advertisements."""

    overlooking = Parameter()
    attraction = Parameter("doc")

    def browse(self, user, result):
        if result.is_ad and flip(self.overlooking):
            return
        if flip(self.attraction):
            user.click()


def test_every_result_its_own_row_together_with_guards() -> None:
    """A feature that changes from page to page, in a program that asks the log."""
    rng = np.random.default_rng(2)
    table = clicks(700)
    n = len(table["doc"])
    price, is_ad = rng.normal(10, 3, n).round(2), rng.random(n) < 0.4
    p = expit(2 - 0.25 * price) * np.where(is_ad, 0.5, 1.0)
    log = read_log({**table, "price": price, "is_ad": is_ad, "click": rng.random(n) < p})
    model = Ads(attraction=Logistic("price", key="result")).fit(log)
    assert terms(model, "attraction")["price"][0] == pytest.approx(-0.25, abs=0.05)
    assert model.parameters["overlooking"]["probability"][0] == pytest.approx(0.5, abs=0.1)
    found = model.probability("attraction", {"price": price})
    overlooked = model.parameters["overlooking"]["probability"][0]
    np.testing.assert_allclose(
        model.predict_clicks(log), found * np.where(is_ad, 1 - overlooked, 1.0), rtol=1e-9
    )
    assert model.predict_clicks(log, frame=True)["unseen"].list.len().sum() == 0


# -- what the clicks above say, as features --------------------------------------------------------
@pytest.mark.parametrize(
    "form",
    [
        Logistic("rank", "distance", categorical=("rank", "distance")),
        Logistic("rank", "last_click", "clicks_above"),
        Logistic("distance", "bold", l2=0.5),
    ],
)
def test_predictions_without_clicks_sum_over_all_clicks_above(form: Logistic) -> None:
    rng = np.random.default_rng(3)
    table = clicks(80, length=4, bold=lambda rng, n: rng.integers(0, 2, n))
    table["click"] = rng.random(320) < 0.4
    model = UBM(examination=form, attraction=Table(key="doc")).fit(read_log(table))
    asked = {name: values[:8] for name, values in table.items()}
    found = model.predict_clicks(read_log(asked))
    for page in (0, 1):
        part = pl.DataFrame(asked).slice(4 * page, 4)
        attraction = model.probability("attraction", part)
        chance = np.zeros(4)
        for pattern in itertools.product((False, True), repeat=4):
            last, n_clicks, probability = 0, 0, 1.0
            for place, click in enumerate(pattern):
                rank = place + 1
                row = {
                    "rank": [rank],
                    "last_click": [last],
                    "distance": [rank - last],
                    "clicks_above": [n_clicks],
                    "bold": [part["bold"][place]],
                }
                p = attraction[place] * model.probability("examination", row)[0]
                probability *= p if click else 1 - p
                if click:
                    last, n_clicks = rank, n_clicks + 1
            chance += probability * np.array(pattern)
        np.testing.assert_allclose(found[4 * page : 4 * page + 4], chance, rtol=1e-9)


def test_levels_that_only_other_clicks_would_reach_are_average() -> None:
    """Nobody clicked twice, yet predictions have to think of it."""
    table = clicks(40, length=3)
    table["click"] = np.tile([True, False, False], 40)
    log = read_log(table)
    form = Logistic("clicks_above", categorical="clicks_above")
    model, _ = warned(lambda: UBM(examination=form, attraction=Table(key=())).fit(log))
    assert list(terms(model, "examination")) == ["intercept", "clicks_above=0", "clicks_above=1"]
    assert np.isfinite(model.predict_clicks(log)).all()
