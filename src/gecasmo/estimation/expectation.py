"""Run the E-step over a whole log, on threads, with the same sums on any number of them; or over
pages taken apart, to hear what each says of each of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding import EncodedLog
from gecasmo.encoding.encoded import Apart
from gecasmo.encoding.folds import N_BUCKETS
from gecasmo.kernels.library import Library
from gecasmo.kernels.static import static_kernel
from gecasmo.kernels.static.row_grid import gather_columns
from gecasmo.kernels.threads import default_threads, run_jobs

Floats = NDArray[np.float64]

# A factor of the fast kernels is a product of a few weights; each must leave room for the others.
_SMALLEST_FACTOR = 1e-200
# `bucket >> _ONE_TABLE` is 0 for every bucket there can be.
_ONE_TABLE = 62
# Fewer are not worth compiling.
_FEW_PLACES = 20_000


@dataclass
class Counts:
    """Expected heads and tails of every coin: `tables[coin][side, row]`, side 1 is heads.

    Counts of two sets of pages add up to the counts of their union.
    """

    tables: list[Floats]
    log_likelihood: float
    n_impossible: int

    def heads(self, coin: int) -> Floats:
        """Expected heads of each row of a coin."""
        heads: Floats = self.tables[coin][1]
        return heads

    def tails(self, coin: int) -> Floats:
        """Expected tails of each row of a coin."""
        tails: Floats = self.tables[coin][0]
        return tails


class Expectation:
    """The E-step of one encoded log; keeps its scratch arrays between calls.

    `counts_unflipped` are coins of which every result counts as often as it can flip them, whether
    it did or not (see `regularised.py`).
    """

    counts_unflipped: frozenset[int] = frozenset()

    def __init__(
        self,
        encoded: EncodedLog,
        library: Library,
        augmentation: str = "minimal",
        with_missing: bool = False,
        threads: int | None = None,
    ) -> None:
        self.encoded = encoded
        self.library = library
        self.augmentation = augmentation
        self.with_missing = with_missing
        self.machine = library.structure.machine(augmentation, with_missing)
        self.scale = 1.0  # how much more a log weighs of which these pages are a sample
        self.is_small = library.is_small(augmentation, with_missing)
        self.tables: list[Floats] = [
            np.zeros((N_BUCKETS >> shift, 2, len(rows)))
            for shift, rows in zip(encoded.shifts, encoded.rows, strict=True)
        ]
        self.careful = np.zeros(max(encoded.n_pages, 1), np.uint8)
        self.log_likelihood = np.zeros(N_BUCKETS)
        self.n_impossible = np.zeros(N_BUCKETS, np.int64)
        self.n_unshowable = self._count_unshowable()
        self.ranges = self._ranges(threads or default_threads())
        n_literals = [len(e.literals) for s in self.machine.steps() for o in s.edges for e in o]
        self.smallest = _SMALLEST_FACTOR ** (1 / max(1, *n_literals, 1))

    def sample(self, n_pages: int) -> tuple[int, float]:
        """How many buckets hold at least so many pages, and how much more the whole log weighs.

        Buckets are hashes of queries, so the first few are a random sample of these.
        """
        starts = self.encoded.bucket_start
        if self.encoded.n_pages <= 2 * n_pages:
            return N_BUCKETS, self.scale
        unit = self._unit()
        n_buckets = min(N_BUCKETS, -(-int(np.searchsorted(starts, n_pages)) // unit) * unit)
        part = float(self.encoded.weight[: starts[n_buckets]].sum())
        if not part > 0:  # only pages that weigh nothing: look at all
            return N_BUCKETS, self.scale
        return n_buckets, self.scale * float(self.encoded.weight.sum()) / part

    def settle(self, weights: Sequence[Floats]) -> None:
        """Find what else expected counts depend on, before EM looks at new weights: nothing."""

    def run(self, weights: Sequence[Floats], n_buckets: int = N_BUCKETS) -> Counts:
        """Expected counts at these weights, `weights[coin][side, row]`; of all buckets, or of the
        first few."""
        return self._counted(weights, n_buckets)

    def draw(self, weights: Sequence[Floats], key: int) -> Counts:
        """Counts of one hidden path of each page, drawn at random: the same for the same key. Pages
        have to weigh whole numbers, and are drawn so many times."""
        return self._counted(weights, N_BUCKETS, key)

    def _counted(self, weights: Sequence[Floats], n_buckets: int, key: int | None = None) -> Counts:
        self._empty_tables()
        self.log_likelihood[:] = 0.0
        self.n_impossible[:] = 0
        if self.n_unshowable:
            # No probabilities can make these pages possible, and kernels do not look for them.
            self.n_impossible[0] = self.n_unshowable
        else:
            ranges = [(a, min(b, n_buckets)) for a, b in self.ranges if a < n_buckets]
            jobs = [self._arguments(first, last, weights) for first, last in ranges]
            if key is None:
                self._run(weights, self.careful, jobs)
            else:
                with np.errstate(over="ignore"):  # of kernels that are run as plain Python
                    keyed = [[*job, np.uint64(key)] for job in jobs]
                    self._run(weights, self.careful, keyed, "draw")
        return Counts(
            [table[0] if len(table) == 1 else table.sum(axis=0) for table in self.tables],
            float(self.log_likelihood.sum()),
            int(self.n_impossible.sum()),
        )

    def run_apart(
        self, apart: Apart, weights: Sequence[Floats], times: Floats | None = None
    ) -> tuple[list[Floats], Floats]:
        """What each of some pages, taken apart, says of each of its rows.

        Expected counts of every coin at every place, `[side, place]`, and each page's
        log-likelihood; `weights[coin][side, place]` as `weights_apart` gives them. Pages count
        once, or so many `times`.
        """
        n_pages = apart.n_pages
        times = np.ones(n_pages) if times is None else times
        tables = [np.zeros((1, 2, w.shape[1])) for w in weights]
        log_likelihood, n_impossible = np.zeros(n_pages), np.zeros(n_pages, np.int64)
        careful = np.zeros(max(n_pages, 1), np.uint8)
        arguments = [
            *[0, n_pages, np.arange(n_pages + 1), apart.obs_start, apart.obs_start[:-1].copy()],
            *[apart.obs, times, *apart.codes_arguments(), *weights, *tables],
            *[_ONE_TABLE] * len(weights),
            *[log_likelihood, n_impossible, careful, apart.max_length],
        ]
        self._run(weights, careful, [arguments])
        log_likelihood[n_impossible > 0] = -np.inf
        return [table[0] for table in tables], log_likelihood

    def weights_apart(self, apart: Apart, weights: Sequence[Floats]) -> list[Floats]:
        """The weights of all coins, a column for every place of pages taken apart."""
        plans = self.encoded.plan.coins
        return [
            w if plan.scope == "global" else columns(w, apart.rows[plan.codes])
            for plan, w in zip(plans, weights, strict=True)
        ]

    def _empty_tables(self) -> None:
        """Tables for new counts. One that all buckets share is handed out, not copied; memory that
        is new comes empty, and only where the kernels write does it cost anything."""
        for number, table in enumerate(self.tables):
            if len(table) == 1:
                self.tables[number] = np.zeros(table.shape)
            else:
                table[:] = 0.0

    def _count_unshowable(self) -> int:
        """Pages that show something which no edge can show."""
        unshowable = self.encoded.obs >= self.machine.first_impossible
        pages = np.searchsorted(self.encoded.obs_start, np.flatnonzero(unshowable), side="right")
        return len(np.unique(pages))

    def has_tiny(self, weights: Sequence[Floats]) -> bool:
        """Whether some weight is too small for the fast kernels, but not 0."""
        return any(
            w.min(initial=1.0) < self.smallest and bool(np.any((w > 0) & (w < self.smallest)))
            for w in weights
        )

    @property
    def has_whole_weights(self) -> bool:
        """Whether all pages weigh whole numbers, so that each can be drawn so many times."""
        return bool((self.encoded.weight == np.round(self.encoded.weight)).all())

    def _run(
        self,
        weights: Sequence[Floats],
        careful: NDArray[np.uint8],
        jobs: Sequence[list[Any]],
        name: str = "e_step",
    ) -> None:
        """Run the fast kernel, if weights allow it, and the scaled one on pages that it leaves."""
        is_fast = (self.is_small or name == "e_step") and not self.has_tiny(weights)
        careful[:] = not is_fast
        for kernel in (name, f"{name}_scaled") if is_fast else (f"{name}_scaled",):
            if kernel == name or careful.any():
                run_jobs(
                    self.library.get(kernel, jobs[0], self.augmentation, self.with_missing), jobs
                )

    def _arguments(self, first: int, last: int, weights: Sequence[Floats]) -> list[Any]:
        encoded = self.encoded
        return [
            *[first, last, encoded.bucket_start, encoded.obs_start, encoded.row_start],
            *[encoded.obs, encoded.weight, *encoded.codes_arguments(), *weights, *self.tables],
            *encoded.shifts,
            *[self.log_likelihood, self.n_impossible, self.careful, encoded.max_length],
        ]

    def _unit(self) -> int:
        """How many buckets at most share a table of counts."""
        return 1 << max((shift for shift in self.encoded.shifts if shift < 8), default=0)

    def _ranges(self, threads: int) -> list[tuple[int, int]]:
        """Ranges of buckets of about equal work; buckets that share a table stay together."""
        unit = self._unit()
        starts = self.encoded.obs_start[self.encoded.bucket_start]
        borders = np.arange(0, N_BUCKETS + 1, unit)
        pieces = 1 if threads == 1 or self.encoded.n_results < 20_000 else 2 * threads
        wanted = np.linspace(0, starts[-1], pieces + 1)[1:-1]
        cuts = borders[np.searchsorted(starts[borders], wanted)]
        edges = sorted({0, N_BUCKETS, *map(int, cuts)})
        return list(pairwise(edges))


def columns(table: Floats, rows: NDArray[np.uint32]) -> Floats:
    """The columns of a table of two lines that stand at some rows."""
    if len(rows) < _FEW_PLACES:
        return np.take(table, rows, axis=1)
    out = np.empty((2, len(rows)))
    arguments = (rows, table, out)
    static_kernel(gather_columns, arguments)(*arguments)
    return out
