"""What the driver of a fit asks of every part of a log, and what parts answer.

A *point* is where all local coins stand. Points live with the parts, under names; the driver only
knows the names. Everything here is small, whatever the size of the log: numbers, names, and tables
of coins that all parts share.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.coins import NO_LENGTHS, Lengths
from gecasmo.forms.priors import Priors

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Recipe:
    """How the local coins of a point come about.

    begin: where forms start, drawn with `seed` if there is one
    same: as in the point `of`, perhaps under another prior
    next: one EM step from the point `of`
    beyond: `length` along the way from `start` over `of` to the EM step after it
    """

    kind: Literal["begin", "same", "next", "beyond"]
    of: str = ""
    start: str = ""
    length: float = 0.0
    seed: tuple[int, ...] | None = None


# What the prior of a coin is: pseudo-counts, a learned one, or None for what its state says.
Prior = Priors | tuple[float, float] | None


class PointName:
    """The name of a point that parts keep for as long as somebody holds this."""

    def __init__(self, name: str, forgotten: list[str]) -> None:
        self.name = name
        weakref.finalize(self, forgotten.append, name)


@dataclass(frozen=True)
class RowsOfParts:
    """How parts find the rows of local coins, and the priors of these.

    `needs` are the points of the recipe, so that they are kept.
    """

    recipe: Recipe
    needs: tuple[PointName, ...]
    priors: Mapping[int, Prior]


@dataclass(frozen=True)
class Task:
    """One pass over all parts.

    Parameters
    ----------
    recipe : how to find the local coins
    name : under which name to keep the point; empty to keep nothing
    shared : weights `[side, row]` of the global coins, by number of the coin
    priors : what the prior of each local coin is now, by number
    ahead : also tell how long the EM step from here is, to be extrapolated; for `next` only
    forget : points that nobody will ask for again
    work : what else to do; "evaluate" is the E-step, others are told in `passes.py`
    extra : what that needs
    """

    recipe: Recipe
    name: str
    shared: Mapping[int, Floats]
    priors: Mapping[int, Prior]
    ahead: bool = False
    forget: tuple[str, ...] = ()
    work: str = "evaluate"
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SharedCounts:
    """Expected tails and heads of rows of a global coin: of all `n_rows`, or of those with
    `index`."""

    table: Floats
    n_rows: int
    index: Integers | None = None

    def check(self, n_rows: int) -> None:
        """Refuse, by a ValueError, counts of other rows than so many: sums are indexed by them."""
        index, n_own = self.index, n_rows
        if index is not None:
            n_own = len(index)
            is_inside = index.dtype == np.int64 and index.ndim == 1
            if not is_inside or not ((index >= 0) & (index < n_rows)).all():
                raise ValueError("its counts are of rows that there are not")
        if self.n_rows != n_rows or self.table.dtype != float or self.table.shape != (2, n_own):
            raise ValueError("its counts are of other rows")


@dataclass(frozen=True)
class Answer:
    """What one part says of a point, or all parts together: answers add up."""

    log_likelihood: float
    n_impossible: int
    penalty: float
    counts: Mapping[int, SharedCounts]
    squared_distance: float = 0.0
    lengths: Lengths = NO_LENGTHS
    extra: Mapping[str, Floats] = field(default_factory=dict)

    def check(self, n_rows: Mapping[int, int]) -> None:
        """Refuse, by a ValueError, an answer about other coins than those with so many rows."""
        sums = (self.log_likelihood, self.penalty, self.squared_distance, *self.lengths)
        is_right = all(isinstance(value, (int, float)) for value in sums)
        if not is_right or set(self.counts) != set(n_rows):
            raise ValueError("it is about something else")
        for number, own in self.counts.items():
            own.check(n_rows[number])


class Total:
    """The sum of the answers of all parts, which are added in the order of the parts."""

    def __init__(self) -> None:
        self._sums: list[tuple[float, ...]] = []
        self._n_impossible = 0
        self._counts: dict[int, Floats] = {}
        self._extra: dict[str, Floats] = {}

    def add(self, answer: Answer) -> None:
        """Add the answer of the next part."""
        self._sums.append(
            (answer.log_likelihood, answer.penalty, answer.squared_distance, *answer.lengths)
        )
        self._n_impossible += answer.n_impossible
        for number, own in answer.counts.items():
            total = self._counts.setdefault(number, np.zeros((2, own.n_rows)))
            if own.index is None:
                total += own.table
            else:
                total[:, own.index] += own.table  # a part has each row once
        for name, value in answer.extra.items():
            self._extra[name] = self._extra.get(name, 0.0) + np.asarray(value)

    def answer(self) -> Answer:
        """The sum."""
        # Rounded once, so that it does not matter how many parts there are.
        likelihood, penalty, distance, step, bend = map(math.fsum, zip(*self._sums, strict=True))
        counts = {n: SharedCounts(table, table.shape[1]) for n, table in self._counts.items()}
        lengths = Lengths(step, bend)
        return Answer(
            likelihood, self._n_impossible, penalty, counts, distance, lengths, self._extra
        )


def combined(answers: Iterable[Answer]) -> Answer:
    """The sum of the answers of all parts, taken in the order of the parts."""
    told = iter(answers)
    first, second = next(told), next(told, None)
    if second is None and all(own.index is None for own in first.counts.values()):
        return first  # a log in memory is one part, and there is nothing to add
    total = Total()
    total.add(first)
    for answer in told if second is None else chain([second], told):
        total.add(answer)
    return total.answer()
