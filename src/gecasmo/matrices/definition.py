"""A click model in the paper's own definition, as activation matrices, read as an automaton.

A definition has the fields of the paper's package. `states` (K), `list_size` (T),
`click_state[t]` for t = 0..T, `initial_state`, `absorbing_state`, and per parameter

    pos_mat, neg_mat, fixed_mat   K x K, rows = from, columns = to; a missing one is all zeros. The
                                  transition probability is the product over parameters of
                                  theta * pos + (1 - theta) * neg + fixed; what a row lacks to one
                                  goes to the absorbing state
    t0_fixed                      the parameter's given value in the first transition
    var_type                      whose row applies: "item", "session", "pos" or "state"
    lag                           1 where the row belongs to the previous result
                                  ("state": a row for each state that the transition leaves)
    tie                           for "pos": an array (position, from, to) -> row number, -1 for a
                                  cell that cannot be used there; or the words of the paper's UBM,
                                  by which the row is (position, last click)
    key                           columns that name the row, where it is not the item's "doc"

The state at position t shows a click if it is `click_state[t]`, or one of these if it is a list.
Where click states differ from position to position, only that of the position itself can be entered
by a click. The paper has neither `lag`, `tie`, `key` nor lists of click states.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecasmo.compiler import AtPosition, Automaton, Edge, Literal
from gecasmo.compiler.automaton import START
from gecasmo.compiler.merge import check_effort
from gecasmo.errors import ModelError, option
from gecasmo.forms import Form
from gecasmo.model.click_model import AutomatonModel

_KEYS = {"item": ("doc",), "session": (), "pos": ("row",), "state": ("row",)}
_ROUNDING = 1e-9
# More than this would take hours.
MOST_STATES, LONGEST, _MOST_COINS = 2**10, 2**10, 16
BY_LAST_CLICK = "(position t, from block t', to) -> row (t, t')"


class _Term(NamedTuple):
    """A product of coins with a weight."""

    literals: tuple[Literal, ...]
    weight: float


def read(source: Any, name: str | None = None, **forms: Form | float) -> AutomatonModel:
    """A model from a definition: a dictionary, or a JSON file (with `name`, one entry of it).

    Items are keyed by "doc", sessions by nothing (one coin for all, as the paper assumes); a form
    with `key=` says otherwise: `read("czm.json", phi_A=Table(key=("query", "doc")))`.
    """
    definition = _definition(source, name)
    parameters = definition["parameters"]
    keys = {parameter: _key(spec) for parameter, spec in parameters.items()}
    title = str(definition.get("model", name or "MatrixModel"))
    return AutomatonModel(automaton(definition), keys, forms, name=title)


def check_length(list_size: int) -> None:
    """Refuse a page length that makes no sense."""
    if not 1 <= list_size <= LONGEST:
        raise ModelError(
            f"{option('list_size', list_size)}: 1 to {LONGEST:,} results are possible."
        )


def _key(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The columns that name a parameter's row."""
    is_numbered = spec["var_type"] in ("pos", "state")
    return _KEYS[spec["var_type"]] if is_numbered or "key" not in spec else tuple(spec["key"])


def automaton(definition: Mapping[str, Any]) -> Automaton:
    """The automaton of a definition."""
    found = _Matrices(definition).automaton()
    check_effort(found)
    return found


def _definition(source: Any, name: str | None) -> Mapping[str, Any]:
    if not isinstance(source, Mapping):
        path = Path(source)
        try:
            source = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelError(f"{path} cannot be read as a definition in JSON: {error}.") from None
    definition: Mapping[str, Any] = source[name] if name is not None and name in source else source
    wanted = (
        "states",
        "list_size",
        "click_state",
        "initial_state",
        "absorbing_state",
        "parameters",
    )
    missing = [field for field in wanted if field not in definition]
    if missing:
        found = ", ".join(map(str, definition))
        hint = f'\n  Perhaps one of these: read(..., "{next(iter(definition), "")}")'
        raise ModelError(
            f"The definition lacks {', '.join(missing)}; it has: {found}."
            + (hint if len(missing) == len(wanted) else "")
        )
    for parameter, spec in definition["parameters"].items():
        if spec.get("var_type") not in _KEYS:
            raise ModelError(
                f"The var_type of '{parameter}' must be one of {', '.join(_KEYS)}, not "
                f"{spec.get('var_type')!r}."
            )
    return definition


class _Matrices:
    def __init__(self, definition: Mapping[str, Any]) -> None:
        self.n_states = int(definition["states"])
        self.length = int(definition["list_size"])
        self.click_states = [_states(given) for given in definition["click_state"]]
        self.initial_state = int(definition["initial_state"])
        self.absorbing = int(definition["absorbing_state"])
        self.specs: dict[str, Mapping[str, Any]] = dict(definition["parameters"])
        for what, number, most in (
            ("states", self.n_states, MOST_STATES),
            ("list_size", self.length, LONGEST),
        ):
            if not 1 <= number <= most:
                raise ModelError(f"{what} is {number:,}; 1 to {most:,} are understood.")
        if len(self.click_states) != self.length + 1:
            raise ModelError(
                f"click_state must name {self.length + 1} states (positions 0 to {self.length}), "
                f"not {len(self.click_states)}."
            )
        self.ever_clicked = frozenset().union(*self.click_states[1:])
        for state in (self.initial_state, self.absorbing, *self.ever_clicked):
            if not 0 <= state < self.n_states:
                raise ModelError(f"State {state} does not exist: there are {self.n_states}.")
        self.mats = {name: self._mats(name, spec) for name, spec in self.specs.items()}
        self.has_start = any("t0_fixed" in spec for spec in self.specs.values())
        self.by_position = len(set(self.click_states[1:])) > 1 or any(
            spec["var_type"] == "pos" for spec in self.specs.values()
        )
        self.ties = {
            name: self._tie(name, spec)
            for name, spec in self.specs.items()
            if spec["var_type"] == "pos"
        }

    def automaton(self) -> Automaton:
        names = [f"state {state}" for state in range(self.n_states)]
        names[self.absorbing] = "gone"
        edges: list[Edge] = []
        start = self.initial_state
        if self.has_start:
            # The first transition has rules of its own, so it leaves from a state of its own.
            start = self.n_states
            names.append("first")
            edges += self._row(start, 1, at_start=True)
        for state in range(self.n_states):
            if self.by_position:
                for position in range(1, self.length + 1):
                    guard = AtPosition(position)
                    for edge in self._row(state, position):
                        edges.append(_guarded(edge, guard))
            else:
                edges += self._row(state, 2 if self.has_start else 1)
        return Automaton(
            parameters=tuple(self.specs),
            signals=("click",),
            states=tuple(names),
            initial=(Edge(START, start),),
            edges=tuple(edges),
            gone=self.absorbing,
            page_length=self.length,
        )

    def _row(self, source: int, position: int, at_start: bool = False) -> list[Edge]:
        """The edges of one state at one position."""
        row = self.initial_state if at_start else source
        cells: dict[int, list[_Term]] = {}
        for target in range(self.n_states):
            if self._is_entered(target, position):
                cells[target] = self._cell(row, target, position, at_start)
        for term in self._missing(row, cells):
            cells.setdefault(self.absorbing, []).append(term)
        edges = []
        for target, terms in cells.items():
            symbol = ("click",) if target in self.click_states[position] else ()
            for literals, weight in terms:
                edges.append(Edge(source, target, symbol, literals, (), weight))
        return edges

    def _is_entered(self, target: int, position: int) -> bool:
        return target in self.click_states[position] or target not in self.ever_clicked

    def _cell(self, row: int, target: int, position: int, at_start: bool) -> list[_Term]:
        """One cell of the transition matrix, multiplied out."""
        terms = [_Term((), 1.0)]
        for name, spec in self.specs.items():
            pos, neg, fixed = (float(mat[row, target]) for mat in self.mats[name])
            heads, tails = pos + fixed, neg + fixed
            if at_start and "t0_fixed" in spec:
                value = float(spec["t0_fixed"])
                heads = tails = value * pos + (1 - value) * neg + fixed
            options: list[tuple[Literal | None, float]]
            if heads == tails:
                options = [(None, heads)]
            else:
                number = self._row_number(name, row, target, position)
                if number == -1:
                    return []
                lag = int(spec.get("lag", 0))
                if at_start and lag:
                    raise ModelError(
                        f"'{name}' belongs to the previous result (lag 1), which the first one "
                        "does not have: give its t0_fixed."
                    )
                options = [
                    (Literal(name, True, lag, number), heads),
                    (Literal(name, False, lag, number), tails),
                ]
            terms = [
                _Term(term.literals + ((literal,) if literal else ()), term.weight * weight)
                for term in terms
                for literal, weight in options
                if weight
            ]
        return terms

    def _row_number(self, name: str, source: int, target: int, position: int) -> int | None:
        kind = self.specs[name]["var_type"]
        if kind == "pos":
            return int(self.ties[name][position - 1, source, target])
        if kind == "state":
            pos, neg, _ = self.mats[name]
            return int((pos != neg).any(axis=1)[:source].sum())
        return None

    def _missing(self, row: int, cells: dict[int, list[_Term]]) -> Iterator[_Term]:
        """What the cells of a row lack to one, under every outcome of their coins."""
        terms = [term for listed in cells.values() for term in listed]
        coins = list(dict.fromkeys(lit._replace(heads=True) for t in terms for lit in t.literals))
        if len(coins) > _MOST_COINS:
            raise ModelError(
                f"What happens in state {row} depends on {len(coins)} coins; {_MOST_COINS} at most "
                "can be multiplied out."
            )
        for outcome in itertools.product((True, False), repeat=len(coins)):
            falls = {lit._replace(heads=h) for lit, h in zip(coins, outcome, strict=True)}
            total = sum(term.weight for term in terms if falls.issuperset(term.literals))
            if total > 1 + _ROUNDING:
                raise ModelError(
                    f"The transition probabilities from state {row} add up to {total:g} if "
                    f"{' and '.join(map(str, sorted(falls))) or 'nothing is flipped'}."
                )
            if total < 1 - _ROUNDING:
                ordered = tuple(c._replace(heads=h) for c, h in zip(coins, outcome, strict=True))
                yield _Term(ordered, 1 - total)

    # -- reading the fields --------------------------------------------------------------------
    def _mats(self, name: str, spec: Mapping[str, Any]) -> tuple[NDArray[np.float64], ...]:
        shape = (self.n_states, self.n_states)
        mats = []
        for field in ("pos_mat", "neg_mat", "fixed_mat"):
            mat = np.asarray(spec.get(field, np.zeros(shape)), dtype=float)
            if mat.shape != shape:
                raise ModelError(f"{field} of '{name}' must be {shape[0]} x {shape[1]}.")
            mats.append(mat)
        if int(spec.get("lag", 0)) not in (0, 1):
            raise ModelError(f"The lag of '{name}' must be 0 or 1.")
        return tuple(mats)

    def _tie(self, name: str, spec: Mapping[str, Any]) -> NDArray[np.int64]:
        tie = spec.get("tie")
        shape = (self.length, self.n_states, self.n_states)
        if tie is None:
            # Every position has a row of its own.
            rows = np.arange(self.length)[:, None, None]
            return np.broadcast_to(rows, shape).astype(np.int64)
        if isinstance(tie, str):
            if "".join(tie.split()) != "".join(BY_LAST_CLICK.split()):
                raise ModelError(
                    f"The tie of '{name}' is not understood: {tie!r}. It is an array, or the words "
                    f"of the paper's UBM: {BY_LAST_CLICK}."
                )
            return self._tie_by_last_click()
        array = np.asarray(tie, dtype=np.int64)
        if array.shape != shape:
            raise ModelError(
                f"The tie of '{name}' must be an array of {shape[0]} positions x {shape[1]} x "
                f"{shape[2]} states."
            )
        if array.min() < -1:
            raise ModelError(f"The tie of '{name}' names row {array.min()}; -1 means none.")
        return array

    def _tie_by_last_click(self) -> NDArray[np.int64]:
        """Row (t, t') as t (t - 1) / 2 + t': position t, last click at t' < t."""
        last = {self.initial_state: 0}
        frontier = {self.initial_state}
        for position in range(1, self.length + 1):
            entered = set()
            for state in frontier:
                for target in range(self.n_states):
                    if not (self._is_entered(target, position) and self._can_follow(state, target)):
                        continue
                    is_click = target in self.click_states[position]
                    click = position if is_click else last[state]
                    if last.setdefault(target, click) != click:
                        raise ModelError(
                            f"State {target} can be entered after different last clicks, so rows "
                            "cannot be tied by the last click; give the tie as an array."
                        )
                    entered.add(target)
            frontier = entered
        tie = np.full((self.length, self.n_states, self.n_states), -1, dtype=np.int64)
        for state, click in last.items():
            for position in range(click + 1, self.length + 1):
                tie[position - 1, state, :] = position * (position - 1) // 2 + click
        return tie

    def _can_follow(self, state: int, target: int) -> bool:
        return all(any(float(mat[state, target]) for mat in mats) for mats in self.mats.values())


def _states(given: Any) -> frozenset[int]:
    """The click states of a position: one, or a list of them."""
    return frozenset(map(int, given if isinstance(given, (list, tuple)) else [given]))


def _guarded(edge: Edge, guard: AtPosition) -> Edge:
    return Edge(edge.source, edge.target, edge.symbol, edge.literals, (guard,), edge.multiplicity)
