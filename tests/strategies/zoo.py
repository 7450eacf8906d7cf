"""Small random logs for the models of the zoo, with the oracle's view of each page."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import polars as pl

from gecasmo import ClickLog, read_log
from gecasmo.language import HISTORY_KEYS
from gecasmo.logs.views import as_view
from gecasmo.models import CATALOGUE
from oracle.brute_force import Oracle
from oracle.played import played
from oracle.stories import ZOO, Shown
from strategies.cases import Values


def story_of(name: str) -> Any:
    """The story of a model of the zoo: by hand where there is one, else its program played."""
    return ZOO[name] if name in ZOO else played(CATALOGUE[name])


def densities_of(model: Any) -> dict[str, Any]:
    """A distribution for each density of a model."""
    return {
        coin: type(model._densities()[coin.partition("[")[0]].family)(2.0 + place, 0.9)
        for place, (coin, _) in enumerate(model._observes())
    }


def with_columns_of(model: Any, log: ClickLog) -> ClickLog:
    """The log with all columns that a model needs.

    A signal that it lacks goes with every other click, yes and no take turns, and a key is the
    rank, or one all over where a page has to have one.
    """
    every_other = log.click & (np.cumsum(log.click) % 2 == 0)
    needs = model.needs
    made = dict.fromkeys(needs.signals, every_other)
    made |= dict.fromkeys(needs.guards, np.arange(log.n_results) % 2 == 0)
    on_page = {k for c in model.traced_automaton.start_parameters() for k in model.keys[c]}
    made |= {key: np.zeros_like(log.rank) if key in on_page else log.rank for key in needs.keys}
    numbers = np.where(log.click, 1.0 + np.arange(log.n_results) % 7, np.nan)
    made |= dict.fromkeys(needs.numbers, pl.Series(numbers, nan_to_null=True))
    made |= as_view(model.view).example(log.page.astype(np.int64), log.rank.astype(np.int64))
    lacking = {name: column for name, column in made.items() if name not in log.columns}
    return read_log(log.to_frame().with_columns(**lacking)) if lacking else log


# Those that read pages as they are; for others there is `ViewCase`.
ON_PAGES = [name for name, model in CATALOGUE.items() if model.view == "pages"]


def _shape(name: str) -> tuple[Any, ...]:
    model = CATALOGUE[name]()
    automaton, needs = model.automaton, model.needs
    twice = any(
        len({x.coin for x in edge.literals}) < len(edge.literals) for edge in automaton.edges
    )
    has_history = any(key in HISTORY_KEYS for keys in model.keys.values() for key in keys)
    started = bool(automaton.start_parameters())
    several = len(automaton.signals) > 1 or bool(automaton.observes)
    return automaton.n_states, several, bool(needs.guards), started, has_history, twice


@cache
def _edges(name: str) -> int:
    return len(CATALOGUE[name]().automaton.edges)


# One of each shape (states, signals, guards, flips in start, history keys, a coin flipped twice),
# that with the most edges, for tests that are too long for all of the zoo.
SHAPES = sorted({_shape(name): name for name in sorted(ON_PAGES, key=_edges)}.values())


@dataclass
class ZooCase:
    """A model of the zoo with known probabilities, and pages whose clicks it can produce."""

    name: str
    seed: int
    n_pages: int = 12
    max_results: int = 4
    extremes: bool = False

    def __post_init__(self) -> None:
        if _edges(self.name) > 7:  # as many ways through a page as through a longer one of others
            self.n_pages, self.max_results = min(self.n_pages, 5), min(self.max_results, 3)

    @cached_property
    def values(self) -> Values:
        return Values(self.seed, self.extremes)

    @cached_property
    def pages(self) -> list[Shown]:
        generator = np.random.default_rng(self.seed)
        model = CATALOGUE[self.name]()
        on_page = {k for c in model.automaton.start_parameters() for k in model.keys[c]}
        pages = []
        for _ in range(self.n_pages):
            length = int(generator.integers(1, self.max_results + 1))
            docs = tuple(map(int, generator.integers(0, 4, length)))  # documents may repeat
            ranks = tuple(map(int, np.cumsum(generator.choice([1, 1, 1, 2], length))))
            query = f"q{generator.integers(2)}"
            columns: dict[str, tuple[Any, ...]] = {}
            for guard in model.needs.guards:
                columns[guard] = tuple(map(bool, generator.integers(0, 2, length)))
            for key in model.needs.keys:
                drawn = tuple(map(int, generator.integers(0, 3, length)))
                columns[key] = drawn[:1] * length if key in on_page else drawn
            pages.append(Shown(query, docs, ranks, columns))
        return pages

    @cached_property
    def oracles(self) -> list[Oracle]:
        return [Oracle(story_of(self.name)(page), self.values) for page in self.pages]

    @cached_property
    def shown(self) -> list[tuple[frozenset, ...]]:
        """Patterns of positive probability, the rarer ones as often as the common ones."""
        generator = np.random.default_rng(self.seed + 1)
        chosen = []
        for oracle in self.oracles:
            patterns = sorted(oracle.patterns, key=lambda s: [sorted(x) for x in s])
            if self.name.startswith("Counting"):
                # The log says itself which click is the last: only such patterns can be read.
                patterns = [p for p in patterns if _last_click_is_marked(p)]
            chosen.append(patterns[generator.integers(len(patterns))])
        return chosen

    @cached_property
    def visible_oracles(self) -> list[Oracle]:
        """As `oracles`, without the signal that tells of clicks below: predictions never see it."""
        name = self.name.removeprefix("Counting")
        if name == self.name:
            return self.oracles
        return [Oracle(story_of(name)(page), self.values) for page in self.pages]

    @cached_property
    def visible(self) -> list[tuple[frozenset, ...]]:
        return [tuple(s - {"is_last_click"} for s in shown) for shown in self.shown]

    @cached_property
    def table(self) -> dict[str, list[Any]]:
        """The log as columns, with every signal that the model emits and a log has to bring."""
        signals = CATALOGUE[self.name]().structure.traced.signals
        rows = [
            (number, page.query, doc, rank, *(signal in shown for signal in signals))
            for number, (page, results) in enumerate(zip(self.pages, self.shown, strict=True))
            for doc, rank, shown in zip(page.docs, page.ranks, results, strict=True)
        ]
        names = ("session", "query", "doc", "rank", *signals)
        table = {name: [row[i] for row in rows] for i, name in enumerate(names)}
        for name in CATALOGUE[self.name]().needs.numbers:  # `test_proof_observations` has some
            table[name] = [None] * len(rows)
        for name in self.pages[0].columns:
            table[name] = [value for page in self.pages for value in page.columns[name]]
        return table

    @cached_property
    def log(self) -> ClickLog:
        return read_log(self.table)

    def model(self) -> Any:
        cls = CATALOGUE[self.name]
        rows: dict[str, dict[Any, float]] = {coin: {} for coin in cls._parameters()}
        for oracle in self.oracles:
            for told in oracle.stories:
                for fall in told.falls:
                    rows[fall.coin][fall.row] = self.values(fall.coin, fall.row)
        return cls.with_values(
            **{
                coin: rows[coin] if parameter.keys and rows[coin] else self.values(coin, ())
                for coin, parameter in cls._parameters().items()
            },
            **densities_of(cls),
        )


def _last_click_is_marked(pattern: tuple[frozenset, ...]) -> bool:
    clicks = [signals for signals in pattern if "click" in signals]
    marked = ["is_last_click" in signals for signals in clicks]
    return not clicks or (marked[-1] and not any(marked[:-1]))
