"""What is typical of a row: averages of columns over all places where the row stands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.columns import coded
from gecasmo.encoding.encoded import EncodedLog
from gecasmo.errors import ClickLogError, ModelError
from gecasmo.logs import ClickLog

Floats = NDArray[np.float64]

EXPOSURE = "exposure"  # the share of pages on which a row is shown
IMPRESSIONS = "impressions"  # how often a row is shown
PAGES = "*pages*"  # how many pages could have shown it


def row_averages(
    encoded: EncodedLog, coin: str, number: int, keys: Sequence[str], names: Sequence[str]
) -> dict[str, pl.Series]:
    """For each of these names a value per row of a coin.

    "exposure" is the share of the pages that could have shown the row (those of its query, if the
    query is part of the key) on which it is shown, "impressions" how often that is. Of "rank" and
    of columns with numbers it is the mean; other columns must have one value wherever a row stands.
    """
    plan = encoded.plan.coins[number]
    if plan.scope == "global":
        raise ModelError(f"The coin '{coin}' has no rows of its own that {names[0]} could tell.")
    rows = _row_of_result(encoded, number)
    return {name: _typical(encoded, coin, number, keys, name, rows) for name in names}


def _row_of_result(encoded: EncodedLog, number: int) -> NDArray[np.int64]:
    """The row of a coin at each result, in the order of the log's rows."""
    plan, log = encoded.plan.coins[number], known_log(encoded)
    page = encoded.page_of_session[log.page]
    if plan.scope == "page":
        return encoded.page_rows(plan.codes)[page].astype(np.int64)
    place = np.empty(log.n_results, np.int64)
    place[log.order] = np.arange(log.n_results) - np.repeat(log.starts[:-1], log.lengths)
    start = encoded.obs_start if plan.history else encoded.row_start
    return encoded.rows_at(plan.codes, page, start[page] + place).astype(np.int64)


def known_log(encoded: EncodedLog) -> ClickLog:
    """The log that was encoded; averages of its columns cannot do without."""
    assert encoded.log is not None
    return encoded.log


def _typical(
    encoded: EncodedLog,
    coin: str,
    number: int,
    keys: Sequence[str],
    name: str,
    rows: NDArray[np.int64],
) -> pl.Series:
    log, n_rows = known_log(encoded), len(encoded.rows[number])
    weight = log.weight[log.page]
    if name in (EXPOSURE, PAGES):
        exposure, pages = _exposure(encoded, keys, rows, weight, n_rows)
        return pl.Series(name, exposure if name == EXPOSURE else pages)
    if name == IMPRESSIONS:
        return pl.Series(name, np.bincount(rows, weights=weight, minlength=n_rows))
    if name == "rank":
        return pl.Series(name, _means(rows, log.rank.astype(np.float64), weight, n_rows))
    if name not in log.columns:
        raise ClickLogError(
            f"The prior of '{coin}' depends on '{name}', and the log has no such column.\n"
            f"  It has: {', '.join(log.columns)}; there are also {EXPOSURE} and {IMPRESSIONS}."
        )
    column = log.column(name)
    if column.null_count():
        raise ClickLogError(
            f"The prior of '{coin}' depends on '{name}', but {column.null_count():,} of "
            f"{len(column):,} results have no value there."
        )
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        return pl.Series(name, _means(rows, column.cast(pl.Float64).to_numpy(), weight, n_rows))
    codes = coded(log, name, coin)
    example = np.zeros(n_rows, np.int64)
    example[rows] = codes.codes
    if (example[rows] != codes.codes).any():
        raise ModelError(
            f"The prior of '{coin}' depends on '{name}', which is no number and has several values "
            "for the same row."
        )
    return codes.values.gather(pl.Series(example)).alias(name)


def _exposure(
    encoded: EncodedLog, keys: Sequence[str], rows: NDArray[np.int64], weight: Floats, n_rows: int
) -> tuple[Floats, Floats]:
    """For each row the share of pages that show it, and how many pages could have.

    Half a page is added on either side: shown on one page of one is not the same as always.
    """
    log = known_log(encoded)
    shown = np.bincount(rows, weights=weight, minlength=n_rows).astype(np.float64)
    pages = np.full(n_rows, float(log.weight.sum()))
    if "query" in keys and log.has_query:
        query = coded(log, "query", "query")
        firsts = log.order[log.starts[:-1][log.lengths > 0]]
        of_query = np.bincount(query.codes[firsts], weights=log.weight[log.lengths > 0])
        query_of_row = np.zeros(n_rows, np.int64)
        query_of_row[rows] = query.codes
        pages = of_query[query_of_row]
    return smoothed_share(shown, pages), pages


def smoothed_share(shown: Floats | float, pages: Floats) -> Floats:
    """A share of pages, drawn to one half by one page."""
    share: Floats = (shown + 0.5) / (pages + 1.0)
    return share


def _means(rows: NDArray[np.int64], values: Floats, weight: Floats, n_rows: int) -> Floats:
    total = np.bincount(rows, weights=weight * values, minlength=n_rows)
    # Pages that weigh nothing say nothing; their rows stand in the middle.
    count = np.bincount(rows, weights=weight, minlength=n_rows)
    middle = float(np.average(values, weights=weight)) if weight.sum() > 0 else 0.0
    return np.where(count > 0, total / np.maximum(count, 1e-300), middle)
