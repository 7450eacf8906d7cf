"""Automata with many states: generated kernels against plain hand-written Numba, in one run.

    python -m benchmarks.large --pages 20000

Times are seconds of this process (CPU) and pages a second; what counts is the ratio. A hand-written
kernel is a plain forward-backward pass with loops over states, as `hand_kernels` are. Compiling is
that of the E-step alone, in a process that has compiled something before, without a cache.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import gecasmo
from benchmarks.e_step import check_agreement, kernel_alone, random_weights
from benchmarks.hand_e_steps import HandEStep
from benchmarks.hand_large import moods_e_step, patience_e_step
from benchmarks.large_models import moods, patience
from benchmarks.logs import simulate_log
from benchmarks.machine import describe_machine, load_average
from gecasmo import ClickLog, ClickModel
from gecasmo.estimation import Counts, Expectation

RESULTS = Path(__file__).parent / "results" / "large.md"


class HandMoods(HandEStep):
    """Coins: n - 1 for each mood that say where it goes, then one a mood that clicks."""

    def _run(self) -> float:
        n = round(len(self.probability) ** 0.5)  # n (n - 1) + n coins
        first = n * (n - 1)
        stick = np.array([p[0] for p in self.probability[:first]]).reshape(n, n - 1)
        left = np.cumprod(np.column_stack([np.ones(n), 1 - stick]), axis=1)
        transition = left * np.column_stack([stick, np.ones(n)])
        by_rank = np.array(self.probability[first + 1 :])
        moves, heads, tails = np.zeros((n, n)), np.zeros(by_rank.shape), np.zeros(by_rank.shape)
        log_likelihood = moods_e_step(
            *[self.start, self.clicks, self.codes[first], self.codes[first + 1], transition],
            *[self.probability[first], by_rank, moves, self.heads[first], self.tails[first]],
            *[heads, tails, self.longest],
        )
        for mood in range(n):
            for place in range(n - 1):
                coin = mood * (n - 1) + place
                self.heads[coin][0] = moves[mood, place]
                self.tails[coin][0] = moves[mood, place + 1 :].sum()
        for place in range(n - 1):
            self.heads[first + 1 + place][:] = heads[place]
            self.tails[first + 1 + place][:] = tails[place]
        return float(log_likelihood)


class HandPatience(HandEStep):
    """Coins: attraction, hurry, and leaving at each level but the last."""

    def _run(self) -> float:
        leaving = np.array([*(p[0] for p in self.probability[2:]), 1.0])
        heads, tails = np.zeros(len(leaving)), np.zeros(len(leaving))
        log_likelihood = patience_e_step(
            *[self.start, self.clicks, self.codes[0], self.codes[1], *self.probability[:2]],
            *[leaving, self.heads[0], self.tails[0], self.heads[1], self.tails[1]],
            *[heads, tails, self.longest],
        )
        for level in range(len(leaving) - 1):
            self.heads[2 + level][0], self.tails[2 + level][0] = heads[level], tails[level]
        return float(log_likelihood)


def expected_counts(
    model: ClickModel, log: ClickLog
) -> tuple[Expectation, list[NDArray[np.float64]], Counts]:
    """The first E-step of a model on one thread, pages as they are."""
    encoded = model.encode(log, "e_step", merge=False)
    weights = random_weights(encoded)
    expectation = Expectation(encoded, model.library(encoded.plan, counting=True), threads=1)
    return expectation, weights, expectation.run(weights)


def measure(model: ClickModel, hand: type[HandEStep], log: ClickLog, rounds: int) -> list[str]:
    """A row of the table."""
    began = time.process_time()
    expectation, weights, counts = expected_counts(model, log)
    compiling = time.process_time() - began
    encoded = expectation.encoded
    by_hand = hand(encoded, weights)
    check_agreement(model.name, counts, by_hand)
    contestants = {"hand": by_hand.run, "generated": kernel_alone(expectation, weights)}
    best = dict.fromkeys(contestants, np.inf)
    for _ in range(rounds):
        for name, run in contestants.items():
            began = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - began)
    hand_ns, ours_ns = (best[name] / encoded.n_pages * 1e9 for name in contestants)
    machine = expectation.machine
    row = [model.name, f"{machine.n_states}", f"{machine.n_edges:,}", f"{hand_ns:,.0f}"]
    row += [f"{ours_ns:,.0f}", f"{hand_ns / ours_ns:.2f}", f"{compiling:.1f}"]
    print(" | ".join(row), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=__doc__)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--moods", type=int, nargs="*", default=[4, 5, 6, 8, 16, 32])
    parser.add_argument("--levels", type=int, nargs="*", default=[8, 20, 50, 500])
    options = parser.parse_args()
    os.environ["GECASMO_CACHE_DIR"] = tempfile.mkdtemp(prefix="gecasmo-benchmark-")
    log = simulate_log("distinct", options.pages).read()
    expected_counts(gecasmo.DBN(), log)  # the first kernel of a process waits for Numba itself
    before = load_average()
    rows = [measure(moods(n)(), HandMoods, log, options.rounds) for n in options.moods]
    rows += [measure(patience(n)(), HandPatience, log, options.rounds) for n in options.levels]
    machine = describe_machine()
    header = "model | states | edges | hand, ns a page | generated | ratio | first E-step, CPU s"
    lines = [
        "# Automata with many states",
        "",
        f"`python -m benchmarks.large`: {options.pages:,} pages of 10 results, best of "
        f"{options.rounds} rounds by processor time, one thread, counts equal to 1e-9. "
        f"{machine['moment']}, commit {machine['commit']}, {machine['processor']}. Processes that "
        f"wanted a processor before and at the end: {before:.1f} and {load_average():.1f}.",
        "",
        f"| {header} |",
        "|---|---|---|---|---|---|---|",
        *(f"| {' | '.join(row)} |" for row in rows),
    ]
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
