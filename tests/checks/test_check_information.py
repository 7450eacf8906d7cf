"""Flat directions, standard errors, and what random pages would buy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from checked_logs import by_doc, dbn_users, pages_log, pbm_users, random_clicks, shelves

from gecasmo import DBN, PBM, Table
from gecasmo.checks import check
from gecasmo.checks.flat import curvature, observed_along
from gecasmo.checks.identified import find_tangles
from gecasmo.checks.information import inform
from gecasmo.checks.subject import CheckedModel, begin, choose_pages, shuffled

ANCHOR = Table(fixed={1: 1.0})


def informed(model, log):  # type: ignore[no-untyped-def]
    rows = model.encode(log, "e_step").rows
    states = model.states() if model.is_fitted else begin(model, rows)
    subject = CheckedModel(model, log, states, model.is_fitted)
    sample = choose_pages(model, log)
    tangles = find_tangles(model, sample.log, 0)
    return subject, inform(subject, sample, tangles, [len(its) for its in rows], 0)


def test_clicks_on_the_first_result_only_leave_dbn_a_flat_ridge() -> None:
    """Below rank 1 nobody ever clicks: whether people left, or disliked it all, cannot be seen."""
    pages = shelves(120, 3, 3, 0.0, 0)
    clicks = [[row[0], 0, 0] for row in random_clicks(pages, 0.5, 1)]
    checked = check(pages_log(pages, clicks), by_doc(DBN))
    (finding,) = checked.about("flat directions")
    assert finding.severity == "warning"
    assert "continuation" in finding.message
    assert "attraction" in finding.message
    assert checked.facts["condition_number"] > 100
    healthy = check(dbn_users(shelves(120, 3, 3, 0.8, 0), 1), by_doc(DBN))
    assert healthy.about("flat directions")[0].severity == "info"
    assert healthy.facts["condition_number"] < 20


def test_weak_links_are_a_nearly_flat_direction() -> None:
    """A graph can be connected by a few pages only: then ranks are hardly known."""
    weak = check(pbm_users(shelves(800, 4, 3, 0.006, 1), 1), by_doc(PBM, examination=ANCHOR))
    assert weak.facts["components"] == 1
    (finding,) = weak.about("flat directions")
    assert finding.severity == "warning"
    assert "examination of rank" in finding.message
    strong = check(pbm_users(shelves(300, 4, 3, 0.9, 3), 1), by_doc(PBM, examination=ANCHOR))
    assert strong.about("flat directions")[0].severity == "info"
    errors = [c.tables["directions"]["times"][0] for c in (weak, strong)]
    assert errors[0] > 3 * errors[1]


def test_information_of_pbm_with_everything_known_but_one() -> None:
    """Alone, examination of rank 2 is known as from coins of examination times attraction."""
    log = pbm_users(shelves(200, 2, 2, 0.5, 0), 1)
    model = by_doc(PBM, examination=ANCHOR).fit(log, progress=False)
    _, known = informed(model, log)
    value = model.parameters["examination"].filter(pl.col("rank") == 2)["probability"][0]
    attraction = dict(model.parameters["attraction"].select("doc", "probability").rows())
    docs = log.column("doc").to_numpy()[log.rank == 2]
    total = 0.0
    for doc in docs:
        p = value * attraction[doc]
        total += (p * (1 - value)) ** 2 / (p * (1 - p))
    (shared,) = known.shared
    assert known.parameters.names[shared] == "examination of rank 2"
    assert known.now[shared, shared] == pytest.approx(total, rel=1e-6)


def test_observed_and_expected_information_agree_on_a_large_sample() -> None:
    log = pbm_users(shelves(1500, 1, 2, 0.5, 0), 1)
    model = by_doc(PBM, examination=ANCHOR)
    model = model.fit(log, progress=False)
    subject, known = informed(model, log)
    for number in range(len(known.parameters.names)):
        move = np.eye(len(known.parameters.names))[number]
        observed = observed_along(subject, known, move)
        assert observed == pytest.approx(known.now[number, number], rel=0.15)


def test_profiled_information_against_the_inverse() -> None:
    """What is left for some is the inverse of their block in the inverse of everything."""
    log = pbm_users(shelves(200, 2, 3, 0.5, 0), 1)
    _, known = informed(by_doc(PBM, examination=ANCHOR).fit(log, progress=False), log)
    ridge = np.full(len(known.parameters.names), 1e-9)
    everything = np.linalg.inv(known.now + np.diag(ridge) * 1e-3)
    block = np.linalg.inv(everything[np.ix_(known.shared, known.shared)])
    np.testing.assert_allclose(known.profiled(known.now, ridge), block, rtol=1e-5, atol=1e-8)
    found = curvature(known)
    inflation = np.sqrt(np.diag(np.linalg.inv(block)) * np.diag(known.now)[known.shared])
    np.testing.assert_allclose(found.inflation, inflation, rtol=1e-4)


# -- randomising ------------------------------------------------------------------------------
def test_shuffled_pages_keep_documents_and_ranks() -> None:
    log = pages_log([["a", "b", "c"], ["d", "e"]], [[1, 0, 0], [0, 1]], weight=[2.0, 3.0])
    mixed = shuffled(log, 3, 1)
    assert mixed.n_sessions == 6
    assert mixed.weight.tolist() == [2.0, 3.0] * 3
    assert not mixed.click.any()
    for page in range(6):
        rows = np.flatnonzero(mixed.page == page)
        docs = [mixed.column("doc")[int(row)] for row in rows]
        assert sorted(docs) == (["a", "b", "c"], ["d", "e"])[page % 2]
        assert sorted(mixed.rank[rows]) == list(range(1, len(rows) + 1))
    orders = {tuple(shuffled(log, 1, seed).rank[:3]) for seed in range(40)}
    assert len(orders) == 6  # every order comes up


def test_random_pages_help_where_nothing_moves() -> None:
    stuck = check(
        pbm_users(shelves(600, 3, 3, 0.0, 3), 1),
        by_doc(PBM, examination=ANCHOR),
        randomise=0.05,
    )
    table = stuck.tables["randomising"]
    assert (table["worth_so_many_logs"] > 2).all()
    assert (table["error_with_random_pages"] < table["error_now"]).all()
    (finding,) = stuck.about("randomising")
    assert "(about 30)" in finding.message
    moving = check(
        pbm_users(shelves(600, 3, 3, 1.0, 3), 1),
        by_doc(PBM, examination=ANCHOR),
        randomise=0.05,
    )
    assert moving.tables["randomising"]["worth_so_many_logs"].to_numpy() == pytest.approx(
        1, abs=0.1
    )
    assert "would hardly sharpen" in moving.about("randomising")[0].message


def test_more_random_pages_help_more() -> None:
    log = pbm_users(shelves(400, 3, 3, 0.0, 3), 1)
    _, known = informed(by_doc(PBM, examination=ANCHOR).fit(log, progress=False), log)
    spread = [
        known.errors((1 - share) * known.now + share * known.random)
        for share in (0.0, 0.01, 0.1, 0.5)
    ]
    for less, more in pairwise(spread):
        assert (less > more).all()


def test_errors_are_those_of_repeated_experiments(compiled: None) -> None:
    """Fits of logs of the same people on the same pages spread as much as one log says."""
    pages = shelves(1000, 3, 3, 0.5, 0)
    model = by_doc(PBM, examination=ANCHOR)
    logs = [pbm_users(pages, 7, clicks=seed, top=1.0) for seed in range(30)]
    fits = [model.copy().fit(log, progress=False) for log in logs]
    found = [
        fit.parameters["examination"].sort("rank")["probability"][1:].to_list() for fit in fits
    ]
    _, known = informed(fits[0], logs[0])
    said = known.errors(known.now)
    assert [known.parameters.names[i] for i in known.shared] == [
        "examination of rank 2",
        "examination of rank 3",
    ]
    spread = np.std(found, axis=0)
    assert (said < 1.6 * spread).all()
    assert (said > spread / 1.6).all()


@pytest.mark.parametrize("swap", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("model", ["PBM", "DBN"])
def test_both_tables_tell_the_same_error(model: str, swap: float) -> None:
    pages = shelves(150, 3, 3, swap, 3)
    users = pbm_users(pages, 1) if model == "PBM" else dbn_users(pages, 1)
    log = pages_log(pages, users.click.reshape(150, 3).astype(int).tolist(), ["q"] * 150)
    checked = check(log, model)
    sure, bought = checked.tables["directions"], checked.tables["randomising"]
    assert sure["parameter"].to_list() == bought["parameter"].to_list()
    assert sure["error"].to_list() == bought["error_now"].to_list()
    assert (sure["times"] >= 1 - 1e-9).all()
    np.testing.assert_allclose(sure["error"], sure["times"] * sure["error_if_rest_known"])


def test_a_learned_prior_does_not_make_up_for_order() -> None:
    """All attractions alike: the prior is learned to be strong, and still nothing ever moves."""
    pages = shelves(600, 3, 3, 0.0, 3)
    rng = np.random.default_rng(1)
    clicks = [[int(x) for x in rng.random(3) < (0.4, 0.2, 0.1)] for _ in pages]
    checked = check(pages_log(pages, clicks, ["q"] * 600), "PBM", randomise=0.05)
    (finding,) = checked.about("randomising")
    assert "results already change their rank enough" not in finding.message
    assert (checked.tables["randomising"]["worth_so_many_logs"] > 1.5).all()


def test_pages_that_never_change_are_not_said_to_move() -> None:
    stuck = pbm_users(shelves(60, 3, 3, 0.0, 3), 1)
    (finding,) = check(stuck, by_doc(PBM, examination=ANCHOR), randomise=1e-5).about("randomising")
    assert "would hardly sharpen" in finding.message
    assert "so few are not enough, while all pages in random order" in finding.message
    alike = pages_log([["a", "b"]] * 60, [[1, 1]] * 60, ["q"] * 60)
    for checked in (check(stuck, by_doc(PBM)), check(alike, "DBN")):
        (finding,) = checked.about("randomising")
        assert "change their rank enough" not in finding.message


def test_a_table_of_what_cannot_be_told_apart_has_a_finding(compiled: None) -> None:
    rng = np.random.default_rng(0)
    long = [[f"d{shelf}{place}" for place in range(30)] for shelf in rng.integers(0, 40, 400)]
    for log, model in (
        (pages_log(long, random_clicks(long, 0.1, 1)), by_doc(DBN)),
        (pbm_users(shelves(60, 3, 3, 0.5, 0), 1), by_doc(PBM)),
        (dbn_users(shelves(120, 3, 3, 0.8, 0), 1), by_doc(DBN)),
    ):
        checked = check(log, model)
        assert checked.about("identified")
        if "not_identified" not in checked.tables:
            continue
        reasons = set(checked.tables["not_identified"]["because"])
        told = " ".join(finding.message for finding in checked.about("identified"))
        assert ("cannot be told apart" in told) == ("of the pages shown" in reasons)
        assert ("beside the products" in told) <= ("only together, in any log" in reasons)


def test_no_finding_denies_what_the_table_shows(
    compiled: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large error is told also where the observed second derivative sees no flat direction."""
    monkeypatch.setattr("gecasmo.checks.flat._is_flat_in_fact", lambda *given: False)
    log = pbm_users(shelves(8000, 2, 2, 0.001, 1), 1)
    checked = check(log, by_doc(PBM, examination=ANCHOR))
    assert checked.tables["directions"]["times"].max() > 10
    (finding,) = checked.about("flat directions")
    assert finding.severity == "warning"
    assert "standard error of examination of rank 2 is" in finding.message
