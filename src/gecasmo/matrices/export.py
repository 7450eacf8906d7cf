"""The way back: a model's automaton as a definition in the paper's fields.

A state of a definition remembers the edge by which it was entered, so that each cell of the
transition matrix is one product of coins, as the paper asks for. Coins by click history (UBM's
examination) need the history in the state: the last click, or how many there were.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecasmo.compiler import Automaton, Edge
from gecasmo.errors import ModelError, option
from gecasmo.files import whole_file
from gecasmo.language import HISTORY_KEYS
from gecasmo.matrices.definition import MOST_STATES, check_length

if TYPE_CHECKING:
    from gecasmo.model.base import Model

_MATS = ("pos_mat", "neg_mat", "fixed_mat")
_IN_STATE = {"last_click": "last", "distance": "last", "clicks_above": "n_clicks"}


def write(model: Model, list_size: int = 10, path: Any = None) -> dict[str, Any]:
    """The definition of a model in the paper's fields, which `read` takes; also as a JSON file.

    Probabilities are no part of a definition: fit what `read` makes of it, or give it values. Its
    likelihood is that of the model, for pages of up to `list_size` results.

    Parameters
    ----------
    model : model
        One that shows clicks and nothing else, without yes/no columns of the log, in which no coin
        is flipped twice at a result (CCM has one).
    list_size : int
        The longest page; coins by rank or click history have a row for each of its positions.
    path : path, optional
        Where to write the definition to, as JSON.

    Examples
    --------
    >>> import gecasmo
    >>> definition = gecasmo.matrices.write(gecasmo.UBM(), list_size=4)
    >>> definition["states"], list(definition["parameters"])
    (14, ['examination', 'attraction'])
    """
    check_length(list_size)
    _check(model)
    definition = _Walk(model.structure.minimal.body, model.keys, list_size).definition()
    definition = {"model": model.name, **definition}
    if path is not None:
        with whole_file(path, ModelError) as file:
            file.write_text(json.dumps(definition), encoding="utf-8")
    return definition


def _check(model: Model) -> None:
    """Refuse what the paper's fields cannot say."""
    automaton = model.counting_structure.traced
    others = [signal for signal in automaton.signals if signal != "click"]
    twice = _flipped_twice(model.structure.minimal.body)
    mixed = [
        coin
        for coin, key in model.keys.items()
        if set(key) & set(HISTORY_KEYS) and set(key) - {*HISTORY_KEYS, "rank"}
    ]
    edges = (*automaton.initial, *automaton.edges)
    why = None
    if any(lit.lag or lit.row is not None for edge in edges for lit in edge.literals):
        why = "it was read from such a definition"
    elif others:
        why = f"it shows more than clicks: {', '.join(others)}"
    elif automaton.observes:
        why = f"it sees users through numbers: {', '.join(automaton.observed_columns())}"
    elif automaton.guard_columns():
        why = f"it asks for yes/no columns of the log: {', '.join(automaton.guard_columns())}"
    elif twice:
        why = f"it flips '{twice}' more than once at a result"
    elif mixed:
        why = f"the key of '{mixed[0]}' has both clicks and columns of the log"
    elif model.page_readers:
        why = f"the form of '{model.page_readers[0]}' reads whole pages"
    if why is not None:
        raise ModelError(f"{model.name} cannot be written as the paper's matrices: {why}.")


def _flipped_twice(automaton: Automaton) -> str | None:
    for first in automaton.initial or [None]:
        for edge in automaton.edges:
            # The first transition has the coins flipped before the first result, too.
            before = first.literals if first is not None else ()
            names = [literal.parameter for literal in (*before, *edge.literals)]
            for name in names:
                if names.count(name) > 1:
                    return name
    return None


class State(NamedTuple):
    """A state of a definition: how it was entered, and the clicks that coins ask for."""

    start: int  # the start edge, while that is not told by `edge`, else -1
    edge: int  # the edge over the last result, -1 before the first
    last: int  # rank of the last click; 0 for none, and where nobody asks
    n_clicks: int


_BEGIN = State(-1, -1, 0, 0)


@dataclass(frozen=True)
class _Walk:
    """An automaton, the keys of its coins, and how long pages can be."""

    automaton: Automaton
    keys: Mapping[str, tuple[str, ...]]
    length: int

    def definition(self) -> dict[str, Any]:
        """All fields but the name."""
        cells = dict(self.cells())
        states = [_BEGIN, *dict.fromkeys(target for _, target in cells)]
        n_states = len(states) + 1
        if n_states > MOST_STATES:
            raise ModelError(
                f"{option('list_size', self.length)} needs {n_states:,} states; {MOST_STATES:,} at "
                "most are understood. Ask for shorter pages."
            )
        number = {state: place for place, state in enumerate(states)}
        filled = {
            (number[source], number[target]): factors for (source, target), factors in cells.items()
        }
        return {
            "states": n_states,
            "list_size": self.length,
            "click_state": [[0], *self._click_states(states)],
            "initial_state": 0,
            "absorbing_state": n_states - 1,
            "parameters": {
                coin: self._parameter(coin, states, n_states, filled)
                for coin in self.automaton.parameters
            },
        }

    def cells(self) -> Iterator[tuple[tuple[State, State], tuple[Edge, ...]]]:
        """From which state to which one can go, and by which edges, whose product a cell is.

        Users who leave without a click go where the rest of a row goes: to the absorbing state.
        """
        frontier = {_BEGIN}
        for position in range(1, self.length + 1):
            entered = set()
            for state in frontier:
                for target, edges in self._steps(state, position):
                    yield (state, target), edges
                    entered.add(target)
            frontier = entered

    def _steps(self, state: State, position: int) -> Iterator[tuple[State, tuple[Edge, ...]]]:
        initial, asked = self.automaton.initial, self._asked()
        is_told = len({edge.target for edge in initial}) == len(initial)
        ways: list[tuple[int, tuple[Edge, ...], int]]
        if state == _BEGIN:
            ways = [(edge.target, (edge,), -1 if is_told else n) for n, edge in enumerate(initial)]
        else:
            ways = [(self.automaton.edges[state.edge].target, (), -1)]
        for at, before, start in ways:
            for number, edge in enumerate(self.automaton.edges):
                is_click = bool(edge.symbol)
                if edge.source != at or (edge.target == self.automaton.gone and not is_click):
                    continue
                last = position if is_click and "last" in asked else state.last
                n_clicks = state.n_clicks + (is_click and "n_clicks" in asked)
                yield State(start, number, last, n_clicks), (*before, edge)

    def _asked(self) -> set[str]:
        """What coins ask of the clicks above."""
        return {_IN_STATE[key] for keys in self.keys.values() for key in keys if key in _IN_STATE}

    def _click_states(self, states: list[State]) -> Iterator[list[int]]:
        clicked = [
            (place, state)
            for place, state in enumerate(states)
            if state != _BEGIN and self.automaton.edges[state.edge].symbol
        ]
        is_timed = "last" in self._asked()
        for position in range(1, self.length + 1):
            yield [place for place, own in clicked if not is_timed or own.last == position]

    def _parameter(
        self,
        coin: str,
        states: list[State],
        n_states: int,
        cells: Mapping[tuple[int, int], tuple[Edge, ...]],
    ) -> dict[str, Any]:
        """The fields of one coin. What edges count more than once stands with the first one."""
        mats = {name: np.zeros((n_states, n_states)) for name in _MATS}
        is_first = coin == self.automaton.parameters[0]
        for cell, edges in cells.items():
            falls = [lit.heads for edge in edges for lit in edge.literals if lit.parameter == coin]
            name = ("pos_mat" if falls[0] else "neg_mat") if falls else "fixed_mat"
            mats[name][cell] = np.prod([edge.multiplicity for edge in edges]) if is_first else 1
        key = self.keys[coin]
        if not set(key) & {*HISTORY_KEYS, "rank"} or set(key) - {*HISTORY_KEYS, "rank"}:
            kind = {"var_type": "item", "key": list(key)} if key else {"var_type": "session"}
        else:
            kind = self._by_position(key, states, n_states)
        return kind | {name: _plain(mat) for name, mat in mats.items() if mat.any()}

    def _by_position(
        self, key: tuple[str, ...], states: list[State], n_states: int
    ) -> dict[str, Any]:
        """Rows by position and the clicks above it, numbered, with what each number means."""
        tie = np.full((self.length, n_states, n_states), -1)
        rows: dict[tuple[int, ...], int] = {}
        for position in range(1, self.length + 1):
            for place, state in enumerate(states):
                if state.last < position:
                    values = {
                        "rank": position,
                        "last_click": state.last,
                        "distance": position - state.last,
                        "clicks_above": state.n_clicks,
                    }
                    row = tuple(values[name] for name in key)
                    tie[position - 1, place, :] = rows.setdefault(row, len(rows))
        meaning = {"key": list(key), "rows": list(map(list, rows))}
        return {"var_type": "pos", **meaning, "tie": tie.tolist()}


def _plain(mat: NDArray[np.float64]) -> list[list[float]]:
    """Numbers for JSON, whole ones as such."""
    whole = mat.astype(int)
    numbers: list[list[float]] = (whole if (whole == mat).all() else mat).tolist()
    return numbers
