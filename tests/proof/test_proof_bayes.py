"""Variational Bayes and Gibbs against exact posteriors, which on tiny logs are a list."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecasmo import DBN, VB, Empirical, Gibbs, Table, read_log
from gecasmo.encoding.encoded import take_apart
from gecasmo.estimation import Expectation, Problem, gibbs
from gecasmo.estimation.coins import as_weights
from gecasmo.estimation.draws import effective_draws
from gecasmo.estimation.gibbs import _Chains
from gecasmo.estimation.gibbs_rows import RowChain, TableRows
from gecasmo.estimation.ridge_moves import Ridge, Slide, Walk
from gecasmo.model.part_builder import Builder, Settings
from oracle.beliefs import Exact, Page, Row, elbo_and_counts, exact_posterior, told
from oracle.brute_force import Oracle
from proof.test_proof_sampling import PAGE, PROGRAMS
from strategies.cases import Case, Values, cases, make_plain
from strategies.checks import close_to, many
from strategies.trees import as_model, as_story

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


# Programs of two kinds of users, and of results that are looked at twice.
TIED = ("mixture", "twice")


@pytest.mark.parametrize("augmentation", ["minimal", "full"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_moments_of_vb_are_near_those_of_the_exact_posterior(name: str, augmentation: str) -> None:
    """VB takes rows to be independent: its means are close, its deviations too small (down to 0.57
    of the exact ones where pages tie rows together most), and never too large."""
    case, exact = tiny(name, (1.5, 1.0))
    known = moments(fitted(case, (1.5, 1.0), VB(augmentation=augmentation)))
    checked = 0
    for row in exact.mean.keys() & known.keys():
        mean, deviation = known[row]
        true = np.sqrt(exact.variance[row])
        off, narrow = (0.7, 0.5) if name in TIED else (0.3, 0.8)
        assert abs(mean - exact.mean[row]) < off * true
        assert narrow < deviation / true < 1.001
        checked += 1
    assert checked >= 3


def tiny(name: str, prior: tuple[float, float]) -> tuple[Case, Exact]:
    """Four pages, and what is known after them."""
    program = PROGRAMS[name]
    patterns = sorted(
        Oracle(as_story(program, PAGE), Values(4)).patterns, key=lambda s: [sorted(x) for x in s]
    )
    shown = [patterns[0], patterns[len(patterns) // 2], patterns[-1]]
    case = Case(program, Values(4), [PAGE] * 3, shown, [2.0, 1.0, 1.0], 5)
    return case, exact_posterior(pages_of(case), prior)


# -- Gibbs -----------------------------------------------------------------------------------------
N_COPIES = 600


@pytest.mark.parametrize("shape", ["fast", "scaled"])
@pytest.mark.parametrize("augmentation", ["minimal", "full"])
@many(12)
@given(case=cases(extremes=False, max_pages=2, max_results=3))
def test_paths_are_drawn_as_often_as_the_e_step_expects(
    augmentation: str, shape: str, case: Case
) -> None:
    """Many copies of each page: how coins fell on them, against expected heads and tails."""
    case.weights = [float(N_COPIES)] * len(case.weights)
    model = make_plain(as_model(case.program)())
    encoded = model.encode(case.log, "e_step", augmentation)
    library = model.library(encoded.plan, counting=True)
    expectation = Expectation(encoded, library, augmentation, threads=1)
    expectation.is_small &= shape == "fast"
    coins = zip(model.forms, encoded.rows, strict=True)
    weights = [
        as_weights(np.array([case.values(coin, row) for row in rows.frame.iter_rows()] or [0.4]))
        if rows.keys
        else as_weights(np.full(len(rows), case.values(coin, ())))
        for coin, rows in coins
    ]
    expected, drawn = expectation.run(weights), expectation.draw(weights, 7)
    close_to(drawn.log_likelihood, expected.log_likelihood, 1e-9)
    assert drawn.n_impossible == expected.n_impossible == 0
    n_flips = max(1, max(len(t.falls) for oracle in case.oracles for t in oracle.stories))
    for found, wanted in zip(drawn.tables, expected.tables, strict=True):
        assert (found == np.round(found)).all()
        # A page flips a row at most so often, so its counts deviate by at most half of that.
        error = n_flips / 2 * np.sqrt(N_COPIES * len(case.pages))
        assert (np.abs(found - wanted) < 5 * error).all()
        assert (found[wanted == 0] == 0).all()


@pytest.mark.filterwarnings("ignore:The chains of Gibbs")  # which are short
@pytest.mark.parametrize(
    ("name", "augmentation"), [*((name, "minimal") for name in PROGRAMS), ("cascade", "full")]
)
def test_gibbs_has_the_moments_of_the_exact_posterior(name: str, augmentation: str) -> None:
    prior = (1.5, 1.0)
    case, exact = tiny(name, prior)
    method = Gibbs(draws=300, warmup=30, chains=2, seed=3, augmentation=augmentation)
    model = fitted(case, prior, method)
    known, checked = moments(model), 0
    for coin in model.forms:
        draws = model.draws(coin)
        rows = model.parameters[coin].select(model.keys[coin]).rows() or [()]
        for place, row in enumerate(rows):
            if (coin, row) not in exact.mean:
                continue
            mean, variance = exact.mean[coin, row], exact.variance[coin, row]
            effective = effective_draws(draws[:, :, place])
            error = np.sqrt(variance / effective)
            assert abs(draws[:, :, place].mean() - mean) < 4.5 * error
            # What is reported averages the means of the Betas, which deviate less.
            assert abs(known[coin, row][0] - mean) < 4.5 * error
            # The variance of a Beta's squared deviations is at most about twice its square.
            assert abs(known[coin, row][1] ** 2 / variance - 1) < 4.5 * np.sqrt(2 / effective)
            checked += 1
    assert checked >= 3


def geweke(n_rounds: int, form: Table, n_users: int, ridge: Ridge | None = None) -> Any:
    """How far two ways to draw all there is differ, in standard errors, by statistic.

    Draw rows and priors, then clicks; or go on from rows to clicks to rows and so on by sweeps:
    both ways are draws from the same joint distribution, if sweeps are right (Geweke 2004).

    All click patterns of a page are pages of their own, with weights that say how often each was
    seen, so that new clicks need no new log.
    """
    patterns = [[int(x) for x in f"{number:03b}"] for number in range(8)]
    columns = {
        "session": np.repeat(np.arange(8), 3),
        "query": np.ones(24, int),
        "doc": np.tile([1, 2, 3], 8),
        "rank": np.tile([1, 2, 3], 8),
        "click": np.ravel(patterns),
    }
    model = DBN(attraction=form, satisfaction=form, continuation=Table(pseudo_counts=(4, 2)))
    method = Gibbs(warmup=0, chains=1, seed=5)
    part = Builder(model, read_log(columns), Settings(method), 1).part()
    chains = _Chains(method, Problem.of(part, False), None)
    encoded, expectation = part.expectation.encoded, part.expectation
    apart = take_apart(encoded, np.arange(8))
    rng = np.random.default_rng(8)
    for proposals in chains.chains[0].proposals.values():
        proposals.log_step = 0.0  # nothing is learned here
    if ridge is not None:
        chains.chains[0].walks.append(Walk(ridge))

    def clicks_of(weights: list[Any]) -> Any:
        _, logs = expectation.run_apart(apart, expectation.weights_apart(apart, weights))
        chance = np.exp(logs)
        assert abs(chance.sum() - 1) < 1e-9
        return rng.multinomial(n_users, chance / chance.sum()).astype(float)

    def seen(hyper: list[Any], p: list[Any], clicks: Any) -> list[float]:
        return [*hyper[0], *hyper[1], *p[0], *p[1], *p[2], p[0].sum(), p[1].sum(), *clicks[:4]]

    independent, successive = [], []
    for _ in range(n_rounds):
        hyper = [
            rows.priors.drawn(rng) if rows.priors.is_free else np.zeros(2)
            for rows in chains.rows[:2]
        ]
        p = [
            rng.beta(*rows.priors.moved(moved))
            for rows, moved in zip(chains.rows, [*hyper, np.zeros(2)], strict=True)
        ]
        p = [np.clip(own, 1e-12, 1 - 1e-12) for own in p]
        independent.append(seen(hyper, p, clicks_of([as_weights(own) for own in p])))
    own = chains.chains[0]
    for number in range(n_rounds):
        weights = [own.weights[n] for n in range(3)]
        encoded.weight[:] = clicks_of(weights)
        hyper = [own.rows[n].hyper for n in range(2)]
        successive.append(seen(hyper, [w[1] for w in weights], encoded.weight))
        chains._sweep(0, number)
        own = chains.chains[0]
    # Means, and all products of deviations from them: a sampler that is wrong often has the means.
    a, b = np.array(independent), np.array(successive)[n_rounds // 12 :]
    a, b = (values - np.mean(independent, axis=0) for values in (a, b))
    some, others = np.triu_indices(a.shape[1])
    a, b = (np.hstack([values, values[:, some] * values[:, others]]) for values in (a, b))
    moves = a.var(axis=0) > 0  # priors that are given do not
    a, b = a[:, moves], b[:, moves]
    effective = np.array([effective_draws(column[None]) for column in b.T])
    z = (a.mean(0) - b.mean(0)) / np.sqrt(a.var(0) / len(a) + b.var(0) / effective)
    assert effective.min() > n_rounds / 42
    return z


# Priors that are given, and such as are drawn along.
GIVEN, DRAWN = (Table(pseudo_counts=(2, 2)), 8), (Table(prior=Empirical(by=())), 3)
ROUNDS, FAR = 4000, 4.0
# Moves need not go along a ridge to be right.
MOVES = Ridge((Slide(0, 1, 1.0), Slide(1, 0, 0.7), Slide(2, 1, -0.4)), 0.5)


@pytest.mark.parametrize("how", [GIVEN, DRAWN], ids=["given", "drawn"])
def test_geweke_joint_distribution(how: tuple[Table, int]) -> None:
    assert np.abs(geweke(ROUNDS, *how)).max() < FAR


@pytest.mark.parametrize("how", [GIVEN, DRAWN], ids=["given", "drawn"])
def test_geweke_with_moves_along_ridges(
    how: tuple[Table, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gibbs, "_BETWEEN_MOVES", 2)
    assert np.abs(geweke(ROUNDS, *how, MOVES)).max() < FAR


class HeavyCounts(TableRows):
    """Counts every flip one and a half times."""

    def draw(self, hyper: Any, counts: Any, before: Any, key: int) -> Any:
        return super().draw(hyper, 1.5 * counts, before, key)


class ForgottenHyper(TableRows):
    """Draws rows from the prior as it was before it moved."""

    def draw(self, hyper: Any, counts: Any, before: Any, key: int) -> Any:
        drawn = super().draw(before.hyper, counts, before, key)
        return replace(drawn, hyper=hyper)


class WrongRoom(TableRows):
    """Slides as if rows had more room where they are small. (By the first power alone what is wrong
    with moves is too little to be seen beside all that sweeps put right between them; by many moves
    between sweeps it is, see `test_proof_drawn_priors`.)"""

    def slid(self, own: RowChain, side: int, by: float) -> tuple[RowChain, float]:
        moved, gain = super().slid(own, side, by)
        return moved, gain - 3 * float(np.log(moved.weights[side] / own.weights[side]).sum())


@pytest.mark.parametrize(
    ("wrong", "how", "ridge"),
    [(HeavyCounts, GIVEN, None), (ForgottenHyper, DRAWN, None), (WrongRoom, GIVEN, MOVES)],
)
def test_geweke_finds_samplers_that_are_wrong(
    wrong: type[TableRows],
    how: tuple[Table, int],
    ridge: Ridge | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gibbs, "TableRows", wrong)
    monkeypatch.setattr(gibbs, "_BETWEEN_MOVES", 1)
    assert np.abs(geweke(ROUNDS, *how, ridge)).max() > FAR
