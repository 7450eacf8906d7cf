"""EM in pure Python, by us: dictionaries and loops, as such libraries are written.

It is nobody's library. The algorithm is that of `numba_em.py` to the last count (which the
benchmark checks), so it needs the same number of iterations: textbook EM from 1/2 with
pseudo-counts (1, 1), in the standard library alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Pair = tuple[int, int]
Session = tuple[int, list[int], list[bool]]  # query, documents, clicks
Counts = dict[Any, list[float]]  # heads and tails


class Table:
    """The probability of every key that was seen; 1/2 for the others."""

    def __init__(self) -> None:
        self.probability: dict[Any, float] = {}

    def __getitem__(self, key: Any) -> float:
        return self.probability.get(key, 0.5)

    def learn(self, counts: Counts) -> None:
        for key, (heads, tails) in counts.items():
            self.probability[key] = (heads + 1) / (heads + tails + 2)


def count(counts: Counts, key: Any, heads: float, tails: float) -> None:
    found = counts.get(key)
    if found is None:
        counts[key] = [heads, tails]
    else:
        found[0] += heads
        found[1] += tails


class PythonDBN:
    """Forward-backward over two states: examines the next result, or has left."""

    def __init__(self) -> None:
        self.attraction, self.satisfaction, self.continuation = Table(), Table(), Table()

    def step(self, sessions: list[Session]) -> None:
        attraction: Counts = {}
        satisfaction: Counts = {}
        continuation: Counts = {}
        for session in sessions:
            self._count(session, attraction, satisfaction, continuation)
        self.attraction.learn(attraction)
        self.satisfaction.learn(satisfaction)
        self.continuation.learn(continuation)

    def _count(
        self, session: Session, attraction: Counts, satisfaction: Counts, continuation: Counts
    ) -> None:
        query, docs, clicks = session
        stay = self.continuation[None]
        last = len(docs) - 1
        last_click = max((rank for rank in range(last + 1) if clicks[rank]), default=-1)
        # backward[rank]: probability of the clicks from here on, if this result is examined
        backward = [0.0] * (last + 1)
        a = self.attraction[query, docs[last]]
        backward[last] = a if clicks[last] else 1 - a
        for rank in range(last - 1, -1, -1):
            pair = query, docs[rank]
            nothing_follows = 1.0 if last_click <= rank else 0.0
            goes_on = stay * backward[rank + 1] + (1 - stay) * nothing_follows
            a = self.attraction[pair]
            if clicks[rank]:
                s = self.satisfaction[pair]
                backward[rank] = a * (s * nothing_follows + (1 - s) * goes_on)
            else:
                backward[rank] = (1 - a) * goes_on
        forward = 1.0 / backward[0]
        for rank in range(last + 1):
            pair = query, docs[rank]
            examined = forward * backward[rank]
            a = self.attraction[pair]
            if clicks[rank]:
                count(attraction, pair, examined, 0.0)
            else:
                count(attraction, pair, 0.0, examined)
            if rank == last:
                break
            satisfied = 0.0
            if clicks[rank]:
                s = self.satisfaction[pair]
                satisfied = forward * a * s if rank == last_click else 0.0
                count(satisfaction, pair, satisfied, examined - satisfied)
                forward *= a * (1 - s) * stay
            else:
                forward *= (1 - a) * stay
            stayed = forward * backward[rank + 1]
            count(continuation, None, stayed, examined - satisfied - stayed)

    def log_likelihood(self, session: Session) -> float:
        query, docs, clicks = session
        stay = self.continuation[None]
        examined, total = 1.0, 0.0
        for doc, clicked in zip(docs, clicks, strict=True):
            a = self.attraction[query, doc]
            if clicked:
                total += math.log(examined * a)
                examined = (1 - self.satisfaction[query, doc]) * stay
            else:
                total += math.log(1 - examined * a)
                examined *= (1 - a) * stay / (1 - examined * a)
        return total


class PythonUBM:
    """Results are independent given the last click above them."""

    def __init__(self) -> None:
        self.attraction, self.examination = Table(), Table()

    def step(self, sessions: list[Session]) -> None:
        attraction: Counts = {}
        examination: Counts = {}
        for query, docs, clicks in sessions:
            last = 0
            for rank, doc in enumerate(docs, start=1):
                pair, place = (query, doc), (rank, last)
                if clicks[rank - 1]:
                    count(attraction, pair, 1.0, 0.0)
                    count(examination, place, 1.0, 0.0)
                    last = rank
                else:
                    a, e = self.attraction[pair], self.examination[place]
                    examined = e * (1 - a) / (1 - e * a)
                    count(attraction, pair, 0.0, examined)
                    count(examination, place, examined, 1 - examined)
        self.attraction.learn(attraction)
        self.examination.learn(examination)

    def log_likelihood(self, session: Session) -> float:
        query, docs, clicks = session
        last, total = 0, 0.0
        for rank, doc in enumerate(docs, start=1):
            p = self.attraction[query, doc] * self.examination[rank, last]
            if clicks[rank - 1]:
                total += math.log(p)
                last = rank
            else:
                total += math.log(1 - p)
        return total


MODELS: dict[str, Callable[[], PythonDBN | PythonUBM]] = {"DBN": PythonDBN, "UBM": PythonUBM}


def measure(model: str, path: Path, iterations: int) -> dict[str, Any]:
    """Seconds of so many iterations, and the held-out log-likelihood after them."""
    from benchmarks.rivals_arrays import RivalsArrays

    log = RivalsArrays.load(path)
    listed = zip(log.query.tolist(), log.docs.tolist(), log.clicks.tolist(), strict=True)
    sessions: list[Session] = list(listed)
    train, test = sessions[: log.n_train], sessions[log.n_train :]
    em = MODELS[model]()
    began = time.perf_counter()
    for _ in range(iterations):
        em.step(train)
    seconds = time.perf_counter() - began
    return {
        "n_pages": len(train),
        "pages_per_second": len(train) * iterations / seconds,
        "seconds_to_limit": seconds,
        "iterations_to_limit": iterations,
        "held_out": sum(map(em.log_likelihood, test)) / len(test),
    }
