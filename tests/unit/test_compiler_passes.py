"""The passes of the compiler, each a small pure function."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from unit_examples import Buyer, Mixture, Tired

from gecasmo import (
    CCM,
    CM,
    DBN,
    DCM,
    PBM,
    SDBN,
    UBM,
    ClickModel,
    Parameter,
    Table,
    flip,
    read_log,
)
from gecasmo.compiler import (
    AtPosition,
    Automaton,
    Edge,
    Guard,
    Literal,
    close,
    full,
    merge,
    minimal,
    minimise,
    prune,
    refine,
    trace,
)
from gecasmo.compiler.hide import without_numbers
from gecasmo.compiler.merge import Path, condense
from gecasmo.compiler.symmetry import has_exchangeable_states
from gecasmo.models import CATALOGUE

a, b = Literal("a", True), Literal("b", True)
not_a, not_b = Literal("a", False), Literal("b", False)


def automaton(edges: list[Edge], initial: list[Edge] | None = None, n: int = 2) -> Automaton:
    """Two coins, one signal, nothing else of interest."""
    return Automaton(
        parameters=("a", "b"),
        signals=("click",),
        states=tuple(f"state {i}" for i in range(n)),
        initial=tuple(initial or [Edge(-1, 0)]),
        edges=tuple(edges),
    )


# -- trace -----------------------------------------------------------------------------------------
def test_trace_writes_heads_before_tails_and_keeps_program_order() -> None:
    edges = DBN().traced_automaton.edges
    assert [edge.label() for edge in edges if edge.source == 0] == [
        "attraction satisfaction / click",
        "attraction ~satisfaction continuation / click",
        "attraction ~satisfaction ~continuation / click",
        "~attraction continuation",
        "~attraction ~continuation",
    ]


def test_every_state_of_the_zoo_has_probability_one() -> None:
    for model in CATALOGUE.values():
        traced = without_numbers(trace(model()))
        for edges in traced.by_source():
            assert sum(0.5 ** len(edge.literals + edge.guards) for edge in edges) == pytest.approx(
                1
            )


# -- prune -----------------------------------------------------------------------------------------
def test_prune_drops_unreachable_states_and_renumbers() -> None:
    edges = [Edge(0, 2), Edge(1, 0), Edge(2, 2, literals=(a,))]
    before = replace(automaton(edges, n=4), gone=2)
    after = prune(before)
    assert after.states == ("state 0", "state 2")
    assert after.edges == (Edge(0, 1), Edge(1, 1, literals=(a,)))
    assert after.gone == 1


def test_prune_forgets_a_gone_that_nobody_reaches() -> None:
    after = prune(replace(automaton([Edge(0, 0), Edge(1, 1)]), gone=1))
    assert after.gone is None
    assert after.n_states == 1


def test_prune_keeps_edges_that_cannot_be_taken_together() -> None:
    edges = [Edge(0, 0, literals=(a, not_a)), Edge(0, 0, literals=(not_a,))]
    assert prune(automaton(edges, n=1)).edges == tuple(edges)


def test_prune_counts_positions() -> None:
    edges = [
        Edge(0, 1, guards=(AtPosition(2),)),
        Edge(0, 0, guards=(AtPosition(1),)),
        Edge(1, 2, guards=(AtPosition(2),)),
    ]
    after = prune(replace(automaton(edges, n=3), page_length=2))
    assert after.states == ("state 0", "state 1")  # state 1 is entered too late to get on


def test_prune_is_idempotent() -> None:
    once = prune(Tired().traced_automaton)
    assert prune(once) == once


# -- refine and minimise ---------------------------------------------------------------------------
def test_refinement_begins_with_one_block_and_only_gets_finer() -> None:
    rounds = refine(Tired().traced_automaton)
    assert set(rounds[0]) == {0}
    for coarse, fine in itertools.pairwise(rounds):
        assert max(fine) > max(coarse)
        blocks = {}
        assert all(blocks.setdefault(f, c) == c for c, f in zip(coarse, fine, strict=True))


@pytest.mark.parametrize(
    ("model", "n_rounds"),
    [(PBM, 0), (UBM, 0), (CM, 1), (DCM, 1), (DBN, 1), (CCM, 1), (Mixture, 1), (Tired, 3)],
)
def test_number_of_rounds(model: type[ClickModel], n_rounds: int) -> None:
    assert len(refine(prune(model().traced_automaton))) - 1 == n_rounds


@pytest.mark.parametrize(
    ("names", "n_states"),
    [
        (("DBN", "SDBN", "DCM", "CM", "CCM"), 2),
        (("PBM", "UBM", "GCTR", "RCTR", "DCTR", "DRCTR"), 1),
    ],
)
def test_states_of_the_zoo(names: tuple[str, ...], n_states: int) -> None:
    for name in names:
        assert CATALOGUE[name]().automaton.n_states == n_states, name


def test_different_flips_with_the_same_sum_are_the_same_future() -> None:
    # State 0 clicks with a; state 1 with a b + a (1 - b): the same polynomial.
    edges = [
        Edge(0, 1, ("click",), (a,)),
        Edge(0, 0, (), (not_a,)),
        Edge(1, 1, ("click",), (a, b)),
        Edge(1, 0, ("click",), (a, not_b)),
        Edge(1, 1, (), (not_a,)),
    ]
    assert minimise(automaton(edges)).n_states == 1


def test_half_a_coin_twice_is_a_coin() -> None:
    halves = [Edge(1, 0, ("click",), (a,), (), 0.5)] * 2
    edges = [Edge(0, 0, ("click",), (a,)), Edge(0, 1, (), (not_a,)), *halves]
    edges.append(Edge(1, 1, (), (not_a,)))
    assert minimise(automaton(edges)).n_states == 1


@pytest.mark.parametrize(
    "other",
    [
        [Edge(1, 0, ("click",), (b,)), Edge(1, 0, (), (not_b,))],
        [Edge(1, 0, (), (a,)), Edge(1, 0, ("click",), (not_a,))],
        [Edge(1, 0, ("click",), (a._replace(lag=1),)), Edge(1, 0, (), (not_a._replace(lag=1),))],
        [Edge(1, 0, ("click",), (a._replace(row=3),)), Edge(1, 0, (), (not_a._replace(row=3),))],
        [
            Edge(1, 0, ("click",), (a,), (Guard("x", True),)),
            Edge(1, 0, (), (not_a,), (Guard("x", True),)),
            Edge(1, 0, (), (), (Guard("x", False),)),
        ],
    ],
    ids=["another coin", "the other side", "lag", "row", "guard"],
)
def test_what_makes_states_different(other: list[Edge]) -> None:
    own = [Edge(0, 1, ("click",), (a,)), Edge(0, 0, (), (not_a,))]
    assert minimise(automaton(own + other)).n_states == 2


def test_a_guard_that_changes_nothing_is_no_difference() -> None:
    guarded = [
        Edge(1, 1, symbol, (literal,), (Guard("x", value),))
        for value in (True, False)
        for symbol, literal in ((("click",), a), ((), not_a))
    ]
    own = [Edge(0, 1, ("click",), (a,)), Edge(0, 0, (), (not_a,))]
    assert minimise(automaton(own + guarded)).n_states == 1


def test_minimise_keeps_gone() -> None:
    small = minimise(DBN().traced_automaton)
    assert small.states[small.gone] == "gone"


# -- merge -----------------------------------------------------------------------------------------
ORDER = {"a": 0, "b": 1}


def test_a_flip_without_consequence_is_forgotten() -> None:
    assert condense([Path((a, b), 1.0), Path((a, not_b), 1.0)], ORDER) == [Path((a,), 1.0)]


def test_flips_are_forgotten_bottom_up() -> None:
    paths = [Path((x, y), 1.0) for x in (a, not_a) for y in (b, not_b)]
    assert condense(paths, ORDER) == [Path((), 1.0)]


def test_a_flip_with_consequence_stays() -> None:
    paths = [Path((a, b), 1.0), Path((not_a, b), 2.0)]
    assert condense(paths, ORDER) == paths


def test_multiplicities_add_up() -> None:
    assert condense([Path((a,), 1.0), Path((a,), 1.0)], ORDER) == [Path((a,), 2.0)]
    assert condense([Path((), 0.25), Path((), 0.5)], ORDER) == [Path((), 0.75)]
    assert condense([], ORDER) == []


def test_both_orders_leading_to_one_place_add_up() -> None:
    # flip(p) + flip(p) == 1: heads then tails, or tails then heads.
    paths = [Path((a, not_a), 1.0), Path((not_a, a), 1.0)]
    assert condense(paths, ORDER) == paths


def two_coins(eager: bool, a_first: bool) -> Automaton:
    class TwoCoins(ClickModel):
        a = Parameter()
        b = Parameter()

        def browse(self, user, result):
            first, second = (self.a, self.b) if a_first else (self.b, self.a)
            if eager:
                both = [flip(first), flip(second)]
                clicked = all(both)
            else:
                clicked = flip(first) and flip(second)
            if clicked:
                user.click()

    return trace(TwoCoins())


@pytest.mark.parametrize("a_first", [True, False])
def test_an_eager_program_ends_with_the_edges_of_its_lazy_twin(a_first: bool) -> None:
    eager, lazy = two_coins(True, a_first), two_coins(False, a_first)
    assert len(eager.edges) == 4
    assert len(lazy.edges) == 3
    assert merge(eager).edges == merge(lazy).edges


def test_the_order_of_the_program_decides_which_flip_stays() -> None:
    skips = [
        {edge.label() for edge in merge(two_coins(True, a_first)).edges if not edge.symbol}
        for a_first in (True, False)
    ]
    assert skips == [{"a ~b", "~a"}, {"b ~a", "~b"}]


def test_merge_keeps_guards_and_targets_apart() -> None:
    merged = merge(prune(Buyer().traced_automaton))
    with_ad = [e for e in merged.edges if Guard("is_ad", True) in e.guards]
    without = [e for e in merged.edges if Guard("is_ad", False) in e.guards]
    assert with_ad
    assert without
    assert not any("ad_blindness" in str(edge.literals) for edge in without)
    both = [e for e in merged.edges if e.symbol == ("click", "purchase")]
    assert {e.target for e in both} == {merged.gone}


def test_merge_of_a_merged_automaton_changes_nothing() -> None:
    for model in (DBN, PBM, CCM, Tired, Buyer):
        once = merge(prune(model().traced_automaton))
        assert merge(once).edges == once.edges


def test_merging_positions() -> None:
    edges = [
        Edge(0, 0, ("click",), (a,), (AtPosition(1),)),
        Edge(0, 0, ("click",), (not_a,), (AtPosition(1),)),
        Edge(0, 0, ("click",), (a,), (AtPosition(2),)),
        Edge(0, 0, (), (not_a,), (AtPosition(2),)),
    ]
    merged = merge(replace(automaton(edges, n=1), page_length=2))
    assert [edge.label() for edge in merged.edges] == [
        "[position 1] 1 / click",
        "[position 2] a / click",
        "[position 2] ~a",
    ]


# -- close -----------------------------------------------------------------------------------------
def coins(edges: tuple[Edge, ...]) -> set[str]:
    return {literal.parameter for edge in edges for literal in edge.literals}


@pytest.mark.parametrize(
    ("model", "counted"),
    [
        (DBN, {"attraction"}),
        (SDBN, {"attraction"}),
        (DCM, {"attraction"}),
        (CCM, {"attraction"}),
        (CM, {"attraction"}),
    ],
)
def test_only_attraction_counts_at_the_last_rank_of_a_cascade(model, counted) -> None:
    staircase = minimal(model().traced_automaton)
    assert len(staircase.closing) == 1
    assert coins(staircase.step(1).edges) == counted
    assert staircase.step(2).edges == staircase.body.edges


def test_start_flips_vanish_on_pages_too_short_to_reveal_them() -> None:
    staircase = minimal(Tired().traced_automaton)
    vanish = [not coins(staircase.initial_for(length)) for length in range(6)]
    # The class of users acts at the third result at the earliest.
    assert vanish == [True, True, True, False, False, False]


def test_a_mixture_shows_at_the_first_result() -> None:
    staircase = minimal(Mixture().traced_automaton)
    assert [bool(coins(staircase.initial_for(n))) for n in range(3)] == [False, True, True]


def test_patience_stops_counting_at_the_end_of_the_page() -> None:
    staircase = minimal(Tired().traced_automaton)
    assert [coins(staircase.step(d).edges) for d in (1, 2)] == [
        {"attraction"},
        {"attraction", "patience"},
    ]


def test_steps_fit_together() -> None:
    for model in (*CATALOGUE.values(), Tired, Mixture, Buyer):
        staircase = minimal(model().traced_automaton)
        for distance in range(1, len(staircase.closing) + 2):
            step = staircase.step(distance)
            below = staircase.step(distance - 1).n_sources if distance > 1 else 1
            assert step.n_targets == below
            assert {edge.source for edge in step.edges} <= set(range(step.n_sources))
            assert {edge.target for edge in step.edges} <= set(range(step.n_targets))


def test_a_cap_on_closing_steps_keeps_the_first_ones() -> None:
    pruned = prune(Tired().traced_automaton)
    rounds = refine(pruned)
    capped = close(pruned, rounds, max_steps=1)
    assert len(capped.closing) == 1
    assert coins(capped.step(1).edges) == {"attraction"}
    assert coins(capped.initial_for(1)) == {"is_easily_tired"}  # no longer known to be of no use


def test_full_augmentation_counts_every_flip() -> None:
    staircase = full(PBM().traced_automaton)
    assert staircase.closing == ()
    assert len(staircase.body.edges) == 4
    assert len(minimal(PBM().traced_automaton).body.edges) == 3


# -- symmetry --------------------------------------------------------------------------------------
def test_mixtures_need_random_starts() -> None:
    assert has_exchangeable_states(Mixture().traced_automaton)


@pytest.mark.parametrize("name", CATALOGUE)
def test_of_the_zoo_only_intents_do(name: str) -> None:
    assert CATALOGUE[name]().is_exchangeable == (name == "Intents")


class Trust(ClickModel):
    """Clicks what attracts, or what does not, each with a chance by rank."""

    examination = Parameter("rank")
    attraction = Parameter("query", "doc")
    trust = Parameter("rank")
    noise = Parameter("rank")

    def browse(self, user, result):
        if flip(self.examination) and flip(self.trust if flip(self.attraction) else self.noise):
            user.click()


class Moods(ClickModel):
    """A coin chooses between two pairs of coins, within one result."""

    mood = Parameter("session")
    first, second = Parameter("doc"), Parameter("doc")
    third, fourth = Parameter("rank"), Parameter("rank")

    def browse(self, user, result):
        if flip(self.mood):
            clicks = flip(self.first) and flip(self.third)
        else:
            clicks = flip(self.second) and flip(self.fourth)
        if clicks:
            user.click()


class Leaves(ClickModel):
    """Attraction chooses between two coins, but clicks tell of it as well."""

    attraction = Parameter("doc")
    patience, hurry = Parameter(), Parameter()

    def browse(self, user, result):
        if attracted := flip(self.attraction):
            user.click()
        if not flip(self.patience if attracted else self.hurry):
            user.leave()


def test_coins_that_another_one_chooses_between_need_random_starts() -> None:
    assert Trust().is_exchangeable
    assert Moods().is_exchangeable
    assert not Leaves().is_exchangeable


def test_coins_that_begin_apart_need_none() -> None:
    assert not Trust(noise=0.1).is_exchangeable
    assert not Trust(noise=Table(key=())).is_exchangeable
    assert not Trust(noise=Table(start=0.1), trust=Table(start=0.9)).is_exchangeable
    assert Trust(
        noise=Table(pseudo_counts=(1, 1)), trust=Table(pseudo_counts=(1, 1))
    ).is_exchangeable


def test_a_fit_tells_such_coins_apart() -> None:
    """From equal values it ended where both coins are the same, and said nothing."""
    rng = np.random.default_rng(0)
    n_pages, n_queries = 1_500, 20
    query = rng.integers(0, n_queries, n_pages)
    doc = np.argsort(rng.random((n_pages, 10)), axis=1)[:, :6] + 10 * query[:, None]
    attracted = rng.random((n_pages, 6)) < rng.beta(0.5, 0.5, 10 * n_queries)[doc]
    click = rng.random((n_pages, 6)) < np.where(attracted, 0.9, 0.1)
    log = read_log(
        {
            "session": np.repeat(np.arange(n_pages), 6),
            "query": np.repeat(query, 6),
            "doc": doc.ravel(),
            "rank": np.tile(np.arange(1, 7), n_pages),
            "click": click.ravel(),
        }
    )
    pairs = {"attraction": Table(pseudo_counts=(1, 1)), "examination": 1.0}
    found = Trust(**pairs).fit(log, intervals=False)
    trust, noise = (found.parameters[coin]["probability"] for coin in ("trust", "noise"))
    assert (trust - noise).abs().min() > 0.6
    apart = {"trust": Table(start=0.8), "noise": Table(start=0.2)}
    named = Trust(**pairs, **apart).fit(log, intervals=False)
    trust, noise = (named.parameters[coin]["probability"] for coin in ("trust", "noise"))
    assert (trust - noise).min() > 0.6
    assert named.score(log) > found.score(log) - 1e-3
