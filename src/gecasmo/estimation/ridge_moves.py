"""Moves along ridges, for chains that would hardly move there.

Who multiplies all examination by 1.1 and divides all attraction by it changes no click, so the
likelihood has a ridge. Paths that were drawn hold both where they are, and a sampler that draws
paths and rows in turn takes hundreds of sweeps to walk along. So sometimes all rows of some coins
are proposed to slide together, paths not being looked at; that is accepted or not by the likelihood
of pages (a Metropolis step, whose proposals are as likely as their reverses).

Which coins go together is found where the first chain is after half of the warm-up: what pages say
of such a direction is compared with what they would say if all flips had been seen. Where that is
nearly the same, plain sweeps are fast, and nothing is added to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.gibbs_rows import RowChain, TableRows
from gecasmo.kernels.static.slide_steps import ladder

Floats = NDArray[np.float64]
Tables = Mapping[int, Floats]  # by number of a coin, `[side, row]`

# A ridge is where pages say less than this share of what they would if all flips had been seen:
# plain sweeps would need some 2 / share of them for one independent draw.
_SLOW = 0.05
# How far coins are moved to see how what pages say changes, in logarithms.
_STEP = 0.02
# Directions of which seen flips would say less than this, of the most, are none.
_NOTHING = 0.01
# First steps are that many deviations, but multiply no probability by more than exp of the other.
_FIRST, _WIDEST = 2.4, 0.3
# No move multiplies a probability by more than exp of that.
_FARTHEST = 5.0
# Of moves along one direction so many should be accepted.
_ACCEPTED = 0.44


class Slide(NamedTuple):
    """One side (0 tails, 1 heads) of all rows of a coin, and how far it goes."""

    coin: int
    side: int
    length: float


class Ridge(NamedTuple):
    """Coins that slide together, and how far at first."""

    slides: tuple[Slide, ...]
    step: float


@dataclass
class Walk:
    """The moves of one chain along one ridge, which learn their step during the warm-up."""

    ridge: Ridge
    log_step: float = field(init=False)
    n: int = 0

    def __post_init__(self) -> None:
        self.log_step = math.log(self.ridge.step)

    def propose(
        self, rows: Mapping[int, TableRows], own: Mapping[int, RowChain], normal: float
    ) -> tuple[dict[int, RowChain], float]:
        """All rows after a step, and by how much their density and room grow, in logarithms."""
        moved, gain = dict(own), 0.0
        for coin, side, length in self.ridge.slides:
            by = length * math.exp(self.log_step) * normal
            if abs(by) > _FARTHEST:
                return dict(own), -math.inf
            moved[coin], more = rows[coin].slid(own[coin], side, by)
            gain += more
        return moved, gain

    def learn(self, chance: float) -> None:
        """Longer or shorter steps, so that the wanted share of them is accepted."""
        self.n += 1
        self.log_step += 1.5 * (chance - _ACCEPTED) / math.sqrt(self.n)


def find_ridges(
    rows: Sequence[TableRows],
    own: Mapping[int, RowChain],
    expected: Callable[[Tables], Tables],
) -> list[Ridge]:
    """The ridges where a chain is; `expected` are expected counts, of all pages, if some coins have
    other weights."""
    coins = [one for one in rows if one.n_free]
    places = [(coin, side) for coin in coins for side in ((0, 1) if coin.n_free > 1 else (1,))]
    if len(places) < 2:
        return []
    seen, whole = _information(places, own, expected)
    ridges: list[Ridge] = []
    for length in _weak(seen, whole):
        # Of each coin the side that goes farther; the other adds little but work.
        size = np.abs(length) * np.sqrt(np.maximum(np.diag(whole), 0.0))
        chosen = [
            max((k for k, (one, _) in enumerate(places) if one is coin), key=lambda k: size[k])
            for coin in coins
        ]
        block = np.ix_(chosen, chosen)
        again = _weak(seen[block], whole[block])
        if not again:
            continue
        slides = tuple(
            Slide(places[k][0].number, places[k][1], float(x))
            for k, x in zip(chosen, again[0], strict=True)
        )
        ridge = Ridge(slides, _first_step(again[0], seen[block]))
        if all(ridge.slides != other.slides for other in ridges):
            ridges.append(ridge)
    return ridges


def _first_step(length: Floats, seen: Floats) -> float:
    told = max(float(length @ seen @ length), 1e-12)
    return min(_FIRST / math.sqrt(told), _WIDEST / float(np.abs(length).max()))


def _information(
    places: Sequence[tuple[TableRows, int]],
    own: Mapping[int, RowChain],
    expected: Callable[[Tables], Tables],
) -> tuple[Floats, Floats]:
    """Second derivatives of minus the log-likelihood by how far coins slide, from differences of
    its slopes: of that of pages, and of that of flips as they are expected here."""
    here = {coin.number: own[coin.number].weights for coin, _ in places}
    counts = expected({})

    def slopes(weights: Tables, told: Tables) -> Floats:
        return np.array(
            [_slope(coin, side, weights[coin.number], told[coin.number]) for coin, side in places]
        )

    seen, whole = [], []
    for coin, side in places:
        ends = []
        for by in (_STEP, -_STEP):
            moved = {coin.number: coin.slid(own[coin.number], side, by)[0].weights}
            weights = here | moved
            ends.append((slopes(weights, expected(moved)), slopes(weights, counts)))
        (up, up_held), (down, down_held) = ends
        seen.append((down - up) / (2 * _STEP))
        whole.append((down_held - up_held) / (2 * _STEP))
    a, b = np.array(seen), np.array(whole)
    return (a + a.T) / 2, (b + b.T) / 2


def _slope(coin: TableRows, side: int, weights: Floats, counts: Floats) -> float:
    """How the log-likelihood of flips changes as one side of all rows slides."""
    p, q = weights[side], weights[1 - side]
    each = ladder(p) * (  # type: ignore[no-untyped-call]
        counts[side] * q - counts[1 - side] * p
    )
    if len(coin.is_given):
        each = each[~coin.is_given]
    return float(each.sum())


def _weak(seen: Floats, whole: Floats) -> list[Floats]:
    """Directions of which pages say little, the weakest first; seen flips would say 1 of each."""
    scale = 1 / np.sqrt(np.maximum(np.diag(whole), 1e-9))
    values, vectors = np.linalg.eigh(whole * scale * scale[:, None])
    kept = values > _NOTHING * max(float(values[-1]), 0.0)
    unit = scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])
    shares, directions = np.linalg.eigh(unit.T @ seen @ unit)
    found: Floats = unit @ directions
    return [found[:, k] for k in np.flatnonzero(shares < _SLOW)]
