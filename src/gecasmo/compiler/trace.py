"""Run a program under every outcome of its flips and write down the ways through one result.

Ordinary Python control flow works because the program is simply run again for each choice path:
breadth first over states, depth first over paths, heads before tails.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from gecasmo.compiler.automaton import LAST_RESULT, START, Automaton, Edge, Guard, Literal
from gecasmo.errors import GecasmoError, ModelError
from gecasmo.language.density import Density
from gecasmo.language.flip import running
from gecasmo.language.parameter import HISTORY_KEYS, Parameter
from gecasmo.language.place import Place, callers_place, mistake
from gecasmo.language.user import Result, User

MAX_STATES = 4096
MAX_FLIPS = 64
MAX_PATHS = 100_000
MAX_SIGNALS = 16
# A program that is not deterministic may do the same twice by chance, so small ones run more often.
_MANY_RUNS, _FEW_PATHS = 16, 500

State = tuple[tuple[str, str, Any], ...] | None  # None: the user has left, or the page is over
GONE: State = None
# Parts of the state of users who have left a page, and may look at the next, and of those who have
# left for good, and of whom the end will still tell; no attribute can be called so.
LEFT, STOPPED = "left the page", "gone for good"
# A result has these of its own: a coin of the whole page cannot be keyed by them.
_RESULT_KEYS = ("doc", "rank", "result", *HISTORY_KEYS)
# What the view of a log over several pages says of each result.
FIRST_ON_PAGE, FIRST_PAGE = "first_on_page", "first_page"


class Program(Protocol):
    """What can be traced: coins by name, and what a user does at one result.

    `finishes` says whether it also has something to say after the last one.
    """

    @property
    def parameters_by_name(self) -> dict[str, Parameter]:
        """All coins of the program."""

    @property
    def densities_by_name(self) -> dict[str, Density]:
        """All densities of the program."""

    @property
    def spans_pages(self) -> bool:
        """Whether a walk is a task of several pages."""

    @property
    def turns_pages(self) -> bool:
        """Whether the program says what happens between pages."""

    @property
    def finishes(self) -> bool:
        """Whether the program says what happens after the last result."""

    def start(self, user: User) -> None:
        """Run before the first result."""

    def browse(self, user: User, result: Result) -> None:
        """Run at each result."""

    def next_page(self, user: User) -> None:
        """Run before the first result of every page but the first."""

    def finish(self, user: User) -> None:
        """Run after the last result."""


class Decision(NamedTuple):
    """One decision on a path: a coin or a guard, where it stands, and how it went.

    What is observed is written down as well; there is nothing to decide.
    """

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

    def __init__(
        self,
        path: list[Decision],
        names: dict[int, str],
        densities: dict[str, Density],
        columns: dict[str, str],
    ) -> None:
        self.path = list(path)
        self._position = 0
        self._names = names  # of parameters, by their identity
        self._densities, self._columns = densities, columns
        self._guards: dict[str, bool] = {}
        self._n_flips = 0
        self.is_finishing = False

    def flip(self, parameter: Parameter) -> bool:
        """Give the outcome that this path prescribes, or try heads first on new ground."""
        name = self._names.get(id(parameter))
        if name is None:
            known = ", ".join(self._names.values()) or "none"
            raise mistake(
                f"flip() was given {parameter!r}, which is not a Parameter of this model.\n"
                f"  Its parameters are: {known}. Parameters are "
                "attributes of the class, or in a list or dictionary that is one."
            )
        if self.is_finishing:
            _check_keys_at_end(name, parameter)
        self._n_flips += 1
        if self._n_flips > MAX_FLIPS:
            raise mistake(
                f"One path through the program has more than {MAX_FLIPS} flips. A result is "
                f"looked at once; what the next result needs to know belongs in user attributes."
            )
        return self._choose("flip", name)

    def guard(self, column: str) -> bool:
        """Give the value that this path prescribes for a yes/no column of the result."""
        if column not in self._guards:  # a column has one value at a result, however often asked
            self._guards[column] = self._choose("guard", column)
        return self._guards[column]

    def observe(self, column: str, density: Density, given: Any) -> None:
        """Write down that a number is seen."""
        if not any(known is density for known in self._densities.values()):
            raise mistake(
                f"observe() was given {density!r}, which is not a Density of this model: densities "
                "are attributes of the class."
            )
        coin = density.coin(given)
        if self._columns.setdefault(coin, column) != column:
            raise mistake(
                f"'{density.name}' is the density of '{self._columns[coin]}' and cannot be that of "
                f"'{column}' as well; another column has a Density of its own."
            )
        self._choose("observe", coin)

    def _choose(self, kind: str, name: str) -> bool:
        place = callers_place()
        if self._position == len(self.path):
            self.path.append(Decision(kind, name, place, True))
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
        self.names: dict[int, str] = {}
        for name, one in self.parameters.items():
            self.names.setdefault(id(one), name)
        self.densities = program.densities_by_name
        self.columns: dict[str, str] = {}  # by density and value of the hidden state
        self.states: dict[State, int] = {}
        self.state_list: list[State] = []
        self.initial: list[Edge] = []
        self.edges: list[Edge] = []
        self.page_signals: set[str] = set()
        self.n_paths = 0
        for function in (program.browse, program.start, program.next_page, program.finish):
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
            if user._state.pop(STOPPED, False):
                user.stop()
                is_here = False
            elif self.program.spans_pages:
                is_here = self._come_to(user, chooser)
            if is_here:
                user = User(user._state)
                self.program.browse(user, Result(chooser))
            outcome = self._outcome(user)._replace(is_away=not is_here)
            if self.program.finishes and chooser.guard(LAST_RESULT):
                return self._finished(chooser, user._state, outcome)
            return outcome

        self._explore(run, source)

    def _come_to(self, user: User, chooser: Replay) -> bool:
        """Let the user go to the next page, where one begins; whether the result is looked at."""
        has_left = user._state.pop(LEFT, False)
        if not (has_left or self.program.turns_pages):
            return True
        if chooser.guard(FIRST_ON_PAGE) and not chooser.guard(FIRST_PAGE):
            object.__setattr__(user, "_at_start", True)
            self.program.next_page(user)
        elif has_left:
            user.leave()
        return not (user._has_left or user._has_stopped)

    def _explore(self, run: Callable[[Replay], Outcome], source: int) -> None:
        path: list[Decision] = []
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
            while path and (path[-1].kind == "observe" or not path[-1].outcome):
                path.pop()
            if not path:
                return
            path[-1] = path[-1]._replace(outcome=False)

    def _run(
        self, run: Callable[[Replay], Outcome], path: list[Decision]
    ) -> tuple[list[Decision], Outcome]:
        chooser = Replay(path, self.names, self.densities, self.columns)
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

    def _record(self, source: int, path: list[Decision], outcome: Outcome) -> None:
        edge = Edge(
            source=source,
            target=self._number(outcome.state, path),
            symbol=tuple(sorted(outcome.signals, key=lambda name: (name != "click", name))),
            literals=tuple(Literal(c.name, c.outcome) for c in path if c.kind != "guard"),
            guards=tuple(Guard(c.name, c.outcome) for c in path if c.kind == "guard"),
            is_away=outcome.is_away,
        )
        (self.initial if source == START else self.edges).append(edge)

    def _number(self, state: State, path: list[Decision]) -> int:
        if state not in self.states:
            if len(self.states) == MAX_STATES:
                raise mistake(
                    f"The program has more than {MAX_STATES:,} hidden states; the last one was "
                    f"{self._name(state)}. An attribute that only counts up needs a bound.",
                    path[-1].place if path else _definition(self.program),
                )
            self.states[state] = len(self.states)
            self.state_list.append(state)
        return self.states[state]

    def _outcome(self, user: User) -> Outcome:
        has_stopped = user._has_stopped or (user._has_left and not self.program.spans_pages)
        if has_stopped and not self.program.finishes:
            return Outcome(frozenset(user._signals), GONE)
        items = sorted(user._state.items())
        if has_stopped or user._has_left:
            items.append((STOPPED if has_stopped else LEFT, True))
        # The type is part of the state: a program may well tell True from 1.
        state = tuple((name, type(value).__name__, value) for name, value in items)
        return Outcome(frozenset(user._signals), state)

    def _finished(self, chooser: Replay, attributes: dict[str, Any], last: Outcome) -> Outcome:
        """What the last result shows together with the whole page."""
        user = User(attributes, at_end=True)
        chooser.is_finishing = True
        self.program.finish(user)
        self.page_signals |= user._signals
        return last._replace(signals=last.signals | user._signals, state=GONE)

    def _check_page_signals(self) -> None:
        """Refuse a signal that would be one of results and one of pages."""
        before = {
            signal
            for edge in self.edges
            if Guard(LAST_RESULT, False) in edge.guards
            for signal in edge.symbol
        }
        both = sorted(self.page_signals & before)
        if both:
            raise ModelError(
                f"{type(self.program).__name__} emits '{both[0]}' at a result and in finish(): a "
                "signal is one of results, or one of whole pages."
            )

    def _name(self, state: State) -> str:
        if state is None:
            return "over" if self.program.finishes else "gone"
        own = (LEFT, STOPPED)
        told = (name if name in own else f"{name}={value!r}" for name, _, value in state)
        return ", ".join(told) or "examining"

    def automaton(self) -> Automaton:
        edges = self.initial + self.edges
        flipped = {literal.parameter for edge in edges for literal in edge.literals}
        never = [name for name in self.parameters if name not in flipped]
        if never:
            raise ModelError(
                f"{type(self.program).__name__} never flips {', '.join(never)}.\n"
                f"  Perhaps: flip(self.{never[0]}) in browse; else remove the Parameter."
            )
        observes = self._observes()
        emitted = {signal for edge in edges for signal in edge.symbol}
        asked = {guard.column for edge in self.edges for guard in edge.guards}  # type: ignore[union-attr]
        self._check_page_signals()
        both = sorted(asked & (emitted | {"click"}))
        if both:
            raise ModelError(
                f"{type(self.program).__name__} asks for result.{both[0]}, which is what it has to "
                "explain: a signal cannot be known before it is emitted."
            )
        twice = sorted(set(self.columns.values()) & (asked | emitted))
        if twice:
            raise ModelError(
                f"{type(self.program).__name__} observes '{twice[0]}' as a number, and has it as "
                "yes or no, too."
            )
        if len(emitted) > MAX_SIGNALS:
            raise ModelError(
                f"{type(self.program).__name__} emits {len(emitted)} different signals; "
                f"{MAX_SIGNALS} are allowed."
            )
        return Automaton(
            parameters=(*self.parameters, *(coin for coin, _ in observes)),
            signals=("click", *sorted(emitted - {"click"})),
            states=tuple(map(self._name, self.state_list)),
            initial=tuple(self.initial),
            edges=tuple(self.edges),
            gone=self.states.get(GONE),
            page_signals=tuple(sorted(self.page_signals)),
            observes=observes,
        )

    def _observes(self) -> tuple[tuple[str, str], ...]:
        """The densities that were met, by value of the hidden state, each with its column."""
        found = []
        for name in self.densities:
            own = [coin for coin in self.columns if coin.partition("[")[0] == name]
            if not own:
                raise ModelError(
                    f"{type(self.program).__name__} never observes {name}.\n"
                    f'  Perhaps: user.observe("dwell", self.{name}) in browse; else remove the '
                    "Density."
                )
            found += [(coin, self.columns[coin]) for coin in sorted(own)]
        return tuple(found)


def _check_keys_at_end(name: str, parameter: Parameter) -> None:
    wrong = [key for key in parameter.keys if key in _RESULT_KEYS]
    if wrong:
        raise mistake(
            f"finish() runs after the last result, and '{name}' has the key '{wrong[0]}', of which "
            "every result has its own. What it depends on there belongs in user attributes."
        )


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
