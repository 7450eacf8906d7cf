"""Rows that can be flipped more than once on a page: there the likelihood is a polynomial.

CCM flips attraction twice, a document may be shown twice. The page is run again at as many values
of the row as the polynomial has coefficients. A row that a whole page shares (a coin by query, user
or device) may be flipped at every result, and its polynomial has any degree; but there all rows can
be moved at once, and an E-step over all pages evaluates one point of every row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.encoded import Apart, take_apart
from gecasmo.estimation.coins import as_weights
from gecasmo.estimation.expectation import Expectation, columns
from gecasmo.estimation.posteriors.few_rows import copied_places, repeats
from gecasmo.kernels.static import static_kernel
from gecasmo.kernels.static.row_grid import copy_places, find_repeats
from gecasmo.logs.runs import offsets

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Of higher degrees only an approximation is made.
MOST_DEGREES = 16
# Running a page again for each of its rows is quadratic in its length. On pages where that would
# be more results than this, each place speaks for itself, as if flips were independent.
MOST_RESULTS = 30_000
_RESULTS_AT_ONCE = 2_000_000
# Fewer are not worth compiling.
_FEW_PLACES = 20_000
_NO_TWO_TAILS, _NO_TWO_HEADS = 1, 2
# Of rows that a whole page shares: how often their points are narrowed, and how many nats below the
# best point a posterior is nothing.
_MOST_ROUNDS, _NEGLIGIBLE = 8, 18.0


@dataclass
class Polynomials:
    """`exact[place]` is 1 more than the line of `coefficients` that speaks for the row at this
    place, -1 where another place of the page does so, and 0 where the row is flipped once.

    Line c means the polynomial sum of c[i] p^i (1 - p)^(d - i).
    """

    exact: NDArray[np.int32]
    coefficients: Floats


@dataclass(frozen=True)
class _Several:
    """Of a coin on some pages: the rows that a page may flip several times, each told by one place,
    with the degree of its polynomial. None of it depends on probabilities.

    `exact` is as in `Polynomials`; `copies` are the pages once more, as often as it takes, in
    pieces of lines that have the same degree.
    """

    exact: NDArray[np.int32]
    n_lines: int
    degree: int
    copies: list[_Copies]


@dataclass(frozen=True)
class _Copies:
    """Pages of rows, each once for every point at which its row is to be tried.

    `places` are those of these pages among the ones that were taken apart; `own_places` of the coin
    itself, which has a place for each point after all others.
    """

    lines: Integers  # of the coefficients
    degree: int
    pages: Integers
    places: NDArray[np.uint32]
    own_places: NDArray[np.uint32]
    again: Apart


def polynomials(
    expectation: Expectation, apart: Apart, weights: list[Floats], coin: int
) -> Polynomials | None:
    """The polynomials of all rows of a coin that pages may flip several times; None if none."""
    if expectation.encoded.plan.coins[coin].scope == "page":  # flipped once, before any result
        return None
    if ("several", coin) not in apart.known:
        apart.known["several", coin] = _several(expectation, apart, coin)
    several: _Several | None = apart.known["several", coin]
    if several is None:
        return None
    coefficients = np.zeros((several.n_lines, several.degree + 1))
    for copies in several.copies:
        found = _fitted(expectation, coin, copies, weights)
        coefficients[copies.lines] = elevated(found, several.degree)
    return Polynomials(several.exact, coefficients)


def _several(expectation: Expectation, apart: Apart, coin: int) -> _Several | None:
    """Find the rows that pages may flip several times."""
    _, per_result = flips_on_a_path(expectation, coin)
    array = expectation.encoded.plan.coins[coin].codes
    may_repeat = _may_repeat(apart, array)
    if per_result <= 1 and not may_repeat:
        return None
    rows, page = apart.rows[array], apart.page_of(array)
    # What was shown tells how often a row can have been flipped where it stands alone.
    flips, is_first = flips_when_shown(expectation, coin)[apart.obs], np.ones(len(rows), np.bool_)
    if may_repeat:
        times, is_first = repeats(apart.obs_start, rows)
        flips = np.where(times == 1, flips, per_result * times)
    is_several = flips > 1
    n_several = np.bincount(page[is_first & is_several], minlength=apart.n_pages)
    most = n_several * apart.lengths * (_largest(flips, page, apart.n_pages) + 1)
    is_several &= (most <= MOST_RESULTS)[page]
    spokesmen = np.flatnonzero(is_first & is_several)
    if not len(spokesmen):
        return None
    exact = np.where(is_several, -1, 0).astype(np.int32)
    exact[spokesmen] = 1 + np.arange(len(spokesmen))
    degrees = np.minimum(flips[spokesmen], MOST_DEGREES)
    copies = []
    for degree in map(int, np.unique(degrees)):
        chosen = np.flatnonzero(degrees == degree)
        size = max(1, _RESULTS_AT_ONCE // (apart.max_length * (degree + 1)))
        for begin in range(0, len(chosen), size):
            lines = chosen[begin : begin + size]
            own = spokesmen[lines]
            copies.append(_copies(apart, array, lines, degree, page[own], rows[own]))
    return _Several(exact, len(spokesmen), int(degrees.max()), copies)


def _copies(
    apart: Apart,
    array: int,
    lines: Integers,
    degree: int,
    pages: Integers,
    own: NDArray[np.uint32],
) -> _Copies:
    """Pages that were taken apart, each once for every point; rows are not needed any more."""
    encoded, rows, n_points = apart.encoded, apart.rows[array], degree + 1
    many = np.repeat(pages, n_points)
    obs_start = offsets(apart.lengths[many])
    given = (apart.obs_start, rows, pages, own, n_points)
    if obs_start[-1] < _FEW_PLACES:
        places, own_places = copied_places(*given)
    else:
        places, own_places = np.empty((2, obs_start[-1]), np.uint32)
        _call(copy_places, *given, places, own_places)
    codes: list[NDArray[np.unsignedinteger[Any]]] = []
    for number, code in enumerate(apart.codes):
        n = len(many) if encoded.is_by_page(number) else len(places)
        is_based = number in encoded.plan.based
        codes.append(code[places] if is_based else np.arange(n, dtype=np.uint32))
    again = Apart(encoded, apart.pages[many], obs_start, apart.obs[places], [], codes)
    return _Copies(lines, degree, many, places, own_places, again)


def is_flipped_all_over(expectation: Expectation, coin: int) -> bool:
    """Whether a page has one row of this coin and may flip it more than once."""
    at_start, per_result = flips_on_a_path(expectation, coin)
    is_by_page = expectation.encoded.plan.coins[coin].scope == "page"
    return is_by_page and at_start + per_result * expectation.encoded.max_length > 1


def _largest(times: Integers, page: Integers, n_pages: int) -> Integers:
    """The largest of `times` on each page."""
    largest = np.ones(n_pages, np.int64)
    np.maximum.at(largest, page, times)
    return largest


def flips_on_a_path(expectation: Expectation, coin: int) -> tuple[int, int]:
    """How often a coin can be flipped before the first result, and for any one result."""
    structure = expectation.library.structure
    is_full = coin in expectation.counts_unflipped
    automaton = getattr(structure, "full" if is_full else expectation.augmentation).body
    name = automaton.parameters[coin]
    start = [sum(x.parameter == name for x in edge.literals) for edge in automaton.initial]
    per_lag: Counter[int] = Counter()
    for edge in automaton.edges:
        here = Counter(x.lag for x in edge.literals if x.parameter == name)
        for lag, count in here.items():
            per_lag[lag] = max(per_lag[lag], count)
    return max(start, default=0), sum(per_lag.values())


def flips_when_shown(expectation: Expectation, coin: int) -> Integers:
    """How often a coin can be flipped for a result, by what is observed there."""
    machine = expectation.machine
    own = {n for n, variable in enumerate(machine.variables) if variable.coin == coin}
    is_lagging = any(machine.variables[n].lag for n in own)
    if is_lagging or coin in expectation.counts_unflipped:  # perhaps without having been flipped
        most = flips_on_a_path(expectation, coin)[1]
        return np.full(machine.n_observations, most, np.int64)
    found = np.zeros(machine.n_observations, np.int64)
    for step in machine.steps():
        for number, edges in enumerate(step.edges):
            counts = [sum(x.variable in own for x in edge.literals) for edge in edges]
            found[number] = max(found[number], *counts, 0)
    return found


def weights_elsewhere(expectation: Expectation, apart: Apart, coin: int, means: Floats) -> Floats:
    """Weights of a coin at every place that stand for all values its row may have.

    Where a row can be flipped once, these are the mean of p and that of 1 - p; `means` are those of
    p and p^2. Where it is flipped twice, whatever happens, the weights are such that their products
    are the means of p^2 and of p (1 - p), or the other way round.
    """
    mean, square = means
    found = np.stack([1 - mean, mean])
    if ("twice", coin) not in apart.known:
        apart.known["twice", coin] = _places_flipped_twice(expectation, apart, coin)
    kind: Integers | None = apart.known["twice", coin]
    if kind is None:
        return found
    both = np.maximum(mean - square, 1e-12)
    heads, tails = np.sqrt(square), np.sqrt(np.maximum(1 - 2 * mean + square, 1e-12))
    found[1] = np.select(
        [kind == _NO_TWO_TAILS, kind == _NO_TWO_HEADS], [heads, both / tails], mean
    )
    found[0] = np.select(
        [kind == _NO_TWO_TAILS, kind == _NO_TWO_HEADS], [both / heads, tails], 1 - mean
    )
    return found


def _places_flipped_twice(expectation: Expectation, apart: Apart, coin: int) -> Integers | None:
    """What `_flipped_twice` says of every place, 0 where a page has its row elsewhere too; None
    if there is no such place."""
    kinds = _flipped_twice(expectation, coin)
    plan = expectation.encoded.plan.coins[coin]
    if not kinds.any() or plan.scope == "page":
        return None
    distance = np.repeat(apart.obs_start[1:], apart.lengths) - 1 - np.arange(len(apart.obs))
    kind: Integers = kinds[np.minimum(distance, len(kinds) - 1), apart.obs]
    if _may_repeat(apart, plan.codes):
        kind = np.where(repeats(apart.obs_start, apart.rows[plan.codes])[0] == 1, kind, 0)
    return kind


def _flipped_twice(expectation: Expectation, coin: int) -> Integers:
    """Where a coin is flipped twice for certain, and never with two tails, or never with two heads:
    by the results that follow (the last of these for all that are further up) and by what is
    observed."""
    machine = expectation.machine
    own = {n for n, variable in enumerate(machine.variables) if variable.coin == coin}
    steps = machine.steps()
    kinds = np.zeros((len(steps), machine.n_observations), np.int64)
    if any(machine.variables[n].lag for n in own):
        return kinds
    for number, step in enumerate(steps):
        for observation, edges in enumerate(step.edges):
            sides = [[x.heads for x in edge.literals if x.variable in own] for edge in edges]
            if sides and all(len(one) == 2 for one in sides):
                totals = {sum(one) for one in sides}
                if 0 not in totals:
                    kinds[number, observation] = _NO_TWO_TAILS
                elif 2 not in totals:
                    kinds[number, observation] = _NO_TWO_HEADS
    return kinds


def _may_repeat(apart: Apart, array: int) -> bool:
    """Whether it is worth a closer look if a page has a row twice."""
    if ("repeats", array) not in apart.known:
        rows = apart.rows[array]
        found = np.array([len(rows) < _FEW_PLACES])
        if not found[0]:
            _call(find_repeats, apart.obs_start, rows, found)
        apart.known["repeats", array] = bool(found[0])
    return bool(apart.known["repeats", array])


def _call(function: Any, *arguments: Any) -> None:
    static_kernel(function, arguments)(*arguments)


def _fitted(expectation: Expectation, coin: int, copies: _Copies, weights: list[Floats]) -> Floats:
    """The polynomials of some (page, row), up to a factor each."""
    points, inverse = _basis(copies.degree)
    full = []
    for number, (plan, w) in enumerate(zip(expectation.encoded.plan.coins, weights, strict=True)):
        if plan.scope == "global":
            full.append(w)
        elif plan.scope == "page":
            full.append(np.ascontiguousarray(w[:, copies.pages]))
        elif number == coin:
            full.append(columns(np.hstack([w, as_weights(points)]), copies.own_places))
        else:
            full.append(columns(w, copies.places))
    _, log_likelihood = expectation.run_apart(copies.again, full)
    table = log_likelihood.reshape(-1, len(points))
    with np.errstate(invalid="ignore"):
        table = np.exp(table - table.max(axis=1, keepdims=True))
    found = np.nan_to_num(table) @ inverse.T
    # A coefficient is a sum of probabilities: what is below rounding, or below zero, is zero.
    noise = 1e-14 * np.abs(inverse).sum()
    return np.where(found < noise, 0.0, found)


@cache
def _basis(degree: int) -> tuple[Floats, Floats]:
    """Points strictly inside (0, 1), and what turns values there into coefficients."""
    points = 0.5 - 0.5 * np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    powers = np.arange(degree + 1)
    matrix = points[:, None] ** powers * (1 - points[:, None]) ** (degree - powers)
    return points, np.asarray(np.linalg.inv(matrix), np.float64)


def elevated(coefficients: Floats, degree: int) -> Floats:
    """The same polynomials with the coefficients of a higher degree."""
    while coefficients.shape[1] <= degree:
        nothing = np.zeros((len(coefficients), 1))
        coefficients = np.hstack([coefficients, nothing]) + np.hstack([nothing, coefficients])
    return coefficients


# -- rows that a whole page shares ---------------------------------------------------------------
def whole_page_values(
    expectation: Expectation,
    weights: Sequence[Floats],
    coin: int,
    prior: Floats,
    chunks: Sequence[Integers],
    n_points: int,
) -> tuple[Floats, Floats, Floats, NDArray[np.bool_]]:
    """For each row its lowest logit, the step between points, the log-likelihood there, and
    whether it stands on any of the pages. Points are narrowed to where the posterior lives."""
    n_rows = prior.shape[1]
    low, step = np.full(n_rows, -14.0), np.full(n_rows, 28.0 / (n_points - 1))
    values = np.zeros((n_rows, n_points))
    known = np.zeros(n_rows, np.bool_)
    is_open = np.ones(n_rows, np.bool_)
    for round_ in range(_MOST_ROUNDS):
        values[is_open] = 0.0
        for pages in chunks:
            seen = _add_pages(expectation, weights, coin, pages, low, step, values, is_open)
            known[seen] = True
        left, right = _lively(values, low, step, prior)
        narrow = is_open & known & (4 * (right - left) < 3 * (n_points - 1))
        if round_ == _MOST_ROUNDS - 1 or not narrow.any():
            break
        low = np.where(narrow, low + step * left, low)
        step = np.where(narrow, step * (right - left) / (n_points - 1), step)
        is_open = narrow
    values -= values.max(axis=1, keepdims=True)
    return low, step, values, known


def _add_pages(
    expectation: Expectation,
    weights: Sequence[Floats],
    coin: int,
    pages: Integers,
    low: Floats,
    step: Floats,
    values: Floats,
    is_open: NDArray[np.bool_],
) -> Integers:
    """Add what some pages say of the rows that are still open; which rows these are."""
    encoded = expectation.encoded
    codes = encoded.codes[encoded.plan.coins[coin].codes]
    pages = pages[is_open[codes[pages]] & (encoded.weight[pages] > 0)]
    if not len(pages):
        return np.zeros(0, np.int64)
    apart = take_apart(encoded, pages)
    own = expectation.weights_apart(apart, weights)
    rows = codes[pages].astype(np.int64)
    for point in range(values.shape[1]):
        p = 1 / (1 + np.exp(-(low + step * point)))
        own[coin] = as_weights(p[rows])
        _, log_likelihood = expectation.run_apart(apart, own)
        np.add.at(values[:, point], rows, encoded.weight[pages] * log_likelihood)
    return rows


def _lively(values: Floats, low: Floats, step: Floats, prior: Floats) -> tuple[Integers, Integers]:
    """The first and the last point of each row at which its posterior is something."""
    x = low[:, None] + step[:, None] * np.arange(values.shape[1])
    log_p = -np.log1p(np.exp(-x))
    posterior = values + prior[0][:, None] * log_p + prior[1][:, None] * (log_p - x)
    alive = posterior >= posterior.max(axis=1, keepdims=True) - _NEGLIGIBLE
    last = values.shape[1] - 1
    left = np.maximum(alive.argmax(axis=1) - 1, 0)
    right = np.minimum(last - alive[:, ::-1].argmax(axis=1) + 1, last)
    return left, right
