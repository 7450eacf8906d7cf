"""Is the default the best way to share what is known, whatever pairs have in common?

    PYTHONPATH=. python -m benchmarks.law                                        # everything
    PYTHONPATH=. python -m benchmarks.law --logs 1 --rankers good --structures pair,document

Held-out log-likelihood a page of DBN and PBM, over rankers and over what true probabilities have in
common, for the default and for other forms. The law: the default is as good as the best of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.markdown import table
from benchmarks.world_models import fit_quietly, in_processes, true_model, unfitted
from benchmarks.worlds import RANKERS, STRUCTURES, as_log, draw_pages, make_world
from gecasmo import Empirical, Table
from gecasmo.errors import GecasmoError

MODELS = ("DBN", "PBM")
PAIR_COINS = {"DBN": ("attraction", "satisfaction"), "PBM": ("attraction",)}
N_LOGS = 4
N_PAGES = 8_000
SHAPE = {"n_queries": 100, "n_candidates": 20, "n_docs": 300}
# Made when they are asked for: a version may refuse one of them. None is the default.
FORMS: dict[str, Callable[[], Table] | None] = {
    "default": None,
    "one prior": lambda: Table(prior=Empirical(by=())),
    "by document": lambda: Table(key="doc"),
    "rank, exposure": lambda: Table(prior=Empirical(by=("rank", "exposure"))),
    "document, query": lambda: Table(prior=Empirical(by=("doc", "query"))),
    "(1, 1)": lambda: Table(pseudo_counts=(1, 1)),
}

Scores = dict[str, float | None]  # by form; None if it was refused


def measure(ranker: str, structure: str, model: str, seed: int) -> tuple[tuple[str, ...], Scores]:
    """All forms on one log: its place in the table, and held-out log-likelihood a page."""
    world = make_world(model, seed, ranker=ranker, structure=structure, **SHAPE)
    train = as_log(draw_pages(world, N_PAGES, 2 * seed))
    test = as_log(draw_pages(world, N_PAGES, 2 * seed + 1))
    scores: Scores = {name: _score(model, form, train, test) for name, form in FORMS.items()}
    scores["truth"] = true_model(world).score(test)
    return (ranker, structure, model), scores


def _score(model: str, form: Callable[[], Table] | None, train: Any, test: Any) -> float | None:
    try:
        given = {} if form is None else {coin: form() for coin in PAIR_COINS[model]}
        score: float = fit_quietly(unfitted(model, **given), train).score(test)
    except GecasmoError:
        return None
    return score


def run(
    n_logs: int = N_LOGS,
    rankers: Iterable[str] = RANKERS,
    structures: Iterable[str] = STRUCTURES,
    models: Iterable[str] = MODELS,
    n_processes: int = 2,
) -> list[str]:
    """The table, as lines of Markdown."""
    places = [(r, s, m) for m in models for r in rankers for s in structures]
    tasks = [(*place, seed) for place in places for seed in range(n_logs)]
    found: dict[tuple[str, ...], list[Scores]] = {place: [] for place in places}
    for place, scores in in_processes(measure, tasks, n_processes):
        found[place].append(scores)
    header = ["model", "ranker", "in common", *FORMS, "truth", "default to the best other"]
    return table(header, [_row(place, found[place]) for place in places])


def _row(place: tuple[str, ...], logs: list[Scores]) -> list[str]:
    """Means over logs, the best in bold, and how far the default is from the best other.

    The best other is chosen by its mean; the standard error is that of the difference over logs.
    """
    ranker, structure, model = place
    means = {name: _mean([scores[name] for scores in logs]) for name in (*FORMS, "truth")}
    others = {n: v for n, v in means.items() if v is not None and n not in ("default", "truth")}
    rival = max(others, key=lambda name: others[name])
    best = max(value for name, value in means.items() if value is not None and name != "truth")
    cells = [_cell(means[name], best) for name in means]
    apart = np.array([_difference(scores, rival) for scores in logs], dtype=float)
    error = f" ± {apart.std(ddof=1) / np.sqrt(len(apart)):.4f}" if len(apart) > 1 else ""
    return [model, ranker, structure, *cells, f"{apart.mean():+.4f}{error} ({rival})"]


def _difference(scores: Scores, rival: str) -> float:
    ours, theirs = scores["default"], scores[rival]
    return np.nan if ours is None or theirs is None else ours - theirs


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if len(known) == len(values) else None


def _cell(value: float | None, best: float) -> str:
    if value is None:
        return "-"
    return f"**{value:.4f}**" if value == best else f"{value:.4f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logs", type=int, default=N_LOGS, help="simulated logs of each kind")
    parser.add_argument("--rankers", type=_names, default=list(RANKERS), help=",".join(RANKERS))
    parser.add_argument(
        "--structures", type=_names, default=list(STRUCTURES), help=",".join(STRUCTURES)
    )
    parser.add_argument("--models", type=_names, default=list(MODELS), help=",".join(MODELS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--output", type=Path, help="also write the table here")
    asked = parser.parse_args()
    lines = run(asked.logs, asked.rankers, asked.structures, asked.models, asked.processes)
    print("\n".join(lines))
    if asked.output is not None:
        asked.output.write_text("\n".join(lines) + "\n")


def _names(text: str) -> list[str]:
    return text.split(",")


if __name__ == "__main__":
    main()
