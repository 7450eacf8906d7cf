"""Clicks with other judges: how far each is trusted, and what is believed then."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pytest
from judgment_examples import Believer
from scipy.stats import spearmanr

from gecasmo.errors import GecasmoError
from gecasmo.judgments import Grades, Judgments, judge
from gecasmo.judgments.grades import BetaBeliefs
from gecasmo.judgments.hearing import possible_pairs
from gecasmo.judgments.possible import Worlds, places_in
from gecasmo.judgments.trust import RELEVANCE, Scale, UnseenLevel, _Learner, _Pairs, learn, masses

N_QUERIES, N_DOCS = 40, 12
PRIOR = (1.0, 3.0)  # of relevance, true and believed


class Clicked(Believer):
    """Pairs whose relevance is what clicks left of the prior; others have the prior."""

    def estimates(self, coin: str, rows: Any = None, *, level: float = 0.9) -> pl.DataFrame:
        found = super().estimates(coin, rows, level=level)
        if rows is None:
            return found
        a, b = PRIOR
        spread = np.sqrt(a * b / (a + b) ** 2 / (a + b + 1))
        usual = {"probability": a / (a + b), "spread": spread, "low": 0.01, "high": 0.63}
        unseen = pl.col("rests_on") == "prior"
        return found.with_columns(
            pl.when(unseen).then(pl.lit(value)).otherwise(name).alias(name)
            for name, value in usual.items()
        )


class World(NamedTuple):
    model: Clicked
    truth: pl.DataFrame  # query, doc, true, shown

    @property
    def true(self) -> np.ndarray:
        return self.truth["true"].to_numpy()

    def grades(self, said: Any) -> pl.DataFrame:
        return self.truth.select("query", "doc", pl.Series("grade", said, strict=False))

    def blend(self, found: Judgments) -> pl.DataFrame:
        keys = ["query", "doc"]
        return self.truth.join(found.frame, on=keys, how="left", maintain_order="left")


@cache
def world(seed: int = 0, most: int = 60) -> World:
    """Pairs with true relevances, clicked at up to `most` times; a third was never shown."""
    rng = np.random.default_rng(seed)
    n = N_QUERIES * N_DOCS
    true = rng.beta(*PRIOR, n)
    trials = np.where(rng.random(n) < 1 / 3, 0, rng.integers(1, most, n))
    heads = rng.binomial(trials, true)
    a, b = PRIOR[0] + heads, PRIOR[1] + trials - heads
    truth = pl.DataFrame(
        {
            "query": [f"q{i // N_DOCS:02}" for i in range(n)],
            "doc": [f"d{i:03}" for i in range(n)],
            "true": true,
            "shown": trials > 0,
        }
    )
    table = truth.select("query", "doc").with_columns(
        pl.Series("probability", a / (a + b)),
        pl.Series("spread", np.sqrt(a * b / (a + b + 1)) / (a + b)),
        pl.Series("trials", trials.astype(float)),
        pl.lit("query, doc").alias("rests_on"),
    )
    model = Clicked({"attraction": table.filter(truth["shown"])}, ("attraction",))
    return World(model, truth)


def exact(true: np.ndarray) -> np.ndarray:
    return np.searchsorted(np.quantile(true, [0.4, 0.7, 0.9]), true)


def right(true: np.ndarray, share: float, seed: int = 5) -> np.ndarray:
    """Grades that are right so often, and any else."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(len(true)) < share, exact(true), rng.integers(0, 4, len(true)))


@cache
def blended(share: float) -> Judgments:
    one = world()
    return judge(one.model, grades_from={"llm": one.grades(right(one.true, share))})


def spearman(one: World, found: Judgments) -> float:
    return float(spearmanr(one.blend(found)["relevance"], one.true).statistic)


def by_clicks(one: World) -> Judgments:
    return judge(one.model, pairs=one.truth.select("query", "doc"))


# -- laws --------------------------------------------------------------------------------------
def test_a_judge_that_is_noise_changes_nothing():
    one = world()
    found = blended(0.0)
    columns = ["relevance", "spread", "low", "high"]
    before = one.blend(by_clicks(one))
    assert one.blend(found).select(columns).equals(before.select(columns))
    assert found.judges.trust["verdict"][0] == "no better than noise, by clicks; changes nothing"
    assert found.judges.trust["low"][0] <= 0 <= found.judges.trust["high"][0]


def test_the_better_a_judge_the_better_the_order():
    one = world()
    clicks = spearman(one, by_clicks(one))
    found = [spearman(one, blended(share)) for share in (0.0, 0.4, 0.7, 1.0)]
    assert found[0] == pytest.approx(clicks)
    assert found == sorted(found)
    alone = spearmanr(exact(one.true), one.true).statistic
    assert found[-1] > alone - 0.01 > clicks + 0.1
    agreement = [blended(share).judges.trust["agreement"][0] for share in (0.0, 0.4, 0.7, 1.0)]
    assert agreement == sorted(agreement)
    assert agreement[-1] > 0.8


@pytest.mark.parametrize(
    "other",
    [lambda grade: 3 - grade, lambda grade: np.array([-7, 0.01, 50, 1e6])[grade]],
    ids=["inverted", "another scale"],
)
def test_only_the_order_of_numbers_counts_and_it_may_be_inverted(other):
    one = world()
    found = judge(one.model, grades_from={"llm": one.grades(other(right(one.true, 0.7)))})
    told = one.blend(found)["relevance"].to_numpy()
    assert told == pytest.approx(one.blend(blended(0.7))["relevance"].to_numpy(), abs=7e-3)


def test_an_inverted_judge_is_called_so():
    one = world()
    found = judge(one.model, grades_from={"llm": one.grades(3 - right(one.true, 0.7))})
    assert found.judges.trust["verdict"][0].startswith("trusted, inverted")
    assert found.judges.trust["agreement"][0] < -0.4


def test_words_are_put_in_order_by_clicks():
    one = world()
    words = np.array(["poor", "fair", "good", "best"])[right(one.true, 0.7)]
    found = judge(one.model, grades_from={"people": one.grades(words)})
    told = one.blend(found)["relevance"].to_numpy()
    assert told == pytest.approx(one.blend(blended(0.7))["relevance"].to_numpy(), abs=2e-2)


def test_who_repeats_another_adds_nothing_and_who_does_not_adds_something():
    one = world()
    llm = one.grades(right(one.true, 0.7))
    twice = judge(one.model, grades_from={"llm": llm, "again": llm})
    told = one.blend(twice)["relevance"].to_numpy()
    assert told == pytest.approx(one.blend(blended(0.7))["relevance"].to_numpy())
    assert twice.judges.trust["verdict"][1] == "repeats another judge; adds nothing"
    other = one.grades(right(one.true, 0.7, seed=6))
    both = judge(one.model, grades_from={"llm": llm, "other": other})
    assert spearman(one, both) > spearman(one, twice) + 0.02


def test_a_score_of_many_values_is_a_judge_too():
    one = world()
    rng = np.random.default_rng(3)
    logit = np.log(one.true / (1 - one.true))
    score = logit + logit.std() * rng.normal(size=len(logit))
    found = judge(one.model, grades_from={"score": one.grades(score)})
    assert spearman(one, found) > spearman(one, by_clicks(one)) + 0.05
    assert len(found.judges.calibration) == 20
    assert "grade 0" not in str(found.judges)  # shares of so many classes are in the frame only


# -- beliefs -----------------------------------------------------------------------------------
def test_intervals_of_clicks_and_judges_hold_the_truth_as_often_as_they_say():
    inside = []
    for seed in range(3):
        one = world(seed)
        found = judge(one.model, grades_from=one.grades(right(one.true, 0.7, seed)))
        told = one.blend(found)
        inside.append(((told["low"] <= told["true"]) & (told["true"] <= told["high"])).mean())
    assert 0.86 < np.mean(inside) < 0.95


def test_pairs_that_only_a_judge_has_seen_are_judged_and_say_so():
    one = world()
    told = one.blend(blended(1.0))
    unseen = told.filter(~pl.col("shown"))
    assert unseen["rests_on"].unique().to_list() == ["prior + llm"]
    assert told.filter("shown")["rests_on"].unique().to_list() == ["query, doc + llm"]
    assert unseen["examinations"].max() == 0
    assert (unseen["verdict"] == "judged").mean() > 0.5
    before = one.blend(by_clicks(one)).filter(~pl.col("shown"))
    assert (before["verdict"] == "judged").sum() == 0
    width = (unseen["high"] - unseen["low"]).mean()
    assert width < 0.6 * (before["high"] - before["low"]).mean()


def test_pairs_that_are_given_choose_what_is_judged():
    one = world()
    pairs = one.truth.select("query", "doc").head(30)
    found = judge(one.model, pairs=pairs, grades_from=one.grades(right(one.true, 0.7)))
    assert len(found) == 30


def test_masses_are_those_of_beta_distributions():
    mean, strength = np.array([0.02, 0.3, 0.5, 0.9]), np.array([3.0, 8.0, 4000.0, np.inf])
    mass = masses(BetaBeliefs(mean, strength))
    assert mass.sum(axis=1) == pytest.approx(1)
    assert mass @ RELEVANCE == pytest.approx(mean, abs=3e-3)
    second = mean * (1 - mean) / (np.where(np.isinf(strength), 1e12, strength) + 1)
    told = mass @ RELEVANCE**2 - (mass @ RELEVANCE) ** 2
    assert told[:2] == pytest.approx(second[:2], rel=0.05)


def test_the_slope_of_what_is_climbed_is_its_slope():
    one = world()
    table = one.model.tables["attraction"].rename({"probability": "relevance"})
    mass = masses(BetaBeliefs.of(table))
    grade = right(one.true, 0.7)[one.truth["shown"].to_numpy()]
    scale = Scale.of(mass)
    other = grade % 3
    trust = learn(mass, grade, 4, scale, np.arange(4), other)
    weight = np.linspace(0.2, 1, len(grade))
    unseen = np.arange(len(grade)) % 4 == 0
    pairs = _Pairs(mass, grade, other, weight, unseen)
    for sign in (-1, 0, 1):
        learner = _Learner(trust, pairs, UnseenLevel(-0.5, 0.7), sign)
        place = learner.centre + 0.3 * np.random.default_rng(1).normal(size=len(trust.found))
        _, slope = learner(place)
        for number in np.flatnonzero(learner.free):
            step = np.zeros(len(place))
            step[number] = 1e-5
            change = (learner(place + step)[0] - learner(place - step)[0]) / 2e-5
            assert slope[number] == pytest.approx(change, rel=1e-4, abs=1e-4)


# -- what is told ------------------------------------------------------------------------------
def test_confusions_hold_the_true_shares():
    one = world()
    found = blended(0.7)
    rows = found.judges.confusion
    sums = rows.group_by("said").agg(pl.sum("share"))
    assert sums["share"].to_list() == pytest.approx([1.0] * 4)
    shown = one.truth.with_columns(said=pl.Series(right(one.true, 0.7)).cast(pl.String))
    shown = shown.filter("shown").with_columns(
        grade=pl.Series(
            np.searchsorted(found.grading.cuts, one.true[one.truth["shown"].to_numpy()], "right")
        )
    )
    held = 0
    for said, grade, low, high in rows.select("said", "grade", "low", "high").rows():
        some = shown.filter(pl.col("said") == said)
        held += low <= (some["grade"] == grade).mean() <= high
    assert held >= 13  # of 16
    assert (rows["high"] - rows["low"]).mean() < 0.35
    means = found.judges.calibration.select("said", "low", "high").rows()
    true = [shown.filter(pl.col("said") == said)["true"].mean() for said, _, _ in means]
    assert sum(low <= mean <= high for mean, (_, low, high) in zip(true, means, strict=True)) >= 3


def test_what_is_told_of_judges_can_be_read():
    text = str(blended(0.7).judges)
    for words in ("judges against clicks", "llm", "trusted", "what llm said", "grade 3"):
        assert words in text
    data = blended(0.7).to_dict()["judges"]
    assert data["trust"][0]["judge"] == "llm"
    assert len(data["confusion"]) == 16
    html = blended(0.7).judges._repr_html_()
    assert html.count("<table") == 2
    assert "what llm said" in html


def test_where_clicks_and_a_judge_disagree_comes_first():
    one = world()
    said = right(one.true, 0.9)
    table = one.model.tables["attraction"]
    sure = table.with_row_index().filter(pl.col("trials") > 40).sort("probability")
    query, doc = sure.select("query", "doc").row(-1)
    place = one.truth.select((pl.col("query") == query) & (pl.col("doc") == doc)).to_series()
    said[int(place.arg_max())] = 0
    found = judge(one.model, grades_from={"llm": one.grades(said)})
    worst = found.disagreements(5)
    assert ("llm", query, doc, "0") in worst.select("judge", "query", "doc", "said").rows()
    assert worst["apart"].is_sorted(descending=True)
    planted = worst.filter(pl.col("doc") == doc)
    assert planted["by_clicks"][0] > planted["high"][0] - 0.3 > planted["by_judge"][0]
    assert judge(one.model, grades_from=one.grades(right(one.true, 0.0))).disagreements().is_empty()


def test_who_should_judge_next_counts_pairs_that_nobody_saw():
    one = world()
    found = blended(0.7)
    worth = found.worth_judging(20)
    assert len(worth.pairs) == 20
    assert worth.pairs["worth"].is_sorted(descending=True)
    assert worth.pairs["worth"].to_list() == pytest.approx(
        (worth.pairs["traffic"] * worth.pairs["change"]).to_list()
    )
    every = found.worth_judging(1000).pairs.join(one.truth, on=["query", "doc"])
    assert every.filter(~pl.col("shown"))["worth"].min() > 0
    assert "change: how far a sure grade" in str(worth)
    assert found.worth_judging(20, judge="llm").pairs.is_empty()  # it has graded all
    with pytest.raises(GecasmoError, match=r"judge='me': there is no such judge, only: llm"):
        found.worth_judging(judge="me")


# -- runs --------------------------------------------------------------------------------------
def true_ndcg(one: World, score: np.ndarray, at: int) -> float:
    frame = one.truth.with_columns(score=pl.Series(score))
    found = []
    for by in ("score", "true"):
        top = frame.sort("query", by, descending=[False, True], maintain_order=True)
        top = top.with_columns(place=pl.int_range(1, pl.len() + 1).over("query"))
        gain = pl.col("true") / (pl.col("place") + 1).log(2)
        top = top.filter(pl.col("place") <= at).group_by("query").agg(gain.sum()).sort("query")
        found.append(top["true"].to_numpy())
    return float((found[0] / found[1]).mean())


@pytest.mark.parametrize("most", [4, 60])
def test_ndcg_of_runs_holds_the_truth(most):
    held, apart, n = 0, 0, 0
    for seed in range(4):
        one = world(seed, most)
        rng = np.random.default_rng(seed)
        found = judge(one.model, grades_from=one.grades(right(one.true, 0.7, seed)))
        logit = np.log(one.true / (1 - one.true))
        scores = {noise: logit + noise * rng.normal(size=len(logit)) for noise in (100.0, 2.0, 0.5)}
        runs = {
            str(noise): one.truth.select("query", "doc", pl.Series("score", score))
            for noise, score in scores.items()
        }
        true = {str(noise): true_ndcg(one, score, 5) for noise, score in scores.items()}
        told = found.ndcg(runs, at=5)
        for row in told.runs.rows(named=True):
            held += row["low"] <= true[row["run"]] <= row["high"]
            n += 1
            assert row["low"] < row["ndcg"] < row["high"]
            assert row["low_others"] <= row["low"] < row["high"] <= row["high_others"]
            # It says something: clicks and judges know more than nothing.
            assert row["high"] - row["low"] < (0.2 if most > 4 else 0.4)
        for row in told.differences.rows(named=True):
            gap = true[row["run"]] - true[row["against"]]
            apart += row["low"] <= gap <= row["high"]
            assert row["low"] > 0  # all are better than by lot, and that is known
    assert held >= n - 2
    assert apart >= 2 * n / 3 - 2


def test_a_ranker_that_knows_more_than_clicks_is_heard():
    """Of pairs that are hardly known its order tells relevance, or its nDCG would be too low."""
    one = world(5, most=8)
    score = np.log(one.true / (1 - one.true))
    run = one.truth.select("query", "doc", pl.Series("score", score))
    frame = one.blend(by_clicks(one)).sort("query", "doc")
    worlds = Worlds.of(frame, None, partial(possible_pairs, one.model, None), 1)
    order = frame.select(pl.col("true").rank("ordinal", descending=True).over("query"))["true"]
    before = spearmanr(worlds.angle.mean(axis=1), one.true).statistic
    worlds.hear(places_in(worlds.query, order))
    assert spearmanr(worlds.angle.mean(axis=1), one.true).statistic > before + 0.1
    (row,) = by_clicks(one).ndcg(run, at=5).runs.rows(named=True)
    assert row["ndcg"] > 0.93
    by_lot = one.truth.select("query", "doc", pl.Series("score", np.arange(len(score)) % 7))
    (row,) = by_clicks(one).ndcg(by_lot, at=5).runs.rows(named=True)
    assert row["low"] < true_ndcg(one, by_lot["score"].to_numpy(), 5) < row["high"] < 0.8


def test_pairs_that_a_run_lacks_share_its_last_places():
    places = pl.Series([2, None, 1, None, 1, None])
    assert places_in(np.array([0, 0, 0, 0, 1, 1]), places).tolist() == [2, 3.5, 1, 3.5, 1, 2]


def test_runs_meet_the_same_worlds(tmp_path):
    one = world()
    run = one.truth.select("query", "doc", score="true")
    ranks = run.with_columns(rank=pl.col("score").rank("ordinal", descending=True).over("query"))
    path = tmp_path / "theirs.run"
    path.write_text(
        "".join(
            f"{query} Q0 {doc} {rank} {score} tag\n"
            for query, doc, score, rank in ranks.select("query", "doc", "score", "rank").rows()
        )
    )
    told = blended(0.7).ndcg({"ours": ranks.drop("score"), "theirs": path}, at=3)
    assert told.differences.row(0) == ("theirs", "ours", 0.0, 0.0, 0.0)
    assert set(told.queries.columns) == {"run", "query", "ndcg", "low", "high"}
    assert len(told.queries) == 2 * N_QUERIES
    assert "nDCG@3" in str(told)
    assert "theirs - ours: +0.000" in str(told)
    assert by_clicks(one).ndcg(ranks, at=3).runs["from_judges"].to_list() == [0.0]


def test_pairs_of_a_run_that_nobody_has_seen_have_the_prior():
    run = pl.DataFrame({"query": ["q00", "q00"], "doc": ["new", "d000"], "rank": [1, 2]})
    told = blended(0.7).ndcg(run, at=2).runs
    assert told["neither"].to_list() == [0.5]


@pytest.mark.parametrize(
    ("run", "said"),
    [
        ({"query": ["q00"], "doc": ["d000"]}, "no column of ranks or scores. It has: query, doc"),
        ({"query": ["q00"] * 2, "doc": ["d000"] * 2, "rank": [1, 2]}, "is there twice"),
        ({"query": ["q00"], "doc": ["d000"], "rank": ["first"]}, "a number in 'rank'"),
        ({"query": ["q99"], "doc": ["d000"], "rank": [1]}, "No page shows a pair of the query"),
        ({"doc": ["d000"], "rank": [1]}, "no column for query. It has: doc, rank. Rename one."),
    ],
)
def test_runs_that_cannot_be_used(run, said):
    with pytest.raises(GecasmoError, match=said):
        blended(0.7).ndcg(pl.DataFrame(run))


def test_without_judges_there_is_nothing_to_say_of_them():
    found = by_clicks(world())
    with pytest.raises(GecasmoError, match="There are no judges: name them with grades_from"):
        found.disagreements()


# -- grades as they come -----------------------------------------------------------------------
def test_columns_are_guessed_or_named_and_ids_become_those_of_the_model(tmp_path):
    one = world()
    grades = one.grades(right(one.true, 0.7))
    path = tmp_path / "llm.csv"
    grades.rename({"query": "search_term", "doc": "sku", "grade": "rating"}).write_csv(path)
    found = judge(one.model, grades_from=[path])
    assert one.blend(found)["relevance"].equals(one.blend(blended(0.7))["relevance"])
    notes = found.judges.notes["llm"]
    assert "query is its column 'search_term'" in notes
    odd = grades.rename({"query": "a", "doc": "b", "grade": "c"})
    named = judge(one.model, grades_from=Grades(odd, "llm", query="a", doc="b", grade="c"))
    assert one.blend(named)["relevance"].equals(one.blend(found)["relevance"])
    lines = [f"{query} 0 {doc} {grade}\n" for query, doc, grade in grades.rows()]
    (tmp_path / "llm.qrels").write_text("".join(lines))
    trec = judge(one.model, grades_from=tmp_path / "llm.qrels")
    assert one.blend(trec)["relevance"].equals(one.blend(found)["relevance"])


def test_nulls_and_grades_that_differ_are_counted():
    one = world()
    said = right(one.true, 0.7).astype(float)
    grades = one.grades(said)
    again = grades.head(4).with_columns(grade=pl.Series([said[0], *(said[1:4] + 1)]))
    empty = grades.head(2).with_columns(grade=pl.lit(None, pl.Float64))
    found = judge(one.model, grades_from={"llm": pl.concat([grades, again, again[1:], empty])})
    notes = " ".join(found.judges.notes["llm"])
    assert "2 rows without query, doc or grade left out" in notes
    assert "7 rows of pairs that occurred before" in notes
    assert "3 pairs with grades that differ: the median counts" in notes


def test_words_among_numbers_are_told():
    one = world()
    said = [str(grade) for grade in right(one.true, 0.7)]
    found = judge(one.model, grades_from={"llm": one.grades(["no idea", *said[1:]])})
    notes = " ".join(found.judges.notes["llm"])
    assert "1 grade is no number, such as 'no idea': so all count as words" in notes


def test_a_judge_without_pairs_in_common_is_believed_as_judges_usually_can_be():
    one = world()
    said = right(one.true, 1.0)
    unseen = one.grades(said).filter(~one.truth["shown"])
    found = judge(one.model, grades_from={"llm": unseen})
    assert found.judges.trust["shown"].to_list() == [0]
    verdict = "unchecked: no pair in common with clicks; believed as judges usually can be"
    assert found.judges.trust["verdict"].to_list() == [verdict]
    assert verdict.split(";")[0] in str(found.judges)
    told = one.blend(found).with_columns(said=pl.Series(said))
    means = told.filter(~pl.col("shown")).group_by("said").agg(pl.mean("relevance")).sort("said")
    assert means["relevance"].is_sorted()
    assert means["relevance"][-1] > means["relevance"][0] + 0.1
    before = one.blend(by_clicks(one))
    assert told.filter("shown")["relevance"].equals(before.filter("shown")["relevance"])
    # It may still be noise, so that little is sure.
    wide = told.filter(~pl.col("shown")).select(pl.col("high") - pl.col("low")).to_series().mean()
    assert wide > 0.7 * (before["high"] - before["low"]).filter(~before["shown"]).mean()


def test_no_clicks_tell_the_order_of_words():
    one = world()
    words = np.array(["poor", "fair", "good", "best"])[right(one.true, 1.0)]
    found = judge(one.model, grades_from=one.grades(words).filter(~one.truth["shown"]))
    said = "unchecked: no clicks tell the order of its words; changes nothing"
    assert found.judges.trust["verdict"].to_list() == [said]
    assert one.blend(found)["relevance"].equals(one.blend(by_clicks(one))["relevance"])


def test_with_few_clicks_both_are_not_far_behind_the_better_of_the_two():
    """A handful of looks at a pair: judges are believed from the start, and clicks overrule."""
    behind = []
    for seed in (3, 4):
        one = world(seed, most=3)
        clicks = spearman(one, by_clicks(one))
        for share in (0.0, 0.4, 0.7, 1.0):
            said = right(one.true, share, seed)
            alone = float(spearmanr(said, one.true).statistic)
            found = judge(one.model, grades_from=one.grades(said))
            behind.append(max(clicks, alone) - spearman(one, found))
    assert max(behind) < 0.08
    assert np.mean(behind) < 0.0


@pytest.mark.parametrize(
    ("grades", "said"),
    [
        ({"query": ["a"], "grade": [1]}, r"no column for doc. It has: query, grade. Say which"),
        ({"query": ["a"], "doc": ["b"], "x": [1]}, r"no column for grade"),
        ({"query": ["a", "a"], "doc": ["b", "c"], "grade": [1, 1]}, r"the same grade \(1\)"),
        ({"query": [], "doc": [], "grade": []}, "there are no rows"),
        ({"query": ["a"], "doc": ["b"], "grade": [None]}, "no row has a query, a doc and a grade"),
        (
            {
                "query": ["a"] * 40,
                "doc": list(map(str, range(40))),
                "grade": [f"w{i}" for i in range(40)],
            },
            "40 different words as grades",
        ),
    ],
)
def test_grades_that_cannot_be_used(grades, said):
    with pytest.raises(GecasmoError, match=said):
        judge(world().model, grades_from=pl.DataFrame(grades))


def test_sources_that_cannot_be_used(tmp_path):
    one = world()
    with pytest.raises(GecasmoError, match="there is no such file"):
        judge(one.model, grades_from=tmp_path / "no.csv")
    with pytest.raises(GecasmoError, match="there is no judge in it"):
        judge(one.model, grades_from=[])
    grades = Grades(one.grades(right(one.true, 0.7)), "llm")
    with pytest.raises(GecasmoError, match="two judges are called 'llm'"):
        judge(one.model, grades_from=[grades, grades])
    with pytest.raises(GecasmoError, match="no column 'stars' for grade"):
        judge(one.model, grades_from=Grades(one.grades(right(one.true, 0.7)), grade="stars"))
    (tmp_path / "bad.txt").write_text("just two\n")
    with pytest.raises(GecasmoError, match=r"line 1: a .csv, .tsv, .parquet or .jsonl file"):
        judge(one.model, grades_from=tmp_path / "bad.txt")
