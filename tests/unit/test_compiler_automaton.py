"""The automaton as a value: printing, drawing, JSON, matrices."""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit_examples import Buyer, Mixture, Tired

from gecasmo import CCM, CM, DBN, UBM, ClickModel
from gecasmo.compiler import AtPosition, Automaton, Edge, Guard, Literal
from gecasmo.compiler.automaton_json import from_data, to_data
from gecasmo.errors import SavedModelError
from gecasmo.models import CATALOGUE

PROGRAMS = [*CATALOGUE.values(), Tired, Mixture, Buyer]
PLAIN = [m for m in PROGRAMS if not m().automaton.guard_columns(with_own=True)]


# -- printing --------------------------------------------------------------------------------------
def test_one_line_an_edge() -> None:
    assert str(DBN().automaton).splitlines() == [
        "2 states, 6 edges, signals click",
        "  start     -> examining  1",
        "  examining -> gone       attraction satisfaction / click",
        "  examining -> gone       attraction ~satisfaction ~continuation / click",
        "  examining -> examining  attraction ~satisfaction continuation / click",
        "  examining -> examining  ~attraction continuation",
        "  examining -> gone       ~attraction ~continuation",
        "  gone      -> gone       1",
    ]


@pytest.mark.parametrize("model", PROGRAMS)
def test_there_are_as_many_lines_as_edges(model: type[ClickModel]) -> None:
    automaton = model().automaton
    lines = str(automaton).splitlines()
    assert len(lines) == 1 + len(automaton.initial) + len(automaton.edges)
    assert repr(automaton) == str(automaton)


def test_labels() -> None:
    edge = Edge(
        0,
        0,
        ("click", "purchase"),
        (Literal("a", True, 1), Literal("b", False, 0, 3)),
        (Guard("is_ad", False), AtPosition(2)),
        0.5,
    )
    assert edge.label() == "[not is_ad, position 2] 0.5 a' ~b[3] / click+purchase"
    assert Edge(0, 0).label() == "1"


def test_an_automaton_cannot_be_changed() -> None:
    automaton = DBN().automaton
    with pytest.raises(FrozenInstanceError):
        automaton.gone = 0  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        automaton.edges[0].target = 0  # type: ignore[misc]


def test_notebooks_get_escaped_text() -> None:
    odd = replace(DBN().automaton, states=("<script>", "gone"))
    assert "<script>" not in odd._repr_html_()
    assert "&lt;script&gt;" in odd._repr_html_()


# -- drawing ---------------------------------------------------------------------------------------
LINE = re.compile(r"    (s\d+: [^\n]+|(s\d+|\[\*\]) --> s\d+: [^\n]+)")


@pytest.mark.parametrize("model", PROGRAMS)
def test_a_mermaid_diagram_has_every_state_and_edge(model: type[ClickModel]) -> None:
    automaton = model().automaton
    first, *lines = automaton.to_mermaid().splitlines()
    assert first == "stateDiagram-v2"
    assert all(LINE.fullmatch(line) for line in lines), lines
    arrows = [line for line in lines if "-->" in line]
    labels = [label for line in arrows for label in line.split("<br/>")]
    assert len(labels) == len(automaton.initial) + len(automaton.edges)
    ends = [line.split(":")[0] for line in arrows if "[*]" not in line]
    assert len(set(ends)) == len(ends)  # Mermaid draws arrows between the same states as one
    assert len(lines) - len(arrows) == automaton.n_states
    named = {line.split(":")[0].strip() for line in lines if "-->" not in line}
    used = set(re.findall(r"\bs\d+\b(?=:| -->)", "\n".join(arrows)))
    assert used <= named


@pytest.mark.parametrize(
    "name", ['x"\n    s9 --> s0: y', "a:b;c{d}<b>%%", "-->", "\n\n", "`#quot;"]
)
def test_names_cannot_draw(name: str) -> None:
    odd = Automaton((name,), ("click",), (name,), (Edge(-1, 0),), (Edge(0, 0, (), ()),))
    odd = odd.with_edges([Edge(0, 0, (), (Literal(name, True),), (Guard(name, True),))])
    lines = odd.to_mermaid().splitlines()
    assert len(lines) == 1 + 1 + 1 + 1
    assert all(LINE.fullmatch(line) for line in lines[1:])
    assert "\n".join(lines).count("-->") == 2
    assert not set('{}<>;#`%"') & set("".join(lines).replace("-->", ""))


# -- JSON ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("model", PROGRAMS)
def test_json_round_trip(model: type[ClickModel]) -> None:
    for automaton in (model().automaton, model().traced_automaton):
        assert from_data(json.loads(json.dumps(to_data(automaton)))) == automaton


names = st.text(min_size=1, max_size=5)


@st.composite
def automata(draw: st.DrawFn) -> Automaton:
    parameters = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    signals = [
        "click",
        *draw(st.lists(names.filter(lambda n: n != "click"), max_size=2, unique=True)),
    ]
    n_states = draw(st.integers(1, 4))
    length = draw(st.none() | st.integers(1, 5))
    state = st.integers(0, n_states - 1)
    literal = st.builds(
        Literal,
        st.sampled_from(parameters),
        st.booleans(),
        st.integers(0, 1),
        st.none() | st.integers(0, 5),
    )
    guard = st.builds(Guard, names, st.booleans())
    if length is not None:
        guard |= st.builds(AtPosition, st.integers(1, length))
    edge = st.builds(
        Edge,
        state,
        state,
        st.lists(st.sampled_from(signals), unique=True, max_size=2).map(tuple),
        st.lists(literal, max_size=3).map(tuple),
        # A column, or the position, has one value at a result.
        st.lists(guard, max_size=2, unique_by=lambda g: getattr(g, "column", None)).map(tuple),
        st.floats(1e-6, 10),
    )
    start = st.builds(Edge, st.just(-1), state)
    return Automaton(
        tuple(parameters),
        tuple(signals),
        tuple(draw(st.lists(names, min_size=n_states, max_size=n_states))),
        tuple(draw(st.lists(start, min_size=1, max_size=3))),
        tuple(draw(st.lists(edge, max_size=6))),
        draw(st.none() | state),
        length,
    )


@settings(max_examples=60, deadline=None)
@given(automata())
def test_json_round_trip_of_anything(automaton: Automaton) -> None:
    assert from_data(json.loads(json.dumps(to_data(automaton)))) == automaton


def broken(change) -> dict:
    data = json.loads(json.dumps(to_data(DBN().traced_automaton)))
    change(data)
    return data


def set_edge(field: str, value: object, part: str = "edges"):
    def change(data: dict) -> None:
        data[part][0][field] = value

    return change


BREAKS = {
    "no edges": lambda d: d.pop("edges"),
    "no states": lambda d: d.pop("states"),
    "a number as a name": lambda d: d["states"].append(3),
    "edges are a number": lambda d: d.update(edges=3),
    "an edge is a list": lambda d: d["edges"].append([]),
    "gone does not exist": lambda d: d.update(gone=7),
    "gone is negative": lambda d: d.update(gone=-1),
    "page length zero": lambda d: d.update(page_length=0),
    "page length negative": lambda d: d.update(page_length=-5),
    "no signals": lambda d: d.update(signals=[]),
    "click is not the first signal": lambda d: d["signals"].insert(0, "sale"),
    "a signal twice": lambda d: d["signals"].append("click"),
    "a parameter twice": lambda d: d["parameters"].append("attraction"),
    "no way in": lambda d: d.update(initial=[]),
    "from a state that is not there": set_edge("from", 9),
    "from a negative state": set_edge("from", -2),
    "from before the start": set_edge("from", -1),
    "the start inside the page": set_edge("from", 0, "initial"),
    "signals before the page": set_edge("symbol", ["click"], "initial"),
    "to a state that is not there": set_edge("to", 9),
    "to a negative state": set_edge("to", -1),
    "to nowhere": set_edge("to", None),
    "an unknown signal": set_edge("symbol", ["sale"]),
    "an unknown parameter": set_edge("literals", [["beauty", True, 0, None]]),
    "a literal too short": set_edge("literals", [["attraction", True]]),
    "a lag of two": set_edge("literals", [["attraction", True, 2, None]]),
    "a lag before the start": set_edge("literals", [["attraction", True, 1, None]], "initial"),
    "a negative row": set_edge("literals", [["attraction", True, 0, -1]]),
    "an enormous row": set_edge("literals", [["attraction", True, 0, 10**15]]),
    "a position outside": set_edge("guards", [{"position": 3}]),
    "a guard of nothing": set_edge("guards", [{}]),
    "a guard that is a number": set_edge("guards", [{"column": 3, "value": True}]),
    "multiplicity NaN": set_edge("multiplicity", float("nan")),
    "multiplicity infinite": set_edge("multiplicity", float("inf")),
    "multiplicity negative": set_edge("multiplicity", -1.0),
    "multiplicity zero": set_edge("multiplicity", 0.0),
    "multiplicity a text": set_edge("multiplicity", "many"),
}


@pytest.mark.parametrize("change", BREAKS.values(), ids=BREAKS.keys())
def test_broken_json_is_refused(change) -> None:
    with pytest.raises(SavedModelError):
        from_data(broken(change))


@pytest.mark.parametrize("data", [None, [], 3, "text", {}])
def test_json_that_is_something_else(data: object) -> None:
    with pytest.raises(SavedModelError, match="not the description of an automaton"):
        from_data(data)  # type: ignore[arg-type]


# -- matrices --------------------------------------------------------------------------------------
def random_values(steps, initial) -> dict:
    rng = np.random.default_rng(0)
    edges = [edge for step in steps for edge in step.edges] + list(initial)
    found = {literal.coin for edge in edges for literal in edge.literals}
    return {coin: rng.uniform(0.1, 0.9) for coin in sorted(found, key=str)}


@pytest.mark.parametrize("model", [m for m in PLAIN if not m().automaton.observes])
@pytest.mark.parametrize("length", [1, 2, 5])
def test_rows_and_the_initial_vector_add_up_to_one(model: type[ClickModel], length: int) -> None:
    matrices = model().automaton.matrices(length)
    values = random_values(matrices.steps, matrices.initial)
    assert matrices.initial_vector(values).sum() == pytest.approx(1)
    assert len(matrices.steps) == length
    for step in matrices.steps:
        np.testing.assert_allclose(step.transition(values).sum(axis=1), 1)


def test_rows_add_up_under_each_guard() -> None:
    matrices = Buyer().automaton.matrices(3)
    values = random_values(matrices.steps, matrices.initial)
    for (position, step), is_ad in itertools.product(enumerate(matrices.steps), (True, False)):
        kept = step.possible({"is_ad": is_ad}, position + 1)
        np.testing.assert_allclose((step.transition(values) * kept).sum(axis=1), 1)


@pytest.mark.parametrize("model", [DBN, CM, CCM, UBM, Buyer])
def test_every_edge_shows_exactly_one_symbol(model: type[ClickModel]) -> None:
    automaton = model().automaton
    symbols = {edge.symbol for edge in automaton.edges}
    for step in automaton.matrices(3).steps:
        np.testing.assert_array_equal(sum(step.shown(symbol) for symbol in symbols), 1)


def test_the_closed_last_step_counts_no_continuation() -> None:
    first, last = DBN().automaton.matrices(2).steps
    assert {coin for coin, *_ in (*first.heads, *first.tails)} == {
        "attraction",
        "satisfaction",
        "continuation",
    }
    assert {coin for coin, *_ in (*last.heads, *last.tails)} == {"attraction"}


def test_a_coin_that_falls_twice_counts_twice() -> None:
    heads = CCM().automaton.matrices(2).steps[0].heads["attraction", 0, None]
    assert heads.max() == 2


def test_matrices_give_the_probability_of_a_page() -> None:
    matrices = DBN().automaton.matrices(2)
    names = ("attraction", "satisfaction", "continuation")
    values = {(name, 0, None): v for name, v in zip(names, (0.3, 0.6, 0.9), strict=True)}
    first, last = matrices.steps
    row = matrices.initial_vector(values) @ first.transition(values) * first.shown(("click",))
    row = row @ last.transition(values) * last.shown(("click",))
    assert row.sum() == pytest.approx(0.3 * 0.4 * 0.9 * 0.3)
