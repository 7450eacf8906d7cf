"""Daily updates against fits of all days together, on logs of known users that do not change.

python -m benchmarks.updates [--days 10] [--pages 2000] [--seeds 0 1 3] writes results/updates.md
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from benchmarks.worlds import draw_pages, make_world
from gecasmo import CCM, DBN, PBM, UBM, ClickLog, Table, read_log

OUTPUT = Path(__file__).parent / "results" / "updates.md"
KINDS: dict[str, Any] = {"DBN": DBN, "UBM": UBM, "PBM": PBM, "CCM": CCM}
ANCHOR = {"PBM": {1: 1.0}, "UBM": {(1, 0): 1.0}}


def empty_model(name: str, prior: str) -> Any:
    """A model whose scale is anchored, so that it has one best fit."""
    kind = KINDS[name]
    forms: dict[str, Any] = {}
    if name in ANCHOR:
        forms["examination"] = Table(fixed=ANCHOR[name])
    if prior != "learned":
        for coin, keys in kind().keys.items():
            if "doc" in keys:
                forms[coin] = Table(pseudo_counts=(1, 1))
    return kind(**forms)


def daily_logs(
    name: str, ranker: str, days: int, pages: int, seed: int
) -> tuple[list[ClickLog], ClickLog, Any]:
    """A log for every day, one more to judge by, and the truth."""
    world = make_world(
        name, seed, n_queries=max(20, pages // 20), ranker=ranker, structure="mixture"
    )
    logs = []
    for day in range(days + 1):
        columns = draw_pages(world, pages if day < days else 5 * pages, 100 * seed + day).columns
        columns["session"] = columns["session"] + day * pages
        logs.append(read_log(pl.DataFrame(columns)))
    return logs[:-1], logs[-1], KINDS[name].with_values(**world.truth())


def joined(logs: list[ClickLog]) -> ClickLog:
    """All days as one log."""
    names = ["session", "query", "doc", "rank", "click"]
    return read_log(pl.concat([pl.DataFrame([log.column(n) for n in names]) for log in logs]))


# What could be remembered of the past, as a change to a model before it is updated.
def evidence(model: Any) -> None:
    """As many flips as a row's belief is narrow, all else held: what gecasmo does."""


def expected_counts(model: Any) -> None:
    """Expected flips, hidden ones too."""
    _change(model, lambda state: None)


def _change(model: Any, of_state: Callable[[Any], Any]) -> None:
    for coin, state in model.states_.items():
        if hasattr(state, "evidence"):
            model.states_[coin] = replace(state, evidence=of_state(state))


def each_by_itself(model: Any) -> None:
    """Rows that do not know how what was said of them depends on shared coins."""
    for coin, state in model.states_.items():
        if getattr(state, "leans", None) is not None:
            model.states_[coin] = replace(state, leans=None)


ALTERNATIVES = {
    "evidence": evidence,
    "each by itself": each_by_itself,
    "expected counts": expected_counts,
}


def compared(updated: Any, refit: Any, truth: Any, test: ClickLog) -> dict[str, float]:
    """How far an updated model is from a fit of all, in its standard errors, and from the truth."""
    found = {
        "held out": 1000 * (updated.score(test) - refit.score(test)),
        "of truth": 1000 * (truth.score(test) - refit.score(test)),
    }
    for kind in ("rows", "shared"):
        parts = []
        for coin in updated.forms:
            is_rows = "doc" in updated.keys[coin]
            if is_rows != (kind == "rows"):
                continue
            keys = list(updated.keys[coin])
            a, b = updated.estimates(coin), refit.estimates(coin)
            real = truth.probability(coin, b)
            b = b.with_columns(pl.Series("truth", real)).filter(pl.col("spread") > 0)
            both = (
                a.join(b, on=keys, suffix="_refit")
                if keys
                else pl.concat(
                    [a, b.select(pl.all().name.suffix("_refit")).rename({"truth_refit": "truth"})],
                    how="horizontal",
                )
            )
            parts.append(both.filter(pl.col("trials_refit") >= 20).select(pl.exclude(keys)))
        both = pl.concat(parts)
        off = (both["probability"] - both["probability_refit"]) / both["spread_refit"]
        found[f"{kind} off"] = float(np.sqrt((off**2).mean()))
        for which in ("", "_refit"):
            off = (both[f"probability{which}"] - both["truth"]) / both["spread_refit"]
            found[f"{kind} error{which}"] = float(np.sqrt((off**2).mean()))
            inside = (both["truth"] >= both[f"low{which}"]) & (
                both["truth"] <= both[f"high{which}"]
            )
            found[f"{kind} coverage{which}"] = float(inside.mean())
            found[f"{kind} spread{which}"] = float(
                (both[f"spread{which}"] / both["spread_refit"]).mean()
            )
    return found


def run(
    name: str, ranker: str, prior: str, how: str, days: int, first: int, pages: int, seed: int
) -> dict[str, float]:
    """One history: a fit of the first days, then an update a day."""
    logs, test, truth = daily_logs(name, ranker, days, pages, seed)
    change = ALTERNATIVES[how]
    began = time.perf_counter()
    refit = empty_model(name, prior).fit(joined(logs), progress=False)
    fitted = time.perf_counter()
    model = empty_model(name, prior).fit(joined(logs[:first]), progress=False)
    started = time.perf_counter()
    for log in logs[first:]:
        change(model)
        model.update(log, 1.0, progress=False)
    took = (time.perf_counter() - started) / max(days - first, 1)
    return compared(model, refit, truth, test) | {"refit s": fitted - began, "update s": took}


HEAD = (
    "| model | first fit | remembered | log-likelihood of refit minus update, per page, in 1/1000 "
    "| of truth minus refit | rows off | shared off | rows covered (refit) "
    "| shared covered (refit) | refit s | update s |"
)


def line(name: str, first: int, how: str, mean: dict[str, float]) -> str:
    """A row of the table."""
    covered = [
        f"{mean[f'{kind} coverage']:.2f} ({mean[f'{kind} coverage_refit']:.2f})"
        for kind in ("rows", "shared")
    ]
    days = "1 day" if first == 1 else f"{first} days"
    return (
        f"| {name} | {days} | {how} | {-mean['held out']:.2f} | {mean['of truth']:.1f} | "
        f"{mean['rows off']:.2f} | {mean['shared off']:.2f} | {covered[0]} | {covered[1]} | "
        f"{mean['refit s']:.1f} | {mean['update s']:.1f} |"
    )


def main() -> None:
    """Print a line for every model, kind of memory and length of the first fit."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--first", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--pages", type=int, default=2_000)
    # A fit of a PBM to the log of seed 2 does not converge.
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 3])
    parser.add_argument("--models", nargs="+", default=["DBN", "PBM"])
    parser.add_argument("--how", nargs="+", default=["evidence", "each by itself"])
    parser.add_argument("--ranker", default="good")
    parser.add_argument("--prior", default="learned")
    given = parser.parse_args()
    lines = [HEAD, "|---" * 11 + "|"]
    print("\n".join(lines), flush=True)
    for first in given.first:
        for name in given.models:
            for how in given.how:
                found = [
                    run(name, given.ranker, given.prior, how, given.days, first, given.pages, seed)
                    for seed in given.seeds
                ]
                mean = {key: float(np.mean([f[key] for f in found])) for key in found[0]}
                lines.append(line(name, first, how, mean))
                print(lines[-1], flush=True)
    OUTPUT.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
