"""Directions in which global coins and priors can move together, and hardly a page would tell.

Who doubles all examination and halves all attraction changes no click where every pair was shown
once: the likelihood has a ridge. The information that a climb goes by takes rows to first order,
which is off by a tenth or more of what pages would say if all else were known; on a ridge that is
more than what they do say. So along the directions of shared numbers that are known least, second
derivatives are taken from differences of the slopes themselves, which know rows as they are.

What is found is cut in two: what pages say, never less than nothing, and what is known before any
page is seen. A number of which pages alone say next to nothing while all else is free to follow is
not identified.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gecasmo.estimation.posteriors.joint import Joint

Floats = NDArray[np.float64]

# Directions of shared numbers with less than this share of the information that there would be if
# all else were known are looked at, the weakest ones.
_WEAK, _MOST = 0.4, 12
# As long as one has less than that, so has what goes along with it; so many times, or until that
# changes little.
_FLAT, _ROUNDS, _LITTLE = 0.5, 6, 0.1
# How far numbers are moved, in logits, and how often pages are looked at until rows have followed.
_STEP, _LOOKS = 0.03, 2
# What is known before any page is seen counts for so little when pages are to speak alone.
_FAINT = 0.01
# A number is open if all but such a share of what pages say of it can be made up for, and pages
# alone tell it no better than up to such a deviation of its probability.
_SHARE, _WIDE = 0.1, 0.12
# Information below that is none; and, in units of what there would be if all else were known, what
# is not to be divided by.
_NOTHING, _LEAST = 1e-8, 1e-3


class Known(NamedTuple):
    """How sure shared numbers and slopes of priors are.

    Attributes
    ----------
    pages : the information that comes from pages
    before : what was known before any of them was seen, the diagonal
    room : by how much the probabilities of shared numbers move with these
    """

    pages: Floats
    before: Floats
    room: Floats

    @property
    def information(self) -> Floats:
        """What pages and priors together tell of the parameters, as a matrix of information."""
        found: Floats = self.pages + np.diag(self.before)
        return found

    @property
    def is_open(self) -> NDArray[np.bool_]:
        """Which shared numbers pages leave open, all other numbers being free to follow."""
        n = len(self.room)
        held, alone = np.diag(self.pages)[:n], self.alone
        share = 1 / np.maximum(held * alone, _NOTHING)
        return (share < _SHARE) & (self.room * np.sqrt(alone) > _WIDE)

    @property
    def alone(self) -> Floats:
        """The variance of shared numbers if hardly anything had been known before."""
        information = self.pages + _FAINT * np.diag(self.before)
        scale = np.sqrt(np.maximum(np.diag(information), _NOTHING))
        values, vectors = np.linalg.eigh(information / scale / scale[:, None])
        found: Floats = (vectors**2 / np.maximum(values, _NOTHING)).sum(axis=1) / scale**2
        return found[: len(self.room)]


def look_closely(joint: Joint) -> Known:
    """What is known of everything shared where a climb has ended."""
    n, kept = joint.shared.size, _Snapshot(joint)
    system = joint.system(joint.sweep(), joint.curvature)
    claimed = np.concatenate([np.zeros(n), *(own[0].claimed() for own in kept.regressions)])
    before = system.hold - claimed
    room, before[:n] = joint.shared.rooms(joint.states)
    found, slopes = _Information(system.information, before + claimed, n), _Slopes(kept)
    if joint.has_past:
        # Pages that are not here any more cannot be looked at, and are part of what was before.
        return Known(joint.information - np.diag(before), before, np.zeros(n))
    for move in found.weakest():
        found.learn(move, slopes.fall(move))
    for _ in range(_ROUNDS):
        left, move = found.way_out()
        if left > _FLAT:
            break
        found.learn(move, slopes.fall(move))
        if abs(found.along(move) - left) < _LITTLE * max(abs(left), _LITTLE):
            break
    kept.restore()
    return Known(found.of_pages(), before, room)


class _Snapshot:
    """Everything that a look at pages changes."""

    def __init__(self, joint: Joint) -> None:
        self.joint, self.states = joint, list(joint.states)
        self.means = [dict(chunk.means) for chunk in joint.sweeps.chunks]
        self.regressions = [
            (regression, regression.priors, regression.says.copy())
            for coin in joint.coins
            if (regression := coin.regression) is not None
        ]

    def restore(self, by: Floats | None = None) -> None:
        """As it was, or with shared numbers and slopes moved."""
        joint, start = self.joint, self.joint.shared.size
        joint.states = (
            list(self.states) if by is None else joint.shared.moved(self.states, by[:start])
        )
        for chunk, means in zip(joint.sweeps.chunks, self.means, strict=True):
            chunk.means = dict(means)
        for regression, priors, _ in self.regressions:
            regression.priors = priors
            if by is not None:
                own = by[start : start + regression.size].reshape(priors.slopes.shape)
                regression.priors = replace(priors, slopes=priors.slopes + own)
            start += regression.size
        self.settle()

    def settle(self) -> None:
        """Give rows the priors that go with slopes as they are now. What rows say of effects is
        left as it was: these follow later, and must not hear of it twice."""
        for regression, _, says in self.regressions:
            regression.says = says.copy()
        self.joint.set_priors()


class _Slopes:
    """The slopes of the objective by everything shared, a little to the side of where it is."""

    def __init__(self, kept: _Snapshot) -> None:
        self.kept, self.joint, self.n_looks = kept, kept.joint, _LOOKS

    def fall(self, move: Floats) -> Floats:
        """How they fall when everything shared goes in a direction."""
        step = _STEP / np.abs(move).max()
        found: Floats = (self._at(-step * move) - self._at(step * move)) / (2 * step)
        return found

    def _at(self, move: Floats) -> Floats:
        self.kept.restore(move)
        found = self._looked()
        for _ in range(self.n_looks - 1):
            self.kept.settle()
            before, found = found, self._looked()
            if np.allclose(before, found, rtol=1e-9, atol=1e-9):
                self.n_looks = 1  # pages do not tie rows together: one look is enough
        return found

    def _looked(self) -> Floats:
        return self.joint.system(self.joint.sweep(), self.joint.curvature).score


class _Information:
    """Information on shared numbers, `n` of them, and on slopes, which gets better with every
    direction that is looked at."""

    def __init__(self, first: Floats, before: Floats, n: int) -> None:
        self.first, self.now, self.before, self.n = first, first, before, n
        self.scale = np.sqrt(np.maximum(np.abs(np.diag(first)), _NOTHING))
        self.moves: list[Floats] = []
        self.told: list[Floats] = []

    def learn(self, move: Floats, told: Floats) -> None:
        """Take in what was told of a direction: of all information that knows what was told so far,
        it is that which is nearest to the first."""
        self.moves.append(move)
        self.told.append(told)
        moves = np.stack(self.moves, axis=1)
        parts = np.linalg.pinv(moves * self.scale[:, None], rcond=1e-6) * self.scale
        off = np.stack(self.told, axis=1) - self.first @ moves
        both = moves.T @ off
        change = off @ parts - parts.T @ (both + both.T) @ parts / 4
        self.now = self.first + change + change.T

    def along(self, move: Floats) -> float:
        """What pages say of a direction, and hardly anything else."""
        return float(move @ self._almost_pages() @ move)

    def _almost_pages(self) -> Floats:
        found: Floats = self.now - (1 - _FAINT) * np.diag(self.before)
        return found

    def weakest(self) -> list[Floats]:
        """Directions of shared numbers of which little is known."""
        left, _ = self._following()
        values, vectors = np.linalg.eigh(left)
        chosen = vectors[:, values < _WEAK][:, :_MOST].T
        return [np.append(one, np.zeros(len(self.now) - self.n)) / self.scale for one in chosen]

    def way_out(self) -> tuple[float, Floats]:
        """What is known of the direction in which shared numbers can go furthest, and that
        direction, with everything that goes along."""
        left, along = self._following()
        if not self.n:
            return np.inf, np.zeros(len(self.now))
        values, vectors = np.linalg.eigh(left)
        return float(values[0]), np.append(vectors[:, 0], along @ vectors[:, 0]) / self.scale

    def _following(self) -> tuple[Floats, Floats]:
        """What is known of shared numbers while slopes follow, and how far these go along; both in
        units of what would be known if nothing else moved."""
        n, scaled = self.n, self._almost_pages() / self.scale / self.scale[:, None]
        values, vectors = np.linalg.eigh(scaled[n:, n:])
        pull = vectors.T @ scaled[n:, :n]
        along = -vectors @ (pull / np.maximum(np.abs(values), _LEAST)[:, None])
        left = scaled[:n, :n] + scaled[:n, n:] @ along
        # What is given, or never flipped, goes nowhere.
        silent = self.scale[:n] ** 2 <= _NOTHING
        left = np.where(silent | silent[:, None], np.diag(np.where(silent, 2.0, 0.0)), left)
        return (left + left.T) / 2, along

    def of_pages(self) -> Floats:
        """What pages say, which is never less than nothing."""
        scaled = (self.now - np.diag(self.before)) / self.scale / self.scale[:, None]
        values, vectors = np.linalg.eigh(scaled)
        sound: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return sound * self.scale * self.scale[:, None]
