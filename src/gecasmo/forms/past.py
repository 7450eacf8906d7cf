"""What earlier logs leave behind about learned priors, and about rows under another prior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gecasmo.forms.priors import Priors

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# A belief can be wider than the prior, but some of that is always left.
_LEAST_SHARE = 0.01


@dataclass(frozen=True)
class RowPast:
    """The past of some rows, on top of a prior: `share` of the pseudo-counts of their prior is
    left, and `added` comes on top, both `[heads or tails, row]`.

    Hidden flips can make a belief wider than the prior. That takes from the prior, whatever it is
    by now, and so a share of it; a number of flips taken away could be more than there are.
    """

    share: Floats
    added: Floats

    @classmethod
    def of(cls, evidence: Floats, prior: Floats) -> RowPast:
        """The past that is worth such heads and tails beyond the prior it had then."""
        lost = np.maximum(-evidence, 0.0) / np.maximum(prior, 1e-300)
        return cls(np.clip(1 - lost, _LEAST_SHARE, 1.0), np.maximum(evidence, 0.0))

    def under(self, prior: Floats) -> Floats:
        """Heads and tails, those of a prior included."""
        return self.share * prior + self.added

    def at(self, rows: Integers) -> RowPast:
        """That of some rows; -1 is a row without a past."""
        share = np.concatenate([self.share, np.ones((2, 1))], axis=1)[:, rows]
        added = np.concatenate([self.added, np.zeros((2, 1))], axis=1)[:, rows]
        return RowPast(share, added)


@dataclass(frozen=True)
class Past:
    """What a coin's earlier logs say about its learned priors.

    Parameters
    ----------
    priors : where they left these
    evidence, group : heads and tails of the rows of these logs, and their groups
    ratio : of each group, how many flips there were for every one in the new log
    rows : the past of the rows of the new log
    """

    priors: Priors
    evidence: Floats
    group: Integers
    ratio: Floats
    rows: RowPast
