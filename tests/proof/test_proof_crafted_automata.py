"""Automata from files: what makes no sense or would take for ever is refused, the rest works."""

from __future__ import annotations

import copy
import json
import os
import warnings
from typing import Any

import numpy as np
import pytest

from gecasmo import EM
from gecasmo.compiler import AtPosition, Automaton, Edge, Guard, Literal
from gecasmo.compiler.automaton_json import check_probabilities, from_data, to_data
from gecasmo.errors import GecasmoError, ModelError, SavedModelError
from gecasmo.kernels.library import Structure
from gecasmo.model.click_model import AutomatonModel
from gecasmo.models import CATALOGUE
from gecasmo.testing import plain_python
from gecasmo.testing.subject import random_log, with_random_values

MORE = int(os.environ.get("GECASMO_EXAMPLES", "1"))
CLICK = ("click",)


def reread(automaton: Automaton) -> Automaton:
    """The automaton as a file would bring it."""
    found = from_data(json.loads(json.dumps(to_data(automaton))))
    check_probabilities(found)
    return found


def made(edges: list[Edge], n_states: int = 1, coins: int = 1, **given: Any) -> Automaton:
    return Automaton(
        parameters=tuple(f"c{n}" for n in range(coins)),
        signals=given.pop("signals", CLICK),
        states=("state",) * n_states,
        initial=given.pop("initial", (Edge(-1, 0),)),
        edges=tuple(edges),
        **given,
    )


# -- automata that would keep us busy --------------------------------------------------------------
SIGNALS = ("click", *(f"signal {n}" for n in range(9)))
LARGE = {
    "a click is thousands of results away": made(
        [Edge(n, n + 1) for n in range(3_999)] + [Edge(3_999, 3_999, CLICK)], 4_000
    ),
    "every position has its own edge": made(
        [Edge(0, 0, (), (), (AtPosition(n + 1),)) for n in range(1_000)], page_length=1_000
    ),
    "every combination of signals": made(
        [
            Edge(0, 0, tuple(s for k, s in enumerate(SIGNALS) if n >> k & 1), (), (), 1 / 1024)
            for n in range(1024)
        ],
        signals=SIGNALS,
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_automata_are_lowered_in_time(name: str) -> None:
    """Each took a quarter of a minute and more, or would have: work grew with the square."""
    structure = Structure(reread(LARGE[name]))
    for augmentation in ("minimal", "full"):
        structure.machine(augmentation, with_missing=True)


ENDLESS = {
    "26 coins in no order": made(
        [Edge(0, 0, CLICK, (Literal(f"c{n}", True),), (), 1 / 26) for n in range(26)], 1, 26
    ),
    "30 conditions": made(
        [
            Edge(0, 0, (), (), tuple(Guard(f"column {n}", bool(k >> n & 1)) for n in range(30)))
            for k in range(64)
        ]
    ),
    "pages of 100,000 results": made(
        [Edge(0, 0, (), (), (AtPosition(n + 1),)) for n in range(50)], page_length=100_000
    ),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_automata_are_refused(name: str) -> None:
    with pytest.raises((SavedModelError, ModelError)):
        Structure(reread(ENDLESS[name])).machine("minimal")


# -- automata that were changed at random ----------------------------------------------------------
def changed(data: Any, rng: np.random.Generator) -> None:
    """Change one thing somewhere in a description."""
    holder = data
    while True:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        if not keys:
            return
        key = keys[int(rng.integers(len(keys)))]
        value = holder[key]
        if not (isinstance(value, dict | list) and value and rng.random() < 0.8):
            break
        holder = value
    others = [0, 1, 2, -1, 3, 2**31, 0.5, 1e-300, 1e300, None, True, False, "", "click", [], {}]
    kind = rng.integers(4)
    if kind == 0 and isinstance(holder, list):
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.append(copy.deepcopy(value))
    elif kind == 2 and isinstance(value, int) and not isinstance(value, bool):
        holder[key] = value + int(rng.integers(-2, 3))
    else:
        holder[key] = others[int(rng.integers(len(others)))]


def answers(model: AutomatonModel, seed: int) -> None:
    """Ask everything that runs a kernel; answers are probabilities."""
    log = random_log(model, [1, 2, 3, 2], seed)
    known = with_random_values(model, log, seed)
    for found in (
        np.exp(known.log_likelihood(log, impossible="floor")),
        known.predict_clicks(log),
        known.predict_conditional_clicks(log, impossible="floor"),
    ):
        assert np.isfinite(found).all()
        assert found.min(initial=0.0) > -1e-9
        assert found.max(initial=0.0) < 1 + 1e-9
    known.simulate(log, seed=seed)
    possible = log.take(np.flatnonzero(np.isfinite(known.log_likelihood(log, impossible="drop"))))
    known.decode(possible)
    model.copy().fit(log, EM(max_iter=2), impossible="floor", progress=False)


def test_changed_automata_are_refused_or_work() -> None:
    rng = np.random.default_rng(0)
    models = [make() for make in CATALOGUE.values() if make.view == "pages"]  # as `answers` has
    n_working = 0
    with plain_python(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(300 * MORE):
            model = models[number % len(models)]
            data = json.loads(json.dumps(to_data(model.traced_automaton)))
            for _ in range(int(rng.integers(1, 3))):
                changed(data, rng)
            try:
                automaton = from_data(data)
                check_probabilities(automaton)
            except GecasmoError:
                continue
            keys = {coin: model.keys.get(coin, ("doc",)) for coin in automaton.parameters}
            forms = {
                coin: own for coin, own in model.forms.items() if coin in dict(automaton.observes)
            }
            try:
                answers(AutomatonModel(automaton, keys, forms), number)
            except GecasmoError:
                continue
            n_working += 1
    assert n_working > 10 * MORE
