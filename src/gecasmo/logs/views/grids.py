"""Results that stand in rows and columns, read along the rows, down the columns, or as an F."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError, ModelError
from gecasmo.logs.clicklog import ClickLog
from gecasmo.logs.runs import Integers
from gecasmo.logs.views.view import View, Walks, changes, made, places, runs_within, sorted_rows
from gecasmo.report import counted, listed

ORDERS = ("rows", "columns", "F")
_STRIPES = 2


@dataclass(frozen=True)
class Grids(View):
    """A page as a grid, by the columns `row` and `column` (numbers; smaller is earlier).

    Parameters
    ----------
    order : "rows", "columns" or "F"
        Row by row; column by column, which exchanges what is a row and what a column; or the first
        two rows, then the first column of all others, then the rest row by row.
    """

    order: str = "rows"

    name: ClassVar[str] = "grids"
    guards: ClassVar[tuple[str, ...]] = ("first_in_row", "last_in_row")
    keys: ClassVar[tuple[str, ...]] = ("row", "column")

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise ModelError(f"Grids(order={self.order!r}): {listed(map(repr, ORDERS), 'or')}.")

    @property
    def needs(self) -> tuple[tuple[str, ...], ...]:
        """Where each result stands."""
        return (("row",), ("column",))

    def example(self, page: Integers, rank: Integers) -> dict[str, NDArray[Any]]:
        """Two results a row."""
        return {"row": (rank - 1) // 2, "column": (rank - 1) % 2}

    def walks(self, log: ClickLog) -> Walks:
        """Each page in the order of reading."""
        row, column = (_places(log, name) for name in ("row", "column"))
        if self.order == "columns":
            row, column = column, row
        page = log.page.astype(np.int64)
        by_row = sorted_rows(page, row, column)
        _refuse_shared_cells(log, by_row, page, row, column)
        new_page = changes(page[by_row])
        new_row = new_page | changes(row[by_row])
        ends_row = np.append(new_row[1:], True) if len(new_row) else new_row
        is_first, is_last = np.empty_like(new_row), np.empty_like(new_row)
        is_first[by_row], is_last[by_row] = new_row, ends_row
        rows = by_row
        if self.order == "F":
            line = np.empty(len(page), np.int64)  # of the page, from 0
            line[by_row] = runs_within(new_row, new_page)
            stripe = np.where(line < _STRIPES, 0, np.where(is_first, 1, 2))
            rows = sorted_rows(page, stripe, row, column)
        # The ranks of the page in their order, so that a grid of one column is the page itself.
        rank = log.rank if log.is_sorted else log.rank[log.order]
        return Walks(
            rows=rows,
            starts=log.starts,
            rank=rank,
            first_session=np.arange(log.n_sessions),
            walk_of_session=np.arange(log.n_sessions),
            columns=made({"first_in_row": is_first[rows], "last_in_row": is_last[rows]}),
        )


def _places(log: ClickLog, name: str) -> NDArray[np.int64]:
    """Where results stand along one side of the grid, as whole numbers in the same order."""
    column = log.column(name)
    if not column.dtype.is_numeric():
        raise ClickLogError(
            f"The view 'grids' needs numbers in the column '{name}', which holds {column.dtype}."
        )
    lost = np.flatnonzero((column.is_null() | ~column.cast(pl.Float64).is_finite()).to_numpy())
    if len(lost):
        raise ClickLogError(
            f"The view 'grids' needs the column '{name}' of every result: "
            f"{counted(len(lost), 'result has', 'results have')} no number there (first: "
            f"{places(lost[:1], log)[0]})."
        )
    values = column.to_numpy()  # Polars would not compare small types with large numbers
    ends = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if column.dtype.is_integer() and ends[0] >= -(2**31) and ends[1] <= 2**31:
        return values.astype(np.int64)
    return column.rank("dense").to_numpy().astype(np.int64)


def _refuse_shared_cells(
    log: ClickLog,
    order: NDArray[np.int64],
    page: NDArray[np.int64],
    row: NDArray[np.int64],
    column: NDArray[np.int64],
) -> None:
    is_new = changes(page[order]) | changes(row[order]) | changes(column[order])
    twice = order[~is_new]
    if len(twice):
        raise ClickLogError(
            f"The view 'grids' needs a cell for each result: {counted(len(twice), 'result')} "
            f"{'stands' if len(twice) == 1 else 'stand'} where another one does on the same page "
            f"(first: {places(twice[:1], log)[0]})."
        )
