"""Sums: covariates plus an offset per row, shrunk as much as the log says."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, logit

import gecasmo
from gecasmo import DBN, EM, GCTR, ClickModel, Logistic, Parameter, Sum, Table, flip, read_log
from gecasmo.encoding import Rows
from gecasmo.errors import ClickLogError, GecasmoWarning, ModelError
from gecasmo.estimation import Problem
from gecasmo.forms import linear
from gecasmo.logs import ClickLog


class Taste(ClickModel):
    """One coin per document; nothing is hidden."""

    taste = Parameter("doc")

    def browse(self, user, result):
        if flip(self.taste):
            user.click()


# -- made-up data ----------------------------------------------------------------------------------
def market(
    n_docs: int, per_doc: int, spread: float, seed: int, hidden: bool = False
) -> tuple[ClickLog, np.ndarray]:
    """Documents whose logits are -1 + 0.8 x + offset, each shown so often; and their chances."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n_docs).round(3)
    chance = expit(-1 + 0.8 * x + rng.normal(0, 1, n_docs) * spread)
    n = n_docs * per_doc // 5 * 5
    doc = rng.permutation(np.repeat(np.arange(n_docs), per_doc))[:n]
    table = {
        "session": np.repeat(np.arange(n // 5), 5),
        "query": np.repeat(rng.integers(0, 30, n // 5), 5),
        "doc": doc,
        "rank": np.tile(np.arange(1, 6), n // 5),
        "x": x[doc],
        "click": rng.random(n) < chance[doc],
    }
    log = read_log(table)
    if hidden:
        truth = DBN.with_values(
            attraction=(Table(key="doc"), dict(enumerate(chance.tolist()))),
            satisfaction=0.4,
            continuation=0.85,
        )
        log = truth.simulate(log, seed=seed)
    return log, chance


def fit(log: ClickLog, form: Any, method: EM | None = None, **options: Any) -> Any:
    return Taste(taste=form).fit(log, method, **options)


def spread_of(model: Any, coin: str = "taste") -> float:
    return float(model.states()[coin].spread)


def by_doc(model: Any) -> pl.DataFrame:
    return model.parameters["taste"].sort("doc")


def coefficients(model: Any) -> list[float]:
    return model.coefficients["taste"]["coefficient"].to_list()


def averaged(logits: np.ndarray, spread: float) -> np.ndarray:
    """The mean of probabilities with normal logits."""
    grid = np.linspace(-8, 8, 1601)
    weight = np.exp(-0.5 * grid**2)
    return expit(logits[:, None] + spread * grid) @ weight / weight.sum()


# -- between a regression and a table --------------------------------------------------------------
def test_with_a_tiny_spread_it_is_the_regression() -> None:
    log, _ = market(40, 20, 1.0, seed=1)
    plain = fit(log, Logistic("x", key="doc"))
    model = fit(log, Sum(Logistic("x"), spread=1e-4))
    # A regression tells the most likely coefficients, a sum their means.
    np.testing.assert_allclose(coefficients(model), coefficients(plain), rtol=0.02)
    np.testing.assert_allclose(model.predict_clicks(log), plain.predict_clicks(log), rtol=0.03)
    np.testing.assert_allclose(
        model.coefficients["taste"]["standard_error"],
        plain.coefficients["taste"]["standard_error"],
        rtol=0.02,
    )


@pytest.mark.parametrize("spread", [1e-4, 0.3, 0.9])
def test_means_are_those_of_quadrature(spread: float) -> None:
    """Both coefficients on a grid, and offsets by quadrature at each of its points."""
    n = 14
    log, _ = market(n, 15, 1.0, seed=21)
    model = fit(log, Sum(Logistic("x"), spread=spread))
    frame = by_doc(model)
    heads, tails = (frame[side].to_numpy() for side in ("heads", "tails"))
    x = log.to_frame().unique("doc").sort("doc")["x"].to_numpy()
    z = (x - x.mean()) / x.std()
    level, slope = (
        a.ravel() for a in np.meshgrid(np.linspace(-4, 3, 141), np.linspace(-3, 4, 141))
    )
    nodes, weights = np.polynomial.hermite_e.hermegauss(31)
    posterior = -0.5 * slope**2 - 0.5e-3 * level**2
    means = []
    for doc in range(n):
        eta = (level + slope * z[doc])[:, None] + spread * nodes
        joint = -heads[doc] * np.logaddexp(0, -eta) - tails[doc] * np.logaddexp(0, eta)
        share = np.exp(joint) * weights
        posterior = posterior + np.log(share.sum(axis=1))
        means.append((share * expit(eta)).sum(axis=1) / share.sum(axis=1))
    chance = np.exp(posterior - posterior.max())
    chance /= chance.sum()
    np.testing.assert_allclose(frame["probability"], np.array(means) @ chance, atol=5e-4)
    told = model.coefficients["taste"]
    by_x = slope / x.std()
    mean = by_x @ chance
    deviation = np.sqrt((by_x - mean) ** 2 @ chance)
    assert told["coefficient"][1] == pytest.approx(mean, abs=0.01 * deviation)
    assert told["standard_error"][1] == pytest.approx(deviation, rel=0.01)


def test_with_a_huge_spread_it_is_a_table_without_pseudo_counts() -> None:
    log, _ = market(40, 50, 1.0, seed=2)
    table = fit(log, Table(pseudo_counts=(0, 0)))
    model = fit(log, Sum(Logistic("x"), spread=300.0))
    # Of a row that always came up the same way, no mean is known without a prior.
    both = (table.parameters["taste"]["heads"] > 0).to_numpy()
    np.testing.assert_allclose(
        model.parameters["taste"]["probability"].to_numpy()[both],
        table.parameters["taste"]["probability"].to_numpy()[both],
        atol=1e-3,
    )


@pytest.mark.parametrize("spread", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("covariates", [Logistic("x", "c", l2=0.7), Logistic("c", intercept=False)])
def test_coefficients_and_offsets_are_the_best_there_are(covariates, spread: float) -> None:
    rng = np.random.default_rng(3)
    n = 25
    x, c = rng.normal(5, 2, n), rng.choice(["a", "b", "c"], n)
    heads, tails = rng.gamma(0.7, 5, n), rng.gamma(0.7, 5, n)
    heads[:3], tails[3:5] = 0.0, 0.0
    rows = Rows(
        ("doc",), [pl.Series(range(n))], n, {"x": pl.Series(x), "c": pl.Series(c, dtype=pl.String)}
    )
    form = Sum(covariates, spread=spread)
    state = form.fit(rows, heads, tails, form.begin(rows, None))
    parts = [np.ones((n, 1))] if covariates.intercept else []
    if "x" in covariates.columns:
        parts.append(((x - x.mean()) / x.std())[:, None])
    parts.append(np.array([c == level for level in "abc"], float).T)
    features = np.hstack(parts)
    k = features.shape[1]
    precision = np.full(k, covariates.l2)
    if covariates.intercept:
        precision[0] = 0.0

    def loss(numbers: np.ndarray) -> tuple[float, np.ndarray]:
        b, o = numbers[:k], numbers[k:]
        logits = features @ b + o
        value = heads @ np.logaddexp(0, -logits) + tails @ np.logaddexp(0, logits)
        value += 0.5 * (precision * b**2).sum() + 0.5 * (o**2).sum() / spread**2
        slope = (heads + tails) * expit(logits) - heads
        return value, np.concatenate([features.T @ slope + precision * b, slope + o / spread**2])

    best = minimize(loss, np.zeros(k + n), jac=True, method="BFGS", tol=1e-9)
    np.testing.assert_allclose(state.offsets, best.x[k:], atol=1e-4)
    np.testing.assert_allclose(
        logit(form.predict(state, rows)), features @ best.x[:k] + best.x[k:], atol=1e-4
    )
    likelihood = linear.binomial_log_likelihood(heads, tails, logit(form.predict(state, rows)))
    constant = n * np.log(spread)
    assert likelihood + form.penalty(state) + constant == pytest.approx(-best.fun, rel=1e-7)


def test_all_ways_to_solve_the_equations_agree(monkeypatch) -> None:
    log, _ = market(60, 10, 1.0, seed=4)
    form = Sum(Logistic("x", "rank", key="result"), spread=0.8)
    usual = fit(log, form).predict_clicks(log)
    for name, value in (("_DENSE", 0), ("_PIECE", 17)):
        with monkeypatch.context() as patch:
            patch.setattr(linear, name, value)
            np.testing.assert_allclose(fit(log, form).predict_clicks(log), usual, rtol=1e-6)


def test_frequent_rows_follow_their_own_data_and_rare_ones_their_features() -> None:
    rng = np.random.default_rng(0)
    often, seldom = np.zeros(1000, int), np.arange(1, 5).repeat(2)
    doc = np.concatenate([often, seldom, np.arange(5, 100).repeat(16)])[: 2500 // 5 * 5]
    n = len(doc) // 5 * 5
    doc = doc[:n]
    log = read_log(
        {
            "session": np.repeat(np.arange(n // 5), 5),
            "doc": doc,
            "rank": np.tile(np.arange(1, 6), n // 5),
            "x": (doc % 7).astype(float),
            "click": rng.random(n) < np.where(doc == 0, 0.9, 0.2),
        }
    )
    frame = by_doc(fit(log, Sum(Logistic("x"), spread=0.5)))
    assert frame.columns == [
        *("doc", "probability", "by_features", "offset", "heads", "tails"),
    ]
    observed = frame["heads"] / (frame["heads"] + frame["tails"])
    assert abs(frame["probability"][0] - observed[0]) < 0.02
    assert frame["by_features"][0] < 0.6
    rare = frame.slice(1, 4)
    np.testing.assert_allclose(rare["probability"], rare["by_features"], atol=0.1)
    np.testing.assert_allclose(
        frame["offset"], logit(frame["probability"]) - logit(frame["by_features"]), atol=0.1
    )


# -- the spread ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("n_docs", "per_doc", "truth", "hidden"),
    [
        (300, 5, 1.0, False),
        (300, 5, 2.0, False),
        (200, 20, 0.3, False),
        (200, 20, 1.0, False),
        (200, 20, 2.0, False),
        (100, 100, 0.5, False),
        (200, 20, 0.5, True),
        (200, 20, 1.0, True),
        (200, 20, 2.0, True),
    ],
)
def test_the_spread_is_learned(n_docs: int, per_doc: int, truth: float, hidden: bool) -> None:
    """Wherever it starts from; and by an average over a few logs, since each says little."""
    learned = []
    for seed in range(6):
        log, _ = market(n_docs, per_doc, truth, seed, hidden)
        if hidden:
            forms = {"satisfaction": Table(key=()), "continuation": Table()}
            model = DBN(attraction=Sum(Logistic("x"), key="doc"), **forms).fit(log)
            learned.append(spread_of(model, "attraction"))
        else:
            learned.append(spread_of(fit(log, Sum(Logistic("x")))))
    assert np.mean(learned) == pytest.approx(truth, rel=0.15)


@pytest.mark.parametrize(("per_doc", "hidden"), [(5, False), (20, False), (100, False), (20, True)])
def test_where_features_say_everything_there_is_hardly_a_spread(per_doc: int, hidden: bool) -> None:
    learned = []
    for seed in range(6):
        log, _ = market(200, per_doc, 0.0, seed, hidden)
        if hidden:
            model = DBN(attraction=Sum(Logistic("x"), key="doc"), satisfaction=Table(key=()))
            learned.append(spread_of(model.fit(log), "attraction"))
        else:
            learned.append(spread_of(fit(log, Sum(Logistic("x")))))
    # Half of the time the best spread of such data is exactly zero.
    assert np.median(learned) < {5: 0.2, 20: 0.15, 100: 0.1}[per_doc]
    assert max(learned) < {5: 0.6, 20: 0.35, 100: 0.15}[per_doc]


def test_the_spread_is_the_most_likely_one_with_offsets_integrated_out() -> None:
    log, _ = market(150, 8, 1.5, seed=3)
    model = fit(log, Sum(Logistic("x")))
    frame = by_doc(model)
    heads, tails = frame["heads"].to_numpy(), frame["tails"].to_numpy()
    centre = logit(frame["by_features"].to_numpy())
    grid = np.linspace(-12, 12, 2401)
    logits = centre[:, None] + grid
    data = -heads[:, None] * np.logaddexp(0, -logits) - tails[:, None] * np.logaddexp(0, logits)

    def minus_likelihood(spread: float) -> float:
        prior = np.exp(-0.5 * (grid / spread) ** 2) / spread
        return -float(np.log((np.exp(data) * prior).sum(axis=1)).sum())

    best = minimize_scalar(minus_likelihood, bounds=(0.1, 4), method="bounded").x
    assert spread_of(model) == pytest.approx(best, rel=0.03)


def test_the_spread_does_not_depend_on_where_it_starts() -> None:
    log, _ = market(200, 10, 0.6, seed=5)
    learned = [
        spread_of(fit(log, Sum(Logistic("x")), start=fit(log, Sum(Logistic("x"), spread=first))))
        for first in (0.02, 0.5, 20.0)
    ]
    assert max(learned) < 1.05 * min(learned)


def test_a_given_spread_stays() -> None:
    log, _ = market(50, 10, 1.0, seed=6)
    assert spread_of(fit(log, Sum(Logistic("x"), spread=0.37))) == 0.37


def test_the_objective_never_falls_while_the_spread_stays(monkeypatch) -> None:
    log, _ = market(60, 10, 0.2, seed=8, hidden=True)
    rounds: list[list[float]] = []
    solve = EM.solve

    def watched(self: EM, problem: Problem, progress: Any = None) -> Any:
        solution = solve(self, problem, progress)
        rounds.append([record.objective for record in solution.history])
        return solution

    monkeypatch.setattr(EM, "solve", watched)
    model = DBN(attraction=Sum(Logistic("x")), satisfaction=Table(key=())).fit(log)
    assert 2 <= len(rounds) <= 10
    for objectives in rounds:
        assert np.diff(objectives).min() > -1e-9
    # Objectives under different spreads are no series: a column tells rounds apart. The end may be
    # a Newton step beyond EM's.
    history = model.history
    assert history["round"].unique().to_list() == list(range(1, len(rounds) + 1))
    for number, objectives in enumerate(rounds, start=1):
        kept = history.filter(history["round"] == number)["objective"].to_list()
        assert kept[: len(objectives)] == objectives
        assert len(kept) <= len(objectives) + 1
        assert np.diff(kept).min() > -1e-9
    assert model.history["iteration"].is_sorted()
    assert model.history["seconds"].is_sorted()


# -- standard errors -------------------------------------------------------------------------------
def test_errors_of_coefficients_have_the_offsets_integrated_out() -> None:
    """Minus the second derivative by coefficients and all offsets, inverted as one matrix."""
    log, _ = market(30, 15, 1.0, seed=9)
    model = fit(log, Sum(Logistic("x", l2=0), spread=0.9))
    frame = by_doc(model)
    x = log.to_frame().unique("doc").sort("doc")["x"].to_numpy()
    p = frame["probability"].to_numpy()
    weight = (frame["heads"] + frame["tails"]).to_numpy() * p * (1 - p)
    features = np.hstack([np.ones((30, 1)), x[:, None], np.eye(30)])
    curvature = features.T @ (weight[:, None] * features)
    curvature[2:, 2:] += np.eye(30) / 0.9**2
    errors = np.sqrt(np.diag(np.linalg.inv(curvature)))[:2]
    np.testing.assert_allclose(model.coefficients["taste"]["standard_error"], errors, rtol=0.03)


def test_errors_know_that_documents_differ() -> None:
    """A regression takes a thousand clicks on ten documents for a thousand opinions."""
    log, _ = market(40, 200, 1.5, seed=10)
    plain = fit(log, Logistic("x", key="doc")).coefficients["taste"]["standard_error"]
    summed = fit(log, Sum(Logistic("x"))).coefficients["taste"]["standard_error"]
    assert (summed > 3 * plain).all()


def test_intervals_of_coefficients_cover_the_truth() -> None:
    covered = []
    for seed in range(30):
        model = fit(market(60, 30, 1.0, seed=200 + seed)[0], Sum(Logistic("x", l2=0)))
        frame = model.coefficients["taste"]
        off = (frame["coefficient"] - pl.Series([-1.0, 0.8])) / frame["standard_error"]
        covered += (off.abs() < 1.645).to_list()
    assert 0.78 < np.mean(covered) <= 0.98


# -- a ranker that knows more --------------------------------------------------------------------
def ranked(seed: int, by_truth: float) -> ClickLog:
    """Pages of eight of twelve results in the order of relevance and chance, read downwards."""
    rng = np.random.default_rng(seed)
    n = 60 * 12
    x = rng.normal(size=n)
    chance = expit(-1 + 0.9 * x + 1.5 * rng.normal(size=n))
    own = rng.integers(0, 60, 1800)[:, None] * 12 + np.arange(12)
    score = by_truth * logit(chance[own]) + 0.3 * rng.normal(size=own.shape)
    shown = np.take_along_axis(own, np.argsort(-score, axis=1)[:, :8], axis=1)
    click, there = np.zeros(shown.shape, int), np.ones(1800, bool)
    for rank in range(8):
        click[:, rank] = there & (rng.random(1800) < chance[shown[:, rank]])
        there &= rng.random(1800) < np.where(click[:, rank] == 1, 0.5, 0.85)
    return read_log(
        {
            "session": np.repeat(np.arange(1800), 8),
            "query": shown.ravel() // 12,
            "doc": shown.ravel(),
            "rank": np.tile(np.arange(1, 9), 1800),
            "x": x[shown.ravel()],
            "click": click.ravel(),
        }
    )


def test_a_ranker_that_knows_what_features_do_not_tell_is_noticed() -> None:
    """Where intervals hold the truth far less often than they say; a random order is fine."""
    forms = {"attraction": Sum(Logistic("x")), "satisfaction": Table(key=())}
    DBN(**forms).fit(ranked(0, 0.0))
    with pytest.warns(
        GecasmoWarning, match="'attraction': effects of query, doc fall with the rank"
    ):
        DBN(**forms).fit(ranked(0, 3.0))
    log = ranked(0, 3.0)
    mean = log.to_frame().group_by("doc").agg(mean_rank=pl.col("rank").mean())
    told = read_log(log.to_frame().join(mean, on="doc", how="left", maintain_order="left"))
    DBN(attraction=Sum(Logistic("x", "mean_rank")), satisfaction=Table(key=())).fit(told)


# -- documents that are new or rare ----------------------------------------------------------------
def split_market(seed: int, spread: float) -> tuple[ClickLog, ClickLog, np.ndarray]:
    """Two hundred documents of very different frequency; every tenth is new in the second log."""
    rng = np.random.default_rng(seed)
    n_docs, n = 200, 12_000
    x = rng.normal(size=n_docs)
    chance = expit(-1 + 0.8 * x + spread * rng.normal(size=n_docs))
    popular = 1 / (1 + np.arange(n_docs))
    logs = []
    for is_new in (False, True):
        weight = popular.copy()
        if not is_new:
            weight[5::10] = 0.0
        doc = rng.choice(n_docs, n, p=weight / weight.sum())
        logs.append(
            read_log(
                {
                    "session": np.repeat(np.arange(n // 5), 5),
                    "doc": doc,
                    "rank": np.tile(np.arange(1, 6), n // 5),
                    "x": x[doc],
                    "click": rng.random(n) < chance[doc],
                }
            )
        )
    return logs[0], logs[1], chance


def test_new_documents_are_predicted_from_their_features() -> None:
    train, test, chance = split_market(1, spread=0.5)
    shown = test.to_frame().unique("doc").sort("doc")
    doc = shown["doc"].to_numpy()
    is_new = doc % 10 == 5
    often, rare = ~is_new & (doc < 20), ~is_new & (doc > 100)
    models = [fit(train, form) for form in (Sum(Logistic("x")), Table(), Logistic("x"))]
    wrong = [np.abs(model.probability("taste", shown) - chance[doc]) for model in models]
    for part, rival in ((is_new, 1), (rare, 1), (often, 2)):
        assert wrong[0][part].mean() < 0.75 * wrong[rival][part].mean()
    assert wrong[0][often].mean() < 1.05 * wrong[1][often].mean()
    assert models[0].score(test) > max(models[1].score(test), models[2].score(test))


def test_rows_never_seen_follow_their_features_alone() -> None:
    log, _ = market(40, 20, 1.0, seed=11)
    model = fit(log, Sum(Logistic("x")))
    new = model.probability("taste", {"doc": [1000, 1001], "x": [0.0, 2.0]})
    intercept, slope = coefficients(model)
    # What their own effects may be is averaged over.
    usual = float(model.states()["taste"].belief.spreads[0])
    assert usual == pytest.approx(spread_of(model), rel=0.2)
    np.testing.assert_allclose(
        new, averaged(np.array([intercept, intercept + 2 * slope]), usual), rtol=0.03
    )
    known = model.probability("taste", log.to_frame())
    np.testing.assert_allclose(known, model.predict_clicks(log), rtol=1e-12)
    other = read_log(log.to_frame().with_columns(doc=pl.col("doc") + 39))
    frame = model.predict_clicks(other, frame=True)
    assert (frame["unseen"].list.len() == 0).to_list() == (frame["doc"] == 39).to_list()


def test_offsets_of_single_results_do_not_leak_into_another_log() -> None:
    """The first result of one log has nothing to do with the first result of another."""
    log, _ = market(40, 20, 1.0, seed=22)
    model = fit(log, Sum(Logistic("x"), key="result", spread=2.0))
    assert model.parameters["taste"]["offset"].abs().min() > 0
    other = read_log(log.to_frame().reverse())
    for asked in (log, other):
        np.testing.assert_allclose(
            model.predict_clicks(asked),
            averaged(
                coefficients(model)[0] + coefficients(model)[1] * asked.column("x").to_numpy(), 2.0
            ),
            rtol=0.02,
        )
        assert (model.predict_clicks(asked, frame=True)["unseen"].list.len() == 1).all()
    again = fit(log, Sum(Logistic("x"), key="result", spread=2.0), start=model)
    assert again.history["objective"][0] == pytest.approx(model.history["objective"][-1])


def test_features_of_rows_may_stand_in_a_frame() -> None:
    log, _ = market(40, 20, 1.0, seed=12)
    items = log.to_frame().unique("doc").select("doc", "x", title=pl.lit("not asked for"))
    bare = read_log(log.to_frame().drop("x"))
    model = fit(bare, Sum(Logistic("x")), features={"taste": items})
    np.testing.assert_allclose(
        model.predict_clicks(bare), fit(log, Sum(Logistic("x"))).predict_clicks(log), rtol=1e-9
    )
    assert by_doc(model).columns[0] == "doc"
    more = pl.concat([items, items.with_columns(pl.col("doc") + 1000)])
    np.testing.assert_allclose(
        model.with_features(taste=more).probability("taste", {"doc": [1003]}),
        model.probability("taste", {"doc": [1003], "x": items.filter(doc=3)["x"]}),
        rtol=1e-12,
    )


# -- coins that share a sum ------------------------------------------------------------------------
class Twice(ClickModel):
    """Two coins of the same document; both have to fall heads for a click."""

    first = Parameter("doc")
    second = Parameter("doc")

    def browse(self, user, result):
        if flip(self.first) and flip(self.second):
            user.click()


class Squared(ClickModel):
    """The same with one coin."""

    both = Parameter("doc")

    def browse(self, user, result):
        if flip(self.both) and flip(self.both):
            user.click()


def test_coins_that_share_a_sum_share_offsets_and_spread() -> None:
    log, _ = market(60, 30, 1.0, seed=13)
    form = Sum(Logistic("x"))
    method = EM(max_iter=3000, tol=1e-11)
    tied, once = (
        Twice(first=form, second=form).fit(log, method),
        Squared(both=form).fit(log, method),
    )
    assert tied.states()["first"] is tied.states()["second"]
    assert spread_of(tied, "first") == pytest.approx(spread_of(once, "both"), rel=0.02)
    np.testing.assert_allclose(tied.predict_clicks(log), once.predict_clicks(log), rtol=0.01)
    fixed = Sum(Logistic("x"), spread=0.8)
    pair = [Twice(first=fixed, second=fixed), Squared(both=fixed)]
    ends = [model.fit(log, method).history["objective"][-1] for model in pair]
    assert ends[0] == pytest.approx(ends[1], rel=1e-8)


def test_coins_with_other_keys_cannot_share_a_sum() -> None:
    class Keys(ClickModel):
        a = Parameter("doc")
        b = Parameter("query", "doc")

        def browse(self, user, result):
            if flip(self.a) and flip(self.b):
                user.click()

    log, _ = market(20, 10, 1.0, seed=14)
    form = Sum(Logistic("x"))
    with pytest.raises(
        ModelError, match="'a' and 'b' share a form but have rows by different keys"
    ):
        Keys(a=form, b=form).fit(log)
    keyed = Sum(Logistic("x"), key="doc")
    assert Keys(a=keyed, b=keyed).fit(log).keys == {"a": ("doc",), "b": ("doc",)}


# -- what a user may write -------------------------------------------------------------------------
def test_rows_are_by_the_key_that_the_model_declares() -> None:
    assert DBN(attraction=Sum(Logistic("x"))).keys["attraction"] == ("query", "doc")
    assert DBN(attraction=Sum(Logistic("x"), key="doc")).keys["attraction"] == ("doc",)
    assert DBN(attraction=Sum(Logistic("x", key="doc"))).keys["attraction"] == ("doc",)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        (Sum(Logistic("x")), "Sum(Logistic('x'))"),
        (Sum(Logistic("x"), spread=0.5, key="doc"), "Sum(Logistic('x'), spread=0.5, key='doc')"),
        (Sum(Logistic("x", key=("a", "b"))), "Sum(Logistic('x', key=('a', 'b')))"),
        (Sum(Logistic("x"), key=("a", "b")), "Sum(Logistic('x'), key=('a', 'b'))"),
        (Sum(Table("a", "b"), Table("b")), "Sum(Table('a', 'b'), Table('b'))"),
        (Sum(Table(), Logistic("x"), link="probit"), "Sum(Table(), Logistic('x'), link='probit')"),
        (Sum(Table("a"), Table("b"), spread=(0.5, None)), None),
    ],
)
def test_a_form_prints_as_it_is_written(form: Sum, text: str | None) -> None:
    text = text or "Sum(Table('a'), Table('b'), spread=(0.5, None))"
    assert repr(form) == text
    assert repr(eval(text)) == text


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Sum(Logistic), "its parts are tables and a form that takes offsets"),
        (lambda: Sum("x"), r'such as Sum\(Table\("doc"\), Logistic\("price"\)\)'),
        (lambda: Sum(Sum(Logistic("x"))), "its parts are tables and a form that takes offsets"),
        (lambda: Sum(), "give its parts"),
        (lambda: Sum(Table("a", "b"), Table("b", "a")), r"Table\('b', 'a'\) twice"),
        (lambda: Sum(Table(), Table()), r"Table\(\) twice"),
        (lambda: Sum(Table(key=())), "a table of one row is the intercept"),
        (lambda: Sum(Table("a", start=0.2)), "only its columns count"),
        (lambda: Sum(Table("a", prior="empirical")), "only its columns count"),
        (lambda: Sum(Logistic("x"), Logistic("y")), "one regression on all columns is enough"),
        (lambda: Sum(Table("a"), link="cloglog"), r"link='cloglog'\): choose 'logit' or 'probit'"),
        (lambda: Sum(Table("a"), link=3), "choose 'logit' or 'probit'"),
        (lambda: Sum(Table("a"), spread=(1.0, 2.0)), "one for each of 1 tables"),
        (lambda: Sum(Table("a"), Table("b"), spread=(1.0, 0)), "a positive number is wanted"),
        (lambda: Sum(Logistic("x"), spread=0), r"Sum\(spread=0\): a positive number is wanted"),
        (lambda: Sum(Logistic("x"), spread=-1.0), "a positive number is wanted"),
        (lambda: Sum(Logistic("x"), spread=float("inf")), "a positive number is wanted"),
        (lambda: Sum(Logistic("x"), spread=float("nan")), "a positive number is wanted"),
        (lambda: Sum(Logistic("x", key="doc"), key="query"), "one key is enough"),
    ],
)
def test_sums_that_make_no_sense(make: Any, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        make()


def test_features_that_disagree_within_a_key_are_shown() -> None:
    log, _ = market(20, 10, 1.0, seed=15)
    frame = log.to_frame()
    frame = frame.with_columns(x=pl.when(pl.int_range(pl.len()) == 77).then(9.5).otherwise("x"))
    with pytest.raises(ClickLogError) as caught:
        fit(read_log(frame), Sum(Logistic("x")))
    message = str(caught.value)
    doc, usual = frame["doc"][77], frame.filter(doc=frame["doc"][77])["x"].mode()[0]
    assert "The column 'x', a feature of 'taste', is not the same wherever its key is" in message
    assert f"doc {doc} has" in message
    assert "9.5" in message
    assert str(usual) in message
    assert 'Perhaps key="result"' in message
    fit(read_log(frame), Sum(Logistic("x"), key="result"))


def test_clicks_above_cannot_be_a_feature_of_a_row_that_does_not_name_them() -> None:
    log, _ = market(20, 10, 1.0, seed=16)
    with pytest.raises(ModelError, match=r'must be part of its key: key=\("doc", "clicks_above"\)'):
        fit(log, Sum(Logistic("clicks_above")))
    fit(log, Sum(Logistic("clicks_above"), key=("doc", "clicks_above")))


def test_a_coin_with_one_row_has_no_features_of_its_own() -> None:
    log, _ = market(20, 10, 1.0, seed=17)
    with pytest.raises(ModelError, match="'click_rate' has 1 row for the whole log"):
        GCTR(click_rate=Sum(Logistic("x"))).fit(log)


# -- keeping and going on --------------------------------------------------------------------------
def test_save_and_load_bit_by_bit(tmp_path: Any) -> None:
    log, _ = market(40, 20, 1.0, seed=18)
    model = fit(log, Sum(Logistic("x", l2=0.5)))
    model.save(tmp_path / "model")
    again = gecasmo.load(tmp_path / "model")
    assert repr(again.forms["taste"]) == repr(model.forms["taste"])
    assert again.parameters["taste"].equals(model.parameters["taste"])
    assert again.coefficients["taste"].equals(model.coefficients["taste"])
    assert spread_of(again) == spread_of(model)
    np.testing.assert_array_equal(again.predict_clicks(log), model.predict_clicks(log))
    asked = {"doc": [3, 5000], "x": [0.1, 0.2]}
    np.testing.assert_array_equal(
        again.probability("taste", asked), model.probability("taste", asked)
    )
    again.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.predict_clicks(log), model.predict_clicks(log))


def test_a_fit_goes_on_where_it_stopped() -> None:
    log, _ = market(40, 20, 1.0, seed=19)
    model = fit(log, Sum(Logistic("x")))
    first, spread = model.history["objective"][-1], spread_of(model)
    again = fit(log, Sum(Logistic("x")), start=model)
    assert again.history["objective"][0] == pytest.approx(first, rel=1e-12)
    assert again.history["iteration"][-1] <= 3
    assert spread_of(again) == pytest.approx(spread, rel=0.02)


def test_offsets_go_with_their_keys_to_another_log() -> None:
    log, _ = market(40, 20, 1.0, seed=20)
    model = fit(log, Sum(Logistic("x")))
    moved = log.to_frame().with_columns(doc=pl.col("doc") + 20).filter(pl.col("session") < 100)
    other = read_log(moved)
    first = fit(other, Sum(Logistic("x"), spread=1.0), EM(1, tol=0), start=model)
    # A fit climbs from the most likely effects; answers are means over all that they may be.
    told = model.log_likelihood(other).sum()
    assert first.history["log_likelihood"][0] == pytest.approx(told, rel=0.01)


def test_a_sum_can_start_at_tables_and_regressions() -> None:
    log, _ = market(40, 20, 1.0, seed=21)
    fresh = fit(log, Sum(Logistic("x"), spread=0.7))
    for other in (fit(log, Table()), fit(log, Logistic("x"))):
        model = fit(log, Sum(Logistic("x"), spread=0.7), start=other)
        np.testing.assert_allclose(
            by_doc(model)["probability"], by_doc(fresh)["probability"], rtol=1e-5
        )
