"""An automaton in numbers: what the kernel generators read.

Names disappear here, so that no name of a user or a file can reach generated source. What is
observed at a result (its signals, the case its guards put it in) becomes one small number.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from gecasmo.compiler.automaton import AtPosition, Edge, Guard, Literal
from gecasmo.compiler.close import Staircase
from gecasmo.compiler.merge import Guards, merge_edges, split_by_guards

Symbol = tuple[str, ...]


class Variable(NamedTuple):
    """A coin as it is read at a result: `lag` results above, by key or at a fixed row."""

    coin: int
    lag: int
    row: int | None


class MachineLiteral(NamedTuple):
    variable: int
    heads: int


class MachineEdge(NamedTuple):
    source: int
    target: int
    literals: tuple[MachineLiteral, ...]
    multiplicity: float
    number: int  # its place among the automaton's edges, for those who want its story
    symbol: Symbol


class Observation(NamedTuple):
    """What a result looks like to the machine: its class of guards, and what was shown.

    `symbol` is MISSING where the signals are not looked at, and IMPOSSIBLE where something was
    shown that no edge of the class can show.
    """

    case: int
    symbol: Symbol


MISSING: Symbol = ("*missing*",)
IMPOSSIBLE: Symbol = ("*impossible*",)


@dataclass(frozen=True)
class Step:
    """The edges over one result, by observation; `silent` states can only stay quiet for ever."""

    n_sources: int
    n_targets: int
    silent_source: int | None
    silent_target: int | None
    edges: tuple[tuple[MachineEdge, ...], ...]


@dataclass(frozen=True)
class Machine:
    """The numbers behind one staircase.

    Observations are numbered quiet ones first (`n_quiet` of them), the impossible ones last.
    """

    n_coins: int
    variables: tuple[Variable, ...]
    observations: tuple[Observation, ...]
    n_quiet: int
    cases: tuple[Guards, ...]
    case_classes: tuple[int, ...]  # which class of like cases each guard case belongs to
    n_classes: int
    unread: tuple[int, ...]  # by class, the one that such a result has if no number is looked at
    body: Step
    closing: tuple[Step, ...]
    initial: tuple[tuple[MachineEdge, ...], ...]
    n_states: int

    @property
    def n_observations(self) -> int:
        """Number of different observations at a result."""
        return len(self.observations)

    @property
    def first_impossible(self) -> int:
        """Observations from this number on cannot be shown by any edge."""
        return len(self.observations) - self.n_classes

    def steps(self) -> tuple[Step, ...]:
        """All steps, the closing ones first, then the body."""
        return (*self.closing, self.body)

    @cached_property
    def edges_by_class(self) -> tuple[tuple[MachineEdge, ...], ...]:
        """The body's edges of each class, whatever they show."""
        lists: list[list[MachineEdge]] = [[] for _ in range(self.n_classes)]
        for observation, edges in zip(self.observations, self.body.edges, strict=True):
            if observation.symbol != MISSING:
                lists[observation.case].extend(edges)
        return tuple(map(tuple, lists))

    @cached_property
    def n_edges(self) -> int:
        """Number of edges at the step that has most."""
        return max(sum(map(len, step.edges)) for step in self.steps())


def lower(staircase: Staircase, with_missing: bool = False) -> Machine:
    """Turn names into numbers.

    `with_missing` adds, per class of guards, an observation "not looked at": all edges, whatever
    they show.
    """
    return _Lowering(staircase, with_missing).machine()


class _Tagged(NamedTuple):
    """An edge, with the step it belongs to and its number there."""

    edge: Edge
    step: int
    place: int


def _known(guards: Guards) -> frozenset[Guard | AtPosition]:
    """What is known of a result but for whether it has numbers to be seen."""
    return frozenset(g for g in guards if isinstance(g, AtPosition) or not g.is_of_number)


def _has_number(guards: Guards) -> bool:
    return any(isinstance(guard, Guard) and guard.is_of_number and guard.value for guard in guards)


class _Lowering:
    def __init__(self, staircase: Staircase, with_missing: bool) -> None:
        self.staircase = staircase
        self.with_missing = with_missing
        self.automaton = staircase.body
        self.coins = {name: number for number, name in enumerate(self.automaton.parameters)}
        self.variables: dict[Variable, int] = {}
        self.steps = [*staircase.closing, staircase.step(len(staircase.closing) + 1)]
        self.cases, self.case_classes, self.classes, self.unread = self._split_cases()
        self.observations, self.n_quiet = self._number_observations()

    def machine(self) -> Machine:
        initial = tuple(
            tuple(self._edge(edge, number) for number, edge in enumerate(edges))
            for edges in self.staircase.initial
        )
        body = self._body()
        closing = self._closing(body.silent_source)
        return Machine(
            n_coins=len(self.automaton.parameters),
            variables=tuple(self.variables),
            observations=self.observations,
            n_quiet=self.n_quiet,
            cases=self.cases,
            case_classes=self.case_classes,
            n_classes=len(self.classes),
            unread=self.unread,
            body=body,
            closing=closing,
            initial=initial,
            n_states=self.automaton.n_states,
        )

    def _split_cases(
        self,
    ) -> tuple[tuple[Guards, ...], tuple[int, ...], list[list[_Tagged]], tuple[int, ...]]:
        """The guard cases over all steps at once, the classes of cases with equal edges, and for
        each class the one without a look at numbers."""
        tagged = [
            _Tagged(edge, number, index)
            for number, step in enumerate(self.steps)
            for index, edge in enumerate(step.edges)
        ]
        # `split_by_guards` keeps the source: let it carry the place of the edge in `tagged`.
        carriers = [replace(item.edge, source=place) for place, item in enumerate(tagged)]
        split = split_by_guards(carriers, self.automaton.page_length)
        edges_of = {guards: tuple(edge.source for edge in edges) for guards, edges in split}
        plain = {_known(guards): guards for guards in edges_of if not _has_number(guards)}
        # Like cases have the same edges, also where no number is looked at.
        kinds = {g: (own, edges_of[plain[_known(g)]]) for g, own in edges_of.items()}
        numbers: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        for kind in kinds.values():
            numbers.setdefault(kind, len(numbers))
        classes = tuple(numbers[kind] for kind in kinds.values())
        lists = [[tagged[place] for place in places] for places, _ in numbers]
        unread = tuple(numbers[places, places] for _, places in numbers)
        return tuple(edges_of), classes, lists, unread

    def _number_observations(self) -> tuple[tuple[Observation, ...], int]:
        n_classes = len(self.classes)
        quiet = [Observation(number, ()) for number in range(n_classes)]
        if self.with_missing:
            quiet += [Observation(number, MISSING) for number in range(n_classes)]
        loud = [
            Observation(number, symbol)
            for number, items in enumerate(self.classes)
            for symbol in dict.fromkeys(item.edge.symbol for item in items)
            if symbol
        ]
        loud += [Observation(number, IMPOSSIBLE) for number in range(n_classes)]
        return (*quiet, *loud), len(quiet)

    def _edges(self, step: int) -> tuple[tuple[MachineEdge, ...], ...]:
        lists = []
        here = [[item for item in own if item.step == step] for own in self.classes]
        shown: dict[tuple[int, Symbol], list[_Tagged]] = {}
        for case, items in enumerate(here):
            for item in items:
                shown.setdefault((case, item.edge.symbol), []).append(item)
        for case, symbol in self.observations:
            if symbol == MISSING:
                found = self._unseen([item.edge for item in here[case]])
            else:
                items = shown.get((case, symbol), [])
                found = [self._edge(item.edge, item.place) for item in items]
            lists.append(tuple(sorted(found, key=lambda edge: (edge.source, edge.number))))
        return tuple(lists)

    def _unseen(self, edges: list[Edge]) -> list[MachineEdge]:
        """The edges of a result whose signals are not looked at: all of them, whatever they
        show, with only those flips left that decide where they lead."""
        by_source: dict[int, list[Edge]] = {}
        for edge in edges:
            by_source.setdefault(edge.source, []).append(replace(edge, symbol=(), guards=()))
        merged = [e for listed in by_source.values() for e in merge_edges(listed, self.automaton)]
        return [self._edge(edge, number) for number, edge in enumerate(merged)]

    def _body(self) -> Step:
        edges = self._edges(len(self.steps) - 1)
        n_states = self.automaton.n_states
        silent = self._silent(edges, n_states, None)
        return Step(n_states, n_states, silent, silent, edges)

    def _closing(self, body_silent: int | None) -> tuple[Step, ...]:
        closing: list[Step] = []
        silent_target: int | None = 0  # after the last result nothing is left to be seen
        for number in range(len(self.steps) - 1):
            step, edges = self.steps[number], self._edges(number)
            silent: int | None = None
            if number == len(self.steps) - 2:
                silent = body_silent
            elif silent_target is not None:
                silent = self._silent(edges, step.n_sources, silent_target)
            closing.append(Step(step.n_sources, step.n_targets, silent, silent_target, edges))
            silent_target = silent
        return tuple(closing)

    def _silent(
        self, edges: tuple[tuple[MachineEdge, ...], ...], n_states: int, target: int | None
    ) -> int | None:
        """The first state that shows nothing and only ever goes, for certain and without a flip, to
        `target`, or where that is None to itself."""
        silent = set(range(n_states))
        for listed in edges[self.n_quiet :]:
            silent.difference_update(edge.source for edge in listed)
        for listed in edges[: self.n_quiet]:
            n_edges = Counter(edge.source for edge in listed)
            certain = {
                edge.source
                for edge in listed
                if not edge.literals
                and edge.multiplicity == 1
                and edge.target == (edge.source if target is None else target)
            }
            silent &= {state for state in certain if n_edges[state] == 1}
        return min(silent, default=None)

    def _edge(self, edge: Edge, index: int) -> MachineEdge:
        literals = tuple(map(self._literal, edge.literals))
        return MachineEdge(
            edge.source, edge.target, literals, edge.multiplicity, index, edge.symbol
        )

    def _literal(self, literal: Literal) -> MachineLiteral:
        variable = Variable(self.coins[literal.parameter], literal.lag, literal.row)
        number = self.variables.setdefault(variable, len(self.variables))
        return MachineLiteral(number, int(literal.heads))
