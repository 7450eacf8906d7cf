"""What a sweep of the Gibbs sampler costs beside an E-step on the same pages."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from typing import Any, NamedTuple

import gecasmo
from benchmarks.e_step import random_weights
from benchmarks.markdown import table
from benchmarks.timing import time_in_turns
from gecasmo import ClickLog, Gibbs
from gecasmo.encoding import EncodedLog
from gecasmo.estimation import Expectation, Problem
from gecasmo.estimation.gibbs import _BETWEEN_MOVES, _Chains
from gecasmo.estimation.part import Part
from gecasmo.kernels.threads import using_threads
from gecasmo.model.part_builder import _coins_of

MODELS = (gecasmo.DBN, gecasmo.UBM, gecasmo.PBM)
# Sweeps before those that are timed; after half of them ridges are looked for.
_BEFORE = 20


class SweepResult(NamedTuple):
    """Seconds of the processor, medians of all rounds; sweeps with priors given and sampled."""

    model: str
    log: str
    n_pages: int
    n_ridges: int
    e_step: float
    sweep: float
    with_priors: float


def measure_sweeps(
    model: type[gecasmo.ClickModel], log: ClickLog, kind: str, rounds: int
) -> SweepResult:
    """One thread, all pages apart, in turns; sweeps are whole ones of a chain, with their share of
    the moves along ridges."""
    made = model()
    encoded = made.encode(log, "e_step", merge=False)
    expectation = Expectation(encoded, made.library(encoded.plan, counting=True), threads=1)
    weights = random_weights(encoded)
    with using_threads(1):
        fixed, _ = _sweeps(made, encoded, expectation, "fixed")
        sampled, chains = _sweeps(made, encoded, expectation, "sampled")
        contestants: dict[str, Callable[[], object]] = {
            "e_step": lambda: expectation.run(weights),
            "fixed": fixed,
            "sampled": sampled,
        }
        seconds = time_in_turns(contestants, rounds, time.process_time)
    e_step, *sweeps = (one.median for one in seconds.values())
    return SweepResult(
        made.name,
        kind,
        encoded.n_pages,
        len(chains.chains[0].walks),
        e_step,
        *(one / _BETWEEN_MOVES for one in sweeps),
    )


def _sweeps(
    model: Any, encoded: EncodedLog, expectation: Expectation, hyper: Any
) -> tuple[Callable[[], object], _Chains]:
    """As many sweeps of a chain as there are from one move along a ridge to the next."""
    part = Part(_coins_of(model, encoded), expectation, float(encoded.weight.sum()), 0.0)
    method = Gibbs(chains=1, warmup=_BEFORE, hyper=hyper)
    chains = _Chains(method, Problem.of(part, False), None)
    numbers = count()
    for _ in range(_BEFORE):
        chains._sweep(0, next(numbers))

    def run() -> None:
        for _ in range(_BETWEEN_MOVES):
            chains._sweep(0, next(numbers))

    return run, chains


def sweep_lines(results: list[SweepResult]) -> list[str]:
    """The section of the report."""
    if not results:
        return []
    rows = [
        (
            one.model,
            one.log,
            f"{one.n_pages:,}",
            f"{1000 * one.e_step:.1f}",
            f"{one.sweep / one.e_step:.2f}",
            f"{one.with_priors / one.e_step:.2f}",
            "yes" if one.n_ridges else "no",
        )
        for one in results
    ]
    header = ("model", "log", "pages", "E-step, ms", "sweep, in E-steps", "priors sampled, too")
    told = (
        "Whole sweeps of a chain: hidden paths drawn and counted, then all rows, or priors and "
        "rows; with moves along ridges, if one was found, at the share of sweeps that have one. "
        "Processor time on one thread, medians of interleaved rounds, pages not folded."
    )
    title = "## A sweep of the Gibbs sampler"
    return [title, "", told, "", *table((*header, "ridge"), rows)]
