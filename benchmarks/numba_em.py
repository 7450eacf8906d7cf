"""Textbook EM around the hand-written Numba E-steps: what a good engineer has after an afternoon.

One thread, no acceleration, pseudo-counts (1, 1), every probability starts at 1/2, pages sorted by
query (2.6 times faster than in the order of the log). It knows nothing of gecasmo, and its pairs
come numbered, so nothing has to be encoded.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.held_out import dbn_log_likelihood, ubm_log_likelihood
from benchmarks.rivals_arrays import RANKS, RivalsArrays
from benchmarks.streaming import streaming
from benchmarks.trajectory import Trajectory

Floats = NDArray[np.float64]
MOST_ITERATIONS = 1000
SMALLEST_GAIN = 1e-8  # in objective a page: that is the end
AGREEMENT = 1e-9


class Pages:
    """Some pages as the kernels read them."""

    def __init__(self, docs: NDArray[np.int32], clicks: NDArray[np.bool_]) -> None:
        self.n_pages = len(docs)
        self.start = np.arange(self.n_pages + 1, dtype=np.uint32) * RANKS
        self.pair = docs.astype(np.uint32).ravel()
        self.clicks = clicks.astype(np.uint8).ravel()

    @classmethod
    def by_query(cls, log: RivalsArrays, last: int) -> Pages:
        order = np.argsort(log.query[:last], kind="stable")
        return cls(log.docs[order], log.clicks[order])


class HandEM(ABC):
    """Probabilities of every coin, and a step that makes them better."""

    def __init__(self, n_pairs: int) -> None:
        self.probability = [np.full(size, 0.5) for size in self.sizes(n_pairs)]
        self.heads = [np.zeros(len(one)) for one in self.probability]
        self.tails = [np.zeros(len(one)) for one in self.probability]

    @staticmethod
    @abstractmethod
    def sizes(n_pairs: int) -> list[int]:
        """Rows of each coin."""

    @abstractmethod
    def expect(self, pages: Pages) -> float:
        """Add expected counts of pages; returns the log-likelihood."""

    @abstractmethod
    def judge(self, docs: NDArray[np.int32], clicks: NDArray[np.bool_]) -> float:
        """Log-likelihood a page, by code of its own."""

    def step(self, pages: Pages) -> float:
        """One iteration; returns the objective before it."""
        for counts in (*self.heads, *self.tails):
            counts[:] = 0.0
        objective = self.expect(pages)
        for number, (heads, tails) in enumerate(zip(self.heads, self.tails, strict=True)):
            before = self.probability[number]
            objective += float(np.log(before * (1 - before)).sum())
            self.probability[number] = (heads + 1) / (heads + tails + 2)
        return objective

    def arrays(self, pages: Pages) -> list[NDArray[Any]]:
        """All that an E-step reads and writes."""
        tables = [*self.probability, *self.heads, *self.tails]
        return [pages.start, pages.pair, pages.clicks, *tables]


class HandDBN(HandEM):
    @staticmethod
    def sizes(n_pairs: int) -> list[int]:
        return [n_pairs, n_pairs, 1]

    def expect(self, pages: Pages) -> float:
        from benchmarks import hand_kernels

        continuation = np.zeros(2)
        log_likelihood: float = hand_kernels.dbn(
            *[pages.start, pages.clicks, pages.pair, *self.probability],
            *[self.heads[0], self.tails[0], self.heads[1], self.tails[1]],
            *[continuation, RANKS],
        )
        self.heads[2][0] += continuation[0]
        self.tails[2][0] += continuation[1]
        return log_likelihood

    def judge(self, docs: NDArray[np.int32], clicks: NDArray[np.bool_]) -> float:
        attraction, satisfaction, continuation = self.probability
        return dbn_log_likelihood(docs, clicks, attraction, satisfaction, continuation[0])


class HandUBM(HandEM):
    """The row of an examination is (rank - 1) * 10 + the rank of the last click above."""

    @staticmethod
    def sizes(n_pairs: int) -> list[int]:
        return [RANKS * RANKS, n_pairs]

    def expect(self, pages: Pages) -> float:
        from benchmarks import hand_kernels

        log_likelihood: float = hand_kernels.ubm(
            *[pages.start, pages.clicks, places(pages), pages.pair, *self.probability],
            *[self.heads[0], self.tails[0], self.heads[1], self.tails[1]],
        )
        return log_likelihood

    def judge(self, docs: NDArray[np.int32], clicks: NDArray[np.bool_]) -> float:
        examination, attraction = self.probability
        return ubm_log_likelihood(docs, clicks, attraction, examination.reshape(RANKS, RANKS))

    def arrays(self, pages: Pages) -> list[NDArray[Any]]:
        return [*super().arrays(pages), places(pages)]


def places(pages: Pages) -> NDArray[np.uint8]:
    """The row of the examination of every result; worked out once."""
    if not hasattr(pages, "places"):
        clicks = pages.clicks.reshape(-1, RANKS)
        rows = np.empty(clicks.shape, np.uint8)
        last = np.zeros(len(clicks), np.uint8)
        for rank in range(RANKS):
            rows[:, rank] = rank * RANKS + last
            last[clicks[:, rank] == 1] = rank + 1
        pages.places = rows.ravel()  # type: ignore[attr-defined]
    found: NDArray[np.uint8] = pages.places  # type: ignore[attr-defined]
    return found


MODELS: dict[str, type[HandEM]] = {"DBN": HandDBN, "UBM": HandUBM}


def compile_kernel(model: str) -> float:
    """Seconds of importing the kernel and of its first call, on one page."""
    began = time.perf_counter()
    docs = np.arange(RANKS, dtype=np.int32)[None, :]
    MODELS[model](RANKS).expect(Pages(docs, docs % 2 == 0))
    return time.perf_counter() - began


def measure(model: str, path: Path) -> dict[str, Any]:
    """Run EM to its end, with a look at the held-out pages after every iteration."""
    log = RivalsArrays.load(path)
    first_seconds = compile_kernel(model)
    em = MODELS[model](log.n_pairs)
    docs, clicks = log.docs[log.n_train :], log.clicks[log.n_train :]
    held_out = Pages(docs, clicks)
    trajectory = Trajectory()
    trajectory.start()
    train = Pages.by_query(log, log.n_train)
    before = -np.inf
    for _ in range(MOST_ITERATIONS):
        trajectory.start()
        objective = em.step(train)
        trajectory.stop(lambda: em.expect(held_out) / held_out.n_pages)  # step() clears counts
        if (objective - before) / train.n_pages < SMALLEST_GAIN:
            break
        before = objective
    if abs(em.judge(docs, clicks) - trajectory.held_out[-1]) > AGREEMENT:
        raise AssertionError(f"{model}: the kernel and the judge do not agree")
    return trajectory.figures(train.n_pages) | {"first_seconds": first_seconds}


def measure_streaming(model: str, path: Path) -> dict[str, Any]:
    """Seconds to read once what an E-step of this log has to read."""
    log = RivalsArrays.load(path)
    train = Pages.by_query(log, log.n_train)
    run = streaming(MODELS[model](log.n_pairs).arrays(train))
    seconds = []
    for _ in range(12):
        began = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - began)
    speed = train.n_pages / float(np.median(seconds[1:]))
    return {"n_pages": train.n_pages, "pages_per_second": speed}
