"""Small random logs that have every column a model asks for."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import polars as pl

from gecasmo.language.parameter import HISTORY_KEYS, PAGE_KEYS, POSITION_KEYS
from gecasmo.logs import ClickLog, read_log
from gecasmo.model import Model


def random_log(
    model: Model, lengths: list[int], seed: int, n_docs: int = 4, click_rate: float = 0.4
) -> ClickLog:
    """Pages of these lengths with random documents, signals, guards and key columns."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {name: [] for name in ("session", "query", "doc", "rank")}
    automaton = model.traced_automaton
    on_page = {
        key
        for coin in automaton.start_parameters()
        for key in model.keys[coin]
        if key not in PAGE_KEYS
    }
    on_result = {
        key
        for coin, keys in model.keys.items()
        if coin not in automaton.numbered_rows()
        for key in keys
        if key not in (*columns, *HISTORY_KEYS, *POSITION_KEYS, *on_page)
    }
    for page, length in enumerate(lengths):
        columns["session"] += [f"s{page}"] * length
        columns["query"] += [f"q{rng.integers(2)}"] * length
        columns["doc"] += [f"d{d}" for d in rng.integers(n_docs, size=length)]
        columns["rank"] += list(range(1, length + 1))
        for key in on_page - {"doc", "rank"}:
            columns.setdefault(key, []).extend([f"v{rng.integers(2)}"] * length)
        for key in sorted(on_result):
            columns.setdefault(key, []).extend(f"v{v}" for v in rng.integers(2, size=length))
    n_results = sum(lengths)
    _add_features(model, columns, n_results, rng)
    for guard in automaton.guard_columns():
        columns[guard] = (rng.random(n_results) < 0.5).tolist()
    for signal in model.structure.traced.signals:
        columns[signal] = (rng.random(n_results) < click_rate).tolist()
    return read_log(pl.DataFrame(columns))


def _add_features(
    model: Model, columns: dict[str, list[Any]], n_results: int, rng: np.random.Generator
) -> None:
    """Numbers for the columns that forms read, the same wherever a key is the same."""
    wanted = model.wanted()
    for name in dict.fromkeys(column for need in wanted.values() for column in need.columns):
        if name in (*HISTORY_KEYS, *POSITION_KEYS, "rank", "doc", "query", "session"):
            continue
        owners = [coin for coin, need in wanted.items() if name in need.columns]
        if name in columns:  # it is a key itself
            columns[name] = [float(value == "v1") for value in columns[name]]
            continue
        common = [
            key
            for key in columns
            if all(key in model.keys[coin] or "result" in model.keys[coin] for coin in owners)
        ]
        values: dict[tuple[Any, ...], float] = {}
        keys = list(zip(*(columns[key] for key in common), strict=True)) or [()] * n_results
        columns[name] = [values.setdefault(key, round(float(rng.normal()), 2)) for key in keys]


def every_pattern(model: Model, page: ClickLog) -> ClickLog:
    """The single page of a log once with every pattern of signals it could show."""
    signals = model.structure.traced.signals
    frame = page.to_frame()
    patterns = list(itertools.product((False, True), repeat=len(frame) * len(signals)))
    copies = []
    for number, pattern in enumerate(patterns):
        shown = np.array(pattern, bool).reshape(len(signals), len(frame))
        copies.append(
            frame.with_columns(
                pl.lit(f"pattern {number}").alias("session"),
                *(pl.Series(name, row) for name, row in zip(signals, shown, strict=True)),
            )
        )
    return read_log(pl.concat(copies))


def with_random_values(model: Model, log: ClickLog, seed: int) -> Model:
    """A copy of the model with random probabilities for every row that the log can meet."""
    from gecasmo.forms import Table, TableState

    rng = np.random.default_rng(seed)
    twin = model.copy()
    encoded = model.encode(log, "filter", merge=False)
    twin.states_, twin.report_ = {}, None
    for coin, rows in zip(model.forms, encoded.rows, strict=True):
        twin.forms[coin] = Table(key=model.keys[coin])
        values = rng.uniform(0.05, 0.95, len(rows))
        # Rows met only under clicks that this log does not have get a probability as well.
        twin.states_[coin] = TableState(rows, values, float(rng.uniform(0.2, 0.8)))
    return twin
