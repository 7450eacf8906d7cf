"""Priors of tables that are learned from the log: which rows share one, and what it says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.averages import EXPOSURE, PAGES, smoothed_share
from gecasmo.encoding.matching import match
from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# Numbers are cut into bins of equally many rows: at most so many, and fewer where groups would
# be smaller than this.
MOST_BINS = 12
_ROWS_IN_GROUP = 40


class Empirical:
    """A Beta prior per group of rows, learned from the log by integrated likelihood.

    Parameters
    ----------
    by : str or tuple of str, optional
        What tells groups apart; without it all rows share one prior. Names that are part of the
        row's key are levels to fall back on: `by=("doc", "query")` gives a pair the prior of its
        document if that has other pairs, else that of its query, else that of all. Other names are
        typical values of a row, cut into bins: "rank" (the mean rank at which it is shown),
        "exposure" (the share of its query's pages that show it), "impressions" (how often it is
        shown), or a column of the log.
    """

    def __init__(self, by: str | Sequence[str] | None = None) -> None:
        names: tuple[Any, ...] = (by,)
        if by is None or (isinstance(by, Sequence) and not isinstance(by, str)):
            names = tuple(by or ())
        odd = [name for name in names if not isinstance(name, str)]
        if odd or len(set(names)) < len(names):
            raise ModelError(f"Empirical(by={by!r}): names of columns are wanted, each once.")
        self.by = names

    def __repr__(self) -> str:
        if not self.by:
            return "Empirical()"
        return f"Empirical(by={self.by[0]!r})" if len(self.by) == 1 else f"Empirical(by={self.by})"

    def typical(self, keys: Sequence[str]) -> tuple[str, ...]:
        """The names that are no part of the key of rows."""
        return tuple(name for name in self.by if name not in keys)


@dataclass(frozen=True)
class Level:
    """What the groups of a coin have in common: centre and spread of one of their numbers."""

    centre: float
    spread: float = 1.0

    def updated(self, values: Floats, unsure: Floats) -> Level:
        """Centre and spread of values that are known up to these variances."""
        weights = 1 / (self.spread**2 + unsure)
        centre = float(np.average(values, weights=weights))
        spread = float(np.sqrt(np.mean((values - centre) ** 2 + unsure)))
        return Level(centre, max(spread, 0.02))


@dataclass(frozen=True)
class Priors:
    """The Beta priors of a coin's groups of rows."""

    logit: Floats  # of each group's mean
    log_strength: Floats  # of how many flips it is worth
    mean_level: Level = Level(0.0)
    strength_level: Level = Level(float(np.log(2.0)))

    @classmethod
    def vague(cls, n_groups: int) -> Priors:
        """Where learning begins: Beta(1, 1)."""
        return cls(np.zeros(n_groups), np.full(n_groups, np.log(2.0)))

    @property
    def mean(self) -> Floats:
        mean: Floats = 1 / (1 + np.exp(-self.logit))
        return mean

    @property
    def strength(self) -> Floats:
        strength: Floats = np.exp(self.log_strength)
        return strength

    def pseudo_counts(self, group: Integers) -> Floats:
        """Heads and tails that the prior of each row is worth, `[heads or tails, row]`."""
        mean, strength = self.mean[group], self.strength[group]
        return np.stack([strength * mean, strength * (1 - mean)])

    def is_close(self, other: Priors, tolerance: float) -> bool:
        """Whether two priors say the same, for all purposes."""
        if len(self.logit) != len(other.logit):
            return False
        stronger = self.log_strength - other.log_strength
        # A mean is known to about one part in the square root of what its prior is worth.
        moved = (self.logit - other.logit) * np.sqrt(np.minimum(self.strength, 50.0))
        return max(_size(stronger), _size(moved)) < 4 * tolerance


@dataclass(frozen=True)
class Exposures:
    """What stands for rows never shown: rows of queries with about as many pages that are hardly
    shown either.

    `query` and `pages` say how many pages a query has (without queries: one number for all). Rows
    whose exposure falls between two `cuts` are of the groups that `shares[bin]` says.
    """

    query: pl.Series | None
    pages: Floats
    cuts: Floats
    shares: Floats

    def in_general(self) -> Exposures:
        """The same for any query, with as many pages as that of a typical page has."""
        weight = self.pages / max(float(self.pages.sum()), 1e-300)
        usual = np.exp((weight * np.log(np.maximum(self.pages, 1.0))).sum())
        return Exposures(None, np.array([usual]), self.cuts, self.shares)

    def of_unseen(self, rows: Rows) -> Floats:
        """The share of each group in what stands for each of these rows, `[row, group]`."""
        pages = np.zeros(len(rows))
        if self.query is None:
            pages[:] = self.pages[0]
        elif "query" in rows.keys:
            known = pl.DataFrame([self.query.alias("query")])
            found = match(rows.frame.select("query"), known, ("query",))
            pages = np.where(found >= 0, self.pages[found], 0.0)
        bins = np.searchsorted(self.cuts, smoothed_share(0.0, pages), side="right")
        shares: Floats = self.shares[bins]
        return shares


@dataclass(frozen=True)
class Bins:
    """Borders by which typical values put rows into groups, also rows that were not there when the
    borders were drawn.

    `cuts` are the borders of each name, and `present` the combinations of bins that are a group.
    """

    names: tuple[str, ...]
    cuts: tuple[Floats, ...]
    present: Integers

    def numbers(self, typical: Mapping[str, Floats], n_rows: int) -> Integers:
        """The group of each row; a combination that is no group goes with the next one that is."""
        combined = np.zeros(n_rows, np.int64)
        for name, cuts in zip(self.names, self.cuts, strict=True):
            bins = np.searchsorted(cuts, typical[name], side="right")
            combined = combined * (len(cuts) + 1) + bins
        found: Integers = np.searchsorted(self.present, combined)
        return np.minimum(found, len(self.present) - 1)


@dataclass(frozen=True)
class Grouping:
    """Which rows share a prior.

    `number` is the group of each row and `label` says in words what a group is about. `levels` are
    the coarser keys to fall back on: their name, their values and the group of each. `bins` are the
    borders between groups, if nothing else tells them apart.
    """

    number: Integers
    label: list[str]
    levels: tuple[tuple[str, pl.Series, Integers], ...] = ()
    exposures: Exposures | None = None
    bins: Bins | None = None

    @property
    def n_groups(self) -> int:
        return len(self.label)


def group_rows(rows: Rows, prior: Empirical, typical: dict[str, pl.Series]) -> Grouping:
    """Put rows into groups; `typical` has the values of names that are no part of the key."""
    n_rows = len(rows)
    number = np.full(n_rows, -1, np.int64)
    labels: list[str] = []
    levels = []
    for name in prior.by:
        if name not in rows.keys:
            continue
        values = rows.frame[name]
        codes = values.rank("dense").to_numpy().astype(np.int64) - 1
        has_others = np.bincount(codes)[codes] > 1
        taken = has_others & (number < 0)
        if not taken.any():
            continue
        distinct, group = np.unique(codes[taken], return_inverse=True)
        number[taken] = len(labels) + group
        first = np.zeros(int(codes.max()) + 1, np.int64)
        first[codes] = np.arange(n_rows)
        known = values.gather(pl.Series(first[distinct]))
        levels.append((name, known, len(labels) + np.arange(len(distinct))))
        labels += [name] * len(distinct)
    left = number < 0
    binned, words, cuts = _binned(typical, n_rows)
    bins = None
    if left.any() or not labels:
        distinct, group = np.unique(binned[left], return_inverse=True)
        if not len(distinct):
            distinct = np.array([0])
        if cuts is not None and not labels:
            bins = Bins(tuple(cuts), tuple(cuts.values()), distinct)
        number[left] = len(labels) + group
        labels += [words] * len(distinct)
    exposures = _exposures(rows, typical, number, len(labels))
    return Grouping(number, labels, tuple(levels), exposures, bins)


def _binned(
    typical: dict[str, pl.Series], n_rows: int
) -> tuple[Integers, str, dict[str, Floats] | None]:
    """A number for the bins of each row, in words what they are about, and the borders by name if
    all values are numbers."""
    number = np.zeros(n_rows, np.int64)
    names = [name for name in typical if name != PAGES]
    cuts: dict[str, Floats] | None = {}
    for name in names:
        values = typical[name]
        if values.dtype.is_numeric():
            own = _cuts(values, len(names))
            codes = np.searchsorted(own, values.to_numpy(), side="right")
            n_bins = len(own) + 1
            if cuts is not None:
                cuts[name] = own
        else:
            codes = values.rank("dense").to_numpy().astype(np.int64)
            n_bins, cuts = int(codes.max(initial=0)) + 1, None
        number = number * n_bins + codes
    return number, ", ".join(names) or "all", cuts


def _cuts(values: pl.Series, n_names: int) -> Floats:
    """Borders between bins of equally many rows."""
    n_bins = int((len(values) / _ROWS_IN_GROUP) ** (1 / n_names))
    n_bins = min(max(n_bins, 2), MOST_BINS)
    cuts: Floats = np.unique(np.quantile(values.to_numpy(), np.linspace(0, 1, n_bins + 1)[1:-1]))
    return cuts


def _exposures(
    rows: Rows, typical: dict[str, pl.Series], number: Integers, n_groups: int
) -> Exposures | None:
    if EXPOSURE not in typical or not len(rows):
        return None
    n_names = len([name for name in typical if name != PAGES])
    cuts = _cuts(typical[EXPOSURE], n_names)
    bins = np.searchsorted(cuts, typical[EXPOSURE].to_numpy(), side="right")
    shares = np.zeros((len(cuts) + 1, n_groups))
    np.add.at(shares, (bins, number), 1.0)
    empty = shares.sum(axis=1) == 0
    shares[empty] = shares.sum(axis=0)
    shares /= shares.sum(axis=1, keepdims=True)
    pages = typical[PAGES]
    if "query" not in rows.keys:
        return Exposures(None, pages.to_numpy()[:1], cuts, shares)
    known = rows.frame.select("query").with_columns(pages).unique("query", maintain_order=True)
    return Exposures(known["query"], known[PAGES].to_numpy(), cuts, shares)


def _size(differences: Floats) -> float:
    """The root of the mean square: one group of many may wander."""
    return float(np.sqrt(np.mean(differences**2))) if len(differences) else 0.0
