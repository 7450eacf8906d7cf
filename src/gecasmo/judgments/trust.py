"""How far a judge can be trusted: what it says of pairs whose relevance clicks tell.

A judge is described by how probable each of its grades is for a pair of relevance r. With z the
logit of r, measured in standard deviations,

    P(grade k | z)  =  (1 - e) softmax_k( c_k + a_k z )  +  e q_k.

The slopes a_k say what grades mean. If all are equal, grades are noise, and change nothing; if they
are far apart, grades cut the line into pieces, as a perfect judge does. They rise with the grade,
or fall (a judge who is inverted), by steps of any size: of numbers only the order counts, and words
are put in the order in which clicks have them. A share e of grades is given without looking at the
pair: as often as grades q are given at all, or, after another judge was heard, as often as they go
with what that one said. Who only repeats another then adds nothing, because e explains it all.

Before any click a judge is taken for one of three: most look at pairs and mean what they say, some
are noise, a few are inverted. Each of the three is learned from pairs that were shown, relevance
integrated out over what clicks say of it, and counts by the evidence for it; parameters are only
known up to an error, which is integrated out, too (Laplace's method). So a judge that clicks say
nothing of is believed as judges usually can be, and clicks soon overrule that. Bayes' rule then
gives the belief in a pair: what clicks say of it times P(its grade | z).

Pairs that no page shows have a level of their own, since somebody chose what to show. Clicks tell
next to nothing of it, but a judge who is trusted does: how often it gives each grade there and
elsewhere. So this level is learned with the judge, beginning with what the fit believes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecasmo.judgments.grades import BetaBeliefs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Logits of relevance are looked at in cells this wide; what lies beyond is in the outer ones.
STEP, _LOWEST, _HIGHEST = 0.1, -9.0, 7.0
POINTS: Floats = np.arange(_LOWEST, _HIGHEST + STEP / 2, STEP)
RELEVANCE: Floats = 1 / (1 + np.exp(-POINTS))
_NARROW = 3 * STEP  # beliefs that are narrower are normal on this scale
_LEAST = 1e-3  # of a parameter of a Beta distribution

N_DRAWS = 32
# Which of the parameters is which, beside c (first) and the stretches of steps.
LEVEL, SLOPE, ODDS = -3, -2, -1
# Before anything is known: c around what makes grades as frequent as they are, were z of each grade
# normal, and the logarithm of the odds of e.
_FREE = 0.7
_CARELESS, _CARELESS_SPREAD = -2.5, 1.5
_SLOPE, _SLOPE_SPREAD = 0.3, 1.0  # the logarithm of the slope
# What a judge is before clicks: noise, one who means what it says, and one who is inverted.
_SIGNS = {0: 0.15, 1: 0.82, -1: 0.03}
# Who agrees less than this with relevance is as good as noise; who does so with more than this
# probability is left out.
_LITTLE, _SURE = 0.1, 0.9
_STRETCH = 0.5  # the spread of the logarithms of steps, around those of normal scores


def masses(beliefs: BetaBeliefs) -> Floats:
    """How probable each cell is for each pair, a row each that adds up to one."""
    from scipy.special import digamma, ndtr, polygamma

    a, b = (np.maximum(each, _LEAST) for each in beliefs.parameters)
    certain = beliefs.is_certain
    inside = np.clip(beliefs.mean, 1e-9, 1 - 1e-9)
    a, b = np.where(certain, inside, a), np.where(certain, 1 - inside, b)
    centre = np.where(certain, np.log(inside / (1 - inside)), digamma(a) - digamma(b))
    width = np.where(certain, 1e-3, np.sqrt(polygamma(1, a) + polygamma(1, b)))
    below = np.minimum(POINTS, 0) - np.log1p(np.exp(-np.abs(POINTS)))  # log r
    density = a[:, None] * below + b[:, None] * (below - POINTS)
    density = np.exp(density - density.max(axis=1, keepdims=True))
    # What lies beyond the ends falls off like exp(a u) and exp(-b u).
    density[:, 0] *= np.maximum(1.0, 1 / (a * STEP))
    density[:, -1] *= np.maximum(1.0, 1 / (b * STEP))
    narrow = width < _NARROW
    if narrow.any():
        edges = np.concatenate([[-np.inf], (POINTS[1:] + POINTS[:-1]) / 2, [np.inf]])
        place, wide = centre[narrow, None], np.maximum(width, 1e-3)[narrow, None]
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

    `draws` are parameters that are all as probable, a row each: how far c are from where they
    make grades as frequent as they are, were z of each grade normal; the logarithms of how much
    steps between grades are stretched, the level of pairs that no page shows, as z, the slope,
    which is 0 for noise, and the logarithm of the odds of e; `found` are the best of those who are
    no noise.
    """

    scale: Scale
    order: Ints  # grades from one end to the other
    steps: Floats  # between the normal scores of neighbours in this order
    share: Floats  # how often grades are given
    repeats: Floats  # q, a row for each thing that another judge may have said; the first: nothing
    found: Floats
    draws: Floats
    crowd: Floats  # how probable each point is for a pair that it was learned from
    agreements: Floats = field(init=False)  # with relevance, by draw

    def __post_init__(self) -> None:
        object.__setattr__(self, "agreements", self._agreements())

    @property
    def doubt(self) -> float:
        """How probable it is that it is as good as noise."""
        return float((np.abs(self.agreements) < _LITTLE).mean())

    @property
    def is_noise(self) -> bool:
        """Whether that is as good as certain."""
        return self.doubt > _SURE

    def _agreements(self) -> Floats:
        """Correlation ratios of grades with z, with their sign, under each draw."""
        z, found = self.scale.z, []
        centre = float(self.crowd @ z)
        whole = float(self.crowd @ (z - centre) ** 2)
        for parameters in self.draws:
            chance = _Chances.under(parameters, self).chance[0] * self.crowd
            share = np.maximum(chance.sum(axis=1), 1e-12)
            between = float(share @ ((chance @ z) / share - centre) ** 2)
            found.append(np.sign(parameters[SLOPE]) * np.sqrt(between / whole))
        return np.array(found)

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
    pull: Floats  # by grade, how the logits fall with a
    by_inside: Floats  # by grade, how they rise with the slope, a being held
    a: Floats  # by grade
    size: float  # how the logits rise with c

    @classmethod
    def under(cls, parameters: Floats, trust: Trust, above: float = 0.0) -> _Chances:
        """With `above` for pairs whose z is so much higher than the points say."""
        k = len(trust.share)
        stretch, slope, odds = parameters[k : 2 * k - 1], parameters[SLOPE], parameters[ODDS]
        steps = trust.steps * np.exp(np.clip(stretch, -20, 20))
        until = np.tri(k, k - 1, -1) * steps  # [place, step]: what lies before a place
        until -= trust.share[trust.order] @ until
        by_shape = np.zeros((k, k))
        by_shape[trust.order] = np.column_stack([slope * until, until.sum(axis=1)])
        a = slope * by_shape[:, -1]
        # Were z of each grade normal, it would have this variance.
        root = np.sqrt(1 + 4 * slope**2)
        inside = 2 / (1 + root)
        # In z they are off by as much whatever the slope is: else steep ones would be dear.
        size = float(np.sqrt(1 + slope**2))
        logits = size * parameters[:k] + np.log(trust.share) - a**2 * inside / 2
        logits = logits[:, None] + a[:, None] * (trust.scale.z + above)
        looking = np.exp(logits - logits.max(axis=0))
        looking /= looking.sum(axis=0)
        careless = float(1 / (1 + np.exp(-odds)))
        chance = (1 - careless) * looking + careless * trust.repeats[:, :, None]
        by_inside = a**2 / 2 * 8 * slope / (root * (1 + root) ** 2)
        by_inside += parameters[:k] * slope / size
        return cls(chance, looking, careless, by_shape, a * inside, by_inside, a, size)


class UnseenLevel(NamedTuple):
    """What is believed of the level of pairs that no page shows, as z, before judges are heard."""

    mean: float
    spread: float


class _Pairs(NamedTuple):
    """Pairs to learn from: beliefs, the number of each grade, what another judge said, how much
    they count, and whether no page shows them."""

    mass: Floats
    grade: Ints
    other: Ints
    weight: Floats
    unseen: NDArray[np.bool_]


class _Learner:
    """The logarithm of the posterior of parameters, and its slope.

    In place of the slope parameters have the logarithm of its size; `sign` is its sign, 0 for
    noise.
    """

    def __init__(self, trust: Trust, pairs: _Pairs, level: UnseenLevel, sign: int) -> None:
        self.trust, self.sign, self.level = trust, sign, level
        k, n_others = len(trust.share), len(trust.repeats)
        group = (pairs.unseen * n_others + pairs.other) * k + pairs.grade
        order = np.argsort(group, kind="stable")
        self.mass, self.weight = np.ascontiguousarray(pairs.mass[order]), pairs.weight[order]
        groups, start = np.unique(group[order], return_index=True)
        ends = np.append(start[1:], len(group))
        places = zip(groups.tolist(), start.tolist(), ends.tolist(), strict=True)
        self.groups = [
            (*divmod(group // k, n_others), group % k, start, end) for group, start, end in places
        ]
        n = 2 * k + 2
        self.centre, self.precision = np.zeros(n), np.full(n, _STRETCH**-2)
        self.precision[:k] = _FREE**-2
        self.centre[SLOPE], self.precision[SLOPE] = _SLOPE, _SLOPE_SPREAD**-2
        self.centre[LEVEL], self.precision[LEVEL] = level.mean, max(level.spread, 1e-3) ** -2
        self.centre[ODDS], self.precision[ODDS] = _CARELESS, _CARELESS_SPREAD**-2
        self.free = np.ones(n, bool)
        self.free[k:-1] = bool(sign)  # what is about slopes
        self.free[LEVEL] &= level.spread > 0 and bool(pairs.unseen.any())

    def whole(self, parameters: Floats) -> Floats:
        """The parameters with the slope itself."""
        found = np.array(parameters)
        found[..., SLOPE] = self.sign * np.exp(np.clip(found[..., SLOPE], -20, 6))
        return found

    def __call__(self, parameters: Floats) -> tuple[float, Floats]:
        """Minus the logarithm, and minus its slope."""
        whole = self.whole(parameters)
        value, gradient = 0.0, np.zeros(len(parameters))
        for unseen in (0, 1):
            own = [group for group in self.groups if group[0] == unseen]
            if own:
                some, slope = self._of_some(whole, own, unseen * float(whole[LEVEL]))
                value, gradient = value + some, gradient + slope
                if not unseen:
                    gradient[LEVEL] = 0.0
        gradient[SLOPE] *= whole[SLOPE]
        from_centre = parameters - self.centre
        value -= 0.5 * float(self.precision @ from_centre**2)
        gradient -= self.precision * from_centre
        return -value, -gradient

    def _of_some(
        self, whole: Floats, groups: list[tuple[int, int, int, int, int]], above: float
    ) -> tuple[float, Floats]:
        """The logarithm of the likelihood of some groups, and its slope."""
        trust = self.trust
        by = _Chances.under(whole, trust, above)
        value, slope, by_careless = 0.0, np.zeros_like(by.looking), 0.0
        for _, other, grade, start, end in groups:
            some, weight = self.mass[start:end], self.weight[start:end]
            seen = np.maximum(some @ by.chance[other, grade], 1e-300)
            value += float(weight @ np.log(seen))
            own = (weight / seen) @ some
            slope[grade] += own
            by_careless += float(own @ (trust.repeats[other, grade] - by.looking[grade]))
        inner = slope * (1 - by.careless)
        inner = by.looking * (inner - (inner * by.looking).sum(axis=0))
        level = inner.sum(axis=1)
        shape = (inner @ (trust.scale.z + above) - level * by.pull) @ by.by_shape
        shape[-1] += level @ by.by_inside
        by_odds = by_careless * by.careless * (1 - by.careless)
        by_level = float(level @ by.a)
        return value, np.concatenate([by.size * level, shape[:-1], [by_level, shape[-1], by_odds]])

    def best(self) -> tuple[Floats, Floats, float]:
        """The best parameters, the root of their covariance, and the logarithm of the evidence."""
        from scipy.optimize import minimize

        start, free = self.centre, self.free

        def of_free(some: Floats) -> tuple[float, Floats]:
            whole = start.copy()
            whole[free] = some
            value, slope = self(whole)
            return value, slope[free]

        done = minimize(of_free, start[free], jac=True, method="BFGS", options={"maxiter": 300})
        found = start.copy()
        found[free] = done.x
        # In deviations of what is known before clicks, of which pairs never know less than that:
        # else a direction in which the peak is flat by chance would count for much.
        before = 1 / np.sqrt(self.precision[free])
        curved = _curvature(of_free, np.asarray(done.x)) * before * before[:, None]
        values, vectors = np.linalg.eigh(curved)
        values = np.maximum(values, 1.0)
        # How often grades are given says nothing of what they mean, so c is no part of the room
        # that evidence is spread over: who does not look at pairs would need none for it.
        k = len(self.trust.share)
        of_shares = np.maximum(np.linalg.eigvalsh(curved[:k, :k]), 1.0)
        room = float(np.log(values).sum() - np.log(of_shares).sum())
        evidence = -float(done.fun) - room / 2
        root = np.zeros((len(start), int(free.sum())))
        root[free] = before[:, None] * vectors / np.sqrt(values)
        return found, root, evidence


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
    weight: Floats | None = None,
    unseen: NDArray[np.bool_] | None = None,
    level: UnseenLevel | None = None,
) -> Trust:
    """Learn how far a judge can be trusted.

    Parameters
    ----------
    mass : what clicks say of the pairs, from `masses`
    grade : the number of each pair's grade
    n_grades : how many there are, at least two
    scale : of the logits
    order : the grades from one end to the other; of words None: clicks tell
    other : what another judge said of each pair: 1 and more, or 0 for nothing
    weight : how much each pair counts; by default 1
    unseen : which pairs no page shows; by default none
    level : what is believed of the level of those; of their beliefs only the shape counts then. By
        default that of their beliefs
    """
    from scipy.special import gammaln, ndtri

    weight = np.ones(len(grade)) if weight is None else weight
    unseen = np.zeros(len(grade), bool) if unseen is None else unseen
    level = UnseenLevel(0.0, 0.0) if level is None else level
    counts = np.bincount(grade, weight, minlength=n_grades) + 0.5
    share = counts / counts.sum()
    signs, orders = _SIGNS, 0.0
    if order is None:
        # It is one of so many, and none is upside down.
        signs, orders = {0: _SIGNS[0], 1: 1 - _SIGNS[0]}, float(gammaln(n_grades + 1))
        usual, clicked = np.zeros(n_grades), np.zeros(n_grades)
        np.add.at(usual, grade, weight * (mass @ scale.z + unseen * level.mean))
        np.add.at(clicked, grade, weight)
        order = np.argsort(usual / np.maximum(clicked, 1e-9), kind="stable")
    middle = np.cumsum(share[order]) - share[order] / 2
    steps = np.maximum(np.diff(ndtri(middle)), 1e-3)
    other = np.zeros(len(grade), np.int64) if other is None else other
    together = np.zeros((int(other.max(initial=0)) + 1, n_grades))
    np.add.at(together, (other, grade), 1.0)
    together[0] = 0.0
    repeats = (together + share) / (together.sum(axis=1, keepdims=True) + 1)
    n = 2 * n_grades + 2
    told = weight * ~unseen if not unseen.all() else weight
    crowd = told @ mass / told.sum()
    blank = Trust(scale, order, steps, share, repeats, np.zeros(n), np.zeros((1, n)), crowd)
    # What goes together is told by all other pairs: none speaks for itself.
    others = np.maximum(together - 1, 0.0)
    others = (others + share) / (np.maximum(together.sum(axis=1, keepdims=True) - 1, 0.0) + 1)
    others[0] = share
    pairs = _Pairs(mass, grade, other, weight, unseen)
    learned, chance = {}, {}
    for sign, before in signs.items():
        learner = _Learner(replace(blank, repeats=others), pairs, level, sign)
        learned[sign] = learner, *learner.best()
        chance[sign] = np.log(before) + learned[sign][-1] - (orders if sign else 0.0)
    most = max(chance.values())
    chance = {sign: float(np.exp(value - most)) for sign, value in chance.items()}
    chance = {sign: value / sum(chance.values()) for sign, value in chance.items()}
    draws = []
    for (learner, found, root, _), size in zip(
        learned.values(), _parted(list(chance.values()), N_DRAWS), strict=True
    ):
        half = np.random.default_rng(41).normal(size=((size + 1) // 2, root.shape[1])) @ root.T
        own = (np.concatenate([half, -half]) + found)[:size]
        if not learner.free[LEVEL]:  # noise tells nothing of it
            own[:, LEVEL] += level.spread * np.random.default_rng(42).normal(size=size)
        draws.append(learner.whole(own))
    likely = max((sign for sign in chance if sign), key=lambda sign: chance[sign])
    learner, found, *_ = learned[likely]
    return replace(
        blank,
        found=learner.whole(found),
        draws=np.concatenate(draws),
    )


def _parted(shares: list[float], n: int) -> list[int]:
    """Whole numbers that add up to n, nearest to such shares of it."""
    ends = np.rint(np.cumsum([0.0, *shares]) * n).astype(np.int64)
    return [int(size) for size in np.diff(ends)]
