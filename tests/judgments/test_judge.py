"""Relevance, intervals and verdicts against independent computation."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from judgment_examples import Believer, judged_like, searches
from scipy import stats

import gecasmo
from gecasmo import DBN, EM, PBM, RCTR, UBM, ClickModel, Form, Intents, Parameter, Table, flip
from gecasmo.errors import NotFittedError
from gecasmo.judgments import JudgmentsError, judge


class Unnamed(Intents):
    relevance = ()


def by_pair(judgments):
    return {(row["query"], row["doc"]): row for row in judgments.frame.rows(named=True)}


def test_relevance_is_the_product_of_coins_with_different_keys(believer):
    rows = by_pair(judge(believer))
    assert rows["a", "x"]["relevance"] == pytest.approx(0.8 * 0.5)
    assert rows["b", "x"]["relevance"] == pytest.approx(0.1 * 0.5)
    assert rows["a", "y"]["relevance"] == pytest.approx(0.4 * 0.25)
    assert rows["b", "w"]["relevance"] == pytest.approx(0.5 * 0.9)
    assert judge(believer).relevance_is == "attraction x satisfaction"


def test_examinations_are_the_trials_of_the_first_coin(believer):
    rows = by_pair(judge(believer))
    assert rows["a", "x"]["examinations"] == 400
    assert rows["b", "x"]["examinations"] == 800


def test_the_interval_of_a_product_agrees_with_draws_of_both_coins(believer):
    row = by_pair(judge(believer, level=0.8))["a", "y"]
    rng = np.random.default_rng(0)

    def draws(mean, spread):
        strength = mean * (1 - mean) / spread**2 - 1
        return rng.beta(mean * strength, (1 - mean) * strength, 400_000)

    product = draws(0.4, 0.05) * draws(0.25, 0.05)
    assert row["spread"] == pytest.approx(product.std(), rel=0.01)
    assert row["low"] == pytest.approx(np.quantile(product, 0.1), abs=0.002)
    assert row["high"] == pytest.approx(np.quantile(product, 0.9), abs=0.002)


def test_one_coin_keeps_the_interval_of_the_model():
    model = judged_like([0.2, 0.6], low=[0.11, 0.5], high=[0.31, 0.7])
    frame = judge(model).frame.sort("doc")
    assert frame["low"].to_list() == [0.11, 0.5]
    assert frame["high"].to_list() == [0.31, 0.7]


def test_verdicts_follow_width_and_examinations(believer):
    rows = by_pair(judge(believer, max_width=0.4, min_examinations=10))
    assert {pair for pair, row in rows.items() if row["verdict"] != "judged"} == {
        ("a", "z"),
        ("b", "w"),
    }
    assert all((row["grade"] is None) == (row["verdict"] != "judged") for row in rows.values())
    lenient = by_pair(judge(believer, max_width=1, min_examinations=0, min_probability=0.6))
    assert {pair for pair, row in lenient.items() if row["verdict"] != "judged"} == {
        pair for pair, row in lenient.items() if row["grade_probability"] < 0.6
    }
    assert {row["verdict"] for row in lenient.values()} != {"judged"}
    narrow = by_pair(judge(believer, max_width=0.05, min_examinations=0, rule="threshold"))
    assert {pair for pair, row in narrow.items() if row["verdict"] == "judged"} == {
        pair for pair, row in narrow.items() if row["high"] - row["low"] <= 0.05
    }


def test_rests_on_names_the_coins_only_where_they_differ(believer):
    rows = by_pair(judge(believer))
    assert rows["a", "x"]["rests_on"] == "attraction: query, doc; satisfaction: doc"
    assert rows["a", "z"]["rests_on"] == "prior"


def test_given_numbers_need_no_examinations_and_have_no_width():
    table = pl.DataFrame(
        {
            "query": ["q", "q"],
            "doc": ["a", "b"],
            "probability": [0.3, 0.9],
            "spread": [None, None],
            "low": [None, None],
            "high": [None, None],
            "trials": [0.0, 0.0],
            "rests_on": ["given", "given"],
        },
        schema_overrides=dict.fromkeys(("spread", "low", "high"), pl.Float64),
    )
    frame = judge(Believer({"attraction": table}, ("attraction",))).frame.sort("doc")
    assert frame["verdict"].to_list() == ["judged", "judged"]
    assert frame["low"].to_list() == frame["high"].to_list() == [0.3, 0.9]


NOTHING = pl.Series([None, None], dtype=pl.Float64)


def test_an_unknown_interval_is_null_and_not_enough():
    model = judged_like([0.2, 0.6], spread=NOTHING, low=NOTHING, high=NOTHING)
    for options in (
        {},
        {"rule": "interval"},
        {"rule": "threshold", "max_width": 1},
        {"max_width": None, "min_examinations": 0},
    ):
        found = judge(model, **options)
        assert found.frame["verdict"].to_list() == ["insufficient", "insufficient"]
        for name in ("low", "spread", "grade", "grade_low"):
            assert found.frame[name].null_count() == 2
        assert found.n_without_interval == 2
    assert "unknown" in str(found)
    assert "2 pairs; this fit worked out no intervals" in str(found)
    assert judge(model).worth_judging().pairs["worth"].null_count() == 2


def test_one_unknown_interval_spoils_only_its_own_pair():
    model = judged_like([0.2, 0.6], spread=[None, 0.01])
    found = judge(model, rule="threshold").frame.sort("doc")
    assert found["verdict"].to_list() == ["insufficient", "judged"]


def test_features_are_judged_without_interval_if_that_is_asked_for():
    features = ["features", "features"]
    options = {"spread": NOTHING, "low": NOTHING, "high": NOTHING, "trials": [0.0, 0.0]}
    model = judged_like([0.2, 0.6], rests_on=features, **options)
    free = {"max_width": None, "min_examinations": 0}
    for asked, rule, verdict in (
        ({}, "quantile", "insufficient"),
        ({"max_width": None}, "quantile", "insufficient"),
        ({"min_examinations": 0}, "quantile", "insufficient"),
        (free, "quantile", "judged"),
        (free, "interval", "insufficient"),
    ):
        found = judge(model, rule=rule, **asked)
        assert set(found.frame["verdict"]) == {verdict}, (asked, rule)
        assert found.why_no_interval.startswith("this form on features has no intervals")
    found = judge(model, **free)
    assert found.frame.sort("doc")["grade"].to_list() == [0, 2]
    assert found.frame.sort("doc")["rating"].to_list() == [0, 2]
    assert found.frame["grade_probability"].null_count() == found.frame["order"].null_count() == 2
    assert found.max_width is None
    assert found.to_dict()["max_width"] is None
    assert "fewer than 0 examinations, or no interval, unless it rests on features" in str(found)
    mixed = judged_like([0.2, 0.6], rests_on=["features", "query, doc"], **options)
    verdicts = judge(mixed, **free).frame.sort("doc")["verdict"].to_list()
    assert verdicts == ["judged", "insufficient"]
    assert judge(mixed, **free).why_no_interval == (
        "this fit worked out no intervals, which takes EM and intervals=True, or VB() where rows "
        "span the partitions of a stored log"
    )


def test_a_product_lacks_its_interval_by_features_only_if_the_other_coin_has_one(believer):
    believer.tables["attraction"] = believer.tables["attraction"].with_columns(
        spread=pl.lit(None, pl.Float64), rests_on=pl.lit("features")
    )
    free = {"max_width": None, "min_examinations": 0}
    assert set(judge(believer, **free).frame["verdict"]) == {"judged"}
    believer.tables["satisfaction"] = believer.tables["satisfaction"].with_columns(
        spread=pl.lit(None, pl.Float64)
    )
    assert set(judge(believer, **free).frame["verdict"]) == {"insufficient"}


def test_a_fit_that_did_not_converge_judges_nothing_and_says_why(log, tmp_path):
    model = DBN().fit(log, EM(max_iter=3, tol=0), progress=False)
    found = judge(model)
    assert found.frame["low"].null_count() == len(found.frame)
    assert set(found.frame["verdict"]) == {"insufficient"}
    assert found.frame["grade"].null_count() == len(found.frame)
    why = "the fit did not converge, so there are no intervals"
    assert found.why_no_interval == why
    assert why in str(found)
    assert found.to_dict()["why_no_interval"] == why
    assert found.to_dict()["without_interval"] == len(found.frame)
    with pytest.raises(JudgmentsError, match=f"{why}. Fit the model again, by EM that converges"):
        found.write(tmp_path / "judgments.qrels", "qrels")
    model.report_.interrupted = True
    assert judge(model).why_no_interval == "the fit was interrupted, so there are no intervals"
    model.report_ = None  # then all of its numbers are the user's own, and certain
    given = judge(model)
    assert given.n_judged == given.n_given == len(given.frame)
    assert f"given, not estimated: {given.n_given} pairs; counted as certain" in str(given)


def test_a_fit_that_converged_has_nothing_to_explain(model):
    found = judge(model)
    assert found.why_no_interval == ""
    assert found.n_given == found.n_without_interval == 0
    assert "no interval:" not in str(found)
    assert found.to_dict()["why_no_interval"] is None


def test_judgments_of_a_fit_agree_with_its_own_answers(model, log):
    frame = judge(model).frame
    pairs = log.to_frame().select("query", "doc").unique()
    assert len(frame) == len(pairs)
    p = model.probability("attraction", frame) * model.probability("satisfaction", frame)
    np.testing.assert_allclose(frame["relevance"], p)
    counts = model.expected_counts(log)["attraction"]
    found = frame.join(counts, on=["query", "doc"])
    np.testing.assert_allclose(found["examinations"], found["heads"] + found["tails"], rtol=1e-2)
    assert frame["low"].is_between(0, 1).all()
    assert (frame["low"] <= frame["high"]).all()


def test_the_frame_is_sorted_by_query_then_relevance(model):
    frame = judge(model).frame
    again = frame.sort("query", "relevance", "doc", descending=[False, True, False])
    assert frame.equals(again)
    assert frame.columns == [
        *("query", "doc", "relevance", "low", "high", "examinations", "grade", "rating"),
        *("verdict", "rests_on", "grade_probability", "order", "above"),
        *("grade_low", "grade_high", "spread"),
    ]


def test_a_saved_model_gives_the_same_judgments(model, tmp_path):
    model.save(tmp_path / "dbn.gecasmo")
    loaded = gecasmo.load(tmp_path / "dbn.gecasmo")
    assert judge(loaded).frame.equals(judge(model).frame)


def test_the_level_reaches_the_model(believer):
    judge(believer, level=0.5)
    assert set(believer.asked) == {0.5}


def test_a_models_own_relevance(log):
    class Shopper(ClickModel):
        interest = Parameter("query", "doc")
        quality = Parameter("doc")
        mood = Parameter()
        relevance = ("interest", "quality", "mood")

        def browse(self, user, result):
            if flip(self.interest) and flip(self.quality) and flip(self.mood):
                user.click()

    model = Shopper(mood=0.5).fit(log, progress=False)
    found = judge(model, max_width=1)
    assert found.relevance_is == "interest x quality x mood"
    p = [model.probability(coin, found.frame) for coin in ("interest", "quality")]
    np.testing.assert_allclose(found.frame["relevance"], p[0] * p[1] * 0.5)


def test_a_model_by_document_only_has_no_query(log):
    model = PBM(attraction=Table(key="doc")).fit(log, progress=False)
    found = judge(model)
    assert "query" not in found.frame.columns
    assert set(found.frame["doc"]) == set(log.column("doc"))
    with pytest.raises(JudgmentsError, match="know no queries"):
        judge(model, rule="quantile-per-query", max_width=1)


def test_pairs_choose_what_is_judged_and_unseen_pairs_rest_on_the_prior(model):
    wanted = pl.DataFrame({"query": ["red shoes", "new"], "doc": ["d1", "d1"], "note": [1, 2]})
    rows = by_pair(judge(model, pairs=wanted))
    assert set(rows) == {("red shoes", "d1"), ("new", "d1")}
    assert rows["new", "d1"]["verdict"] == "insufficient"
    assert "prior" in rows["new", "d1"]["rests_on"]
    known = by_pair(judge(model))
    assert rows["red shoes", "d1"]["relevance"] == known["red shoes", "d1"]["relevance"]


def test_pairs_of_a_log(model, log):
    assert judge(model, pairs=log).frame.equals(judge(model).frame)


def test_pairs_tell_which_documents_belong_to_which_query():
    tables = {
        "quality": pl.DataFrame({"doc": ["x", "y"], "probability": [0.2, 0.4]}),
        "demand": pl.DataFrame({"query": ["a"], "probability": [0.5]}),
    }
    extra = {"spread": 0.01, "trials": 99.0, "rests_on": "doc"}
    tables = {
        coin: table.with_columns(**{name: pl.lit(value) for name, value in extra.items()})
        for coin, table in tables.items()
    }
    model = Believer(tables, ("quality", "demand"))
    with pytest.raises(JudgmentsError, match="which documents belong to which query"):
        judge(model)
    found = judge(model, pairs={"query": ["a", "a"], "doc": ["x", "y"]})
    assert found.frame["relevance"].to_list() == pytest.approx([0.2, 0.1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RCTR(), "does not say what relevance is.*relevance ="),
        (lambda: Unnamed(), r'relevance = \("attraction\[0\]",\), or set model.relevance'),
        (lambda: UBM(attraction=Table(key=("doc", "rank"))), "depends on rank.*pairs=frame"),
        (lambda: PBM(attraction=Table(key="query")), "same for all documents"),
        (lambda: PBM(attraction=Table(key=())), "same for all documents"),
    ],
)
def test_models_that_cannot_be_judged(make, message, log):
    with pytest.raises(JudgmentsError, match=message):
        judge(make().fit(log, progress=False))


def test_a_key_beside_query_and_doc_is_answered_through_pairs():
    table = pl.DataFrame(
        {
            "query": ["q", "q"],
            "doc": ["a", "a"],
            "device": ["phone", "desk"],
            "probability": [0.3, 0.9],
            "spread": [0.01, 0.01],
            "trials": [50.0, 50.0],
            "rests_on": ["device", "device"],
        }
    )
    model = Believer({"attraction": table}, ("attraction",))
    with pytest.raises(JudgmentsError, match="depends on device"):
        judge(model)
    phone = pl.DataFrame({"query": ["q"], "doc": ["a"], "device": ["phone"]})
    assert judge(model, pairs=phone).frame["relevance"].to_list() == [0.3]
    with pytest.raises(JudgmentsError, match=r"name \('q', 'a'\) more than once.*device"):
        judge(model, pairs=table)
    with pytest.raises(JudgmentsError, match="pairs lack device"):
        judge(model, pairs=phone.drop("device"))


def test_faulty_pairs(model):
    with pytest.raises(JudgmentsError, match="pairs lack doc"):
        judge(model, pairs={"query": ["a"], "item": ["b"]})
    with pytest.raises(JudgmentsError, match="rows without doc"):
        judge(model, pairs={"query": ["a"], "doc": [None]})


def test_models_without_numbers():
    with pytest.raises(NotFittedError):
        judge(DBN())
    with pytest.raises(JudgmentsError, match="no rows of query and doc"):
        judge(DBN.with_values(attraction=0.3, satisfaction=0.5, continuation=0.9))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "best"}, "rule='best': choose one of informative"),
        ({"grades": 1}, "between 2 and 10"),
        ({"grades": 11}, "between 2 and 10"),
        ({"grades": 2.5}, "whole number"),
        ({"grades": True}, "whole number"),
        ({"thresholds": [0.1, 0.2, 0.3]}, "finds its own cut points"),
        ({"rule": "threshold", "thresholds": [0.1, 0.2]}, "4 grades want 3 cut points"),
        ({"rule": "threshold", "thresholds": [0.3, 0.2, 0.5]}, "ascend"),
        ({"rule": "interval", "thresholds": [0.1, 0.2, 1.0]}, "between 0 and 1"),
        ({"max_width": -1}, "max_width=-1"),
        ({"min_examinations": "many"}, "min_examinations='many'"),
        ({"max_width": float("nan")}, "max_width=nan"),
        ({"min_probability": 1.5}, "min_probability=1.5: a probability from 0 to 1"),
        ({"min_order": None}, "min_order=None"),
    ],
)
def test_faulty_options(options, message, believer):
    with pytest.raises(JudgmentsError, match=message):
        judge(believer, **options)


def test_intervals_cover_under_their_own_assumptions():
    """A Beta posterior from counts: the interval holds the truth as often as it says."""
    rng = np.random.default_rng(1)
    truth = rng.beta(2, 3, 4000)
    trials = 30
    heads = rng.binomial(trials, truth)
    posterior = stats.beta(heads + 2, trials - heads + 3)
    model = judged_like(
        posterior.mean().tolist(), spread=posterior.std().tolist(), trials=[float(trials)] * 4000
    )
    frame = judge(model).frame.sort(pl.col("doc").str.slice(1).cast(int))
    covered = ((frame["low"].to_numpy() <= truth) & (truth <= frame["high"].to_numpy())).mean()
    assert 0.88 < covered < 0.92


class ByLength(Form):
    """A form on features that does not tell how sure it is."""

    columns = ("length",)

    def begin(self, rows, generator):
        return 1.0

    def fit(self, rows, heads, tails, previous):
        return previous

    def predict(self, state, rows):
        return 1 / (state + rows.features(self.columns)["length"].to_numpy())


def test_a_form_without_intervals_is_judged_if_asked_or_told_so(tmp_path):
    log = searches(60)
    frame = log.to_frame().with_columns(length=pl.col("doc").str.len_chars().cast(float))
    model = PBM(attraction=ByLength()).fit(gecasmo.read_log(frame), progress=False)
    pairs = frame.select("query", "doc", "length").unique()
    assert judge(model).frame.equals(judge(model, pairs=pairs).frame)
    found = judge(model, pairs=pairs, max_width=None, min_examinations=0).frame
    assert set(found["verdict"]) == {"judged"}
    np.testing.assert_allclose(
        found["relevance"],
        model.probability(
            "attraction", found.join(pairs, on=["query", "doc"], maintain_order="left")
        ),
    )
    assert found["low"].null_count() == len(found)
    careful = judge(model, pairs=pairs)
    assert set(careful.frame["verdict"]) == {"insufficient"}
    with pytest.raises(JudgmentsError, match="say max_width=None, min_examinations=0"):
        careful.write(tmp_path / "judgments.qrels", "qrels", ids="encode")


def test_a_grade_that_is_not_probable_enough_is_none():
    values, spread = [0.15, 0.5, 0.4, 0.85], [0.01, 0.2, 0.15, 0.01]
    options = {"rule": "threshold", "max_width": None, "thresholds": [0.25, 0.5, 0.75]}
    found = judge(judged_like(values, spread=spread), min_order=1, **options)
    frame = found.frame.sort("doc")
    for row, value, deviation in zip(frame.rows(named=True), values, spread, strict=True):
        strength = value * (1 - value) / deviation**2 - 1
        truth = stats.beta(value * strength, (1 - value) * strength)
        chances = np.diff(truth.cdf([0, 0.25, 0.5, 0.75, 1]))
        own = int(value // 0.25)
        assert row["grade_probability"] == pytest.approx(chances[own], abs=1e-9)
        assert row["rating"] == pytest.approx(chances @ np.arange(4), abs=1e-9)
    assert frame["verdict"].to_list() == ["judged", "insufficient", "judged", "judged"]
    assert frame["grade"].to_list() == [0, None, 1, 3]
    assert found.n_undecided == found.to_dict()["undecided"] == 1
    assert "no grade for doubt alone: 1 pair" in str(found)
    careful = judge(judged_like(values, spread=spread), min_probability=0.9, **options)
    assert careful.by_grade == {0: 1, 1: 0, 2: 0, 3: 1}
    # Those that lack data anyway are not counted once more.
    few = judged_like([0.15, 0.5], spread=[0.1, 0.2], trials=[99.0, 1.0])
    assert judge(few, **options).n_undecided == 0


@pytest.mark.parametrize("make", [PBM, UBM])
def test_a_scale_that_nothing_anchors_is_told(make, log, tmp_path):
    found = judge(make().fit(log, progress=False))
    (remark,) = found.remarks
    assert "nothing anchors their scale: relevances are known up to a common factor" in remark
    fixed = {1: 1.0} if make is PBM else {(1, 0): 1.0}
    assert f"Table(fixed={fixed})" in remark
    assert found.to_dict()["remarks"] == [remark]
    assert "nothing anchors their scale" in " ".join(str(found).split())
    assert remark in found.write(tmp_path / "a.csv").remarks
    anchored = judge(make(examination=Table(fixed=fixed)).fit(log, progress=False))
    assert anchored.remarks == ()
    assert "anchor" not in str(anchored)


def test_a_scale_that_needs_no_anchor_is_not_told(model):
    assert judge(model).remarks == ()


def test_a_log_of_clicks_only_tells_no_pairs_apart():
    docs = ["a", "b", "c", "d"] * 30
    sessions = [number // 4 for number in range(120)]
    log = gecasmo.read_log(
        {
            "session": sessions,
            "query": ["q"] * 120,
            "doc": docs,
            "rank": [1, 2, 3, 4] * 30,
            "click": [1] * 120,
        }
    )
    found = judge(PBM(examination=Table(fixed={1: 1.0})).fit(log, progress=False))
    assert found.grading.cuts == (0.25, 0.5, 0.75)
    assert found.by_grade == {0: 0, 1: 0, 2: 0, 3: 4}
    assert found.frame["order"].to_list() == pytest.approx([0.5] * 4, abs=0.01)
