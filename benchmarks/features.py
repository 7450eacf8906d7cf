"""DBN with logistic attraction and satisfaction: EM here against CLAX's minibatches, in one run.

    PYTHONPATH=src:. python -m benchmarks.features            # makes .clax for the rival
    PYTHONPATH=src:. python -m benchmarks.features --quick    # shows that it works

The log has 100,000 items with 8 features each. CLAX runs in an environment of its own; if that
cannot be made, the report says so. Writes results/features.md and a line of history.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.clax_environment import clax_python
from benchmarks.linear_log import LinearLog, linear_log, log_likelihood, save_npz
from benchmarks.machine import describe_machine, load_average
from benchmarks.report import RESULTS
from gecasmo import DBN, EM, ClickLog, Logistic, read_log
from gecasmo.estimation.problem import Problem

ROOT = Path(__file__).parent
TOLERANCE = 0.001
SEEDS = (1, 2, 3)
# How CLAX is run; see the report.
SETTINGS = {
    "example": "--epochs 4 --checks 5",
    "tuned": "--batch-size 2048 --lr 0.1 --decay --epochs 0.5 --checks 20",
    "long": "--lr 0.03 --decay --epochs 10",
}


@dataclass
class Clock:
    """Seconds spent in methods of a class, while it runs."""

    seconds: dict[str, float] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)

    def watch(self, owner: type, name: str) -> None:
        method = getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            began = time.perf_counter()
            try:
                return method(*arguments, **options)
            finally:
                took = time.perf_counter() - began
                self.seconds[name] = self.seconds.get(name, 0.0) + took
                self.calls[name] = self.calls.get(name, 0) + 1

        setattr(owner, name, timed)


def main() -> None:
    options = _parse()
    n_held_out = max(10_000, options.pages // 10)
    _say(f"simulating {options.pages + n_held_out:,} pages")
    log = linear_log(options.pages + n_held_out)
    train, held_out = log.split(n_held_out)
    figures: dict[str, Any] = {
        "machine": describe_machine(),
        "n_pages": options.pages,
        "load_before": load_average(),
        "truth": log_likelihood(held_out, log.weights),
    }
    figures["gecasmo"] = _measure_gecasmo(train, held_out)
    figures["clax"] = _measure_clax(log, n_held_out)
    figures["load_after"] = load_average()
    page = _report(figures)
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "features.md").write_text(page)
    with (options.folder / "features.jsonl").open("a") as file:
        file.write(json.dumps(figures) + "\n")
    print(page)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.pages = options.pages or (20_000 if options.quick else 1_000_000)
    return options


def as_log(log: LinearLog) -> ClickLog:
    n_pages, n_ranks = log.item.shape
    return read_log(
        pl.DataFrame(
            {
                "session": np.repeat(np.arange(n_pages), n_ranks),
                "doc": log.item.ravel(),
                "rank": np.tile(np.arange(1, n_ranks + 1), n_pages),
                "click": log.clicks.ravel(),
            }
        )
    )


def _measure_gecasmo(train: LinearLog, held_out: LinearLog) -> dict[str, Any]:
    names = [f"x{number}" for number in range(train.features.shape[1])]
    items = pl.DataFrame(dict(zip(names, train.features.T, strict=True))).with_columns(
        doc=pl.int_range(len(train.features), dtype=pl.Int32)
    )
    both = {"attraction": items, "satisfaction": items}
    log, test = as_log(train), as_log(held_out)

    def model() -> DBN:
        return DBN(attraction=Logistic(*names), satisfaction=Logistic(*names))

    model().fit(log.take(np.arange(1000)), features=both)  # compile first
    _say("gecasmo: EM")
    clock = Clock()
    clock.watch(Problem, "maximise")
    began = time.perf_counter()
    fitted = model().fit(log, features=both)
    seconds = time.perf_counter() - began
    m_seconds, m_steps = clock.seconds["maximise"], clock.calls["maximise"]
    history = fitted.history
    limit = fitted.score(test)
    rounds = history.filter(pl.col("iteration") > 0)
    reached: dict[float, float] = {}
    for record in rounds.rows(named=True):
        early = model()
        early.fit(log, EM(max_iter=record["iteration"], tol=0), features=both)
        for tolerance in (TOLERANCE, TOLERANCE / 10):
            if early.score(test) >= limit - tolerance:
                reached.setdefault(tolerance, record["seconds"])
        if len(reached) == 2:
            break
    em_seconds = float(history["seconds"][-1])
    truth = train.weights
    attraction = fitted.coefficients["attraction"]
    error = np.abs(attraction["coefficient"].to_numpy()[1:] - truth.attraction)
    return {
        "fit_seconds": seconds,
        "em_seconds": em_seconds,
        "iterations": int(history["iteration"][-1]),
        "n_evaluations": fitted.report_.n_evaluations,  # type: ignore[union-attr]
        "seconds_per_iteration": em_seconds / int(history["iteration"][-1]),
        "m_step_share": m_seconds / em_seconds,
        "m_step_seconds": m_seconds / m_steps,
        "encode_and_errors_seconds": seconds - em_seconds,
        "seconds_to_within": reached.get(TOLERANCE),
        "seconds_to_within_closely": reached.get(TOLERANCE / 10),
        "held_out": limit,
        "worst_coefficient_error": float(error.max()),
        "worst_error_in_standard_errors": float(
            (error / attraction["standard_error"].to_numpy()[1:]).max()
        ),
    }


def _measure_clax(log: LinearLog, n_held_out: int) -> dict[str, Any]:
    try:
        python = clax_python(_say)
        with tempfile.TemporaryDirectory(prefix="gecasmo-benchmark-") as folder:
            source, target = Path(folder) / "log.npz", Path(folder) / "clax.json"
            save_npz(log, n_held_out, source)

            def run(setting: str, seed: int, limit: float | None) -> dict[str, Any]:
                command = [str(python), str(ROOT / "clax_linear.py"), str(source), str(target)]
                options = [*SETTINGS[setting].split(), "--seed", str(seed)]
                options += [] if limit is None else ["--limit", str(limit)]
                _say(f"CLAX: {setting}, seed {seed}")
                subprocess.run([*command, *options], check=True, stdout=subprocess.DEVNULL)
                answer: dict[str, Any] = json.loads(target.read_text())
                return answer

            limit = max(run("long", 1, None)["held_out_log_likelihood"])
            return {
                "limit": limit,
                **{
                    setting: [run(setting, seed, limit) for seed in SEEDS]
                    for setting in ("example", "tuned")
                },
            }
    except (OSError, subprocess.CalledProcessError) as error:
        return {"absent": f"CLAX could not be run here: {error}"}


def _report(figures: dict[str, Any]) -> str:
    machine, ours, theirs = figures["machine"], figures["gecasmo"], figures["clax"]
    lines = [
        "# Benchmark: logistic forms",
        "",
        f"DBN, attraction and satisfaction logistic in 8 features of an item, one continuation; "
        f"{figures['n_pages']:,} pages of 10 results over 100,000 items. {machine['moment']}, "
        f"commit {machine['commit']}, {machine['processor']} with {machine['n_processors']} "
        "processors. Processes that wanted a processor before and at the end: "
        f"{figures['load_before']:.1f} and {figures['load_after']:.1f}.",
        "",
        "## EM with `Logistic`",
        "",
        "| | |",
        "|---|---|",
        f"| `fit(log)`, s | {ours['fit_seconds']:.2f} |",
        f"| of it EM | {ours['em_seconds']:.2f} |",
        f"| of it sorting the log into rows, and standard errors | "
        f"{ours['encode_and_errors_seconds']:.2f} |",
        f"| M-steps, E-steps | {ours['iterations']}, {ours['n_evaluations']} |",
        f"| s per iteration | {ours['seconds_per_iteration']:.3f} |",
        f"| M-step, s | {ours['m_step_seconds']:.3f} |",
        f"| share of EM spent in the M-step | {ours['m_step_share']:.0%} |",
        f"| largest error of a coefficient of attraction | {ours['worst_coefficient_error']:.4f} "
        f"({ours['worst_error_in_standard_errors']:.1f} standard errors) |",
        "",
        "## Against minibatches",
        "",
    ]
    if "absent" in theirs:
        return "\n".join([*lines, f"**{theirs['absent']}**", ""])
    versions = ", ".join(
        f"{name} {number}" for name, number in theirs["example"][0]["versions"].items()
    )

    def median(setting: str, figure: Callable[[dict[str, Any]], float | None]) -> str:
        found = [figure(one) for one in theirs[setting]]
        reached = [value for value in found if value is not None]
        if 2 * len(reached) <= len(found):
            return "not reached"
        return f"{np.median([np.inf if value is None else value for value in found]):.2f}"

    def row(name: str, own: str, figure: Callable[[dict[str, Any]], float | None]) -> str:
        return f"| {name} | {own} | {median('example', figure)} | {median('tuned', figure)} |"

    lines += [
        f"Seconds of training until the held-out log-likelihood a page is within {TOLERANCE:g} of "
        "the method's own limit; for CLAX the median over "
        f"{len(SEEDS)} random starts, its limit that of a long run. Its seconds leave out "
        "importing and compiling, ours sorting the log into rows. *Example*: the settings of its "
        "configuration; *tuned*: the fastest that we found with which every start gets there.",
        "",
        "| | gecasmo, EM | CLAX, example | CLAX, tuned |",
        "|---|---|---|---|",
        row(
            f"to within {TOLERANCE:g}, s",
            _number(ours["seconds_to_within"]),
            lambda one: one["seconds_to_within"]["0.001"],
        ),
        row(
            "to within 0.0001, s",
            _number(ours["seconds_to_within_closely"]),
            lambda one: one["seconds_to_within"]["0.0001"],
        ),
        row(
            "one pass over the log, s",
            _number(ours["seconds_per_iteration"]),
            lambda one: one["seconds_per_epoch"],
        ),
        row("importing, s", "", lambda one: one["import_seconds"]),
        row("compiling, s", "", lambda one: one["compile_seconds"]),
        "",
        f"Limits: gecasmo {ours['held_out']:.4f}, CLAX {theirs['limit']:.4f}, the truth "
        f"{figures['truth']:.4f}. CLAX: {versions}; example `{SETTINGS['example']}`, tuned "
        f"`{SETTINGS['tuned']}`. EM needs no learning rate, and its second answer is as exact as "
        "its first.",
        "",
    ]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
