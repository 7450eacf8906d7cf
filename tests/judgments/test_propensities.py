"""Propensities against enumeration, closed forms and simulation."""

from __future__ import annotations

import json
import warnings

import numpy as np
import polars as pl
import pytest

import gecasmo
from gecasmo import (
    DBN,
    DCTR,
    PBM,
    RCTR,
    SDBN,
    UBM,
    ClickModel,
    Gradient,
    Parameter,
    Table,
    flip,
    read_log,
)
from gecasmo.errors import GecasmoWarning, NotFittedError
from gecasmo.forms import beta_draws
from gecasmo.judgments import JudgmentsError, propensities, write_propensities
from gecasmo.judgments import propensity as examining
from gecasmo.judgments.propensity import _around
from gecasmo.model.relevance import factors_of
from gecasmo.models import CATALOGUE
from strategies.zoo import SHAPES, with_columns_of


def pages(n=60, length=4, seed=0, n_docs=6):
    rng = np.random.default_rng(seed)
    return read_log(
        {
            "session": np.repeat(np.arange(n), length),
            "query": ["q"] * (n * length),
            "doc": np.concatenate([rng.permutation(n_docs)[:length] for _ in range(n)]),
            "rank": np.tile(np.arange(1, length + 1), n),
        },
        click=None,
    )


LIKED = {("q", d): p for d, p in enumerate((0.1, 0.9, 0.4, 0.3, 0.7, 0.5))}


def test_pbm_tells_its_examination_without_a_log():
    log = PBM.with_values(examination={1: 0.9, 2: 0.6, 3: 0.4, 4: 0.2}, attraction=LIKED).simulate(
        pages(300), seed=1
    )
    model = PBM(examination=Table(fixed={1: 1.0})).fit(log, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = propensities(model, level=0.8)
    estimates = model.estimates("examination", level=0.8).sort("rank")
    assert frame["rank"].to_list() == [1, 2, 3, 4]
    np.testing.assert_allclose(frame["examination"], estimates["probability"])
    np.testing.assert_allclose(frame["low"], estimates["low"])
    np.testing.assert_allclose(frame["high"], estimates["high"])
    assert frame["propensity"][0] == 1
    inside = frame.slice(1)
    assert (inside["propensity_low"] < inside["propensity"]).all()
    assert (inside["propensity"] < inside["propensity_high"]).all()


@pytest.mark.parametrize("make", [PBM, UBM])
def test_a_scale_that_nothing_anchors_is_told(make):
    log = DBN.with_values(attraction=LIKED, satisfaction=0.5, continuation=0.9).simulate(
        pages(), seed=1
    )
    with pytest.warns(GecasmoWarning, match=r"nothing anchors.*Table\(fixed="):
        propensities(make().fit(log, progress=False), log, draws=0)
    fixed = {1: 1.0} if make is PBM else {(1, 0): 1.0}
    anchored = make(examination=Table(fixed=fixed)).fit(log, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        propensities(anchored, log, draws=0)


def test_dbn_by_hand():
    attraction, satisfaction, continuation = 0.4, 0.5, 0.8
    model = DBN.with_values(
        attraction=attraction, satisfaction=satisfaction, continuation=continuation
    )
    onward = (1 - attraction * satisfaction) * continuation
    frame = propensities(model, pages(5))
    np.testing.assert_allclose(frame["examination"], onward ** np.arange(4))
    np.testing.assert_allclose(frame["propensity"], onward ** np.arange(4))


@pytest.mark.parametrize("make", [DBN, SDBN])
def test_the_average_over_pages_agrees_with_simulated_users(make):
    coins = {"attraction": LIKED, "satisfaction": 0.6}
    if make is DBN:
        coins["continuation"] = 0.7
    model = make.with_values(**coins)
    log = pages(40)
    frame = propensities(model, log)
    reached = [
        model.simulate(log, seed=seed, truth=True)[1].group_by("rank").agg(pl.mean("reached"))
        for seed in range(60)
    ]
    share = pl.concat(reached).group_by("rank").agg(pl.mean("reached")).sort("rank")
    np.testing.assert_allclose(frame["examination"], share["reached"], atol=0.03)


def test_ubm_averages_over_what_was_clicked_above():
    """Two results: the second is looked at with a probability that depends on the first click."""
    seen = {(1, 0): 1.0, (2, 0): 0.3, (2, 1): 0.8}
    model = UBM.with_values(examination=seen, attraction=LIKED)
    log = pages(30, length=2)
    first = model.probability("attraction", log)[log.rank == 1]
    frame = propensities(model, log)
    np.testing.assert_allclose(frame["examination"], [1, np.mean(first * 0.8 + (1 - first) * 0.3)])


def test_weights_and_uneven_pages():
    model = SDBN.with_values(attraction=LIKED, satisfaction=1.0)
    log = read_log(
        {
            "session": ["a", "a", "b", "b", "c"],
            "query": ["q"] * 5,
            "doc": [0, 1, 1, 0, 2],
            "rank": [1, 2, 1, 2, 1],
            "weight": [3.0, 3.0, 1.0, 1.0, 1.0],
        },
        click=None,
        weight="weight",
    )
    frame = propensities(model, log)
    np.testing.assert_allclose(frame["examination"], [1, (3 * 0.9 + 1 * 0.1) / 4])


def test_models_of_every_shape_that_know_relevance_have_propensities():
    clicked = SDBN.with_values(attraction=LIKED, satisfaction=0.9).simulate(pages(12), seed=2)
    for name, make in ((name, CATALOGUE[name]) for name in SHAPES):
        log = with_columns_of(make(), clicked)
        model = make().fit(log, progress=False, impossible="floor")
        if not model.relevance:
            with pytest.raises(JudgmentsError, match="does not say what relevance is"):
                propensities(model, log)
            continue
        if name in ("BSS", "TrustPBM"):  # noise clicks, trust bias
            with pytest.raises(JudgmentsError, match="a click does not require attraction"):
                propensities(model, log)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GecasmoWarning)
            frame = propensities(model, log, draws=0)
        assert frame["rank"].to_list() == [1, 2, 3, 4], name
        assert frame["examination"].is_between(0, 1).all(), name
        assert frame["propensity"][0] == 1, name
        if name in ("DBN", "SDBN", "CM"):
            assert frame["examination"][0] == pytest.approx(1)


def test_a_model_without_positions_has_no_bias():
    log = DCTR.with_values(click_rate=LIKED).simulate(pages(30), seed=1)
    frame = propensities(DCTR().fit(log, progress=False), log, draws=3)
    np.testing.assert_allclose(frame["propensity"], 1)
    np.testing.assert_allclose(frame["propensity_low"], 1)


def test_intervals_narrow_with_more_data_and_depend_on_level_and_seed_only():
    truth = SDBN.with_values(attraction=LIKED, satisfaction=0.6)
    widths = []
    for n in (15, 90):
        log = truth.simulate(pages(n), seed=3)
        model = SDBN().fit(log, progress=False)
        before = model.parameters["attraction"]
        frame = propensities(model, log, draws=4)
        assert model.parameters["attraction"].equals(before)
        widths.append((frame["high"] - frame["low"])[3])
        for value, low, high in (
            ("examination", "low", "high"),
            ("propensity", "propensity_low", "propensity_high"),
        ):
            assert (frame[low] <= frame[value]).all()
            assert (frame[value] <= frame[high]).all()
    narrow = propensities(model, log, draws=4, level=0.5)
    assert (narrow["high"] - narrow["low"])[3] < widths[1] < widths[0]
    assert frame.equals(propensities(model, log, draws=4))


def test_intervals_turn_errors_of_simulated_fits_round():
    """Fits that come out 10 % too high, give or take 5 %, say that the truth is lower."""
    errors = np.log(1.1) + np.array([[-0.05], [0.05]]) / np.sqrt(2)
    low, high = _around(np.array([0.5]), errors, 0.9)
    assert low[0] == pytest.approx(0.5 / 1.1 * np.exp(-0.05 * 1.6449), rel=1e-4)
    assert high[0] == 0.5  # as the interval always holds the estimate
    low, high = _around(np.array([0.5]), -errors, 0.9)
    assert low[0] == 0.5
    assert high[0] == pytest.approx(0.5 * 1.1 * np.exp(0.05 * 1.6449), rel=1e-4)


def test_draws_of_relevance_near_zero_say_who_looks():
    """A result that hardly anybody likes may be the only one at its rank."""
    log = read_log(
        {"session": [1, 1], "query": "q", "doc": ["a", "b"], "rank": [1, 2], "click": [0, 1]}
    )
    model = PBM(examination=Table(fixed={1: 1.0})).fit(log, progress=False)
    frame = propensities(model, log, draws=200)
    assert ((frame["low"] >= 0) & (frame["low"] <= frame["high"]) & (frame["high"] <= 1)).all()


def _plain():
    return Table(pseudo_counts=(1.0, 1.0))


def test_a_fit_that_does_not_know_how_sure_it_is_has_no_intervals():
    truth = DBN.with_values(attraction=LIKED, satisfaction=0.6, continuation=0.8)
    log = truth.simulate(pages(100), seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GecasmoWarning)
        fits = [
            DBN(attraction=_plain(), satisfaction=_plain()).fit(
                log, intervals=False, progress=False
            ),
            DBN().fit(log, Gradient(epochs=2), progress=False),
        ]
    for model in fits:
        frame = propensities(model, log)
        assert frame["low"].null_count() == frame["propensity_high"].null_count() == 4
        assert frame["examination"].null_count() == 0


def test_a_large_log_is_represented_by_whole_queries(monkeypatch):
    monkeypatch.setattr(examining, "_PAGES", 50)
    rng = np.random.default_rng(0)
    lengths = np.where(np.arange(300) == 7, 6, 3)
    query = rng.integers(0, 40, 300)
    query[7] = 99
    log = read_log(
        {
            "session": np.repeat(np.arange(300), lengths),
            "query": np.repeat(query, lengths),
            "doc": np.concatenate([np.arange(n) for n in lengths]),
            "rank": np.concatenate([np.arange(1, n + 1) for n in lengths]),
        },
        click=None,
    )
    some = examining.some_queries(log, rng)
    assert 50 <= some.n_sessions < 80
    assert set(some.rank) == set(log.rank)
    kept = some.session_column("query")
    assert len(kept) == log.session_column("query").is_in(kept.unique().to_list()).sum()
    without = read_log(log.to_frame().drop("query"))
    assert 50 <= examining.some_queries(without, rng).n_sessions < 60
    model = SDBN.with_values(attraction=0.3, satisfaction=0.5)
    fitted = SDBN(satisfaction=0.5).fit(model.simulate(log, seed=1), progress=False)
    frame = propensities(fitted, log, draws=2)
    all_pages = examining.examined(fitted, factors_of(fitted)[:1], log, np.arange(1, 7))
    np.testing.assert_allclose(frame["examination"], all_pages)
    assert frame["high"].null_count() == 0


def test_a_saved_model_has_the_same_propensities(tmp_path):
    truth = DBN.with_values(attraction=LIKED, satisfaction=0.6, continuation=0.8)
    log = truth.simulate(pages(15), seed=3)
    model = DBN().fit(log, progress=False)
    model.save(tmp_path / "dbn.gecasmo")
    loaded = gecasmo.load(tmp_path / "dbn.gecasmo")
    assert propensities(loaded, log, draws=2).equals(propensities(model, log, draws=2))


def test_without_draws_there_are_no_intervals():
    truth = DBN.with_values(attraction=LIKED, satisfaction=0.6, continuation=0.8)
    log = truth.simulate(pages(20), seed=3)
    frame = propensities(DBN().fit(log, progress=False), log, draws=0)
    assert frame["low"].null_count() == frame["propensity_high"].null_count() == 4
    assert frame["examination"].null_count() == 0


def test_draws_have_the_mean_and_spread_that_is_believed():
    rng = np.random.default_rng(0)
    mean, spread = np.array([0.2, 0.9, 0.5, 1.0]), np.array([0.1, 0.02, 0.0, 0.1])
    values = np.stack([beta_draws(mean, spread, rng) for _ in range(20_000)])
    np.testing.assert_allclose(values.mean(0), mean, atol=0.01)
    np.testing.assert_allclose(values.std(0), [0.1, 0.02, 0, 0], atol=0.01)


def test_models_in_which_clicks_do_not_require_relevance():
    class Careless(ClickModel):
        attraction = Parameter("query", "doc")
        slip = Parameter()
        relevance = ("attraction",)

        def browse(self, user, result):
            if flip(self.attraction) or flip(self.slip):
                user.click()

    model = Careless.with_values(attraction=0.4, slip=0.1)
    with pytest.raises(JudgmentsError, match="does not require attraction"):
        propensities(model, pages(5))


def test_a_rank_coin_is_not_the_whole_story_if_users_may_leave():
    class Leaver(ClickModel):
        look = Parameter("rank")
        attraction = Parameter("query", "doc")
        stay = Parameter()
        relevance = ("attraction",)

        def browse(self, user, result):
            if flip(self.look) and flip(self.attraction):
                user.click()
            if not flip(self.stay):
                user.leave()

    model = Leaver.with_values(look={1: 0.9, 2: 0.8, 3: 0.7, 4: 0.6}, attraction=0.3, stay=0.5)
    with pytest.raises(JudgmentsError, match="depends on the pages"):
        propensities(model)
    frame = propensities(model, pages(5))
    np.testing.assert_allclose(frame["examination"], [0.9, 0.8 * 0.5, 0.7 * 0.25, 0.6 * 0.125])


def test_results_that_nobody_could_click_say_nothing():
    model = SDBN.with_values(attraction={**LIKED, ("q", 0): 0.0}, satisfaction=1.0)
    frame = propensities(model, pages(40))
    assert frame["examination"].is_between(0, 1).all()
    with pytest.raises(JudgmentsError, match="At rank 1 no page"):
        propensities(SDBN.with_values(attraction=0.0, satisfaction=1.0), pages(3))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": 1.0}, "level=1.0"),
        ({"draws": 1}, "draws=1"),
        ({"draws": -2}, "draws=-2"),
        ({"log": None}, "depends on the pages"),
        ({"log": "clicks.csv"}, "wants a ClickLog"),
    ],
)
def test_faulty_requests(options, message):
    model = DBN.with_values(attraction=0.4, satisfaction=0.5, continuation=0.8)
    with pytest.raises(JudgmentsError, match=message):
        propensities(model, **{"log": pages(3), **options})


def test_unfitted_models_are_told():
    with pytest.raises(NotFittedError):
        propensities(DBN(), pages(3))
    with pytest.raises(JudgmentsError, match="relevance"):
        propensities(RCTR.with_values(click_rate=0.5), pages(3))


def test_small_files(tmp_path):
    model = DBN.with_values(attraction=0.4, satisfaction=0.5, continuation=0.8)
    frame = propensities(model, pages(3))
    write_propensities(frame, tmp_path / "p.csv")
    assert pl.read_csv(tmp_path / "p.csv").equals(frame)
    write_propensities(frame, tmp_path / "p.json")
    data = json.loads((tmp_path / "p.json").read_text())
    assert pl.DataFrame(data["propensities"]).equals(frame)
    with pytest.raises(JudgmentsError, match=r"\.csv or \.json"):
        write_propensities(frame, tmp_path / "p.xlsx")


def test_given_rows_and_spreads_are_read_where_they_are(monkeypatch):
    """Estimates of all rows, with an interval each, would be much work for a yes or no."""
    truth = DBN.with_values(attraction=LIKED, satisfaction=0.6, continuation=0.8)
    log = truth.simulate(pages(30), seed=3)
    fits = [
        UBM(examination=Table(fixed={(1, 0): 1.0})).fit(log, progress=False),
        UBM(attraction=0.4).fit(log, progress=False),
        UBM().fit(log, progress=False),
        DBN(satisfaction=0.5).fit(log, progress=False),
    ]
    believed = [
        {coin: model.estimates(coin)["spread"].fill_null(0.0) for coin in model.forms}
        for model in fits
    ]

    def refused(*_, **__):
        raise AssertionError("no estimates are needed")

    monkeypatch.setattr(ClickModel, "estimates", refused, raising=False)
    anchored = [examining.is_anchored(m, examining.required_coins(m)) for m in fits]
    assert anchored == [True, True, False, True]
    for model, spreads in zip(fits, believed, strict=True):
        states, rng = model.states(), np.random.default_rng(0)
        for coin, spread in spreads.items():
            drawn = model.forms[coin].drawn(states[coin], rng)
            if not model.forms[coin].has_posterior:
                assert not (spread > 0).any()
                assert drawn is states[coin]
                continue
            np.testing.assert_allclose(np.nan_to_num(states[coin].spread), spread)
            moved = drawn.probability != states[coin].probability
            assert moved.tolist() == (spread > 0).to_list()


def test_a_given_row_that_no_page_has_anchors_nothing():
    truth = DBN.with_values(attraction=LIKED, satisfaction=0.6, continuation=0.8)
    log = truth.simulate(pages(30), seed=3)
    model = PBM(examination=Table(fixed={99: 1.0})).fit(log, progress=False)
    with pytest.warns(GecasmoWarning, match="nothing anchors"):
        propensities(model, log, draws=0)
