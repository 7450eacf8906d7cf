"""The memory-streaming limit: how long it takes to read once what an E-step has to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numba
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gecasmo.encoding import EncodedLog


@numba.njit(nogil=True)
def _sum_words(words):
    total = np.uint64(0)
    for word in words:
        total += word
    return total


def streamed_arrays(
    encoded: EncodedLog, tables: Sequence[NDArray[np.float64]]
) -> list[NDArray[np.generic]]:
    """Row numbers, observations, page borders, and the tables of probabilities and counts."""
    return [*encoded.codes, *encoded.first_rows, encoded.obs, encoded.obs_start, *tables]


def streaming(arrays: Sequence[NDArray[np.generic]]) -> Callable[[], None]:
    """Read all arrays once, as 64-bit words."""
    words = []
    for array in arrays:
        flat = array.reshape(-1).view(np.uint8)
        words.append(flat[: len(flat) // 8 * 8].view(np.uint64))

    def run() -> None:
        for part in words:
            _sum_words(part)

    return run
