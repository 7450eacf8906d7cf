"""Run the E-step on pages taken apart: what each page says of each of its rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding.encoded import Apart
from gecasmo.estimation.expectation import Expectation
from gecasmo.kernels.static import static_kernel
from gecasmo.kernels.static.row_grid import gather_columns

Floats = NDArray[np.float64]

# `bucket >> _ONE_TABLE` is 0 for every bucket there can be.
_ONE_TABLE = 62
# Fewer are not worth compiling.
_FEW_PLACES = 20_000


def run_apart(
    expectation: Expectation,
    apart: Apart,
    weights: Sequence[Floats],
    times: Floats | None = None,
) -> tuple[list[Floats], Floats]:
    """Expected counts of every coin at every place, `[side, place]`, and each page's
    log-likelihood; `weights[coin][side, place]` as `weights_apart` gives them. Pages count once, or
    so many `times`."""
    n_pages = apart.n_pages
    if times is None:
        times = np.ones(n_pages)
    tables = [np.zeros((1, 2, w.shape[1])) for w in weights]
    log_likelihood = np.zeros(n_pages)
    n_impossible = np.zeros(n_pages, np.int64)
    careful = np.zeros(max(n_pages, 1), np.uint8)
    arguments = [
        *[0, n_pages, np.arange(n_pages + 1), apart.obs_start, apart.obs_start[:-1].copy()],
        *[apart.obs, times, *apart.codes_arguments(), *weights, *tables],
        *[_ONE_TABLE] * len(weights),
        *[log_likelihood, n_impossible, careful, apart.max_length],
    ]
    kernels = ["e_step", "e_step_scaled"]
    if not expectation.is_small or expectation.has_tiny(weights):
        careful[:] = 1
        kernels = ["e_step_scaled"]
    for kernel in kernels:
        if kernel == "e_step_scaled" and not careful.any():
            continue
        call = expectation.library.get(
            kernel, arguments, expectation.augmentation, expectation.with_missing
        )
        call(*arguments)
    log_likelihood[n_impossible > 0] = -np.inf
    return [table[0] for table in tables], log_likelihood


def weights_apart(
    expectation: Expectation, apart: Apart, weights: Sequence[Floats]
) -> list[Floats]:
    """The weights of all coins, a column for every place."""
    plans = expectation.encoded.plan.coins
    return [
        w if plan.scope == "global" else _columns(w, apart.rows[plan.codes])
        for plan, w in zip(plans, weights, strict=True)
    ]


def _columns(table: Floats, rows: NDArray[np.uint32]) -> Floats:
    """These columns of a table of two lines."""
    if len(rows) < _FEW_PLACES:
        return np.take(table, rows, axis=1)
    out = np.empty((2, len(rows)))
    arguments = (rows, table, out)
    static_kernel(gather_columns, arguments)(*arguments)
    return out
