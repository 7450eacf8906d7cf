"""The log on which rivals were measured (`rivals_arrays.py`), as ClickLogs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from benchmarks.rivals_arrays import CANDIDATES, CONTINUATION, rivals_arrays
from gecasmo import DBN, ClickLog, read_log

# Held-out log-likelihood a page of the best rival at each size, as measured for the design.
BEST_RIVAL = {
    10_000: ("CLAX", -2.6849),
    100_000: ("ClickModels", -2.7571),
    1_000_000: ("CLAX", -2.8232),
}


@dataclass(frozen=True)
class RivalsLog:
    train: ClickLog
    test: ClickLog
    attraction: NDArray[np.float64]  # by pair; a document's number is that of its pair
    satisfaction: NDArray[np.float64]

    def truth(self) -> DBN:
        """The model with the parameters that made the log."""
        pairs = np.arange(len(self.attraction), dtype=np.int32)
        keys = {"query": pairs // CANDIDATES, "doc": pairs}
        return DBN.with_values(
            attraction=pl.DataFrame(keys | {"probability": self.attraction}),
            satisfaction=pl.DataFrame(keys | {"probability": self.satisfaction}),
            continuation=CONTINUATION,
        )


def rivals_log(n_pages: int) -> RivalsLog:
    """Simulate the log of a size, and read it."""
    made = rivals_arrays(n_pages)
    return RivalsLog(
        read_log(made.columns(0, made.n_train)),
        read_log(made.columns(made.n_train, n_pages)),
        made.attraction,
        made.satisfaction,
    )
