"""Rows and global coins of some pages, with rows integrated out.

On one page the likelihood is linear in the probability of each row that can be flipped once there.
So what a page says on average over what all *other* pages make of its rows is what it says at their
means under that: no row has to be drawn, and no estimate of a row is taken for the truth. A sweep
runs every page at these means, multiplies what pages say of each row, and finds the new means. The
slopes of the integrated likelihood by global coins are their expected counts at the same means.

For models whose pages do not tie rows together (PBM, UBM) this is exact. For others it is
expectation propagation, with the whole likelihood of a row in place of a Gaussian. Where a result
flips a row twice (CCM) the means of p^2 and p (1 - p) take that place; rows that a page can flip
more often, or shows twice, are held at their means while others are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.encoded import Apart, take_apart
from gecasmo.encoding.folds import N_BUCKETS
from gecasmo.estimation.expectation import Counts, Expectation
from gecasmo.estimation.posteriors.likelihood import (
    N_POINTS,
    Asked,
    Places,
    RowLikelihood,
    chunks_of,
    elsewhere,
    is_spread,
    joined,
    multiplied,
    nothing_known,
    places_of,
)
from gecasmo.estimation.posteriors.polynomials import (
    is_flipped_all_over,
    weights_elsewhere,
    whole_page_values,
)
from gecasmo.kernels.threads import in_threads

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass
class _Chunk:
    """Pages with whole queries, taken apart; by coin, the means of rows elsewhere."""

    pages: Integers
    apart: Apart | None  # taken apart anew whenever it is needed
    means: dict[int, Floats] = field(default_factory=dict)


@dataclass(frozen=True)
class Sweep:
    """What one sweep found.

    Attributes
    ----------
    likelihoods : of the rows that were asked for, by coin; the next sweep writes over them
    counts : expected counts of all other coins, with these rows at their means elsewhere
    """

    likelihoods: dict[int, RowLikelihood]
    counts: Counts


# Takes what is known of the rows of a coin from some row on, as soon as that is all.
Taker = Callable[[Asked, int, RowLikelihood], None]


class Sweeps:
    """Sweeps over the pages of the first buckets; from one to the next the means are kept."""

    def __init__(self, expectation: Expectation, n_buckets: int = N_BUCKETS) -> None:
        self.expectation = expectation
        pages = chunks_of(expectation.encoded, n_buckets)
        self.chunks = in_threads(
            lambda own: _Chunk(own, take_apart(expectation.encoded, own)), pages
        )
        self._found: dict[int, RowLikelihood] = {}

    def run(self, weights: Sequence[Floats], asked: Sequence[Asked]) -> Sweep:
        """One sweep; `weights` are those of global coins, and where rows begin."""
        found = {one.coin: self._empty(one) for one in asked}

        def take(one: Asked, first: int, known: RowLikelihood) -> None:
            rows = np.flatnonzero(known.known)
            for name in ("low", "step", "values", "known"):  # other threads have other rows
                getattr(found[one.coin], name)[first + rows] = getattr(known, name)[rows]

        looking = _Looking(self.expectation, weights, asked, take)
        return Sweep(found, looking.at(self.chunks))

    def _empty(self, one: Asked) -> RowLikelihood:
        """Room for what is found of a coin's rows: the same at every sweep, since that of a large
        log, of which some pages are looked at, takes longer to come by than to fill."""
        if one.coin not in self._found:
            self._found[one.coin] = nothing_known(len(one.probability))
        found = self._found[one.coin]
        found.known[:] = False
        return found


def look_through(
    expectation: Expectation, weights: Sequence[Floats], asked: Sequence[Asked], take: Taker
) -> Counts:
    """One sweep over all pages that keeps nothing: what is known of rows goes to `take`, on several
    threads for different rows; returned are the counts of all other coins."""
    looking = _Looking(expectation, weights, asked, take)
    chunks = chunks_of(expectation.encoded, N_BUCKETS)
    if looking.spread:
        return looking.at([_Chunk(pages, None) for pages in chunks])
    tables: list[list[Floats]] = in_threads(looking.alone, chunks)
    return looking.whole_pages(chunks, tables)


class _Looking:
    """Looks at pages: what they say of the rows of some coins, and counts of the others."""

    def __init__(
        self,
        expectation: Expectation,
        weights: Sequence[Floats],
        asked: Sequence[Asked],
        take: Taker,
    ) -> None:
        self.expectation, self.weights, self.take = expectation, weights, take
        self.rows = {one.coin for one in asked}
        self.all_over = [one for one in asked if is_flipped_all_over(expectation, one.coin)]
        by_place = [one for one in asked if one not in self.all_over]
        self.spread = [one for one in by_place if is_spread(expectation, one.coin)]
        self.local = [one for one in by_place if one not in self.spread]

    def at(self, chunks: list[_Chunk]) -> Counts:
        """All steps, chunk after chunk."""
        parts = in_threads(self.look, chunks)
        for one in self.spread:
            self._together(chunks, [places[one.coin] for places in parts], one)
        tables = in_threads(self.count, chunks)
        return self.whole_pages([chunk.pages for chunk in chunks], tables)

    def alone(self, pages: Integers) -> list[Floats]:
        """All steps for a chunk that no other has to do with."""
        chunk = _Chunk(pages, take_apart(self.expectation.encoded, pages))
        self.look(chunk)
        return self.count(chunk)

    def look(self, chunk: _Chunk) -> dict[int, Places]:
        """What some pages say of rows; those that other pages have are returned."""
        apart, own = self._apart(chunk), self._weights(chunk)
        tables, _ = self.expectation.run_apart(apart, own)
        for one in self.local:
            places = places_of(self.expectation, apart, own, tables, one.coin)
            if len(places.rows):
                first, known = multiplied(places, one)
                self.take(one, first, known)
                chunk.means[one.coin] = _held(one, places, elsewhere(places, one, first, known))
        return {
            one.coin: places_of(self.expectation, apart, own, tables, one.coin)
            for one in self.spread
        }

    def _together(self, chunks: list[_Chunk], parts: list[Places], one: Asked) -> None:
        """Rows of which several chunks have something to say."""
        places = joined(parts)
        if not len(places.rows):
            return
        first, known = multiplied(places, one)
        self.take(one, first, known)
        means = _held(one, places, elsewhere(places, one, first, known))
        cuts = np.cumsum([len(part.rows) for part in parts])[:-1]
        for chunk, own in zip(chunks, np.split(means, cuts, axis=1), strict=True):
            chunk.means[one.coin] = own

    def count(self, chunk: _Chunk) -> list[Floats]:
        """Expected counts, by row, of coins whose rows were not asked for."""
        encoded = self.expectation.encoded
        apart, own = self._apart(chunk), self._weights(chunk)
        tables, _ = self.expectation.run_apart(apart, own, encoded.weight[chunk.pages])
        found = []
        for number, table in enumerate(tables):
            plan = encoded.plan.coins[number]
            if number in self.rows:
                table = np.zeros((2, 0))
            elif plan.scope != "global":
                index, n_rows = apart.rows[plan.codes], self.weights[number].shape[1]
                table = np.stack([np.bincount(index, side, n_rows) for side in table])
            found.append(table)
        return found

    def whole_pages(self, pages: Sequence[Integers], tables: list[list[Floats]]) -> Counts:
        """Rows that pages flip all over, and the sums of counts."""
        for one in self.all_over:
            values = whole_page_values(
                self.expectation, self.weights, one.coin, one.prior, pages, N_POINTS
            )
            found = RowLikelihood(*values)
            found.known &= one.wanted
            self.take(one, 0, found)
        return Counts([np.sum(own, axis=0) for own in zip(*tables, strict=True)], 0.0, 0)

    def _apart(self, chunk: _Chunk) -> Apart:
        if chunk.apart is None:
            return take_apart(self.expectation.encoded, chunk.pages)
        return chunk.apart

    def _weights(self, chunk: _Chunk) -> list[Floats]:
        """The weights of all coins at every place; rows stand at their means elsewhere."""
        apart = self._apart(chunk)
        own = self.expectation.weights_apart(apart, self.weights)
        for coin, means in chunk.means.items():
            own[coin] = weights_elsewhere(self.expectation, apart, coin, means)
        return own


def _held(one: Asked, places: Places, means: Floats) -> Floats:
    """Rows that are given stay as they are."""
    if one.wanted.all():
        return means
    given = one.probability[places.rows]
    return np.where(one.wanted[places.rows], means, np.stack([given, given**2]))
