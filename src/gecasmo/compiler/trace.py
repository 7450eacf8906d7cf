"""Run a program under every outcome of its flips and write down the ways through one result.

Ordinary Python control flow works because the program is simply run again for each choice path:
breadth first over states, depth first over paths, heads before tails.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from gecasmo.compiler.automaton import START, Automaton, Edge, Guard, Literal
from gecasmo.errors import GecasmoError, ModelError
from gecasmo.language.flip import running
from gecasmo.language.parameter import Parameter
from gecasmo.language.place import Place, callers_place, mistake
from gecasmo.language.user import Result, User

MAX_STATES = 4096
MAX_FLIPS = 64
MAX_PATHS = 100_000
MAX_SIGNALS = 16
# A program that is not deterministic may do the same twice by chance, so small ones run more often.
_MANY_RUNS, _FEW_PATHS = 16, 500

State = tuple[tuple[str, str, Any], ...] | None  # None: the user has left
GONE: State = None
# Part of the state of users who have left a page, and may look at the next; no attribute can be
# called so.
LEFT = "left the page"
# What the view of a log over several pages says of each result.
FIRST_ON_PAGE, FIRST_PAGE = "first_on_page", "first_page"


class Program(Protocol):
    """What can be traced: coins by name, and what a user does at one result."""

    @property
    def parameters_by_name(self) -> dict[str, Parameter]: ...

    @property
    def spans_pages(self) -> bool: ...

    def start(self, user: User) -> None: ...

    def browse(self, user: User, result: Result) -> None: ...

    def next_page(self, user: User) -> None: ...


class Choice(NamedTuple):
    """One decision on a path: a coin or a guard, where it stands, and how it went."""

    kind: str
    name: str
    place: Place
    outcome: bool


class Outcome(NamedTuple):
    """Where a path ends: what was shown, and the state the user is left in."""

    signals: frozenset[str]
    state: State
    is_away: bool = False  # the result was not looked at


class Replay:
    """Repeats a recorded path, then chooses heads for everything new."""

    def __init__(self, path: list[Choice], parameters: dict[str, Parameter]) -> None:
        self.path = list(path)
        self._position = 0
        self._parameters = parameters
        self._guards: dict[str, bool] = {}
        self._n_flips = 0

    def flip(self, parameter: Parameter) -> bool:
        name = next((n for n, known in self._parameters.items() if known is parameter), None)
        if name is None:
            raise mistake(
                f"flip() was given {parameter!r}, which is not a Parameter of this model.\n"
                f"  Its parameters are: {', '.join(self._parameters) or 'none'}. Parameters are "
                "attributes of the class, or in a list or dictionary that is one."
            )
        self._n_flips += 1
        if self._n_flips > MAX_FLIPS:
            raise mistake(
                f"One path through the program has more than {MAX_FLIPS} flips. A result is "
                "looked at once; what goes on to the next one belongs into user attributes."
            )
        return self._choose("flip", name)

    def guard(self, column: str) -> bool:
        if column not in self._guards:  # a column has one value at a result, however often asked
            self._guards[column] = self._choose("guard", column)
        return self._guards[column]

    def _choose(self, kind: str, name: str) -> bool:
        place = callers_place()
        if self._position == len(self.path):
            self.path.append(Choice(kind, name, place, True))
        choice = self.path[self._position]
        if choice[:3] != (kind, name, place):
            raise _not_deterministic(place)
        self._position += 1
        return choice.outcome


def trace(program: Program) -> Automaton:
    """Compile a program into the automaton of everything a user can do."""
    tracer = _Tracer(program)
    tracer.explore_start()
    position = 0
    while position < len(tracer.states):
        tracer.explore_state(position)
        position += 1
    return tracer.automaton()


class _Tracer:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.parameters = program.parameters_by_name
        self.states: dict[State, int] = {}
        self.state_list: list[State] = []
        self.initial: list[Edge] = []
        self.edges: list[Edge] = []
        self.n_paths = 0
        for function in (program.browse, program.start, program.next_page):
            if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
                raise ModelError(
                    f"{type(program).__name__}.{function.__name__} must be a plain function, "
                    "without yield or async."
                )

    def explore_start(self) -> None:
        def run(chooser: Replay) -> Outcome:
            user = User({}, at_start=True)
            self.program.start(user)
            return self._outcome(user)

        self._explore(run, START)

    def explore_state(self, source: int) -> None:
        state = self.state_list[source]
        if state is None:
            self.edges.append(Edge(source, source))
            return
        attributes = {name: value for name, _, value in state}

        def run(chooser: Replay) -> Outcome:
            user, is_here = User(attributes), True
            if self.program.spans_pages:
                is_here = self._come_to(user, chooser)
            if is_here:
                user = User(user._state)
                self.program.browse(user, Result(chooser))
            return self._outcome(user)._replace(is_away=not is_here)

        self._explore(run, source)

    def _come_to(self, user: User, chooser: Replay) -> bool:
        """Let the user go to the next page, where one begins; whether the result is looked at."""
        has_left = user._state.pop(LEFT, False)
        if chooser.guard(FIRST_ON_PAGE) and not chooser.guard(FIRST_PAGE):
            object.__setattr__(user, "_at_start", True)
            self.program.next_page(user)
        elif has_left:
            user.leave()
        return not (user._has_left or user._has_stopped)

    def _explore(self, run: Callable[[Replay], Outcome], source: int) -> None:
        path: list[Choice] = []
        while True:
            self.n_paths += 1
            if self.n_paths > MAX_PATHS:
                place = path[-1].place if path else None
                raise mistake(
                    f"The program has more than {MAX_PATHS:,} paths in all. Fewer flips at one "
                    "result, or fewer hidden states, keep it compilable.",
                    place or _definition(self.program, source),
                )
            path, outcome = self._run(run, path)
            for _ in range(_MANY_RUNS if self.n_paths < _FEW_PATHS else 1):
                if self._run(run, path) != (path, outcome):
                    place = path[-1].place if path else _definition(self.program, source)
                    raise _not_deterministic(place)
            self._record(source, path, outcome)
            while path and not path[-1].outcome:
                path.pop()
            if not path:
                return
            path[-1] = path[-1]._replace(outcome=False)

    def _run(
        self, run: Callable[[Replay], Outcome], path: list[Choice]
    ) -> tuple[list[Choice], Outcome]:
        chooser = Replay(path, self.parameters)
        token = running.set(chooser)
        try:
            outcome = run(chooser)
        except GecasmoError:
            raise
        except Exception as error:
            raise _crash(error, _definition(self.program).path) from error
        finally:
            running.reset(token)
        return chooser.path, outcome

    def _record(self, source: int, path: list[Choice], outcome: Outcome) -> None:
        edge = Edge(
            source=source,
            target=self._number(outcome.state, path),
            symbol=tuple(sorted(outcome.signals, key=lambda name: (name != "click", name))),
            literals=tuple(Literal(c.name, c.outcome) for c in path if c.kind == "flip"),
            guards=tuple(Guard(c.name, c.outcome) for c in path if c.kind == "guard"),
            is_away=outcome.is_away,
        )
        (self.initial if source == START else self.edges).append(edge)

    def _number(self, state: State, path: list[Choice]) -> int:
        if state not in self.states:
            if len(self.states) == MAX_STATES:
                raise mistake(
                    f"The program has more than {MAX_STATES:,} hidden states; the last one was "
                    f"{_name(state)}. An attribute that only counts up needs a bound.",
                    path[-1].place if path else _definition(self.program),
                )
            self.states[state] = len(self.states)
            self.state_list.append(state)
        return self.states[state]

    def _outcome(self, user: User) -> Outcome:
        if user._has_stopped or (user._has_left and not self.program.spans_pages):
            return Outcome(frozenset(user._signals), GONE)
        items = sorted(user._state.items())
        if user._has_left:
            items.append((LEFT, True))
        # The type is part of the state: a program may well tell True from 1.
        state = tuple((name, type(value).__name__, value) for name, value in items)
        return Outcome(frozenset(user._signals), state)

    def automaton(self) -> Automaton:
        edges = self.initial + self.edges
        flipped = {literal.parameter for edge in edges for literal in edge.literals}
        never = [name for name in self.parameters if name not in flipped]
        if never:
            raise ModelError(
                f"{type(self.program).__name__} never flips {', '.join(never)}.\n"
                f"  Perhaps: flip(self.{never[0]}) in browse; else remove the Parameter."
            )
        emitted = {signal for edge in edges for signal in edge.symbol}
        asked = {guard.column for edge in self.edges for guard in edge.guards}  # type: ignore[union-attr]
        both = sorted(asked & (emitted | {"click"}))
        if both:
            raise ModelError(
                f"{type(self.program).__name__} asks for result.{both[0]}, which is what it has to "
                "explain: a signal cannot be known before it is emitted."
            )
        if len(emitted) > MAX_SIGNALS:
            raise ModelError(
                f"{type(self.program).__name__} emits {len(emitted)} different signals; "
                f"{MAX_SIGNALS} are allowed."
            )
        return Automaton(
            parameters=tuple(self.parameters),
            signals=("click", *sorted(emitted - {"click"})),
            states=tuple(map(_name, self.state_list)),
            initial=tuple(self.initial),
            edges=tuple(self.edges),
            gone=self.states.get(GONE),
        )


def _name(state: State) -> str:
    if state is None:
        return "gone"
    told = (LEFT if name == LEFT else f"{name}={value!r}" for name, _, value in state)
    return ", ".join(told) or "examining"


def _definition(program: Program, source: int = 0) -> Place:
    function = program.start if source == START else program.browse
    code = function.__code__
    return Place(code.co_filename, code.co_firstlineno, code.co_name)


def _not_deterministic(place: Place) -> ModelError:
    return mistake(
        "The program did something else when it was run again with the same flips. All chance "
        "must come from flip(); nothing may be remembered outside of user attributes.",
        place,
    )


def _crash(error: Exception, path: str) -> ModelError:
    """The program failed: show its own last line, not that of a library that it calls."""
    places = []
    step = error.__traceback__
    while step is not None:
        name = step.tb_frame.f_globals.get("__name__", "")
        if not name.startswith(("gecasmo.language", "gecasmo.compiler")):
            code = step.tb_frame.f_code
            places.append(Place(code.co_filename, step.tb_lineno, code.co_name))
        step = step.tb_next
    own = [place for place in places if place.path == path] or places
    text = f"The program raised {type(error).__name__}: {error}"
    return ModelError(f"{own[-1].describe()}\n  {text}" if own else text)
