"""Flat directions: combinations of parameters that the log hardly tells apart.

The information on global parameters, with all others profiled out, is measured in units of what
each parameter would be known by if the rest were given. An eigenvalue near zero then is a
combination that hardly changes the likelihood, however well each part of it seems to be known. The
second derivative of the observed likelihood along it has the last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.checks.findings import Findings, summed_up
from gecasmo.checks.identified import Tangle
from gecasmo.checks.information import Information
from gecasmo.checks.subject import CheckedModel
from gecasmo.errors import either
from gecasmo.estimation import Expectation
from gecasmo.estimation.coins import as_weights
from gecasmo.report import listed

Floats = NDArray[np.float64]

# Standard errors ten times as large as they would be if the rest were known.
_NEARLY_FLAT = 1e-2
_FLAT = 1e-6
_STEP = 1e-3
_RIDGE = 1e-9
_ZERO = 1e-7


@dataclass(frozen=True)
class Flatness:
    """Eigenvalues of the profiled information in each parameter's own units, smallest first.

    The columns of `vectors` are directions of the global parameters in these units; `moves` has the
    direction of all parameters, in logits, that belongs to each.
    """

    values: Floats
    vectors: Floats
    moves: Floats
    inflation: Floats  # of the standard error of each global parameter

    @property
    def condition(self) -> float:
        """How much flatter the flattest direction is than a parameter alone."""
        smallest = float(self.values[0])
        return max(float(self.values[-1]), 1.0) / smallest if smallest > 0 else float("inf")


def curvature(known: Information) -> Flatness:
    """Eigenvalues and directions of what is known about global parameters."""
    own = np.diag(known.now)[known.shared]
    scale = 1 / np.sqrt(own)
    ridge = _RIDGE + _RIDGE * np.diag(known.now)
    left = known.profiled(known.now, ridge) * scale * scale[:, None]
    values, vectors = np.linalg.eigh((left + left.T) / 2)
    values = np.where(values < _ZERO, 0.0, values)  # not told apart from rounding
    moves = np.zeros((len(known.parameters.names), len(values)))
    for number in range(len(values)):
        move = scale * vectors[:, number]
        moves[known.shared, number] = move
        moves[known.rest, number] = known.response(known.now, ridge, move)
    inflation = ((vectors**2) / np.maximum(values, 1e-12)).sum(axis=1) ** 0.5
    return Flatness(values, vectors, moves, inflation)


def check_flatness(
    subject: CheckedModel, known: Information, tangles: Sequence[Tangle], top: int
) -> Findings:
    """Which combinations of global parameters are badly known."""
    part = Findings()
    found = curvature(known)
    table = part.tables["directions"] = _table(known)
    part.facts["condition_number"] = found.condition
    flat = [
        number
        for number, value in enumerate(found.values)
        if value < _NEARLY_FLAT and _is_flat_in_fact(subject, known, found, number)
    ]
    new = [number for number in flat if not _is_told(known, found, number, tangles)]
    worst_row = table.row(int(np.argmax(table["times"].to_numpy())), named=True)
    if not new and not flat and worst_row["times"] ** -2 < _NEARLY_FLAT:
        part.add(
            "warning",
            "flat directions",
            f"The standard error of {worst_row['parameter']} is {worst_row['times']:.0f} times as "
            f"large as if the rest were known{known.taken_as_known()}; condition number "
            f"{_number(found.condition)}.",
            advice="Collect more pages, with results in other orders, or give some of the others "
            f"with {either('Fixed', '--fixed')} or {either('', 'in Python ')}Table(fixed=...).",
        )
        return part
    if not new:
        besides = ", beside the product named above" if flat else ""
        part.add(
            "info",
            "flat directions",
            "No combination of global parameters is known much less well than its parts"
            f"{known.taken_as_known()}{besides}; condition number {_number(found.condition)}.",
        )
        return part
    flat = new
    worst = float(found.values[flat[0]])
    effect = (
        "changes nothing that was observed"
        if worst < _FLAT
        else f"has a standard error {worst**-0.5:.0f} times as large as if the rest were known"
    )
    part.add(
        "warning",
        "flat directions",
        f"The likelihood is {'flat' if worst < _FLAT else 'nearly flat'} in "
        f"{'a direction' if len(flat) == 1 else f'{len(flat)} directions'}"
        f"{known.taken_as_known()}: moving {in_words(known, found.moves[:, flat[0]])} together "
        f"{effect}; condition number {_number(found.condition)}.",
        count=len(flat),
        examples=[in_words(known, found.moves[:, number]) for number in flat[1:top]],
        advice="Together they are estimated, one by one they are not. Give one of them with "
        f"{either('Fixed', '--fixed')} or {either('', 'in Python ')}Table(fixed=...), use fewer "
        "rows, or collect pages in which they part: with several clicks, or with results "
        "in other orders.",
    )
    return part


def in_words(known: Information, move: Floats) -> str:
    """A direction as who goes up while who goes down; rows of one coin are summed up."""
    parameters = known.parameters
    weight = np.maximum(np.diag(known.now), 0.0)
    strength = weight * move**2
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, tie in enumerate(parameters.coins):
        if strength[number] > 0:
            groups.setdefault(tie, []).append(number)
    shared = set(known.shared.tolist())
    words: list[tuple[float, int, str]] = []
    for tie, members in groups.items():
        if members[0] in shared and len(members) <= 12:
            words += _single_words(known, members, move, strength, strength.sum())
            continue
        size = float(strength[members].sum())
        mean = float((weight[members] * move[members]).sum())
        words.append((size, 1 if mean > 0 else -1, tie[0]))
    words = [word for word in words if word[0] >= 0.02 * max(size for size, _, _ in words)]
    words.sort(key=lambda word: -word[0])
    sign = words[0][1]
    sides = [[name for _, s, name in words if s == sign * side] for side in (1, -1)]
    return listed(
        f"{summed_up(side)} {word}"
        for side, word in zip(sides, ("up", "down"), strict=True)
        if side
    )


def _single_words(
    known: Information, members: list[int], move: Floats, strength: Floats, total: float
) -> list[tuple[float, int, str]]:
    return [
        (float(strength[number]), 1 if move[number] > 0 else -1, known.parameters.names[number])
        for number in members
        if strength[number] > 1e-12 * total
    ]


def _is_flat_in_fact(
    subject: CheckedModel, known: Information, found: Flatness, number: int
) -> bool:
    """Whether the observed second derivative agrees that a direction is nearly flat.

    It is compared with what the parameters that move would be known by one at a time. A direction
    that no result has a part in needs no such witness.
    """
    if found.values[number] < _FLAT:
        return True
    move = found.moves[:, number]
    one_by_one = float(np.diag(known.now) @ move**2)
    return observed_along(subject, known, move) < 10 * _NEARLY_FLAT * one_by_one


def _is_told(known: Information, found: Flatness, number: int, tangles: Sequence[Tangle]) -> bool:
    """Whether a flat direction belongs to a product, whose scale and parts were told already."""
    move = found.moves[:, number]
    strength = np.diag(known.now) * move**2
    strong = np.flatnonzero(strength > 1e-3 * strength.max())
    coins = {coin for column in strong for coin in known.parameters.coins[column]}
    is_flat = found.values[number] < _FLAT
    return is_flat and any(coins <= set(tangle.coins) for tangle in tangles)


def observed_along(subject: CheckedModel, known: Information, move: Floats) -> float:
    """Minus the second derivative of the sample's log-likelihood along a direction."""
    from scipy.special import expit, logit

    model = subject.model
    encoded = model.encode(known.log, "e_step", merge=False)
    weight = known.weight[np.argsort(encoded.page_of_session)]
    encoded = replace(encoded, weight=np.ascontiguousarray(weight))
    expectation = Expectation(encoded, model.library(encoded.plan, counting=True))
    base = np.concatenate(subject.probabilities(encoded.rows))
    steps = known.parameters.design @ move
    size = float(np.abs(steps).max())
    if size == 0:
        return 0.0
    steps /= size
    inside = (base > 0) & (base < 1)
    logits = logit(np.where(inside, base, 0.5))
    borders = np.cumsum([len(rows) for rows in encoded.rows])[:-1]

    def slope(step: float) -> float:
        at = np.where(inside, expit(logits + step * steps), base)
        counts = expectation.run(
            [as_weights(np.ascontiguousarray(p)) for p in np.split(at, borders)]
        )
        tails, heads = np.concatenate(counts.tables, axis=1)
        return float(((heads - (heads + tails) * at) * steps).sum())

    return (slope(-_STEP) - slope(_STEP)) / (2 * _STEP) * size**2


def _table(known: Information) -> pl.DataFrame:
    alone, error = known.errors_alone(), known.errors(known.now)
    return pl.DataFrame(
        {
            "parameter": [known.parameters.names[number] for number in known.shared],
            "probability": known.level[known.shared],
            "error_if_rest_known": alone,
            "error": error,
            "times": error / alone,
        }
    )


def _number(value: float) -> str:
    return f"{value:,.3g}" if value < 1e12 else "infinite"
