"""Variational Bayes and Gibbs against exact posteriors, which on tiny logs are a list."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecasmo import VB, Table
from oracle.beliefs import Page, Row, elbo_and_counts, exact_posterior, told
from strategies.cases import Case, cases, make_plain
from strategies.checks import close_to, many
from strategies.trees import as_model

PRIORS = [(1.0, 1.0), (0.5, 2.0), (3.0, 1.5)]


def pages_of(case: Case) -> list[Page]:
    """The pages of a case as often as they weigh."""
    zipped = zip(case.oracles, case.shown, case.weights, strict=True)
    return [(oracle, shown, int(weight)) for oracle, shown, weight in zipped]


def whole(case: Case) -> Case:
    """The same case with whole weights."""
    case.weights = [float(max(1, round(weight))) for weight in case.weights]
    return case


def fitted(case: Case, prior: Any, method: Any, plain: bool = True) -> Any:
    forms = {coin: Table(pseudo_counts=prior) for coin in case.program.keys}
    model = as_model(case.program)(**forms)
    if plain:
        make_plain(model)
    return model.fit(case.log, method, threads=1)


def moments(model: Any) -> dict[Row, tuple[float, float]]:
    """By coin and row the mean and the standard deviation that a model reports."""
    found: dict[Row, tuple[float, float]] = {}
    for coin in model.forms:
        frame = model.estimates(coin)
        keys = model.keys[coin]
        for line in frame.iter_rows(named=True):
            row = tuple(line[key] for key in keys)
            found[coin, row] = (line["probability"], line["spread"])
    return found


@pytest.mark.filterwarnings("ignore:VB stopped")
@many(12)
@given(
    case=cases(extremes=False, max_pages=4).map(whole),
    prior=st.sampled_from(PRIORS),
    n_steps=st.integers(1, 3),
)
def test_steps_of_vb_are_those_by_hand(case: Case, prior: Any, n_steps: int) -> None:
    """Weights exp(E log p) over all stories; the ELBO before each step; prior plus counts after."""
    method = VB(n_steps, tol=0, accelerate=False, augmentation="full", restarts=1)
    model = fitted(case, prior, method)
    if model.is_exchangeable:
        return  # begins somewhere random
    pages, (a, b) = pages_of(case), prior
    rows = {row for page in pages for way in told(page) for row, *_ in way}
    belief = {row: [(a + b + 10) / 2] * 2 for row in rows}
    elbos = []
    for _ in range(n_steps):
        elbo, counts = elbo_and_counts(pages, belief, prior)
        elbos.append(elbo)
        belief = {row: [a + counts[row][0], b + counts[row][1]] for row in rows}
    # Rows that no story flips cost what their start is away from the prior, until the first step.
    idle = sum(len(model.estimates(coin)) for coin in model.forms) - len(rows)
    if not idle:
        close_to(model.history["objective"].to_list()[:n_steps], elbos, 1e-9)
    close_to(model.history["objective"].to_list()[1:n_steps], elbos[1:], 1e-9)
    known = moments(model)
    for row in rows:
        heads, tails = belief[row]
        mean = heads / (heads + tails)
        close_to(known[row], (mean, np.sqrt(mean * (1 - mean) / (heads + tails + 1))), 1e-8)


@pytest.mark.filterwarnings("ignore:VB stopped")
@many(8)
@given(case=cases(extremes=False, max_pages=4).map(whole), prior=st.sampled_from(PRIORS))
def test_the_elbo_climbs_below_the_evidence_and_the_minimal_one_is_tighter(
    case: Case, prior: Any
) -> None:
    exact = exact_posterior(pages_of(case), prior)
    begins = {}
    for augmentation in ("full", "minimal"):
        method = VB(60, tol=1e-6, augmentation=augmentation, restarts=1, seed=1)
        model = fitted(case, prior, method)
        climbed = model.history["objective"].to_numpy()
        assert (np.diff(climbed) >= -1e-9 * np.abs(climbed[1:])).all()
        begins[augmentation] = climbed[0]
        assert model.report_.objective <= exact.log_evidence + 1e-7
    # At the same beliefs: flips that were integrated out cannot loosen the bound any more.
    assert begins["minimal"] >= begins["full"] - 1e-9
