"""How often 90 % intervals hold the truth, and how far estimates are off, over simulated logs.

    PYTHONPATH=. python -m benchmarks.coverage                                   # everything
    PYTHONPATH=. python -m benchmarks.coverage --logs 2 --regimes good --models DBN,PBM

Every log is a line of results/coverage.jsonl for each coin, with sums, so that a run can be gone
on with (`--resume`) and tables be made of any part. `priors.py` writes the tables.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.markdown import table
from benchmarks.world_models import fit_quietly, in_processes, unfitted
from benchmarks.worlds import MODELS, World, as_log, draw_pages, make_world

OUTPUT = Path(__file__).parent / "results" / "coverage.jsonl"
LEVEL = 0.9
# What coverage should be: of rows, and of coins that all pages share, of which there are few. Cells
# that are outside by more than two standard errors are marked.
WANTED, WANTED_SHARED = (0.87, 0.93), (0.80, 0.97)
N_LOGS = 24
N_PAGES = 8_000
REGIMES: dict[str, dict[str, Any]] = {
    "dense": {"n_queries": 20, "n_candidates": 15, "ranker": "random", "traffic": "uniform"},
    "good": {"n_queries": 60, "n_candidates": 25, "ranker": "good", "traffic": "zipf"},
    "good-sparse": {"n_queries": 1500, "n_candidates": 25, "ranker": "good", "traffic": "uniform"},
    "sparse": {"n_queries": 1500, "n_candidates": 15, "ranker": "random", "traffic": "uniform"},
    "bimodal": {
        **{"n_queries": 60, "n_candidates": 25, "ranker": "good", "traffic": "zipf"},
        "structure": "bimodal",
    },
}
WORDS = {
    "dense": "dense, random order",
    "good": "good ranker",
    "good-sparse": "good ranker, sparse",
    "sparse": "sparse, random order",
    "bimodal": "good ranker, good and bad pairs",
}
# Classes of rows by `trials`, the expected flips behind them: from, to below.
CLASSES = {"<1": (0, 1), "1 to 5": (1, 5), "5 to 20": (5, 20), "≥20": (20, np.inf)}
SATISFACTION_CLASSES = {"≥5": (5, np.inf)}

Line = dict[str, Any]


def measure(regime: str, model: str, seed: int) -> list[Line]:
    """One simulated log: a line for each coin."""
    world = make_world(model, seed, **REGIMES[regime])
    log = as_log(draw_pages(world, N_PAGES, seed))
    began = time.perf_counter()
    fitted = fit_quietly(unfitted(model), log)
    head = {"regime": regime, "model": model, "log": seed}
    head["seconds"] = round(time.perf_counter() - began, 2)
    lines = [head | {"coin": "attraction", "classes": sums(fitted, world, "attraction", CLASSES)}]
    if world.satisfaction is not None:
        classes = sums(fitted, world, "satisfaction", SATISFACTION_CLASSES)
        lines.append(head | {"coin": "satisfaction", "classes": classes})
    shared = [head | {"coin": coin, "rows": rows(fitted, world, coin)} for coin in world.shared]
    return lines + shared


def sums(fitted: Any, world: World, coin: str, classes: dict[str, Any]) -> dict[str, Line]:
    """By class of trials, over pairs that were shown."""
    truth = world.truth()[coin].rename({"probability": "true"})
    found = fitted.estimates(coin, level=LEVEL).join(truth, on=["query", "doc"], how="left")
    found = _judge(found)
    result = {}
    for name, (least, below) in classes.items():
        part = found.filter((pl.col("trials") >= least) & (pl.col("trials") < below))
        sure = part.filter(pl.col("identified"))
        result[name] = {
            "n": len(part),
            "identified": len(sure),
            "covered": int(sure["covered"].sum()),
            "bias": float(sure["bias"].sum()),
            "width": float((sure["high"] - sure["low"]).sum()),
        }
    return result


def rows(fitted: Any, world: World, coin: str) -> dict[str, Line]:
    """By row of a coin that all pages share; rows that are given do not count."""
    found = fitted.estimates(coin, level=LEVEL).filter(pl.col("rests_on") != "given")
    truth = world.shared[coin]
    if isinstance(truth, dict):
        key = fitted.keys[coin]
        names = [one[0] if len(key) == 1 else one for one in found.select(key).rows()]
        found = found.with_columns(true=pl.Series([truth[name] for name in names]))
    else:
        names = ["all"]
        found = found.with_columns(true=pl.lit(truth))
    # A row that nobody can have flipped, such as going on after the last rank, has only its prior.
    found = _judge(found).with_columns(pl.col("identified") & (pl.col("trials") > 0))
    kept = found.select("identified", "covered", "bias", "spread").to_dicts()
    return {str(name): one for name, one in zip(names, kept, strict=True)}


def _judge(found: pl.DataFrame) -> pl.DataFrame:
    """Whether there is an interval, whether it holds the truth, and how far off the estimate is."""
    low, high, true = pl.col("low"), pl.col("high"), pl.col("true")
    identified = low.is_finite().fill_null(False) & high.is_finite().fill_null(False)
    return found.with_columns(
        identified=identified,
        covered=(identified & (low <= true) & (true <= high)).fill_null(False),
        bias=pl.col("probability") - true,
    )


def run(
    n_logs: int = N_LOGS,
    regimes: Iterable[str] = tuple(REGIMES),
    models: Iterable[str] = MODELS,
    n_processes: int = 2,
    output: Path = OUTPUT,
    resume: bool = False,
) -> list[Line]:
    """Measure, and write every line as soon as it is known."""
    models = list(models)
    wanted = [(r, m, seed) for seed in range(n_logs) for r in regimes for m in models]
    lines = read(output) if resume and output.exists() else []
    done = {_name(line) for line in lines}
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("a" if resume else "w") as file:
        tasks = [task for task in wanted if task not in done]
        for found in in_processes(measure, tasks, n_processes):
            lines += found
            file.writelines(json.dumps(line) + "\n" for line in found)
            file.flush()
    return [line for line in lines if _name(line) in set(wanted)]


def read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _name(line: Line) -> tuple[str, str, int]:
    return line["regime"], line["model"], line["log"]


def as_markdown(lines: list[Line]) -> list[str]:
    """Tables for the coins of pairs and for those that all pages share."""
    lines = sorted(lines, key=_place)
    groups = [(key[3:], list(group)) for key, group in groupby(lines, key=_place)]
    pairs = [_pair_row(key, group) for key, group in groups if "classes" in group[0]]
    shared = [_shared_row(key, group) for key, group in groups if "rows" in group[0]]
    names = [f"{name} trials" for name in CLASSES]
    return [
        "Covered, with its standard error over logs, and in brackets the mean of estimate minus "
        f"truth in thousandths. {_marked(WANTED)}",
        "",
        *table(["log", "model", "coin", "logs", *names, "≥5 trials", "not identified"], pairs),
        "Coins that all pages share; all rows together, and the row that is furthest off: its "
        "bias, the standard error of that over logs, and how many of the standard deviations that "
        "the fit itself reports of this row it is. "
        f"{_marked(WANTED_SHARED)}",
        "",
        *table(
            [
                *["log", "model", "coin", "logs", "covered", "furthest off", "its bias"],
                *["standard error", "of its spread", "not identified"],
            ],
            shared,
        ),
    ]


def _marked(wanted: tuple[float, float]) -> str:
    low, high = wanted
    return (
        f"Marked by * is what is more than two standard errors outside of {low:.0%} to {high:.0%}."
    )


def share_covered(covered: list[int], total: list[int], wanted: tuple[float, float]) -> str:
    """The share of rows that are covered, and its standard error; rows of one log have much in
    common, so logs are what is counted."""
    hits, n = np.array(covered, float), np.array(total, float)
    share = hits.sum() / n.sum()
    if len(n) < 2:
        return f"{share:.1%}"
    off = hits - share * n
    error = float(np.sqrt(len(n) / (len(n) - 1) * (off @ off)) / n.sum())
    if error == 0:  # where all logs agree: as if one more did so by half
        error = 0.5 / (len(n) + 1)
    is_outside = share < wanted[0] - 2 * error or share > wanted[1] + 2 * error
    return f"{100 * share:.1f} ± {100 * error:.1f}%{' *' if is_outside else ''}"


def _place(line: Line) -> tuple[int, int, int, str, str, str]:
    """Order of the tables, and what a row is about."""
    regime, model, coin = line["regime"], line["model"], line["coin"]
    kinds = ("attraction", "satisfaction")
    kind = kinds.index(coin) if coin in kinds else len(kinds)
    return list(REGIMES).index(regime), MODELS.index(model), kind, regime, model, coin


def _pair_row(key: tuple[Any, ...], lines: list[Line]) -> list[str]:
    cells = {name: _class_cell([line["classes"].get(name) for line in lines]) for name in CLASSES}
    enough = _class_cell([line["classes"].get("≥5") for line in lines])
    every = [one for line in lines for one in line["classes"].values()]
    missing = sum(one["n"] - one["identified"] for one in every)
    share = missing / max(1, sum(one["n"] for one in every))
    return [WORDS[key[0]], *key[1:], str(len(lines)), *cells.values(), enough, _share(share)]


def _class_cell(found: list[Line | None]) -> str:
    """Coverage of all rows of a class over all logs; nothing if there are too few."""
    known = [one for one in found if one is not None]
    n = sum(one["identified"] for one in known)
    if n < 20:
        return "" if not known else "-"
    known = [one for one in known if one["identified"]]
    hits, totals = [one["covered"] for one in known], [one["identified"] for one in known]
    bias = sum(one["bias"] for one in known) / n
    return f"{share_covered(hits, totals, WANTED)} ({1000 * bias:+.0f})"


def _shared_row(key: tuple[Any, ...], lines: list[Line]) -> list[str]:
    every = [one for line in lines for one in line["rows"].values()]
    sure = [one for one in every if one["identified"]]
    missing = _share(1 - len(sure) / len(every))
    head = [WORDS[key[0]], *key[1:], str(len(lines))]
    if not sure:
        return [*head, "-", "-", "-", "-", "-", missing]
    known: dict[str, list[tuple[float, float]]] = {}
    for line in lines:
        for name, one in line["rows"].items():
            if one["identified"]:
                known.setdefault(name, []).append((one["bias"], one["spread"]))
    worst = max(known, key=lambda name: abs(np.mean(known[name], axis=0)[0]))
    off, spread = np.array(known[worst]).T
    error = f"{off.std(ddof=1) / np.sqrt(len(off)):.4f}" if len(off) > 1 else "-"
    logs = [[one for one in line["rows"].values() if one["identified"]] for line in lines]
    hits = [sum(one["covered"] for one in own) for own in logs]
    covered = share_covered(hits, [len(own) for own in logs], WANTED_SHARED)
    of_spread = f"{off.mean() / spread.mean():+.1f}"
    return [*head, covered, worst, f"{off.mean():+.4f}", error, of_spread, missing]


def _share(value: float) -> str:
    return f"{value:.1%}" if value else "0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=N_LOGS, help="simulated logs of each kind")
    parser.add_argument("--regimes", type=_names, default=list(REGIMES), help=",".join(REGIMES))
    parser.add_argument("--models", type=_names, default=list(MODELS), help=",".join(MODELS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    parser.add_argument("--resume", action="store_true", help="keep the lines that are there")
    asked = parser.parse_args()
    lines = run(
        *[asked.logs, asked.regimes, asked.models, asked.processes, asked.output, asked.resume]
    )
    print("\n".join(as_markdown(lines)))


def _names(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    main()
