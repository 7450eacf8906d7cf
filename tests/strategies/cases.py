"""A random program with a random log and random probabilities, and the oracle's view of it."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gecasmo import ClickLog, ClickModel, Normal, Table, read_log
from gecasmo.kernels.library import Library
from oracle.brute_force import Numbers, Oracle
from strategies.programs import COLUMNS, NUMBERS, observing_programs, pages, programs
from strategies.trees import Program, ShownPage, as_model, as_story, depth_of, signals_of


def make_plain(model: Any) -> Any:
    """Let a model run its generated source as plain Python."""

    def library(plan: Any, counting: bool = False) -> Library:
        structure = model.counting_structure if counting else model.structure
        key = (plan, structure is model.structure)
        if key not in model._libraries:
            structure = structure.of_log(plan.unrecorded, plan.observed)
            model._libraries[key] = Library(structure, plan, compiled=False)
        return model._libraries[key]

    model.library = library
    return model


@contextmanager
def plain_models(*models: Any) -> Any:
    """The same as a block."""
    for model in models:
        make_plain(model)
    yield
    for model in models:
        del model.library


@dataclass(frozen=True)
class Values:
    """A probability for every row of every coin, from a seed alone."""

    seed: int
    extremes: bool = False

    def __call__(self, coin: str, row: Any) -> float:
        return _value(self.seed, self.extremes, coin, row)


@lru_cache(maxsize=100_000)
def _value(seed: int, extremes: bool, coin: str, row: Any) -> float:
    digest = hashlib.blake2b(f"{seed} {coin} {row}".encode(), digest_size=8).digest()
    number = int.from_bytes(digest, "little") / 2**64
    if extremes and number < 0.15:
        return 0.0
    if extremes and number > 0.85:
        return 1.0
    return 0.02 + 0.96 * number


@dataclass
class Case:
    """Pages with what they show, under a program with known probabilities."""

    program: Program
    values: Values
    pages: list[ShownPage]
    shown: list[tuple[frozenset, ...]]
    weights: list[float]
    row_order: list[int]
    form: Table | None = None
    numbers: list[Numbers] = field(default_factory=list)

    @cached_property
    def oracles(self) -> list[Oracle]:
        known: dict[Any, Oracle] = {}
        result = []
        for page in self.pages:
            if repr(page) not in known:
                known[repr(page)] = Oracle(as_story(self.program, page), self.values)
            result.append(known[repr(page)])
        return result

    @cached_property
    def signals(self) -> list[str]:
        return ["click", "buy", "back"]

    @cached_property
    def table(self) -> dict[str, list[Any]]:
        """The log as columns, rows in a random order."""
        rows = []
        for number, (page, shown) in enumerate(zip(self.pages, self.shown, strict=True)):
            for result, signals in zip(page.results, shown, strict=True):
                row = {
                    "session": number,
                    "query": page.query,
                    "device": page.device,
                    "doc": result.doc,
                    "rank": result.rank,
                    "weight": self.weights[number],
                }
                row |= {name: name in signals for name in self.signals}
                if number % 2:  # a log may have it at the last result, or all over the page
                    row["back"] = "back" in shown[-1]
                if self.numbers:
                    place, own = page.results.index(result), self.numbers[number]
                    row |= {column: own.get((place, column)) for column in NUMBERS}
                rows.append(row | {column: result.guards[column] for column in COLUMNS})
        order = np.random.default_rng(self.row_order).permutation(len(rows))
        return {name: [rows[i][name] for i in order] for name in rows[0]}

    @cached_property
    def log(self) -> ClickLog:
        return read_log(self.table, weight="weight")

    @cached_property
    def session_of(self) -> list[int]:
        """The page of each session of the log."""
        return self.log.sessions.to_list()

    @cached_property
    def place_of(self) -> list[int]:
        """The place in its page of each row of the log."""
        ranks = [[r.rank for r in page.results] for page in self.pages]
        sessions, rank = self.table["session"], self.table["rank"]
        return [ranks[s].index(r) for s, r in zip(sessions, rank, strict=True)]

    @cached_property
    def model(self) -> ClickModel:
        return make_plain(as_model(self.program).with_values(**self.tables()))

    def tables(self) -> dict[str, Any]:
        rows: dict[str, dict[Any, float]] = {coin: {} for coin in self.program.keys}
        flipped = {
            (fall.coin, fall.row)
            for oracle in self.oracles
            for told in oracle.stories
            for fall in told.falls
        }
        for coin, row in sorted(flipped, key=repr):
            rows[coin][row] = self.values(coin, row)
        given: dict[str, Any] = {}
        for coin, keys in self.program.keys.items():
            given[coin] = rows[coin] if keys and rows[coin] else self.values(coin, ())
        coins = as_model(self.program)._observes()
        return given | {coin: self.distribution(coin) for coin, _ in coins}

    def distribution(self, density: str) -> Normal:
        """How the numbers of a density are spread."""
        mean, width = (self.values(density, side) for side in ("mean", "width"))
        return Normal(2 * mean - 1, 0.5 + width)

    def page(self, number: int) -> tuple[Oracle, tuple[frozenset, ...]]:
        return self.oracles[number], self.shown[number]


@st.composite
def cases(
    draw: Any,
    possible: bool = True,
    extremes: bool | None = None,
    max_pages: int = 6,
    max_results: int = 5,
    max_flips: int = 3,
    program: Any = None,
) -> Case:
    """A case; with `possible` every page shows something of positive probability."""
    made = draw(programs(max_flips) if program is None else program)
    with_extremes = draw(st.integers(0, 2)) == 0 if extremes is None else extremes
    values = Values(draw(st.integers(0, 10**6)), with_extremes)
    # Enumeration takes 2 to the number of flips on a page.
    longest = {0: 5, 1: 5, 2: 4, 3: 3}.get(depth_of(made.browse), 2)
    distinct = draw(st.lists(pages(min(longest, max_results)), min_size=1, max_size=3))
    n_pages = draw(st.integers(1, max_pages))
    chosen = [draw(st.sampled_from(distinct)) for _ in range(n_pages)]
    case = Case(
        made,
        values,
        chosen,
        [],
        [draw(st.sampled_from([1.0, 1.0, 2.0, 0.5])) for _ in chosen],
        draw(st.integers(0, 1000)),
    )
    for page, oracle in zip(chosen, case.oracles, strict=True):
        if possible:
            patterns = sorted(oracle.patterns, key=lambda s: [sorted(x) for x in s])
            case.shown.append(patterns[draw(st.integers(0, len(patterns) - 1))])
        else:
            emitted = sorted(signals_of(made.browse) & set(case.model.automaton.signals))
            sets = st.sampled_from([(), *[(name,) for name in emitted], tuple(emitted)]).map(
                frozenset
            )
            case.shown.append(tuple(draw(sets) for _ in page.results))
    return case


@st.composite
def observed_cases(draw: Any) -> Case:
    """A case whose pages have numbers, recorded at some of the results that show them."""
    case = draw(cases(program=observing_programs(), extremes=False))
    for number in range(len(case.pages)):
        oracle, shown = case.page(number)
        told = draw(st.sampled_from([t for t in oracle.stories if t.signals == shown]))
        own: Numbers = {}
        for place, column, _ in told.seen:
            if draw(st.integers(0, 3)):
                own[place or 0, column] = draw(st.sampled_from([-1.5, -0.5, 0.25, 0.3, 2.0]))
        case.numbers.append(own)
    return case
