"""Cut points by information, and whether grades are right as often as they claim to be."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from judgment_examples import judged_like
from scipy import stats

from gecasmo import DBN, PBM, Table, read_log
from gecasmo.judgments import judge
from gecasmo.judgments.grades import BetaBeliefs, Crowd, cells
from gecasmo.simulation import demo_log


@pytest.fixture(autouse=True)
def plain():
    """Here kernels are compiled: logs are not small."""


def informative(mean, spread, grades):
    crowd = Crowd()
    crowd.add(cells(BetaBeliefs.from_moments(np.asarray(mean, float), np.asarray(spread, float))))
    return crowd.cuts(grades)


def information(mean, spread, cuts):
    """Bits that grades tell about pairs, by its definition."""
    strength = mean * (1 - mean) / spread**2 - 1
    truth = stats.beta((mean * strength)[:, None], ((1 - mean) * strength)[:, None])
    chances = np.diff(truth.cdf(np.concatenate([[0], cuts, [1]])), axis=1)
    ratio = chances / chances.mean(axis=0)
    return np.where(chances > 0, chances * np.log2(np.maximum(ratio, 1e-300)), 0).sum(axis=1).mean()


@given(st.integers(0, 10_000), st.integers(2, 4))
@settings(max_examples=12, deadline=None)
def test_no_other_cut_points_tell_more(seed, grades):
    rng = np.random.default_rng(seed)
    mean, strength = rng.beta(1, 4, 60) * 0.96 + 0.02, np.exp(rng.uniform(1, 6, 60))
    spread = np.sqrt(mean * (1 - mean) / (strength + 1))
    cuts = informative(mean, spread, grades)
    assert len(cuts) == grades - 1
    assert np.all(np.diff(cuts) > 0)
    told = information(mean, spread, cuts)
    others = np.quantile(mean, np.linspace(0.02, 0.98, 12))
    best = max(
        information(mean, spread, np.array(some)) for some in combinations(others, grades - 1)
    )
    assert told > best - 0.02


@given(st.lists(st.integers(1, 39), min_size=8, max_size=60, unique=True), st.integers(2, 4))
@settings(max_examples=40, deadline=None)
def test_certain_pairs_are_parted_into_equal_shares(numbers, grades):
    found = judge(judged_like([number / 40 for number in numbers]), grades=grades)
    shares = list(found.by_grade.values())
    assert sum(shares) == len(numbers)
    assert max(shares) - min(shares) <= 1
    assert found.to_dict()["grade_probability"] == 1


@given(st.lists(st.tuples(st.floats(0.01, 0.99), st.floats(0, 0.1)), min_size=2, max_size=30))
@settings(max_examples=40, deadline=None)
def test_the_order_of_parts_is_irrelevant(pairs):
    mean, spread = np.array(pairs).T
    whole, parts = Crowd(), Crowd()
    whole.add(cells(BetaBeliefs.from_moments(mean, spread)))
    for part in np.array_split(np.arange(len(mean))[::-1], 3):
        parts.add(cells(BetaBeliefs.from_moments(mean[part], spread[part])))
    assert whole.n == parts.n == len(mean)
    assert np.array_equal(whole.cuts(4), parts.cuts(4))


def test_pairs_that_cannot_be_told_apart_are_cut_at_equal_steps():
    assert informative([0.9] * 5, [0.0] * 5, 4).tolist() == [0.25, 0.5, 0.75]
    assert informative([0.1, 0.9], [0.0, 0.0], 4).tolist() == [0.25, 0.5, 0.75]


def test_middle_grades_are_wide_enough_for_the_intervals():
    """Shrunken means lie close together: shares of them are cut finer than intervals can tell."""
    rng = np.random.default_rng(2)
    truth, trials = rng.beta(4, 30, 2_000), np.round(np.exp(rng.uniform(0, 6, 2_000)))
    heads = rng.binomial(trials.astype(int), truth)
    posterior = stats.beta(4 + heads, 30 + trials - heads)
    more = {"spread": posterior.std().tolist(), "trials": trials.tolist()}
    model = judged_like(posterior.mean().tolist(), 100, **more)
    found, by_shares = judge(model), judge(model, rule="quantile")
    assert min(found.by_grade.values()) > 0.02 * len(truth)
    assert min(found.by_grade.values()) > 1.5 * min(by_shares.by_grade.values())
    frame = found.frame.sort(pl.col("doc").str.slice(1).cast(int))
    assert_claims_hold(frame, truth, found.grading.cuts)


def assert_claims_hold(frame, truth, cuts, slack=0.04):
    """Grades, ratings and orders are right as often as the frame says, on average."""
    band = (truth[:, None] >= np.array(cuts)).sum(axis=1)
    judged = (frame["verdict"] == "judged").to_numpy()
    claimed = frame["grade_probability"].to_numpy()
    is_right = frame["grade"].fill_null(-1).to_numpy() == band
    assert is_right[judged].mean() == pytest.approx(claimed[judged].mean(), abs=slack)
    for low, high in ((0.5, 0.65), (0.65, 0.8), (0.8, 1.01)):
        some = judged & (claimed >= low) & (claimed < high)
        if some.sum() > 150:
            assert is_right[some].mean() == pytest.approx(claimed[some].mean(), abs=2 * slack)
    rating = frame["rating"].to_numpy()
    assert rating[judged].mean() == pytest.approx(band[judged].mean(), abs=0.1)
    query = frame["query"].to_numpy()
    place = frame["relevance"].to_numpy()
    got, said = [], []
    for row in np.flatnonzero(frame["order"].is_not_null().to_numpy())[:3_000]:
        known = np.flatnonzero(judged & (query == query[row]))
        if not len(known):  # then others are all there are
            known = np.flatnonzero(query == query[row])
        known = known[known != row]
        got.append(((place[row] > place[known]) == (truth[row] > truth[known])).mean())
        said.append(frame["order"][int(row)])
    assert np.mean(got) == pytest.approx(np.mean(said), abs=slack)


def of_a_ranker():
    """Users of a DBN on pages of a ranker that knows something of the truth."""
    log, truth = demo_log(n_pages=10_000, seed=1)
    return DBN(), log, truth, ("attraction", "satisfaction")


def of_chance():
    """Users of a PBM on pages in any order; some queries are frequent, most are not."""
    n_queries, n_docs, n_pages = 60, 12, 6_000
    rng = np.random.default_rng(5)
    weight = 1 / np.arange(1, n_queries + 1)
    query = rng.choice(n_queries, n_pages, p=weight / weight.sum())
    pages = {
        "session": np.repeat(np.arange(n_pages), 6),
        "query": np.repeat(query, 6),
        "doc": np.concatenate([rng.permutation(n_docs)[:6] for _ in range(n_pages)]),
        "rank": np.tile(np.arange(1, 7), n_pages),
    }
    pairs = {
        "query": np.repeat(np.arange(n_queries), n_docs),
        "doc": np.tile(np.arange(n_docs), n_queries),
        "probability": rng.beta(1, 4, n_queries * n_docs),
    }
    looks = {rank: 0.8 ** (rank - 1) for rank in range(1, 7)}
    truth = PBM.with_values(attraction=pl.DataFrame(pairs), examination=looks)
    log = truth.simulate(read_log(pages, click=None), seed=5)
    return PBM(examination=Table(fixed={1: 1.0})), log, truth, ("attraction",)


@pytest.mark.parametrize("make", [of_a_ranker, of_chance])
def test_grades_of_a_fit_are_right_as_often_as_they_claim(make):
    model, log, truth, coins = make()
    found = judge(model.fit(log, progress=False))
    assert found.n_judged > 250
    assert min(found.by_grade.values()) > 0.05 * found.n_judged
    assert found.n_ordered > 0
    relevance = np.prod([truth.probability(coin, found.frame) for coin in coins], axis=0)
    assert_claims_hold(found.frame, relevance, found.grading.cuts)
