"""Walks from click to click: the view, both forms of PSCM against enumeration, and laws."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecasmo import ClickLog, ClickModel, Parameter, flip, read_log
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.evaluation.evaluate import predictions
from gecasmo.model.click_sets import click_sets
from gecasmo.models import PSCM, UBM, WalkCM
from oracle.brute_force import Oracle
from oracle.walked import walk_clicks, walked
from strategies.cases import Values
from strategies.checks import close_to, many
from strategies.views import random_table, zoo_under

pytestmark = pytest.mark.usefixtures("plain_kernels")


def clicked_table(seed: int, n_pages: int = 12, longest: int = 4) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    table = random_table("walks", seed, n_pages=n_pages, longest=longest)
    n = len(table["doc"])
    table["click"] = (rng.random(n) < 0.5).tolist()
    turns = rng.permutation(n)
    name = "click_time" if seed % 2 else "click_order"
    table[name] = [int(t) if c else None for t, c in zip(turns, table["click"], strict=True)]
    return table


def known(cls: Any, oracles: list[Oracle], values: Values) -> Any:
    rows: dict[str, dict[Any, float]] = {coin: {} for coin in cls._parameters()}
    for oracle in oracles:
        for told in oracle.stories:
            for fall in told.falls:
                rows[fall.coin][fall.row] = values(fall.coin, fall.row)
    coins = cls._parameters().items()
    return cls.with_values(
        **{c: rows[c] if p.keys and rows[c] else values(c, ()) for c, p in coins}
    )


@pytest.mark.parametrize("seed", range(6))
def test_walks_are_those_of_the_slow_way(seed: int) -> None:
    table = clicked_table(seed, n_pages=20, longest=6)
    viewed = read_log(table).view("walks")
    frame = viewed.to_frame()
    starts = [viewed.starts[n : n + 2].tolist() for n in range(viewed.n_sessions)]
    found = {(frame["from_rank"][a], *viewed.rows[a:b].tolist()): slice(a, b) for a, b in starts}
    walks = walk_clicks(table)
    assert len(walks) == viewed.n_sessions
    for walk in walks:
        here = found[walk[0]["from_rank"], *(step["at"] for step in walk)]
        for name in (*frame.columns,):
            assert frame[name][here].to_list() == [step[name] for step in walk], name


@pytest.mark.parametrize("cls", zoo_under("walks"))
def test_answers_agree_with_enumeration(cls: Any) -> None:
    table, values = clicked_table(seed=3), Values(3)
    log, walks = read_log(table), walk_clicks(table)
    oracles = [Oracle(walked(cls, walk), values) for walk in walks]
    model = known(cls, oracles, values)
    total: dict[Any, float] = dict.fromkeys(log.sessions, 0.0)
    unreached = np.ones(log.n_results)
    scores: dict[Any, float] = {}
    for walk, oracle in zip(walks, oracles, strict=True):
        shown = tuple(frozenset({"click"} if step["click"] else ()) for step in walk)
        total[walk[0]["session"]] += math.log(oracle.likelihood(shown))
        for place, step in enumerate(walk):
            unreached[step["at"]] *= 1 - oracle.reached(shown, place)
        for key, score in oracle.score(shown).items():
            scores[key] = scores.get(key, 0.0) + score
    close_to(model.log_likelihood(log), [total[session] for session in log.sessions])
    close_to(model.posterior(log)["reached"].to_numpy(), 1 - unreached)
    for coin, frame in model.expected_counts(log).items():
        for *row, heads, tails in frame.rows():
            theta = values(coin, tuple(row))
            close_to(heads * (1 - theta) - tails * theta, scores.get((coin, tuple(row)), 0.0))


@pytest.mark.parametrize("length", [1, 2, 3])
def test_all_orders_of_clicks_add_up_to_one(length: int) -> None:
    """The form that does not know the next click is a distribution over sequences."""
    sequences = [
        order for n in range(length + 1) for order in itertools.permutations(range(length), n)
    ]
    rows = [
        {
            "session": n,
            "query": "q",
            "doc": place,
            "rank": place + 1,
            "click": place in order,
            "click_order": order.index(place) if place in order else None,
        }
        for n, order in enumerate(sequences)
        for place in range(length)
    ]
    table = {name: [row[name] for row in rows] for name in rows[0]}
    values = Values(9)
    oracles = [Oracle(walked(WalkCM, walk), values) for walk in walk_clicks(table)]
    model, log = known(WalkCM, oracles, values), read_log(table)
    probability = np.exp(model.log_likelihood(log))
    close_to(probability.sum(), 1.0)
    whole = model.copy()
    whole.view = "walks"
    found = whole.evaluate(log)  # by walks with all results, which end where others do
    close_to(found.log_likelihood * found.n_sessions, model.log_likelihood(log).sum())
    # What is simulated has these frequencies.
    blank = read_log(
        {name: table[name][:length] * 4000 for name in ("query", "doc", "rank")}
        | {
            "session": np.repeat(np.arange(4000), length).tolist(),
            "click": [False] * (4000 * length),
        }
    )
    drawn = model.simulate(blank, seed=2).column("click_order").to_numpy().reshape(-1, length)
    index = {order: n for n, order in enumerate(sequences)}
    counts = np.zeros(len(sequences))
    for page in drawn:
        clicked = [place for place in range(length) if page[place] > 0]
        counts[index[tuple(sorted(clicked, key=lambda place: page[place]))]] += 1
    spread = np.sqrt(4000 * probability * (1 - probability)) + 1e-9
    assert (np.abs(counts - 4000 * probability) < 5 * spread + 1e-6).all()


def test_a_walk_of_top_down_clicks_is_a_page() -> None:
    """Where the next click plays no part, PSCM of such clicks is UBM."""
    table, values = clicked_table(seed=5), Values(5)
    del table["click_time"]
    table["click_order"] = [
        r if c else None for r, c in zip(table["rank"], table["click"], strict=True)
    ]
    log = read_log(table)
    ranks = range(1, 10)
    examination = {(r, m): values("examination", (r, m)) for r in ranks for m in range(10)}
    attraction = {(q, d): values("attraction", (q, d)) for q in ("q0", "q1") for d in range(3)}
    page = UBM.with_values(examination=examination, attraction=attraction)
    every = {(r, m, n): p for (r, m), p in examination.items() for n in range(10)}
    walk = PSCM.with_values(examination=every, attraction=attraction)
    close_to(walk.log_likelihood(log), page.log_likelihood(log))
    close_to(walk.predict_conditional_clicks(log), page.predict_conditional_clicks(log))


# -- random programs ---------------------------------------------------------------------------
KEYS = [(), ("query", "doc"), ("page_rank",), ("from_rank",), ("page_rank", "from_rank")]
ON_PAGE = {"page_rank": "rank", "from_rank": "last_click"}


@st.composite
def way_trees(draw: Any, flips: int = 3) -> Any:
    """What is done at a result on the way: coins, then click, skip, remember it, or leave."""
    kind = draw(st.sampled_from(["flip", "flip", "mood"] if flips else ["end"]))
    if kind == "end":
        return draw(st.sampled_from(["click", "skip", "skip", "remember", "leave"]))
    coin = draw(st.sampled_from("abc")) if kind == "flip" else "mood"
    return (coin, draw(way_trees(flips - 1)), draw(way_trees(flips - 1)))


def walkers(tree: Any, keys: dict[str, tuple[str, ...]], both_ways: bool) -> tuple[Any, Any]:
    """A program along walks, and the same on a page: there a click begins everything anew."""

    def walk(self: Any, user: Any) -> str:
        node = tree
        while isinstance(node, tuple):
            coin, yes, no = node
            node = yes if (user.mood if coin == "mood" else flip(getattr(self, coin))) else no
        return node

    def start(self: Any, user: Any) -> None:
        user.mood, user.way = False, ""

    def on_walk(self: Any, user: Any, result: Any) -> None:
        if not user.way:
            goes_down = not both_ways or result.before_first or flip(self.down)
            user.way = "down" if goes_down else "up"
        if bool(result.is_above) == (user.way == "down"):
            return
        end = walk(self, user)
        if end == "click":
            user.click()
        user.mood = user.mood or end == "remember"
        if end in ("click", "leave"):
            user.leave()

    def on_page(self: Any, user: Any, result: Any) -> None:
        end = walk(self, user)
        if end == "click":
            user.click()
        user.mood = end != "click" and (user.mood or end == "remember")
        if end == "leave":
            user.leave()

    own = {coin: Parameter(*key) for coin, key in keys.items()}
    own |= {"down": Parameter("from_rank")} if both_ways else {}
    other = {coin: Parameter(*(ON_PAGE.get(k, k) for k in key)) for coin, key in keys.items()}
    along = {"view": "walks", "start": start, "browse": on_walk, **own}
    return (
        type("Along", (ClickModel,), along),
        type("OnPage", (ClickModel,), {"start": start, "browse": on_page, **other}),
    )


@st.composite
def walking(draw: Any, both_ways: bool) -> tuple[Any, Any, int]:
    # Whatever else there is: all orders of clicks can happen, and both moods.
    tree = ("a", "click", ("b", "skip", ("c", "remember", draw(way_trees(2)))))
    keys = {coin: draw(st.sampled_from(KEYS)) for coin in "abc"}
    return (*walkers(tree, keys, both_ways), draw(st.integers(0, 10**6)))


def numbers(cls: Any, values: Values) -> dict[str, Any]:
    """A number for each row that small pages have."""
    every = {"query": ["q0", "q1"], "doc": range(3), "way": ["up", "down"]}
    found: dict[str, Any] = {}
    for coin, parameter in cls._parameters().items():
        keys = parameter.keys
        ranks = range(12)
        rows = itertools.product(*(every.get(key, ranks) for key in keys))
        by_row = {row: values(coin, row) for row in rows}
        found[coin] = (
            values(coin, ())
            if not keys
            else {row[0] if len(keys) == 1 else row: p for row, p in by_row.items()}
        )
    return found


@many(12)
@given(walking(both_ways=False))
def test_a_walk_of_top_down_clicks_is_a_page_whatever_the_program(drawn: Any) -> None:
    along, on_page, seed = drawn
    values = Values(seed)
    table = random_table("walks", seed, n_pages=6, longest=4)
    page = on_page.with_values(**numbers(on_page, values))
    clicked = page.simulate(read_log(table), seed=seed)
    turns = pl.Series("click_order", clicked.rank).set(pl.Series(~clicked.click), None)
    log = read_log(clicked.to_frame().with_columns(turns))
    walk = along.with_values(**numbers(along, values))
    close_to(walk.log_likelihood(log), page.log_likelihood(log))
    close_to(walk.predict_clicks(log), page.predict_clicks(log), 1e-4)
    found = click_sets(walk, log, least=0.0)
    close_to(np.log(found.probability), page.log_likelihood(log))
    close_to(found.conditional, page.predict_conditional_clicks(log))
    close_to(found.marginal, page.predict_clicks(log))
    # Flips that nothing can reveal may be counted or not; what they say of the coin is the same.
    counts = walk.expected_counts(log), page.expected_counts(log)
    for coin, rows in counts[0].items():
        keys = list(walk.keys[coin])
        other = counts[1][coin].rename({ON_PAGE[key]: key for key in keys if key in ON_PAGE})
        told: list[dict[Any, float]] = [{}, {}]
        for scores, frame in zip(told, (rows, other), strict=True):
            for *row, heads, tails in frame.select(*keys, "heads", "tails").rows():
                theta = values(coin, tuple(row))
                scores[tuple(row)] = heads * (1 - theta) - tails * theta
        for row in told[0].keys() | told[1].keys():
            close_to(told[0].get(row, 0.0), told[1].get(row, 0.0))


# -- the clicks of a page as a set -------------------------------------------------------------
def every_order(length: int) -> tuple[list[tuple[int, ...]], ClickLog]:
    """All orders of clicks on one page, each as a session."""
    orders = [o for n in range(length + 1) for o in itertools.permutations(range(length), n)]
    rows = [
        {
            "session": number,
            "query": "q1",
            "doc": place % 3,
            "rank": 2 * place + 1,
            "click": place in order,
            "click_order": order.index(place) if place in order else None,
        }
        for number, order in enumerate(orders)
        for place in range(length)
    ]
    return orders, read_log({name: [row[name] for row in rows] for name in rows[0]})


def same_sets(model: Any, length: int) -> None:
    """All that is said of sets is the sum over all orders, listed one by one."""
    orders, log = every_order(length)
    total: dict[frozenset[int], float] = {}
    for order, p in zip(orders, np.exp(model.log_likelihood(log)), strict=True):
        total[frozenset(order)] = total.get(frozenset(order), 0.0) + p
    close_to(sum(total.values()), 1.0)
    found = click_sets(model, log, least=0.0)
    close_to(found.probability, [total[frozenset(order)] for order in orders])
    assert found.lost.max() <= 1e-12
    marginal = [sum(p for s, p in total.items() if place in s) for place in range(length)]
    close_to(found.marginal.reshape(-1, length), [marginal] * len(orders))
    close_to(model.predict_clicks(log), found.marginal, 1e-3)
    said = predictions(model, log)  # as a comparison has them
    close_to(said.log_likelihood, np.log(found.probability))
    close_to(said.conditional, found.conditional, 1e-3)
    for order, said in zip(orders, found.conditional.reshape(-1, length), strict=True):
        for place in range(length):
            above = {p for p in order if p < place}
            left = {s: p for s, p in total.items() if {x for x in s if x < place} == above}
            if (weight := sum(left.values())) > 0 and total[frozenset(order)] > 0:
                close_to(said[place], sum(p for s, p in left.items() if place in s) / weight)


@pytest.mark.parametrize("length", [1, 2, 4])
def test_click_sets_of_the_zoo_are_sums_over_all_orders(length: int) -> None:
    same_sets(WalkCM.with_values(**numbers(WalkCM, Values(length))), length)


@many(10)
@given(walking(both_ways=True))
def test_click_sets_are_sums_over_all_orders_whatever_the_program(drawn: Any) -> None:
    along, _, seed = drawn
    same_sets(along.with_values(**numbers(along, Values(seed))), 3)


def test_what_click_sets_leave_out_is_known() -> None:
    """The probability of what was seen has all orders, and others are off by no more than told."""
    orders, log = every_order(4)
    model = WalkCM.with_values(**numbers(WalkCM, Values(2)))
    whole, part = (click_sets(model, log, least) for least in (0.0, 0.03))
    close_to(part.probability, whole.probability)
    assert 0.01 < part.lost.max() < 0.5
    share = 1 - part.lost[log.page]
    assert (np.abs(part.marginal * share - whole.marginal) <= part.lost[log.page] + 1e-12).all()
    long = read_log(
        {**{n: [1] * 60 for n in ("session", "query", "click")}, "doc": range(60)}
        | {"rank": range(1, 61), "click_order": range(60)}
    )
    with pytest.raises(ClickLogError, match="pages of up to 48 results; this log has one of 60"):
        model.predict_clicks(long)
    assert len(orders) == log.n_sessions


def test_what_walks_cannot_answer_is_said(tmp_path) -> None:
    table, values = clicked_table(seed=3), Values(3)
    log = read_log(table)
    oracles = [Oracle(walked(WalkCM, walk), values) for walk in walk_clicks(table)]
    model = known(WalkCM, oracles, values)
    with pytest.raises(ClickLogError, match=r"an answer for each visit: ask of log\.view"):
        model.decode(log)
    assert len(model.decode(log.view("walks"))) == log.view("walks").n_results
    given = PSCM.with_values(examination=0.5, attraction=0.5)
    with pytest.raises(ModelError, match=r"PSCM cannot predict clicks: .* key 'to_rank'"):
        given.simulate(log)
    with pytest.raises(ModelError, match=r"PSCM cannot predict clicks: .* key 'to_rank'"):
        given.predict_clicks(log)
    with pytest.raises(ModelError, match=r"PSCM cannot predict clicks: .* key 'to_rank'"):
        given.predict(log, tmp_path / "clicks.csv")
    assert "where the next click is (to_rank) is given" in str(given.evaluate(log))
    assert "a walk from one click to the next" in str(model.evaluate(log))


def test_bad_times_of_clicks_are_counted_and_named() -> None:
    table = clicked_table(seed=3)
    clicked = [row for row, click in enumerate(table["click"]) if click]
    without = {**table, "click_time": [None] * len(table["click"])}
    with pytest.raises(
        ClickLogError, match=f"every click: {len(clicked)} clicks have none"
    ) as told:
        read_log(without).view("walks")
    first = clicked[0]
    assert f"{table['session'][first]!r}, rank {table['rank'][first]}" in str(told.value)
    del without["click_time"]
    with pytest.raises(ClickLogError, match="needs the column 'click_order' or 'click_time'"):
        WalkCM().fit(read_log(without))
    tied = {**table, "click_time": [1 if click else None for click in table["click"]]}
    with pytest.warns(UserWarning, match="clicks at the same time as another of their page"):
        viewed = read_log(tied).view("walks")
    assert not viewed.column("is_above").to_numpy()[viewed.click].any()
