"""What a page is worth: events that users bring about on it, at prices.

Events are signals ("click", "purchase"), heads of a coin ("satisfaction"), a result being looked at
("reached"), and a page on which nothing is clicked ("abandonment").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.compiler.automaton import Automaton
from gecasmo.errors import ClickLogError, ModelError, option
from gecasmo.report import listed

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]

ABANDONMENT = "abandonment"


def event_numbers(automaton: Automaton) -> dict[str, int]:
    """The events of results by name, with their numbers in the kernels' arrays; a signal comes
    before a coin of its name."""
    n_signals, n_coins = len(automaton.signals), len(automaton.parameters)
    densities = dict(automaton.observes)
    found = {"reached": n_signals + n_coins}
    found |= {
        coin: n_signals + number
        for number, coin in enumerate(automaton.parameters)
        if coin not in densities
    }
    return found | {signal: number for number, signal in enumerate(automaton.signals)}


@dataclass(frozen=True)
class Worth:
    """Prices of events: a number, or the column that has one for each result.

    Attributes
    ----------
    prices : by event
    automaton : that of the model, with all flips of its program
    """

    prices: dict[str, float | str]
    automaton: Automaton

    @classmethod
    def of(cls, model: Model, given: Any) -> Worth:
        """Read what a user gave: an event, several, or a dictionary of events with prices."""
        automaton = model.structure.full.body
        if isinstance(given, str):
            given = {given: 1.0}
        elif isinstance(given, (list, tuple)):
            given = dict.fromkeys(given, 1.0)
        if not isinstance(given, Mapping) or not given:
            raise ModelError(
                f"{option('worth', given)}: an event is wanted, such as 'click', or a dictionary "
                "of events with prices, such as {'purchase': 'margin'}."
            )
        known = [*event_numbers(automaton), ABANDONMENT]
        prices: dict[str, float | str] = {}
        for event, price in given.items():
            if event not in known:
                raise ModelError(
                    f"{option('worth', event)}: no event of {model.name}. There are "
                    f"{listed(sorted(known))}."
                )
            if isinstance(price, str):
                prices[event] = price
                continue
            is_number = isinstance(price, (int, float, np.number)) and np.isfinite(price)
            if isinstance(price, bool) or not is_number:
                raise ModelError(
                    f"{option('worth', {event: price})}: a price is a number, or the name of a "
                    "column that has one for each result."
                )
            prices[event] = float(price)
        if isinstance(prices.get(ABANDONMENT), str):
            raise ModelError(
                f"{option('worth', dict(given))}: {ABANDONMENT} is an event of a whole page, so "
                "its price is a number."
            )
        return cls(prices, automaton)

    @property
    def columns(self) -> list[str]:
        """The columns that have prices."""
        return list(dict.fromkeys(p for p in self.prices.values() if isinstance(p, str)))

    @property
    def quiet(self) -> float:
        """The price of a page without a click."""
        return float(self.prices.get(ABANDONMENT, 0.0))

    @property
    def n_events(self) -> int:
        """How many events kernels tell of."""
        return len(self.automaton.signals) + len(self.automaton.parameters) + 1

    def of_results(self, n: int, column: Callable[[str], pl.Series]) -> Floats:
        """Prices by result and event, for kernels; `column` has the columns of results."""
        found = np.zeros((n, self.n_events))
        numbers = event_numbers(self.automaton)
        for event, price in self.prices.items():
            if event == ABANDONMENT:
                continue
            found[:, numbers[event]] = (
                _numbers(column(price), price, event) if isinstance(price, str) else price
            )
        return found

    def of_starts(self) -> Floats:
        """Prices of heads before the first result, which belong to no result."""
        found = np.zeros(self.n_events)
        numbers, started = event_numbers(self.automaton), self.automaton.start_parameters()
        browsing = {lit.parameter for edge in self.automaton.edges for lit in edge.literals}
        for event, price in self.prices.items():
            if event == ABANDONMENT or event not in started or event in self.automaton.signals:
                continue
            if isinstance(price, str):
                if event not in browsing:
                    raise ModelError(
                        f"{option('worth', {event: price})}: '{event}' falls before the first "
                        "result, so its price is a number."
                    )
                continue
            found[numbers[event]] = price
        return found

    def __str__(self) -> str:
        told = []
        for event, price in self.prices.items():
            if isinstance(price, str):
                told.append(f"{event} x {price}")
            else:
                told.append(event if price == 1 else f"{price:g} {event}")
        return " + ".join(told)


def _numbers(column: pl.Series, name: str, event: str) -> Floats:
    """A column of prices as numbers; gaps and words are refused."""
    if not column.dtype.is_numeric():
        raise ClickLogError(
            f"The column '{name}', the price of '{event}', is of {column.dtype}, not of numbers."
        )
    values: Floats = column.cast(pl.Float64).fill_null(np.nan).to_numpy()
    wrong = np.flatnonzero(~np.isfinite(values))
    if len(wrong):
        raise ClickLogError(
            f"The column '{name}', the price of '{event}', has no number in {len(wrong):,} of "
            f"{len(values):,} rows, first in row {wrong[0]}."
        )
    return values
