"""The one intermediate form: states, and edges labelled with what is seen and which coins fell how.

An edge is one way through one result: from a state, under some guards, showing some signals, to
a state, with probability `multiplicity` times the product of its literals. Click and next state
hang on the edge (a Mealy machine), so "examining" and "gone" are all the states DBN needs. Edges
are a bag: two edges with the same literals add up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from gecasmo.compiler.matrices import PageMatrices

START = -1  # the source of the edges taken before the first result
OWN = "\0"  # begins the names of yes/no columns that are made of a log, and that no log has
LAST_RESULT = OWN + "last result"
RECORDED = OWN + "recorded: "  # begins the name of the one that says where a column has a number


class Literal(NamedTuple):
    """One fallen coin.

    `lag` 1 takes the row of the previous result; `row` is a fixed row number where the model
    states one (the paper's matrices), else None: the row that the key of the coin names.
    """

    parameter: str
    heads: bool
    lag: int = 0
    row: int | None = None

    @property
    def coin(self) -> tuple[str, int, int | None]:
        """What is flipped, whichever way it falls."""
        return (self.parameter, self.lag, self.row)

    def __str__(self) -> str:
        row = "" if self.row is None else f"[{self.row}]"
        return ("" if self.heads else "~") + self.parameter + row + "'" * self.lag


class Guard(NamedTuple):
    """The edge exists only where a yes/no column of the log has this value."""

    column: str
    value: bool

    @property
    def is_of_number(self) -> bool:
        """Whether it says if there is a number to be seen."""
        return self.column.startswith(RECORDED)

    def __str__(self) -> str:
        name = self.column.removeprefix(OWN)
        return name if self.value else f"not {name}"


class AtPosition(NamedTuple):
    """The edge exists only at this place of the page, counted from 1 (matrix models)."""

    position: int

    def __str__(self) -> str:
        return f"position {self.position}"


@dataclass(frozen=True, slots=True)
class Edge:
    source: int
    target: int
    symbol: tuple[str, ...] = ()
    literals: tuple[Literal, ...] = ()
    guards: tuple[Guard | AtPosition, ...] = ()
    multiplicity: float = 1.0
    is_away: bool = False  # the result is not looked at, though the user may come back

    def label(self) -> str:
        """The condition, the probability and the signals, for people."""
        factors = [] if self.multiplicity == 1 else [f"{self.multiplicity:g}"]
        product = " ".join(factors + [str(literal) for literal in self.literals]) or "1"
        condition = f"[{', '.join(map(str, self.guards))}] " if self.guards else ""
        return f"{condition}{product}" + (f" / {'+'.join(self.symbol)}" if self.symbol else "")


@dataclass(frozen=True)
class Automaton:
    """A click model as data: it knows coins by name, and nothing of logs or keys.

    Attributes
    ----------
    parameters : names of the coins, in the order they are declared
    signals : names of what can be observed; the first is always "click"
    states : a readable name per state
    initial : edges from before the first result into a state
    edges : edges over one result
    gone : the state of a user who has left, if the model has one
    page_length : the longest page the model is defined for, or None for any
    page_signals : the signals of a whole page, which its last result shows
    observes : the parameters that are no coins but densities of a number, each with the column of
        the log that has it; they only ever come up heads, and weigh what the density is there
    """

    parameters: tuple[str, ...]
    signals: tuple[str, ...]
    states: tuple[str, ...]
    initial: tuple[Edge, ...]
    edges: tuple[Edge, ...]
    gone: int | None = None
    page_length: int | None = None
    page_signals: tuple[str, ...] = ()
    observes: tuple[tuple[str, str], ...] = ()

    @property
    def n_states(self) -> int:
        """Number of states, with the one of users who have gone."""
        return len(self.states)

    def edges_from(self, state: int) -> list[Edge]:
        """List the edges that leave a state."""
        return [edge for edge in self.edges if edge.source == state]

    def by_source(self) -> list[list[Edge]]:
        """The edges of each state, in order."""
        lists: list[list[Edge]] = [[] for _ in self.states]
        for edge in self.edges:
            lists[edge.source].append(edge)
        return lists

    def observed_columns(self) -> tuple[str, ...]:
        """The columns of numbers that users are seen through."""
        return tuple(dict.fromkeys(column for _, column in self.observes))

    def start_parameters(self) -> set[str]:
        """The coins flipped before the first result."""
        return {literal.parameter for edge in self.initial for literal in edge.literals}

    def numbered_rows(self) -> dict[str, int]:
        """The coins whose edges name their row by number, with the number of rows."""
        n_rows: dict[str, int] = {}
        for edge in (*self.initial, *self.edges):
            for name, _, _, row in edge.literals:
                if row is not None:
                    n_rows[name] = max(n_rows.get(name, 0), row + 1)
        return n_rows

    def guard_columns(self, with_own: bool = False) -> list[str]:
        """The yes/no columns that the edges ask of a log, in order of appearance; on demand also
        those that are made of it."""
        guards = (guard for edge in self.edges for guard in edge.guards)
        names = dict.fromkeys(guard.column for guard in guards if isinstance(guard, Guard))
        return [name for name in names if with_own or not name.startswith(OWN)]

    def with_edges(self, edges: Iterable[Edge], initial: Iterable[Edge] | None = None) -> Automaton:
        """Copy the automaton with other edges, and other initial ones if given."""
        start = self.initial if initial is None else tuple(initial)
        return replace(self, edges=tuple(edges), initial=start)

    def matrices(self, page_length: int) -> PageMatrices:
        """The paper's matrices for a page of this length; see `PageMatrices`."""
        from gecasmo.compiler.matrices import PageMatrices

        return PageMatrices.of(self, page_length)

    def to_json(self) -> str:
        """The automaton as JSON; `Automaton.from_json` reads it back."""
        import json

        from gecasmo.compiler.automaton_json import to_data

        return json.dumps(to_data(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Automaton:
        """The automaton that `to_json` described; what makes no sense is refused."""
        import json

        from gecasmo.compiler.automaton_json import from_data
        from gecasmo.errors import SavedModelError

        try:
            data = json.loads(text)
        except ValueError as error:
            raise SavedModelError(f"This is not JSON: {error}.") from None
        return from_data(data)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    __repr__ = __str__

    def _lines(self) -> Iterator[str]:
        yield f"{self.n_states} states, {len(self.edges)} edges, signals {', '.join(self.signals)}"
        width = max((len(name) for name in self.states), default=0)
        width = min(max(width, len("start")), 40)
        for edge in self.initial + self.edges:
            source = "start" if edge.source == START else self.states[edge.source]
            yield f"  {source:<{width}} -> {self.states[edge.target]:<{width}}  {edge.label()}"

    def to_mermaid(self) -> str:
        """A Mermaid state diagram, to paste into a page or a README.

        Edges from one state to another are one arrow: Mermaid draws them over each other.
        """
        lines = ["stateDiagram-v2"]
        for number, name in enumerate(self.states):
            lines.append(f"    s{number}: {_plain(name)}")
        for edge in self.initial:
            lines.append(f"    [*] --> s{edge.target}: {_plain(edge.label())}")
        arrows: dict[tuple[int, int], list[str]] = {}
        for edge in self.edges:
            arrows.setdefault((edge.source, edge.target), []).append(_plain(edge.label()))
        for (source, target), labels in arrows.items():
            lines.append(f"    s{source} --> s{target}: {'<br/>'.join(labels)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(str(self))}</pre>"


def _plain(text: str) -> str:
    """Text that cannot end a Mermaid label early."""
    kept = "".join(c if c.isalnum() or c in " ._-+/~*=,'[]()" else " " for c in text)
    return kept.strip() or "?"
