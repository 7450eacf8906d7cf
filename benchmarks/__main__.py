"""Make the logs, take all figures, write them down."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

import gecasmo
from benchmarks.e_step import CASES, measure_e_step
from benchmarks.fresh_process import measure_first_fit, measure_memory
from benchmarks.logs import KINDS, SimulatedLog, simulate_log
from benchmarks.machine import describe_machine, load_average
from benchmarks.report import RESULTS, Figures, write_report
from benchmarks.sweeps import MODELS, measure_sweeps
from benchmarks.whole_fit import measure_fits
from benchmarks.zoo import measure_zoo
from gecasmo import ClickLog

PARTS = ("e_step", "sweeps", "fit", "compile", "memory", "zoo")
FITTED = (gecasmo.DBN, gecasmo.UBM)
QUICK_PAGES, QUICK_ROUNDS = 20_000, 3
ZOO_PAGES = 100_000
_BEGAN = time.perf_counter()


def main() -> None:
    options = _parse()
    figures = Figures(describe_machine(), options.pages, options.rounds, load_before=load_average())
    for kind in KINDS if set(options.parts) - {"zoo", "compile"} else ():
        _say(f"{kind}: simulate and read {options.pages:,} pages")
        simulated = simulate_log(kind, options.pages)
        log = _read(simulated, figures)
        if "e_step" in options.parts:
            _measure_e_steps(log, kind, figures)
        if "sweeps" in options.parts:
            _measure_sweeps(log, kind, figures)
        if "fit" in options.parts:
            _measure_fits(log, kind, figures)
        if "memory" in options.parts:
            del log
            _measure_memory(simulated, figures)
    if not set(options.parts) & {"e_step", "fit", "memory"}:
        figures.logs.clear()  # sweeps say what they were measured on
    if "compile" in options.parts:
        _measure_first_fits(figures)
    if "zoo" in options.parts:
        _measure_zoo(figures)
    figures.load_after = load_average()
    page = write_report(figures, options.folder)
    _say(f"written to {options.folder}/latest.md and history.jsonl")
    print(page)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--pages", type=int, help="pages of each log (1,000,000)")
    parser.add_argument("--rounds", type=int, help="rounds of each E-step (11)")
    parser.add_argument("--quick", action="store_true", help="a small run that shows it works")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="only these")
    parser.add_argument("--folder", type=Path, default=RESULTS, help="where to write the results")
    options = parser.parse_args()
    options.pages = options.pages or (QUICK_PAGES if options.quick else 1_000_000)
    options.rounds = options.rounds or (QUICK_ROUNDS if options.quick else 11)
    return options


def _read(simulated: SimulatedLog, figures: Figures) -> ClickLog:
    began = time.perf_counter()
    log = simulated.read()
    figures.logs[simulated.kind] = {
        "read_seconds": time.perf_counter() - began,
        "distinct_share": simulated.distinct_share(),
        "distinct_patterns_share": simulated.distinct_patterns_share(),
        "clicks_per_page": float(simulated.click.sum()) / simulated.n_pages,
    }
    return log


def _measure_e_steps(log: ClickLog, kind: str, figures: Figures) -> None:
    for case in CASES:
        _say(f"{kind}: E-step of {case.model.__name__}")
        result = measure_e_step(case, log, kind, figures.rounds)
        figures.e_steps.append(result)
        _say(f"  {result.ratio:.2f} of the hand-written kernel (by best {result.best_ratio:.2f})")


def _measure_sweeps(log: ClickLog, kind: str, figures: Figures) -> None:
    for model in MODELS:
        one = measure_sweeps(model, log, kind, figures.rounds)
        figures.sweeps.append(one)
        _say(f"{kind}: a sweep of {one.model} takes {one.with_priors / one.e_step:.2f} E-steps")


def _measure_fits(log: ClickLog, kind: str, figures: Figures) -> None:
    for model in FITTED:
        _say(f"{kind}: fits of {model.__name__}")
        defaults, results = measure_fits(model, log, kind)
        figures.default_fits += defaults
        figures.fits += results
        for one in results:
            _say(f"  {one.method}: {one.evaluations} evaluations, {one.seconds:.2f} s")


def _measure_memory(simulated: SimulatedLog, figures: Figures) -> None:
    with tempfile.TemporaryDirectory(prefix="gecasmo-benchmark-") as folder:
        path = Path(folder) / "log.parquet"
        pl.DataFrame(simulated.columns()).write_parquet(path)
        for model in FITTED:
            _say(f"{simulated.kind}: memory of {model.__name__}")
            name = f"{model.__name__}, {simulated.kind}"
            figures.memory[name] = measure_memory(model.__name__, path)


def _measure_first_fits(figures: Figures) -> None:
    for model in FITTED:
        _say(f"first fit of {model.__name__} in new processes")
        figures.first_fits[model.__name__] = measure_first_fit(model.__name__)


def _measure_zoo(figures: Figures) -> None:
    for name in gecasmo.CATALOGUE:
        one = measure_zoo(name, min(figures.n_pages, ZOO_PAGES), figures.rounds)
        figures.zoo.append(one)
        _say(f"E-step of {name}: {one.n_pages / one.seconds / 1e6:.1f} M pages/s")


def _say(text: str) -> None:
    print(f"[{time.perf_counter() - _BEGAN:6.1f} s] {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
