"""Walks from click to click: the view, both forms of PSCM against enumeration, and laws."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from gecasmo import read_log
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.models import PSCM, UBM, WalkCM
from oracle.brute_force import Oracle
from oracle.walked import walk_clicks, walked
from strategies.cases import Values
from strategies.checks import close_to
from strategies.views import random_table

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


@pytest.mark.parametrize("cls", [PSCM, WalkCM])
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


def test_what_walks_cannot_answer_is_said() -> None:
    table, values = clicked_table(seed=3), Values(3)
    log = read_log(table)
    oracles = [Oracle(walked(WalkCM, walk), values) for walk in walk_clicks(table)]
    model = known(WalkCM, oracles, values)
    with pytest.raises(ClickLogError, match="a sum over all orders of clicks"):
        model.predict_clicks(log)
    with pytest.raises(ClickLogError, match=r"an answer for each visit: ask of log\.view"):
        model.decode(log)
    assert len(model.decode(log.view("walks"))) == log.view("walks").n_results
    given = PSCM.with_values(examination=0.5, attraction=0.5)
    with pytest.raises(ModelError, match=r"PSCM cannot predict clicks: .* key 'to_rank'"):
        given.simulate(log)


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
