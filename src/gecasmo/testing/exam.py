"""The exam that every model sits: `check_model(MyModel)`."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.compiler import reference
from gecasmo.encoding import Rows
from gecasmo.errors import ConvergenceWarning, GecasmoError
from gecasmo.estimation import EM
from gecasmo.logs import ClickLog
from gecasmo.model import ClickModel, Model, load
from gecasmo.testing.enumeration import Way, every_way
from gecasmo.testing.plain import plain_python
from gecasmo.testing.small_logs import every_pattern, random_log, with_random_values

TOLERANCE = 1e-10
Floats = NDArray[np.float64]


class ModelCheckError(GecasmoError, AssertionError):
    """A model failed its exam."""


@dataclass(frozen=True)
class Check:
    """One question of the exam; `error` is the largest difference found."""

    question: str
    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance


@dataclass
class CheckReport:
    """What the exam found; prints one line a question."""

    model: str
    checks: list[Check] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def __str__(self) -> str:
        lines = [f"{self.model}: {'passed' if self.passed else 'FAILED'}"]
        for check in self.checks:
            mark = "ok  " if check.passed else "FAIL"
            lines.append(f"  {mark} {check.question:<66} {check.error:.1e}")
        return "\n".join(lines)

    __repr__ = __str__


def check_model(model: type[Model] | Model, *, seed: int = 0, compiled: bool = True) -> CheckReport:
    """Examine a model: do kernels, reference and enumeration agree, and do the laws hold?

    Parameters
    ----------
    model : a model class, or a model with forms of its own
    seed : of the random pages and probabilities
    compiled : also compile the kernels; without, only their source is run

    Raises
    ------
    ModelCheckError
        With the whole report, if any question fails.

    Examples
    --------
    >>> from gecasmo import DBN
    >>> from gecasmo.testing import check_model
    >>> check_model(DBN, compiled=False).passed
    True
    """
    instance = model if isinstance(model, Model) else model()  # type: ignore[call-arg]
    exam = _Exam(instance, seed, compiled)
    report = CheckReport(instance.name)
    for question, ask in exam.questions():
        error, tolerance = ask()
        report.checks.append(Check(question, float(error), tolerance))
    if not report.passed:
        raise ModelCheckError(str(report))
    return report


class _Exam:
    def __init__(self, model: Model, seed: int, compiled: bool) -> None:
        self.blank, self.seed, self.compiled = model, seed, compiled
        longest = model.traced_automaton.page_length or 3
        self.longest = min(longest, 3 if len(model.traced_automaton.signals) == 1 else 2)
        lengths = [1 + number % self.longest for number in range(12)]
        self.log = random_log(model, lengths, seed)
        self.model = with_random_values(model, self.log, seed + 1)
        with plain_python():
            # Random clicks may be impossible under the model; what it simulates never is.
            self.possible: ClickLog = self.model.simulate(self.log, seed=seed)

    def questions(self) -> list[tuple[str, Callable[[], tuple[float, float]]]]:
        listed = [
            ("all patterns of a page add up to one", self.ask_sum),
            ("the reference has the likelihood of the kernels", self.ask_reference),
            ("filter, multiplied along the page, is the E-step's likelihood", self.ask_e_step),
            ("minimal and full hidden data have the same score", self.ask_score),
            ("no conditional probability looks at clicks at or below it", self.ask_leak),
            ("EM never lowers the objective", self.ask_em),
            ("saved and loaded, the predictions are the same", self.ask_saved),
        ]
        if isinstance(self.blank, ClickModel):
            listed.insert(1, ("enumeration gives the same likelihood", self.ask_likelihood))
            listed.insert(2, ("enumeration gives the same click probabilities", self.ask_marginal))
            listed.insert(3, ("enumeration gives the same expected counts", self.ask_counts))
            listed.insert(4, ("enumeration gives the same posterior", self.ask_posterior))
        if self.compiled:
            listed.append(("compiled kernels give the numbers of their source", self.ask_compiled))
        return listed

    # -- laws ----------------------------------------------------------------------------------
    def ask_sum(self) -> tuple[float, float]:
        worst = 0.0
        for number in range(self.longest):
            page = self.log.take(np.array([number]))
            with plain_python(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                logs = self.model.log_likelihood(every_pattern(self.model, page), impossible="drop")
            worst = max(worst, abs(float(np.exp(logs).sum()) - 1))
        return worst, TOLERANCE

    def ask_reference(self) -> tuple[float, float]:
        log, worst = self.possible, 0.0
        with plain_python():
            found = self.model.log_likelihood(log)
        for staircase in (self.model.structure.minimal, self.model.structure.full):
            for session in range(log.n_sessions):
                expected = reference.e_step(staircase, self._page(log, session)).log_likelihood
                worst = max(worst, abs(expected - found[session]))
        return worst, TOLERANCE

    def ask_e_step(self) -> tuple[float, float]:
        from gecasmo.model.answers import expected_counts

        with plain_python():
            _, counts = expected_counts(self.model, self.possible, "minimal")
            filtered = self.model.log_likelihood(self.possible).sum()
        return abs(counts.log_likelihood - filtered), TOLERANCE * max(1, self.possible.n_sessions)

    def ask_score(self) -> tuple[float, float]:
        with plain_python():
            minimal, full = (
                self.model.expected_counts(self.possible, augmentation=kind)
                for kind in ("minimal", "full")
            )
        worst = 0.0
        for coin in self.model.forms:
            theta = self._values(coin, minimal[coin])
            scores = [
                f["heads"].to_numpy() * (1 - theta) - f["tails"].to_numpy() * theta
                for f in (minimal[coin], full[coin])
            ]
            worst = max(worst, float(np.abs(scores[0] - scores[1]).max(initial=0)))
        return worst, TOLERANCE

    def ask_leak(self) -> tuple[float, float]:
        with plain_python():
            before = self.model.predict_conditional_clicks(self.possible, impossible="floor")
            worst = 0.0
            for place in range(self.longest):
                rows = self.possible.order[self._places(self.possible) == place]
                flipped = self.possible.click.copy()
                below = np.isin(self._row_places(self.possible), range(place, self.longest))
                flipped[below] = ~flipped[below]
                changed = self.possible.with_signals({"click": flipped})
                after = self.model.predict_conditional_clicks(changed, impossible="floor")
                worst = max(worst, float(np.abs(after[rows] - before[rows]).max(initial=0)))
        return worst, 0.0

    def ask_em(self) -> tuple[float, float]:
        worst = 0.0
        with plain_python(), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            for accelerate in (False, True):
                method = EM(max_iter=6, accelerate=accelerate, restarts=1)
                fitted = self.blank.copy().fit(self.possible, method, impossible="drop")
                objective = fitted.history["objective"].to_numpy()
                fall = -np.diff(objective).min(initial=0.0)
                worst = max(worst, float(fall) / max(1.0, abs(float(objective[-1]))))
        return worst, TOLERANCE

    def ask_saved(self) -> tuple[float, float]:
        with tempfile.TemporaryDirectory() as folder, plain_python():
            path = Path(folder) / "model"
            self.model.save(path)
            twin = load(path)
            before = self.model.predict_clicks(self.log)
            after = twin.predict_clicks(self.log)
        return float(np.abs(before - after).max()), 0.0

    def ask_compiled(self) -> tuple[float, float]:
        log = self.possible
        questions: Sequence[Callable[[], pl.DataFrame | Floats]] = (
            lambda: self.model.log_likelihood(log),
            lambda: self.model.predict_clicks(log),
            lambda: self.model.predict_conditional_clicks(log),
            lambda: self.model.posterior(log).select(pl.col(pl.Float64)),
            lambda: next(iter(self.model.expected_counts(log).values()))["heads"].to_numpy(),
        )
        worst = 0.0
        for ask in questions:
            fast = np.asarray(ask())
            with plain_python():
                slow = np.asarray(ask())
            worst = max(worst, float(np.abs(fast - slow).max(initial=0)))
        return worst, TOLERANCE

    # -- enumeration ---------------------------------------------------------------------------
    def ask_likelihood(self) -> tuple[float, float]:
        with plain_python():
            found = np.exp(self.model.log_likelihood(self.possible))
        worst = 0.0
        for session in range(self.possible.n_sessions):
            worst = max(
                worst, abs(sum(w.probability for w in self._seen(session)) - found[session])
            )
        return worst, TOLERANCE

    def ask_marginal(self) -> tuple[float, float]:
        with plain_python():
            found = self.model.predict_clicks(self.possible)
        worst = 0.0
        for session in range(self.possible.n_sessions):
            ways = self._ways(session)
            for place, row in enumerate(self._rows(self.possible, session)):
                clicked = sum(w.probability for w in ways if "click" in w.signals[place])
                worst = max(worst, abs(clicked - found[row]))
        return worst, TOLERANCE

    def ask_counts(self) -> tuple[float, float]:
        with plain_python():
            found = self.model.expected_counts(self.possible, augmentation="full")
        worst = 0.0
        for coin in self.model.forms:
            heads = tails = 0.0
            for session in range(self.possible.n_sessions):
                ways = self._seen(session)
                total = sum(way.probability for way in ways)
                for way in ways:
                    falls = [outcome for name, _, outcome in way.flips if name == coin]
                    heads += way.probability / total * sum(falls)
                    tails += way.probability / total * (len(falls) - sum(falls))
            worst = max(worst, abs(float(found[coin]["heads"].sum()) - heads))
            worst = max(worst, abs(float(found[coin]["tails"].sum()) - tails))
        return worst, TOLERANCE * max(1, self.possible.n_results)

    def ask_posterior(self) -> tuple[float, float]:
        with plain_python():
            found = self.model.posterior(self.possible)
        worst = 0.0
        for session in range(self.possible.n_sessions):
            ways = self._seen(session)
            total = sum(way.probability for way in ways)
            for place, row in enumerate(self._rows(self.possible, session)):
                there = sum(way.probability for way in ways if way.reached[place]) / total
                worst = max(worst, abs(there - found["reached"][int(row)]))
        return worst, TOLERANCE

    # -- help ----------------------------------------------------------------------------------
    def _rows(self, log: ClickLog, session: int) -> NDArray[np.int64]:
        return log.order[log.starts[session] : log.starts[session + 1]]

    def _places(self, log: ClickLog) -> NDArray[np.int64]:
        return np.arange(log.n_results) - np.repeat(log.starts[:-1], log.lengths)

    def _row_places(self, log: ClickLog) -> NDArray[np.int64]:
        places = np.empty(log.n_results, np.int64)
        places[log.order] = self._places(log)
        return places

    def _values(self, coin: str, frame: pl.DataFrame) -> Floats:
        keys = [c for c in frame.columns if c not in ("heads", "tails")]
        rows = Rows(keys, [frame[key] for key in keys], len(frame))
        form, states = self.model.forms[coin], self.model.states()
        return form.predict(states[coin], rows)

    def _value(self, coin: str, row: int, log: ClickLog, clicks: Sequence[bool] | None) -> float:
        """The probability of a coin at a result, given the clicks above it."""
        keys = self.model.keys[coin]
        session = int(log.page[row])
        rows = self._rows(log, session)
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

    def _ways(self, session: int) -> list[Way]:
        log = self.possible
        rows = self._rows(log, session)
        columns = self.model.traced_automaton.guard_columns()
        guards = [{c: bool(log.column(c)[int(row)]) for c in columns} for row in rows]
        cache: dict[tuple[str, int, tuple[bool, ...]], float] = {}

        def chance(coin: str, position: int | None, clicks: Sequence[bool]) -> float:
            place = position or 0
            key = (coin, place, tuple(clicks[:place]))
            if key not in cache:
                cache[key] = self._value(coin, int(rows[place]), log, list(clicks))
            return cache[key]

        assert isinstance(self.blank, ClickModel)
        return every_way(self.blank, guards, chance)

    def _seen(self, session: int) -> list[Way]:
        """The ways that show what the log shows."""
        log = self.possible
        signals = self.model.traced_automaton.signals
        shown = tuple(
            frozenset(s for s in signals if bool(log.column(s)[int(row)]))
            for row in self._rows(log, session)
        )
        return [way for way in self._ways(session) if way.signals == shown]

    def _page(self, log: ClickLog, session: int) -> reference.Page:
        automaton = self.model.traced_automaton
        rows = self._rows(log, session)
        values = {}
        for coin in self.model.forms:
            if self.model.keys[coin] != ("row",):
                values[coin] = np.array([self._value(coin, int(r), log, None) for r in rows])
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
            rows={
                coin: self.model.states()[coin].probability
                for coin, keys in self.model.keys.items()
                if keys == ("row",)
            },
        )
