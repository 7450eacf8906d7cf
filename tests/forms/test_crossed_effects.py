"""Sums of several tables: held against optimisers, quadrature and simulated truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, log_ndtr, logsumexp, ndtr
from scipy.stats import norm, qmc

import gecasmo
from gecasmo import DBN, DCTR, ClickLog, Logistic, Sum, Table, read_log
from gecasmo.encoding import Rows
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.forms import crossed, features, linear
from gecasmo.forms.features import CodedFeatures, DesignMatrix
from gecasmo.forms.form import Posterior
from gecasmo.forms.linear import solve_iteratively
from gecasmo.forms.links import LINKS
from gecasmo.kernels.static.row_steps import CHUNK
from gecasmo.kernels.threads import using_threads
from gecasmo.testing import plain_python
from strategies.checks import many

CROSSED = (Table("query", "doc"), Table("doc"), Table("query"))


def grid_rows(n_queries: int, n_docs: int, seed: int = 0) -> Rows:
    """Every query with every document, and a feature."""
    query, doc = (a.ravel() for a in np.indices((n_queries, n_docs)))
    x = np.random.default_rng(seed).normal(size=len(query)).round(2)
    columns = [pl.Series("query", query), pl.Series("doc", doc)]
    return Rows(("query", "doc"), columns, len(query), {"x": pl.Series("x", x)})


def believed(form: Sum, rows: Rows, heads: Any, tails: Any) -> Any:
    """What a form makes of counts that are seen, as at the end of a fit."""
    state = form.begin(rows, None)
    for _ in range(3):
        state = form.fit(rows, heads, tails, state)
        p = form.predict(state, rows)
        state = form.tuned(state, rows, heads, tails, (heads + tails) * p * (1 - p))
    state = form.fit(rows, heads, tails, state)
    p = form.predict(state, rows)
    return form.believed(state, rows, heads, tails, (heads + tails) * p * (1 - p))


def market(n_pages: int, seed: int, spreads: Any = (0.5, 0.8, 0.6)) -> tuple[ClickLog, np.ndarray]:
    """Pages of 40 queries with 5 of 60 documents; effects of pairs, documents and queries."""
    rng = np.random.default_rng(seed)
    pair, doc, query = (
        s * rng.normal(size=shape)
        for s, shape in zip(spreads, ((40, 60), 60, (40, 1)), strict=True)
    )
    chance = expit(-1 + pair + doc + query)
    asked = rng.integers(0, 40, n_pages)
    shown = np.argsort(rng.random((n_pages, 60)), axis=1)[:, :5]
    table = {
        "session": np.repeat(np.arange(n_pages), 5),
        "query": np.repeat(asked, 5),
        "doc": shown.ravel(),
        "rank": np.tile(np.arange(1, 6), n_pages),
        "click": (rng.random((n_pages, 5)) < chance[asked[:, None], shown]).ravel(),
    }
    return read_log(table), chance


# -- the M-step ------------------------------------------------------------------------------------
@pytest.mark.parametrize("link", ["logit", "probit"])
@pytest.mark.parametrize("is_dense", [True, False])
def test_effects_are_the_most_likely_ones(link: str, is_dense: bool, monkeypatch) -> None:
    if not is_dense:
        monkeypatch.setattr(linear, "_DENSE", 0)
    rng = np.random.default_rng(1)
    rows = grid_rows(4, 5)
    heads, tails = rng.gamma(0.7, 4, 20), rng.gamma(0.7, 4, 20)
    heads[:3], tails[4:6] = 0.0, 0.0
    spreads = (0.7, 1.2, 0.4)
    form = Sum(*CROSSED, Logistic("x", l2=0.5), link=link, spread=spreads, key=("query", "doc"))
    state = form.begin(rows, None)
    for _ in range(3):
        state = form.fit(rows, heads, tails, state)
    x = rows.attached["x"].to_numpy()
    query, doc = (rows.frame[name].to_numpy() for name in ("query", "doc"))
    design = np.hstack(
        [
            np.ones((20, 1)),
            ((x - x.mean()) / x.std())[:, None],
            np.eye(20),
            np.eye(5)[doc],
            np.eye(4)[query],
        ]
    )
    precision = np.repeat([0, 0.5, *(s**-2.0 for s in spreads)], [1, 1, 20, 5, 4])
    up = (lambda e: -np.logaddexp(0, -e)) if link == "logit" else log_ndtr

    def loss(b: np.ndarray) -> float:
        eta = design @ b
        return -(heads @ up(eta) + tails @ up(-eta)) + 0.5 * float(precision @ b**2)

    best = minimize(loss, np.zeros(31), method="BFGS", options={"gtol": 1e-8, "maxiter": 5000})
    wanted = LINKS[link].probability(design @ best.x)
    np.testing.assert_allclose(form.predict(state, rows), wanted, atol=2e-4)
    constant = sum(n * np.log(s) for n, s in zip((20, 5, 4), spreads, strict=True))
    ours = LINKS[link].log_likelihood(heads, tails, LINKS[link].predictor(wanted)).sum()
    assert ours + form.penalty(state) + constant == pytest.approx(-best.fun, rel=1e-5)


# -- what is believed ------------------------------------------------------------------------------
@pytest.mark.parametrize("link", ["logit", "probit"])
def test_a_sum_of_one_table_is_a_table_with_a_normal_prior(link: str) -> None:
    """Rows around an intercept that nobody knows, all integrated by brute force."""
    rng = np.random.default_rng(2)
    n, spread = 12, 0.8
    flips = rng.integers(1, 15, n).astype(float)
    heads = rng.binomial(flips.astype(int), 0.3).astype(float)
    rows = Rows(("doc",), [pl.Series("doc", range(n))], n)
    form = Sum(Table("doc"), link=link, spread=spread)
    state = believed(form, rows, heads, flips - heads)
    u, b = np.linspace(-6, 6, 401), np.linspace(-4, 3, 201)
    eta = b[:, None] + spread * u
    up = (lambda e: -np.logaddexp(0, -e)) if link == "logit" else log_ndtr
    joint = heads[:, None, None] * up(eta) + (flips - heads)[:, None, None] * up(-eta)
    joint = joint - 0.5 * u**2
    by_row = logsumexp(joint, axis=2)  # [row, intercept]
    level = np.exp(by_row.sum(axis=0) - by_row.sum(axis=0).max())
    level /= level.sum()
    share = np.exp(joint - by_row[:, :, None])
    p = expit(eta) if link == "logit" else ndtr(eta)
    mean = (share * p).sum(axis=2) @ level
    square = (share * p**2).sum(axis=2) @ level
    told: Posterior = form.posterior(
        state, rows, form.predict(state, rows), np.stack([flips - heads, heads])
    )
    np.testing.assert_allclose(told.mean, mean, atol=0.004)
    np.testing.assert_allclose(told.spread, np.sqrt(square - mean**2), rtol=0.05)


def test_spreads_are_the_most_likely_ones_with_all_effects_integrated_out() -> None:
    """Documents by quadrature, queries and the intercept by quasi-random points."""
    rng = np.random.default_rng(5)
    n_queries, n_docs = 4, 25
    rows = grid_rows(n_queries, n_docs)
    query, doc = (rows.frame[name].to_numpy() for name in ("query", "doc"))
    eta = -0.5 + 1.0 * rng.normal(size=n_docs)[doc] + 0.9 * rng.normal(size=n_queries)[query]
    flips = np.full(len(rows), 6.0)
    heads = rng.binomial(6, expit(eta)).astype(float)
    form = Sum(Table("doc"), Table("query"), key=("query", "doc"))
    state = believed(form, rows, heads, flips - heads)
    by = heads.reshape(n_queries, n_docs)
    centre = np.log((by.sum(axis=1) + 1) / (6 * n_docs - by.sum(axis=1) + 1))
    drawn = norm.ppf(qmc.Sobol(n_queries, seed=0).random(2**10))
    at = centre + 0.5 * drawn  # intercept plus the effect of each query, and what a draw is worth
    worth = 0.5 * (drawn**2).sum(axis=1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(21)

    def log_likelihood(of_doc: float, of_query: float) -> float:
        there = at[:, :, None] + of_doc * nodes  # [draw, query, node]
        total = np.einsum("qd,mqn->mdn", by, -np.logaddexp(0, -there))
        total += np.einsum("qd,mqn->mdn", 6 - by, -np.logaddexp(0, there))
        apart = ((at - at.mean(axis=1, keepdims=True)) ** 2).sum(axis=1) / of_query**2
        prior = -0.5 * apart - (n_queries - 1) * np.log(of_query)  # the intercept may be anything
        by_draw = logsumexp(total, b=weights, axis=2).sum(axis=1) + prior + worth
        return float(logsumexp(by_draw))

    own = log_likelihood(state.tables[0].spread, state.tables[1].spread)
    grid = np.exp(np.linspace(np.log(0.3), np.log(2.5), 10))
    best = max(log_likelihood(a, b) for a in grid for b in grid)
    assert own > best - 0.1


@pytest.mark.parametrize("dense", [600, 0])
def test_beliefs_hold_the_truth_of_crossed_effects(dense: int, monkeypatch) -> None:
    """Exactly for few effects, by messages for many."""
    monkeypatch.setattr(crossed, "DENSE", dense)
    truth, found, covered, of_docs = np.array([0.5, 0.8, 0.6]), [], [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        rows = grid_rows(30, 40)
        query, doc = (rows.frame[name].to_numpy() for name in ("query", "doc"))
        effects = [s * rng.normal(size=n) for s, n in zip(truth, (1200, 40, 30), strict=True)]
        eta = -1 + effects[0] + effects[1][doc] + effects[2][query]
        flips = rng.poisson(4, 1200).astype(float)
        heads = rng.binomial(flips.astype(int), expit(eta)).astype(float)
        state = believed(Sum(*CROSSED), rows, heads, flips - heads)
        belief = state.belief
        found.append([state.tables[n].spread for n in (2, 0, 1)])
        covered.append(np.abs(belief.row_mean - eta) < 1.645 * np.sqrt(belief.row_variance))
        at = slice(1, 41)
        of_docs.append(np.abs(belief.mean[at] - effects[1]) < 1.645 * np.sqrt(belief.variance[at]))
    np.testing.assert_allclose(np.mean(found, axis=0), truth, rtol=0.2)
    assert 0.87 < np.mean(covered) < 0.93
    assert 0.8 < np.mean(of_docs) < 0.97


def test_messages_find_the_variances_of_the_whole_matrix(monkeypatch) -> None:
    rng = np.random.default_rng(3)
    rows = grid_rows(20, 30)
    flips = rng.poisson(3, 600).astype(float)
    heads = rng.binomial(flips.astype(int), 0.3).astype(float)
    form = Sum(*CROSSED, Logistic("x"), spread=(0.5, 0.8, 0.6), key=("query", "doc"))
    exact = believed(form, rows, heads, flips - heads).belief
    monkeypatch.setattr(crossed, "DENSE", 0)
    other = believed(form, rows, heads, flips - heads).belief
    assert exact.is_dense
    assert not other.is_dense
    np.testing.assert_allclose(other.row_mean, exact.row_mean, atol=0.02)
    np.testing.assert_allclose(other.row_variance, exact.row_variance, rtol=0.2)
    np.testing.assert_allclose(other.covariance, exact.covariance[:2, :2], rtol=0.1, atol=2e-3)


def test_flips_that_may_not_have_been_made_are_told_by_what_they_say() -> None:
    """A skip that was looked at with some probability is 1 - sure p, and a hidden head likewise."""
    rng = np.random.default_rng(4)
    p, seen = rng.uniform(0.05, 0.6, 50), rng.uniform(0.3, 0.95, 50)
    slope = -seen * p * (1 - p) / (1 - seen * p)
    information = slope**2 - slope * (1 - 2 * p)
    heads, tails, sure = crossed.counts_like(p, slope, information)
    np.testing.assert_allclose(heads, 0.0)
    np.testing.assert_allclose(tails, 1.0, rtol=1e-9)
    np.testing.assert_allclose(sure[1], seen, rtol=1e-9)
    heads, tails, sure = crossed.counts_like(1 - p, -slope, information)
    np.testing.assert_allclose(heads, 1.0, rtol=1e-9)
    np.testing.assert_allclose(sure[0], seen, rtol=1e-9)
    counts = rng.poisson(3, (2, 50)).astype(float)
    flips = counts.sum(axis=0)
    again = crossed.counts_like(p, counts[0] - flips * p, flips * p * (1 - p))
    np.testing.assert_allclose(again[:2], counts, atol=1e-9)
    assert (again[2] == 1).all()


# -- many rows -------------------------------------------------------------------------------------
def walked(n_rows: int, seed: int) -> list[np.ndarray]:
    """All that is done with the rows of a design with levels, some of which were never seen."""
    rng = np.random.default_rng(seed)
    sizes, n_features = [7, 3], int(rng.integers(0, 3))
    levels = tuple(rng.integers(-1, size, n_rows) for size in sizes)
    coded = CodedFeatures(rng.normal(size=(n_rows, n_features)), levels)
    design = DesignMatrix(coded, sizes, intercept=False)
    vector, weight = rng.normal(size=design.n_columns), rng.gamma(1, 1, n_rows)
    precision, start = np.full(design.n_columns, 0.7), rng.normal(size=design.n_columns)
    found = [design.times(vector), design.transposed_times(weight)]
    found += [solve_iteratively(design, weight, precision, vector, start=start)]
    sure = np.where(rng.random((2, n_rows)) < 0.5, 1.0, rng.uniform(0.02, 1, (2, n_rows)))
    heads, tails = rng.poisson(2, (2, n_rows)) * rng.choice([0.5, 1.0, 40.0], n_rows)
    given = 0.1 * rng.normal(size=n_rows)
    around = 9 * rng.normal(size=n_rows), rng.gamma(1, 1, n_rows)
    prior = 3 * rng.normal(size=n_rows), 0.1 + rng.gamma(1, 1, n_rows)
    for link in LINKS.values():
        evidence = crossed.Evidence(
            design, heads, tails, given, precision, (), link, np.zeros(n_rows), sure
        )
        for of_rates in (False, True):
            found += crossed.tilted_moments(evidence, around, prior, of_rates)
    return found


def _close(one: list[np.ndarray], other: list[np.ndarray]) -> None:
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


@many(10)
@given(seed=st.integers(0, 10**6), n_rows=st.integers(1, 90))
def test_walks_over_rows_against_numpy(seed: int, n_rows: int) -> None:
    with plain_python(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "_SOLVED", 1e-12)
        plain = walked(n_rows, seed)
        for module in (features, crossed):
            patch.setattr(module, "MANY_ROWS", 0)
        _close(walked(n_rows, seed), plain)


def test_compiled_walks_on_any_number_of_threads(compiled: None, monkeypatch) -> None:
    monkeypatch.setattr(linear, "_SOLVED", 1e-12)
    n_rows = 2 * CHUNK + 311
    plain = walked(n_rows, 3)
    for module in (features, crossed):
        monkeypatch.setattr(module, "MANY_ROWS", 0)
    one, two = [], []
    for threads, found in ((1, one), (2, two)):
        with using_threads(threads):
            found += walked(n_rows, 3)
    _close(one, plain)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


# -- models with crossed effects -------------------------------------------------------------------
@pytest.fixture(scope="module")
def fitted() -> Any:
    log, chance = market(1500, seed=1)
    return DCTR(click_rate=Sum(*CROSSED)).fit(log, progress=False), log, chance


def test_rows_are_by_all_that_tables_and_features_name() -> None:
    by = Sum(*CROSSED, Table("rank"), Logistic("bm25"))
    assert DBN(attraction=by).keys["attraction"] == ("query", "doc", "rank", "bm25")
    assert DBN(continuation=Sum(Table("rank"))).keys["continuation"] == ("rank",)
    own = Sum(Table(), Table("rank"), Logistic("bm25"))
    assert DBN(attraction=own).keys["attraction"] == ("query", "doc", "rank")
    given = Sum(Table("doc"), Logistic("bm25"), key=("query", "doc"))
    assert DBN(attraction=given).keys["attraction"] == ("query", "doc")


def test_levels_that_were_never_seen_count_as_zero_and_as_uncertain_as_any(fitted: Any) -> None:
    model, _, _ = fitted
    asked = {"query": [3, 3, 999, 999], "doc": [7, 777, 7, 777]}
    told = model.estimates("click_rate", pl.DataFrame(asked))
    state = model.states()["click_rate"]
    assert told["rests_on"].to_list()[1:] == ["query", "doc", "prior"]
    assert (told["spread"][1:] > told["spread"][0]).all()
    intercept = model.coefficients["click_rate"]["coefficient"][0]
    total = np.sqrt((state.belief.spreads**2).sum())
    grid = np.linspace(-6, 6, 801)
    weight = np.exp(-0.5 * grid**2)
    mean = expit(intercept + total * grid) @ weight / weight.sum()
    assert told["probability"][3] == pytest.approx(mean, abs=0.01)
    is_new = model.predict_clicks(read_log({**_page(), "doc": [7, 777]}), frame=True)["unseen"]
    assert is_new.list.len().to_list()[1] == 1


def _page() -> dict[str, Any]:
    return {"session": [0, 0], "query": [3, 3], "doc": [7, 8], "rank": [1, 2], "click": [0, 0]}


def test_it_says_more_of_other_pages_than_tables_do(fitted: Any) -> None:
    _, log, _ = fitted
    rng = np.random.default_rng(9)
    order = rng.permutation(1500)
    train, held = log.take(order[:1000]), log.take(order[1000:])
    scores = [
        DCTR(click_rate=form).fit(train, progress=False).score(held)
        for form in (Sum(*CROSSED), Table(), Table("doc"))
    ]
    assert scores[0] > max(scores[1:])


def test_what_was_saved_is_loaded(fitted: Any, tmp_path: Any) -> None:
    model, log, _ = fitted
    model.save(tmp_path / "model")
    again = gecasmo.load(tmp_path / "model")
    assert repr(again.forms) == repr(model.forms)
    assert "spreads" in str(model)
    assert again.parameters["click_rate"].equals(model.parameters["click_rate"])
    assert again.parameters["click_rate"].columns[:6] == [
        *("query", "doc", "probability", "by_features", "effect_doc", "effect_query"),
    ]
    asked = pl.DataFrame({"query": [3, 999], "doc": [777, 7]})
    assert again.estimates("click_rate", asked).equals(model.estimates("click_rate", asked))
    assert again.estimates("click_rate").equals(model.estimates("click_rate"))
    np.testing.assert_array_equal(again.predict_clicks(log), model.predict_clicks(log))


def test_judgments_come_with_intervals(fitted: Any) -> None:
    model, _, chance = fitted
    judged = model.judgments(max_width=1.0, min_examinations=0).frame
    truth = chance[judged["query"].to_numpy(), judged["doc"].to_numpy()]
    held = (judged["low"].to_numpy() <= truth) & (truth <= judged["high"].to_numpy())
    assert 0.84 < held.mean() < 0.96


def test_a_stored_log_gives_the_same(tmp_path: Any, compiled: None) -> None:
    log, _ = market(500, seed=2)
    stored = ClickLog.ingest(log.to_frame(), tmp_path / "log.gclog", partitions=4, progress=False)
    form = Sum(Table("query", "doc"), Table("doc"))
    one, other = (DCTR(click_rate=form).fit(each, progress=False) for each in (log, stored))
    key = ["query", "doc"]
    a, b = (model.estimates("click_rate").sort(key) for model in (one, other))
    assert a.select(key).equals(b.select(key), null_equal=True)
    np.testing.assert_allclose(a["probability"], b["probability"], atol=2e-3)
    np.testing.assert_allclose(a["spread"], b["spread"], rtol=0.05)


def test_columns_that_are_not_there_are_named() -> None:
    log, _ = market(20, seed=3)
    with pytest.raises(ClickLogError, match="'brand'"):
        DCTR(click_rate=Sum(Table("doc"), Table("brand"))).fit(log)
    with pytest.raises(ClickLogError, match="reads the column 'bm25'"):
        DCTR(click_rate=Sum(Table("doc"), Logistic("bm25"))).fit(log)
    with pytest.raises(ModelError, match="one table of these is enough"):
        DCTR(click_rate=Sum(Table(), Table("query", "doc"))).fit(log)
