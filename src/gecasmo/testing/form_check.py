"""The check that every form has to pass: `check_form(MyForm("price"))`."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding import Rows
from gecasmo.errors import GecasmoError, GecasmoWarning, ModelError
from gecasmo.estimation import EM
from gecasmo.forms import Form, FormState
from gecasmo.forms.links import LINKS
from gecasmo.logs import ClickLog, read_log
from gecasmo.model import Model, load
from gecasmo.models import DCTR
from gecasmo.testing.model_check import Check, CheckReport, worse
from gecasmo.testing.subject import plain_python

Floats = NDArray[np.float64]
Answer = tuple[float, float]  # the largest error that was found, and what is allowed
Question = tuple[str, Callable[[], Answer]]

# The one coin of the model that forms are tried in, and the key that it declares.
_COIN, _DECLARED = "click_rate", ("query", "doc")
_ROWS = 40
_SMALL = 1e-9  # what rounding may do
_CLOSE = 1e-5  # what a search for the best place may leave
_NUMBERED = ("rank", "page_length", "result", "last_click", "distance", "clicks_above")


class FormCheckError(GecasmoError, AssertionError):
    """A form failed its check."""


def check_form(form: Form, frame: Any = None, *, exact: bool = True, seed: int = 0) -> CheckReport:
    """Examine a form: do the laws hold that fits and answers rely on?

    What a form says that it can do is tried: its M-step, its vector and the derivative by it,
    saving, updates, training by gradients, standing inside a `Sum`.

    Parameters
    ----------
    form : the form, such as `Falling("price")`
    frame : data frame, optional
        Rows to try it on, no two alike: the columns that it reads and those of its key (without
        one: query and doc). By default columns are random numbers; give a frame if they hold texts.
    exact : bool
        Whether the M-step finds the best place there is. Then the order of rows does not matter,
        and a row with weight two is as good as two rows. False for networks, and for classifiers
        that count samples.
    seed : of the random rows and counts

    Raises
    ------
    FormCheckError
        With the whole report, if any question fails.

    Examples
    --------
    >>> from gecasmo import Logistic
    >>> from gecasmo.testing import check_form
    >>> check_form(Logistic("price")).passed
    True
    """
    if not isinstance(form, Form):
        raise ModelError(f"check_form({form!r}): an object that derives from gecasmo.Form.")
    report = CheckReport(repr(form))
    first: Exception | None = None
    check = _FormCheck(form, frame, exact, seed)
    for question, ask in check.questions():
        try:
            with plain_python(), warnings.catch_warnings():
                warnings.simplefilter("ignore", GecasmoWarning)
                error, tolerance = ask()
            report.checks.append(Check(question, float(error), tolerance))
        except Exception as problem:  # whatever it is, the others are asked as well
            first = first or problem
            note = f"{type(problem).__name__}: {problem}"
            report.checks.append(Check(question, np.nan, 0.0, note))
    if not report.passed:
        raise FormCheckError(str(report)) from first
    return report


class _FormCheck:
    """The questions; each answers with the largest error it found and what is allowed."""

    def __init__(self, form: Form, frame: Any, exact: bool, seed: int) -> None:
        self.form, self.exact = form, exact
        self.rng = np.random.default_rng(seed)
        self.keys = form.keys(_DECLARED, None)
        made = self._random_frame() if frame is None else pl.DataFrame(frame)
        self.frame = made.sample(fraction=1, shuffle=True, seed=seed)
        n_fit = len(made) if len(made) < 4 else 3 * len(made) // 4
        self.seen, self.unseen = self.frame[:n_fit], self.frame[n_fit:]
        self.rows = self._rows(self.seen)
        self.heads, self.tails = self._counts(n_fit)

    def _random_frame(self) -> pl.DataFrame:
        if not self.keys:
            return pl.DataFrame({"": [None]})
        numbers = np.arange(1, _ROWS + 1)
        columns: dict[str, Any] = {}
        for key in self.keys:
            is_number = key in _NUMBERED or key in self.form.columns
            columns[key] = numbers if is_number else [f"{key} {n}" for n in numbers]
        for name in self.form.columns:
            columns[name] = self.rng.normal(size=_ROWS).round(3)
        return pl.DataFrame(columns)

    def _rows(self, frame: pl.DataFrame) -> Rows:
        lost = [name for name in (*self.keys, *self.form.columns) if name not in frame.columns]
        if lost:
            raise ModelError(f"The frame for check_form lacks {', '.join(lost)}.")
        others = [name for name in self.form.columns if name not in self.keys]
        return Rows(
            self.keys,
            [frame[key] for key in self.keys],
            len(frame),
            {name: frame[name] for name in others},
        )

    def _counts(self, n: int) -> tuple[Floats, Floats]:
        """Expected heads and tails: of some rows many, of some none at all, of some one side."""
        flips = self.rng.gamma(0.7, 8.0, n) * (self.rng.random(n) > 0.1)
        share = np.clip(self.rng.normal(0.4, 0.4, n), 0.0, 1.0)
        return flips * share, flips * (1 - share)

    def questions(self) -> Iterable[Question]:
        """What is asked of this form, by what it says of itself."""
        form = self.form
        yield "it answers a probability for each row, whichever rows these are", self.ask_answers
        if "result" not in self.keys:  # numbers of results mean nothing elsewhere
            yield "what it says of a row does not depend on the others", self.ask_alone
        yield "the M-step never lowers its objective", self.ask_climb
        yield "the M-step changes nothing that it was given", self.ask_untouched
        yield "the same M-step again gives the same", self.ask_again
        if self.exact and len(self.rows) > 1:
            yield "the order of rows does not matter", self.ask_order
        if self.exact and form.columns and not form.by_declared_key:
            yield "a row with weight two is as good as two rows", self.ask_doubled
        yield "rows that are given stay as they are", self.ask_given
        yield "a copy of it, and of its state, says the same", self.ask_copied
        yield "what it tells of rows has a value for each", self.ask_told
        yield "it shows frames and texts, and the probabilities it predicts", self.ask_shown
        yield "it starts at the probabilities of another fit", self.ask_start
        if form.has_vector:
            yield "its vector and back is the same state", self.ask_vector
            yield f"{form.link}s are linear in its vector", self.ask_linear
        if form.has_score:
            yield "its score is the derivative of the objective by the vector", self.ask_score
        if form.has_errors:
            yield "it keeps the covariance of its coefficients", self.ask_errors
        yield "its logits are those of its probabilities", self.ask_logits
        if form.takes_offsets:
            yield "the M-step around offsets never lowers its objective", self.ask_around
        if find_spec("torch") is not None and self._trainable() is not None:
            yield "what gradients move has its logits and its penalty", self.ask_trainable
        yield "EM with it never lowers the objective of a model", self.ask_em
        if form.can_be_saved:
            yield "saved and loaded, it says the same", self.ask_saved
        if self._memory() is not None:
            yield "an update with it never lowers the objective", self.ask_update

    # -- answers -------------------------------------------------------------------------------
    def ask_answers(self) -> Answer:
        for state in (self.begun(), self.begun(np.random.default_rng(1)), self.fitted()):
            for frame in (self.seen, self.unseen, self.frame[:0]):
                self.answer(state, self._rows(frame))
        return 0.0, 0.0

    def ask_alone(self) -> Answer:
        state, worst = self.fitted(), 0.0
        whole = self.answer(state, self.rows)
        for part in (slice(0, 1), slice(1, None), slice(None, None, 2)):
            some = self.answer(state, self._rows(self.seen[part]))
            worst = worse(worst, _apart(some, whole[part]))
        return worst, 1e-6  # networks add up in single precision

    def ask_climb(self) -> Answer:
        state, worst = self.begun(), 0.0
        for _ in range(3):
            heads, tails = self._counts(len(self.rows))
            for _ in range(2):
                before = self.value(state, heads, tails)
                state = self.form.fit(self.rows, heads, tails, state)
                if np.isfinite(before):  # else what is expected is impossible, and nothing is lost
                    fall = before - self.value(state, heads, tails)
                    worst = worse(worst, fall / max(1.0, abs(before)))
        nothing = np.zeros(len(self.rows))
        state = self.form.fit(self.rows, nothing, nothing, state)
        self.answer(state, self.rows)
        return worst, _SMALL

    def ask_untouched(self) -> Answer:
        state = self.fitted()
        heads, tails = self._counts(len(self.rows))
        given = heads.copy(), tails.copy()
        before = self.answer(state, self._rows(self.seen)), self.form.penalty(state)
        self.form.fit(self.rows, heads, tails, state)
        after = self.answer(state, self._rows(self.seen)), self.form.penalty(state)
        changed = _apart(before[0], after[0]) + abs(before[1] - after[1])
        return changed + _apart(heads, given[0]) + _apart(tails, given[1]), 0.0

    def ask_again(self) -> Answer:
        states = [self.form.fit(self.rows, self.heads, self.tails, self.begun()) for _ in range(2)]
        return _apart(*(self.answer(state, self.rows) for state in states)), 0.0

    def ask_order(self) -> Answer:
        order = self.rng.permutation(len(self.rows))
        rows = self._rows(self.seen[order])
        other = self.form.fit(rows, self.heads[order], self.tails[order], self.begun(rows=rows))
        one = self.form.fit(self.rows, self.heads, self.tails, self.begun())
        return _apart(self.answer(one, self.rows)[order], self.answer(other, rows)), _CLOSE

    def ask_doubled(self) -> Answer:
        twice = pl.concat([self.seen, self.seen])
        numbers = pl.Series("result", np.arange(len(twice)))
        columns = {name: twice[name] for name in self.form.columns}
        rows = Rows(("result",), [numbers], len(twice), columns)
        heads, tails = np.tile(self.heads, 2), np.tile(self.tails, 2)
        two = self.form.fit(rows, heads, tails, self.begun(rows=rows))
        one = self.form.fit(self.rows, 2 * self.heads, 2 * self.tails, self.begun())
        return _apart(self.answer(one, self.rows), self.answer(two, rows)[: len(self.rows)]), _CLOSE

    def ask_given(self) -> Answer:
        is_given = self.form.given_rows(self.rows)
        _check_shape("given_rows", is_given, len(self.rows), bool)
        before, after = (self.answer(s, self.rows) for s in (self.begun(), self.fitted()))
        return _apart(before[is_given], after[is_given]), 0.0

    def ask_copied(self) -> Answer:
        twin, state = copy.deepcopy(self.form), self.fitted()
        if repr(twin) != repr(self.form) and " at 0x" not in repr(twin):
            raise ValueError(f"its copy is {twin!r}")
        begun = twin.begin(self.rows, None)
        for _ in range(2):
            begun = twin.fit(self.rows, self.heads, self.tails, begun)
        answers = [
            np.asarray(form.predict(its, self.rows), np.float64)
            for form, its in ((twin, begun), (twin, copy.deepcopy(state)))
        ]
        wanted = self.answer(state, self.rows)
        return worse(*(_apart(answer, wanted) for answer in answers)), 0.0

    def ask_told(self) -> Answer:
        state = self.fitted()
        for frame in (self.seen, self.unseen):
            rows = self._rows(frame)
            _check_shape("known", self.form.known(state, rows), len(rows), bool)
            probability = self.answer(state, rows)
            for counts in (None, np.stack([self.tails, self.heads])):
                found = self.form.posterior(state, rows, probability, counts)
                for name in ("trials", "mean", "spread"):
                    _check_shape(name, getattr(found, name), len(rows), float)
                _check_shape("rests_on", found.rests_on, len(rows), str)
                if np.any(found.spread < 0):
                    raise ValueError("a spread is negative")
        drawn = self.form.drawn(state, np.random.default_rng(0))
        self.answer(drawn, self.rows)
        return 0.0, 0.0

    def ask_shown(self) -> Answer:
        state = self.fitted()
        _check_type("summary", self.form.summary(state), str)
        for remark in self.form.remarks(state, self.heads, self.tails):
            _check_type("a remark", remark, str)
        coefficients = self.form.coefficients(state)
        if coefficients is not None:
            _check_type("coefficients", coefficients, pl.DataFrame)
        frame = self.form.to_frame(state)
        _check_type("to_frame", frame, pl.DataFrame)
        if "probability" not in frame.columns:
            return 0.0, 0.0
        shown = frame["probability"].to_numpy()
        _check_shape("to_frame", shown, len(self.rows), float)
        return _apart(shown, self.answer(state, self.rows)), _SMALL

    def ask_start(self) -> Answer:
        state = self.fitted()
        known = self.answer(state, self.rows)
        self.answer(self.form.starting_at(self.begun(), self.rows, known), self.rows)
        adopted = self.form.adopted(state, self.rows)
        if adopted is None:
            return 0.0, 0.0
        return _apart(self.answer(adopted, self.rows), known), 1e-6

    # -- vectors -------------------------------------------------------------------------------
    def ask_vector(self) -> Answer:
        state = self.fitted()
        vector = self.form.vector(state)
        back = self.form.from_vector(state, vector)
        apart = _apart(self.answer(back, self.rows), self.answer(state, self.rows))
        return worse(apart, _apart(self.form.vector(back), vector)), _SMALL

    def ask_linear(self) -> Answer:
        state = self.fitted()
        vector = self.form.vector(state)
        step = 0.1 * self.rng.normal(size=len(vector))
        predictor = LINKS[self.form.link].predictor
        here, up, down = (
            predictor(self.answer(self.form.from_vector(state, vector + side * step), self.rows))
            for side in (0.0, 1.0, -1.0)
        )
        inside = np.isfinite(here) & (np.abs(here) < (15 if self.form.link == "logit" else 4))
        return _apart((up + down)[inside], 2 * here[inside]), 1e-7

    def ask_score(self) -> Answer:
        state, size = self.fitted(), 1e-5
        vector = self.form.vector(state)
        # Where a probability is 0 or 1 there is no slope.
        is_open = np.abs(self.answer(state, self.rows) - 0.5) < 0.5
        heads, tails = is_open * self._counts(len(self.rows))
        score = self.form.score(state, self.rows, heads, tails)
        _check_shape("score", score, len(vector), float)
        worst = 0.0
        for place in np.flatnonzero(np.abs(vector) < 15)[:_ROWS]:
            values = []
            for side in (size, -size):
                moved = vector.copy()
                moved[place] += side
                values.append(self.value(self.form.from_vector(state, moved), heads, tails))
            slope = (values[0] - values[1]) / (2 * size)
            worst = worse(worst, abs(slope - score[place]) / max(1.0, abs(slope)))
        return worst, 1e-4

    def ask_errors(self) -> Answer:
        state = self.fitted()
        n = self.form.n_coefficients(state)
        weight = np.ones(len(self.rows))
        information = self.form.information(state, self.rows, weight)
        _check_shape("information", np.asarray(information).ravel(), n * n, float)
        informed = self.form.informed(state, np.eye(n), True, np.zeros((n, 0)))
        apart = _apart(self.answer(informed, self.rows), self.answer(state, self.rows))
        return worse(apart, _apart(information, np.asarray(information).T)), 1e-8

    def ask_logits(self) -> Answer:
        from scipy.special import expit

        state = self.fitted()
        told = expit(self.form.logits(state, self.rows))
        return _apart(told, self.answer(state, self.rows)), 1e-6

    def ask_around(self) -> Answer:
        variance, n = 0.5, len(self.rows)
        state, offsets, worst = self.begun(), np.zeros(n), 0.0

        def value(at: FormState, added: Floats) -> float:
            logits = self.form.logits(at, self.rows) + added
            lost = self.heads @ np.logaddexp(0, -logits) + self.tails @ np.logaddexp(0, logits)
            around = 0.5 * float((added**2).sum()) / variance
            return float(self.form.penalty(at) - lost - around)

        for _ in range(2):
            before = value(state, offsets)
            state, offsets = self.form.fit_around(
                self.rows, self.heads, self.tails, state, offsets, variance
            )
            _check_shape("fit_around", offsets, n, float)
            worst = worse(worst, (before - value(state, offsets)) / max(1.0, abs(before)))
        return worst, 1e-8

    def ask_trainable(self) -> Answer:
        state = self.fitted()
        made = self.form.trainable(state, self.rows)
        logits = made.logits(np.arange(len(self.rows))).detach().cpu().numpy()
        told = _logits(self.answer(state, self.rows))
        worst = _apart(np.clip(logits, -20, 20), np.clip(told, -20, 20))
        worst = worse(worst, abs(float(made.penalty().detach()) - self.form.penalty(state)))
        back = self.answer(made.state(), self.rows)
        return worse(worst, _apart(back, self.answer(state, self.rows))), 1e-4

    # -- in a model ----------------------------------------------------------------------------
    def ask_em(self) -> Answer:
        worst, log = 0.0, self.log()
        for accelerate in (False, True):
            method = EM(max_iter=6, accelerate=accelerate, restarts=1)
            fitted = self.model().fit(log, method, impossible="drop")
            worst = worse(worst, _fall(fitted))
        _check_probabilities(fitted.estimates(_COIN, self.seen)["probability"], len(self.seen))
        return worst, _SMALL

    def ask_saved(self) -> Answer:
        model, state = self.model(), self.fitted()
        model.states_ = {_COIN: state}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            model.save(path)
            again = load(path)
        other, kept = again.forms[_COIN], again.states()[_COIN]
        worst = abs(other.penalty(kept) - self.form.penalty(state))
        for frame in (self.seen, self.unseen):
            answers = (
                np.asarray(form.predict(its, self._rows(frame)))
                for form, its in ((self.form, state), (other, kept))
            )
            worst = worse(worst, _apart(*answers))
        return worst, 0.0

    def ask_update(self) -> Answer:
        fitted = self.model().fit(self.log(), EM(max_iter=50), impossible="drop")
        updated = fitted.copy().update(self.log(), impossible="drop")
        _check_probabilities(updated.probability(_COIN, self.seen), len(self.seen))
        return _fall(updated), _SMALL

    # -- what the questions are about ----------------------------------------------------------
    def begun(
        self, generator: np.random.Generator | None = None, rows: Rows | None = None
    ) -> FormState:
        return self.form.begin(self.rows if rows is None else rows, generator)

    def fitted(self) -> FormState:
        state = self.begun()
        for _ in range(2):
            state = self.form.fit(self.rows, self.heads, self.tails, state)
        return state

    def answer(self, state: FormState, rows: Rows) -> Floats:
        """The probabilities of rows, if that is what they are."""
        answer = np.array(self.form.predict(state, rows), dtype=np.float64)
        _check_probabilities(answer, len(rows))
        return answer

    def value(self, state: FormState, heads: Floats, tails: Floats) -> float:
        """What the M-step maximises."""
        from scipy.special import xlog1py, xlogy

        p = self.answer(state, self.rows)
        return float((xlogy(heads, p) + xlog1py(tails, -p)).sum() + self.form.penalty(state))

    def model(self) -> Model:
        return DCTR(**{_COIN: self.form})

    def log(self) -> ClickLog:
        """Pages that show the rows at random, each at least once."""
        made = ("", *_NUMBERED)
        own = self.seen.select(name for name in self.seen.columns if name not in made)
        # Pages have one query each; where rows have theirs, a result is a page.
        length = 1 if {"session", "query"} & set(own.columns) else 4
        n_pages = max(len(self.seen), 20)
        n = n_pages * length
        page = np.repeat(np.arange(n_pages), length)
        columns: dict[str, Any] = {
            "session": page,
            "query": page % 3,
            "doc": np.arange(n) % 7,
            "rank": np.tile(np.arange(1, length + 1), n_pages),
            "click": self.rng.random(n) < 0.4,
        }
        shown = self.rng.permutation(np.arange(n) % len(self.seen))
        columns |= {name: own[name].gather(pl.Series(shown)) for name in own.columns}
        return read_log(pl.DataFrame(columns))

    def _trainable(self) -> Any:
        return self.form.trainable(self.begun(), self.rows)

    def _memory(self) -> Any:
        try:
            return self.form.memory(self.begun(), np.zeros((2, len(self.rows))), 1.0)
        except ModelError:  # it could be updated, but not from this state
            return True


def _apart(one: Any, other: Any) -> float:
    one, other = np.asarray(one, float), np.asarray(other, float)
    if one.shape != other.shape:
        raise ValueError(f"arrays of shape {one.shape} and {other.shape} should be the same")
    same = one == other  # infinite ones, too
    return float(np.abs(np.where(same, 0.0, one) - np.where(same, 0.0, other)).max(initial=0.0))


def _fall(model: Model) -> float:
    """How far the objective fell in a step; other priors make another objective."""
    worst = 0.0
    for _, history in model.history.group_by("round"):
        objective = history["objective"].to_numpy()
        fall = -float(np.diff(objective).min(initial=0.0))
        worst = worse(worst, fall / max(1.0, abs(float(objective[-1]))))
    return worst


def _logits(probability: Floats) -> Floats:
    from scipy.special import logit

    logits: Floats = logit(probability)
    return logits


def _check_probabilities(answer: Any, n_rows: int) -> None:
    answer = np.asarray(answer, np.float64)
    if answer.shape != (n_rows,):
        raise ValueError(f"{n_rows} rows are answered with an array of shape {answer.shape}")
    wrong = ~((answer >= 0) & (answer <= 1))
    if wrong.any():
        first = answer[wrong][0]
        raise ValueError(f"{int(wrong.sum())} answers are no probability (first: {first:g})")


def _check_shape(name: str, found: Any, n: int, kind: type) -> None:
    array = np.asarray(found)
    wanted = {bool: "b", float: "fiu", str: "UO"}[kind]
    if array.shape != (n,) or array.dtype.kind not in wanted:
        raise ValueError(
            f"{name}: an array of {n} of type {kind.__name__} is wanted, not one of shape "
            f"{array.shape} and type {array.dtype}"
        )


def _check_type(name: str, found: Any, kind: type) -> None:
    if not isinstance(found, kind):
        raise TypeError(f"{name}: a {kind.__name__} is wanted, not a {type(found).__name__}")
