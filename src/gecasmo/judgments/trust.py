"""How far a judge can be trusted: what it says of pairs whose relevance clicks tell.

A judge is described by how probable each of its grades is for a pair of relevance r. With z the
logit of r, measured in standard deviations,

    P(grade k | z)  =  (1 - e) softmax_k( c_k + a_k z )  +  e q_k.

The slopes a_k say what grades mean. If all are equal, grades are noise, and change nothing; if they
are far apart, grades cut the line into pieces, as a perfect judge does. They rise with the grade,
or fall (a judge who is inverted), by steps of any size: of numbers only the order counts, and words
are put in the order in which clicks have them. A share e of grades is given without looking at the
pair: as often as grades q are given at all, or, after another judge was heard, as often as they go
with what that one said. Who only repeats another then adds nothing, because e explains it all. A
judge counts if the evidence for slopes is greater than that for noise.

All of it is learned from pairs that were shown, relevance integrated out over what clicks say of
it, and is itself only known up to an error, which is integrated out, too (Laplace's method). Bayes'
rule then gives the belief in a pair: what clicks say of it times P(its grade | z).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecasmo.judgments.grades import BetaBeliefs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Logits of relevance are looked at in cells this wide; what lies beyond is in the outer ones.
_STEP, _LOWEST, _HIGHEST = 0.1, -9.0, 7.0
POINTS: Floats = np.arange(_LOWEST, _HIGHEST + _STEP / 2, _STEP)
RELEVANCE: Floats = 1 / (1 + np.exp(-POINTS))
_NARROW = 3 * _STEP  # beliefs that are narrower are normal on this scale
_LEAST = 1e-3  # of a parameter of a Beta distribution

N_DRAWS = 32
# Before anything is known: c around the log shares, and the logarithm of the odds of e.
_FREE = 3.0
_CARELESS, _CARELESS_SPREAD = -2.5, 1.5
_SLOPE = 1.0  # the scale of a Cauchy distribution
_FLAT = 1e-4  # no direction is known less than this
_STRETCH = 0.5  # the spread of the logarithms of steps, around those of normal scores


def masses(beliefs: BetaBeliefs, shift: float = 0.0, scale: float = 1.0) -> Floats:
    """How probable each cell is for each pair, a row each that adds up to one.

    With `shift` and `scale` beliefs are moved on the scale of logits, and stretched around their
    centre.
    """
    from scipy.special import digamma, ndtr, polygamma

    a, b = (np.maximum(each, _LEAST) for each in beliefs.parameters)
    certain = beliefs.is_certain
    inside = np.clip(beliefs.mean, 1e-9, 1 - 1e-9)
    a, b = np.where(certain, inside, a), np.where(certain, 1 - inside, b)
    centre = np.where(certain, np.log(inside / (1 - inside)), digamma(a) - digamma(b))
    width = np.where(certain, 1e-3, np.sqrt(polygamma(1, a) + polygamma(1, b)))
    points = centre[:, None] + (POINTS - centre[:, None] - shift) / scale
    below = np.minimum(points, 0) - np.log1p(np.exp(-np.abs(points)))  # log r
    density = a[:, None] * below + b[:, None] * (below - points)
    density = np.exp(density - density.max(axis=1, keepdims=True))
    # What lies beyond the ends falls off like exp(a u) and exp(-b u).
    density[:, 0] *= np.maximum(1.0, scale / (a * _STEP))
    density[:, -1] *= np.maximum(1.0, scale / (b * _STEP))
    narrow = width * scale < _NARROW
    if narrow.any():
        edges = np.concatenate([[-np.inf], (POINTS[1:] + POINTS[:-1]) / 2, [np.inf]])
        place, wide = (centre + shift)[narrow, None], np.maximum(width * scale, 1e-3)[narrow, None]
        density[narrow] = np.diff(ndtr((edges - place) / wide), axis=1)
    return np.asarray(density / density.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class Scale:
    """Where logits of relevance lie: their mean and standard deviation over pairs."""

    mean: float
    spread: float

    @classmethod
    def of(cls, mass: Floats) -> Scale:
        """Over pairs with these beliefs."""
        crowd = mass.mean(axis=0)
        mean = float(crowd @ POINTS)
        return cls(mean, max(float(np.sqrt(crowd @ (POINTS - mean) ** 2)), 0.1))

    @property
    def z(self) -> Floats:
        """The points in standard deviations."""
        return np.asarray((POINTS - self.mean) / self.spread)


@dataclass(frozen=True)
class Trust:
    """What was learned of a judge.

    `found` are the parameters: c, the logarithms of how much steps between grades are stretched,
    the slope, and the logarithm of the odds of e; `draws` are others that are as probable, a
    row each.
    """

    scale: Scale
    order: Ints  # grades from one end to the other
    steps: Floats  # between the normal scores of neighbours in this order
    share: Floats  # how often grades are given
    repeats: Floats  # q, a row for each thing that another judge may have said; the first: nothing
    found: Floats
    draws: Floats
    n_pairs: int = 0
    evidence: float = 0.0  # for it, and against noise: the logarithm of a Bayes factor

    @property
    def is_noise(self) -> bool:
        """Whether it cannot be told from a judge that does not look at pairs."""
        return not self.evidence > 0

    @property
    def scores(self) -> Floats:
        """Normal scores of the grades, which know their order and nothing else of their scale."""
        scores = np.zeros(len(self.share))
        scores[self.order] = np.concatenate([[0.0], np.cumsum(self.steps)])
        return np.asarray(scores - self.share @ scores)

    def under(self, draw: int) -> Floats:
        """P(grade | relevance) under one set of parameters, noise or not: [grade, point]."""
        return np.asarray(_Chances.under(self.draws[draw], self).chance[0])

    def chances(self, draw: int | None = None) -> Floats:
        """P(grade | relevance): [what another said, grade, point].

        With `draw` under one set of parameters; else the mean over all. Of noise it is 1, since it
        is the same everywhere.
        """
        if self.is_noise:
            return np.ones((*self.repeats.shape, len(POINTS)))
        draws = self.draws if draw is None else self.draws[[draw]]
        total = np.zeros((*self.repeats.shape, len(POINTS)))
        for parameters in draws:
            total += _Chances.under(parameters, self).chance
        return np.asarray(total / len(draws))


class _Chances(NamedTuple):
    """P(grade | relevance) under some parameters, and what it is made of."""

    chance: Floats  # [what another said, grade, point]
    looking: Floats  # [grade, point]: the same if the judge looks
    careless: float  # how often it does not
    by_shape: Floats  # how a changes with the stretches, and with the slope: [grade, parameter]

    @classmethod
    def under(cls, parameters: Floats, trust: Trust) -> _Chances:
        k = len(trust.share)
        first, stretch = parameters[:k], parameters[k : 2 * k - 1]
        slope, odds = parameters[-2], parameters[-1]
        steps = trust.steps * np.exp(np.clip(stretch, -20, 20))
        until = np.tri(k, k - 1, -1) * steps  # [place, step]: what lies before a place
        until -= trust.share[trust.order] @ until
        by_shape = np.zeros((k, k))
        by_shape[trust.order] = np.column_stack([slope * until, until.sum(axis=1)])
        logits = first[:, None] + (slope * by_shape[:, -1])[:, None] * trust.scale.z
        looking = np.exp(logits - logits.max(axis=0))
        looking /= looking.sum(axis=0)
        careless = float(1 / (1 + np.exp(-odds)))
        chance = (1 - careless) * looking + careless * trust.repeats[:, :, None]
        return cls(chance, looking, careless, by_shape)


class _Learner:
    """The logarithm of the posterior of parameters, and its slope."""

    def __init__(self, trust: Trust, mass: Floats, grade: Ints, other: Ints) -> None:
        self.trust = trust
        k = len(trust.share)
        group = other * k + grade
        order = np.argsort(group, kind="stable")
        self.mass = np.ascontiguousarray(mass[order])
        groups, start = np.unique(group[order], return_index=True)
        ends = np.append(start[1:], len(group))
        places = zip(groups.tolist(), start.tolist(), ends.tolist(), strict=True)
        self.groups = [(*divmod(group, k), start, end) for group, start, end in places]
        n = 2 * k + 1
        self.centre, self.precision = np.zeros(n), np.full(n, _STRETCH**-2)
        self.centre[:k], self.precision[:k] = np.log(trust.share), _FREE**-2
        self.precision[-2] = 0.0
        self.centre[-1], self.precision[-1] = _CARELESS, _CARELESS_SPREAD**-2
        # With the others at their centre the judge does not look at pairs.
        self.of_noise = np.ones(n, bool)
        self.of_noise[k:-1] = False

    def __call__(self, parameters: Floats) -> tuple[float, Floats]:
        """Minus the logarithm, and minus its slope."""
        trust = self.trust
        chance, looking, careless, by_shape = _Chances.under(parameters, trust)
        value, slope, by_careless = 0.0, np.zeros_like(looking), 0.0
        for other, grade, start, end in self.groups:
            some = self.mass[start:end]
            seen = np.maximum(some @ chance[other, grade], 1e-300)
            value += float(np.log(seen).sum())
            own = (1 / seen) @ some
            slope[grade] += own
            by_careless += float(own @ (trust.repeats[other, grade] - looking[grade]))
        inner = slope * (1 - careless)
        inner = looking * (inner - (inner * looking).sum(axis=0))
        shape = (inner @ trust.scale.z) @ by_shape
        by_odds = by_careless * careless * (1 - careless)
        gradient = np.concatenate([inner.sum(axis=1), shape, [by_odds]])
        from_centre, line = parameters - self.centre, parameters[-2]
        value -= 0.5 * float(self.precision @ from_centre**2) + np.log1p((line / _SLOPE) ** 2)
        gradient -= self.precision * from_centre
        gradient[-2] -= 2 * line / (_SLOPE**2 + line**2)
        return -value, -gradient

    def best(self, start: Floats, free: NDArray[np.bool_]) -> tuple[Floats, Floats, float]:
        """The best parameters, their covariance, and the logarithm of the evidence for them.

        Those that are not free stay as they are.
        """
        from scipy.optimize import minimize

        def of_free(some: Floats) -> tuple[float, Floats]:
            whole = start.copy()
            whole[free] = some
            value, slope = self(whole)
            return value, slope[free]

        done = minimize(of_free, start[free], jac=True, method="BFGS", options={"maxiter": 300})
        found = start.copy()
        found[free] = done.x
        values, vectors = np.linalg.eigh(_curvature(of_free, np.asarray(done.x)))
        values = np.maximum(values, _FLAT)
        held = self.precision[free]
        before = float(np.log(held[held > 0]).sum()) / 2
        if free[-2]:  # the density of a Cauchy distribution, which the others' are left out of
            before -= np.log(np.pi * _SLOPE) - np.log(2 * np.pi) / 2
        evidence = before - float(done.fun) - float(np.log(values).sum()) / 2
        return found, (vectors / values) @ vectors.T, evidence


def _curvature(target: Callable[[Floats], tuple[float, Floats]], place: Floats) -> Floats:
    """Second derivatives, by differences of slopes."""
    found = np.zeros((len(place), len(place)))
    for row, at in enumerate(place):
        step = np.zeros(len(place))
        step[row] = 1e-3 * max(1.0, abs(at))
        found[row] = (target(place + step)[1] - target(place - step)[1]) / (2 * step[row])
    return np.asarray((found + found.T) / 2)


def learn(
    mass: Floats,
    grade: Ints,
    n_grades: int,
    scale: Scale,
    order: Ints | None,
    other: Ints | None = None,
) -> Trust:
    """Learn how far a judge can be trusted from pairs with clicks.

    Parameters
    ----------
    mass : what clicks say of the pairs, from `masses`
    grade : the number of each pair's grade
    n_grades : how many there are, at least two
    scale : of the logits
    order : the grades from one end to the other; of words None: clicks tell
    other : what another judge said of each pair: 1 and more, or 0 for nothing
    """
    from scipy.special import gammaln, ndtri

    counts = np.bincount(grade, minlength=n_grades) + 0.5
    share = counts / counts.sum()
    orders = 0.0
    if order is None:
        # It is one of so many, up and down being the same.
        orders = float(gammaln(n_grades + 1)) - np.log(2)
        usual = np.zeros(n_grades)
        np.add.at(usual, grade, mass @ scale.z)
        order = np.argsort(usual / counts, kind="stable")
    middle = np.cumsum(share[order]) - share[order] / 2
    steps = np.maximum(np.diff(ndtri(middle)), 1e-3)
    other = np.zeros(len(grade), np.int64) if other is None else other
    together = np.zeros((int(other.max(initial=0)) + 1, n_grades))
    np.add.at(together, (other, grade), 1.0)
    together[0] = 0.0
    repeats = (together + share) / (together.sum(axis=1, keepdims=True) + 1)
    n = 2 * n_grades + 1
    blank = Trust(scale, order, steps, share, repeats, np.zeros(n), np.zeros((1, n)))
    # What goes together is told by all other pairs: none speaks for itself.
    others = np.maximum(together - 1, 0.0)
    others = (others + share) / (np.maximum(together.sum(axis=1, keepdims=True) - 1, 0.0) + 1)
    others[0] = share
    learner = _Learner(replace(blank, repeats=others), mass, grade, other)
    start, _, against = learner.best(learner.centre, learner.of_noise)
    start[-2] = 1.0 if float((mass @ scale.z) @ blank.scores[grade]) > 0 else -1.0
    found, covariance, evidence = learner.best(start, np.ones(n, bool))
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    half = np.random.default_rng(41).normal(size=(N_DRAWS // 2, n))
    half = (half * np.sqrt(np.maximum(values, 0))) @ vectors.T
    draws = np.concatenate([half, -half]) + found
    gained = float(evidence - against - orders)
    return replace(blank, found=found, draws=draws, n_pairs=len(grade), evidence=gained)
