"""From the rows of a data frame to the partitions of a log: what executors do.

All pages of a query go to one partition, whose number is the first bits of the query's hash, as in
a log that is stored on disk.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError
from gecasmo.forms.parted_table import part_of
from gecasmo.logs import ClickLog
from gecasmo.logs.assembling import assemble
from gecasmo.logs.faults import Faults
from gecasmo.logs.roles import Given, Roles

# So many rows are cut at once: pieces for many partitions should not be tiny.
_ROWS_AT_ONCE = 500_000

# The column of sessions that have no ids of their own; they are numbered as in a stored log.
NUMBERED = "*session*"
_NUMBERS_IN_PART = 2**32

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Reading:
    """How rows become a log.

    Parameters
    ----------
    roles : the columns by role, as `read_log` takes them
    by : the columns whose value decides the partition
    order : columns by which rows of a partition are put into an order of their own
    n_parts : how many partitions there are, a power of two
    shift : what is added to ranks, if they begin at 0
    is_struct : whether `by` are the parts of one id
    """

    roles: Mapping[str, Given]
    by: tuple[str, ...]
    order: tuple[str, ...]
    n_parts: int = 1
    shift: int = 0
    is_struct: bool = False

    def values(self, frame: pl.DataFrame) -> pl.Series:
        """What decides the partition of each row."""
        if self.is_struct:
            return frame.select(pl.struct(self.by)).to_series()
        return frame[self.by[0]]

    def part_numbers(self, frame: pl.DataFrame) -> Integers:
        """The partition of each row."""
        return part_of(self.values(frame), self.n_parts)

    def cut(self, batches: Iterable[Any]) -> Iterator[tuple[int, bytes]]:
        """Rows as pieces for partitions, each with its number."""
        waiting: list[pl.DataFrame] = []
        n_waiting = 0
        for batch in batches:
            frame = pl.DataFrame(pl.from_arrow(batch))
            waiting.append(frame)
            n_waiting += len(frame)
            if n_waiting >= _ROWS_AT_ONCE:
                yield from self._pieces(pl.concat(waiting))
                waiting, n_waiting = [], 0
        if n_waiting:
            yield from self._pieces(pl.concat(waiting))

    def _pieces(self, frame: pl.DataFrame) -> Iterator[tuple[int, bytes]]:
        part = self.part_numbers(frame)
        order = np.argsort(part, kind="stable")
        ordered = frame.select(pl.all().gather(pl.Series(order)))
        numbers, starts = np.unique(part[order], return_index=True)
        ends = [*starts[1:], len(order)]
        for number, start, end in zip(numbers, starts, ends, strict=True):
            buffer = io.BytesIO()
            ordered.slice(int(start), int(end - start)).write_ipc(buffer)
            yield int(number), buffer.getvalue()

    def table(self, pieces: Iterable[bytes]) -> pl.DataFrame | None:
        """The rows of a partition in an order that depends on nothing but themselves.

        Spark brings pieces in any order, and in another one when a partition has to be made anew.
        """
        frames = [pl.read_ipc(io.BytesIO(piece)) for piece in pieces]
        if not frames:
            return None
        frame = pl.concat(frames)
        first = [name for name in self.order if name in frame.columns]
        others = [name for name in frame.columns if name not in first]
        return frame.sort([*first, *others], nulls_last=True)

    def log(self, table: pl.DataFrame, number: int) -> ClickLog:
        """The rows of a partition as a log, with all checks of `read_log`."""
        roles = Roles(self.roles)
        (rank,) = roles.columns["rank"] or ("",)
        if self.shift and rank in table.columns:
            dtype = table.schema[rank]
            moved = pl.col(rank) + self.shift
            if isinstance(dtype, pl.List):
                moved = pl.col(rank).list.eval(pl.element() + self.shift)
            table = table.with_columns(moved.cast(dtype))
        if self.roles["session"] == NUMBERED:
            numbers = number * _NUMBERS_IN_PART + np.arange(len(table))
            table = table.with_columns(pl.Series(NUMBERED, numbers))
        label = "the Spark data frame"
        if self.n_parts > 1:
            label = f"the Spark data frame (partition {number}, rows counted there)"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the driver tells the notes of all partitions
            return assemble(table, roles, Faults(label))


def check_parts(n_parts: object) -> int:
    """A number of partitions, or a clear refusal."""
    is_whole = isinstance(n_parts, int) and not isinstance(n_parts, bool)
    if not (isinstance(n_parts, int) and is_whole and 1 <= n_parts <= 2**16):
        raise ClickLogError(f"partitions={n_parts!r}: 1, 2, 4, 8, ... up to 65536.")
    if n_parts & (n_parts - 1):
        raise ClickLogError(
            f"partitions={n_parts}: a power of two is wanted, such as "
            f"{1 << n_parts.bit_length()}, since partitions are the first bits of a hash."
        )
    return n_parts
