"""Where a ranker puts rows, how well that is known, and what it says of rows never shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

import gecasmo.forms.typical as typical_module
from gecasmo import DBN, PBM, read_log
from gecasmo.encoding.averages import IMPRESSIONS, PAGES
from gecasmo.encoding.rows import Rows
from gecasmo.forms.typical import PLACE, SmoothFunction, beyond_pages, with_place
from gecasmo.simulation import demo_log


@pytest.fixture(autouse=True)
def plain() -> None:
    """Here kernels are compiled: logs are not small."""


@pytest.fixture(scope="module")
def fitted() -> tuple[Any, Any, Any]:
    """A DBN on the pages of a ranker who knows something; queries by Zipf's law."""
    log, truth = demo_log(n_pages=10_000, seed=1)
    return DBN().fit(log, progress=False), log, truth


def rows_of(queries: list[int]) -> Rows:
    docs = np.arange(len(queries))
    keys = [pl.Series("query", queries), pl.Series("doc", docs)]
    return Rows(("query", "doc"), keys, len(queries))


def test_pages_that_do_not_show_a_row_count() -> None:
    rows = rows_of([0, 0, 1])
    typical = {
        "rank": np.array([2.0, 4.0, 1.0]),
        IMPRESSIONS: np.array([10.0, 2.0, 6.0]),
        PAGES: np.array([10.0, 10.0, 6.0]),
    }
    place = with_place(rows, typical, 0.7)[PLACE]
    # Pages of query 0 have 1.2 results on average: beyond them is (1.2 + 1) / 2 + 0.7 * 1.2.
    np.testing.assert_allclose(place, [2.0, 0.2 * 4 + 0.8 * (1.1 + 0.84), 1.0])
    assert PLACE not in with_place(rows, typical, None)


@pytest.mark.parametrize("sign", [1, -1, 0])
def test_the_log_tells_which_way_seldom_shown_rows_are(sign: int) -> None:
    rng = np.random.default_rng(2)
    share = rng.random(4_000)
    rank = 5 - sign * 4 * (share - 0.5) + rng.normal(0, 0.3, 4_000)
    typical = {"rank": rank, IMPRESSIONS: 100 * share, PAGES: np.full(4_000, 100.0)}
    found = beyond_pages(typical)
    assert found == pytest.approx(0.7 * sign, abs=0.1)


def test_few_rows_and_many_have_the_same_basis(monkeypatch: pytest.MonkeyPatch) -> None:
    x, t = np.random.default_rng(3).normal(size=(2, 500))
    smooth = SmoothFunction.of("rank", x)
    assert smooth is not None
    changing = smooth.with_times("other", t)
    assert changing is not None
    for one in (smooth, changing):
        few = one.basis({"rank": x, "other": t})
        monkeypatch.setattr(typical_module, "_FEW_ROWS", 0)
        np.testing.assert_allclose(one.basis({"rank": x, "other": t}), few, atol=1e-12)
        monkeypatch.undo()


def test_priors_are_as_sure_as_queries_have_pages(fitted: tuple[Any, Any, Any]) -> None:
    model, _, truth = fitted
    state = model.states_["attraction"]
    heads, tails = state.pseudo
    pages = state.typical[PAGES]
    few, many = (np.median((heads + tails)[chosen]) for chosen in (pages < 10, pages > 300))
    assert many > 4 * few
    frame = model.estimates("attraction")
    true = truth.probability("attraction", frame)
    trials = frame["trials"].to_numpy()
    inside = (frame["low"].to_numpy() <= true) & (true <= frame["high"].to_numpy())
    # With one strength for all queries it was 0.39, 0.55 and 0.71.
    for low, high, least in ((1, 5, 0.75), (5, 20, 0.82), (20, np.inf, 0.86)):
        assert inside[(trials >= low) & (trials < high)].mean() > least


def test_rows_never_shown_are_worse_than_those_hardly_shown(fitted: tuple[Any, Any, Any]) -> None:
    model, log, _ = fitted
    frame = model.estimates("attraction").join(
        pl.DataFrame({"query": log.column("query"), "doc": log.column("doc")})
        .group_by("query", "doc")
        .len(),
        on=["query", "doc"],
    )
    query = frame.filter(pl.col("len") == 1)["query"].unique().sort()
    hardly = frame.filter((pl.col("len") == 1) & pl.col("query").is_in(query.implode()))
    never = model.estimates("attraction", {"query": query, "doc": [9_999] * len(query)})
    assert never["probability"].mean() < hardly["probability"].mean()
    relative = never["spread"] / never["probability"]
    assert relative.mean() > (hardly["spread"] / hardly["probability"]).mean()


def test_an_interval_that_leaves_everything_open_is_called_so() -> None:
    """Thirty pages of two results that no other page has."""
    n = 30
    rng = np.random.default_rng(4)
    log = read_log(
        {
            "session": np.repeat(np.arange(n), 2),
            "query": np.repeat(np.arange(n), 2),
            "doc": np.arange(2 * n),
            "rank": np.tile([1, 2], n),
            "click": np.stack([rng.random(n) < 0.3, rng.random(n) < 0.1], axis=1).ravel(),
        }
    )
    told = PBM().fit(log, progress=False).estimates("examination")
    assert told["rests_on"].to_list() == ["not identified"] * 2
    sure, _ = demo_log(n_pages=500, seed=2)
    known = DBN().fit(sure, progress=False).estimates("continuation")
    assert known["rests_on"].to_list() == ["all"]
