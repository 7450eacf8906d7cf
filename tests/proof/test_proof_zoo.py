"""Every model of the zoo: compiled kernels, plain source, stories by hand, closed formulas."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from gecasmo.logs.views import VIEWS
from gecasmo.models import CATALOGUE
from oracle.brute_force import Oracle
from oracle.played import played
from oracle.stories import ZOO, Shown
from oracle.two_rate import TwoRate, ccm_second_flips, dbn_counts
from strategies.cases import Values, make_plain
from strategies.checks import close_to
from strategies.views import zoo_under
from strategies.zoo import ON_PAGES, SHAPES, ZooCase, story_of

NAMES = ON_PAGES
CASCADES = ["CM", "DCM", "SDBN", "DBN", "CCM"]


def counts_by_row(frames: dict[str, Any]) -> dict[Any, tuple[float, float]]:
    return {(coin, row[:-2]): row[-2:] for coin, frame in frames.items() for row in frame.rows()}


def same_counts(found: dict[Any, Any], wanted: dict[Any, Any]) -> None:
    for key in found.keys() | wanted.keys():
        close_to(found.get(key, (0.0, 0.0)), wanted.get(key, (0.0, 0.0)))


def answers(case: ZooCase, model: Any) -> list[Any]:
    log = case.log
    return [
        model.log_likelihood(log),
        model.predict_conditional_clicks(log),
        model.predict_clicks(log),
        *(
            value
            for pair in sorted(counts_by_row(model.expected_counts(log)).items())
            for value in pair[1]
        ),
    ]


def test_the_oracle_knows_the_whole_catalogue() -> None:
    assert set(ZOO) <= set(NAMES)
    assert all(callable(story_of(name)) for name in NAMES)
    elsewhere = [model.__name__ for view in VIEWS for model in zoo_under(view) if view != "pages"]
    assert sorted(NAMES + elsewhere) == sorted(CATALOGUE)  # `test_proof_views` and `_walks`


@pytest.mark.parametrize("name", ZOO)
def test_the_story_by_hand_is_the_program_played(name: str) -> None:
    """So that a model without a story by hand may be judged by its program."""
    page = Shown("q", (1, 2, 1), (1, 2, 4))
    by_hand, by_program = (
        Oracle(story(page), Values(seed=4)) for story in (ZOO[name], played(CATALOGUE[name]))
    )
    assert by_hand.stories == by_program.stories


@pytest.mark.parametrize("name", SHAPES)
def test_compiled_kernels_give_what_their_source_gives(name: str) -> None:
    case = ZooCase(name, seed=5)
    for found, wanted in zip(
        answers(case, case.model()), answers(case, make_plain(case.model())), strict=True
    ):
        close_to(found, wanted, 1e-13)


def known(case: ZooCase) -> Any:
    """The model of a case; one of each shape is compiled."""
    return case.model() if case.name in SHAPES else make_plain(case.model())


@pytest.mark.parametrize("name", NAMES)
def test_kernels_agree_with_enumeration(name: str) -> None:
    for seed, extremes in ((5, False), (6, False), (7, True)):
        case = ZooCase(name, seed, extremes=extremes)
        model = known(case)
        likelihood = [
            math.log(o.likelihood(s))
            for o, s in zip(case.visible_oracles, case.visible, strict=True)
        ]
        close_to(model.log_likelihood(case.log), likelihood)
        places = [t for page in case.pages for t in range(len(page.docs))]
        numbers = case.table["session"]
        conditional = [
            case.visible_oracles[i].conditional_click(case.visible[i], t)
            for i, t in zip(numbers, places, strict=True)
        ]
        close_to(model.predict_conditional_clicks(case.log), conditional)
        marginal = [case.oracles[i].marginal_click(t) for i, t in zip(numbers, places, strict=True)]
        close_to(model.predict_clicks(case.log), marginal)


@pytest.mark.parametrize("name", NAMES)
def test_full_counts_agree_with_enumeration(name: str) -> None:
    case = ZooCase(name, seed=8)
    wanted: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for oracle, shown in zip(case.oracles, case.shown, strict=True):
        for key, (heads, tails) in oracle.counts(shown).items():
            wanted[key][0] += heads
            wanted[key][1] += tails
    model = make_plain(case.model())
    found = counts_by_row(model.expected_counts(case.log, augmentation="full"))
    same_counts(found, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_scores_agree_with_enumeration(name: str) -> None:
    """heads (1 - theta) - tails theta, from the minimal augmentation."""
    case = ZooCase(name, seed=9)
    wanted: dict[Any, float] = defaultdict(float)
    for oracle, shown in zip(case.oracles, case.shown, strict=True):
        for key, score in oracle.score(shown).items():
            wanted[key] += score
    found = counts_by_row(known(case).expected_counts(case.log))
    for key in found.keys() | wanted.keys():
        theta = case.values(*key)
        heads, tails = found.get(key, (0.0, 0.0))
        close_to(heads * (1 - theta) - tails * theta, wanted[key])


@pytest.mark.parametrize("name", ["DBN", "UBM", "CCM"])
def test_compiled_posterior_and_decoding(name: str) -> None:
    case = ZooCase(name, seed=10)
    model = case.model()
    posterior, decoded = model.posterior(case.log), model.decode(case.log)
    places = [t for page in case.pages for t in range(len(page.docs))]
    told: list[list[dict[str, Any]]] = [[] for _ in case.pages]
    for row, (i, t) in enumerate(zip(case.table["session"], places, strict=True)):
        oracle, shown = case.oracles[i], case.shown[i]
        close_to(posterior["reached"][row], oracle.reached(shown, t))
        for coin in model.forms:
            found = posterior[f"{coin}_flipped"][row], posterior[f"{coin}_heads"][row]
            close_to(found, oracle.coin(shown, coin, t))
        told[i].append({name: decoded[name][row] for name in ("reached", *model.forms)})
    for oracle, shown, columns in zip(case.oracles, case.shown, told, strict=True):
        close_to(oracle.matching(shown, columns, {}), oracle.best(shown))


# -- closed formulas ---------------------------------------------------------------------------


def two_rate(name: str, values: Values, page: Shown, clicks: list[bool]) -> TwoRate:
    pairs = [(page.query, doc) for doc in page.docs]
    alpha = [values("attraction", pair) for pair in pairs]
    one, zero = [1.0] * len(pairs), [0.0] * len(pairs)
    if name == "CM":
        return TwoRate(alpha, one, zero, clicks)
    if name == "DCM":
        return TwoRate(alpha, one, [values("continuation", (r,)) for r in page.ranks], clicks)
    if name in ("SDBN", "DBN"):
        gamma = 1.0 if name == "SDBN" else values("continuation", ())
        kept = [gamma * (1 - values("satisfaction", pair)) for pair in pairs]
        return TwoRate(alpha, [gamma] * len(pairs), kept, clicks)
    skip, click, satisfied = (
        values(f"continuation_after_{what}", ()) for what in ("skip", "click", "satisfaction")
    )
    kept = [click * (1 - a) + satisfied * a for a in alpha]
    return TwoRate(alpha, [skip] * len(pairs), kept, clicks)


@pytest.mark.parametrize("name", CASCADES)
def test_closed_formulas_agree_with_enumeration_and_kernels(name: str) -> None:
    case = ZooCase(name, seed=11, n_pages=30, max_results=5)
    model = case.model()
    log_likelihood = model.log_likelihood(case.log)
    conditional = np.split(model.predict_conditional_clicks(case.log), np.cumsum(case.log.lengths))
    marginal = np.split(model.predict_clicks(case.log), np.cumsum(case.log.lengths))
    reached = np.split(
        make_plain(case.model()).posterior(case.log)["reached"].to_numpy(),
        np.cumsum(case.log.lengths),
    )
    for i, (page, shown) in enumerate(zip(case.pages, case.shown, strict=True)):
        closed = two_rate(name, case.values, page, ["click" in s for s in shown])
        oracle: Oracle = case.oracles[i]
        close_to(closed.likelihood(), oracle.likelihood(shown))
        close_to(log_likelihood[i], closed.log_likelihood())
        close_to(conditional[i], closed.conditional())
        close_to(marginal[i], closed.marginal())
        close_to(reached[i], closed.examination())


@pytest.mark.parametrize("name", ["SDBN", "DBN", "CCM", "DCM"])
def test_closed_counts_agree_with_kernels(name: str) -> None:
    case = ZooCase(name, seed=12, n_pages=30, max_results=5)
    wanted: dict[Any, list[float]] = defaultdict(lambda: [0.0, 0.0])

    def add(coin: str, row: Any, heads: float, tails: float) -> None:
        wanted[coin, row][0] += heads
        wanted[coin, row][1] += tails

    for page, shown in zip(case.pages, case.shown, strict=True):
        closed = two_rate(name, case.values, page, ["click" in s for s in shown])
        pairs = [(page.query, doc) for doc in page.docs]
        for pair, (heads, tails) in zip(pairs, closed.attraction_counts(), strict=True):
            add("attraction", pair, heads, tails)
        if name in ("SDBN", "DBN"):
            gamma = 1.0 if name == "SDBN" else case.values("continuation", ())
            sigma = [case.values("satisfaction", pair) for pair in pairs]
            satisfied, continued = dbn_counts(closed, sigma, gamma)
            for pair, (heads, tails) in zip(pairs, satisfied, strict=True):
                add("satisfaction", pair, heads, tails)
            if name == "DBN":
                add("continuation", (), *continued)
        if name == "CCM":
            second = ccm_second_flips(
                closed,
                case.values("continuation_after_click", ()),
                case.values("continuation_after_satisfaction", ()),
            )
            for pair, (heads, tails) in zip(pairs, second, strict=True):
                add("attraction", pair, heads, tails)
    found = counts_by_row(case.model().expected_counts(case.log))
    coins = {coin for coin, _ in wanted}
    same_counts({key: v for key, v in found.items() if key[0] in coins}, wanted)


# -- shape -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ZOO)
def test_number_of_states(name: str) -> None:
    wanted = 1 if name in ("GCTR", "RCTR", "DCTR", "DRCTR", "PBM", "UBM") else 2
    assert CATALOGUE[name]().automaton.n_states == wanted


@pytest.mark.parametrize(
    ("name", "n_edges"), [("PBM", 3), ("UBM", 3), ("CM", 3), ("DCM", 4), ("DBN", 6), ("CCM", 7)]
)
def test_number_of_edges(name: str, n_edges: int) -> None:
    assert len(CATALOGUE[name]().automaton.edges) == n_edges
