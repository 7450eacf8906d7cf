"""Constraints on the posterior: does the order of documents improve, and do they do no harm?

    PYTHONPATH=. python -m benchmarks.constraints

Writes results/constraints.md. Logs are simulated by BSS with and without noise clicks; the model is
told how much noise there is, is told too much, or has to find out.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.markdown import table
from gecasmo import BSS, AtMost, ClickLog, Prefer, Table
from gecasmo.simulation import random_pages

OUTPUT = Path(__file__).parent / "results" / "constraints.md"
N_QUERIES, N_DOCS, CARE = 100, 15, 0.9
BELIEVED: dict[str, Any] = {"0.3": 0.3, "0.5": 0.5, "estimated": None}
ASKED: dict[str, list[Any]] = {
    "EM": [],
    "Prefer, margin 0.1": [Prefer("attraction")],
    "Prefer, margin 0.5": [Prefer("attraction", margin=0.5)],
    "Prefer, margin 0.9, strength 3": [Prefer("attraction", margin=0.9, strength=3.0)],
    "AtMost noise 0.1": [AtMost("noise", 0.1)],
}


def simulated(seed: int, noise: float, n_pages: int) -> tuple[ClickLog, pl.DataFrame]:
    """A log with so many noise clicks, and the attraction behind it."""
    quality = np.random.default_rng(seed).beta(0.6, 1.2, (N_QUERIES, N_DOCS)).clip(0.01, 0.99)
    pages = random_pages(n_pages, seed, n_queries=N_QUERIES, quality=quality)
    keys = {
        "query": np.repeat(np.arange(N_QUERIES), N_DOCS),
        "doc": np.tile(np.arange(N_DOCS), N_QUERIES),
    }
    truth = pl.DataFrame({**keys, "probability": quality.ravel()})
    model = BSS().with_values(
        attraction=truth,
        care=CARE,
        noise=noise,
        continuation_after_click=0.6,
        continuation_after_skip=0.85,
    )
    return model.simulate(pages, seed=seed), truth


def in_order(model: Any, truth: pl.DataFrame) -> float:
    """The share of pairs of documents of a query that stand in the true order; ties count half."""
    named = truth.rename({"probability": "true"})
    found = model.parameters["attraction"].join(named, on=["query", "doc"])
    right = total = 0.0
    for _, own in found.group_by("query"):
        a, b = own["probability"].to_numpy(), own["true"].to_numpy()
        agrees = np.sign(a[:, None] - a) * np.sign(b[:, None] - b)
        right += (agrees > 0).sum() + 0.5 * ((agrees == 0).sum() - len(a))
        total += len(a) * (len(a) - 1)
    return float(right / total)


def measure(noise: float, n_logs: int, n_pages: int) -> list[list[str]]:
    """For each belief the share of pairs in order, and how the constraints change it."""
    rows = []
    logs = [simulated(100 + seed, noise, n_pages) for seed in range(n_logs)]
    for belief, value in BELIEVED.items():
        found: dict[str, list[float]] = {name: [] for name in ASKED}
        for log, truth in logs:
            for name, asked in ASKED.items():
                ones = Table(pseudo_counts=(1, 1))
                forms = {} if value is None else {"noise": value}
                model = BSS(attraction=ones, care=CARE, **forms)
                model.fit(log, constraints=asked, intervals=False, progress=False)
                found[name].append(in_order(model, truth))
        base = np.array(found.pop("EM"))
        cells = [_changed(np.array(values) - base) for values in found.values()]
        rows.append([f"{noise:g}", belief, f"{base.mean():.4f}", *cells])
        print(*rows[-1], sep=" | ", flush=True)
    return rows


def _changed(difference: np.ndarray) -> str:
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return f"{difference.mean():+.4f} ± {error:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=5)
    parser.add_argument("--pages", type=int, default=2_000)
    options = parser.parse_args()
    rows = [row for noise in (0.3, 0.0) for row in measure(noise, options.logs, options.pages)]
    head = ["noise in the log", "the model's noise", "EM", *list(ASKED)[1:]]
    OUTPUT.write_text(
        "# Constraints on the posterior\n\n"
        f"`python -m benchmarks.constraints`: {options.logs} logs of {options.pages:,} pages of "
        f"ten results over {N_QUERIES} queries, simulated by BSS (care {CARE:g}). The share of "
        "pairs of documents of a query that `attraction` puts in the true order, and by how much "
        "constraints change it (mean over logs, with its standard error).\n\n"
        + "\n".join(table(head, rows))
    )


if __name__ == "__main__":
    main()
