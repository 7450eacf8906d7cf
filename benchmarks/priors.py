"""Learned priors and intervals: held-out likelihood against rivals, and coverage by simulation.

python -m benchmarks.priors [--sizes 10000 100000 1000000] writes results/priors.md
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.rivals_log import BEST_RIVAL, rivals_log
from gecasmo import DBN, DCM, PBM, UBM, ClickLog, Empirical, Table, read_log
from gecasmo.model.estimates import beta_interval

OUTPUT = Path(__file__).parent / "results" / "priors.md"
LEVEL = 0.9
LEAST_TRIALS = 20


def forms() -> dict[str, dict[str, Table]]:
    ones = {"attraction": Table(pseudo_counts=(1, 1)), "satisfaction": Table(pseudo_counts=(1, 1))}
    by_page = Empirical(by=("rank", "exposure"))
    return {
        "pseudo-counts (1, 1)": ones,
        "learned prior (the default)": {},
        "learned by rank and exposure": {"attraction": Table(prior=by_page)},
    }


def held_out(sizes: list[int]) -> list[str]:
    """A table of held-out figures on the rivals' log."""
    lines = [
        "| pages | DBN with | log-likelihood | conditional | marginal | to the truth | of the best "
        "rival's distance | seconds to fit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for size in sizes:
        made = rivals_log(size)
        truth = made.truth().evaluate(made.test).log_likelihood
        rival, theirs = BEST_RIVAL.get(size, ("", np.nan))
        lines.append(f"| {size:,} | true parameters | {truth:.4f} | | | 0 | 0 | |")
        lines.append(f"| {size:,} | {rival} | {theirs:.4f} | | | {truth - theirs:.4f} | 1 | |")
        for name, given in forms().items():
            began = time.perf_counter()
            model = DBN(**given).fit(made.train, progress=False)
            seconds = time.perf_counter() - began
            found = model.evaluate(made.test)
            distance = truth - found.log_likelihood
            lines.append(
                f"| {size:,} | {name} | {found.log_likelihood:.4f} | "
                f"{found.conditional.arithmetic:.4f} | {found.marginal.arithmetic:.4f} | "
                f"{distance:.4f} | {distance / (truth - theirs):.2f} | {seconds:.1f} |"
            )
    return lines


def never_worse(seeds: int = 6) -> list[str]:
    """Learned priors against (1, 1) on other models and other pages, held out."""
    lines = ["| log | model | (1, 1) | learned | gain |", "|---|---|---|---|---|"]
    for kind in ("dense", "sparse", "very sparse"):
        for name, model in (("PBM", PBM), ("UBM", UBM), ("DCM", DCM), ("DBN", DBN)):
            scores = []
            for seed in range(seeds):
                made = simulated(name, kind, seed)
                train, test = made[0].split(test=0.2, by="session", seed=seed)
                ones = {
                    coin: Table(pseudo_counts=(1, 1))
                    for coin in model().forms
                    if "doc" in model().keys[coin]
                }
                scores.append(
                    [model(**given).fit(train, progress=False).score(test) for given in (ones, {})]
                )
            before, after = np.mean(scores, axis=0)
            lines.append(
                f"| {kind} | {name} | {before:.4f} | {after:.4f} | {after - before:+.4f} |"
            )
    return lines


SHAPES = {"dense": (20, 8_000), "sparse": (200, 8_000), "very sparse": (1_500, 8_000)}


def simulated(name: str, kind: str, seed: int) -> tuple[ClickLog, dict[str, Any]]:
    """A log made by a model of the zoo on random pages, and the true values of its rows."""
    rng = np.random.default_rng([seed, len(name), len(kind)])
    n_queries, n_pages = SHAPES[kind]
    pairs = [(q, d) for q in range(n_queries) for d in range(15)]
    truth: dict[str, Any] = {
        "attraction": dict(zip(pairs, rng.beta(1, 3, len(pairs)), strict=True))
    }
    if name == "DBN":
        truth["satisfaction"] = dict(zip(pairs, rng.beta(2, 2, len(pairs)), strict=True))
        truth["continuation"] = 0.85
    elif name == "PBM":
        truth["examination"] = {rank: 1 / rank**0.7 for rank in range(1, 11)}
    elif name == "UBM":
        truth["examination"] = {
            (rank, last): 1 / (rank - last) ** 0.6 for rank in range(1, 11) for last in range(rank)
        }
    else:
        truth["continuation"] = {rank: 0.5 + 0.04 * rank for rank in range(1, 11)}
    makers = {"PBM": PBM, "UBM": UBM, "DCM": DCM, "DBN": DBN}
    query = np.minimum(rng.zipf(1.3, n_pages) - 1, n_queries - 1)
    docs = np.argsort(rng.random((n_pages, 15)), axis=1)[:, :10]
    pages = {
        "session": np.repeat(np.arange(n_pages), 10),
        "query": np.repeat(query, 10),
        "doc": docs.ravel(),
        "rank": np.tile(np.arange(1, 11), n_pages),
    }
    return makers[name].with_values(**truth).simulate(pages, seed=seed), truth


def covered(model: Any, coin: str, truth: dict[Any, float]) -> tuple[int, int, int]:
    """How many rows with enough trials: in all, covered by the posterior, covered by counts."""
    frame = model.estimates(coin, level=LEVEL)
    frame = frame.with_columns(
        true=pl.Series([truth[key] for key in frame.select("query", "doc").rows()])
    )
    state = model.states_[coin]
    counts = model.parameters[coin]
    a, b = state.pseudo
    flips = (counts["heads"] + counts["tails"]).to_numpy() + a + b
    mean = (counts["heads"].to_numpy() + a) / flips
    low, high = beta_interval(mean, np.sqrt(mean * (1 - mean) / (flips + 1)), LEVEL)
    true = frame["true"].to_numpy()
    enough = frame["trials"].to_numpy() >= LEAST_TRIALS
    ours = (frame["low"].to_numpy() <= true) & (true <= frame["high"].to_numpy())
    theirs = (low <= true) & (true <= high)
    return int(enough.sum()), int(ours[enough].sum()), int(theirs[enough].sum())


def coverage(seeds: int = 6) -> list[str]:
    """How often 90 % intervals hold the truth, over pairs with at least 20 expected flips."""
    lines = [
        "| log | model | coin | pairs | row posterior | from expected counts |",
        "|---|---|---|---|---|---|",
    ]
    anchors = {"PBM": {1: 1.0}, "UBM": {(1, 0): 1.0}}
    for kind in ("dense", "sparse"):
        for name, maker in (("DBN", DBN), ("PBM", PBM), ("UBM", UBM), ("DCM", DCM)):
            totals: dict[str, Any] = {}
            for seed in range(seeds):
                log, truth = simulated(name, kind, 100 + seed)
                given = {"examination": Table(fixed=anchors[name])} if name in anchors else {}
                model = maker(**given).fit(log, progress=False)
                for coin in ("attraction", "satisfaction"):
                    if coin in model.forms:
                        counts = np.array(covered(model, coin, truth[coin]))
                        totals[coin] = totals.get(coin, 0) + counts
            for coin, (n, ours, theirs) in totals.items():
                lines.append(
                    f"| {kind} | {name} | {coin} | {n:,} | {ours / n:.1%} | {theirs / n:.1%} |"
                )
    return lines


def bootstrapped(replicates: int = 60) -> list[str]:
    """Standard deviations of shared coins: profile information against a bootstrap over queries."""
    lines = [
        "| model | coin | row | estimate | from the profile likelihood | bootstrap over queries |",
        "|---|---|---|---|---|---|",
    ]
    cases = {"DBN": {}, "PBM": {"examination": Table(fixed={1: 1.0})}}
    makers = {"DBN": DBN, "PBM": PBM}
    coin_of = {"DBN": "continuation", "PBM": "examination"}
    for name, given in cases.items():
        log, _ = simulated(name, "sparse", 7)
        coin = coin_of[name]
        found = makers[name](**given).fit(log, progress=False).estimates(coin)
        rng = np.random.default_rng(1)
        query = log.session_column("query").to_numpy()
        frame = log.to_frame()
        drawn = []
        for _ in range(replicates):
            times = np.bincount(
                rng.integers(0, query.max() + 1, query.max() + 1), minlength=query.max() + 1
            )
            weight = times[frame["query"].to_numpy()].astype(float)
            again = read_log(frame.with_columns(weight=pl.Series(weight)), weight="weight")
            again = again.take(again.weight > 0)
            drawn.append(
                makers[name](**given)
                .fit(again, progress=False)
                .estimates(coin)["probability"]
                .to_numpy()
            )
        spread = np.std(drawn, axis=0)
        for row in range(len(found)):
            label = found["rank"][row] if "rank" in found.columns else "all"
            if found["spread"][row] > 0 and row in (0, 1, 4, 9):
                lines.append(
                    f"| {name} | {coin} | {label} | {found['probability'][row]:.4f} | "
                    f"{found['spread'][row]:.4f} | {spread[row]:.4f} |"
                )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    chosen = parser.parse_args()
    parts = [
        "# Learned priors and intervals",
        "Made by `make priors`.",
        "## Held out, on the log of the rivals",
        "The figures of rivals are those measured for the design, on the same pages.",
        "\n".join(held_out(chosen.sizes)),
        "## Learned priors against pseudo-counts (1, 1)",
        "Held-out log-likelihood a page, mean of six logs each; 8,000 pages of ten results in "
        "random order over 20, 200 and 1,500 queries.",
        "\n".join(never_worse()),
        "## Coverage of 90 % intervals",
        f"Over pairs with at least {LEAST_TRIALS} expected flips, six simulated logs each.",
        "\n".join(coverage()),
        "## Shared coins",
        "\n".join(bootstrapped()),
    ]
    OUTPUT.write_text("\n\n".join(parts) + "\n")
    print(OUTPUT.read_text())


if __name__ == "__main__":
    main()
