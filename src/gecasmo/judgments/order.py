"""How sure the order of a query's pairs is, whatever their grades."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.judgments.grades import BetaBeliefs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# The line is cut at so many points, with about the same mass of a query's judged pairs between
# them. Two truths in the same piece count as half in order, so the mean over these pairs is off by
# about 1 / (2 x _POINTS) at most, and mostly by far less.
_POINTS = 48
_NARROWEST = 1e-7  # logits that differ by less are equal
_AT_ONCE = 1 << 20  # numbers in an array
_TWO_POINTS = 2 * _POINTS  # where only two are compared
# If both parameters of a Beta distribution are at least this, four cumulants of its logit tell its
# distribution function well enough; if they are at least that, whether one truth is above another.
_REGULAR, _REGULAR_PAIR = 3.0, 1.0


class Logits(NamedTuple):
    """Mean, variance, third and fourth cumulant of the logits of truths."""

    mean: Floats
    variance: Floats
    third: Floats
    fourth: Floats

    @classmethod
    def of(cls, beliefs: BetaBeliefs) -> Logits:
        """In closed form: sums of polygamma functions of the parameters."""
        from scipy.special import digamma, polygamma

        certain = beliefs.is_certain
        inside = np.clip(beliefs.mean, 1e-12, 1 - 1e-12)
        strength = np.where(certain, 1.0, beliefs.strength)
        a, b = inside * strength, (1 - inside) * strength
        mean = np.where(certain, np.log(inside / (1 - inside)), digamma(a) - digamma(b))
        others = [polygamma(n, a) + (-1) ** (n + 1) * polygamma(n, b) for n in (1, 2, 3)]
        return cls(mean, *(np.where(certain, 0.0, each) for each in others))

    def take(self, places: Any) -> Logits:
        """Those at these places."""
        return Logits(*(each[places] for each in self))

    def minus(self, other: Logits) -> Logits:
        """The differences of independent ones."""
        signs = (-1, 1, -1, 1)
        pairs = zip(self, other, signs, strict=True)
        return Logits(*(one + sign * two for one, two, sign in pairs))

    def reach(self, points: Floats) -> Floats:
        """The probability to be at or below points, after Cornish and Fisher."""
        from scipy.special import ndtr

        wide = np.sqrt(np.where(self.variance > 0, self.variance, 1.0))
        skew, excess = self.third / wide**3, self.fourth / wide**4
        z = np.clip((points - self.mean) / wide, -6.0, 6.0)
        squared = z * z
        score = z - (squared - 1) * (skew / 6) - z * (squared - 3) * (excess / 24)
        score += z * (4 * squared - 7) * (skew * skew / 36)
        # What is certain has reached the point it lies on.
        return np.where(self.variance > 0, ndtr(score), self.mean <= points)


def order_of(frame: pl.DataFrame, is_judged: pl.Series) -> tuple[pl.Series, pl.Series]:
    """How probable the order by relevance is, for each row of a frame sorted in this order.

    Returns
    -------
    order : the mean probability, over the other judged pairs of its query, that the truth has them
        on the same side as the relevance; null if there are none
    above : the probability that the truth is above that of the query's next pair; null for the last

    Pairs whose spread nobody knows have neither, and nobody is compared with them.
    """
    beliefs = BetaBeliefs.of(frame)
    known = np.flatnonzero(beliefs.is_known)
    beliefs = beliefs.take(known)
    judged = is_judged.to_numpy()[known]
    n = len(known)
    query = np.zeros(n)
    if "query" in frame.columns:
        query = frame["query"].rle_id().to_numpy()[known]
    is_next = query[1:] == query[:-1]
    pairs = np.flatnonzero(is_next)[:, None] + np.array([0, 1])
    logits = Logits.of(beliefs)
    order, above = np.full(n, np.nan), np.full(n, np.nan)
    for rows in _batches(query):
        is_row, rows = rows >= 0, np.maximum(rows, 0)
        order[rows[is_row]] = _mean_chances(beliefs, logits, rows, is_row & judged[rows])[is_row]
    above[pairs[:, 0]] = _chances_above(beliefs, logits, pairs)
    answers = []
    for name, values in (("order", order), ("above", above)):
        whole = np.full(len(frame), np.nan)
        whole[known] = values
        answers.append(pl.Series(name, whole).fill_nan(None))
    return answers[0], answers[1]


def _batches(query: NDArray[np.generic]) -> Iterator[Ints]:
    """Places of queries of nearly the same size, a query a line, filled up with -1."""
    start = np.flatnonzero(np.concatenate([[True], query[1:] != query[:-1]])[: len(query)])
    size = np.diff(np.concatenate([start, [len(query)]]))
    by_size = np.argsort(size, kind="stable")
    by_size = by_size[size[by_size] > 1]
    while len(by_size):
        # The last is the longest of a batch, and decides how much each of them takes.
        taken = np.arange(1, len(by_size) + 1) * size[by_size] * _POINTS
        n = max(int(np.searchsorted(taken, _AT_ONCE)), 1)
        some, by_size = by_size[:n], by_size[n:]
        place = np.arange(size[some].max())
        yield np.where(place < size[some][:, None], start[some][:, None] + place, -1)


def _mean_chances(
    beliefs: BetaBeliefs, logits: Logits, rows: Ints, is_known: Flags, n_points: int = _POINTS
) -> Floats:
    """The mean probability of the right order against the known ones of a line; NaN without any."""
    points = _points(logits.take(rows), is_known, n_points)
    reached = _reached(beliefs.take(rows), logits.take(rows), points[:, None, :])
    ends = np.zeros((*rows.shape, 1))
    reached = np.concatenate([ends, reached, ends + 1], axis=-1)
    piece = np.diff(reached, axis=-1)
    # The probability of known ones to be below a truth in this piece.
    below = (reached[..., :-1] + piece / 2) * is_known[..., None]
    until = np.cumsum(below, axis=1)
    # Expected numbers of known ones below: of those with more relevance, and of those with less.
    wrong = np.einsum("qik,qik->qi", piece, until - below)
    right = np.einsum("qik,qik->qi", piece, until[:, -1:, :] - until)
    n_before: Ints = np.cumsum(is_known, axis=1) - is_known
    n_others: Ints = is_known.sum(axis=1, keepdims=True) - is_known
    mean = (n_before - wrong + right) / np.maximum(n_others, 1)
    return np.where(n_others > 0, np.clip(mean, 0.0, 1.0), np.nan)


def _chances_above(beliefs: BetaBeliefs, logits: Logits, pairs: Ints) -> Floats:
    """The probability that the first of two is above the second."""
    gap = logits.take(pairs[:, 0]).minus(logits.take(pairs[:, 1]))
    chance = 1 - gap.reach(np.zeros(len(pairs)))
    both_certain = gap.variance <= 0
    chance[both_certain] = np.where(gap.mean[both_certain] > 0, 1.0, 0.5)
    odd = np.flatnonzero(~_is_regular(beliefs, _REGULAR_PAIR)[pairs].all(axis=1) & ~both_certain)
    step = _AT_ONCE // (2 * _TWO_POINTS)
    for first in range(0, len(odd), step):
        some = odd[first : first + step]
        both = np.ones((len(some), 2), bool)
        chance[some] = _mean_chances(beliefs, logits, pairs[some], both, _TWO_POINTS)[:, 0]
    return chance


def _is_regular(beliefs: BetaBeliefs, least: float) -> Flags:
    rarer = np.minimum(beliefs.mean, 1 - beliefs.mean)
    strength = np.where(beliefs.is_certain, 0.0, beliefs.strength)
    return np.asarray(beliefs.is_certain | (rarer * strength >= least))


def _reached(beliefs: BetaBeliefs, logits: Logits, points: Floats) -> Floats:
    """The probability to be at or below each point on the scale of logits."""
    from scipy.special import expit

    reached = logits.take((..., None)).reach(points)
    odd = ~_is_regular(beliefs, _REGULAR)
    own = np.broadcast_to(points, reached.shape)[odd]
    reached[odd] = beliefs.take(odd).below(np.asarray(expit(own)))
    return reached


def _points(logits: Logits, is_known: Flags, n_points: int) -> Floats:
    """Points with about the same mass of known ones between them, as if logits were normal."""
    from scipy.special import ndtri

    scores = ndtri((np.arange(n_points) + 0.5) / n_points)
    width = np.maximum(np.sqrt(logits.variance), _NARROWEST)
    pool = logits.mean[..., None] + width[..., None] * scores
    pool = np.where(is_known[..., None], pool, np.inf).reshape(len(is_known), -1)
    pool.sort(axis=1)
    n = is_known.sum(axis=1) * len(scores)
    places = ((np.arange(n_points) + 0.5) / n_points * n[:, None]).astype(np.int64)
    return np.take_along_axis(pool, places, axis=1)
