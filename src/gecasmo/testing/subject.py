"""What sits the exam: a model with random probabilities on small pages, seen from all sides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.compiler import reference
from gecasmo.encoding import Rows
from gecasmo.encoding.observations import boolean_column
from gecasmo.logs import ClickLog
from gecasmo.model import ClickModel, Model
from gecasmo.testing.enumeration import Way, every_way
from gecasmo.testing.plain import plain_python
from gecasmo.testing.small_logs import random_log, with_random_values

Floats = NDArray[np.float64]


class Subject:
    """A model with random probabilities, and pages that it can have shown."""

    def __init__(self, model: Model, seed: int, compiled: bool) -> None:
        self.blank, self.seed, self.compiled = model, seed, compiled
        longest = model.traced_automaton.page_length or 3
        self.longest = min(longest, 3 if len(model.structure.traced.signals) == 1 else 2)
        lengths = [1 + number % self.longest for number in range(12)]
        self.log = random_log(model, lengths, seed)
        self.model = with_random_values(model, self.log, seed + 1)
        with plain_python():
            # Random clicks may be impossible under the model; what it simulates never is.
            self.possible: ClickLog = self.model.simulate(self.log, seed=seed)

    def rows(self, log: ClickLog, session: int) -> NDArray[np.int64]:
        return log.order[log.starts[session] : log.starts[session + 1]]

    def places(self, log: ClickLog) -> NDArray[np.int64]:
        return np.arange(log.n_results) - np.repeat(log.starts[:-1], log.lengths)

    def row_places(self, log: ClickLog) -> NDArray[np.int64]:
        places = np.empty(log.n_results, np.int64)
        places[log.order] = self.places(log)
        return places

    def values(self, coin: str, frame: pl.DataFrame) -> Floats:
        keys = [c for c in frame.columns if c not in ("heads", "tails")]
        rows = Rows(keys, [frame[key] for key in keys], len(frame))
        form, states = self.model.forms[coin], self.model.states()
        return form.predict(states[coin], rows)

    def value(self, coin: str, row: int, log: ClickLog, clicks: Sequence[bool] | None) -> float:
        """The probability of a coin at a result, given the clicks above it."""
        keys = self.model.keys[coin]
        session = int(log.page[row])
        rows = self.rows(log, session)
        place = int(np.flatnonzero(rows == row)[0])
        seen = list(log.click[rows[:place]] if clicks is None else clicks[:place])
        ranks = [int(log.rank[r]) for r, click in zip(rows, seen, strict=False) if click]
        last = ranks[-1] if ranks else 0
        known = {
            "rank": int(log.rank[row]),
            "page_length": len(rows),
            "result": row,
            "last_click": last,
            "distance": int(log.rank[row]) - last,
            "clicks_above": sum(seen),
        }
        values = [
            pl.Series(key, [known[key]])
            if key in known
            else log.column(key).gather([row]).alias(key)
            for key in keys
        ]
        form, states = self.model.forms[coin], self.model.states()
        return float(form.predict(states[coin], Rows(keys, values, 1))[0])

    def ways(self, session: int) -> list[Way]:
        log = self.possible
        rows = self.rows(log, session)
        columns = self.model.traced_automaton.guard_columns()
        guards = [{c: bool(log.column(c)[int(row)]) for c in columns} for row in rows]
        cache: dict[tuple[str, int, tuple[bool, ...]], float] = {}

        def chance(coin: str, position: int | None, clicks: Sequence[bool]) -> float:
            place = position or 0
            key = (coin, place, tuple(clicks[:place]))
            if key not in cache:
                cache[key] = self.value(coin, int(rows[place]), log, list(clicks))
            return cache[key]

        assert isinstance(self.blank, ClickModel)
        return every_way(self.blank, guards, chance)

    def seen(self, session: int, counting: bool = False) -> list[Way]:
        """The ways that show what the log shows; `counting` as fits see it."""
        log, model = self.possible, self.model
        automaton = (model.counting_structure if counting else model.structure).traced
        columns = {s: boolean_column(log, s, "emits") for s in automaton.signals}
        shown = [
            frozenset(s for s, column in columns.items() if column[row])
            for row in self.rows(log, session)
        ]
        return [
            way
            for way in self.ways(session)
            if [signals & columns.keys() for signals in way.signals] == shown
        ]

    def page(self, log: ClickLog, session: int) -> reference.Page:
        automaton = self.model.structure.traced
        numbered = automaton.numbered_rows()
        rows = self.rows(log, session)
        values = {}
        for coin in self.model.forms:
            if coin not in numbered:
                values[coin] = np.array([self.value(coin, int(r), log, None) for r in rows])
        return reference.Page(
            shown=[
                tuple(s for s in automaton.signals if bool(log.column(s)[int(row)])) for row in rows
            ],
            values=values,
            guards=[
                {c: bool(log.column(c)[int(row)]) for c in automaton.guard_columns()}
                for row in rows
            ],
            start={coin: float(v[0]) for coin, v in values.items()},
            rows={coin: self.model.states()[coin].probability for coin in numbered},
        )
