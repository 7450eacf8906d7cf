"""The numbers in every chart are those that anyone would compute from the log and the model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from reading import encodings, parts, table_with, tables, words

from gecasmo import (
    CCM,
    DBN,
    DRCTR,
    EM,
    PBM,
    ClickLog,
    ClickModel,
    Parameter,
    Table,
    flip,
    load,
    read_log,
)
from gecasmo.errors import ClickLogError, GecasmoError, ModelError, NotFittedError
from gecasmo.estimation.em import Record
from gecasmo.evaluation import compare
from gecasmo.model.base import Model
from gecasmo.plots import (
    calibration,
    comparison_charts,
    convergence,
    ctr_by_rank,
    examination,
    fit_charts,
    log_charts,
    pairs_by_impressions,
    perplexity_by_rank,
    relevance_against_ctr,
    story,
)
from gecasmo.plots.predictions import share_interval
from gecasmo.plots.theme import DASHES, PALETTE, SHAPES, labelled, share_end, thinned


@pytest.fixture
def weighted(frame: pl.DataFrame) -> pl.DataFrame:
    """Each row as often as its page counts, so that plain means are right."""
    return frame.select(pl.all().repeat_by("times").list.explode())


# -- click-through rates ---------------------------------------------------------------------------
def test_click_rates_of_a_log(log: ClickLog, weighted: pl.DataFrame) -> None:
    drawn = table_with(ctr_by_rank(log), "rank", "observed", "low", "high")
    expected = weighted.group_by("rank").agg(ctr=pl.col("click").mean(), n=pl.len()).sort("rank")
    assert drawn["rank"].to_list() == expected["rank"].to_list()
    np.testing.assert_allclose(drawn["observed"], expected["ctr"])
    np.testing.assert_allclose(drawn["results"], expected["n"])
    assert (drawn["low"] < drawn["observed"]).all()
    assert (drawn["high"] > drawn["observed"]).all()
    assert f"{weighted['click'].mean():.2%}" in words(ctr_by_rank(log))


def test_click_rates_of_a_model(log: ClickLog, dbn: Model, weighted: pl.DataFrame) -> None:
    drawn = table_with(ctr_by_rank(dbn, log), "observed", "predicted").sort("rank")
    observed = weighted.group_by("rank").agg(pl.col("click").mean()).sort("rank")
    np.testing.assert_allclose(drawn["observed"], observed["click"])
    probability = dbn.predict_clicks(log)
    weight = log.weight[log.page]
    for rank, predicted, seen, difference in drawn.select(
        "rank", "predicted", "observed", "difference"
    ).rows():
        here = log.rank == rank
        assert predicted == pytest.approx(np.average(probability[here], weights=weight[here]))
        assert difference == pytest.approx(predicted - seen)


def test_a_rate_by_rank_predicts_what_was_observed(log: ClickLog, rctr: Model) -> None:
    drawn = table_with(ctr_by_rank(rctr, log), "observed", "predicted")
    np.testing.assert_allclose(drawn["observed"], drawn["predicted"], atol=0.03)


# -- comparisons -----------------------------------------------------------------------------------
def test_charts_of_a_comparison(log: ClickLog) -> None:
    compared = compare(log, ["DBN"], bootstrap=20, level=0.8, progress=False)
    charts = comparison_charts(compared)
    assert list(charts) == [
        "perplexity_conditional",
        "perplexity_marginal",
        "ctr_by_rank",
        "calibration",
    ]
    for kind in ("conditional", "marginal"):
        chart = charts[f"perplexity_{kind}"]
        drawn = table_with(chart, "model", "perplexity")
        assert set(drawn["model"]) == {"DBN", "DCTR"}  # the click rate by rank is the line at 0
        assert "80% intervals" in words(chart)
        base = compared.by_rank.filter(model="RCTR").select("rank", base=kind)
        known = compared.by_rank.join(base, on="rank").sort("model", "rank")
        known = known.filter(pl.col("model") != "RCTR")
        drawn = drawn.sort("model", "rank")
        np.testing.assert_allclose(drawn["perplexity"], known[kind])
        np.testing.assert_allclose(drawn["difference"], known[kind] - known["base"], atol=1e-12)
        for end in ("low", "high"):
            np.testing.assert_allclose(drawn[end], known[f"{kind}_{end}"])
        assert (drawn["low"] <= drawn["high"]).all()
        assert (drawn["low"] < drawn["high"]).any()
    rates = table_with(charts["ctr_by_rank"], "model", "predicted")
    assert set(rates["model"]) == {"DBN", "RCTR", "DCTR"}
    np.testing.assert_allclose(rates["predicted"], compared.ctr_by_rank["predicted"])
    points = max(tables(charts["calibration"]), key=len)
    np.testing.assert_allclose(points["observed"], compared.calibration["observed"])


def test_perplexity_of_one_model(
    log: ClickLog, dbn: Model, rctr: Model, weighted: pl.DataFrame
) -> None:
    chart = perplexity_by_rank(dbn, log, kind="marginal")
    drawn = table_with(chart, "perplexity")
    np.testing.assert_allclose(drawn["perplexity"], dbn.evaluate(log).by_rank["marginal"])
    # The click rate by rank is that of the log itself: no other rate fits it better.
    rate = weighted.group_by("rank").agg(p=pl.col("click").mean()).sort("rank")["p"].to_numpy()
    best = 2 ** -(rate * np.log2(rate) + (1 - rate) * np.log2(1 - rate))
    np.testing.assert_allclose(drawn["perplexity"] - drawn["difference"], best)
    assert (drawn["low"] < drawn["high"]).all()
    rates = table_with(perplexity_by_rank(rctr, log), "difference")
    assert (rates["difference"] >= 0).all()


def difference_frame(values: dict[str, list[float]]) -> pl.DataFrame:
    """What a comparison has by rank, for models with these differences to the click rate."""
    rows = [(m, r, v) for m, each in values.items() for r, v in enumerate(each, start=1)]
    frame = pl.DataFrame(rows, schema=["model", "rank", "d"], orient="row")
    return frame.select(
        "model",
        "rank",
        *(pl.lit(1.5).alias(kind) for kind in ("marginal", "conditional")),
        *(
            pl.col("d").alias(f"{kind}_{name}")
            for kind in ("marginal", "conditional")
            for name in ("difference", "low", "high")
        ),
    )


def test_infinite_and_extreme_perplexities_are_told() -> None:
    calm = {"a": [-0.1, -0.05], "b": [-0.1, 0.02]}
    frame = difference_frame({**calm, "c": [6.4, -0.1], "d": [-0.1, np.inf]})
    chart = perplexity_by_rank(frame)
    assert "Not drawn, because infinite: d at rank 2." in words(chart)
    assert "Beyond the picture: c (up to +6.4)." in words(chart)
    assert len(table_with(chart, "perplexity")) == 7
    low, high = next(
        e["y"]["scale"]["domain"] for e in encodings(chart) if "domain" in e["y"].get("scale", {})
    )
    assert (low, high) == (pytest.approx(-0.1096), pytest.approx(0.0296))
    quiet = perplexity_by_rank(difference_frame(calm))
    assert "Beyond" not in words(quiet)
    assert "infinite" not in words(quiet)


def test_differences_of_percentages_are_no_percents(log: ClickLog, dbn: Model) -> None:
    chart = ctr_by_rank(dbn, log)
    axes = [e["y"] for e in encodings(chart) if e.get("y", {}).get("field") == "difference"]
    assert axes
    for axis in axes:
        assert "percentage points" in " ".join(axis["title"])
        assert "%" not in str(axis["axis"])
    told = [tip for e in encodings(chart) for tip in e.get("tooltip", [])]
    assert not any(tip["field"] == "difference" for tip in told)
    assert {tip["format"] for tip in told if tip["field"] == "points"} == {"+.2f"}


def test_models_differ_in_more_than_colour() -> None:
    frame = difference_frame({f"m{number}": [0.1] for number in range(30)})
    found = {}
    for encoding in encodings(perplexity_by_rank(frame)):
        for channel in ("color", "shape", "strokeDash"):
            if channel in encoding:
                found[channel] = encoding[channel]["scale"]["range"]
    looks = list(zip(found["color"], found["shape"], map(str, found["strokeDash"]), strict=False))
    assert len(set(looks)) == 30
    assert len(set(PALETTE)) == len(PALETTE)
    assert len({len(PALETTE), len(SHAPES), len(DASHES)}) == 3


# -- calibration -----------------------------------------------------------------------------------
def test_calibration_counts_every_result(log: ClickLog, dbn: Model) -> None:
    chart = calibration(dbn, log)
    points = max(tables(chart), key=len)
    predicted, weight = dbn.predict_clicks(log), log.weight[log.page]
    assert points["results"].sum() == pytest.approx(weight.sum())
    assert (points["results"] * points["predicted"]).sum() == pytest.approx(
        (weight * predicted).sum()
    )
    assert (points["results"] * points["observed"]).sum() == pytest.approx(
        (weight * log.click).sum()
    )


def test_calibration_leaves_out_only_chance_and_says_so() -> None:
    frame = pl.DataFrame(
        {
            "model": ["m"] * 3,
            "predicted": [0.1, 0.2, 0.3],
            "observed": [0.1, 0.3, 1.0],
            "results": [100.0, 50, 3],
        }
    )
    chart = calibration(frame)
    assert "fewer than 20 results" in words(chart)
    assert sorted(map(len, tables(chart))) == [2, 3]
    low, high = share_interval(0.1, 100.0)
    drawn = table_with(chart, "low").filter(pl.col("predicted") == 0.1)
    assert drawn["low"][0] == pytest.approx(low)
    assert drawn["high"][0] == pytest.approx(high)
    few = calibration(frame.with_columns(results=pl.lit(2.0)))
    assert "fewer" not in words(few)


# -- examination -----------------------------------------------------------------------------------
def test_examination_by_rank(pbm: Model) -> None:
    chart = examination(pbm, level=0.8)
    drawn = table_with(chart, "probability", "low", "high").sort("rank")
    expected = pbm.estimates("examination", level=0.8).sort("rank")
    for column in ("rank", "probability", "low", "high", "trials"):
        np.testing.assert_allclose(drawn[column], expected[column])
    assert "80%" in words(chart)


def test_examination_by_rank_and_last_click(ubm: Model) -> None:
    drawn = table_with(examination(ubm), "above", "probability")
    expected = {
        (r, c): p
        for r, c, p in ubm.estimates("examination")
        .select("rank", "last_click", "probability")
        .rows()
    }
    assert len(drawn) == len(expected)
    for rank, above, probability in drawn.select("rank", "above", "probability").rows():
        assert probability == pytest.approx(expected[rank, 0 if above == "none" else int(above)])


def test_examination_on_pages_is_what_the_model_implies() -> None:
    """With the same numbers for all documents the chance to be reached is a geometric series."""
    attraction, satisfaction, continuation = 0.3, 0.5, 0.8
    model = DBN.with_values(
        attraction=attraction, satisfaction=satisfaction, continuation=continuation
    )
    pages = read_log(
        {"session": [1] * 4, "query": ["q"] * 4, "doc": list("abcd"), "rank": [1, 2, 3, 4]},
        click=None,
    )
    drawn = table_with(examination(model, pages), "probability").sort("rank")
    goes_on = (1 - attraction * satisfaction) * continuation
    np.testing.assert_allclose(drawn["probability"], goes_on ** np.arange(4))


def test_examination_on_pages_with_intervals(log: ClickLog, dbn: Model) -> None:
    some = log.take(range(10))
    chart = examination(dbn, some, draws=20)
    drawn = table_with(chart, "probability").sort("rank")
    assert (drawn["low"] <= drawn["high"]).all()
    assert "Bars: 90% intervals." in words(chart)
    plain = examination(dbn, some)
    assert "intervals" not in words(plain)
    same = table_with(plain, "probability").sort("rank")
    np.testing.assert_allclose(same["probability"], drawn["probability"])


def test_examination_is_simulated_where_relevance_is_not_named() -> None:
    class Tired(ClickModel):
        interest = Parameter()
        patience = Parameter()

        def browse(self, user, result):  # type: ignore[no-untyped-def]
            if flip(self.interest):
                user.click()
            if not flip(self.patience):
                user.leave()

    model = Tired.with_values(interest=0.4, patience=0.5)
    pages = {"session": np.repeat(np.arange(400), 3), "doc": ["d"] * 1200, "rank": [1, 2, 3] * 400}
    chart = examination(model, read_log(pages, click=None))
    assert "simulated users" in words(chart)
    drawn = table_with(chart, "probability").sort("rank")
    np.testing.assert_allclose(drawn["probability"], [1, 0.5, 0.25], atol=0.08)


def test_examination_of_another_coin(log: ClickLog, rctr: Model, dbn: Model) -> None:
    drawn = table_with(examination(rctr, coin="click_rate"), "probability").sort("rank")
    np.testing.assert_allclose(
        drawn["probability"], rctr.estimates("click_rate").sort("rank")["probability"]
    )
    with pytest.raises(ModelError, match=r"'attraction' is by query, doc.* It has: none"):
        examination(dbn, coin="attraction")
    with pytest.raises(ModelError, match=r"'patience' is no coin of it.* It has: click_rate"):
        examination(rctr, coin="patience")
    with pytest.raises(ClickLogError, match=r"needs a log \(none was given\)"):
        examination(dbn)


# -- relevance -------------------------------------------------------------------------------------
def test_relevance_of_one_coin(log: ClickLog, pbm: Model, weighted: pl.DataFrame) -> None:
    drawn = table_with(relevance_against_ctr(pbm, log), "ctr", "relevance").sort("query", "doc")
    raw = weighted.group_by("query", "doc").agg(ctr=pl.col("click").mean(), n=pl.len())
    raw = raw.sort("query", "doc")
    np.testing.assert_allclose(drawn["ctr"], raw["ctr"])
    np.testing.assert_allclose(drawn["impressions"], raw["n"])
    expected = pbm.estimates("attraction", raw.select("query", "doc"))
    for column, name in (("relevance", "probability"), ("low", "low"), ("examinations", "trials")):
        np.testing.assert_allclose(drawn[column], expected[name])


def test_relevance_of_a_product_and_of_one_of_its_coins(log: ClickLog, dbn: Model) -> None:
    both = table_with(relevance_against_ctr(dbn, log), "relevance").sort("query", "doc")
    keys = both.select("query", "doc")
    product = dbn.probability("attraction", keys) * dbn.probability("satisfaction", keys)
    np.testing.assert_allclose(both["relevance"], product)
    assert (both["low"] < both["relevance"]).all()
    one = table_with(relevance_against_ctr(dbn, log, coin="attraction"), "relevance")
    np.testing.assert_allclose(
        one.sort("query", "doc")["relevance"], dbn.probability("attraction", keys)
    )
    assert dbn.relevance == ("attraction", "satisfaction")


def test_relevance_by_other_columns_is_a_mean(log: ClickLog) -> None:
    model = DRCTR().fit(log, progress=False)
    with pytest.raises(ModelError, match="does not say what relevance is"):
        relevance_against_ctr(model, log)
    chart = relevance_against_ctr(model, log, coin="click_rate")
    drawn = table_with(chart, "relevance").sort("query", "doc")
    by_result = log.to_frame().with_columns(p=pl.Series(model.probability("click_rate", log)))
    mean = pl.col("p").dot(pl.col("weight")) / pl.col("weight").sum()
    expected = by_result.group_by("query", "doc").agg(mean).sort("query", "doc")
    np.testing.assert_allclose(drawn["relevance"], expected["p"])
    assert "low" not in drawn.columns or drawn["low"].is_null().all()


def test_many_pairs_are_thinned_and_the_subtitle_says_so() -> None:
    pairs = 1_000
    shown = np.arange(pairs) % 7 + 1
    log = read_log(
        {
            "session": np.arange(shown.sum()),
            "doc": np.repeat(np.arange(pairs), shown),
            "rank": np.ones(shown.sum(), int),
            "click": np.arange(shown.sum()) % 3 == 0,
        }
    )
    model = PBM.with_values(examination=1.0, attraction=(Table(key="doc"), {0: 0.5}))
    chart = relevance_against_ctr(model, log)
    assert "300 of 1,000 pairs" in words(chart)
    drawn = table_with(chart, "relevance")
    assert len(drawn) == 300
    assert set(drawn["impressions"]) == set(range(1, 8))
    assert chart.to_dict() == relevance_against_ctr(model, log).to_dict()
    top = relevance_against_ctr(model, log, top=20)
    assert "The 20 most shown of 1,000 pairs" in words(top)
    assert set(table_with(top, "relevance")["impressions"]) == {7}
    many = relevance_against_ctr(model, log, top=900)
    assert "The 900 most shown of 1,000 pairs, 300 of them drawn" in words(many)
    with pytest.raises(ModelError, match="top=0"):
        relevance_against_ctr(model, log, top=0)


def test_relevance_has_another_scale_than_clicks(log: ClickLog, dbn: Model, pbm: Model) -> None:
    """Neither products nor loose scales can be held against click rates as they are."""

    def line(chart: object) -> float:
        ends = next(
            part["values"]
            for part in parts(chart.to_dict())  # type: ignore[attr-defined]
            if "values" in part and "x" in str(part["values"])
        )
        return float(ends[1]["y"] / ends[1]["x"])

    product = relevance_against_ctr(dbn, log)
    drawn = table_with(product, "relevance")
    weight = drawn["impressions"]
    slope = (drawn["relevance"] * weight).sum() / (drawn["ctr"] * weight).sum()
    assert line(product) == pytest.approx(slope)
    assert "a click takes attraction, and this is attraction × satisfaction" in words(product)
    assert f"{slope:.3g} times the click rate" in words(product)
    for chart in (
        relevance_against_ctr(pbm, log),
        relevance_against_ctr(dbn, log, coin="attraction"),
    ):
        assert line(chart) == 1.0
        assert "On the dashed line both are equal" in words(chart)
    loose = PBM().fit(log, progress=False)
    chart = relevance_against_ctr(loose, log)
    assert "PBM tells it up to a common factor" in words(chart)
    assert line(chart) > 1.0
    other = relevance_against_ctr(dbn, log, coin="satisfaction")
    assert "a click does not take satisfaction" in words(other)


def test_no_interval_is_cut_off(log: ClickLog, dbn: Model, pbm: Model) -> None:
    for chart in (
        relevance_against_ctr(pbm, log),
        relevance_against_ctr(dbn, log),
        calibration(dbn, log),
    ):
        for part in parts(chart.to_dict()):
            mark = part.get("mark")
            if isinstance(mark, dict) and mark["type"] == "rule":
                assert "clip" not in mark
        # Those of calibration without points that are mostly chance.
        drawn = min((t for t in tables(chart) if "high" in t.columns), key=len)
        highest = drawn["high"].max()
        ends = [
            e["y"]["scale"]["domain"][1] for e in encodings(chart) if "high" in str(e.get("y2"))
        ]
        assert ends
        assert min(ends) >= highest


def test_charts_of_a_fit_say_which_pages_they_show(log: ClickLog, dbn: Model) -> None:
    for name, chart in fit_charts(dbn, log).items():
        of_pages = name not in ("convergence", "examination")  # those are about the fit itself
        assert ("Training pages" in words(chart)) == of_pages
    other = fit_charts(dbn, log, held_out=True)
    assert "Held-out pages" in words(other["calibration"])
    assert "Training" not in words(other["calibration"])


# -- convergence -----------------------------------------------------------------------------------
def test_convergence_has_the_history_per_page(log: ClickLog, dbn: Model) -> None:
    chart = convergence(dbn)
    history, weight = dbn.history, log.weight.sum()
    assert set(history["round"]) == {1}
    for column in ("log_likelihood", "objective"):
        drawn = table_with(chart, column).sort("iteration")
        assert drawn["iteration"].to_list() == history["iteration"].to_list()
        np.testing.assert_allclose(drawn[column], history[column] / weight)
    gaps = table_with(chart, "gap")
    expected = []
    for number in history["round"].unique(maintain_order=True):
        objective = history.filter(history["round"] == number)["objective"]
        best = objective.max()
        expected += [(best - value) / weight for value in objective if value < best]
    np.testing.assert_allclose(gaps["gap"], expected, rtol=1e-6, atol=1e-12)
    assert "converged" in words(chart)


def test_convergence_of_a_fit_that_was_cut_short(log: ClickLog) -> None:
    model = DBN().fit(log, EM(max_iter=1, tol=0, accelerate=False), progress=False)
    chart = convergence(model)
    assert "stopped before it converged after 1 iteration" in words(chart)
    assert not any("gap" in frame.columns for frame in tables(chart))  # one gap is no line


def test_rounds_under_different_priors_share_no_axis(log: ClickLog, dbn: Model) -> None:
    """An objective that falls from one round to the next is no failure, and must not look so."""
    assert dbn.report_ is not None
    objectives = [(-3.0, -2.6), (-3.7, -3.6), (-3.6, -3.59)]
    history = [
        Record(2 * number + step, objective, objective, 0.1, number + 1)
        for number, ends in enumerate(objectives)
        for step, objective in enumerate(ends)
    ]
    model = dbn.copy()
    model.report_ = replace(dbn.report_, history=history, total_weight=1.0)
    chart = convergence(model)
    drawn = [frame for frame in tables(chart) if "objective" in frame.columns]
    assert [frame["objective"].to_list() for frame in drawn] == [list(ends) for ends in objectives]
    assert all(frame["round"].n_unique() == 1 for frame in drawn)
    assert not any("log_likelihood" in frame.columns for frame in tables(chart))
    assert "3 rounds" in words(chart)
    assert "cannot be compared" in words(chart)

    many = [Record(n, -1.0 - n, -1.0 - n, 0.1, n + 1) for n in range(12)]
    model.report_ = replace(dbn.report_, history=many, total_weight=1.0)
    assert "The first and the last 4 are drawn" in words(convergence(model))


def test_convergence_needs_a_fit() -> None:
    with pytest.raises(NotFittedError, match="was not fitted here"):
        convergence(PBM.with_values(examination=1.0, attraction=0.5))
    with pytest.raises(NotFittedError, match="no probabilities yet"):
        convergence(PBM())


# -- stories ---------------------------------------------------------------------------------------
def test_a_story_has_the_posterior_of_its_page(log: ClickLog, dbn: Model) -> None:
    session = log.sessions[int(np.flatnonzero(np.bincount(log.page, log.click) > 1)[0])]
    drawn = table_with(story(dbn, log, session), "event", "probability")
    posterior = dbn.posterior(log).filter(pl.col("session") == session).sort("rank")
    assert drawn["event"].unique(maintain_order=True).to_list() == ["reached", *dbn.forms]
    for event, column in (("reached", "reached"), *((c, f"{c}_heads") for c in dbn.forms)):
        part = drawn.filter(pl.col("event") == event).sort("rank")
        np.testing.assert_allclose(part["probability"], posterior[column])
        assert (part["clicked"] == "yes").to_list() == posterior["click"].to_list()
    assert str(session) in words(story(dbn, log, session))


def test_a_story_with_a_start_and_long_names() -> None:
    class Moody(ClickModel):
        mood = Parameter()
        attraction = Parameter("doc")

        def start(self, user):  # type: ignore[no-untyped-def]
            user.good = flip(self.mood)

        def browse(self, user, result):  # type: ignore[no-untyped-def]
            if user.good and flip(self.attraction):
                user.click()

    long = "https://example.org/" + "x" * 80 + "/the-end"
    log = read_log({"session": [12, 12], "doc": [long, "b"], "rank": [1, 2], "click": [0, 1]})
    chart = story(Moody.with_values(mood=0.5, attraction=0.4), log, "12")
    drawn = table_with(chart, "event")
    assert drawn.filter(event="mood (at start)")["probability"].to_list() == [1.0, 1.0]
    name = drawn["result"][0]
    assert name.startswith("1: https://")
    assert name.endswith("the-end")
    assert len(name) < 40


def test_a_long_page_is_cut_and_the_subtitle_says_so() -> None:
    log = read_log(
        {"session": [1] * 70, "doc": list(range(70)), "rank": list(range(1, 71)), "click": [0] * 70}
    )
    chart = story(
        CCM.with_values(
            attraction=(Table(key="doc"), {0: 0.5}),
            continuation_after_skip=0.9,
            continuation_after_click=0.9,
            continuation_after_satisfaction=0.9,
        ),
        log,
        1,
    )
    assert "The first 50 of 70 results" in words(chart)
    assert table_with(chart, "event")["rank"].max() == 50


def test_a_story_of_no_session(log: ClickLog, dbn: Model) -> None:
    with pytest.raises(ClickLogError, match=r"no session 'nobody'. Its 40 sessions .* s0, s1, s2"):
        story(dbn, log, "nobody")
    empty = read_log(
        pl.DataFrame(
            {"session": ["a", "b"], "query": ["q", "q"], "doc": [["x"], []], "click": [[1], []]}
        )
    )
    with pytest.raises(ClickLogError, match="'b' shows no results"):
        story(dbn, empty, "b")


# -- amounts of data -------------------------------------------------------------------------------
def test_pairs_by_impressions(log: ClickLog, weighted: pl.DataFrame) -> None:
    chart = pairs_by_impressions(log)
    drawn = table_with(chart, "shown", "share")
    shown = weighted.group_by("query", "doc").len()["len"].to_numpy()
    pairs = drawn.filter(kind="share of pairs")
    assert pairs["pairs"].sum() == len(shown)
    edges = {"1": (1, 1), "2–4": (2, 4), "5–9": (5, 9), "10–19": (10, 19), "20–49": (20, 49)}
    for name, (least, most) in edges.items():
        inside = shown[(shown >= least) & (shown <= most)]
        row = pairs.filter(shown=name)
        assert (row["pairs"].sum(), row["impressions"].sum()) == (len(inside), inside.sum())
        if len(inside):
            assert row["share"][0] == pytest.approx(len(inside) / len(shown))
    for kind in ("share of pairs", "share of impressions"):
        assert drawn.filter(kind=kind)["share"].sum() == pytest.approx(1.0)
    assert f"{(shown < 10).sum()} of them" in words(chart)


def test_documents_without_queries() -> None:
    log = read_log(
        {"session": [1, 1, 2], "doc": ["a", "b", "a"], "rank": [1, 2, 1], "click": [1, 0, 0]}
    )
    chart = pairs_by_impressions(log)
    assert "2 documents" in words(chart)
    assert "share of documents" in table_with(chart, "kind")["kind"].to_list()


def test_very_many_impressions() -> None:
    log = read_log(
        {"session": [1], "doc": ["a"], "rank": [1], "click": [1], "n": [3e6]}, weight="n"
    )
    assert "1,000,000 or more" in table_with(pairs_by_impressions(log), "shown")["shown"].to_list()


# -- all of them -----------------------------------------------------------------------------------
def test_every_chart_is_labelled_and_small(
    log: ClickLog, dbn: Model, ubm: Model, pbm: Model, rctr: Model
) -> None:
    sets = {"log": log_charts(log), "stories": {"story": story(dbn, log, "s0")}}
    sets |= {model.name: fit_charts(model, log) for model in (dbn, ubm, pbm, rctr)}
    everything = ["convergence", "examination", "ctr_by_rank", "calibration"]
    assert list(sets["DBN"]) == [*everything, "relevance_against_ctr"]
    assert list(sets["RCTR"]) == ["convergence", "ctr_by_rank", "calibration"]
    for name, chart in ((name, chart) for found in sets.values() for name, chart in found.items()):
        described = chart.to_dict()
        assert sum(map(len, described["datasets"].values())) <= 5_000
        title = described["title"]
        assert title["text"]
        assert title["subtitle"], name
        assert all(len(line) <= 105 for line in title["subtitle"])
        found = [part["encoding"] for part in parts(described) if "encoding" in part]
        assert any("tooltip" in encoding for encoding in found)
        if name != "story":  # its rows and columns say what they are
            for axis in ("x", "y"):
                assert any(encoding.get(axis, {}).get("title") for encoding in found), (name, axis)


def test_a_model_that_was_never_fitted_has_no_convergence(log: ClickLog) -> None:
    given = PBM.with_values(examination={1: 1.0, 2: 0.5}, attraction={("q0", "d0"): 0.4})
    assert list(fit_charts(given, log)) == [
        "examination",
        "ctr_by_rank",
        "calibration",
        "relevance_against_ctr",
    ]


def test_charts_of_a_loaded_model(log: ClickLog, dbn: Model, tmp_path: Path) -> None:
    dbn.save(tmp_path / "fit.gecasmo")
    again = load(tmp_path / "fit.gecasmo")
    assert convergence(again).to_dict() == convergence(dbn).to_dict()
    assert calibration(again, log).to_dict() == calibration(dbn, log).to_dict()


def test_very_many_ranks_are_thinned_and_the_subtitle_says_so() -> None:
    n = 6_000
    ranks = np.arange(1, n + 1)
    log = read_log({"session": [1] * n, "doc": ranks, "rank": ranks, "click": ranks % 2 == 0})
    chart = ctr_by_rank(log)
    drawn = table_with(chart, "rank")
    assert len(drawn) == 5_000
    assert (drawn["rank"].min(), drawn["rank"].max()) == (1, n)
    assert "5,000 of 6,000 ranks drawn" in words(chart)
    frame = pl.DataFrame({"model": ["m"] * n, "rank": ranks, "observed": 0.1, "predicted": 0.1})
    both = ctr_by_rank(frame)
    assert sum(map(len, tables(both))) <= 5_000
    assert "ranks drawn" in words(both)


def test_a_large_heat_map_is_cut_and_the_subtitle_says_so() -> None:
    from gecasmo import UBM

    cells = {(rank, last): 0.5 for rank in range(1, 81) for last in range(rank)}
    chart = examination(UBM.with_values(examination=cells, attraction=0.5))
    assert "The first 60 ranks of 80." in words(chart)
    assert len(table_with(chart, "above")) == 60 * 61 // 2


def test_what_is_refused(log: ClickLog, dbn: Model) -> None:
    empty = log.take([])
    for draw in (ctr_by_rank, pairs_by_impressions):
        with pytest.raises(ClickLogError, match="shows no results"):
            draw(empty)
    for draw in (ctr_by_rank, perplexity_by_rank, calibration, relevance_against_ctr):
        with pytest.raises(ClickLogError, match="shows no results"):
            draw(dbn, empty)
        with pytest.raises(ClickLogError, match="needs a log"):
            draw(dbn, None)
        with pytest.raises(NotFittedError):
            draw(DBN(), log)
    with pytest.raises(ClickLogError, match="not DataFrame"):
        ctr_by_rank(dbn, log.to_frame())
    for draw in (ctr_by_rank, perplexity_by_rank, calibration):
        with pytest.raises(GecasmoError, match=r"A comparison is wanted.*not int"):
            draw(3)
        with pytest.raises(GecasmoError, match="The frame lacks model"):
            draw(pl.DataFrame({"rank": [1]}))
    with pytest.raises(ModelError, match="kind='both'"):
        perplexity_by_rank(dbn, log, kind="both")  # type: ignore[arg-type]
    for level in (0.0, 1.0):
        with pytest.raises(GecasmoError, match="level lies between 0 and 1"):
            ctr_by_rank(log, level=level)
        with pytest.raises(GecasmoError, match="level lies between 0 and 1"):
            calibration(dbn, log, level=level)
    with pytest.raises(ModelError, match="has no coin 'charm'"):
        relevance_against_ctr(dbn, log, coin="charm")


# -- helpers ---------------------------------------------------------------------------------------
def test_thinning_is_even_and_keeps_both_ends() -> None:
    frame = pl.DataFrame({"n": range(1_000)})
    kept = thinned(frame, 10)["n"].to_list()
    assert (len(kept), kept[0], kept[-1]) == (10, 0, 999)
    assert max(np.diff(kept)) - min(np.diff(kept)) <= 1
    assert thinned(frame, 1_000).equals(frame)


def test_intervals_of_shares_are_wilsons() -> None:
    low, high = share_interval([0.0, 0.5], [10, 100], level=0.95)
    np.testing.assert_allclose(low, [0.0, 0.4038315], atol=1e-6)  # tables of the score interval
    np.testing.assert_allclose(high, [0.2775328, 0.5961685], atol=1e-6)


def test_ticks_and_ends_of_axes() -> None:
    assert labelled(1, 10) == list(range(1, 11))
    assert labelled(1, 40) == [1, 5, 10, 15, 20, 25, 30, 35, 40]
    assert labelled(1, 5_000)[:3] == [1, 500, 1_000]
    assert share_end([0.01, 0.05]) == 0.1
    assert share_end([0.97]) == 1.0
    assert share_end([]) == 0.1
