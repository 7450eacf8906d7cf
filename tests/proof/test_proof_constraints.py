"""Constraints on the posterior: against enumeration of all stories, and the laws that hold."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize

from gecasmo import EM, PBM, UBM, AtMost, ClickModel, Parameter, Prefer, Table, flip, read_log
from gecasmo.encoding.encoded import take_apart
from gecasmo.model.part_builder import Builder, Settings
from strategies.cases import Case, cases, make_plain
from strategies.checks import close_to, many
from strategies.trees import as_model

ONES = Table(pseudo_counts=(1, 1))


def pairs_of(shown: Any, where: str) -> list[tuple[int, int]]:
    clicked = ["click" in signals for signals in shown]
    places = range(len(clicked))
    if where == "skipped_above":
        return [(i, j) for i in places for j in range(i) if clicked[i] and not clicked[j]]
    return [(i, i + 1) for i in places[:-1] if clicked[i] and not clicked[i + 1]]


def rows_of(case: Case, coin: str, number: int) -> list[Any]:
    """The probability that a coin has at each result of a page, flipped or not; None if it is
    never flipped there."""
    found: dict[int, float] = {}
    shown = case.shown[number]
    for told in case.oracles[number].stories:
        for fall in told.falls:
            place = fall.place
            if fall.coin == coin and place is not None and told.signals[:place] == shown[:place]:
                found[place] = case.values(coin, fall.row)
    return [found.get(place) for place in range(len(case.shown[number]))]


class Direct:
    """The smallest log-likelihood of tilted pages over duals, by enumeration and a general solver.

    A result that a story flips less often than it can is flipped, unseen, for the rest.
    """

    def __init__(self, case: Case, asked: list[Any], flips: dict[str, int]) -> None:
        self.case, self.asked, self.flips = case, asked, flips
        self.duals = []  # (which constraint, page, clicked, skipped)
        for which, one in enumerate(asked):
            if isinstance(one, AtMost):
                self.duals.append((which, None, None, None))
                continue
            for number, shown in enumerate(case.shown):
                self.duals += [(which, number, *pair) for pair in pairs_of(shown, one.clicked_over)]

    def tilts(self, dual: Any, number: int, coin: str) -> np.ndarray:
        tilt = np.zeros(len(self.case.shown[number]))
        for own, (which, page, clicked, skipped) in zip(dual, self.duals, strict=True):
            one = self.asked[which]
            if one.coin != coin:
                continue
            if isinstance(one, AtMost):
                tilt -= own
            elif page == number:
                tilt[clicked] += own / self.flips[coin]
                tilt[skipped] -= own / self.flips[coin]
        return tilt

    def value(self, dual: Any) -> float:
        total = 0.0
        for number, weight in enumerate(self.case.weights):
            total += weight * self.page_value(dual, number)
        for own, (which, page, _, _) in zip(dual, self.duals, strict=True):
            one = self.asked[which]
            if page is not None:
                total -= self.case.weights[page] * own * one.margin
            else:
                n = sum(w * len(s) for w, s in zip(self.case.weights, self.case.shown, strict=True))
                total += own * one.share * n * self.flips[one.coin]
        return total

    def page_value(self, dual: Any, number: int) -> float:
        oracle, shown = self.case.page(number)
        coins = {one.coin for one in self.asked}
        tilts = {coin: self.tilts(dual, number, coin) for coin in coins}
        rows = {coin: rows_of(self.case, coin, number) for coin in coins}
        total = 0.0
        for told in oracle.stories:
            if told.signals != shown:
                continue
            weight = told.probability
            for coin in coins:
                for place, tilt in enumerate(tilts[coin]):
                    falls = [f.heads for f in told.falls if f.coin == coin and f.place == place]
                    weight *= np.exp(tilt * sum(falls))
                    p = rows[coin][place]
                    weight *= (1 - p + p * np.exp(tilt)) ** (self.flips[coin] - len(falls))
            total += weight
        return float(np.log(total))

    def solve(self) -> tuple[float, np.ndarray]:
        most = [self.asked[which].strength for which, *_ in self.duals]
        if not most:
            return self.value([]), np.zeros(0)
        found = minimize(
            self.value,
            np.zeros(len(most)),
            method="L-BFGS-B",
            bounds=[(0, m) for m in most],
            options={"ftol": 1e-15, "gtol": 1e-9, "maxiter": 2000, "maxfun": 10**6},
        )
        return float(found.fun), found.x


def regularised(model: Any, case: Case, asked: list[Any], augmentation: str) -> tuple[Any, Any]:
    """The E-step under constraints at the probabilities of a case, settled."""
    settings = Settings(EM(augmentation=augmentation), case.model, "raise", tuple(asked))
    build = Builder(model, case.log, settings, 1)
    part = build.part()
    weights = part.weights(build.begun(part))
    part.expectation.settle(weights)
    return part.expectation, weights


@many(15)
@given(
    case=cases(extremes=False, max_pages=3, max_results=3),
    strength=st.sampled_from([0.3, 2.0]),
    margin=st.sampled_from([0.0, 0.1, 0.6]),
    where=st.sampled_from(["skipped_above", "skipped_next"]),
    share=st.sampled_from([0.05, 0.3]),
    kinds=st.sampled_from(["prefer", "most", "both"]),
    augmentation=st.sampled_from(["minimal", "full"]),
    data=st.data(),
)
def test_duals_are_those_of_enumeration(
    case: Case,
    strength: float,
    margin: float,
    where: str,
    share: float,
    kinds: str,
    augmentation: str,
    data: Any,
) -> None:
    model = make_plain(as_model(case.program)())
    started = model.automaton.start_parameters()
    by_result = [
        coin
        for coin, keys in case.program.keys.items()
        if coin not in started and {"doc", "rank", "last_click", "clicks_above"} & set(keys)
    ]
    known = [
        coin
        for coin in by_result
        if all(None not in rows_of(case, coin, n) for n in range(len(case.pages)))
    ]
    assume(known)
    coin, other = data.draw(st.sampled_from(known)), data.draw(st.sampled_from(known))
    asked: list[Any] = []
    if kinds != "most":
        asked.append(Prefer(coin, where, margin, strength))
    if kinds != "prefer":
        asked.append(AtMost(other, share, strength))
    expectation, weights = regularised(model, case, asked, augmentation)
    names = model.automaton.parameters
    flips = {names[n]: per_result for n, (_, per_result) in expectation.flips.items()}
    least, _ = Direct(case, asked, flips).solve()
    # What fits climb lies below the least value by the duality gap, which is known to be small.
    close_to(expectation.run(weights).log_likelihood, least, 2e-7 * max(1.0, abs(least)))
    _, gap, _ = expectation._pass(weights)
    assert -1e-9 <= gap <= 2e-8 * sum(case.weights)


class Noisy(ClickModel):
    """Results that are looked at are clicked for a reason, or for none."""

    examination = Parameter("rank")
    attraction = Parameter("query", "doc")
    noise = Parameter()

    def browse(self, user: Any, result: Any) -> None:
        examined = flip(self.examination)
        attracted = flip(self.attraction)
        noisy = flip(self.noise)
        if examined and (attracted or noisy):
            user.click()


class LazyNoisy(Noisy):
    """The same, flipped as late as can be."""

    def browse(self, user: Any, result: Any) -> None:
        if flip(self.examination) and (flip(self.attraction) or flip(self.noise)):
            user.click()


def small_log(seed: int, n_pages: int = 6, length: int = 3, n_docs: int = 5) -> Any:
    rng = np.random.default_rng(seed)
    docs = np.concatenate([rng.permutation(n_docs)[:length] for _ in range(n_pages)])
    return read_log(
        {
            "session": np.repeat(np.arange(n_pages), length),
            "query": np.repeat(rng.integers(0, 2, n_pages), length),
            "doc": docs,
            "rank": np.tile(np.arange(1, length + 1), n_pages),
            "click": rng.random(n_pages * length) < 0.45,
        }
    )


VALUES = {
    "examination": {1: 0.9, 2: 0.7, 3: 0.6},
    "attraction": {(q, d): 0.2 + 0.13 * d + 0.05 * q for q in (0, 1) for d in range(5)},
    "noise": 0.4,
}


def test_q_is_the_closest_distribution() -> None:
    """The primal problem, over all distributions of the hidden flips, by a general solver."""
    clicks = [False, True]
    table = {"session": [1] * 2, "query": [0] * 2, "doc": [4, 1], "rank": [1, 2]}
    log = read_log({**table, "click": clicks})
    asked = [Prefer("attraction", margin=0.3, strength=1.5), AtMost("noise", 0.2, strength=1.0)]
    truth = Noisy().with_values(**VALUES)
    settings = Settings(EM(), truth, "raise", tuple(asked))
    build = Builder(make_plain(Noisy()), log, settings, 1)
    part = build.part()
    weights = part.weights(build.begun(part))
    part.expectation.settle(weights)

    rows = [VALUES["attraction"][0, doc] for doc in table["doc"]]
    stories = []
    for story in product(product([0, 1], repeat=3), repeat=2):
        if all((e and (a or n)) == c for (e, a, n), c in zip(story, clicks, strict=True)):
            chance = 1.0
            for rank, (e, a, n) in enumerate(story, 1):
                for heads, p in ((e, VALUES["examination"][rank]), (a, rows[rank - 1]), (n, 0.4)):
                    chance *= p if heads else 1 - p
            stories.append((story, chance))
    log_p = np.log([chance for _, chance in stories])
    attracted = np.array([[one[1] for one in story] for story, _ in stories])
    noisy = np.array([sum(one[2] for one in story) for story, _ in stories])
    pairs = pairs_of([{"click"} if c else set() for c in clicks], "skipped_above")
    n = len(stories)

    def cost(x: np.ndarray) -> float:
        q, slack = x[:n], x[n:]
        inside = np.maximum(q, 1e-300)
        return float(q @ (np.log(inside) - log_p) + 1.5 * slack[:-1].sum() + slack[-1])

    limits: list[Any] = [{"type": "eq", "fun": lambda x: x[:n].sum() - 1}]
    for k, (i, j) in enumerate(pairs):
        limits.append(
            {
                "type": "ineq",
                "fun": lambda x, i=i, j=j, k=k: (
                    x[:n] @ (attracted[:, i] - attracted[:, j]) - 0.3 + x[n + k]
                ),
            }
        )
    limits.append({"type": "ineq", "fun": lambda x: 0.4 - x[:n] @ noisy + x[-1]})
    begin = np.concatenate([np.exp(log_p) / np.exp(log_p).sum(), np.ones(len(pairs) + 1)])

    def slope(x: np.ndarray) -> np.ndarray:
        inside = np.log(np.maximum(x[:n], 1e-300)) - log_p + 1
        return np.concatenate([inside, np.full(len(pairs), 1.5), [1.0]])

    found = minimize(
        cost,
        begin,
        jac=slope,
        method="SLSQP",
        bounds=[(0, 1)] * n + [(0, None)] * (len(pairs) + 1),
        constraints=limits,
        options={"ftol": 1e-12, "maxiter": 1000},
    )
    assert found.status in (0, 8)  # 8: there is no better point that it can reach
    close_to(part.expectation.run(weights).log_likelihood, -found.fun, 1e-5)
    heads = found.x[:n] @ attracted
    close_to(part.expectation.run(weights).heads(1).sum(), heads.sum(), 1e-3)


ASKED = [Prefer("attraction", margin=0.3), AtMost("noise", 0.1)]


@pytest.mark.parametrize("accelerate", [False, True])
@pytest.mark.parametrize("augmentation", ["minimal", "full"])
def test_the_objective_climbs(accelerate: bool, augmentation: str) -> None:
    model = make_plain(Noisy(attraction=ONES))
    method = EM(25, tol=0, accelerate=accelerate, augmentation=augmentation)
    model.fit(small_log(3, 20), method, threads=1, constraints=ASKED)
    objective = model.history["objective"].to_numpy()
    assert (np.diff(objective) >= -1e-7 * 20).all()
    assert objective[-1] > objective[0]
    # The constraints bind, and cost something.
    report = model.report_
    assert report.constraints[1].within < report.constraints[1].without
    assert report.constraints[1].within == pytest.approx(0.1, abs=1e-3)
    assert report.log_likelihood > model.history["log_likelihood"][-1]


def test_flips_may_come_early_or_late_and_counts_be_full_or_minimal() -> None:
    found = []
    for cls, augmentation in product([Noisy, LazyNoisy], ["minimal", "full"]):
        model = make_plain(cls(attraction=ONES, noise=0.3, examination=ONES))
        method = EM(5, tol=0, accelerate=False, augmentation=augmentation)
        model.fit(small_log(4, 12), method, threads=1, constraints=[ASKED[0]])
        found.append(model.history["log_likelihood"][0])
    close_to(found, found[:1] * 4, 1e-7)


def test_strength_zero_is_em_and_a_little_is_nearly_em() -> None:
    log = small_log(5, 30)
    plain = make_plain(Noisy(attraction=ONES, noise=0.2)).fit(log, EM(tol=1e-10), threads=1)

    def fitted(strength: float) -> Any:
        asked = [Prefer("attraction", margin=0.5, strength=strength)]
        asked.append(AtMost("noise", 0.01, strength=strength))
        model = make_plain(Noisy(attraction=ONES, noise=0.2))
        return model.fit(log, EM(tol=1e-10), threads=1, constraints=asked)

    none, little = fitted(0.0), fitted(1e-5)
    for coin, frame in plain.parameters.items():
        p = frame["probability"].to_numpy()
        assert (p == none.parameters[coin]["probability"].to_numpy()).all()
        close_to(p, little.parameters[coin]["probability"].to_numpy(), 1e-4)
    assert little.report_.constraints[0].pressed > 0
    assert not none.report_.constraints


@many(10)
@given(case=cases(extremes=False, max_pages=4, max_results=3), data=st.data())
def test_strength_zero_is_em_whatever_the_program(case: Case, data: Any) -> None:
    """Bit by bit; and with hardly any strength, hardly anything else."""
    made = as_model(case.program)
    coin = data.draw(st.sampled_from(sorted(case.program.keys)))

    def fitted(*strength: float) -> Any:
        model = make_plain(made(**dict.fromkeys(case.program.keys, ONES)))
        asked = [AtMost(coin, 0.05, strength=own) for own in strength]
        method = EM(4, tol=0, accelerate=False)
        return model.fit(case.log, method, threads=1, constraints=asked, intervals=False)

    plain, none, little = fitted(), fitted(0.0), fitted(1e-6)
    columns = "objective", "log_likelihood"
    assert none.history.select(columns).equals(plain.history.select(columns))
    for name, frame in plain.parameters.items():
        assert none.parameters[name].equals(frame)
        p, q = (one.parameters[name]["probability"].to_numpy() for one in (plain, little))
        close_to(q, p, 1e-4)


@pytest.mark.parametrize("forms", [{}, {"attraction": ONES}])
def test_what_is_kept_anyway_changes_nothing(forms: dict[str, Any]) -> None:
    """Also where priors are learned: rows are integrated out of the tilted pages."""
    log = small_log(6, 60, length=4, n_docs=6)
    fixed = Table(fixed={1: 1.0})
    plain = make_plain(PBM(examination=fixed, **forms)).fit(log, EM(tol=1e-9), threads=1)
    held = make_plain(PBM(examination=fixed, **forms))
    asked = [Prefer("attraction", margin=0.0, strength=1.0), AtMost("attraction", 0.99)]
    held.fit(log, EM(tol=1e-9), threads=1, constraints=asked)
    assert held.report_.constraints[0].without == 1.0
    for coin, frame in plain.parameters.items():
        p, q = frame["probability"].to_numpy(), held.parameters[coin]["probability"].to_numpy()
        close_to(p, q, 2e-3)


def test_the_likelihood_of_rows_is_that_of_tilted_pages() -> None:
    """What learned priors and intervals rest on: counts of pages taken apart are the slopes of
    their log-likelihood."""
    log = small_log(7, 8)
    asked = (Prefer("attraction", margin=0.9, strength=1.0), AtMost("noise", 0.05, 1.0))
    build = Builder(make_plain(Noisy()), log, Settings(EM(), None, "raise", asked), 1)
    part = build.part()
    weights = part.weights(part.begun(None))
    expectation: Any = part.expectation
    expectation.settle(weights)
    assert (expectation.pairs.dual > 0).any()
    apart = take_apart(expectation.encoded, np.arange(expectation.encoded.n_pages))
    own = expectation.weights_apart(apart, weights)
    tables, before = expectation.run_apart(apart, own)
    place, step = 1, 1e-5
    moved = [w.copy() for w in own]
    moved[1][:, place] += [-step, step]
    _, after = expectation.run_apart(apart, moved)
    tails, heads = tables[1][:, place]
    p = own[1][1, place]
    slope = heads / p - tails / (1 - p)
    close_to((after - before)[apart.page_of(1)[place]] / step, slope, 1e-3)


@pytest.mark.parametrize("threads", [1, 3])
def test_answers_do_not_depend_on_threads(threads: int) -> None:
    log = small_log(8, 40)
    one = make_plain(UBM(attraction=ONES))
    method = EM(4, tol=0)
    one.fit(log, method, threads=1, constraints=[ASKED[0]])
    other = make_plain(UBM(attraction=ONES))
    other.fit(log, method, threads=threads, constraints=[ASKED[0]])
    for coin, frame in one.parameters.items():
        assert frame.equals(other.parameters[coin])
