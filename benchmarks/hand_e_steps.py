"""The hand-written kernels behind one face: run the E-step of an encoded log, give the counts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks import hand_kernels
from gecasmo.encoding import EncodedLog
from gecasmo.kernels.plan import CoinPlan

Floats = NDArray[np.float64]
HeadsAndTails = tuple[Floats, Floats]


class HandEStep(ABC):
    """Probabilities, heads and tails of every coin as arrays of their own."""

    def __init__(self, encoded: EncodedLog, weights: Sequence[Floats]) -> None:
        self.start = encoded.obs_start
        self.clicks = encoded.obs  # 0 is a skip and 1 a click, as the models have one signal
        self.codes = [_row_numbers(encoded, coin) for coin in encoded.plan.coins]
        self.longest = encoded.max_length
        self.probability = [weight[1].copy() for weight in weights]
        self.heads = [np.zeros(weight.shape[1]) for weight in weights]
        self.tails = [np.zeros(weight.shape[1]) for weight in weights]

    def run(self) -> float:
        """One E-step from cleared counts; returns the log-likelihood."""
        for counts in (*self.heads, *self.tails):
            counts[:] = 0.0
        return self._run()

    @abstractmethod
    def _run(self) -> float: ...

    def counts(self) -> list[HeadsAndTails]:
        """Per coin of the model."""
        return list(zip(self.heads, self.tails, strict=True))


def _row_numbers(encoded: EncodedLog, coin: CoinPlan) -> NDArray[np.uint32]:
    """The row of a coin at each result, as plain as hand-written kernels want it."""
    if coin.codes < 0:
        return np.zeros(0, np.uint32)
    if coin.scope == "page":
        return encoded.page_rows(coin.codes)
    return encoded.result_rows(coin.codes, bool(coin.history))


class HandDBN(HandEStep):
    kernel = staticmethod(hand_kernels.dbn)

    def _run(self) -> float:
        continuation = np.zeros(2)
        log_likelihood = self.kernel(
            *[self.start, self.clicks, self.codes[0], *self.probability],
            *[self.heads[0], self.tails[0], self.heads[1], self.tails[1]],
            *[continuation, self.longest],
        )
        self.heads[2][0], self.tails[2][0] = continuation
        return log_likelihood


class HandUBM(HandEStep):
    kernel = staticmethod(hand_kernels.ubm)

    def _run(self) -> float:
        return self.kernel(
            *[self.start, self.clicks, self.codes[0], self.codes[1], *self.probability],
            *[self.heads[0], self.tails[0], self.heads[1], self.tails[1]],
        )


class HandRestless(HandEStep):
    """Coins 2 m and 2 m + 1 say where mood m goes; then attraction, trust and whim."""

    def _run(self) -> float:
        moves, whim = np.zeros((3, 3)), np.zeros(2)
        log_likelihood = hand_kernels.restless(
            *[self.start, self.clicks, self.codes[6], self.codes[7], self._transition()],
            *self.probability[6:],
            *[moves, self.heads[6], self.tails[6], self.heads[7], self.tails[7]],
            *[whim, self.longest],
        )
        for mood in range(3):
            self.heads[2 * mood][0], self.tails[2 * mood][0] = moves[mood, 0], moves[mood, 1:].sum()
            self.heads[2 * mood + 1][0], self.tails[2 * mood + 1][0] = moves[mood, 1:]
        self.heads[8][0], self.tails[8][0] = whim
        return log_likelihood

    def _transition(self) -> Floats:
        first, second = (np.array([p[0] for p in self.probability[k:6:2]]) for k in (0, 1))
        return np.column_stack([first, (1 - first) * second, (1 - first) * (1 - second)])
