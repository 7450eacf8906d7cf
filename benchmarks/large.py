"""Automata with many states: generated kernels against plain hand-written Numba, in one run.

    python -m benchmarks.large
    python -m benchmarks.large --moods 16 32 --levels    # some of the rows, others are kept

Times are seconds of this process (CPU) and pages a second; what counts is the ratio. A hand-written
kernel is a plain forward-backward pass with loops over states, as `hand_kernels` are; in C, too,
where there is gcc. Compiling is that of the E-step alone, in a process that has compiled something
before, without a cache. Kernels of up to 64 edges spell them out, others loop: around that number
both ways are measured. Rows are kept in results/large.jsonl, and results/large.md is made of them.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gecasmo
from benchmarks.c_e_steps import address, c_library
from benchmarks.e_step import check_agreement, kernel_alone, random_weights
from benchmarks.hand_e_steps import HandEStep
from benchmarks.hand_large import moods_e_step, patience_e_step
from benchmarks.large_models import moods, patience
from benchmarks.logs import simulate_log
from benchmarks.machine import describe_machine, load_average
from gecasmo import ClickLog, ClickModel
from gecasmo.estimation import Counts, Expectation
from gecasmo.kernels.e_step import text

RESULTS = Path(__file__).parent / "results" / "large.md"
KEPT = RESULTS.with_suffix(".jsonl")
# Edges around the number from which on kernels loop; there both ways are measured.
AROUND_THE_SWITCH = (40, 70)


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
        log_likelihood = self._kernel(
            *[self.start, self.clicks, self.codes[first], self.codes[first + 1], transition],
            *[self.probability[first], by_rank, moves, self.heads[first], self.tails[first]],
            *[heads, tails],
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

    def _kernel(self, *arrays: NDArray) -> float:
        return moods_e_step(*arrays, self.longest)


class CMoods(HandMoods):
    def _kernel(self, *arrays: NDArray) -> float:
        return _in_c("moods", self, [len(arrays[4]), arrays[6].shape[1]], len(arrays[4]), arrays)


class HandPatience(HandEStep):
    """Coins: attraction, hurry, and leaving at each level but the last."""

    def _run(self) -> float:
        leaving = np.array([*(p[0] for p in self.probability[2:]), 1.0])
        heads, tails = np.zeros(len(leaving)), np.zeros(len(leaving))
        log_likelihood = self._kernel(
            *[self.start, self.clicks, self.codes[0], self.codes[1], *self.probability[:2]],
            *[leaving, self.heads[0], self.tails[0], self.heads[1], self.tails[1]],
            *[heads, tails],
        )
        for level in range(len(leaving) - 1):
            self.heads[2 + level][0], self.tails[2 + level][0] = heads[level], tails[level]
        return float(log_likelihood)

    def _kernel(self, *arrays: NDArray) -> float:
        return patience_e_step(*arrays, self.longest)


class CPatience(HandPatience):
    def _kernel(self, *arrays: NDArray) -> float:
        n = len(arrays[6])
        return _in_c("patience", self, [n], n + 1, arrays)


def _in_c(name: str, run: HandEStep, sizes: list[int], width: int, arrays: Sequence) -> float:
    """A kernel in C: numbers, arrays, and room for what goes forward and backward."""
    numbers = [ctypes.c_int64(size) for size in (len(run.start) - 1, *sizes)]
    room = [np.empty((run.longest + 1, width)), np.empty(width), np.empty(width)]
    found: float = getattr(c_library(), name)(*numbers, *map(address, (*arrays, *room)))
    return found


def expected_counts(
    model: ClickModel, log: ClickLog
) -> tuple[Expectation, list[NDArray[np.float64]], Counts]:
    """The first E-step of a model on one thread, pages as they are."""
    encoded = model.encode(log, "e_step", merge=False)
    weights = random_weights(encoded)
    expectation = Expectation(encoded, model.library(encoded.plan, counting=True), threads=1)
    return expectation, weights, expectation.run(weights)


def measure(
    kind: type[ClickModel], hands: dict[str, type[HandEStep]], log: ClickLog, rounds: int
) -> dict[str, Any]:
    """A row of the table."""
    model = kind()
    began = time.process_time()
    expectation, weights, counts = expected_counts(model, log)
    compiling = time.process_time() - began
    encoded, machine = expectation.encoded, expectation.machine
    contestants = {"generated": kernel_alone(expectation, weights)}
    for name, hand in hands.items():
        by_hand = hand(encoded, weights)
        check_agreement(model.name, counts, by_hand)
        contestants[name] = by_hand.run
    if AROUND_THE_SWITCH[0] < machine.n_edges < AROUND_THE_SWITCH[1]:
        limit = 0 if expectation.is_small else machine.n_edges
        with _switched_at(limit):
            other, weights, counts = expected_counts(kind(), log)
        check_agreement(model.name, counts, by_hand)
        contestants["other way"] = kernel_alone(other, weights)
    best = dict.fromkeys(contestants, np.inf)
    for _ in range(rounds):
        for name, run in contestants.items():
            began = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - began)
    row = {"model": model.name, "states": machine.n_states, "edges": machine.n_edges}
    row |= {"way": "spelt out" if expectation.is_small else "loops", "compiling": compiling}
    row |= {name: seconds / encoded.n_pages * 1e9 for name, seconds in best.items()}
    print(row, flush=True)
    return row


@contextmanager
def _switched_at(n_edges: int) -> Iterator[None]:
    """With loops from another number of edges on."""
    before = text.MAX_UNROLLED_EDGES
    text.MAX_UNROLLED_EDGES = n_edges
    try:
        yield
    finally:
        text.MAX_UNROLLED_EDGES = before


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large", description=__doc__)
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--moods", type=int, nargs="*", default=[4, 5, 6, 8, 16, 32])
    parser.add_argument("--levels", type=int, nargs="*", default=[8, 10, 20, 50, 500])
    options = parser.parse_args()
    os.environ["GECASMO_CACHE_DIR"] = tempfile.mkdtemp(prefix="gecasmo-benchmark-")
    log = simulate_log("distinct", options.pages).read()
    expected_counts(gecasmo.DBN(), log)  # the first kernel of a process waits for Numba itself
    cases: list[tuple[type[ClickModel], type[HandEStep], type[HandEStep]]] = []
    cases += [(moods(n), HandMoods, CMoods) for n in options.moods]
    cases += [(patience(n), HandPatience, CPatience) for n in options.levels]
    for kind, in_numba, in_c in cases:
        hands: dict[str, type[HandEStep]] = {"Numba": in_numba}
        if c_library() is not None:
            hands["C"] = in_c
        row = measure(kind, hands, log, options.rounds)
        row |= {"pages": options.pages, "rounds": options.rounds, "load": load_average()}
        with KEPT.open("a") as file:
            file.write(json.dumps(row | describe_machine()) + "\n")
    write_table()


def write_table() -> None:
    """The last row of every model."""
    rows = {row["model"]: row for row in map(json.loads, KEPT.read_text().splitlines())}
    header = "model | states | edges | kernel | generated, ns a page | Numba / generated"
    header += " | C / generated | the other way / this way | first E-step, CPU s | load | commit"
    lines = [
        "# Automata with many states",
        "",
        "`python -m benchmarks.large`: pages of 10 results, best rounds by processor time, one "
        "thread, counts equal to 1e-9. Ratios are those of times in one run: above 1 the generated "
        "kernel is faster. Kernels of up to 64 edges spell them out, others loop; near that number "
        "the last but three column has what the other way would take. The first E-step includes "
        "encoding and compiling; load is the number of processes that wanted a processor.",
        "",
        f"| {header} |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in sorted(rows.values(), key=lambda row: (row["model"][:5], row["states"])):
        ratios = [
            f"{row[name] / row['generated']:.2f}" if name in row else ""
            for name in ("Numba", "C", "other way")
        ]
        cells = [row["model"], f"{row['states']}", f"{row['edges']:,}", row["way"]]
        cells += [f"{row['generated']:,.0f}", *ratios, f"{row['compiling']:.1f}"]
        cells += [f"{row['load']:.0f}", row["commit"]]
        lines.append(f"| {' | '.join(cells)} |")
    last = list(rows.values())[-1]
    lines += ["", f"Last run: {last['moment']}, commit {last['commit']}, {last['processor']}."]
    RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
