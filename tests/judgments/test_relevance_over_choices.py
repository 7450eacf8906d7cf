"""Relevance as the mean of a coin over a choice, such as the intents of a query."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from judgment_examples import Believer, searches

from gecasmo import (
    Choice,
    ClickModel,
    Fixed,
    Intents,
    Logistic,
    Parameter,
    Table,
    choose,
    flip,
    load,
)
from gecasmo.evaluation.relevance import relevance_of
from gecasmo.judgments import JudgmentsError, judge, propensities
from gecasmo.judgments.pairs import relevance_draws


def table(pairs: list[tuple[str, ...]], means: list[float], spreads: list[float]) -> pl.DataFrame:
    names = ("query", "doc")[: len(pairs[0])]
    keys = {name: [pair[place] for pair in pairs] for place, name in enumerate(names)}
    rests_on = [", ".join(names)] * len(pairs)
    rest = {"probability": means, "spread": spreads, "trials": 40.0, "rests_on": rests_on}
    return pl.DataFrame(keys | rest)


PAIRS = [("a", "x"), ("a", "y"), ("b", "x")]
TABLES = {
    "kind[0]": table([("a",), ("b",)], [0.3, 0.8], [0.1, 0.02]),
    "kind[1]": table([("a",), ("b",)], [0.5, 0.4], [0.05, 0.1]),
    "taste[0]": table(PAIRS, [0.9, 0.1, 0.4], [0.03, 0.05, 0.1]),
    "taste[1]": table(PAIRS, [0.2, 0.6, 0.5], [0.1, 0.05, 0.1]),
    "taste[2]": table(PAIRS, [0.5, 0.3, 0.1], [0.02, 0.1, 0.05]),
    "worth": table(PAIRS, [0.7, 0.5, 0.6], [0.1, 0.1, 0.1]),
}


def drawn(coin: str, pair: tuple[str, str], rng: np.random.Generator) -> np.ndarray:
    found = TABLES[coin]
    keys = [name for name in ("query", "doc") if name in found.columns]
    own = dict(zip(("query", "doc"), pair, strict=True))
    row = found.filter(*(pl.col(name) == own[name] for name in keys)).row(0, named=True)
    mean, spread = row["probability"], row["spread"]
    strength = mean * (1 - mean) / spread**2 - 1
    return rng.beta(mean * strength, (1 - mean) * strength, 200_000)


@pytest.mark.parametrize("relevance", [("taste[kind]",), ("taste[kind]", "worth")])
def test_moments_and_intervals_are_those_of_draws(relevance) -> None:
    found = judge(Believer(TABLES, relevance), level=0.8, every_pair=True)
    assert found.relevance_is == " x ".join(relevance)
    rng = np.random.default_rng(1)
    for row in found.frame.rows(named=True):
        pair = row["query"], row["doc"]
        first, second = (drawn(f"kind[{value}]", pair, rng) for value in range(2))
        values = [drawn(f"taste[{value}]", pair, rng) for value in range(3)]
        truth = first * values[0] + (1 - first) * (second * values[1] + (1 - second) * values[2])
        if len(relevance) > 1:
            truth = truth * drawn("worth", pair, rng)
        assert row["relevance"] == pytest.approx(truth.mean(), abs=1e-3)
        assert row["spread"] == pytest.approx(truth.std(), rel=0.02)
        assert row["low"] == pytest.approx(np.quantile(truth, 0.1), abs=0.01)
        assert row["high"] == pytest.approx(np.quantile(truth, 0.9), abs=0.01)
        assert row["examinations"] == 120
        assert row["rests_on"] == "query, doc"


def test_draws_have_the_same_moments() -> None:
    model = Believer(TABLES, ("taste[kind]",))
    frame = judge(model, every_pair=True).frame.sort("query", "doc")
    mean, spread = relevance_draws(model, frame.select("query", "doc"), None, 2)
    assert mean == pytest.approx(np.stack([frame["relevance"]] * 2, axis=1))
    assert spread == pytest.approx(np.stack([frame["spread"]] * 2, axis=1))


@pytest.fixture(scope="module")
def fitted():
    return Intents(examination=Fixed(0.7)).fit(searches(300), progress=False)


def test_intents_are_judged_and_saved(fitted, tmp_path) -> None:
    frame = judge(fitted).frame.sort("query", "doc")
    pairs = frame.select("query", "doc")
    share, first, second = (
        fitted.probability(coin, pairs) for coin in ("intent[0]", "attraction[0]", "attraction[1]")
    )
    assert frame["relevance"].to_numpy() == pytest.approx(share * first + (1 - share) * second)
    assert "judged" in frame["verdict"].to_list()
    assert relevance_of(fitted, pairs)[0] == pytest.approx(frame["relevance"].to_numpy())
    fitted.save(tmp_path / "some.fit")
    loaded = load(tmp_path / "some.fit")
    assert judge(loaded).frame.sort("query", "doc").equals(frame)
    loaded.relevance = ("attraction[1]",)
    assert judge(loaded).frame.sort("query", "doc")["relevance"].to_numpy() == pytest.approx(second)


def test_clicks_divided_by_propensities_are_relevance() -> None:
    truth = Intents.with_values(intent=[0.3, 0.7], examination=0.6, attraction={0: 0.8, 1: 0.2})
    found = propensities(truth, searches(50))
    assert found["examination"].to_numpy() == pytest.approx(0.6)


def test_pairs_with_features_have_examinations() -> None:
    rng = np.random.default_rng(0)
    log = searches(60).to_frame()
    quality = pl.DataFrame({"doc": log["doc"].unique(maintain_order=True)})
    log = log.join(quality.with_columns(x=pl.Series(rng.normal(size=len(quality)))), on="doc")
    model = Intents(examination=Fixed(0.7), attraction=Logistic("x"), intent=Table(key=())).fit(
        log, progress=False
    )
    frame = judge(model, every_pair=True).frame
    shown = log.group_by("query", "doc").len()
    both = frame.join(shown, on=["query", "doc"])
    assert len(both) == len(frame)
    assert (both["examinations"] <= both["len"] + 1e-9).all()
    assert (both["examinations"] > 0).all()


def test_means_that_are_none() -> None:
    class Kinds(ClickModel):
        kind = Choice("query", n=3)
        taste = Parameter("query", "doc", state="kind")
        relevance = ("taste[kind]",)

        def start(self, user):
            user.kind = choose(self.kind)

        def browse(self, user, result):
            if flip(self.taste):
                user.click()

    assert Kinds().relevance == ("taste[kind]",)
    model = Kinds.with_values(kind=[0.2, 0.3, 0.5], taste={0: 0.9, 1: 0.5, 2: 0.1})
    for wrong in ("taste[sort]", "kind[taste]", "taste[]", "taste[3]", "taste"):
        model.relevance = (wrong,)
        with pytest.raises(JudgmentsError, match="has no coin '"):
            judge(model, pairs={"query": ["a"], "doc": ["x"]})
    model.relevance = ("taste[kind]",)
    found = judge(model, pairs={"query": ["a"], "doc": ["x"]})
    assert found.frame["relevance"].to_list() == pytest.approx([0.38])
