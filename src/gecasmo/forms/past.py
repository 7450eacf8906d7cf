"""What earlier logs leave behind about rows: heads and tails, and what is typical of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.averages import EXPOSURE, IMPRESSIONS, PAGES, smoothed_share
from gecasmo.encoding.rows import Rows
from gecasmo.forms.memory import Union

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# A belief can be wider than the prior, but some of that is always left.
_LEAST_SHARE = 0.01
_LEAST_LEFT = 0.1


@dataclass(frozen=True)
class RowPast:
    """The past of some rows, on top of a prior: `share` of the pseudo-counts of their prior is
    left, and `added` comes on top, both `[heads or tails, row]`.

    Hidden flips can make a belief wider than the prior. That takes from the prior, whatever it is
    by now, and so a share of it; a number of flips taken away could be more than there are.
    """

    share: Floats
    added: Floats
    shift: Floats | None = None  # so many tails are heads by now, of each row

    @classmethod
    def of(cls, evidence: Floats, prior: Floats) -> RowPast:
        """The past that is worth such heads and tails beyond the prior it had then."""
        lost = np.maximum(-evidence, 0.0) / np.maximum(prior, 1e-300)
        return cls(np.clip(1 - lost, _LEAST_SHARE, 1.0), np.maximum(evidence, 0.0))

    def under(self, prior: Floats) -> Floats:
        """Heads and tails, those of a prior included."""
        left = self.share * prior
        if self.shift is None:
            return left + self.added
        moved = left + self.added + np.stack([self.shift, -self.shift])
        return np.maximum(moved, _LEAST_LEFT * left)

    def without(self, together: Floats) -> Floats:
        """The prior under which heads and tails are these."""
        moved = 0.0 if self.shift is None else np.stack([self.shift, -self.shift])
        prior: Floats = np.maximum(together - self.added - moved, 1e-9) / self.share
        return prior

    def at(self, rows: Integers) -> RowPast:
        """That of some rows; -1 is a row without a past."""
        share = np.concatenate([self.share, np.ones((2, 1))], axis=1)[:, rows]
        added = np.concatenate([self.added, np.zeros((2, 1))], axis=1)[:, rows]
        shift = None if self.shift is None else np.append(self.shift, 0.0)[rows]
        return RowPast(share, added, shift)


def joined_typical(
    union: Union, rows: Rows, old: Mapping[str, Floats], new: Mapping[str, Floats], decay: float
) -> dict[str, Floats]:
    """What is typical of old and new `rows` in both logs, of which the old one has faded.

    Shown and possible pages add up; means are weighted by how often a row was shown.
    """
    if not old:
        return {}
    n_old, place = len(union.old), union.place
    shown, today = union.widened(decay * old[IMPRESSIONS], 0.0), np.zeros(len(rows))
    today[place] = new[IMPRESSIONS]
    together = shown + today
    found = {IMPRESSIONS: together}
    if PAGES in old:
        found[PAGES] = _pages(union, rows, decay * old[PAGES], new[PAGES])
    for name in old.keys() & new.keys() - found.keys():
        if name == EXPOSURE:
            found[name] = smoothed_share(together, found[PAGES])
            continue
        mean, fresh = union.widened(old[name], 0.0), np.zeros(len(rows))
        fresh[place] = new[name]
        # Rows that no page weighs anything for stay where the old log, or the new one, has them.
        still = np.where(np.arange(len(rows)) < n_old, mean, fresh)
        both = mean * shown + fresh * today
        found[name] = np.divide(both, together, out=still, where=together > 0)
    return found


def _pages(union: Union, rows: Rows, old: Floats, new: Floats) -> Floats:
    """The pages that could have shown a row: those of its query, if that is part of the key."""
    query = np.zeros(len(rows), np.int64)
    if "query" in rows.keys:
        query = rows.frame["query"].rank("dense").to_numpy().astype(np.int64) - 1
    before, today = np.zeros((2, int(query.max(initial=0)) + 1))
    before[query[: len(old)]], today[query[union.place]] = old, new
    return (before + today)[query]
