"""Keys of a single session or result, logs without queries, pages without results."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from gecasmo import DBN, EM, ClickModel, Parameter, Table, flip, read_log
from strategies.cases import make_plain
from strategies.checks import close_to


class Mixed(ClickModel):
    """A class of users drawn per session; the rest of the coins are keyed by single results."""

    kind = Parameter("session")
    rate = Parameter("result")
    mood = Parameter("session")

    def start(self, user: Any) -> None:
        user.kind = flip(self.kind)

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.rate if user.kind else self.mood):
            user.click()


@pytest.mark.parametrize("with_query", [True, False])
def test_keys_of_single_sessions_and_results(with_query: bool) -> None:
    table: dict[str, Any] = {
        "session": ["x", "y", "x", "y", "z"],
        "doc": [1, 1, 2, 2, 1],
        "rank": [2, 1, 1, 2, 1],
        "click": [1, 0, 0, 1, 1],
    }
    if with_query:
        table["query"] = ["q", "q", "q", "q", "q"]
    kind = {"x": 0.3, "y": 0.6, "z": 0.2}
    mood = {"x": 0.5, "y": 0.8, "z": 0.9}
    rate = dict(enumerate([0.1, 0.2, 0.3, 0.4, 0.7]))
    model = make_plain(Mixed.with_values(kind=kind, rate=rate, mood=mood))
    log = read_log(table)
    wanted, heads = [], {}
    for session in ("x", "y", "z"):
        rows = [i for i in range(5) if table["session"][i] == session]
        one = two = 1.0
        for i in rows:
            click = table["click"][i]
            one *= rate[i] if click else 1 - rate[i]
            two *= mood[session] if click else 1 - mood[session]
        total = kind[session] * one + (1 - kind[session]) * two
        wanted.append(math.log(total))
        heads[session] = kind[session] * one / total
    close_to(model.log_likelihood(log), wanted)
    counts = model.expected_counts(log)
    found = dict(zip(counts["kind"]["session"], counts["kind"]["heads"], strict=True))
    for session, share in heads.items():
        close_to(found[session], share)
    sides = {row: (h, t) for row, h, t in counts["rate"].rows()}
    for i in range(5):
        share = heads[table["session"][i]]
        close_to(sides[i], (share, 0) if table["click"][i] else (0, share))
    marginal = [kind[s] * rate[i] + (1 - kind[s]) * mood[s] for i, s in enumerate(table["session"])]
    close_to(model.predict_clicks(log), marginal)


def test_a_log_without_queries() -> None:
    table = {
        "session": [1, 1, 2, 2],
        "doc": [1, 2, 2, 1],
        "rank": [1, 2, 1, 2],
        "click": [0, 1, 1, 0],
    }
    with_query = read_log({**table, "query": ["q"] * 4})
    model = DBN(attraction=Table(key="doc"), satisfaction=Table(key="doc"))
    a = model.fit(read_log(table), EM(20, tol=0)).parameters
    b = model.copy().fit(with_query, EM(20, tol=0)).parameters
    for coin, frame in a.items():
        close_to(
            frame.sort("doc")["probability"] if "doc" in frame.columns else frame["probability"],
            b[coin].sort("doc")["probability"]
            if "doc" in frame.columns
            else b[coin]["probability"],
            1e-9,
        )


def test_pages_without_results_change_nothing() -> None:
    full = {"query": ["q", "r"], "doc": [[1, 2, 3], [3, 1]], "click": [[0, 1, 0], [1, 0]]}
    gaps = {
        "query": ["r", "q", "s", "r"],
        "doc": [[], [1, 2, 3], [], [3, 1]],
        "click": [[], [0, 1, 0], [], [1, 0]],
    }
    model = DBN.with_values(attraction=0.3, satisfaction=0.4, continuation=0.8)
    plain, holed = read_log(full), read_log(gaps)
    found = model.log_likelihood(holed)
    close_to(found[[1, 3]], model.log_likelihood(plain))
    close_to(found[[0, 2]], [0.0, 0.0])
    close_to(model.predict_clicks(holed), model.predict_clicks(plain))
    for coin, frame in model.expected_counts(plain).items():
        other = model.expected_counts(holed)[coin]
        close_to(
            frame.sort(frame.columns).select("heads", "tails").to_numpy(),
            other.sort(other.columns).select("heads", "tails").to_numpy(),
        )
    assert np.isfinite(model.posterior(holed)["reached"].to_numpy()).all()
    assert model.simulate(holed).n_sessions == 4
    fits = [DBN().fit(log, EM(5, tol=0)).parameters for log in (plain, holed)]
    for coin, frame in fits[0].items():
        other = fits[1][coin]
        close_to(frame.sort(frame.columns)["probability"], other.sort(other.columns)["probability"])
