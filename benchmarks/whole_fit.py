"""The whole fit: seconds until the objective per page is within 1e-5 of its limit."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import gecasmo
from gecasmo import EM, ClickLog
from gecasmo.errors import ConvergenceWarning
from gecasmo.estimation import Problem

TOLERANCE = 1e-5
THREADS = 2
LIMIT = EM(max_iter=3000, tol=1e-9)
METHODS = {
    "accelerated, minimal": EM(max_iter=200, tol=1e-8),
    "plain EM, minimal": EM(max_iter=250, tol=1e-8, accelerate=False),
    "plain EM, full": EM(max_iter=400, tol=1e-8, accelerate=False, augmentation="full"),
}


@dataclass(frozen=True)
class FitResult:
    """`em_seconds` are from the first E-step on, `seconds` from the call of fit()."""

    model: str
    log: str
    method: str
    is_there: bool
    evaluations: int
    em_seconds: float
    seconds: float
    seconds_per_evaluation: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class DefaultFitResult:
    """A fit that stops by itself, and what it does before the first E-step."""

    model: str
    log: str
    priors: str
    encode_seconds: float
    fit_seconds: float
    evaluations: int
    gap_per_page: float | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class _Evaluation:
    moment: float
    objective: float


@contextmanager
def _watched_evaluations() -> Iterator[list[_Evaluation]]:
    """Note every evaluation of the objective, those that EM rejects too."""
    seen: list[_Evaluation] = []
    original = Problem.evaluate

    def evaluate(self: Problem, states: Any, ahead: bool = False, **options: Any) -> Any:
        evaluation = original(self, states, ahead, **options)
        if not options:  # others look at rows when the climb is over
            seen.append(_Evaluation(time.perf_counter(), evaluation.objective))
        return evaluation

    Problem.evaluate = evaluate  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        Problem.evaluate = original  # type: ignore[method-assign]


@dataclass(frozen=True)
class _Run:
    """A finished fit, with the moments of its evaluations."""

    model: gecasmo.ClickModel
    began: float
    ended: float
    evaluations: list[_Evaluation]

    @property
    def best(self) -> float:
        return max(one.objective for one in self.evaluations)


def measure_fits(
    model_class: type[gecasmo.ClickModel], log: ClickLog, kind: str
) -> tuple[list[DefaultFitResult], list[FitResult]]:
    """Find the limit under fixed priors, then see how long each method takes to get near it."""

    def plain() -> gecasmo.ClickModel:
        ones = gecasmo.Table(pseudo_counts=(1, 1))
        return model_class(**dict.fromkeys(model_class().forms, ones))

    for augmentation in ("minimal", "full"):  # compile
        method = EM(max_iter=2, tol=0, augmentation=augmentation)
        plain().fit(log, method, threads=THREADS, progress=False)
    few = log.take(range(min(500, log.n_sessions)))
    model_class().fit(few, threads=THREADS, progress=False)
    fixed = _fit(plain(), log, EM())
    learned = _fit(model_class(), log, EM(), intervals=True)
    runs = {name: _fit(plain(), log, method) for name, method in METHODS.items()}
    limit = max(run.best for run in (_fit(plain(), log, LIMIT), fixed, *runs.values()))
    near = limit - TOLERANCE * log.n_sessions
    began = time.perf_counter()
    model_class().encode(log, "e_step")
    encoding = time.perf_counter() - began
    gap = (limit - fixed.best) / log.n_sessions
    results = [
        DefaultFitResult(
            model_class.__name__,
            kind,
            priors,
            encoding,
            run.ended - run.began,
            len(run.evaluations),
            below,
        )
        for priors, run, below in (
            ("fixed, no intervals", fixed, gap),
            ("learned, with intervals (the default)", learned, None),
        )
    ]
    return results, [_reached(name, run, near, kind) for name, run in runs.items()]


def _fit(model: gecasmo.ClickModel, log: ClickLog, method: EM, intervals: bool = False) -> _Run:
    with warnings.catch_warnings(), _watched_evaluations() as seen:
        warnings.simplefilter("ignore", ConvergenceWarning)
        began = time.perf_counter()
        model.fit(log, method, threads=THREADS, progress=False, intervals=intervals)
        return _Run(model, began, time.perf_counter(), seen)


def _reached(name: str, run: _Run, near: float, kind: str) -> FitResult:
    """When this run first came near the limit, or how long it took in vain."""
    seen, history = run.evaluations, run.model.history
    place = next((n for n, one in enumerate(seen) if one.objective >= near), len(seen) - 1)
    is_near = history["objective"] >= near
    seconds = history["seconds"]
    return FitResult(
        model=run.model.name,
        log=kind,
        method=name,
        is_there=bool(is_near.any()),
        evaluations=place + 1,
        em_seconds=seconds.filter(is_near)[0] if is_near.any() else seconds[-1],
        seconds=seen[place].moment - run.began,
        seconds_per_evaluation=seconds[-1] / len(seen),
    )
