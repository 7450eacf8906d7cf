"""EM with row posteriors, VB and Gibbs on simulated logs: coverage, error, seconds; calibration of
Gibbs by simulation; how fast chains move. Writes benchmarks/results/bayes.md.

The simulator is plain NumPy and shares no code with the package.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
from scipy import stats

from benchmarks.machine import describe_machine
from benchmarks.markdown import table
from benchmarks.report import RESULTS
from gecasmo import DBN, EM, PBM, VB, ClickLog, Empirical, Gibbs, Table, read_log
from gecasmo.estimation import gibbs
from gecasmo.estimation.draws import effective_draws
from gecasmo.estimation.gibbs_rows import TableRows
from gecasmo.estimation.ridge_moves import find_ridges

N_DOCS, PAGE = 12, 6
CONTINUATION = 0.85
LEVEL = 0.9
SIZES = {"dense": (20, 100), "sparse": (60, 8)}  # queries, and pages of each
GIBBS = Gibbs(draws=300, warmup=150, chains=2)
METHODS: dict[str, dict[str, Any]] = {
    "given": {
        "EM, row posteriors": EM(),
        "VB": VB(),
        "VB, all flips": VB(augmentation="full"),
        "Gibbs": GIBBS,
    },
    "learned": {
        "EM, row posteriors": EM(),
        "VB, priors by the ELBO": VB(hyper="learned"),
        "VB, priors as EM learned them": VB(),
        "Gibbs, priors sampled": GIBBS,
    },
}
MIXED: dict[Any, str] = {DBN: "continuation", PBM: "examination"}
PRIORS = {"attraction": (1.0, 3.0), "satisfaction": (2.0, 2.0), "continuation": (1.0, 1.0)}


@dataclass(frozen=True)
class Truth:
    """The coins of one simulated log, `[query, doc]`."""

    attraction: Any
    satisfaction: Any
    continuation: Any  # a number, or one for each query

    def of(self, coin: str, rows: pl.DataFrame) -> Any:
        """The true probability of rows of a coin."""
        if coin == "continuation":
            return np.atleast_1d(self.continuation)[rows["query"] if "query" in rows.columns else 0]
        values: Any = getattr(self, coin)
        return values[rows["query"].to_numpy(), rows["doc"].to_numpy() % N_DOCS]


def simulate(n_queries: int, n_pages: int, truth: Truth, rng: np.random.Generator) -> ClickLog:
    """Pages in random order, and users who behave as a DBN says."""
    query = np.repeat(np.arange(n_queries), n_pages)
    doc = np.argsort(rng.random((len(query), N_DOCS)), axis=1)[:, :PAGE]
    click = np.zeros(doc.shape, int)
    there = np.ones(len(query), bool)
    continues = np.broadcast_to(truth.continuation, n_queries)[query]
    for t in range(PAGE):
        attracted = there & (rng.random(len(query)) < truth.attraction[query, doc[:, t]])
        click[:, t] = attracted
        satisfied = attracted & (rng.random(len(query)) < truth.satisfaction[query, doc[:, t]])
        there &= ~satisfied & (rng.random(len(query)) < continues)
    return read_log(
        {
            "session": np.repeat(np.arange(len(query)), PAGE),
            "query": np.repeat(query, PAGE),
            "doc": (doc + N_DOCS * query[:, None]).ravel(),
            "rank": np.tile(np.arange(1, PAGE + 1), len(query)),
            "click": click.ravel(),
        }
    )


def forms_of(priors: str) -> dict[str, Table]:
    """Tables whose priors are those that truths were drawn from, or learned."""
    if priors == "given":
        return {coin: Table(pseudo_counts=prior) for coin, prior in PRIORS.items()}
    return {coin: Table(prior=Empirical(by=())) for coin in ("attraction", "satisfaction")}


def compare_methods(n_logs: int, priors: str) -> list[dict[str, Any]]:
    """Coverage of intervals, error of means and seconds, for each kind of log, method and coin."""
    lines = []
    for kind, (n_queries, n_pages) in SIZES.items():
        found: dict[tuple[str, str], list[Any]] = {}
        for number in range(n_logs):
            rng = np.random.default_rng([number, n_pages])
            truth = Truth(
                rng.beta(*PRIORS["attraction"], (n_queries, N_DOCS)),
                rng.beta(*PRIORS["satisfaction"], (n_queries, N_DOCS)),
                CONTINUATION,
            )
            log = simulate(n_queries, n_pages, truth, rng)
            for name, method in METHODS[priors].items():
                began = time.process_time()
                model = DBN(**forms_of(priors)).fit(log, method, threads=1)
                seconds = time.process_time() - began
                for coin in model.forms:
                    rows = model.estimates(coin, level=LEVEL)
                    true = truth.of(coin, rows)
                    inside = (rows["low"].to_numpy() <= true) & (true <= rows["high"].to_numpy())
                    error = (rows["probability"].to_numpy() - true) ** 2
                    found.setdefault((name, coin), []).append((inside, error, seconds))
        for (name, coin), runs in found.items():
            inside, error = (np.concatenate([run[part] for run in runs]) for part in (0, 1))
            lines.append(
                {
                    "log": kind,
                    "method": name,
                    "coin": coin,
                    "coverage": inside.mean(),
                    "error": np.sqrt(error.mean()),
                    "seconds": float(np.mean([run[2] for run in runs])),
                }
            )
    return lines


class _Heavy(TableRows):
    """A sampler that is wrong on purpose: it counts every flip twice."""

    def draw(self, hyper: Any, counts: Any, before: Any, key: int) -> Any:
        """Rows given too many flips."""
        return super().draw(hyper, 2.0 * counts, before, key)


def calibrate(n_logs: int, rows: type[TableRows] = TableRows) -> list[tuple[str, float, float]]:
    """Simulation-based calibration (Talts and others 2018): truths drawn from the prior have ranks
    among posterior draws that are uniform. The mean rank, and the p-value of a chi-square test.

    Each query has coins of its own, continuation too, so that one fit is a fit of many small logs.
    Draws that follow each other are alike, which alone makes ranks uneven; so one of ten is taken:
    99 draws, ranks from 0 to 99, ten bins of ten ranks.
    """
    priors = {"attraction": (1.0, 2.0), "satisfaction": (1.0, 1.0), "continuation": (4.0, 1.0)}
    rng = np.random.default_rng(7)
    shape = (n_logs, N_DOCS)
    truth = Truth(
        rng.beta(*priors["attraction"], shape),
        rng.beta(*priors["satisfaction"], shape),
        rng.beta(*priors["continuation"], n_logs),
    )
    log = simulate(n_logs, 30, truth, rng)
    forms = {coin: Table(pseudo_counts=prior) for coin, prior in priors.items()}
    forms["continuation"].key = ("query",)
    method = Gibbs(draws=990, warmup=100, chains=1, seed=1, keep=99)
    with mock.patch.object(gibbs, "TableRows", rows):
        model = DBN(**forms).fit(log, method, threads=1)
    lines = []
    for coin in priors:
        found, draws = model.estimates(coin), model.draws(coin)[0]
        assert len(draws) == 99
        ranks = (draws < truth.of(coin, found)).sum(axis=0)
        # One row of each query: those of one log are not independent.
        first = found["query"].is_first_distinct().to_numpy()
        assert first.sum() == n_logs
        counts = np.bincount(ranks[first] // 10, minlength=10)
        mean = float(ranks[first].mean()) / 99
        lines.append((coin, mean, float(stats.chisquare(counts).pvalue)))
    return lines


def mixing() -> list[tuple[str, str, str, float]]:
    """Sweeps that one independent draw takes, of coins that all pages share: with what is usual,
    with all flips drawn, and without moves along ridges."""
    rng = np.random.default_rng(4)
    truth = Truth(rng.beta(1, 3, (20, N_DOCS)), rng.beta(2, 2, (20, N_DOCS)), CONTINUATION)
    log = simulate(20, 100, truth, rng)
    given = {
        model: {coin: Table(pseudo_counts=(1, 1)) for coin in model().forms} for model in MIXED
    }
    first = {"examination": Table(pseudo_counts=(1, 1), fixed={1: 1.0})}
    cases: list[tuple[str, Any, dict[str, Any]]] = [
        ("continuation of DBN, priors given", DBN, given[DBN]),
        ("continuation of DBN, priors sampled", DBN, {}),
        ("examination of PBM, priors and first rank given", PBM, given[PBM] | first),
        ("examination of PBM, priors sampled", PBM, {}),
    ]
    lines = []
    for name, model, forms in cases:
        for augmentation, moves in (("minimal", True), ("full", True), ("minimal", False)):
            with mock.patch.object(gibbs, "find_ridges", find_ridges if moves else _none):
                method = Gibbs(draws=1000, warmup=400, chains=2, augmentation=augmentation)
                fit = model(**forms).fit(log, method, threads=1)
            draws = fit.draws(MIXED[model])
            # A row that is given has no draws to speak of.
            rows = [row for row in np.moveaxis(draws, 2, 0) if row.std() > 0]
            times = [row.size / effective_draws(row) for row in rows]
            lines.append((name, augmentation, "yes" if moves else "no", float(np.max(times))))
    return lines


def _none(*given: Any) -> list[Any]:
    return []


def _compared(lines: list[dict[str, Any]]) -> list[str]:
    header = (
        "log",
        "method",
        "coin",
        "90 % intervals hold",
        "root mean square error",
        "CPU seconds",
    )
    return table(
        header,
        (
            (
                line["log"],
                line["method"],
                line["coin"],
                f"{100 * line['coverage']:.0f} %",
                f"{line['error']:.4f}",
                f"{line['seconds']:.2f}",
            )
            for line in lines
        ),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=20, help="logs of each kind, priors given")
    parser.add_argument("--learned", type=int, default=8, help="the same, priors learned")
    parser.add_argument("--calibrated", type=int, default=1000, help="logs for calibration")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # short chains
    began = time.process_time()
    compare_methods(1, "given")  # so that compiling is not timed
    compared = {
        f"Priors that are given ({options.logs} logs of each kind):": compare_methods(
            options.logs, "given"
        ),
        f"Priors that are learned ({options.learned} logs of each kind):": compare_methods(
            options.learned, "learned"
        ),
    }
    calibrated = {
        f"Gibbs, {options.calibrated} logs": calibrate(options.calibrated),
        f"wrong on purpose, {options.calibrated} logs": calibrate(options.calibrated, _Heavy),
    }
    moved = mixing()
    machine = describe_machine()
    n_rows = {kind: queries * N_DOCS for kind, (queries, _) in SIZES.items()}
    told = [f"{kind}: {n_rows[kind]} pairs, {q * p:,} pages" for kind, (q, p) in SIZES.items()]
    lines = [
        "# EM, variational Bayes and Gibbs sampling",
        "",
        f"By `make bayes`: {'; '.join(told)}; pages of {PAGE} results in random order, DBN. "
        f"{machine['processor']}, one thread.",
        "",
        *(line for title, found in compared.items() for line in (title, "", *_compared(found))),
        "Simulation-based calibration of Gibbs on logs of 30 pages, truths drawn from the prior; "
        "beside it a sampler that counts every flip twice:",
        "",
        *table(
            ("sampler", "coin", "mean rank of the truth (0.5 if right)", "p of uniform ranks"),
            (
                (sampler, coin, f"{mean:.3f}", f"{p:.2g}")
                for sampler, lines in calibrated.items()
                for coin, mean, p in lines
            ),
        ),
        "Sweeps that one independent draw takes (the slowest row; dense log, 2 chains of 1,000 "
        "draws, so that above 100 it is hardly more than a guess):",
        "",
        *table(
            ("coin", "flips that are drawn", "moves along ridges", "sweeps"),
            ((coin, which, moves, f"{sweeps:.0f}") for coin, which, moves, sweeps in moved),
        ),
        f"Made in {time.process_time() - began:.0f} CPU seconds.",
        "",
    ]
    page = "\n".join(lines)
    (options.folder / "bayes.md").write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
