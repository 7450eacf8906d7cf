"""Draws from a posterior, and whether the chains that made them agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Chains that agree up to this R-hat are taken to have reached the posterior.
AGREED = 1.05
# Of a coin with more rows only their mean is watched.
_FEW_ROWS = 20


@dataclass(frozen=True, repr=False)
class Draws:
    """Joint draws of all coins, `[chain, draw]` and then what each is about.

    Attributes
    ----------
    rows : by coin, the probability of each row, `[chain, draw, row]`; rows as in `parameters`
    priors : by coin whose prior was sampled, `[chain, draw, 2]`: mean and strength of the prior of
        a middling row
    log_likelihood : of the whole log, `[chain, draw]`
    thin : every so many sweeps one draw was kept
    watched : of every sweep after the warm-up, `[chain, sweep]`: the log-likelihood, and the
        probabilities of coins, or their mean over rows where these are many
    """

    rows: Mapping[str, Floats]
    priors: Mapping[str, Floats]
    log_likelihood: Floats
    thin: int = 1
    watched: Mapping[str, Floats] = field(default_factory=dict)

    @property
    def n_chains(self) -> int:
        """Number of chains."""
        return len(self.log_likelihood)

    @property
    def n_draws(self) -> int:
        """Number of draws of each chain that were kept."""
        return int(self.log_likelihood.shape[1])

    def diagnostics(self) -> pl.DataFrame:
        """Mean, deviation, R-hat and effective number of draws of what was watched."""
        lines = [
            {
                "quantity": name,
                "mean": float(values.mean()),
                "spread": float(values.std()),
                "r_hat": r_hat(values),
                "effective_draws": effective_draws(values),
            }
            for name, values in self.watched.items()
        ]
        kinds = {"quantity": pl.String, "mean": pl.Float64, "spread": pl.Float64}
        schema = kinds | {"r_hat": pl.Float64, "effective_draws": pl.Float64}
        return pl.DataFrame(lines, schema=schema)

    def chosen(self, most: int) -> Iterator[dict[str, Floats]]:
        """At most so many joint draws, evenly from all chains: by coin its rows."""
        n = self.n_chains * self.n_draws
        for place in np.unique(np.linspace(0, n - 1, min(most, n)).round().astype(int)):
            chain, draw = divmod(int(place), self.n_draws)
            yield {coin: values[chain, draw] for coin, values in self.rows.items()}

    def __repr__(self) -> str:
        kept = f"{self.n_draws:,} draws from each of {self.n_chains} chains"
        every = "" if self.thin == 1 else f" (every {self.thin} sweeps)"
        rows = ", ".join(f"{coin} {values.shape[-1]:,}" for coin, values in self.rows.items())
        return f"Draws: {kept}{every}; rows: {rows}"


def watched_rows(coin: str, probability: Floats) -> dict[str, float]:
    """What is watched of a coin: its rows, or their mean where these are many."""
    if len(probability) == 1:
        return {coin: float(probability[0])}
    if len(probability) > _FEW_ROWS:
        return {f"mean {coin}": float(probability.mean())}
    return {f"{coin}[{place}]": float(p) for place, p in enumerate(probability)}


def r_hat(values: Floats) -> float:
    """How far chains `[chain, draw]` differ, each cut in halves: 1 if they agree (Gelman and
    others 2013), NaN of fewer than four draws."""
    half = values.shape[1] // 2
    if half < 2:
        return float("nan")
    halves = np.concatenate([values[:, :half], values[:, -half:]])
    within = halves.var(axis=1, ddof=1).mean()
    between = half * halves.mean(axis=1).var(ddof=1)
    if within <= 0:
        return 1.0 if between <= 0 else float("inf")
    return float(np.sqrt(((half - 1) / half * within + between / half) / within))


def effective_draws(values: Floats) -> float:
    """How many independent draws chains `[chain, draw]` are worth (Geyer's initial sequence)."""
    n_chains, n = values.shape
    if n < 4:
        return float("nan")
    centred = values - values.mean(axis=1, keepdims=True)
    # Autocovariances of all lags at once, padded so that the ends do not meet.
    spectrum = np.fft.rfft(centred, 2 * n, axis=1)
    covariance = np.fft.irfft(spectrum * np.conj(spectrum), axis=1)[:, :n].mean(axis=0) / n
    within = covariance[0] * n / (n - 1)
    total = covariance[0]
    if n_chains > 1:
        total += values.mean(axis=1).var(ddof=1)
    if total <= 0:
        return float(n_chains * n)
    rho = 1 - (within - covariance) / total
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs < 0)
    pairs = np.minimum.accumulate(pairs[: negative[0]] if len(negative) else pairs)
    time = max(2 * float(pairs.sum()) - 1, 1 / np.log10(n_chains * n + 10))
    return float(n_chains * n / time)
