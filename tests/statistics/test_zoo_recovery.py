"""The models of the zoo recover users who click by them, by the law of likelihood ratios.

Twice the log-likelihood that a fit gains over the truth follows a chi-squared law with as many
degrees as there are free rows: less means that the fit has not arrived, more that something else
was fitted than what made the clicks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.stats import chi2
from test_recovery import CASES

from gecasmo import EM, ClickModel, Table, read_log
from gecasmo.logs import ClickLog
from gecasmo.logs.views import as_view
from gecasmo.models import CATALOGUE
from gecasmo.testing import plain_python
from strategies.zoo import densities_of

N_PAGES, N_DOCS, LENGTH = 3_000, 5, 4
# They take the last click for the moment of leaving. Here that is true: who has not left before
# clicks the last result, which attracts and satisfies for sure.
COUNTING = {"CountingDCM", "CountingSDBN"}
# Some are tested elsewhere, more closely; those that know the next click make none, and are below.
HERE = [name for name, model in CATALOGUE.items() if name not in CASES and not model().foreseen]

# What has to be given so that clicks tell all the rest.
UBM_SCALE = {"examination": {(1, 0): 1.0}}
ANCHORS: dict[str, dict[str, Any]] = {
    "TrustPBM": {"examination": {1: 1.0}, "trust": {LENGTH: 0.0}},
    "BSS": {"care": 0.9, "noise": 0.2},
    "EBUBM": UBM_SCALE,
    "FCM": UBM_SCALE,
    "VCM": UBM_SCALE,
    "Intents": UBM_SCALE,
    "TCM": {"examination": {1: 1.0}},
    "CountingDCM": {"attraction": {(0, N_DOCS - 1): 1.0}, "continuation": {LENGTH: 0.0}},
    "CountingSDBN": {
        "attraction": {(0, N_DOCS - 1): 1.0},
        "satisfaction": {(0, N_DOCS - 1): 1.0},
    },
}


def pages(model: ClickModel, rng: np.random.Generator) -> ClickLog:
    """Pages of one query with documents in random order, and the columns that the model needs."""
    shown = np.argsort(rng.random((N_PAGES, N_DOCS)), axis=1)[:, :LENGTH]
    if model.name in COUNTING:
        shown = np.argsort(rng.random((N_PAGES, N_DOCS - 1)), axis=1)[:, :LENGTH]
        shown[:, -1] = N_DOCS - 1
    rank = np.tile(np.arange(1, LENGTH + 1), N_PAGES)
    table = {
        "session": np.repeat(np.arange(N_PAGES), LENGTH),
        "query": np.zeros(N_PAGES * LENGTH, np.int64),
        "doc": shown.ravel(),
        "rank": rank,
    }
    table |= {name: rng.random(len(rank)) < 0.5 for name in model.needs.guards}
    table |= {name: np.repeat(rng.integers(0, 2, N_PAGES), LENGTH) for name in model.needs.keys}
    table |= as_view(model.view).example(table["session"], rank)
    if "vertical_distance" in table:
        table["vertical_distance"] = rank - 2
    return read_log(table, click=None)


def true_rows(model: ClickModel, log: ClickLog, rng: np.random.Generator) -> dict[str, Any]:
    """A number for each row of each coin that pages of this kind can meet."""
    met = model.viewed(log).to_frame().with_columns(last_click=0, clicks_above=0)
    met = pl.concat([met.with_columns(last_click=n, clicks_above=n) for n in range(LENGTH)])
    values: dict[str, Any] = {}
    observed = dict(model.traced_automaton.observes)
    for coin, keys in model.declared_keys.items():
        if coin in observed:
            continue
        given = ANCHORS.get(model.name, {}).get(coin, {})
        if not keys:
            values[coin] = given or float(rng.uniform(0.3, 0.8))
            continue
        rows = met.select(keys).unique().sort(keys).rows()
        found = {row[0] if len(row) == 1 else row: float(rng.uniform(0.3, 0.8)) for row in rows}
        values[coin] = {**found, **given}
    return values


def weak(given: Any) -> Table | float:
    """A prior too weak to be seen, yet there; or what is given."""
    if isinstance(given, float):
        return given
    return Table(pseudo_counts=(0.01, 0.01), fixed=given or None)


@pytest.mark.parametrize("name", HERE)
def test_a_fit_gains_what_chance_gives(name: str) -> None:
    make, anchors = CATALOGUE[name], ANCHORS.get(name, {})
    rng = np.random.default_rng(len(name))
    blank = pages(make(), rng)
    densities = densities_of(make)
    truth = make.with_values(**true_rows(make(), blank, rng), **densities)
    with plain_python():
        log = truth.simulate(blank, seed=1)
    model = make(**{coin: weak(anchors.get(coin)) for coin in make._parameters()})
    method = EM(max_iter=2_000, tol=1e-7)
    at_truth = model.copy().fit(log, EM(max_iter=1, tol=0), start=truth)
    model.fit(log, method, intervals=False)
    gained = 2 * (model.history["log_likelihood"][-1] - at_truth.history["log_likelihood"][0])
    n_free = sum(
        frame.filter(pl.col("heads") + pl.col("tails") > 1e-9).height
        - len(anchors.get(coin, {}) if isinstance(anchors.get(coin, {}), dict) else [1])
        for coin, frame in model.parameters.items()
        if coin not in densities
    )
    n_free += sum(len(density.numbers()) for density in densities.values())
    low, high = chi2.ppf([0.005, 0.995], n_free)
    assert low < gained < high, (gained, n_free)


def test_pscm_recovers_users_who_read_downwards() -> None:
    """Where the next click plays no part and clicks go down, it is UBM: so users click by that."""
    rng = np.random.default_rng(5)
    ubm, pscm = CATALOGUE["UBM"], CATALOGUE["PSCM"]
    assert {name for name in CATALOGUE if CATALOGUE[name]().foreseen} == {pscm.__name__}
    blank = pages(ubm(), rng)
    values = true_rows(ubm(), blank, rng)
    values["examination"][1, 0] = 1.0
    with plain_python():
        log = ubm.with_values(**values).simulate(blank, seed=1)
    turns = pl.Series("click_order", log.rank).set(pl.Series(~log.click), None)
    log = read_log(log.to_frame().with_columns(turns))
    key = ("page_rank", "from_rank")
    truth = pscm.with_values(
        examination=(Table(key=key), values["examination"]), attraction=values["attraction"]
    )
    fixed = {(1, 0): 1.0}
    model = pscm(
        examination=Table(key=key, pseudo_counts=(0.01, 0.01), fixed=fixed), attraction=weak(None)
    )
    at_truth = model.copy().fit(log, EM(max_iter=1, tol=0), start=truth)
    model.fit(log, EM(max_iter=2_000, tol=1e-7), intervals=False)
    gained = 2 * (model.history["log_likelihood"][-1] - at_truth.history["log_likelihood"][0])
    met = pl.col("heads") + pl.col("tails") > 1e-9
    n_free = sum(frame.filter(met).height for frame in model.parameters.values()) - len(fixed)
    low, high = chi2.ppf([0.005, 0.995], n_free)
    assert low < gained < high, (gained, n_free)
