"""What pages are worth: against all stories of a page, and laws of expectations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given

from gecasmo import DBN, PBM, PSCM, UBM, ClickLog, ClickModel, Parameter, flip, read_log
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.pages.outlook import Foretold
from gecasmo.pages.worth import event_numbers
from strategies.cases import Case, cases
from strategies.checks import close_to, many


@many(60)
@given(cases())
def test_events_are_those_of_all_stories(case: Case) -> None:
    outlook = Foretold(case.model, case.log).look()
    automaton = case.model.structure.full.body
    numbers = event_numbers(automaton)
    for row, (number, place) in enumerate(zip(case.table["session"], case.place_of, strict=True)):
        stories = case.oracles[number].stories
        for event, column in numbers.items():
            wanted = math.fsum(t.probability for t in stories if _happens(t, event, place, case))
            close_to(outlook.told[row, column], wanted)
    for session, number in enumerate(case.session_of):
        stories = case.oracles[number].stories
        quiet = [t.probability for t in stories if not any("click" in s for s in t.signals)]
        close_to(outlook.quiet[session], math.fsum(quiet))
        for coin in automaton.start_parameters():
            wanted = math.fsum(
                t.probability
                for t in stories
                if any(f.coin == coin and f.place is None and f.heads for f in t.falls)
            )
            close_to(outlook.started[session, numbers[coin]], wanted)


def _happens(told: Any, event: str, place: int, case: Case) -> bool:
    if event == "reached":
        return place in told.looked
    if event in case.model.structure.full.body.signals:
        return event in told.signals[place]
    return any(f.coin == event and f.place == place and f.heads for f in told.falls)


def shop() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "session": [1, 1, 1, 2, 2],
            "query": ["q"] * 5,
            "doc": list("abcba"),
            "rank": [1, 2, 3, 1, 2],
            "margin": [1.0, 2.0, 5.0, 2.0, 1.0],
        }
    )


def dbn() -> DBN:
    return DBN.with_values(
        attraction={("q", "a"): 0.5, ("q", "b"): 0.25, ("q", "c"): 0.5},
        satisfaction={("q", "a"): 0.5, ("q", "b"): 0.5, ("q", "c"): 1.0},
        continuation=0.8,
    )


def test_worth_by_hand() -> None:
    on = [1.0, 0.8 * 0.75, 0.8 * 0.75 * 0.8 * 0.875]  # still looking at ranks 1 to 3
    clicks = [on[0] * 0.5, on[1] * 0.25, on[2] * 0.5]
    other = [0.25, 0.8 * 0.875 * 0.5]
    frame = dbn().page_value(shop(), draws=0).frame
    assert frame.columns == ["session", "query", "worth"]
    close_to(frame["worth"], [sum(clicks), sum(other)])
    margin = dbn().page_value(shop(), {"click": "margin"}, draws=0)
    close_to(margin.frame["worth"][0], clicks[0] + 2 * clicks[1] + 5 * clicks[2])
    close_to(margin.mean, margin.frame["worth"].mean())
    satisfied = dbn().page_value(shop(), "satisfaction", draws=0).frame["worth"]
    close_to(satisfied[0], clicks[0] * 0.5 + clicks[1] * 0.5 + clicks[2])
    # After no click at a rank one goes on with 0.8; whoever left has not clicked either.
    quiet = 0.5 * (0.2 + 0.8 * 0.75 * (0.2 + 0.8 * 0.5))
    close_to(dbn().page_value(shop(), "abandonment", draws=0).frame["worth"][0], quiet)
    both = dbn().page_value(shop(), {"click": 2, "abandonment": -3.0}, draws=0).frame["worth"]
    close_to(both[0], 2 * sum(clicks) - 3 * quiet)


def test_pages_may_come_with_clicks_and_weights() -> None:
    frame = shop().with_columns(click=pl.Series([0, 1, 0, 0, 1]), weight=pl.Series([3, 3, 3, 1, 1]))
    log = read_log(frame, weight="weight")
    found = dbn().page_value(log, draws=0)
    worth = found.frame["worth"]
    close_to(found.mean, (3 * worth[0] + worth[1]) / 4)
    close_to(worth, dbn().page_value(shop(), draws=0).frame["worth"])


def fitted(model: ClickModel, pages: int = 400) -> tuple[ClickModel, ClickLog]:
    rng = np.random.default_rng(1)
    docs = np.stack([rng.permutation(6)[:4] for _ in range(pages)])
    query = rng.integers(3, size=pages)
    log = read_log(
        {
            "session": np.repeat(np.arange(pages), 4),
            "query": np.repeat(query, 4),
            "doc": docs.ravel(),
            "rank": np.tile(np.arange(1, 5), pages),
            "click": (rng.random(4 * pages) < 0.1 + 0.1 * (docs.ravel() % 4)).astype(int),
        }
    )
    return model.fit(log, progress=False), log


def test_intervals_from_draws(monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    model, log = fitted(PBM())
    found = model.page_value(log, draws=40)
    inside = found.frame.select(
        (pl.col("low") < pl.col("worth")) & (pl.col("worth") < pl.col("high"))
    )
    assert inside.to_series().mean() > 0.9
    assert found.low < found.mean < found.high
    # The mean over pages is known better than a page.
    assert found.high - found.low < (found.frame["high"] - found.frame["low"]).mean()
    again = model.page_value(log, draws=40)
    assert again.frame.equals(found.frame)
    assert "click expected on 400 pages" in repr(found)
    assert max(map(len, repr(found).splitlines())) <= 80
    assert "<table>" in found._repr_html_()
    assert found.to_dict()["pages"] == 400


def test_stored_logs_and_logs_in_memory_agree(tmp_path: Any) -> None:
    model, log = fitted(UBM())
    stored = ClickLog.ingest(log, tmp_path / "log", partitions=4)
    there, here = model.page_value(stored, draws=5), model.page_value(log, draws=5)
    for name in ("mean", "low", "high"):
        close_to(getattr(there, name), getattr(here, name))


def test_expected_clicks_are_marginal_clicks() -> None:
    model, log = fitted(UBM())
    marginal = np.bincount(log.page, model.predict_clicks(log))
    close_to(model.page_value(log, draws=0).frame["worth"], marginal)


class Buyer(ClickModel):
    interest = Parameter("doc")
    mood = Parameter("query")
    purchase = Parameter("doc")

    def start(self, user: Any) -> None:
        user.happy = flip(self.mood)

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.interest):
            user.click()
            if user.happy and flip(self.purchase):
                user.emit("purchase")


def test_signals_and_coins_before_the_first_result() -> None:
    model = Buyer.with_values(interest=0.5, mood=0.25, purchase=0.5)
    close_to(model.page_value(shop(), "purchase", draws=0).frame["worth"], [3 / 16, 2 / 16])
    close_to(model.page_value(shop(), {"mood": 8}, draws=0).frame["worth"], [2.0, 2.0])
    with pytest.raises(ModelError, match="before the first result"):
        model.page_value(shop(), {"mood": "margin"})


@pytest.mark.parametrize(
    ("worth", "message"),
    [
        ("joy", "no event of DBN"),
        ({}, "an event is wanted"),
        ({"click": None}, "a price is a number"),
        ({"click": float("nan")}, "a price is a number"),
        ({"abandonment": "margin"}, "whole page"),
    ],
)
def test_wrong_worths(worth: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        dbn().page_value(shop(), worth)


def test_wrong_prices_and_models() -> None:
    gap = shop().with_columns(margin=pl.Series([1.0, None, 1.0, 1.0, 1.0]))
    with pytest.raises(ClickLogError, match="1 of 5 rows, first in row 1"):
        dbn().page_value(gap, {"click": "margin"})
    with pytest.raises(ClickLogError, match="not of numbers"):
        dbn().page_value(shop(), {"click": "doc"})
    with pytest.raises(ClickLogError, match="price"):
        dbn().page_value(shop(), {"click": "price"})
    with pytest.raises(ModelError, match="cannot predict clicks"):
        PSCM.with_values(attraction=0.5, examination=0.5).page_value(shop())
    for wrong in ({"draws": -1}, {"draws": True}, {"level": 1.0}):
        with pytest.raises(ModelError):
            dbn().page_value(shop(), **wrong)
