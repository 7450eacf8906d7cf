"""Does a conditional click probability peek at the clicks it should foretell?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ModelError
from gecasmo.logs import ClickLog
from gecasmo.model.base import Model
from gecasmo.report import counted

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
_WAYS = ("flipped", "all clicked", "none clicked")


class Predicts(Protocol):
    """What is tested: a fitted model, or anything that answers these two questions."""

    def predict_conditional_clicks(self, log: ClickLog, *, impossible: Any = ...) -> Any:
        """Probability of a click at each result, given the clicks above it."""

    def predict_clicks(self, log: ClickLog) -> Any:
        """Probability of a click at each result, with no clicks known."""


@dataclass(frozen=True)
class LeakTest:
    """What `leak_test` found.

    `leaks` has a line per result and way of changing the clicks that moved its probability: kind
    ("conditional" or "marginal"), session, rank, change, before, after.
    """

    n_results: int
    n_comparisons: int
    largest: float
    leaks: pl.DataFrame

    @property
    def passed(self) -> bool:
        """Whether no probability moved."""
        return self.leaks.is_empty()

    def __str__(self) -> str:
        if self.passed:
            return (
                f"No leak: {self.n_comparisons:,} changes of clicks at or below a result moved "
                f"none of the probabilities of {counted(self.n_results, 'result')}."
            )
        kind, session, rank, change, before, after = self.leaks.row(0)
        return (
            f"Leak: {len(self.leaks):,} of {self.n_comparisons:,} changes of clicks that a "
            f"probability must not know moved it, by up to {self.largest:.3g}.\n"
            f"  First: session {session!r}, rank {rank}: the {kind} probability goes from "
            f"{before:.6f} to {after:.6f} with clicks {change}."
        )

    __repr__ = __str__


def leak_test(
    model: Predicts,
    log: ClickLog,
    *,
    most_sessions: int | None = 200,
    most_places: int | None = None,
    signals: Sequence[str] = ("click",),
    tolerance: float = 1e-9,
) -> LeakTest:
    """Change the clicks at and below every result, and see whether its probability moves.

    The conditional probability at rank t may know the clicks above t only; the marginal one knows
    no clicks at all. A feature that was computed from clicks (such as the number of clicks on the
    page) is a column like others here: this test cannot see through it.

    Parameters
    ----------
    model : a fitted model
    log : ClickLog
    most_sessions : int, optional
        Only so many sessions are looked at, evenly taken from the log; None for all.
    most_places : int, optional
        At most so many places of a page are looked at, evenly taken; None for all.
    signals : names of boolean columns that are changed together with the clicks
    tolerance : a probability that moves by less has not moved

    Returns
    -------
    LeakTest
        Its `passed` says whether all is well; print it for what was found.
    """
    log = model.viewed(log) if isinstance(model, Model) else log
    unknown = [name for name in signals if name not in log.columns]
    if unknown:
        raise ModelError(
            f"leak_test(signals=...): the log has no column {unknown[0]!r}. It has: "
            f"{', '.join(log.columns)}."
        )
    if most_sessions is not None and log.n_sessions > most_sessions:
        chosen = np.unique(np.linspace(0, log.n_sessions - 1, most_sessions).astype(np.int64))
        log = log.take(chosen)
    observed = model.structure.traced.observed_columns() if isinstance(model, Model) else ()
    there = [name for name in observed if name in log.columns]
    numbers = {name: log.column(name).cast(pl.Float64).to_numpy() for name in there}
    before = _conditional(model, log)
    marginal = _marginal(model, log)
    place = _places(log)
    checked = np.unique(place)
    if most_places is not None and len(checked) > most_places:
        checked = checked[np.unique(np.linspace(0, len(checked) - 1, most_places).astype(int))]
    found: list[pl.DataFrame] = []
    n_comparisons, largest = 0, 0.0
    for way in _WAYS:
        tests = [("conditional", place >= at, place == at, before) for at in checked]
        tests.append(("marginal", place >= 0, place >= 0, marginal))
        for kind, changed, looked_at, old in tests:
            other = log.with_signals({name: _changed(log, name, changed, way) for name in signals})
            if numbers:  # what is seen of users goes with what they do
                lost = {name: np.where(changed, np.nan, own) for name, own in numbers.items()}
                other = other.with_numbers(lost)
            new = (
                _conditional(model, other) if kind == "conditional" else model.predict_clicks(other)
            )
            new = np.asarray(new, dtype=np.float64)
            moved = np.abs(new - old)
            n_comparisons += int(looked_at.sum())
            largest = max(largest, float(moved[looked_at].max(initial=0.0)))
            rows = np.flatnonzero(looked_at & ~(moved <= tolerance))
            if len(rows):
                found.append(_lines(log, rows, kind, way, old, new))
    leaks = pl.concat(found) if found else _lines(log, np.zeros(0, int), "", "", before, before)
    return LeakTest(log.n_results, n_comparisons, largest, leaks)


def _conditional(model: Predicts, log: ClickLog) -> Floats:
    # Changed clicks may be impossible; what is asked for is a probability given those above.
    answer = model.predict_conditional_clicks(log, impossible="floor")
    return np.asarray(answer, dtype=np.float64)


def _marginal(model: Predicts, log: ClickLog) -> Floats:
    return np.asarray(model.predict_clicks(log), dtype=np.float64)


def _places(log: ClickLog) -> NDArray[np.int64]:
    """The place of each result on its page, from 0."""
    place = np.empty(log.n_results, np.int64)
    place[log.order] = np.arange(log.n_results) - np.repeat(log.starts[:-1], log.lengths)
    return place


def _changed(log: ClickLog, name: str, where: Bools, way: str) -> Bools:
    old = np.asarray(log.column(name).to_numpy()).astype(bool)
    new = {"flipped": ~old, "all clicked": np.ones_like(old), "none clicked": np.zeros_like(old)}
    return np.where(where, new[way], old)


def _lines(
    log: ClickLog, rows: NDArray[np.int64], kind: str, change: str, before: Floats, after: Floats
) -> pl.DataFrame:
    return pl.DataFrame(
        [
            pl.Series("kind", [kind] * len(rows), dtype=pl.String),
            log.sessions.gather(log.page[rows]).alias("session"),
            pl.Series("rank", log.rank[rows]),
            pl.Series("change", [change] * len(rows), dtype=pl.String),
            pl.Series("before", before[rows]),
            pl.Series("after", after[rows]),
        ]
    )
