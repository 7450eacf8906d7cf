"""What a model with probabilities answers, on pages small enough to check by hand."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from unit_examples import Buyer, Mixture, Tired, dbn, pages

from gecasmo import CM, DBN, EM, GCTR, PBM, RCTR, UBM, ClickModel, Parameter, Table, flip, read_log
from gecasmo.errors import GecasmoWarning, ImpossibleSessionError, ModelError, NotFittedError
from gecasmo.evaluation import perplexity
from gecasmo.logs import ClickLog


def page(clicks: list[int], docs: str = "abcdefgh", query: str = "q") -> ClickLog:
    """One page."""
    n = len(clicks)
    return read_log(
        {
            "session": ["s"] * n,
            "query": [query] * n,
            "doc": list(docs[:n]),
            "rank": range(1, n + 1),
            "click": clicks,
        }
    )


def shuffled(log: ClickLog, seed: int = 7) -> tuple[ClickLog, np.ndarray]:
    """The same log with its rows in another order, and where each row came from."""
    order = np.random.default_rng(seed).permutation(log.n_results)
    return read_log(log.to_frame()[order]), order


# -- with_values -----------------------------------------------------------------------------------
def test_a_number_for_every_row() -> None:
    model = dbn(0.4, 0.5, 0.8)
    assert model.predict_clicks(page([0, 0])) == pytest.approx([0.4, 0.4 * (0.4 * 0.5 + 0.6) * 0.8])
    assert model.parameters["continuation"]["probability"].to_list() == [0.8]
    assert model.parameters["attraction"].is_empty()


def test_a_dictionary_by_key() -> None:
    model = dbn(attraction={("q", "a"): 0.9, ("q", "b"): 0.1})
    assert model.predict_clicks(page([0], "a"))[0] == pytest.approx(0.9)
    assert model.predict_clicks(page([0], "z"))[0] == 0.5  # an unseen row of Table()


@pytest.mark.parametrize("key", [1, (1,)])
def test_a_single_key_with_and_without_brackets(key: object) -> None:
    model = RCTR.with_values(click_rate={key: 0.25})
    assert model.predict_clicks(page([0]))[0] == 0.25


def test_a_frame_in_any_library() -> None:
    columns = {"rank": [1, 2], "probability": [0.3, 0.2], "other": ["x", "y"]}
    for frame in (pl.DataFrame(columns), pd.DataFrame(columns), pl.DataFrame(columns).to_arrow()):
        model = RCTR.with_values(click_rate=frame)
        assert model.predict_clicks(page([0, 0])) == pytest.approx([0.3, 0.2])


def test_a_form_with_values() -> None:
    model = GCTR.with_values(click_rate=(Table((1, 3), key="doc"), {"a": 0.9}))
    assert model.keys["click_rate"] == ("doc",)
    assert model.predict_clicks(page([0, 0])) == pytest.approx([0.9, 0.25])


def test_values_are_copied_from_a_fit() -> None:
    fit = PBM().fit(pages(20))
    twin = PBM.with_values(**fit.parameters)
    np.testing.assert_array_equal(twin.predict_clicks(pages(20)), fit.predict_clicks(pages(20)))


@pytest.mark.parametrize("number", [np.float64(0.3), np.float32(0.25), 0, 1])
def test_all_sorts_of_numbers(number: float) -> None:
    model = GCTR.with_values(click_rate=number)
    assert model.predict_clicks(page([0]))[0] == pytest.approx(float(number))


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (1.5, "click_rate=1.5 is not a probability"),
        (-0.1, "is not a probability"),
        (float("nan"), "is not a probability"),
        ({1: 1.5}, "must be probabilities; this is none: \\(1, 1.5\\)"),
        ({1: float("nan")}, "must be probabilities"),
        ({1: None}, "must be numbers"),
        ({(1, 2): 0.5}, "is named by \\(rank\\), but \\(1, 2\\) has 2 parts"),
        ({(): 0.5}, "has 0 parts"),
        ({1: 0.5, (1,): 0.5}, "name the key \\(1,\\) twice"),
        ({1: 0.5, "two": 0.5}, "of one type"),
        (pl.DataFrame({"rank": [1, 1], "probability": [0.1, 0.2]}), "twice"),
        (pl.DataFrame({"rank": [1], "p": [0.1]}), "lacks probability; it has rank, p"),
        (pl.DataFrame({"doc": [1], "probability": [0.1]}), "lacks rank"),
        (pl.DataFrame({"rank": [1], "probability": ["much"]}), "must be numbers"),
        (pl.DataFrame({"rank": [1], "probability": [None]}), "must be probabilities"),
        ("half", "must be a number, a dictionary by \\(rank\\) or a data frame, not str"),
        (True, "must be a number"),
    ],
)
def test_values_that_make_no_sense(values: object, complaint: str) -> None:
    with pytest.raises(ModelError, match=complaint):
        RCTR.with_values(click_rate=values)


def test_missing_and_unknown_coins() -> None:
    with pytest.raises(ModelError, match=r"DBN.with_values lacks satisfaction, continuation"):
        DBN.with_values(attraction=0.5)
    with pytest.raises(ModelError, match="has no coin 'beauty'"):
        GCTR.with_values(click_rate=0.5, beauty=0.1)


def test_a_dictionary_for_a_coin_without_key() -> None:
    with pytest.raises(ModelError, match="has no key: give it a single number"):
        GCTR.with_values(click_rate={"a": 0.5})


def test_a_loaded_model_takes_values_too(tmp_path) -> None:
    from gecasmo import load

    dbn().save(tmp_path / "m")
    loaded = load(tmp_path / "m")
    twin = loaded.with_values(attraction=0.1, satisfaction=0.2, continuation=0.3)
    assert twin.predict_clicks(page([0]))[0] == pytest.approx(0.1)
    assert loaded.predict_clicks(page([0]))[0] == pytest.approx(0.4)
    with pytest.raises(ModelError, match="lacks satisfaction, continuation"):
        loaded.with_values(attraction=0.1)
    with pytest.raises(ModelError, match="has no coin 'beauty'"):
        loaded.with_values(attraction=0.1, satisfaction=0.2, continuation=0.3, beauty=1)


# -- likelihood and predictions --------------------------------------------------------------------
def test_log_likelihood_by_hand() -> None:
    model = dbn(0.4, 0.5, 0.8)
    assert np.exp(model.log_likelihood(page([1]))) == pytest.approx([0.4])
    assert np.exp(model.log_likelihood(page([1, 1]))) == pytest.approx([0.4 * 0.5 * 0.8 * 0.4])
    stays = 0.5 * 0.8
    assert np.exp(model.log_likelihood(page([1, 0]))) == pytest.approx(
        [0.4 * (stays * 0.6 + 1 - stays)]
    )


def test_score_is_the_weighted_mean() -> None:
    log = pages(3, 2, n=[1, 1, 2, 2, 5, 5])
    weighted = read_log(log.to_frame(), weight="n")
    logs = dbn().log_likelihood(log)
    assert dbn().score(log) == pytest.approx(logs.mean())
    assert dbn().score(weighted) == pytest.approx(np.average(logs, weights=[1, 2, 5]))


def test_conditional_clicks_by_hand() -> None:
    model = dbn(0.4, 0.5, 0.8)
    after_click = 0.5 * 0.8
    found = model.predict_conditional_clicks(page([1, 0]))
    assert found == pytest.approx([0.4, after_click * 0.4])


def test_ubm_by_hand() -> None:
    model = UBM.with_values(attraction=0.5, examination={(1, 0): 1.0, (2, 0): 0.6, (2, 1): 0.2})
    assert model.predict_conditional_clicks(page([0, 0])) == pytest.approx([0.5, 0.3])
    assert model.predict_conditional_clicks(page([1, 0])) == pytest.approx([0.5, 0.1])
    assert model.predict_clicks(page([0, 0])) == pytest.approx([0.5, 0.5 * 0.1 + 0.5 * 0.3])


@pytest.mark.parametrize("model", [DBN, UBM, CM])
def test_answers_follow_the_rows_of_the_log(model: type[ClickModel]) -> None:
    log = pages(12, 3, seed=4)
    fit = model().fit(log, EM(max_iter=3, tol=0), impossible="drop")
    mixed, order = shuffled(log)
    for ask in (
        fit.predict_clicks,
        lambda log: fit.predict_conditional_clicks(log, impossible="floor"),
    ):
        np.testing.assert_allclose(ask(mixed), ask(log)[order], rtol=1e-12)
    sessions = {s: n for n, s in enumerate(log.sessions)}
    logs = fit.log_likelihood(log, impossible="floor")
    expected = [logs[sessions[s]] for s in mixed.sessions]
    np.testing.assert_allclose(fit.log_likelihood(mixed, impossible="floor"), expected, rtol=1e-12)


def test_frames_tell_which_rows_were_never_fitted() -> None:
    model = DBN(attraction=Table((1, 3))).fit(page([1, 0], "ab"))
    log = page([0, 0, 0], "azb")
    for ask in (model.predict_clicks, model.predict_conditional_clicks):
        frame = ask(log, frame=True)
        assert frame.columns == [
            "session",
            "query",
            "doc",
            "rank",
            "click",
            "unseen",
            "probability",
        ]
        assert frame["unseen"].to_list() == [[], ["attraction", "satisfaction"], []]
        np.testing.assert_array_equal(frame["probability"], ask(log))
    assert model.predict_clicks(page([0], "z"))[0] == 0.25  # a / (a + b)


def test_frames_follow_the_rows_of_the_log() -> None:
    log, _ = shuffled(pages(5, 3))
    frame = dbn().predict_clicks(log, frame=True)
    assert frame["doc"].to_list() == log.column("doc").to_list()
    assert frame["rank"].to_list() == log.rank.tolist()


def test_unseen_pages_and_unseen_histories() -> None:
    model = UBM().fit(page([1, 0]))
    frame = model.predict_clicks(page([0, 0, 0]), frame=True)
    assert "examination" in frame["unseen"].to_list()[2]
    mixture = Mixture(kind=Table(key="query")).fit(page([1, 0]), EM(max_iter=1, tol=0))
    frame = mixture.predict_clicks(page([0], query="other"), frame=True)
    assert frame["unseen"].to_list() == [["kind"]]


def test_a_model_without_probabilities() -> None:
    questions = "predict_clicks predict_conditional_clicks posterior decode simulate score evaluate"
    for question in questions.split():
        with pytest.raises(NotFittedError, match=r"fit it with .fit\(log\)"):
            getattr(DBN(), question)(page([0]))
    with pytest.raises(NotFittedError):
        _ = DBN().parameters


def test_a_log_without_queries() -> None:
    log = read_log(pages(10).to_frame().drop("query"))
    keyed = Table(key="doc")
    model = DBN(attraction=keyed, satisfaction=keyed).fit(log, EM(max_iter=3, tol=0))
    assert model.predict_clicks(log, frame=True).columns[:2] == ["session", "doc"]
    assert model.evaluate(log).n_sessions == 10


# -- impossible pages ------------------------------------------------------------------------------
CASCADE = CM.with_values(attraction=0.5)


def test_impossible_pages_one_question_after_the_other() -> None:
    log = read_log(
        pl.concat(
            [page([1, 1]).to_frame(), page([0, 1]).to_frame().with_columns(session=pl.lit("t"))]
        )
    )
    for ask in (
        CASCADE.log_likelihood,
        CASCADE.score,
        CASCADE.predict_conditional_clicks,
        CASCADE.evaluate,
    ):
        with pytest.raises(ImpossibleSessionError, match="session 's' shows a click at rank 2"):
            ask(log)
        with pytest.raises(ModelError, match="choose 'raise', 'drop' or 'floor'"):
            ask(log, impossible="hide")
    with pytest.warns(GecasmoWarning, match="1 of 2 sessions are impossible under CM") as caught:
        assert np.exp(CASCADE.log_likelihood(log, impossible="drop")) == pytest.approx([0.25])
    assert caught[0].filename == __file__
    floored = np.exp(CASCADE.log_likelihood(log, impossible="floor"))
    assert floored == pytest.approx([0.5 * 1e-8, 0.25])
    with pytest.warns(GecasmoWarning, match="left out"):
        assert CASCADE.predict_conditional_clicks(log, impossible="drop") == pytest.approx(
            [0.5] * 2
        )
    evaluation = CASCADE.evaluate(log, impossible="drop")
    assert (evaluation.n_sessions, evaluation.n_impossible) == (1, 1)
    assert "impossible sessions: 1 (left out)" in str(evaluation)
    assert "counted as 1e-8" in str(CASCADE.evaluate(log, impossible="floor"))
    for question in (
        CASCADE.posterior,
        CASCADE.decode,
        CASCADE.sample_stories,
        CASCADE.expected_counts,
    ):
        with pytest.raises(ImpossibleSessionError):
            question(log)


def test_when_every_page_is_impossible() -> None:
    for ask in (CASCADE.score, CASCADE.evaluate):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GecasmoWarning)
            with pytest.raises(ImpossibleSessionError, match="All 1 sessions are impossible"):
                ask(page([1, 1]), impossible="drop")


# -- stories ---------------------------------------------------------------------------------------
def test_posterior_by_hand() -> None:
    frame = dbn(0.4, 0.5, 0.8).posterior(page([1, 0]))
    there = 0.5 * 0.8 * 0.6  # not satisfied, went on, and skipped
    left = 0.5 + 0.5 * 0.2
    reached = there / (there + left)
    assert frame["reached"].to_list() == pytest.approx([1, reached])
    assert frame["attraction_flipped"].to_list() == pytest.approx([1, reached])
    assert frame["attraction_heads"].to_list() == pytest.approx([1, 0])
    assert frame["satisfaction_flipped"].to_list() == pytest.approx([1, 0])
    assert frame["satisfaction_heads"][0] == pytest.approx(0.5 / (there + left))
    assert frame.columns[:5] == ["session", "query", "doc", "rank", "click"]


def test_posterior_of_start_flips_is_the_same_all_over_the_page() -> None:
    model = Mixture.with_values(kind=0.5, taste_a=0.9, taste_b=0.1)
    frame = model.posterior(page([1, 1]))
    assert frame["start_kind_flipped"].to_list() == pytest.approx([1, 1])
    expected = 0.81 / (0.81 + 0.01)
    assert frame["start_kind_heads"].to_list() == pytest.approx([expected] * 2)
    assert "kind_heads" not in frame.columns


def test_decode_by_hand() -> None:
    frame = dbn(0.4, 0.9, 0.8).decode(page([1, 0]))
    assert frame["reached"].to_list() == [True, False]
    assert frame["satisfaction"].to_list() == ["heads", None]
    frame = dbn(0.4, 0.1, 0.8).decode(page([1, 0]))
    assert frame["reached"].to_list() == [True, True]
    assert frame["satisfaction"].to_list() == ["tails", None]
    assert frame["attraction"].to_list() == ["heads", "tails"]


def test_decode_tells_start_flips_and_repeated_flips() -> None:
    frame = Mixture.with_values(kind=0.5, taste_a=0.9, taste_b=0.1).decode(page([1, 1]))
    assert frame["start_kind"].to_list() == ["heads", "heads"]

    class Pair(ClickModel):
        coin = Parameter()

        def browse(self, user, result):
            if flip(self.coin) and not flip(self.coin):
                user.click()

    assert Pair.with_values(coin=0.6).decode(page([1]))["coin"].to_list() == ["heads tails"]


def test_stories_agree_with_what_was_seen() -> None:
    log = dbn().simulate(pages(40), seed=1)
    for frame in (dbn().decode(log), dbn().sample_stories(log, seed=2)):
        clicked = frame["attraction"].fill_null("") == "heads"
        assert clicked.to_list() == log.click.tolist()
        assert not (frame["click"].to_numpy() & ~frame["reached"].to_numpy()).any()


def test_random_stories_follow_the_posterior() -> None:
    log = read_log(
        pl.concat(
            [page([1, 0]).to_frame().with_columns(session=pl.lit(str(n))) for n in range(400)]
        )
    )
    model = dbn(0.4, 0.5, 0.8)
    share = model.sample_stories(log, seed=1)["reached"].to_numpy().reshape(-1, 2).mean(axis=0)
    assert share == pytest.approx(model.posterior(page([1, 0]))["reached"].to_numpy(), abs=0.08)


def test_stories_follow_the_rows_of_the_log() -> None:
    log = dbn().simulate(pages(15), seed=1)
    mixed, order = shuffled(log)
    for ask in (dbn().posterior, dbn().decode):
        before, after = ask(log), ask(mixed)
        assert after["doc"].to_list() == mixed.column("doc").to_list()
        expected = before[order].drop("session", "query", "doc", "rank", "click")
        found = after.drop("session", "query", "doc", "rank", "click")
        assert found.columns == expected.columns
        for name, column in expected.to_dict().items():
            is_number = column.dtype == pl.Float64
            wanted = pytest.approx(column.to_list(), rel=1e-10) if is_number else column.to_list()
            assert found[name].to_list() == wanted


# -- simulation ------------------------------------------------------------------------------------
def test_simulation_of_certain_users() -> None:
    always = dbn(1.0, 0.0, 1.0).simulate(pages(3), seed=0)
    assert always.click.all()
    once = dbn(1.0, 1.0, 1.0).simulate(pages(3), seed=0)
    assert once.click.reshape(3, 3).tolist() == [[True, False, False]] * 3


def test_simulation_keeps_pages_and_ignores_old_clicks() -> None:
    log = pages(30)
    first = dbn().simulate(log, seed=3)
    second = dbn().simulate(log.with_signals({"click": ~log.click}), seed=3)
    assert first.click.tolist() == second.click.tolist()
    assert first.to_frame().drop("click").equals(log.to_frame().drop("click"))
    assert dbn().simulate(log, seed=4).click.tolist() != first.click.tolist()


def test_simulation_takes_frames() -> None:
    frame = pages(10).to_frame()
    expected = dbn().simulate(pages(10), seed=1).click.tolist()
    for source in (frame, frame.drop("click"), frame.to_pandas(), frame.drop("click").to_pandas()):
        assert dbn().simulate(source, seed=1).click.tolist() == expected


def test_simulated_truth() -> None:
    log, truth = dbn().simulate(pages(50), seed=5, truth=True)
    assert truth.columns == [
        *("session", "query", "doc", "rank", "click"),
        *("reached", "attraction", "satisfaction", "continuation"),
    ]
    assert truth["click"].to_list() == log.click.tolist()
    assert ((truth["attraction"] == "heads").fill_null(False)).to_list() == log.click.tolist()
    gone = truth.filter(~pl.col("reached"))
    assert gone["attraction"].null_count() == len(gone) > 0
    assert truth.filter(pl.col("rank") == 1)["reached"].all()


def test_simulated_signals_and_guards() -> None:
    n = 30
    log = pages(10, 3, is_ad=[False, True, False] * 10)
    model = Buyer.with_values(attraction=1.0, ad_blindness=1.0, purchase=0.5)
    simulated, truth = model.simulate(log, seed=0, truth=True)
    purchase = simulated.column("purchase").to_numpy()
    assert len(purchase) == n
    assert 0 < purchase.sum() < n
    assert not simulated.click[1::3].any()
    assert (truth["purchase"] == "heads").fill_null(False).to_list() == purchase.tolist()
    assert np.isfinite(model.log_likelihood(simulated)).all()


def test_pages_and_clicks_made_with_one_seed_are_independent() -> None:
    """People use the same seed twice; both must not draw the same numbers."""
    n = 2000
    quality = np.random.default_rng(5).random(n)
    columns = {"session": range(n), "doc": range(n), "rank": [1] * n}
    log = GCTR.with_values(click_rate=0.5).simulate(read_log(columns, click=None), seed=5)
    assert abs(np.corrcoef(quality, log.click)[0, 1]) < 0.1


def test_simulation_agrees_with_marginals() -> None:
    log = pages(3000, 3)
    model = Tired.with_values(is_easily_tired=0.5, attraction=0.5, patience=0.1)
    rate = model.simulate(log, seed=1).click.reshape(-1, 3).mean(axis=0)
    assert rate == pytest.approx(model.predict_clicks(log)[:3], abs=0.03)


def test_simulation_does_not_depend_on_the_order_of_other_pages() -> None:
    log = pages(20)
    half = log.take(np.arange(10))
    clicks = dbn().simulate(log, seed=9).click
    assert clicks[:30].tolist() == dbn().simulate(log, seed=9).take(np.arange(10)).click.tolist()
    assert len(dbn().simulate(half, seed=9).click) == 30


# -- evaluation ------------------------------------------------------------------------------------
def test_perplexity_by_hand() -> None:
    click = np.array([True, False, True])
    chance = np.array([0.5, 0.25, 0.125])
    rank, weight = np.array([1, 1, 2]), np.array([1.0, 1.0, 2.0])
    found = perplexity(click, chance, rank, weight)
    bits = np.array([1.0, -np.log2(0.75), 3.0])
    by_rank = [2 ** bits[:2].mean(), 2**3.0]
    assert found.by_rank["perplexity"].to_list() == pytest.approx(by_rank)
    assert found.arithmetic == pytest.approx(np.mean(by_rank))
    assert found.pooled == pytest.approx(2 ** (np.sum(bits * weight) / 4))
    assert found.by_rank["results"].to_list() == [2.0, 2.0]
    assert found.n_infinite == 0


def test_pooled_is_the_geometric_mean_for_equal_page_lengths() -> None:
    evaluation = dbn().evaluate(pages(10, 3))
    for figures in (evaluation.marginal, evaluation.conditional):
        values = figures.by_rank["perplexity"].to_numpy()
        assert figures.pooled == pytest.approx(np.exp(np.log(values).mean()))
        assert figures.arithmetic == pytest.approx(values.mean())


def test_evaluation_by_hand() -> None:
    log = pages(8, 2, seed=2)
    evaluation = dbn().evaluate(log)
    logs = dbn().log_likelihood(log)
    assert evaluation.log_likelihood == pytest.approx(logs.mean())
    assert evaluation.log_likelihood_per_result == pytest.approx(logs.sum() / 16)
    chance = dbn().predict_conditional_clicks(log)
    bits = -np.log2(np.where(log.click, chance, 1 - chance))
    assert evaluation.conditional.pooled == pytest.approx(2 ** bits.mean())
    # What a page surprises is the sum of what its results surprise.
    assert -bits.mean() * np.log(2) == pytest.approx(evaluation.log_likelihood_per_result)
    assert set(evaluation.to_dict()) == {
        "log_likelihood",
        "log_likelihood_per_result",
        "marginal_perplexity_arithmetic",
        "marginal_perplexity_pooled",
        "conditional_perplexity_arithmetic",
        "conditional_perplexity_pooled",
        "brier",
        "ece",
    }


def test_evaluation_prints_a_table() -> None:
    model = GCTR.with_values(click_rate=0.5)
    assert str(model.evaluate(page([1, 0]))).splitlines() == [
        "GCTR on 1 session, 2 results",
        "  log-likelihood per session     -1.3863",
        "  log-likelihood per result      -0.6931",
        "  Brier score                     0.2500",
        "  calibration error (ECE)         0.0000",
        "",
        "  perplexity  marginal  conditional",
        "  arithmetic    2.0000       2.0000",
        "  pooled        2.0000       2.0000",
        "  rank 1        2.0000       2.0000",
        "  rank 2        2.0000       2.0000",
    ]
    assert "<table>" in model.evaluate(page([1, 0]))._repr_html_()


def test_weights_count_in_evaluation() -> None:
    log = pages(2, 2, n=[3, 3, 1, 1])
    weighted = dbn().evaluate(read_log(log.to_frame(), weight="n"))
    copies = [log.to_frame().with_columns(pl.col("session") + str(i)) for i in range(3)]
    first = pl.concat(copies).filter(pl.col("session").str.starts_with("s0"))
    second = copies[0].filter(pl.col("session") == "s10")
    repeated = dbn().evaluate(read_log(pl.concat([first, second])))
    assert weighted.to_dict() == pytest.approx(repeated.to_dict())


def test_infinite_perplexity_is_counted() -> None:
    click, chance = np.array([1, 0, 0, 1, 1, 1], bool), np.array([0.5, 0.0] * 3)
    found = perplexity(click, chance, np.array([1, 2] * 3), np.ones(6))
    assert found.n_infinite == 2
    assert found.pooled == found.arithmetic == np.inf
    assert found.by_rank["perplexity"].to_list() == [pytest.approx(2.0), np.inf]


def test_a_result_of_weight_zero_surprises_nobody() -> None:
    found = perplexity(np.ones(2, bool), np.array([0.5, 0.0]), np.array([1, 1]), np.array([1.0, 0]))
    assert (found.n_infinite, found.pooled) == (0, 2.0)


def test_infinite_perplexity_is_printed_with_the_number_of_results() -> None:
    evaluation = GCTR.with_values(click_rate=0.5).evaluate(page([1, 1]))
    assert "infinite" not in str(evaluation)
    bad = perplexity(np.ones(2, bool), np.zeros(2), np.array([1, 2]), np.ones(2))
    text = str(replace(evaluation, marginal=bad))
    assert "marginal perplexity is infinite: 2 results happened that were given probability 0" in (
        text
    )
    assert "  arithmetic       inf       2.0000" in text.splitlines()


# -- looks -----------------------------------------------------------------------------------------
def test_repr_shows_program_automaton_and_fit() -> None:
    text = repr(DBN())
    assert text.startswith("DBN: not fitted\n")
    assert "class DBN(ClickModel):" in text
    assert "if not flip(self.continuation):" in text
    assert "attraction    by query, doc" in text
    assert "continuation  by one for all" in text
    assert "Automaton: 2 states, 6 edges" in text
    assert repr(dbn()).startswith("DBN: with given values")
    assert "= 0.8000" in repr(dbn())
    log = pages(20)
    fitted = repr(DBN().fit(log))
    assert fitted.startswith("DBN: fitted to 20 sessions in ")
    assert "(converged), log-likelihood per session -" in fitted
    assert "8 rows, mean 0." in fitted


def test_long_programs_and_automata_are_cut() -> None:
    assert len(repr(Tired()).splitlines()) < 80
    assert "more edges" in repr(Buyer()) or len(Buyer().automaton.edges) <= 24


def test_html_is_escaped() -> None:
    odd = type("<script>", (Mixture,), {"__doc__": "<b>"})
    page = odd()._repr_html_()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    for part in ("program", "automaton"):
        assert f"<summary>{part}</summary>" in page
    assert "-&gt;" in page
    assert "not fitted" in page


def test_a_copy_is_independent() -> None:
    log = pages(20)
    model = DBN().fit(log, EM(max_iter=2, tol=0))
    twin = model.copy()
    before = model.parameters["attraction"]
    assert twin.parameters["attraction"].equals(before)
    twin.fit(pages(20, seed=9), EM(max_iter=5, tol=0))
    twin.forms["continuation"] = Table((9, 9))
    assert model.parameters["attraction"].equals(before)
    assert repr(model.forms["continuation"]) == "Table()"
    assert type(twin) is DBN


def test_weights_that_add_up_to_the_number_of_sessions_count_no_sessions():
    log = read_log(
        {
            "session": [1, 2],
            "doc": ["a", "b"],
            "rank": [1, 1],
            "click": [1, 0],
            "weight": [0.5, 1.5],
        },
        weight="weight",
    )
    found = GCTR.with_values(click_rate=0.0).evaluate(log, impossible="drop")
    assert (found.n_impossible, found.n_sessions) == (1, 1)
