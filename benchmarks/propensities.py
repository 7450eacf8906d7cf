"""How often 90 % intervals of `propensities` hold the truth, ranks below the first.

    PYTHONPATH=src:. python -m benchmarks.propensities --logs 12

Worlds are those of `benchmarks/worlds.py`, which share no code with the package. What is true is
the average over the same pages with the true probabilities. PBM and UBM are anchored at the first
rank, so that their scale is known. Intervals of one log err together: the standard error is that of
means over logs. Writes results/propensities.md.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.markdown import table
from benchmarks.report import RESULTS
from benchmarks.worlds import as_log, draw_pages, make_world
from gecasmo import Table
from gecasmo.judgments import propensities
from gecasmo.models import CATALOGUE

RANKERS, MODELS, SIZES = ("random", "good"), ("DBN", "PBM", "UBM"), (500, 3_000, 20_000)
ANCHORS: dict[str, dict[str, Any]] = {
    "DBN": {},
    "PBM": {"examination": Table(fixed={1: 1.0})},
    "UBM": {"examination": Table(fixed={(1, 0): 1.0})},
}
LEVEL = 0.9


def held(model: str, ranker: str, n_pages: int, seed: int) -> float:
    """The share of ranks below the first whose interval holds the truth, of one log."""
    world = make_world(model, seed, ranker=ranker)
    log = as_log(draw_pages(world, n_pages, seed))
    kind = CATALOGUE[model]
    values = {
        coin: given if coin in world.shared else rows(given)
        for coin, given in world.truth().items()
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of identification, which is known here
        true = propensities(kind.with_values(**values), log)["propensity"]
        fitted = kind(**ANCHORS[model]).fit(log, progress=False)
        found = propensities(fitted, log, level=LEVEL, seed=seed)
    holds = (found["propensity_low"] <= true) & (true <= found["propensity_high"])
    return float(np.mean(holds.to_numpy()[1:]))


def rows(frame: Any) -> dict[tuple[int, int], float]:
    """A frame of query, doc and probability as a dictionary."""
    return {(query, doc): value for query, doc, value in frame.iter_rows()}


def main() -> None:
    """Measure, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=12, help="logs of each kind")
    n_logs = parser.parse_args().logs
    lines = []
    for ranker in RANKERS:
        for model in MODELS:
            cells = []
            for size in SIZES:
                shares = [held(model, ranker, size, seed) for seed in range(n_logs)]
                error = np.std(shares, ddof=1) / np.sqrt(n_logs)
                cells.append(f"{np.mean(shares):.0%} ± {error:.0%}")
            lines.append([ranker, model, *cells])
            print(*lines[-1], flush=True)
    header = ["ranker", "model", *(f"{size:,} pages" for size in SIZES)]
    about = ", ".join(f"{key} {value}" for key, value in describe_machine().items())
    text = [
        "# Intervals of propensities",
        "",
        f"`python -m benchmarks.propensities --logs {n_logs}`: how often {LEVEL:.0%} intervals of "
        "relative propensities hold the truth, ranks below the first, on logs of "
        "`benchmarks/worlds.py`.",
        "",
        *table(header, lines),
        f"Machine: {about}",
    ]
    (RESULTS / "propensities.md").write_text("\n".join(text) + "\n")


if __name__ == "__main__":
    main()
