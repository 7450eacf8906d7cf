"""Time contestants in turns, so that a busy moment of the machine hits all of them."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import NamedTuple


class Seconds(NamedTuple):
    """The median of all rounds; the best is what the machine can do when nobody disturbs it."""

    median: float
    best: float


def time_in_turns(
    contestants: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Seconds]:
    """Seconds of each contestant, after one run that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for run in contestants.values():
        run()
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, run in contestants.items():
                began = clock()
                run()
                seconds[name].append(clock() - began)
    finally:
        gc.enable()
    return {name: Seconds(median(listed), min(listed)) for name, listed in seconds.items()}
