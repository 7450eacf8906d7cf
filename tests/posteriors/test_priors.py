"""Priors learned from rows: the truth is found, hidden flips do not mislead, levels fall back."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.optimize import minimize
from scipy.special import betaln

import gecasmo
from gecasmo import DBN, DCTR, EM, PBM, Empirical, Table, read_log
from gecasmo.errors import ClickLogError, ModelError

THOROUGH = EM(tol=1e-9)
ONE = Empirical(by=())  # one prior for all rows


def rates_log(n_docs: int, per_doc: int, a: float, b: float, seed: int, **extra: Any) -> Any:
    """Single results, so that every click is seen: heads and tails are clicks and skips."""
    rng = np.random.default_rng(seed)
    rate = rng.beta(a, b, n_docs)
    doc = np.repeat(np.arange(n_docs), per_doc)
    n = len(doc)
    frame = {
        "session": np.arange(n),
        "query": np.zeros(n, int),
        "doc": doc,
        "rank": np.ones(n, int),
        "click": rng.random(n) < rate[doc],
    }
    return read_log(frame | {name: values[doc] for name, values in extra.items()}), rate


def test_a_prior_of_observed_flips_is_the_beta_binomial_one() -> None:
    """Against SciPy's optimiser on the closed form."""
    log, _ = rates_log(800, 6, 1.0, 3.0, seed=2)
    model = DCTR(click_rate=Table(prior=ONE)).fit(log, THOROUGH)
    state = model.states_["click_rate"]
    heads = np.bincount(log.column("doc").to_numpy(), weights=log.click)

    def loss(x: np.ndarray) -> float:
        a, b = np.exp(x)
        fit = (betaln(a + heads, b + 6 - heads) - betaln(a, b)).sum()
        return -(fit + np.log(a * b / (a + b) ** 2) - (np.log((a + b) / 3) / 2.0) ** 2 / 2)

    best = np.exp(minimize(loss, [0.0, 0.0]).x)
    assert state.priors.mean == pytest.approx(best[0] / best.sum(), rel=0.01)
    assert state.priors.strength == pytest.approx(best.sum(), rel=0.02)
    # And the answer is the posterior mean under it.
    a, b = state.pseudo
    assert (a.min(), b.min()) == pytest.approx((a.max(), b.max()), rel=1e-12)
    assert a[0] == pytest.approx(state.priors.mean * state.priors.strength, rel=1e-12)
    expected = (heads + a) / (6 + a + b)
    frame = model.parameters["click_rate"].sort("doc")
    np.testing.assert_allclose(frame["probability"], expected, rtol=1e-4)


def test_hidden_flips_do_not_make_the_prior_too_sure() -> None:
    """Expected counts would: they treat what is guessed from the prior as seen."""
    rng = np.random.default_rng(0)
    n_docs, n = 300, 6_000
    attraction_of = {(0, d): p for d, p in enumerate(rng.beta(1, 3, n_docs))}
    truth_satisfaction = {(0, d): p for d, p in enumerate(rng.beta(2, 2, n_docs))}
    truth = DBN.with_values(
        attraction=attraction_of,
        satisfaction=truth_satisfaction,
        continuation=0.8,
    )
    docs = np.concatenate([rng.choice(n_docs, 8, replace=False) for _ in range(n)])
    pages = {
        "session": np.repeat(np.arange(n), 8),
        "query": np.zeros(8 * n, int),
        "doc": docs,
        "rank": np.tile(np.arange(1, 9), n),
    }
    one = Table(prior=ONE)
    model = DBN(attraction=one, satisfaction=one).fit(truth.simulate(pages, seed=1))
    attraction = model.states_["attraction"].priors
    satisfaction = model.states_["satisfaction"].priors
    assert attraction.mean == pytest.approx(0.25, abs=0.04)
    assert 2.5 < attraction.strength < 6.5  # 4
    drawn = np.mean([p for _, p in sorted(truth_satisfaction.items())])
    assert satisfaction.mean == pytest.approx(drawn, abs=0.06)
    assert 2.0 < satisfaction.strength < 9.0  # 4
    assert model.parameters["continuation"]["probability"][0] == pytest.approx(0.8, abs=0.02)


def test_rows_that_are_all_alike_are_drawn_together() -> None:
    log, _ = rates_log(400, 10, 3_000.0, 7_000.0, seed=4)
    model = DCTR().fit(log)
    frame = model.parameters["click_rate"]
    assert model.states_["click_rate"].priors.strength > 50
    assert frame["probability"].std() < 0.03


def test_unseen_rows_get_the_prior_mean_and_say_so() -> None:
    log, rate = rates_log(400, 8, 1.0, 9.0, seed=1)
    model = DCTR().fit(log)
    unseen = model.estimates("click_rate", {"query": [0, 0], "doc": [3, 9_999]})
    assert unseen["rests_on"].to_list() == ["query, doc", "prior"]
    assert unseen["probability"][1] == pytest.approx(rate.mean(), abs=0.02)
    assert unseen["trials"].to_list() == [8.0, 0.0]
    assert unseen["spread"][1] > unseen["spread"][0]
    assert unseen["low"][1] < rate.mean() < unseen["high"][1]


@pytest.mark.parametrize("kinds", [("book", "film"), tuple("abcdefgh")], ids=["two", "many"])
def test_a_prior_by_a_column_tells_kinds_of_rows_apart(kinds: tuple[str, ...]) -> None:
    n = 320
    rng = np.random.default_rng(3)
    of_row = np.repeat(np.arange(len(kinds)), n // len(kinds))
    usual = np.linspace(0.1, 0.6, len(kinds))
    rate = usual[of_row] + rng.uniform(-0.05, 0.05, n)
    doc = np.repeat(np.arange(n), 5)
    click = rng.random(5 * n) < rate[doc]
    log = read_log(
        {
            "session": np.arange(5 * n),
            "query": np.zeros(5 * n, int),
            "doc": doc,
            "rank": np.ones(5 * n, int),
            "click": click,
            "kind": np.array(kinds)[of_row][doc],
        }
    )
    model = DCTR(click_rate=Table(prior=Empirical(by="kind"))).fit(log)
    state = model.states_["click_rate"]
    row = np.argsort(state.rows.frame["doc"].to_numpy())
    means = (state.pseudo[0] / state.pseudo.sum(axis=0))[row]
    found = [means[of_row == kind].mean() for kind in range(len(kinds))]
    told = [click[of_row[doc] == kind].mean() for kind in range(len(kinds))]
    assert found == pytest.approx(told, abs=0.04)
    plain = DCTR(click_rate=Table(prior=ONE)).fit(log)
    error = {
        name: np.abs(m.parameters["click_rate"].sort("doc")["probability"].to_numpy() - rate).mean()
        for name, m in (("kind", model), ("plain", plain))
    }
    assert error["kind"] < 0.6 * error["plain"]


def pairs_log(seed: int = 0) -> tuple[Any, np.ndarray]:
    """Documents of very different appeal, shown under several queries each."""
    rng = np.random.default_rng(seed)
    n_docs, n_queries, times = 60, 8, 3
    appeal = rng.beta(1, 2, n_docs)
    pairs = [(q, d) for d in range(n_docs) for q in range(n_queries) if rng.random() < 0.7]
    shown = [pair for pair in pairs for _ in range(times)]
    strength = 30
    rate = {p: rng.beta(strength * appeal[p[1]], strength * (1 - appeal[p[1]])) for p in pairs}
    n = len(shown)
    log = read_log(
        {
            "session": np.arange(n),
            "query": [q for q, _ in shown],
            "doc": [d for _, d in shown],
            "rank": np.ones(n, int),
            "click": rng.random(n) < [rate[p] for p in shown],
        }
    )
    return log, appeal


def test_levels_fall_back_from_pair_to_document_to_query() -> None:
    log, appeal = pairs_log()
    model = DCTR(click_rate=Table(prior=Empirical(by=("doc", "query")))).fit(log)
    asked = {"query": [99, 99, 0, 0], "doc": [0, 999, 999, 0]}
    found = model.estimates("click_rate", asked)
    assert found["rests_on"].to_list()[:2] == ["doc", "prior"]
    documents = model.estimates(
        "click_rate", {"query": [99] * len(appeal), "doc": list(range(len(appeal)))}
    )
    assert set(documents["rests_on"]) == {"doc"}
    assert found["rests_on"].to_list()[3] in ("query, doc", "doc")
    assert np.corrcoef(documents["probability"], appeal)[0, 1] > 0.85
    plain = DCTR().fit(log)
    assert model.score(log) != plain.score(log)


def test_levels_are_kept_by_a_file(tmp_path: Any) -> None:
    log, appeal = pairs_log()
    model = DCTR(click_rate=Table(prior=Empirical(by=("doc", "query")))).fit(log)
    model.save(tmp_path / "m.gecasmo")
    again = gecasmo.load(tmp_path / "m.gecasmo")
    asked = {"query": [99, 99, 0], "doc": [0, 999, 5]}
    for level in (0.5, 0.9):
        one = model.estimates("click_rate", asked, level=level)
        assert one.equals(again.estimates("click_rate", asked, level=level))
    assert model.estimates("click_rate").equals(again.estimates("click_rate"))
    assert repr(again.forms["click_rate"]) == repr(model.forms["click_rate"])
    assert len(appeal) == 60


def test_rank_and_exposure_are_worked_out_from_the_pages() -> None:
    log = read_log(
        {
            "session": [0, 0, 1, 1, 2, 3],
            "query": ["q", "q", "q", "q", "q", "r"],
            "doc": ["a", "b", "b", "a", "a", "a"],
            "rank": [1, 2, 1, 3, 2, 1],
            "click": [1, 0, 0, 0, 1, 0],
            "weight": [1, 1, 1, 1, 2, 1],
        },
        weight="weight",
    )
    from gecasmo.encoding.averages import row_averages

    model = DCTR()
    encoded = model.encode(log, "e_step")
    names = ("rank", "exposure", "impressions")
    found = row_averages(encoded, "click_rate", 0, ("query", "doc"), names)
    frame = encoded.rows[0].frame.with_columns(found.values()).sort("query", "doc")
    assert frame["rank"].to_list() == pytest.approx([(1 + 3 + 2 * 2) / 4, 1.5, 1.0])
    # Query q has pages of weight 4, r one; half a page is added on either side.
    assert frame["exposure"].to_list() == pytest.approx([4.5 / 5, 2.5 / 5, 1.5 / 2])
    assert frame["impressions"].to_list() == [4.0, 2.0, 1.0]


def test_rows_never_shown_are_like_rows_hardly_shown(tmp_path: Any) -> None:
    """A ranker that shows what is good: of a much-asked query, what is never shown is not."""
    rng = np.random.default_rng(5)
    n_queries, n_docs, shown = 400, 12, 4
    rate = rng.beta(1, 2, (n_queries, n_docs))
    asked = np.repeat(np.arange(n_queries), np.where(np.arange(n_queries) < 100, 60, 3))
    score = rate[asked] + rng.normal(0, 0.15, (len(asked), n_docs))
    docs = np.argsort(-score, axis=1)[:, :shown]
    click = rng.random(docs.shape) < rate[asked[:, None], docs]
    log = read_log(
        {
            "session": np.repeat(np.arange(len(asked)), shown),
            "query": np.repeat(asked, shown),
            "doc": docs.ravel(),
            "rank": np.tile(np.arange(1, shown + 1), len(asked)),
            "click": click.ravel(),
        }
    )
    model = DCTR(click_rate=Table(prior=Empirical(by=("rank", "exposure")))).fit(log)
    new = model.estimates("click_rate", {"query": [0, 399, 999], "doc": [99, 99, 99]})
    often, seldom, never = new["probability"]
    assert often <= seldom <= never
    assert often < never
    seen = set(zip(np.repeat(asked, shown).tolist(), docs.ravel().tolist(), strict=True))
    left = [rate[q, d] for q in range(100) for d in range(n_docs) if (q, d) not in seen]
    # Hardly shown is still better than never shown, but far from what is usual.
    assert np.mean(left) - 0.03 < often < 0.75 * never
    model.save(tmp_path / "m.gecasmo")
    again = gecasmo.load(tmp_path / "m.gecasmo")
    frame = {"query": [0, 399, 999], "doc": [99, 99, 99]}
    assert again.estimates("click_rate", frame).equals(model.estimates("click_rate", frame))


def test_the_default_depends_on_the_key() -> None:
    learns = {
        ("query", "doc"): True,
        ("doc",): True,
        ("query",): True,
        ("rank",): False,
        ("device",): False,
        (): False,
    }
    for keys, answer in learns.items():
        assert (Table().learned_prior(keys) is not None) == answer
        assert Table(pseudo_counts=(1, 1)).learned_prior(keys) is None
        assert Table(prior="empirical").learned_prior(keys) is not None


def test_pseudo_counts_of_ones_own_are_left_alone() -> None:
    log, _ = rates_log(50, 4, 1.0, 3.0, seed=2)
    model = DCTR(click_rate=Table(pseudo_counts=(1, 1))).fit(log)
    frame = model.parameters["click_rate"]
    expected = (frame["heads"] + 1) / (frame["heads"] + frame["tails"] + 2)
    np.testing.assert_allclose(frame["probability"], expected, rtol=1e-12)
    assert model.estimates("click_rate")["spread"].null_count() == 0  # but its spread is told


def test_who_asks_for_steps_gets_steps() -> None:
    log, _ = rates_log(50, 4, 1.0, 3.0, seed=2)
    model = DCTR().fit(log, EM(1, tol=0, accelerate=False))
    frame = model.parameters["click_rate"]
    expected = (frame["heads"] + 1) / (frame["heads"] + frame["tails"] + 2)
    np.testing.assert_allclose(frame["probability"], expected, rtol=1e-12)
    assert model.states_["click_rate"].priors is None
    assert model.estimates("click_rate")["spread"].null_count() == 50


def test_given_rows_stay_given() -> None:
    log, _ = rates_log(50, 4, 1.0, 3.0, seed=2)
    model = DCTR(click_rate=Table(fixed={(0, 7): 0.9})).fit(log)
    row = model.estimates("click_rate", {"query": [0], "doc": [7]})
    assert row["probability"][0] == 0.9
    assert row["rests_on"][0] == "given"
    assert (row["low"][0], row["high"][0]) == (0.9, 0.9)
    assert PBM(examination=Table(fixed={1: 1.0})).fit(log).is_fitted


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Table(pseudo_counts=(1, 1), prior="empirical"), "not both"),
        (lambda: Table(prior="bayes"), "'empirical' or Empirical"),
        (lambda: Empirical(by=3), "names of columns"),
        (lambda: Empirical(by=("doc", "doc")), "each once"),
    ],
)
def test_mistakes_are_named(make: Any, words: str) -> None:
    with pytest.raises((ModelError, TypeError), match=words):
        make()


def test_a_column_that_is_not_there_is_named() -> None:
    log, _ = rates_log(20, 4, 1.0, 3.0, seed=2)
    with pytest.raises(ClickLogError, match=r"prior of 'click_rate' depends on 'price'.*no such"):
        DCTR(click_rate=Table(prior=Empirical(by="price"))).fit(log)


def test_a_column_that_varies_and_is_no_number_is_refused() -> None:
    log = read_log(
        pl.DataFrame(
            {
                "session": [0, 1],
                "query": [0, 0],
                "doc": [0, 0],
                "rank": [1, 1],
                "click": [1, 0],
                "kind": ["x", "y"],
            }
        )
    )
    with pytest.raises(ModelError, match="several values for the same row"):
        DCTR(click_rate=Table(prior=Empirical(by="kind"))).fit(log)
