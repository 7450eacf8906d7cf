"""Beta priors learned from all rows of a coin, by integrated likelihood.

Row r of group g has p_r ~ Beta(s_g m_g, s_g (1 - m_g)): groups differ in their mean m_g and in how
far their rows stray from it (the strength s_g). With several groups, logit m_g and log s_g are
normally distributed over them, so that a small group borrows from the others. Every row counts
with its whole likelihood: hidden flips are neither taken for seen ones nor left out.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.beliefs.bends import Bends, LogMoments
from gecasmo.estimation.beliefs.likelihood import RowLikelihood
from gecasmo.estimation.beliefs.moments import row_moments_of
from gecasmo.estimation.beliefs.past import Hold, some_rows
from gecasmo.forms.past import Past
from gecasmo.forms.priors import Level, Priors

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_WEAKEST, _STRONGEST = np.log(0.05), np.log(1e4)
# What a strength is before any row is seen: its logarithm, and how sure that is.
_USUAL, _UNSURE = np.log(3.0), 1.2
_FARTHEST = 9.0  # the logit of a mean
# Points of the likelihood are placed for the previous prior, so a new one may not be far from it.
_REACH = np.log(2.5)


def learned(
    likelihood: RowLikelihood,
    group: Integers,
    before: Priors,
    past: Past | None = None,
    factor: float = 1.0,
) -> Priors:
    """Better priors than `before`, from the likelihood of every row; `group` has a number a row,
    -1 for rows that do not count. With a past, the likelihood is that of what came after it, which
    has `factor` times as many rows as are known."""
    known = np.flatnonzero((group >= 0) & likelihood.known)
    rows = some_rows(known, len(before.logit))
    if not len(rows):
        return before
    learn = _Learning(likelihood, rows, group[rows], before, past, factor * len(known) / len(rows))
    now = before
    for _ in range(8):
        last = now
        now = learn.strengths(learn.means(now))
        if now.is_close(last, 0.002):
            break
    return now


class _Learning:
    """Newton steps for the means and strengths of all groups at once.

    Each of the rows stands for `scale` rows of the log; that only matters against a past.
    """

    def __init__(
        self,
        likelihood: RowLikelihood,
        rows: Integers,
        group: Integers,
        before: Priors,
        past: Past | None,
        scale: float,
    ) -> None:
        self.likelihood, self.rows, self.group, self.before = likelihood, rows, group, before
        self.n_groups = len(before.logit)
        self.scale = scale
        self.past = None if past is None else past.rows.at(rows)
        self.hold = None if past is None else Hold.of(past)

    def means(self, now: Priors) -> Priors:
        """A step for the logits of the means.

        Two rows of 1/2 are added to what is seen: where nothing tells a mean, it is 1/2.
        """
        m = now.mean
        slope, bend = self._bends(now).of_means()
        if self.hold is None:
            slope = slope + (1 - 2 * m) / self.n_groups
            bend = bend - 2 * m * (1 - m) / self.n_groups
        else:
            slope, bend = self.hold.means(now, self.scale * slope, self.scale * bend)
        limit = 1.5 / np.sqrt(self.before.strength * m * (1 - m) + 0.25)
        logit, level = self._moved(now.logit, slope, bend, now.mean_level, self.before.logit, limit)
        return replace(now, logit=np.clip(logit, -_FARTHEST, _FARTHEST), mean_level=level)

    def strengths(self, now: Priors) -> Priors:
        """A step for the logarithms of the strengths.

        They have a prior of their own, which a few dozen rows outweigh: rows that were flipped once
        each cannot tell a strength at all, and a handful of rows must not claim that all are alike.
        """
        slope, bend = self._bends(now).of_strengths()
        if self.hold is None:
            slope = slope - (now.log_strength - _USUAL) / _UNSURE**2 / self.n_groups
            bend = bend - 1 / _UNSURE**2 / self.n_groups
        else:
            slope, bend = self.hold.strengths(now, self.scale * slope, self.scale * bend)
        log_strength, level = self._moved(
            now.log_strength, slope, bend, now.strength_level, self.before.log_strength, _REACH
        )
        log_strength = np.clip(log_strength, _WEAKEST, _STRONGEST)
        return replace(now, log_strength=log_strength, strength_level=level)

    def _bends(self, now: Priors) -> Bends:
        prior = now.pseudo_counts(self.group)
        if self.past is None:
            groups = now.pseudo_counts(np.arange(self.n_groups))
            before, share = LogMoments.of_beta(*groups).at(self.group), None
        else:
            prior = self.past.under(prior)
            before, share = LogMoments.of_beta(*prior), self.past.share
        after = LogMoments.of_rows(row_moments_of(self.likelihood, self.rows, prior))
        return Bends(after, before, self.group, now, share)

    def _moved(
        self,
        values: Floats,
        slope: Floats,
        bend: Floats,
        level: Level,
        before: Floats,
        limit: Floats | float,
    ) -> tuple[Floats, Level]:
        """Values after a careful Newton step, within reach of where they were before."""
        if self.n_groups > 1:
            slope = slope - (values - level.centre) / level.spread**2
            bend = bend - 1 / level.spread**2
        # Where the objective is not concave, a step uphill of moderate length will do.
        bend = np.minimum(bend, -np.maximum(np.abs(slope), 1e-9))
        step = np.clip(-slope / bend, -1.0, 1.0)
        moved: Floats = np.clip(values + step, before - limit, before + limit)
        if self.n_groups > 1:
            level = level.updated(moved, -1 / bend)
        return moved, level
