"""What the driver of a fit asks of every part of a log, and what parts answer.

A *point* is where all local coins stand. Points live with the parts, under names; the driver only
knows the names. Everything here is small, whatever the size of the log: numbers, names, and tables
of coins that all parts share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.steps import NO_LENGTHS, Lengths
from gecasmo.forms.priors import Bins, Priors

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


@dataclass(frozen=True)
class Task:
    """One pass over all parts.

    Parameters
    ----------
    recipe : how to find the local coins
    name : under which name to keep the point; empty to keep nothing
    shared : weights `[side, row]` of the shared coins, by number of the coin
    priors : what the prior of each local coin is now, by number; pseudo-counts or learned priors
    bins : for local coins with several priors, which rows have which
    ahead : also tell how long the EM step from here is, to be extrapolated; for `next` only
    forget : points that nobody will ask for again
    work : what else to do; "evaluate" is the E-step, others are told in `passes.py`
    extra : what that needs
    """

    recipe: Recipe
    name: str
    shared: Mapping[int, Floats]
    priors: Mapping[int, Priors | tuple[float, float]]
    bins: Mapping[int, Bins] = field(default_factory=dict)
    ahead: bool = False
    forget: tuple[str, ...] = ()
    work: str = "evaluate"
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SharedCounts:
    """Expected tails and heads of rows of a shared coin: of all `n_rows`, or of those with
    `index`."""

    table: Floats
    n_rows: int
    index: Integers | None = None


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


def combined(answers: Sequence[Answer]) -> Answer:
    """The sum of the answers of all parts, taken in the order of the parts."""
    counts = {}
    for number, first in answers[0].counts.items():
        total = np.zeros((2, first.n_rows))
        for answer in answers:
            own = answer.counts[number]
            if own.index is None:
                total += own.table
            else:
                total[:, own.index] += own.table  # a part has each row once
        counts[number] = SharedCounts(total, first.n_rows)
    return Answer(
        math.fsum(answer.log_likelihood for answer in answers),
        sum(answer.n_impossible for answer in answers),
        math.fsum(answer.penalty for answer in answers),
        counts,
        math.fsum(answer.squared_distance for answer in answers),
        Lengths(
            math.fsum(answer.lengths.step for answer in answers),
            math.fsum(answer.lengths.bend for answer in answers),
        ),
        {
            name: np.sum([answer.extra[name] for answer in answers], axis=0)
            for name in answers[0].extra
        },
    )
