"""Run a page kernel of a model over a log and put the answers into the order of its rows."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding import EncodedLog, Rows
from gecasmo.encoding.lift import history_of, lift
from gecasmo.estimation.problem import as_weights
from gecasmo.forms import Form, FormState
from gecasmo.kernels.library import LIFTED_KERNELS
from gecasmo.kernels.running import default_threads, run_jobs
from gecasmo.logs import ClickLog

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]


class PageRun:
    """One log under one kernel, with the weights of all coins.

    `states` are those of the model unless others are given. `encoded` saves work where another
    kernel on the same automaton has encoded the log already and no coin depends on clicks above.
    `counting` runs on the automaton that fits run on.
    """

    def __init__(
        self,
        model: Model,
        log: ClickLog,
        kernel: str,
        states: Mapping[str, FormState] | None = None,
        merge: bool = True,
        threads: int | None = None,
        encoded: EncodedLog | None = None,
        counting: bool = False,
    ) -> None:
        self.model, self.log, self.kernel = model, log, kernel
        self.states = model.states(whole=False) if states is None else states
        self.threads = threads or default_threads()
        if encoded is None:
            lifted = kernel in LIFTED_KERNELS
            encoded = model.encode(log, kernel, merge=merge, lifted=lifted, counting=counting)
        self.counting = counting
        self.encoded = encoded
        self.rank_size = int(log.rank.max(initial=0)) + 1
        self.count_size = int(log.lengths.max(initial=0)) + 1
        self.weights = self._weights()

    def run(self, *outputs: Any) -> None:
        """Fill the output arrays of the kernel."""
        encoded = self.encoded
        lift = []
        if self.kernel in LIFTED_KERNELS:
            lift = [encoded.ranks, self.rank_size, self.count_size]
        jobs = [
            [*encoded.page_arguments(first, last), *self.weights, *lift, *outputs]
            for first, last in self._ranges()
        ]
        library = self.model.library(encoded.plan, self.counting)
        run_jobs(library.get(self.kernel, jobs[0], "minimal", False), jobs)

    def results(self, answers: NDArray[Any]) -> NDArray[Any]:
        """Answers per encoded result, in the order of the log's rows."""
        return answers[self.encoded.result_places()]

    def sessions(self, answers: NDArray[Any]) -> NDArray[Any]:
        """Answers per encoded page, in the order of the log's sessions."""
        return answers[self.encoded.page_of_session]

    def _ranges(self) -> list[tuple[int, int]]:
        starts = self.encoded.obs_start
        pieces = 1 if self.encoded.n_results < 20_000 else 2 * self.threads
        wanted = np.linspace(0, starts[-1], pieces + 1)[1:-1]
        cuts = np.searchsorted(starts, wanted)
        borders = sorted({0, self.encoded.n_pages, *map(int, cuts)})
        return list(pairwise(borders)) or [(0, 0)]

    def _weights(self) -> list[Floats]:
        weights = []
        for (coin, form), rows in zip(self.model.forms.items(), self.encoded.rows, strict=True):
            if (
                self.kernel in LIFTED_KERNELS
                and self.log.n_results
                and history_of(self.model.keys[coin])
            ):
                weights.append(self._lifted_weights(coin, form, rows))
            else:
                weights.append(as_weights(self._predict(coin, form, rows)))
        return weights

    def _predict(self, coin: str, form: Form, rows: Rows) -> Floats:
        return np.ascontiguousarray(form.predict(self.states[coin], rows), dtype=np.float64)

    def _lifted_weights(self, coin: str, form: Form, rows: Rows) -> Floats:
        """The weights of every row under every click history it could meet."""
        sizes = {
            "last_click": self.rank_size,
            "distance": self.rank_size,
            "clicks_above": self.count_size,
        }
        keys = self.model.keys[coin]
        n_histories = int(np.prod([sizes[key] for key in history_of(keys)]))
        weights = np.empty((2, max(len(rows), 1) * n_histories))
        for place, part in lift(rows, keys, sizes):
            weights[:, place] = as_weights(self._predict(coin, form, part))
        return weights


def result_frame(log: ClickLog) -> pl.DataFrame:
    """The columns that say which result a row of an answer is about."""
    names = [name for name in ("session", "query", "doc", "rank", "click") if name in log.columns]
    return pl.DataFrame([log.column(name).alias(name) for name in names])
