"""The E-step: generated kernels against hand-written ones on the same arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gecasmo
from benchmarks.c_e_steps import CDBN, CUBM, c_library
from benchmarks.hand_e_steps import HandDBN, HandEStep, HandRestless, HandUBM
from benchmarks.restless import Restless
from benchmarks.streaming import streamed_arrays, streaming
from benchmarks.timing import Seconds, time_in_turns
from gecasmo import ClickLog
from gecasmo.encoding import EncodedLog
from gecasmo.estimation import Counts, Expectation
from gecasmo.estimation.coins import as_weights

Floats = NDArray[np.float64]
AGREEMENT = 1e-9


@dataclass(frozen=True)
class Case:
    """A model, its hand-written rivals, and how fast it should be beside the first of them."""

    model: type[gecasmo.ClickModel]
    hand: type[HandEStep]
    c: type[HandEStep] | None
    target: float


CASES = (
    Case(gecasmo.DBN, HandDBN, CDBN, 1.3),
    Case(gecasmo.UBM, HandUBM, CUBM, 0.95),
    Case(Restless, HandRestless, None, 0.8),
)


@dataclass(frozen=True)
class EStepResult:
    """Seconds of one E-step per contestant: what `measure_e_step` lists."""

    model: str
    log: str
    n_pages: int
    n_folded_pages: int
    target: float
    bytes_per_page: float
    seconds: dict[str, Seconds]

    @property
    def ratio(self) -> float:
        """Speed of the generated kernel beside the hand-written one, by medians."""
        return self.seconds["hand"].median / self.seconds["kernel"].median

    @property
    def best_ratio(self) -> float:
        """The same by the best round of each."""
        return self.seconds["hand"].best / self.seconds["kernel"].best

    def as_dict(self) -> dict[str, Any]:
        seconds = {name: listed._asdict() for name, listed in self.seconds.items()}
        ratios = {"ratio": self.ratio, "best_ratio": self.best_ratio}
        return asdict(self) | {"seconds": seconds} | ratios


def measure_e_step(case: Case, log: ClickLog, kind: str, rounds: int) -> EStepResult:
    """Check that all contestants agree, then time them."""
    model = case.model()
    plain = model.encode(log, "e_step", merge=False)
    folded = model.encode(log, "e_step", merge=True)
    weights = random_weights(plain)
    one, two = (_expectation(model, plain, threads) for threads in (1, 2))
    folded_weights = random_weights(folded)
    folded_one, folded_two = (_expectation(model, folded, threads) for threads in (1, 2))
    hand = case.hand(plain, weights)
    contestants: dict[str, Callable[[], object]] = {
        "hand": hand.run,
        "kernel": kernel_alone(one, weights),
        "whole": lambda: one.run(weights),
        "two_threads": lambda: two.run(weights),
        "folded": lambda: folded_one.run(folded_weights),
        "folded_two_threads": lambda: folded_two.run(folded_weights),
        "streaming": streaming(streamed_arrays(plain, [*weights, *one.tables])),
    }
    check_agreement(model.name, one.run(weights), hand)
    check_threads(model.name, one.run(weights), two.run(weights))
    if case.c is not None and c_library() is not None:
        in_c = case.c(plain, weights)
        check_agreement(f"{model.name} in C", one.run(weights), in_c)
        contestants["c"] = in_c.run
    return EStepResult(
        model=model.name,
        log=kind,
        n_pages=plain.n_pages,
        n_folded_pages=folded.n_pages,
        target=case.target,
        bytes_per_page=encoded_bytes(folded) / log.n_sessions,
        seconds=time_in_turns(contestants, rounds),
    )


def random_weights(encoded: EncodedLog) -> list[Floats]:
    """Weights of random probabilities, as the kernels want them."""
    rng = np.random.default_rng(0)
    return [as_weights(rng.uniform(0.05, 0.95, len(rows))) for rows in encoded.rows]


def _expectation(model: gecasmo.ClickModel, encoded: EncodedLog, threads: int) -> Expectation:
    return Expectation(encoded, model.library(encoded.plan, counting=True), threads=threads)


def kernel_alone(expectation: Expectation, weights: Sequence[Floats]) -> Callable[[], object]:
    """Clear the counts and call the generated kernel, as the hand-written E-steps do."""
    # The arguments of a kernel are nobody's business but the library's, and the benchmark's.
    arguments = expectation._arguments(0, len(expectation.log_likelihood), weights)
    kernel = expectation.library.get("e_step", arguments, "minimal", False)

    def run() -> None:
        for table in expectation.tables:
            table[:] = 0.0
        kernel(*arguments)

    return run


def check_agreement(name: str, generated: Counts, hand: HandEStep) -> None:
    """Refuse to time kernels that do not compute the same."""
    log_likelihood = hand.run()
    if not abs(log_likelihood - generated.log_likelihood) <= AGREEMENT * abs(log_likelihood):
        raise AssertionError(f"{name}: {generated.log_likelihood} against {log_likelihood} by hand")
    for coin, (heads, tails) in enumerate(hand.counts()):
        for mine, theirs in ((generated.heads(coin), heads), (generated.tails(coin), tails)):
            # Counts are sums of differences, so a small one inherits the rounding of large ones.
            np.testing.assert_allclose(
                *(mine, theirs),
                rtol=AGREEMENT,
                atol=AGREEMENT,
                err_msg=f"{name}, counts of coin {coin}",
            )


def check_threads(name: str, one: Counts, two: Counts) -> None:
    same = all(np.array_equal(a, b) for a, b in zip(one.tables, two.tables, strict=True))
    if not same or one.log_likelihood != two.log_likelihood:
        raise AssertionError(f"{name}: one and two threads give different counts")


def encoded_bytes(encoded: EncodedLog) -> int:
    """What the arrays of an encoded log take."""
    page = [encoded.obs, encoded.obs_start, encoded.row_start, encoded.weight]
    page += [encoded.bucket_start, encoded.ranks, encoded.page_of_session]
    arrays = [*page, *encoded.codes, *encoded.first_rows]
    # Arrays that share their memory count once.
    return sum({a.__array_interface__["data"][0]: a.nbytes for a in arrays if a.size}.values())
