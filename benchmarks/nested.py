"""Tests of nested models on logs for which the smaller one is true: how often they reject it at the
5 % level; and on logs for which it is not. Writes benchmarks/results/nested.md.

The simulator is plain NumPy and shares no code with the package. Of each log it only matters
whether the p-value is at most 5 %: with 39 simulated logs that is known as soon as two of them gain
as much.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks.machine import describe_machine
from benchmarks.markdown import table
from benchmarks.report import RESULTS
from gecasmo import DBN, ClickLog, ClickModel, Parameter, Table, flip, read_log
from gecasmo.evaluation.nested import NestedTests, nestings

QUERIES, PAGES, N_DOCS, LENGTH = 5, 40, 10, 6
REPLICATES, LEVEL = 39, 0.05
ENOUGH = round(LEVEL * (REPLICATES + 1))


class Skipping(ClickModel):
    """A DBN whose users do not look at every result on their way."""

    attraction = Parameter("query", "doc")
    satisfaction = Parameter("query", "doc")
    skip = Parameter("rank")
    continuation = Parameter()

    def browse(self, user: Any, result: Any) -> None:
        """Look, unless the result is skipped."""
        if not flip(self.skip) and flip(self.attraction):
            user.click()
            if flip(self.satisfaction):
                return user.leave()
        if not flip(self.continuation):
            user.leave()


class TwoKinds(ClickModel):
    """A DBN with two kinds of users: some give up sooner than others."""

    attraction = Parameter("query", "doc")
    satisfaction = Parameter("query", "doc")
    hurry = Parameter()
    continuation = Parameter()
    hasty_continuation = Parameter()

    def start(self, user: Any) -> None:
        """Of which kind is the user?"""
        user.in_a_hurry = flip(self.hurry)

    def browse(self, user: Any, result: Any) -> None:
        """Go on as that kind does."""
        if flip(self.attraction):
            user.click()
            if flip(self.satisfaction):
                return user.leave()
        if not flip(self.hasty_continuation if user.in_a_hurry else self.continuation):
            user.leave()


Numbers = NDArray[np.float64]
Changed = Callable[[np.random.Generator, int], tuple[Numbers, Numbers]]


@dataclass(frozen=True)
class Hypothesis:
    """A larger model, and what its users do: how likely each of them looks at, and continues after,
    each result, `[user, place]`."""

    words: str
    larger: Callable[[], ClickModel]
    truth: Changed


def _as_in_a_dbn(rng: np.random.Generator, n_users: int) -> tuple[Numbers, Numbers]:
    shape = (n_users, LENGTH)
    return np.ones(shape), np.full(shape, 0.8)


def _by_rank(rng: np.random.Generator, n_users: int) -> tuple[Numbers, Numbers]:
    shape = (n_users, LENGTH)
    return np.ones(shape), np.broadcast_to(np.linspace(0.98, 0.5, LENGTH), shape)


def _skipping(rng: np.random.Generator, n_users: int) -> tuple[Numbers, Numbers]:
    looks = np.broadcast_to([1.0, 0.5, 0.8, 0.35, 0.8, 0.35], (n_users, LENGTH))
    return looks, np.full((n_users, LENGTH), 0.9)


def _two_kinds(rng: np.random.Generator, n_users: int) -> tuple[Numbers, Numbers]:
    hasty = rng.random((n_users, 1)) < 0.5
    return np.ones((n_users, LENGTH)), np.broadcast_to(
        np.where(hasty, 0.2, 0.99), (n_users, LENGTH)
    )


HYPOTHESES = {
    "rank": Hypothesis(
        "continuation depends on the rank", lambda: DBN(continuation=Table("rank")), _by_rank
    ),
    "skip": Hypothesis("users skip results", Skipping, _skipping),
    "kinds": Hypothesis("two kinds of users", TwoKinds, _two_kinds),
}


def simulate(truth: Changed, rng: np.random.Generator) -> ClickLog:
    """Pages in random order, and their users."""
    shape = (QUERIES, N_DOCS)
    attraction, satisfaction = rng.beta(1.5, 2, shape), rng.beta(1.5, 2.5, shape)
    query = np.repeat(np.arange(QUERIES), PAGES)
    doc = np.argsort(rng.random((len(query), N_DOCS)), axis=1)[:, :LENGTH]
    looks, continues = truth(rng, len(query))
    click = np.zeros(doc.shape, int)
    there = np.ones(len(query), bool)
    for t in range(LENGTH):
        chance = looks[:, t] * attraction[query, doc[:, t]]
        click[:, t] = there & (rng.random(len(query)) < chance)
        satisfied = click[:, t] & (rng.random(len(query)) < satisfaction[query, doc[:, t]])
        there &= (satisfied == 0) & (rng.random(len(query)) < continues[:, t])
    return read_log(
        {
            "session": np.repeat(np.arange(len(query)), LENGTH),
            "query": np.repeat(query, LENGTH),
            "doc": (doc + N_DOCS * query[:, None]).ravel(),
            "rank": np.tile(np.arange(1, LENGTH + 1), len(query)),
            "click": click.ravel(),
        }
    )


def p_value(hypothesis: Hypothesis, log: ClickLog, seed: int) -> float:
    """Of the test of DBN against the larger model."""
    models = {"DBN": DBN(), "larger": hypothesis.larger()}
    (pair,) = nestings(models, log, True, [])
    tests = NestedTests(log, REPLICATES, seed, enough=ENOUGH)
    return float(tests.run(models, pair, None, [])["p"])


def measure(name: str, kind: str, n_logs: int, keep: Path | None) -> tuple[int, int, float]:
    """How many of so many logs were rejected, and seconds for each; what is kept is not done
    again."""
    hypothesis = HYPOTHESES[name]
    kept = None if keep is None else keep / f"{name}_{kind}.json"
    found = json.loads(kept.read_text()) if kept is not None and kept.is_file() else []
    for number in range(len(found), n_logs):
        rng = np.random.default_rng([number, kind == "null", 11])
        log = simulate(_as_in_a_dbn if kind == "null" else hypothesis.truth, rng)
        began = time.process_time()
        p = p_value(hypothesis, log, number)
        found.append([p, time.process_time() - began])
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(found))
    found = found[:n_logs]
    rejected = sum(p <= LEVEL + 1e-9 for p, _ in found)
    return rejected, len(found), float(np.mean([seconds for _, seconds in found]))


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=200, help="logs for which DBN is true")
    parser.add_argument("--others", type=int, default=40, help="logs for which it is not")
    parser.add_argument("--only", nargs="+", choices=list(HYPOTHESES), default=list(HYPOTHESES))
    parser.add_argument("--keep", type=Path, help="keep p-values in this folder, and go on there")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name in options.only:
        cells = [HYPOTHESES[name].words]
        for kind, n_logs in (("null", options.logs), ("other", options.others)):
            rejected, n, seconds = measure(name, kind, n_logs, options.keep)
            ends = stats.binomtest(rejected, n).proportion_ci(0.9) if n else (0.0, 1.0)
            cells.append(
                f"{rejected} of {n}: {100 * rejected / max(n, 1):.1f} % "
                f"({100 * ends[0]:.0f} to {100 * ends[1]:.0f})"
            )
            cells.append(f"{seconds:.2f}")
        rows.append((cells[0], cells[1], cells[3], cells[2]))
    lines = [
        "# Tests of browsing hypotheses",
        "",
        f"By `make nested`: logs of {QUERIES * PAGES} pages of {LENGTH} results, "
        f"{QUERIES * N_DOCS} pairs; DBN against a model of which it is a special case; "
        f"{REPLICATES} simulated logs a test; 90 % intervals. {describe_machine()['processor']}.",
        "",
        *table(
            (
                "hypothesis",
                "rejected at 5 % where DBN is true",
                "where the hypothesis is",
                "CPU seconds a test",
            ),
            rows,
        ),
        "",
    ]
    page = "\n".join(lines)
    if options.only == list(HYPOTHESES):
        (options.folder / "nested.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
