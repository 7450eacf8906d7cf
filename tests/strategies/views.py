"""Small random logs for models that read under a view, with the oracle's walks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gecasmo import ClickLog, ClickModel, read_log
from gecasmo.logs.views import as_view
from gecasmo.models import CATALOGUE
from oracle.brute_force import Oracle
from oracle.walked import Walk, walk_grids, walk_tasks, walked
from strategies.cases import Values, make_plain

WALKS = {"grids": walk_grids, "tasks": walk_tasks}


def zoo_under(view: str) -> list[type[ClickModel]]:
    """The models of the zoo that read a log so."""
    return [model for model in CATALOGUE.values() if as_view(model.view).name == view]


def random_table(
    view: str, seed: int, n_pages: int = 8, longest: int = 3, n_tasks: int | None = None
) -> dict[str, list[Any]]:
    """Pages with all that a view may need, in no order at all; without clicks."""
    rng = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    times = rng.permutation(n_pages)
    n_tasks = n_tasks or n_pages // 2
    tasks = rng.permutation(np.arange(n_pages) % n_tasks)
    for page in range(n_pages):
        length = int(rng.integers(1, longest + 1))
        ranks = np.cumsum(rng.choice([1, 1, 2], length))
        cells = rng.permutation(longest * 2)[:length]
        on_page = {
            "session": f"s{page}",
            "query": f"q{rng.integers(2)}",
            "task": f"t{tasks[page]}",
            "time": int(times[page]),
        }
        for rank, cell in zip(ranks, cells, strict=True):
            where = {"row": int(cell // 2), "column": int(cell % 2)}
            doc = {"doc": int(rng.integers(3)), "rank": int(rank), "click": False}
            rows.append({**on_page, **doc, **(where if view == "grids" else {})})
    rows = [rows[i] for i in rng.permutation(len(rows))]
    return {name: [row[name] for row in rows] for name in rows[0]}


@dataclass
class ViewCase:
    """A model under a view with known probabilities, and walks that it can produce."""

    cls: Any
    seed: int
    order: str = "rows"
    extremes: bool = False

    @cached_property
    def view(self) -> str:
        return str(getattr(self.cls.view, "name", self.cls.view))

    @cached_property
    def values(self) -> Values:
        return Values(self.seed, self.extremes)

    @cached_property
    def blank(self) -> dict[str, list[Any]]:
        longest = 2 if self.view == "tasks" else 3  # walks of four results have stories enough
        return random_table(self.view, self.seed, n_pages=6, longest=longest)

    @cached_property
    def walks(self) -> list[Walk]:
        if self.view == "grids":
            return walk_grids(self.blank, getattr(self.cls.view, "order", "rows"))
        return WALKS[self.view](self.blank)

    @cached_property
    def oracles(self) -> list[Oracle]:
        return [Oracle(walked(self.cls, walk), self.values) for walk in self.walks]

    @cached_property
    def shown(self) -> list[tuple[frozenset, ...]]:
        """Patterns that can happen, and agree with what the log itself says of signals."""
        rng = np.random.default_rng(self.seed + 1)
        chosen = []
        for oracle in self.oracles:
            patterns = sorted(oracle.patterns, key=lambda s: [sorted(x) for x in s])
            chosen.append(patterns[rng.integers(len(patterns))])
        return chosen

    @cached_property
    def table(self) -> dict[str, list[Any]]:
        signals = self.cls().structure.traced.signals
        table = {**self.blank, **{name: [False] * len(self.blank["doc"]) for name in signals}}
        for walk, shown in zip(self.walks, self.shown, strict=True):
            for step, seen in zip(walk, shown, strict=True):
                for name in seen:
                    table[name][step["at"]] = True
        return table

    @cached_property
    def log(self) -> ClickLog:
        return read_log(self.table)

    def model(self) -> Any:
        coins = self.cls._parameters()
        rows: dict[str, dict[Any, float]] = {coin: {} for coin in coins}
        for oracle in self.oracles:
            for told in oracle.stories:
                for fall in told.falls:
                    rows[fall.coin][fall.row] = self.values(fall.coin, fall.row)
        return make_plain(
            self.cls.with_values(
                **{
                    coin: rows[coin] if parameter.keys and rows[coin] else self.values(coin, ())
                    for coin, parameter in coins.items()
                }
            )
        )
