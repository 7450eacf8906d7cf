"""The model that is checked, with random probabilities on small pages, seen from all sides.

Small random logs have every column that the model asks for, and kernels can run as plain Python.
What the check believes in uses neither automaton nor kernels: every way a page can go, by running
the program itself for the whole page.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.compiler import reference
from gecasmo.compiler.automaton import RECORDED
from gecasmo.encoding import Rows
from gecasmo.encoding.observations import observed_columns, signal_column
from gecasmo.kernels.library import compiling
from gecasmo.language.density import Density
from gecasmo.language.flip import running
from gecasmo.language.parameter import HISTORY_KEYS, PAGE_KEYS, POSITION_KEYS, Parameter
from gecasmo.language.user import Result, User
from gecasmo.logs import ClickLog, read_log
from gecasmo.logs.views import as_view
from gecasmo.model import ClickModel, Model


@contextmanager
def plain_python() -> Iterator[None]:
    """Within this block kernels run as ordinary Python: slow, debuggable, the same numbers.

    Examples
    --------
    >>> import gecasmo
    >>> from gecasmo.testing import plain_python
    >>> log = gecasmo.read_log({"session": [1, 1], "doc": ["a", "b"], "rank": [1, 2],
    ...                         "click": [1, 0]})
    >>> with plain_python():
    ...     rate = gecasmo.GCTR().fit(log).parameters["click_rate"]["probability"][0]
    >>> rate
    0.5
    """
    token = compiling.set(False)
    try:
        yield
    finally:
        compiling.reset(token)


def random_log(
    model: Model, lengths: list[int], seed: int, n_docs: int = 4, click_rate: float = 0.4
) -> ClickLog:
    """Pages of these lengths with random documents, signals, guards and key columns."""
    rng = np.random.default_rng(seed)
    columns: dict[str, list[Any]] = {name: [] for name in ("session", "query", "doc", "rank")}
    automaton, view = model.traced_automaton, as_view(model.view)
    on_page = {
        key
        for coin in automaton.start_parameters()
        for key in model.keys[coin]
        if key not in (*PAGE_KEYS, *view.keys)
    }
    on_result = {
        key
        for coin, keys in model.keys.items()
        if coin not in automaton.numbered_rows()
        for key in keys
        if key not in (*columns, *HISTORY_KEYS, *POSITION_KEYS, *on_page, *view.keys)
        and key not in automaton.observed_columns()
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
    of_result = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    made = view.example(of_result, np.array(columns["rank"], np.int64))
    columns |= {name: values.tolist() for name, values in made.items()}
    _add_features(model, columns, n_results, rng)
    for guard in (name for name in automaton.guard_columns() if name not in view.guards):
        columns[guard] = (rng.random(n_results) < 0.5).tolist()
    for signal in model.structure.traced.signals:
        columns[signal] = (rng.random(n_results) < click_rate).tolist()
    for name in automaton.observed_columns():  # what is seen depends on what is shown
        columns[name] = [None] * n_results
    return read_log(pl.DataFrame(columns))


def _add_features(
    model: Model, columns: dict[str, list[Any]], n_results: int, rng: np.random.Generator
) -> None:
    """Numbers for the columns that forms read, the same wherever a key is the same."""
    observed = dict(model.traced_automaton.observes)
    wanted = {coin: need for coin, need in model.wanted().items() if coin not in observed}
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
    of_page = model.structure.traced.page_signals
    # A signal of the page is one all over it.
    choices = [2 if name in of_page else 2 ** len(frame) for name in signals]
    copies = []
    for number, pattern in enumerate(itertools.product(*map(range, choices))):
        shown = np.array(
            [
                [bool(bits) if name in of_page else bool(bits >> n & 1) for n in range(len(frame))]
                for name, bits in zip(signals, pattern, strict=True)
            ]
        )
        copies.append(
            frame.with_columns(
                pl.lit(f"pattern {number}").alias("session"),
                *(pl.Series(name, row) for name, row in zip(signals, shown, strict=True)),
                *(pl.lit(None).alias(name) for name in model.traced_automaton.observed_columns()),
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
        form = model.forms[coin]
        if form.is_joint:
            shared = [other for other in twin.states_ if model.forms[other] is form]
            made = twin.states_[shared[0]] if shared else form.invented(rng, log.to_frame())
            twin.states_[coin] = made
            continue
        twin.forms[coin] = Table(key=model.keys[coin])
        values = rng.uniform(0.05, 0.95, len(rows))
        # Rows met only under clicks that this log does not have get a probability as well.
        twin.states_[coin] = TableState(rows, values, float(rng.uniform(0.2, 0.8)))
    return twin


# The row of a coin at a result, given the clicks above; position None means before the first.
Chance = Callable[[str, int | None, Sequence[bool]], float]


class Way(NamedTuple):
    """One way through a page."""

    probability: float
    signals: tuple[frozenset[str], ...]
    reached: tuple[bool, ...]
    flips: tuple[tuple[str, int | None, bool], ...]
    seen: tuple[tuple[str, int, str], ...] = ()  # numbers: column, position and density


class _Chooser:
    def __init__(self, names: Mapping[int, str], outcomes: list[bool], chance: Chance) -> None:
        self.names = names  # of coins, by identity
        self.outcomes = outcomes
        self.chance = chance
        self.used = 0
        self.probability = 1.0
        self.position: int | None = None
        self.clicks: list[bool] = []
        self.guards: Mapping[str, bool] = {}
        self.flips: list[tuple[str, int | None, bool]] = []
        self.seen: list[tuple[str, int, str]] = []

    def observe(self, column: str, density: Density, given: Any) -> None:
        self.seen.append((column, self.position or 0, density.coin(given)))

    def flip(self, parameter: Parameter) -> bool:
        if self.used == len(self.outcomes):
            self.outcomes.append(True)
        outcome = self.outcomes[self.used]
        self.used += 1
        name = self.names[id(parameter)]
        heads = self.chance(name, self.position, self.clicks)
        self.probability *= heads if outcome else 1 - heads
        self.flips.append((name, self.position, outcome))
        return outcome

    def guard(self, column: str) -> bool:
        return self.guards[column]


def every_way(model: ClickModel, guards: Sequence[Mapping[str, bool]], chance: Chance) -> list[Way]:
    """All ways through a page of `len(guards)` results, with their probabilities."""
    ways = []
    outcomes: list[bool] = []
    names = {id(coin): name for name, coin in reversed(model.parameters_by_name.items())}
    while True:
        chooser = _Chooser(names, outcomes, chance)
        token = running.set(chooser)
        try:
            signals, reached = _play(model, guards, chooser)
        finally:
            running.reset(token)
        falls, seen = tuple(chooser.flips), tuple(chooser.seen)
        ways.append(Way(chooser.probability, signals, reached, falls, seen))
        while outcomes and not outcomes[-1]:
            outcomes.pop()
        if not outcomes:
            return ways
        outcomes[-1] = False


def _play(
    model: ClickModel, guards: Sequence[Mapping[str, bool]], chooser: _Chooser
) -> tuple[tuple[frozenset[str], ...], tuple[bool, ...]]:
    user = User({}, at_start=True)
    model.start(user)
    signals, reached = [], []
    for position, known in enumerate(guards):
        chooser.position, chooser.guards = position, known
        if model.spans_pages and known.get("first_on_page") and not known["first_page"]:
            user = _again(user, at_start=True)
            if not user._has_stopped:
                object.__setattr__(user, "_has_left", False)
                model.next_page(user)
        is_here = not (user._has_left or user._has_stopped)
        reached.append(is_here)
        shown: frozenset[str] = frozenset()
        if is_here:
            user = _again(user)
            model.browse(user, Result(chooser))
            shown = frozenset(user._signals)
        signals.append(shown)
        chooser.clicks.append("click" in shown)
    user = User(user._state, at_end=True)
    model.finish(user)
    signals[-1] |= user._signals
    return tuple(signals), tuple(reached)


def _again(user: User, at_start: bool = False) -> User:
    """The same user, with nothing shown yet."""
    again = User(user._state, at_start)
    object.__setattr__(again, "_has_left", user._has_left)
    object.__setattr__(again, "_has_stopped", user._has_stopped)
    return again


Floats = NDArray[np.float64]


def on_pages(model: Model) -> Model:
    """A copy for pages that have all columns of the model's view already.

    The laws of a model hold for any values of these, so random pages will do.
    """
    model._both_structures()
    twin = model.copy()
    twin.view = "pages"
    return twin


class Subject:
    """A model with random probabilities, and pages that it can have shown."""

    def __init__(self, model: Model, seed: int, compiled: bool) -> None:
        model = on_pages(model)
        self.blank, self.seed, self.compiled = model, seed, compiled
        longest = model.traced_automaton.page_length or 3
        self.longest = min(longest, 3 if len(model.structure.traced.signals) == 1 else 2)
        lengths = [1 + number % self.longest for number in range(12)]
        self.log = random_log(model, lengths, seed)
        self.model = with_random_values(model, self.log, seed + 1)
        with plain_python():
            # Random clicks may be impossible under the model; what it simulates never is.
            self.possible: ClickLog = self.model.simulate(self.log, seed=seed)
        self._dated = {
            coin
            for coin, keys in self.model.keys.items()
            if any(key in HISTORY_KEYS for key in keys)
        }
        # Several questions ask for the same.
        self._values: dict[str, dict[tuple[int, tuple[bool, ...]], float]] = {}
        self._ways: dict[int, list[Way]] = {}  # of each session
        self._seen: dict[tuple[int, bool], list[Way]] = {}

    def rows(self, log: ClickLog, session: int) -> NDArray[np.int64]:
        """Rows of the log that a session has, in order of rank."""
        return log.order[log.starts[session] : log.starts[session + 1]]

    def places(self, log: ClickLog) -> NDArray[np.int64]:
        """Place of each result on its page, from 0, in the order of pages."""
        return np.arange(log.n_results) - np.repeat(log.starts[:-1], log.lengths)

    def row_places(self, log: ClickLog) -> NDArray[np.int64]:
        """Place of each result on its page, from 0, in the order of the log."""
        places = np.empty(log.n_results, np.int64)
        places[log.order] = self.places(log)
        return places

    def values(self, coin: str, frame: pl.DataFrame) -> Floats:
        """Probabilities of a coin's rows that a frame lists."""
        keys = [c for c in frame.columns if c not in ("heads", "tails")]
        rows = Rows(keys, [frame[key] for key in keys], len(frame))
        form, states = self.model.forms[coin], self.model.states()
        return form.predict(states[coin], rows)

    def value(self, coin: str, row: int, above: Sequence[bool]) -> float:
        """The probability of a coin at a result of a possible page, given the clicks above it."""
        if coin not in self._values:
            self._values[coin] = self._all_values(coin)
        return self._values[coin][row, tuple(above) if coin in self._dated else ()]

    def _all_values(self, coin: str) -> dict[tuple[int, tuple[bool, ...]], float]:
        """The probabilities of a coin at all results, under all clicks above that it looks at."""
        log, keys = self.possible, self.model.keys[coin]
        known: dict[str, list[int]] = {key: [] for key in (*HISTORY_KEYS, *POSITION_KEYS)}
        asked: list[tuple[int, tuple[bool, ...]]] = []
        for session in range(log.n_sessions):
            rows = self.rows(log, session)
            ranks = log.rank[rows].tolist()
            for place, row in enumerate(rows.tolist()):
                for above in itertools.product((False, True), repeat=place * (coin in self._dated)):
                    clicked = [rank for rank, click in zip(ranks, above, strict=False) if click]
                    last = clicked[-1] if clicked else 0
                    asked.append((row, above))
                    known["rank"].append(ranks[place])
                    known["page_length"].append(len(rows))
                    known["result"].append(row)
                    known["last_click"].append(last)
                    known["distance"].append(ranks[place] - last)
                    known["clicks_above"].append(len(clicked))
        places = [row for row, _ in asked]
        values = [
            pl.Series(key, known[key])
            if key in known
            else log.column(key).gather(places).alias(key)
            for key in keys
        ]
        form, states = self.model.forms[coin], self.model.states()
        found = form.predict(states[coin], Rows(keys, values, len(asked)))
        return dict(zip(asked, found.tolist(), strict=True))

    def ways(self, session: int) -> list[Way]:
        """List every way in which a session can have happened, with its probability."""
        if session not in self._ways:
            self._ways[session] = self._play_all(session)
        return self._ways[session]

    def _play_all(self, session: int) -> list[Way]:
        log = self.possible
        rows = self.rows(log, session).tolist()
        columns = self.model.traced_automaton.guard_columns()
        known = {c: log.column(c).gather(rows).to_list() for c in columns}
        guards = [{c: bool(known[c][place]) for c in columns} for place in range(len(rows))]

        def chance(coin: str, position: int | None, clicks: Sequence[bool]) -> float:
            place = position or 0
            return self.value(coin, rows[place], clicks[:place])

        assert isinstance(self.blank, ClickModel)
        return every_way(self.blank, guards, chance)

    def seen(self, session: int, counting: bool = False) -> list[Way]:
        """The ways that show what the log shows; `counting` as fits see it."""
        if (session, counting) not in self._seen:
            self._seen[session, counting] = self._look(session, counting)
        return self._seen[session, counting]

    def _look(self, session: int, counting: bool) -> list[Way]:
        log, model = self.possible, self.model
        automaton = (model.counting_structure if counting else model.structure).traced
        columns = {s: signal_column(log, automaton, s) for s in automaton.signals}
        shown = [
            frozenset(s for s, column in columns.items() if column[row])
            for row in self.rows(log, session)
        ]
        found = []
        for way in self.ways(session):
            if [signals & columns.keys() for signals in way.signals] == shown:
                density = self.density(way, session)
                if density > 0:
                    found.append(way._replace(probability=way.probability * density))
        return found

    def density(self, way: Way, session: int) -> float:
        """The density of the numbers on a page if it went this way; 0 if it cannot have them."""
        columns = self.model.traced_automaton.observed_columns()
        if not columns:
            return 1.0
        found, seen = 1.0, self.recorded(way, session)
        log = self.possible
        for coin, value, row in seen:
            keys = [c for c in self.model.keys[coin] if c not in columns]
            group = tuple(log.column(key)[row] for key in keys)
            family = self.model.states()[coin].of(group)[coin]
            found *= float(np.exp(family.log_density(np.array([value]))[0]))
        rows = self.rows(log, session)
        n_values = sum(log.column(c)[int(r)] is not None for c in columns for r in rows)
        return found if len(seen) == n_values else 0.0

    def recorded(self, way: Way, session: int) -> list[tuple[str, float, int]]:
        """The numbers that the log has of what is seen on a way, each with its density and row."""
        if not way.seen:
            return []
        rows, log = self.rows(self.possible, session), self.possible
        seen = [(coin, c, int(rows[at])) for c, at, coin in way.seen]
        found = [(coin, log.column(c)[row], row) for coin, c, row in seen]
        return [(coin, value, row) for coin, value, row in found if value is not None]

    def observed(self) -> tuple[str, ...]:
        """The columns of numbers that the pages have."""
        return observed_columns(self.possible, self.model.traced_automaton)

    def page(self, session: int) -> tuple[reference.ReferencePage, float]:
        """A page as the reference wants it, and what its weights leave out of its likelihood."""
        log, automaton = self.possible, self.model.structure.traced
        numbered = automaton.numbered_rows()
        rows = self.rows(log, session)
        values = {}
        observed = {c: column for c, column in automaton.observes if column in self.observed()}
        scales = np.zeros(len(rows))
        for coin, form in self.model.forms.items():
            if coin in observed:
                keys = self.model.keys[coin]
                own = Rows(keys, [log.column(key)[rows] for key in keys], len(rows))
                state = self.model.states()[coin]
                values[coin] = form.probabilities(state, own, coin)
                scale = form.log_scale(state, own)
                if coin == next(c for c in observed if observed[c] == observed[coin]):
                    scales += np.zeros(len(rows)) if scale is None else scale
            elif coin not in numbered and coin not in dict(automaton.observes):
                clicks = log.click[rows].tolist()
                own_values = [self.value(coin, int(r), clicks[:n]) for n, r in enumerate(rows)]
                values[coin] = np.array(own_values)
        signals = {s: signal_column(log, automaton, s) for s in automaton.signals}
        return reference.ReferencePage(
            shown=[tuple(s for s in signals if signals[s][row]) for row in rows],
            values=values,
            guards=[
                {c: bool(log.column(c)[int(row)]) for c in automaton.guard_columns()}
                | {
                    RECORDED + c: log.column(c)[int(row)] is not None
                    for c in automaton.observed_columns()
                }
                for row in rows
            ],
            start={coin: float(v[0]) for coin, v in values.items()},
            rows={coin: self.model.states()[coin].probability for coin in numbered},
        ), float(scales.sum())
