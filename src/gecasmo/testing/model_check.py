"""`check_model(MyModel)`: the laws that every model has to keep."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.compiler import reference
from gecasmo.errors import GecasmoError, GecasmoWarning
from gecasmo.estimation import EM
from gecasmo.model import ClickModel, Model, load
from gecasmo.testing.subject import Subject, every_pattern, plain_python

TOLERANCE = 1e-10
Floats = NDArray[np.float64]


def worse(a: float, b: float) -> float:
    """The larger error; one that is no number is worse than any."""
    return float(np.maximum(a, b))


class ModelCheckError(GecasmoError, AssertionError):
    """A model broke a law."""


@dataclass(frozen=True)
class Check:
    """One question to a model or a form; `error` is the largest difference found, NaN if the answer
    was none at all, which `note` tells about."""

    question: str
    error: float
    tolerance: float
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.error <= self.tolerance


@dataclass
class CheckReport:
    """What `check_model` found; prints one line a question."""

    model: str
    checks: list[Check] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether all checks passed."""
        return all(check.passed for check in self.checks)

    def __str__(self) -> str:
        lines = [f"{self.model}: {'passed' if self.passed else 'FAILED'}"]
        for check in self.checks:
            mark = "ok  " if check.passed else "FAIL"
            lines.append(f"  {mark} {check.question:<66} {check.error:.1e}")
            lines += [f"       {check.note}"] if check.note else []
        return "\n".join(lines)

    __repr__ = __str__


def check_model(model: type[Model] | Model, *, seed: int = 0, compiled: bool = True) -> CheckReport:
    """Examine a model: do kernels, reference and enumeration agree, and do the laws hold?

    Parameters
    ----------
    model : a model class, or a model with forms of its own
    seed : of the random pages and probabilities
    compiled : also compile the kernels, and learn priors and intervals; without, the source of
        kernels is run, and steps of EM are made

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
    asked = _ModelCheck(instance, seed, compiled)
    report = CheckReport(instance.name)
    for question, ask in asked.questions():
        try:
            error, tolerance = ask()
            report.checks.append(Check(question, float(error), tolerance))
        except Exception as problem:
            told = f"{type(problem).__name__}: {problem}"
            report.checks.append(Check(question, float("nan"), 0.0, told))
    if not report.passed:
        raise ModelCheckError(str(report))
    return report


class _ModelCheck(Subject):
    """The questions; each answers with the largest error it found and what is allowed."""

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
            listed.append(("a whole fit, with priors and intervals, does not either", self.ask_fit))
            listed.append(("compiled kernels give the numbers of their source", self.ask_compiled))
        return listed

    # What several questions look at.
    @cached_property
    def log_likelihood(self) -> Floats:
        with plain_python():
            return self.model.log_likelihood(self.possible)

    @cached_property
    def full_counts(self) -> dict[str, pl.DataFrame]:
        with plain_python():
            return self.model.expected_counts(self.possible, augmentation="full")

    # -- laws ----------------------------------------------------------------------------------
    def ask_sum(self) -> tuple[float, float]:
        worst = 0.0
        for number in range(self.longest):
            page = self.log.take(np.array([number]))
            with plain_python(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                patterns = every_pattern(self.model, page)
                # One by one where a key numbers results within a log.
                logs = [patterns]
                if any("result" in keys for keys in self.model.keys.values()):
                    every = range(patterns.n_sessions)
                    logs = [patterns.take(np.array([n])) for n in every]
                found = [self.model.log_likelihood(log, impossible="drop") for log in logs]
            worst = worse(worst, abs(float(np.exp(np.concatenate(found)).sum()) - 1))
        return worst, TOLERANCE

    def ask_reference(self) -> tuple[float, float]:
        worst, found = 0.0, self.log_likelihood
        structure = self.model.structure.of_log((), self.observed())
        for session in range(self.possible.n_sessions):
            page, left_out = self.page(session)
            for staircase in (structure.minimal, structure.full):
                expected = reference.e_step(staircase, page).log_likelihood + left_out
                worst = worse(worst, abs(expected - found[session]))
        return worst, TOLERANCE

    def ask_e_step(self) -> tuple[float, float]:
        from gecasmo.model.answers import expected_counts

        with plain_python():
            _, counts = expected_counts(self.model, self.possible, "minimal")
        filtered = self.log_likelihood.sum()
        if self.model.counting_structure is not self.model.structure:
            # A fit also sees what tells of clicks below; then the program itself has to be asked.
            chances = [
                sum(way.probability for way in self.seen(session, counting=True))
                for session in range(self.possible.n_sessions)
            ]
            filtered = float(np.log(chances).sum())
        return abs(counts.log_likelihood - filtered), TOLERANCE * max(1, self.possible.n_sessions)

    def ask_score(self) -> tuple[float, float]:
        with plain_python():
            minimal = self.model.expected_counts(self.possible, augmentation="minimal")
        worst, full = 0.0, self.full_counts
        observed = dict(self.model.traced_automaton.observes)
        for coin in (coin for coin in self.model.forms if coin not in observed):
            theta = self.values(coin, minimal[coin])
            scores = [
                f["heads"].to_numpy() * (1 - theta) - f["tails"].to_numpy() * theta
                for f in (minimal[coin], full[coin])
            ]
            worst = worse(worst, float(np.abs(scores[0] - scores[1]).max(initial=0)))
        return worst, TOLERANCE

    def ask_leak(self) -> tuple[float, float]:
        with plain_python():
            before = self.model.predict_conditional_clicks(self.possible, impossible="floor")
            worst = 0.0
            for place in range(self.longest):
                rows = self.possible.order[self.places(self.possible) == place]
                flipped = self.possible.click.copy()
                below = np.isin(self.row_places(self.possible), range(place, self.longest))
                flipped[below] = ~flipped[below]
                changed = self.possible.with_signals({"click": flipped})
                changed = changed.with_numbers(
                    {
                        name: np.where(below, np.nan, changed.column(name).cast(float).to_numpy())
                        for name in self.observed()
                    }
                )
                after = self.model.predict_conditional_clicks(changed, impossible="floor")
                worst = worse(worst, float(np.abs(after[rows] - before[rows]).max(initial=0)))
        return worst, 0.0

    def ask_em(self) -> tuple[float, float]:
        # Nothing but steps of EM, unless a form learns its prior from climb to climb.
        forms = self.blank.forms.values()
        tol = EM.tol if any(form.learns_prior for form in forms) else 0.0
        methods = [EM(6, tol, accelerate=False)]
        if any(form.has_vector for form in forms):  # others are never extrapolated
            methods.append(EM(6, tol))
        return self.fall(*methods), TOLERANCE

    def ask_fit(self) -> tuple[float, float]:
        return self.fall(EM(6)), TOLERANCE

    def fall(self, *methods: EM) -> float:
        """How far an objective falls in fits that start once, at most."""
        worst = 0.0
        with plain_python(), warnings.catch_warnings():
            warnings.simplefilter("ignore", GecasmoWarning)
            for method in methods:
                once = replace(method, restarts=1)
                fitted = self.blank.copy().fit(self.possible, once, impossible="drop")
                # Another round is another prior, and objectives are not to be compared.
                for _, climb in fitted.history.group_by("round"):
                    objective = climb["objective"].to_numpy()
                    fall = -np.diff(objective).min(initial=0.0)
                    worst = worse(worst, float(fall) / max(1.0, abs(float(objective[-1]))))
                for frame in fitted.parameters.values():
                    if "probability" in frame.columns:
                        outside = np.abs(frame["probability"].to_numpy() - 0.5).max(initial=0) - 0.5
                        worst = worse(worst, outside)
        return worst

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
            worst = worse(worst, float(np.abs(fast - slow).max(initial=0)))
        return worst, TOLERANCE

    # -- enumeration ---------------------------------------------------------------------------
    def ask_likelihood(self) -> tuple[float, float]:
        worst, found = 0.0, np.exp(self.log_likelihood)
        for session in range(self.possible.n_sessions):
            worst = worse(
                worst, abs(sum(w.probability for w in self.seen(session)) - found[session])
            )
        return worst, TOLERANCE

    def ask_marginal(self) -> tuple[float, float]:
        with plain_python():
            found = self.model.predict_clicks(self.possible)
        worst = 0.0
        for session in range(self.possible.n_sessions):
            ways = self.ways(session)
            for place, row in enumerate(self.rows(self.possible, session)):
                clicked = sum(w.probability for w in ways if "click" in w.signals[place])
                worst = worse(worst, abs(clicked - found[row]))
        return worst, TOLERANCE

    def ask_counts(self) -> tuple[float, float]:
        worst, found = 0.0, self.full_counts
        for coin in self.model.forms:
            heads = tails = 0.0
            for session in range(self.possible.n_sessions):
                ways = self.seen(session, counting=True)
                total = sum(way.probability for way in ways)
                for way in ways:
                    falls = [outcome for name, _, outcome in way.flips if name == coin]
                    falls += [True for name, *_ in self.recorded(way, session) if name == coin]
                    heads += way.probability / total * sum(falls)
                    tails += way.probability / total * (len(falls) - sum(falls))
            worst = worse(worst, abs(float(found[coin]["heads"].sum()) - heads))
            worst = worse(worst, abs(float(found[coin]["tails"].sum()) - tails))
        return worst, TOLERANCE * max(1, self.possible.n_results)

    def ask_posterior(self) -> tuple[float, float]:
        with plain_python():
            found = self.model.posterior(self.possible)
        worst = 0.0
        for session in range(self.possible.n_sessions):
            ways = self.seen(session)
            total = sum(way.probability for way in ways)
            for place, row in enumerate(self.rows(self.possible, session)):
                there = sum(way.probability for way in ways if way.reached[place]) / total
                worst = worse(worst, abs(there - found["reached"][int(row)]))
        return worst, TOLERANCE
