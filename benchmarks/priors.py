"""Learned priors and intervals: held-out likelihood, coverage, and whether the default is best.

    make priors
    PYTHONPATH=. python -m benchmarks.priors --only held-out --sizes 10000
    PYTHONPATH=. python -m benchmarks.priors --only coverage law --logs 2
    PYTHONPATH=. python -m benchmarks.priors --only crossed sum-intervals crossed-speed

Writes results/priors.md. `coverage.py`, `law.py` and `crossed.py` have the last parts.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import coverage, crossed, law
from benchmarks.markdown import read_sections, table
from benchmarks.rivals_log import BEST_RIVAL, rivals_log
from gecasmo import DBN, DCM, PBM, UBM, ClickLog, Empirical, Table

OUTPUT = Path(__file__).parent / "results" / "priors.md"
SEEDS = 6
SHAPES = {"dense": (20, 8_000), "sparse": (200, 8_000), "very sparse": (1_500, 8_000)}
ZOO: dict[str, Any] = {"PBM": PBM, "UBM": UBM, "DCM": DCM, "DBN": DBN}
# What the earlier default, one common Beta prior that is learned, reached on the same six logs.
EARLIER = {
    ("dense", "PBM"): -2.6956,
    ("dense", "UBM"): -3.3903,
    ("dense", "DCM"): -3.6822,
    ("dense", "DBN"): -2.3760,
    ("sparse", "PBM"): -2.7238,
    ("sparse", "UBM"): -3.3980,
    ("sparse", "DCM"): -3.7137,
    ("sparse", "DBN"): -2.3665,
    ("very sparse", "PBM"): -2.7511,
    ("very sparse", "UBM"): -3.4595,
    ("very sparse", "DCM"): -3.7862,
    ("very sparse", "DBN"): -2.4032,
}
WORDS = {
    "held-out": (
        "Held out, on the log of the rivals",
        "The figures of rivals are those measured for the design, on the same pages.",
    ),
    "never-worse": (
        "The default against pseudo-counts (1, 1)",
        "Held-out log-likelihood a page, mean over logs; 8,000 pages of ten results in random "
        "order over 20, 200 and 1,500 queries. The earlier default was one common Beta prior, "
        "learned; it is on the same logs.",
    ),
    "coverage": (
        "Coverage of 90 % intervals",
        "Logs of 8,000 pages of ten results: in random order over 20 queries (dense) and 1,500 "
        "(sparse) with 15 documents each; in the order of a good ranker, who moves them by a few "
        "ranks, over 60 queries with heavy-tailed traffic and 1,500 (sparse) with 25 each. Pairs "
        "are told apart by `trials`, the expected flips behind them. PBM and UBM know that the "
        "top is examined. Good and bad pairs: true values have two peaks, which no Beta prior has. "
        "Not identified: the model gives no interval, or (shared coins) nothing was flipped.",
    ),
    "law": (
        "The default against other forms",
        "Held-out log-likelihood a page, mean over logs of 8,000 pages for training and 8,000 for "
        "the test; 100 queries, 20 documents each, of 300 where they are shared. What true values "
        "have in common: nothing (pair; each, with shared documents), the document, the query, "
        "document and query and pair (mixture), or there are good and bad ones (bimodal).",
    ),
    "crossed": (
        "Sums of effects on crossed logs",
        "Held-out log-likelihood a page of a DBN, mean over logs of 2,000 pages of eight results "
        "for training and as many for the test; 150 queries (sparse: 1,000; rare pairs: 1,500, and "
        "as many pages) with 15 of 300 documents each, in random order. Logits of attraction are "
        "the sum of a feature, an effect of the pair, one of the document and one of the query; "
        "with rare pairs the feature says nothing either. Crossed: "
        '`Sum(Table("query", "doc"), Table("doc"), Table("query"), Logistic("x"))`. The prior of '
        "`Table()` has effects of documents and queries itself, so without a feature it is much "
        "the same model; one prior: `Table(prior=Empirical(by=()))`, without these.",
    ),
    "sum-intervals": (
        "Coverage of 90 % intervals of a sum",
        "Logs of 1,800 pages (sparse: 360) of eight of twelve results, 60 queries; a DBN with "
        '`Sum(Logistic("bm25", "price"))` and `Logistic("bm25")`. New pairs are drawn as the '
        "others, and were never candidates. Bias: estimate minus truth of pairs that were shown.",
    ),
    "crossed-speed": (
        "How long a sum of three tables takes",
        'A DBN with `Sum(Table("query", "doc"), Table("doc"), Table("query"))` behind attraction, '
        "against the default, on the log of the rivals with documents shared by queries; seconds "
        "of processor, both in one run, with kernels from the cache (run it twice on a machine "
        "that has none). Documents are numbers that say nothing there, so their true spread is 0.",
    ),
}


def forms() -> dict[str, dict[str, Table]]:
    ones = {"attraction": Table(pseudo_counts=(1, 1)), "satisfaction": Table(pseudo_counts=(1, 1))}
    alike = {coin: Table(prior=Empirical(by=())) for coin in ones}
    return {
        "pseudo-counts (1, 1)": ones,
        "one prior for all rows": alike,
        "learned prior (the default)": {},
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


def never_worse(seeds: int) -> list[str]:
    """The default against (1, 1) and against what was the default once, held out."""
    header = ["log", "model", "(1, 1)", "earlier default", "default", "gain", "over earlier"]
    rows = []
    for kind in SHAPES:
        for name, model in ZOO.items():
            scores = []
            for seed in range(seeds):
                log = simulated(name, kind, seed)
                train, test = log.split(test=0.2, by="session", seed=seed)
                ones = {
                    coin: Table(pseudo_counts=(1, 1))
                    for coin in model().forms
                    if "doc" in model().keys[coin]
                }
                scores.append(
                    [model(**given).fit(train, progress=False).score(test) for given in (ones, {})]
                )
            fixed, learned = np.mean(scores, axis=0)
            earlier = EARLIER[kind, name] if seeds == SEEDS else None
            rows.append(
                [
                    *[kind, name, f"{fixed:.4f}", "-" if earlier is None else f"{earlier:.4f}"],
                    *[f"{learned:.4f}", f"{learned - fixed:+.4f}"],
                    "-" if earlier is None else f"{round(learned - earlier, 4) + 0.0:+.4f}",
                ]
            )
    return table(header, rows)


def simulated(name: str, kind: str, seed: int) -> ClickLog:
    """A log made by a model of the zoo on random pages; `EARLIER` is of just these."""
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
    query = np.minimum(rng.zipf(1.3, n_pages) - 1, n_queries - 1)
    docs = np.argsort(rng.random((n_pages, 15)), axis=1)[:, :10]
    pages = {
        "session": np.repeat(np.arange(n_pages), 10),
        "query": np.repeat(query, 10),
        "doc": docs.ravel(),
        "rank": np.tile(np.arange(1, 11), n_pages),
    }
    return ZOO[name].with_values(**truth).simulate(pages, seed=seed)


def main() -> None:
    chosen = _parse()
    logs = chosen.logs

    def coverage_tables() -> list[str]:
        n_logs = logs or coverage.N_LOGS
        return coverage.as_markdown(
            coverage.run(n_logs, n_processes=chosen.processes, resume=chosen.resume)
        )

    makers: dict[str, Callable[[], list[str]]] = {
        "held-out": lambda: held_out(chosen.sizes),
        "never-worse": lambda: never_worse(min(logs or SEEDS, SEEDS)),
        "coverage": coverage_tables,
        "crossed": lambda: crossed.held_out(logs or 10, chosen.resume),
        "sum-intervals": lambda: crossed.intervals(logs or 24),
        "crossed-speed": lambda: crossed.speed([size for size in chosen.sizes if size >= 100_000]),
        "law": lambda: law.run(logs or law.N_LOGS, n_processes=chosen.processes),
    }
    sections = read_sections(chosen.output)
    for name in chosen.only:
        title, words = WORDS[name]
        began = time.perf_counter()
        sections[title] = f"{words}\n\n" + "\n".join(makers[name]()).strip()
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        chosen.output.write_text(as_page(sections))
    print(chosen.output.read_text())


def as_page(sections: dict[str, str]) -> str:
    known = [(title, sections[title]) for title, _ in WORDS.values() if title in sections]
    parts = ["# Learned priors and intervals", "Made by `make priors`."]
    parts += [f"## {title}\n\n{text}" for title, text in known]
    return "\n\n".join(parts) + "\n"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--logs", type=int, help="simulated logs of each kind (4 to 24)")
    parser.add_argument("--only", nargs="+", choices=list(WORDS), default=list(WORDS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument(
        "--resume", action="store_true", help="keep the logs of coverage.jsonl and crossed.jsonl"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the page to write")
    return parser.parse_args()


if __name__ == "__main__":
    main()
