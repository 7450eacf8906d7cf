"""What no page can tell is said to be not identified, and what pages can tell is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gecasmo import CCM, DBN, PBM, UBM, ClickLog, Empirical, Table, read_log
from gecasmo.estimation.posteriors.joint import Joint
from gecasmo.estimation.posteriors.ridges import Known

EXAMINATION = 0.8 * np.array([1.0, 0.8, 0.65, 0.5, 0.4])
CONTINUATION = 0.85
ANCHOR = Table(fixed={1: 0.8})
ONE_PRIOR = Table(prior=Empirical(by=()))


def pages(kind: str, n_queries: int, n_times: int, seed: int) -> ClickLog:
    """Pages of five results that belong to one query each, in random order, so many times."""
    rng = np.random.default_rng([seed, n_queries])
    attraction, satisfaction = rng.beta(1.5, 3.5, (n_queries, 5)), rng.beta(3, 3, (n_queries, 5))
    query = np.tile(np.arange(n_queries), n_times)
    order = rng.permuted(np.tile(np.arange(5), (len(query), 1)), axis=1)
    place = query[:, None], order
    clicks = rng.random(order.shape) < attraction[place]
    if kind == "PBM":
        clicks &= rng.random(order.shape) < EXAMINATION
    else:
        reads = np.ones(len(query), bool)
        for rank in range(5):
            clicks[:, rank] &= reads
            satisfied = rng.random(len(query)) < satisfaction[query, order[:, rank]]
            reads &= ~(clicks[:, rank] & satisfied) & (rng.random(len(query)) < CONTINUATION)
    return read_log(
        {
            "session": np.repeat(np.arange(len(query)), 5),
            "query": np.repeat(query, 5),
            "doc": (order + 5 * query[:, None]).ravel(),
            "rank": np.tile(np.arange(1, 6), len(query)),
            "click": clicks.ravel(),
        }
    )


def told(model: Any, log: ClickLog, coin: str) -> Any:
    return model.fit(log, progress=False, threads=1).estimates(coin)


@pytest.mark.parametrize("n_queries", [300, 2_000])
def test_the_scale_of_pairs_shown_once_is_not_identified(n_queries: int) -> None:
    found = told(PBM(), pages("PBM", n_queries, 1, seed=1), "examination")
    assert set(found["rests_on"]) == {"not identified"}
    assert (found["high"] - found["low"]).min() > 0.6
    # The curvature that the climb goes by made that 0.06 to 0.2.
    assert ((found["low"] < EXAMINATION) & (found["high"] > EXAMINATION)).all()


def test_a_printed_model_says_so() -> None:
    model = PBM().fit(pages("PBM", 300, 1, seed=1), progress=False, threads=1)
    assert "5 rows, mean" in str(model)
    assert ", not identified" in str(model)
    known = PBM(examination=ANCHOR).fit(pages("PBM", 20, 40, seed=1), progress=False, threads=1)
    assert "not identified" not in str(known)


def test_nor_is_that_of_a_ubm() -> None:
    found = told(UBM(), pages("PBM", 1_000, 1, seed=2), "examination")
    rests_on = dict(zip(found.select("rank", "last_click").rows(), found["rests_on"], strict=True))
    assert rests_on[1, 0] == rests_on[5, 0] == "not identified"


def test_rows_that_lean_on_it_are_as_open() -> None:
    log = pages("PBM", 800, 1, seed=3)
    free = PBM().fit(log, progress=False, threads=1)
    given = PBM(examination=ANCHOR, attraction=ONE_PRIOR).fit(log, progress=False, threads=1)
    spreads = [model.estimates("attraction")["spread"].mean() for model in (free, given)]
    assert spreads[0] > 0.95 * spreads[1]


def test_with_an_anchor_and_pairs_alike_at_all_ranks_it_is_identified_and_covered() -> None:
    inside = []
    for seed in range(6):
        model = PBM(examination=ANCHOR, attraction=ONE_PRIOR)
        found = told(model, pages("PBM", 800, 1, seed), "examination")
        assert found["rests_on"].to_list() == ["given", *["rank"] * 4]
        inside.append((found["low"] <= EXAMINATION) & (found["high"] >= EXAMINATION))
    assert np.mean(inside) > 0.75


def test_with_pairs_at_several_ranks_it_is_identified_and_covered() -> None:
    inside, widths = [], []
    for seed in range(6):
        found = told(PBM(examination=ANCHOR), pages("PBM", 150, 12, seed), "examination")
        assert found["rests_on"].to_list() == ["given", *["rank"] * 4]
        inside.append((found["low"] <= EXAMINATION) & (found["high"] >= EXAMINATION))
        widths.append((found["high"] - found["low"]).max())
    assert np.mean(inside) > 0.75
    assert max(widths) < 0.3


@pytest.mark.parametrize(("n_queries", "n_times"), [(800, 1), (100, 8), (10, 80)])
def test_continuation_of_a_dbn_is_identified_and_covered(n_queries: int, n_times: int) -> None:
    """Also where pairs are shown once: clicks further down, after none and after some, tell."""
    inside = []
    for seed in range(4):
        found = told(DBN(), pages("DBN", n_queries, n_times, seed), "continuation")
        assert found["rests_on"].to_list() == ["all"]
        assert found["spread"][0] < 0.1
        inside.append(found["low"][0] <= CONTINUATION <= found["high"][0])
    assert np.mean(inside) >= 0.75


def test_what_a_ccm_knows_depends_on_pairs_shown_again() -> None:
    once, again = pages("DBN", 1_500, 1, seed=4), pages("DBN", 60, 25, seed=4)
    coins = [f"continuation_after_{what}" for what in ("skip", "click", "satisfaction")]
    models = [CCM().fit(log, progress=False, threads=1) for log in (once, again)]
    rests_on = [[model.estimates(coin)["rests_on"][0] for coin in coins] for model in models]
    assert rests_on == [["all", "not identified", "not identified"], ["all"] * 3]


def test_information_is_that_of_the_integrated_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of pairs that are shown once it is known in closed form: a click has the probability e m."""
    seen: list[tuple[Joint, Known]] = []
    look = Joint.known

    def known(joint: Joint) -> Known:
        seen.append((joint, look(joint)))
        return seen[-1][1]

    monkeypatch.setattr(Joint, "known", known)
    log = pages("PBM", 1_000, 1, seed=5)
    PBM(attraction=ONE_PRIOR).fit(log, progress=False, threads=1)
    joint, found = seen[-1]
    e = np.asarray(joint.states[joint.shared.ties[0][0]].probability)
    regression = joint.coins[0].regression
    assert regression is not None
    m = regression.priors.mean
    clicks = log.column("click").to_numpy().reshape(-1, 5).sum(axis=0)
    # Slopes of e m by the logits of e and m; what is second order in these vanishes with the score
    # of the pages.
    curvature = clicks / (e * m) ** 2 + (1000 - clicks) / (1 - e * m) ** 2
    by = np.hstack([np.diag(e * (1 - e) * m), (e * m * (1 - m))[:, None]])
    exact, pages_say = (by.T * curvature) @ by, found.pages[:6, :6]
    scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
    np.testing.assert_allclose(pages_say / scale, exact / scale, atol=0.1)
    # Along the ridge, on which e m stays as it is, the first order would be off by seven flips.
    ridge = np.append(1 / (1 - e), -1 / (1 - m))
    assert np.abs(ridge @ exact @ ridge) < 1e-6
    assert np.abs(ridge @ pages_say @ ridge) < 0.02 * (ridge**2 @ np.diag(exact))
    assert found.is_open.all()
