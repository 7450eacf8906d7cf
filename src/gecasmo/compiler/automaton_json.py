"""An automaton as JSON and back: the structure of a saved model, with no code in it."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

from gecasmo.compiler.automaton import START, AtPosition, Automaton, Edge, Guard, Literal
from gecasmo.compiler.merge import check_effort, split_by_guards
from gecasmo.compiler.trace import MAX_FLIPS, MAX_SIGNALS
from gecasmo.errors import SavedModelError

# A file must not make us reserve memory, or work for hours, for what nobody can have meant.
MAX_ROWS = 2**20
MAX_STATES = 2**13
MAX_EDGES = 2**18


def to_data(automaton: Automaton) -> dict[str, Any]:
    """Plain lists and dictionaries that `json.dumps` takes."""
    return {
        "parameters": list(automaton.parameters),
        "signals": list(automaton.signals),
        "states": list(automaton.states),
        "initial": [_edge_to_data(edge) for edge in automaton.initial],
        "edges": [_edge_to_data(edge) for edge in automaton.edges],
        "gone": automaton.gone,
        "page_length": automaton.page_length,
        **({"page_signals": list(automaton.page_signals)} if automaton.page_signals else {}),
        **({"observes": list(map(list, automaton.observes))} if automaton.observes else {}),
    }


def from_data(data: dict[str, Any]) -> Automaton:
    """The automaton that `to_data` described; every part is checked, nothing is trusted."""
    try:
        automaton = Automaton(
            parameters=tuple(map(_text, data["parameters"])),
            signals=tuple(map(_text, data["signals"])),
            states=tuple(map(_text, data["states"])),
            initial=tuple(map(_edge_from_data, data["initial"])),
            edges=tuple(map(_edge_from_data, data["edges"])),
            gone=None if data["gone"] is None else _whole(data["gone"]),
            page_length=None if data["page_length"] is None else _whole(data["page_length"]),
            page_signals=tuple(map(_text, data.get("page_signals", []))),
            observes=tuple((_text(p), _text(column)) for p, column in data.get("observes", [])),
        )
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise SavedModelError(f"This is not the description of an automaton ({error!r}).") from None
    _check(automaton)
    return automaton


def _edge_to_data(edge: Edge) -> dict[str, Any]:
    return {
        "from": edge.source,
        "to": edge.target,
        "symbol": list(edge.symbol),
        "literals": [[lit.parameter, lit.heads, lit.lag, lit.row] for lit in edge.literals],
        "guards": [
            {"position": guard.position}
            if isinstance(guard, AtPosition)
            else {"column": guard.column, "value": guard.value}
            for guard in edge.guards
        ],
        "multiplicity": edge.multiplicity,
        **({"away": True} if edge.is_away else {}),
    }


def _edge_from_data(data: dict[str, Any]) -> Edge:
    return Edge(
        source=_whole(data["from"]),
        target=_whole(data["to"]),
        symbol=tuple(map(_text, data["symbol"])),
        literals=tuple(
            Literal(_text(name), _yes_no(heads), _whole(lag), None if row is None else _whole(row))
            for name, heads, lag, row in data["literals"]
        ),
        guards=tuple(
            AtPosition(_whole(guard["position"]))
            if "position" in guard
            else Guard(_text(guard["column"]), _yes_no(guard["value"]))
            for guard in data["guards"]
        ),
        multiplicity=_number(data["multiplicity"]),
        is_away=_yes_no(data.get("away", False)),
    )


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r} is not a whole number")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _yes_no(value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


_LONGEST_PAGE = 100_000
_ROUNDING = 1e-6


def _check(automaton: Automaton) -> None:
    known = range(automaton.n_states)
    length = automaton.page_length
    faults = {
        "The automaton names a state that it does not have": automaton.gone is not None
        and automaton.gone not in known,
        "The automaton has a signal of pages that it does not have": not (
            set(automaton.page_signals) <= set(automaton.signals[1:])
        ),
        "The automaton observes something that makes no sense": not _observes_soundly(automaton),
        "The automaton has no way in": not automaton.initial,
        "The first signal of an automaton is 'click'": automaton.signals[:1] != ("click",),
        "The automaton has two signals of one name": _repeats(automaton.signals),
        "The automaton has two parameters of one name": _repeats(automaton.parameters),
        "The automaton is for pages without results": length is not None and length < 1,
        "The automaton is for endless pages": length is not None and length > _LONGEST_PAGE,
        f"The automaton has more than {MAX_SIGNALS} signals": len(automaton.signals) > MAX_SIGNALS,
        f"The automaton has more than {MAX_STATES:,} states": len(known) > MAX_STATES,
        f"The automaton has more than {MAX_EDGES:,} edges": (
            len(automaton.edges) + len(automaton.initial) > MAX_EDGES
        ),
    }
    for fault, is_there in faults.items():
        if is_there:
            raise SavedModelError(f"{fault}.")
    for edge in automaton.initial:
        if edge.source != START or edge.symbol or edge.guards or not _is_sound(edge, automaton):
            raise SavedModelError(f"A start edge of the automaton makes no sense: {edge}.")
        if any(literal.lag for literal in edge.literals):
            raise SavedModelError(f"A start edge looks at a result above it: {edge}.")
    for edge in automaton.edges:
        if edge.source not in known or not _is_sound(edge, automaton):
            raise SavedModelError(f"An edge of the automaton makes no sense: {edge}.")


def check_probabilities(automaton: Automaton) -> None:
    """Refuse an automaton in which what a user does at a result does not add up to 1."""
    check_effort(automaton)
    densities = {parameter for parameter, _ in automaton.observes}
    for edges in (list(automaton.initial), *automaton.by_source()):
        for _, possible in split_by_guards(edges, automaton.page_length):
            total = sum(_chance(edge, densities) for edge in possible)
            # Of matrices some states are never entered at some positions, and lead nowhere there.
            least = 1 if automaton.page_length is None else 0
            if not least - _ROUNDING <= total <= 1 + _ROUNDING:
                raise SavedModelError(
                    f"The edges of a state of the automaton add up to {total:g}, not to 1."
                )


def _observes_soundly(automaton: Automaton) -> bool:
    """Whether densities are parameters that come up heads at the result itself, one a column."""
    column_of = dict(automaton.observes)
    if len(column_of) < len(automaton.observes) or not column_of.keys() <= {*automaton.parameters}:
        return False
    if any(column in (*automaton.signals, "") for column in column_of.values()):
        return False
    for edge in (*automaton.initial, *automaton.edges):
        seen = [literal for literal in edge.literals if literal.parameter in column_of]
        odd = any(not lit.heads or lit.lag or lit.row is not None for lit in seen)
        if odd or _repeats(tuple(column_of[lit.parameter] for lit in seen)):
            return False
        if seen and edge.source == START:
            return False
    return True


def _chance(edge: Edge, densities: Collection[str]) -> float:
    """The probability of an edge where every coin has some value of its own."""
    chance = edge.multiplicity
    for literal in edge.literals:
        if literal.parameter in densities:
            continue
        digest = hashlib.blake2b(repr(literal.coin).encode(), digest_size=4).digest()
        heads = 0.1 + 0.8 * int.from_bytes(digest, "little") / 2**32
        chance *= heads if literal.heads else 1 - heads
    return chance


def _is_sound(edge: Edge, automaton: Automaton) -> bool:
    positions = [guard.position for guard in edge.guards if isinstance(guard, AtPosition)]
    return (
        edge.target in range(automaton.n_states)
        and set(edge.symbol) <= set(automaton.signals)
        and not _repeats(edge.symbol)
        and {literal.parameter for literal in edge.literals} <= set(automaton.parameters)
        and all(literal.lag in (0, 1) for literal in edge.literals)
        and all(literal.row is None or 0 <= literal.row < MAX_ROWS for literal in edge.literals)
        and all(1 <= position <= (automaton.page_length or 0) for position in positions)
        and len(edge.literals) <= MAX_FLIPS
        and len(positions) <= 1
        and not _repeats(tuple(g.column for g in edge.guards if isinstance(g, Guard)))
        and 0 < edge.multiplicity < float("inf")
    )


def _repeats(names: tuple[str, ...]) -> bool:
    return len(set(names)) < len(names)
