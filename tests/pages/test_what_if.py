"""Changes of pages, what they bring, and what randomised pages say of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from gecasmo import DBN, PBM, ClickLog, read_log
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.pages import Cut, Drop, Move, OrderBy, Swap
from strategies.checks import close_to

ROWS = {
    "session": [1, 1, 1, 1, 2, 2],
    "query": ["q"] * 6,
    "doc": list("abcdba"),
    "rank": [1, 2, 3, 4, 1, 2],
    "score": [1.0, 4.0, 2.0, 3.0, 1.0, 1.0],
    "click": [0, 1, 0, 0, 1, 0],
}


def docs(log: ClickLog) -> list[str]:
    frame = log.to_frame().sort("session", "rank")
    pages = frame.group_by("session", maintain_order=True).agg(pl.col("doc").str.join(""))
    return pages["doc"].to_list()


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (Swap(1, 3), ["cbad", "ba"]),
        (Swap(2, 1), ["bacd", "ab"]),
        (Move("c", 1), ["cabd", "ba"]),
        (Move("a", 3), ["bcad", "ba"]),
        (Move("a", 1), ["abcd", "ab"]),
        (Move("a", 9), ["bcda", "ba"]),
        (Drop("b"), ["acd", "a"]),
        (Drop("b", "q"), ["acd", "a"]),
        (OrderBy("score"), ["bdca", "ba"]),
        (OrderBy("score", descending=False), ["acdb", "ba"]),
        (Cut(2), ["ab", "ba"]),
    ],
)
def test_changes(change: Any, wanted: list[str]) -> None:
    shuffled = pl.DataFrame(ROWS)[[4, 2, 0, 5, 3, 1]]
    for log in (read_log(ROWS), read_log(shuffled)):
        assert sorted(docs(change.apply(log)), reverse=True) == sorted(wanted, reverse=True)


def test_ranks_with_gaps_stay() -> None:
    log = read_log({**ROWS, "rank": [1, 3, 4, 9, 2, 5]})
    changed = Drop("a").apply(log).to_frame().sort("session", "rank")
    assert changed["rank"].to_list() == [1, 3, 4, 2]


def pbm() -> PBM:
    values = {("q", d): v for d, v in zip("abcd", [0.2, 0.6, 0.4, 0.8], strict=True)}
    return PBM.with_values(attraction=values, examination={1: 1.0, 2: 0.5, 3: 0.25, 4: 0.125})


def test_before_and_after_by_hand() -> None:
    found = pbm().what_if(read_log(ROWS), Swap(1, 2), draws=0, worth={"click": "score"})
    click = found.frame.filter(pl.col("event") == "click").row(0, named=True)
    rest = 0.25 * 0.4 + 0.125 * 0.8
    before, after = (0.2 + 0.3 + rest + 0.6 + 0.1) / 2, (0.6 + 0.1 + rest + 0.2 + 0.3) / 2
    close_to([click["before"], click["after"]], [before, after])
    worth = found.frame.row(0, named=True)
    close_to(worth["before"], (0.2 + 4 * 0.3 + 2 * 0.1 + 3 * 0.1 + 0.6 + 0.1) / 2)
    quiet = found.frame.filter(pl.col("event") == "abandonment").row(0, named=True)
    close_to(quiet["before"], (0.8 * 0.7 * 0.9 * 0.9 + 0.4 * 0.9) / 2)
    ranks = found.ranks.filter(pl.col("event") == "click")
    close_to(ranks["before"], [0.4, 0.2, 0.05, 0.05])
    close_to(ranks["after"], [0.4, 0.2, 0.05, 0.05])
    assert (found.pages, found.changed) == (2, 2)
    same = pbm().what_if(ROWS, lambda log: log.rank, draws=0)
    assert same.changed == 0
    close_to(same.frame["difference"], np.zeros(2))


def simulated(pages: int = 3000, seed: int = 0) -> tuple[Any, ClickLog]:
    rng = np.random.default_rng(seed)
    attraction = {(q, d): float(rng.beta(1, 2)) for q in range(3) for d in range(5)}
    truth = PBM.with_values(attraction=attraction, examination={r: 0.9**r for r in range(1, 6)})
    order = np.stack([rng.permutation(5) for _ in range(pages)])
    query = rng.integers(3, size=pages)
    log = read_log(
        {
            "session": np.repeat(np.arange(pages), 5),
            "query": np.repeat(query, 5),
            "doc": order.ravel(),
            "rank": np.tile(np.arange(1, 6), pages),
            "random": np.repeat(rng.random(pages) < 0.8, 5),
            "score": [
                attraction[q, d] for q, d in zip(np.repeat(query, 5), order.ravel(), strict=True)
            ],
        },
        click=None,
    )
    return truth, truth.simulate(log, seed=1)


def test_randomised_pages_agree_with_the_truth_and_not_with_a_wrong_model(
    monkeypatch: Any,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    truth, log = simulated()
    model = PBM().fit(log, progress=False)
    found = model.what_if(log, OrderBy("score"), randomised="random", draws=20)
    told = found.off_policy.frame  # type: ignore[union-attr]
    changed = OrderBy("score").apply(log.take(log.session_column("random").to_numpy()))
    real = truth.page_value(changed, draws=0).mean
    for row in told.iter_rows(named=True):
        assert abs(row["clicks"] - real) < 0.08
    assert told["low"][2] < real < told["high"][2]
    assert abs(told["z"][2]) < 3
    assert "do not contradict" in repr(found)
    assert max(map(len, repr(found).splitlines())) <= 80
    assert "<table>" in found._repr_html_()
    assert found.to_dict()["off_policy"]["pages"] > 2000
    low, high = found.frame["low"][0], found.frame["high"][0]
    assert low < found.frame["difference"][0] < high
    wrong = PBM.with_values(attraction=0.9, examination=0.9)
    other = wrong.what_if(log, OrderBy("score"), randomised="random", draws=0).off_policy
    assert other is not None
    assert abs(other.frame["z"][2]) > 5
    # The doubly robust estimate makes good what the model gets wrong.
    assert abs(other.frame["clicks"][2] - real) < abs(other.frame["clicks"][0] - real) / 4


def shown_by_habit(pages: int, seed: int) -> ClickLog:
    """Pages of three results, mostly in the same order, with the probability that each result
    stands where it does."""
    rng = np.random.default_rng(seed)
    is_usual = rng.random(pages) < 0.6
    order = np.stack([np.arange(3) if usual else rng.permutation(3) for usual in is_usual])
    rank = np.tile([1, 2, 3], pages)
    return read_log(
        {
            "session": np.repeat(np.arange(pages), 3),
            "query": ["q"] * 3 * pages,
            "doc": order.ravel(),
            "rank": rank,
            "random": np.ones(3 * pages, bool),
            "chance": 0.4 / 3 + 0.6 * (order.ravel() == rank - 1),
            "score": order.ravel(),
        },
        click=None,
    )


def test_intervals_of_randomised_pages_hold_the_truth() -> None:
    truth = PBM.with_values(
        attraction={("q", 0): 0.2, ("q", 1): 0.5, ("q", 2): 0.7},
        examination={1: 1.0, 2: 0.6, 3: 0.3},
    )
    wrong = PBM.with_values(attraction=0.9, examination=0.9)
    real = 0.7 + 0.6 * 0.5 + 0.3 * 0.2
    n, held, shares = 60, np.zeros(3), np.zeros(3)
    for seed in range(n):
        log = truth.simulate(shown_by_habit(300, seed), seed=seed)
        found = wrong.what_if(
            log, OrderBy("score"), draws=0, randomised="random", propensity="chance"
        )
        assert found.off_policy is not None
        told = found.off_policy.frame
        held += ((told["low"] <= real) & (real <= told["high"])).to_numpy()
        shares += told["clicks"].to_numpy() / n
    assert held[0] == 0
    assert (np.abs(held[1:] / n - 0.9) < 0.12).all()  # three standard errors
    assert (np.abs(shares[1:] - real) < 0.05).all()


def test_intervals_of_the_model_hold_the_truth() -> None:
    held = 0
    for seed in range(30):
        truth, log = simulated(300, seed)
        found = PBM().fit(log, progress=False).what_if(log, Swap(1, 4), draws=60).frame
        real = truth.what_if(log, Swap(1, 4), draws=0).frame["difference"][0]
        held += found["low"][0] <= real <= found["high"][0]
    assert held >= 23  # of 27 expected; two and a half standard errors


def test_stored_logs(tmp_path: Any) -> None:
    truth, log = simulated(300)
    stored = ClickLog.ingest(log, tmp_path / "log", partitions=4, keep=["score", "random"])
    here = truth.what_if(log, OrderBy("score"), draws=0)
    there = truth.what_if(stored, OrderBy("score"), draws=0)
    close_to(here.frame["after"], there.frame["after"])
    close_to(here.ranks["after"], there.ranks["after"])
    assert here.changed == there.changed
    # A document that only some partitions show, and one that none does.
    own = log.column("doc")[0]
    some = [Drop(own, log.session_column("query")[0]), Swap(1, 2)]
    close_to(
        truth.what_if(log, some, draws=0).frame["after"],
        truth.what_if(stored, some, draws=0).frame["after"],
    )
    with pytest.raises(ClickLogError, match="shows no document 'nobody'"):
        truth.what_if(stored, Drop("nobody"), draws=0)
    with pytest.raises(ClickLogError, match="partition by partition"):
        truth.what_if(stored, OrderBy("score"), randomised="random")


def test_satisfaction_is_told() -> None:
    model = DBN.with_values(attraction=0.5, satisfaction=0.5, continuation=0.9)
    found = model.what_if(ROWS, Cut(1), draws=0)
    assert found.frame["event"].to_list() == ["click", "satisfaction", "abandonment"]
    close_to(found.frame["after"], [0.5, 0.25, 0.5])
    assert found.ranks.filter(pl.col("rank") > 1)["after"].sum() == 0


def test_what_makes_no_sense_is_refused() -> None:
    log = read_log(ROWS)
    for change, message in (
        (Drop("z"), "shows no document 'z'"),
        (Move("a", 1, "other"), "of query 'other'"),
        (OrderBy("points"), "no such column"),
        (OrderBy("doc"), "not numbers"),
        (lambda log: [1.0], "1 numbers for 6 results"),
        (lambda log: np.where(log.page == 1, np.nan, 1.0), "nothing is left of 1 pages"),
    ):
        with pytest.raises(ClickLogError, match=message):
            pbm().what_if(log, change)
    for make in (lambda: Swap(0, 1), lambda: Cut(True), lambda: pbm().what_if(log, "up")):
        with pytest.raises(ModelError):
            make()
    for options, message in (
        ({"randomised": "random"}, "no column 'random'"),
        ({"randomised": "doc"}, "not of yes and no|page"),
    ):
        with pytest.raises(ClickLogError, match=message):
            pbm().what_if(log, Swap(1, 2), draws=0, **options)
    marked = pl.DataFrame(ROWS).with_columns(r=pl.lit(True), p=pl.lit(0.0), none=pl.lit(False))
    with pytest.raises(ClickLogError, match="no probability in 6 rows"):
        pbm().what_if(read_log(marked), Swap(1, 2), draws=0, randomised="r", propensity="p")
    with pytest.raises(ClickLogError, match="marks no page"):
        pbm().what_if(read_log(marked), Swap(1, 2), draws=0, randomised="none")
