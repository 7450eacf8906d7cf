"""Signals that a log has not recorded everywhere: summed over, as the oracle does by listing."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import polars as pl
import pytest

import gecasmo
from gecasmo import ClickLog, ClickModel, Parameter, flip, read_log
from gecasmo.errors import ClickLogError, ImpossibleSessionError
from oracle.brute_force import Told, every_story
from oracle.played import played
from oracle.stories import Shown

SIGNALS = ("click", "cart", "purchase")
DOCS, PAGES = "abc", 12


class Shopper(ClickModel):
    """Clicks, fills the cart, buys; whoever buys, or is tired, leaves."""

    attraction = Parameter("doc")
    liking = Parameter("doc")
    payment = Parameter()
    continuation = Parameter()

    def browse(self, user: Any, result: Any) -> None:
        """At one result."""
        if flip(self.attraction):
            user.click()
            if flip(self.liking):
                user.emit("cart")
                if flip(self.payment):
                    user.emit("purchase")
                    return user.leave()
        if not flip(self.continuation):
            user.leave()


VALUES: dict[str, Any] = {
    "attraction": {"a": 0.6, "b": 0.3, "c": 0.8},
    "liking": {"a": 0.5, "b": 0.7, "c": 0.2},
    "payment": 0.4,
    "continuation": 0.7,
}


def probability(coin: str, row: tuple[Any, ...]) -> float:
    given = VALUES[coin]
    return float(given[row[0]] if isinstance(given, dict) else given)


STORIES = every_story(
    played(Shopper)(Shown("q", tuple(DOCS), (1, 2, 3))), probability
)  # all pages show the same


@pytest.fixture(scope="module")
def log() -> ClickLog:
    """Pages that happen, with holes in two signals."""
    random = np.random.default_rng(5)
    weights = np.array([told.probability for told in STORIES])
    drawn = random.choice(len(STORIES), PAGES, p=weights / weights.sum())
    shown = [signals for number in drawn for signals in STORIES[number].signals]
    columns: dict[str, Any] = {
        "session": np.repeat(np.arange(PAGES), 3),
        "query": ["q"] * (3 * PAGES),
        "doc": list(DOCS) * PAGES,
        "rank": [1, 2, 3] * PAGES,
    }
    for name in SIGNALS:
        hole = (random.random(3 * PAGES) < 0.4) & (name != "click")
        columns[name] = [
            None if h else name in s for h, s in zip(hole.tolist(), shown, strict=True)
        ]
    return read_log(columns)


def told_apart(log: ClickLog) -> list[list[Told]]:
    """The stories that each page could be."""
    rows = log.to_frame().select(SIGNALS).rows()
    found = []
    for page in range(PAGES):
        seen = rows[3 * page : 3 * page + 3]
        found.append(
            [
                told
                for told in STORIES
                if all(
                    value in (None, name in signals)
                    for values, signals in zip(seen, told.signals, strict=True)
                    for name, value in zip(SIGNALS, values, strict=True)
                )
            ]
        )
    return found


def test_likelihoods_and_counts_are_sums_over_what_may_have_been(log: ClickLog) -> None:
    model = Shopper.with_values(**VALUES)
    found = told_apart(log)
    totals = [math.fsum(told.probability for told in page) for page in found]
    assert model.log_likelihood(log) == pytest.approx(np.log(totals), abs=1e-12)
    expected: dict[tuple[str, Any, bool], float] = defaultdict(float)
    reached = []
    for page, total in zip(found, totals, strict=True):
        for told in page:
            for fall in told.falls:
                expected[fall.coin, fall.row, fall.heads] += told.probability / total
        reached += [
            math.fsum(t.probability for t in page if place in t.looked) / total
            for place in range(3)
        ]
    for coin, frame in model.expected_counts(log, augmentation="full").items():
        for row in frame.iter_rows(named=True):
            key = (row["doc"],) if "doc" in row else ()
            assert row["heads"] == pytest.approx(expected[coin, key, True], abs=1e-10)
            assert row["tails"] == pytest.approx(expected[coin, key, False], abs=1e-10)
    assert model.posterior(log)["reached"].to_numpy() == pytest.approx(reached, abs=1e-10)


def test_stories_agree_with_what_was_recorded(log: ClickLog) -> None:
    model = Shopper.with_values(**VALUES)
    for frame in (model.decode(log), model.sample_stories(log, seed=1)):
        bought = (frame["payment"] == "heads").fill_null(False)
        recorded = log.column("purchase")
        assert bought.filter(recorded.is_not_null()).to_list() == recorded.drop_nulls().to_list()
    best = [max(page, key=lambda told: told.probability) for page in told_apart(log)]
    looked = [place in told.looked for told in best for place in range(3)]
    assert model.decode(log)["reached"].to_list() == looked


def test_conditional_clicks_know_only_what_was_recorded_above(log: ClickLog) -> None:
    answer = Shopper.with_values(**VALUES).predict_conditional_clicks(log)
    rows = log.to_frame().select(SIGNALS).rows()
    for place, clicked in enumerate(answer):
        page, rank = divmod(place, 3)
        seen = rows[3 * page : place]
        may_be = [
            told
            for told in STORIES
            if all(
                value in (None, name in signals)
                for values, signals in zip(seen, told.signals, strict=False)
                for name, value in zip(SIGNALS, values, strict=True)
            )
        ]
        total = math.fsum(told.probability for told in may_be)
        with_click = math.fsum(t.probability for t in may_be if "click" in t.signals[rank])
        assert clicked == pytest.approx(with_click / total, abs=1e-12)


def test_a_fit_with_holes_is_one_of_the_marginal_likelihood(log: ClickLog) -> None:
    """EM ends where the gradient of the oracle's likelihood is zero; holes are no "no"."""
    method = gecasmo.EM(max_iter=2000, tol=1e-12)
    forms = {name: gecasmo.Table(pseudo_counts=(1, 1)) for name in VALUES}
    model = Shopper(**forms).fit(log, method=method)
    counts = model.expected_counts(log)
    for coin, frame in counts.items():
        for row in frame.iter_rows(named=True):
            theta = (row["heads"] + 1) / (row["heads"] + row["tails"] + 2)
            table = model.parameters[coin]
            found = table.filter(pl.col("doc") == row["doc"]) if "doc" in row else table
            assert found["probability"].item() == pytest.approx(theta, abs=1e-4)
    as_no = read_log(log.to_frame().with_columns(pl.col("cart", "purchase").fill_null(False)))
    with pytest.raises(ImpossibleSessionError):  # nobody buys what was not in the cart
        Shopper(**forms).fit(as_no, method=method)


def test_a_signal_that_was_never_recorded(log: ClickLog) -> None:
    model = Shopper.with_values(**VALUES)
    empty = read_log(log.to_frame().with_columns(pl.lit(None).alias("purchase")))
    typed = read_log(log.to_frame().with_columns(pl.lit(None, pl.Int8).alias("purchase")))
    assert model.log_likelihood(empty) == pytest.approx(model.log_likelihood(typed), abs=0)


def test_what_a_program_asks_for_has_to_be_there() -> None:
    class Advertised(ClickModel):
        """Looks at advertisements in another way."""

        attraction = Parameter("doc")

        def browse(self, user: Any, result: Any) -> None:
            """At one result."""
            if not result.is_ad and flip(self.attraction):
                user.click()

    columns = {"session": [1, 1], "doc": ["a", "b"], "rank": [1, 2], "click": [0, 1]}
    with pytest.raises(ClickLogError, match="asks for 'is_ad', but 1 of 2 results have no value"):
        Advertised().fit(read_log(columns | {"is_ad": [None, False]}))
