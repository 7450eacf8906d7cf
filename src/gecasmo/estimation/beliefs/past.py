"""How firmly earlier logs hold on to the priors that were learned from them.

Their pages are gone. What is left are the priors, where the likelihood of these pages was highest,
and of each row a belief of two numbers. The latter tell how fast that likelihood falls, but not
where it is highest: a row with half a flip's worth of hidden ones says nothing of how far rows
stray, half a flip that was seen would. So priors move by what the new log says, and the past only
holds them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gecasmo.estimation.beliefs.bends import Bends, LogMoments
from gecasmo.forms.past import Past, RowPast
from gecasmo.forms.priors import Priors

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# What many rows say of a prior, some of them say as well.
_MOST_ROWS = 20_000
_MOST_ROWS_IN_GROUPS = 200_000


def some_rows(rows: Integers, n_groups: int) -> Integers:
    """As many of the rows as are needed to learn the priors of so many groups."""
    most = _MOST_ROWS if n_groups == 1 else _MOST_ROWS_IN_GROUPS
    return rows[:: max(1, -(-len(rows) // most))]


@dataclass(frozen=True)
class Hold:
    """The past of a coin's priors as parabolas around where they were."""

    at: Priors
    of_means: Floats
    of_strengths: Floats
    ratio: Floats

    @classmethod
    def of(cls, past: Past) -> Hold:
        """From the beliefs of rows."""
        rows = np.flatnonzero(np.abs(past.evidence).sum(axis=0) > 1e-9)
        chosen = some_rows(rows, n_groups := len(past.priors.logit))
        group, priors = past.group[chosen], past.priors
        # Each row that was chosen stands for others of its group.
        n_chosen = np.maximum(np.bincount(group, minlength=n_groups), 1)
        scale = np.bincount(past.group[rows], minlength=n_groups) / n_chosen
        prior = priors.pseudo_counts(group)
        after = RowPast.of(past.evidence[:, chosen], prior).under(prior)
        bends = Bends(LogMoments.of_beta(*after), LogMoments.of_beta(*prior), group, priors)
        # Slopes are left out of second derivatives: at the highest point there are none.
        held = []
        for slope, bend, turn in (
            (*bends.of_means(), 1 - 2 * priors.mean),
            (*bends.of_strengths(), 1.0),
        ):
            held.append(scale * np.maximum(turn * slope - bend, 0.0))
        return cls(priors, held[0], held[1], past.ratio)

    def means(self, now: Priors, slope: Floats, bend: Floats) -> tuple[Floats, Floats]:
        """Slopes and bends by the logits of means, with the past."""
        return self._holding(now.logit - self.at.logit, self.of_means, slope, bend)

    def strengths(self, now: Priors, slope: Floats, bend: Floats) -> tuple[Floats, Floats]:
        """Slopes and bends by the logarithms of strengths, with the past."""
        moved = now.log_strength - self.at.log_strength
        return self._holding(moved, self.of_strengths, slope, bend)

    def _holding(
        self, moved: Floats, held: Floats, slope: Floats, bend: Floats
    ) -> tuple[Floats, Floats]:
        # A flip of the past says as much as one of the new log, or more.
        firm = np.maximum(held, self.ratio * np.maximum(-bend, 0.0))
        return slope - firm * moved, bend - firm
