"""How well click probabilities agree with clicks.

Perplexity: 2 to the mean number of bits by which clicks surprise; 1 is perfect, 2 a coin. Overall
there are two figures and no third: `arithmetic`, the unweighted mean of the values per rank, and
`pooled`, the perplexity of all results taken together.

Calibration: of the results that a model gives 30 %, are 30 % clicked? Brier score: the mean squared
distance of click (0 or 1) and probability. Expected calibration error (ECE): the mean distance of
mean probability and click rate over bins of equal width.

CTR prediction: how well does a model foretell the click rate at rank 1 of what it also saw
elsewhere? Chapelle and Zhang, WWW 2009. For pairs of query and document shown at rank 1 in the test
part and at other ranks in training: sqrt(sum n (ctr - p)^2 / sum n), n being how often they were at
rank 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.logs import ClickLog

Floats = NDArray[np.float64]
N_BINS = 20


@dataclass(frozen=True)
class Perplexity:
    """`by_rank` has the columns rank, perplexity, results (their weight) and infinite.

    A result that happened although its probability was 0 makes a perplexity infinite;
    `n_infinite` counts them.
    """

    arithmetic: float
    pooled: float
    by_rank: pl.DataFrame
    n_infinite: int


@dataclass(frozen=True)
class PerplexitySums:
    """What a perplexity is made of, rank by rank; sums of several logs add up.

    `weights` are those of the results, `bits` by how many they surprise, `infinite` how many had
    probability 0.
    """

    ranks: NDArray[np.int64]
    weights: Floats
    bits: Floats
    infinite: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        click: NDArray[np.bool_],
        probability: Floats,
        rank: NDArray[np.integer],
        weight: Floats,
    ) -> PerplexitySums:
        """The sums over shown results."""
        with np.errstate(divide="ignore"):
            bits = -np.log2(np.where(click, probability, 1 - probability))
        infinite = np.isinf(bits)
        # Sums in the order of the results, so that they are the same on every run.
        ranks, number = np.unique(np.asarray(rank).astype(np.int64), return_inverse=True)
        n_ranks = len(ranks)
        weights: Floats = np.bincount(number, weights=weight, minlength=n_ranks).astype(float)
        finite = np.where(infinite, 0.0, bits)
        totals = np.bincount(number, weights=weight * finite, minlength=n_ranks).astype(float)
        counts = np.bincount(number[infinite & (weight > 0)], minlength=n_ranks)
        return cls(ranks, weights, totals, counts)

    def __add__(self, other: PerplexitySums) -> PerplexitySums:
        ranks = np.union1d(self.ranks, other.ranks)
        weights, bits = np.zeros(len(ranks)), np.zeros(len(ranks))
        infinite = np.zeros(len(ranks), np.int64)
        for sums in (self, other):
            places = np.searchsorted(ranks, sums.ranks)
            weights[places] += sums.weights
            bits[places] += sums.bits
            infinite[places] += sums.infinite
        return PerplexitySums(ranks, weights, bits, infinite)

    def finish(self) -> Perplexity:
        """The perplexity of all results together."""
        used = self.weights > 0
        ranks, weights = self.ranks[used], self.weights[used]
        totals, counts = self.bits[used], self.infinite[used]
        values = np.where(counts > 0, np.inf, np.exp2(totals / weights))
        n_infinite = int(counts.sum())
        pooled = np.inf if n_infinite else 2 ** (float(totals.sum()) / float(weights.sum()))
        return Perplexity(
            arithmetic=float(values.mean()),
            pooled=float(pooled),
            by_rank=pl.DataFrame(
                {"rank": ranks, "perplexity": values, "results": weights, "infinite": counts}
            ),
            n_infinite=n_infinite,
        )


def perplexity(
    click: NDArray[np.bool_], probability: Floats, rank: NDArray[np.integer], weight: Floats
) -> Perplexity:
    """Measure by how much clicks surprise, per shown result.

    Parameters
    ----------
    click : array of bool
        Whether each result was clicked.
    probability : array
        What a model says of it.
    rank : array of int
        Where each stands, from 1.
    weight : array
        How often each counts.

    Returns
    -------
    Perplexity
        Overall, and by rank.
    """
    return PerplexitySums.of(click, probability, rank, weight).finish()


@dataclass(frozen=True)
class Calibration:
    """`bins` has a line per bin that is not empty: bin, low, high, results (their weight),
    predicted (mean probability) and observed (click rate)."""

    brier: float
    ece: float
    bins: pl.DataFrame


@dataclass(frozen=True)
class CalibrationSums:
    """What a calibration is made of; sums of several logs add up.

    `by_bin` has, `[which, bin]`, the weight of the results, of their probabilities and of clicks.
    """

    total: float
    squares: float
    by_bin: Floats

    @classmethod
    def of(
        cls,
        click: NDArray[np.bool_],
        probability: Floats,
        weight: Floats,
        n_bins: int = N_BINS,
    ) -> CalibrationSums:
        """The sums over shown results."""
        number = np.minimum((probability * n_bins).astype(np.int64), n_bins - 1)
        by_bin = [
            np.bincount(number, weights=weight * values, minlength=n_bins)
            for values in (np.ones(len(click)), probability, click)
        ]
        squares = float((weight * (click - probability) ** 2).sum())
        return cls(float(weight.sum()), squares, np.stack(by_bin))

    def __add__(self, other: CalibrationSums) -> CalibrationSums:
        return CalibrationSums(
            self.total + other.total, self.squares + other.squares, self.by_bin + other.by_bin
        )

    def finish(self) -> Calibration:
        """The calibration on all results together."""
        n_bins = self.by_bin.shape[1]
        used = np.flatnonzero(self.by_bin[0] > 0)
        results, predicted, observed = self.by_bin[:, used]
        gaps = float(np.abs(predicted - observed).sum())
        bins = pl.DataFrame(
            {
                "bin": used + 1,
                "low": used / n_bins,
                "high": (used + 1) / n_bins,
                "results": results,
                "predicted": predicted / results,
                "observed": observed / results,
            }
        )
        return Calibration(brier=self.squares / self.total, ece=gaps / self.total, bins=bins)


def calibration(
    click: NDArray[np.bool_], probability: Floats, weight: Floats, n_bins: int = N_BINS
) -> Calibration:
    """Measure how well click probabilities agree with clicks, per shown result.

    Parameters
    ----------
    click : array of bool
        Whether each result was clicked.
    probability : array
        What a model says of it.
    weight : array
        How often each counts.
    n_bins : int
        Bins of equal width from 0 to 1.

    Returns
    -------
    Calibration
        Brier score, expected calibration error, and the bins.
    """
    return CalibrationSums.of(click, probability, weight, n_bins).finish()


@dataclass(frozen=True)
class TopPairs:
    """The test results at rank 1 that count (`rows`), and the pair each of them shows."""

    rows: NDArray[np.int64]
    pair: NDArray[np.int64]
    n_pairs: int
    click: Floats
    weight: Floats


def top_pairs(train: ClickLog, test: ClickLog) -> TopPairs:
    """The pairs to be foretold; documents alone where there are no queries."""
    names = ["query", "doc"] if train.has_query and test.has_query else ["doc"]
    here, there = comparable(test, train, names)
    elsewhere = there.filter(pl.Series((train.rank != 1) & (train.weight[train.page] > 0))).unique()
    at_top = (test.rank == 1) & (test.weight[test.page] > 0)
    found = (
        here.with_row_index("row")
        .filter(pl.Series(at_top))
        .join(elsewhere, on=names, how="semi", maintain_order="left")
    )
    rows = found["row"].to_numpy().astype(np.int64)
    pairs = found.select(names).unique(maintain_order=True).with_row_index("pair")
    pair = found.join(pairs, on=names, how="left", maintain_order="left")["pair"].to_numpy()
    return TopPairs(
        rows=rows,
        pair=pair.astype(np.int64),
        n_pairs=len(pairs),
        click=test.click[rows].astype(np.float64),
        weight=test.weight[test.page[rows]],
    )


def comparable(test: ClickLog, train: ClickLog, names: list[str]) -> tuple[pl.DataFrame, ...]:
    """The id columns of both parts, in types that can be matched; test first."""
    columns: tuple[list[pl.Series], list[pl.Series]] = ([], [])
    for name in names:
        here, there = (_plain(part.column(name)) for part in (test, train))
        if here.dtype != there.dtype:
            if not (here.dtype.is_integer() and there.dtype.is_integer()):
                raise ClickLogError(
                    f"compare(heldout=...): the column {name!r} is {here.dtype} there and "
                    f"{there.dtype} in the log; make them alike."
                )
            here, there = here.cast(pl.Int64), there.cast(pl.Int64)
        columns[0].append(here)
        columns[1].append(there)
    return pl.DataFrame(columns[0]), pl.DataFrame(columns[1])


def _plain(ids: pl.Series) -> pl.Series:
    return ids.cast(pl.String) if isinstance(ids.dtype, pl.Categorical | pl.Enum) else ids


def ctr_rmse(pairs: TopPairs, marginal: Floats) -> float | None:
    """The root of the mean squared error, each pair weighing as much as its pages; None if there
    is no pair. `marginal` has the click probability of every test result."""
    if not pairs.n_pairs:
        return None
    n, clicks, foretold = (
        np.bincount(pairs.pair, weights=pairs.weight * values, minlength=pairs.n_pairs)
        for values in (np.ones(len(pairs.rows)), pairs.click, marginal[pairs.rows])
    )
    return float(np.sqrt((n * (clicks / n - foretold / n) ** 2).sum() / n.sum()))
