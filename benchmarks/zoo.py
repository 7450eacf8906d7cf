"""The E-step of every model of the zoo, each on a log that has the columns it needs."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from benchmarks.e_step import random_weights
from benchmarks.timing import time_in_turns
from gecasmo import CATALOGUE, ClickLog
from gecasmo.estimation import Expectation
from gecasmo.testing.subject import random_log

LENGTH, N_DOCS = 10, 2_000


class ZooResult(NamedTuple):
    """One model: its automaton, and how long an E-step takes on one thread."""

    model: str
    view: str
    n_pages: int
    n_states: int
    n_edges: int
    seconds: float


def zoo_log(name: str, n_pages: int) -> ClickLog:
    """Random pages of ten results with the clicks of the model itself, all of its coins fair; of a
    model that cannot simulate, with random clicks."""
    model = CATALOGUE[name]()
    pages = random_log(model, [LENGTH] * n_pages, seed=1, n_docs=N_DOCS)
    if model.foreseen:
        return pages
    values: dict[str, Any] = dict.fromkeys(model.forms, 0.5)
    for coin, _ in model.automaton.observes:
        family = type(model._densities()[coin.partition("[")[0]].family)
        values[coin] = family(2.0, 1.0)
    simulated: ClickLog = CATALOGUE[name].with_values(**values).simulate(pages, seed=2)
    return simulated


def measure_zoo(name: str, n_pages: int, rounds: int) -> ZooResult:
    """The best of some rounds, in seconds of the processor, since models are not timed in turns and
    others may use the machine; equal pages stay apart."""
    model = CATALOGUE[name]()
    log = zoo_log(name, n_pages)
    encoded = model.encode(log, "e_step", merge=False)
    weights = random_weights(encoded)
    expectation = Expectation(encoded, model.library(encoded.plan, counting=True), threads=1)
    counts = expectation.run(weights)
    assert counts.n_impossible == 0, f"{name}: {counts.n_impossible:,} pages cannot happen"
    run = {"run": lambda: expectation.run(weights)}
    seconds = time_in_turns(run, rounds, time.process_time)["run"]
    body = expectation.machine.body
    n_edges = sum(map(len, body.edges))
    return ZooResult(name, model.view, n_pages, body.n_sources, n_edges, seconds.best)
