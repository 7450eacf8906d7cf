"""A table whose rows live in files, part by part: the state of a coin with more rows than memory.

All rows of a query are in one part, whose number is the first bits of the query's hash. Every part
is an ordinary table in a file; whatever is asked is asked of the parts that it is about.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError, SavedModelError
from gecasmo.forms.form import Floats
from gecasmo.forms.parted_files import (
    FolderSource,
    PartFile,
    RowFiles,
    part_name,
    read_frame,
    write_frame,
)
from gecasmo.forms.table import Table
from gecasmo.forms.table_file import from_data, to_data
from gecasmo.forms.table_state import TableState
from gecasmo.hashes import hash_values

Integers = NDArray[np.int64]

# Columns of expected counts in a part file, beside those of a saved table.
TAILS, HEADS = "*counted tails*", "*counted heads*"
# So many rows at most are kept in memory from one question to the next.
_CACHED_ROWS = 500_000
_OWN = ("_read", "_lock")  # what a copy makes anew


@dataclass(frozen=True)
class Counted:
    """A part that was read: its rows as an ordinary state, and their expected tails and heads."""

    state: TableState
    counts: Floats


class PartedTable:
    """The state of a `Table` whose rows are in files.

    Parameters
    ----------
    form : the table
    like : a state of it; what all rows have in common is taken from there, its rows are not
    files : a file for each part, in their order
    source : where these files are
    """

    def __init__(
        self, form: Table, like: TableState, files: Sequence[PartFile], source: RowFiles
    ) -> None:
        n_parts = len(files)
        if n_parts < 1 or n_parts & (n_parts - 1):
            raise ModelError(f"A table has 1, 2, 4, 8, ... parts, not {n_parts}.")
        if "query" not in like.rows.keys:
            raise ModelError("Only a table by query can be kept in parts.")
        self.form = form
        self.files = tuple(files)
        self.source = source
        self.like = _without_rows(like)
        self._forget()

    @classmethod
    def open(
        cls, folder: Any, form: Table, like: TableState, files: Sequence[PartFile]
    ) -> PartedTable:
        """The table in a folder that `write_part` has filled."""
        return cls(form, like, files, FolderSource(Path(folder).expanduser()))

    @property
    def keys(self) -> tuple[str, ...]:
        return self.like.rows.keys

    @property
    def n_parts(self) -> int:
        return len(self.files)

    @property
    def n_rows(self) -> int:
        return sum(file.n_rows for file in self.files)

    @property
    def n_given(self) -> int:
        """How many rows were given, not estimated."""
        return sum(file.n_given for file in self.files)

    def __repr__(self) -> str:
        return f"PartedTable({self.n_rows:,} rows by {', '.join(self.keys)}, {self.n_parts} parts)"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in _OWN}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def _forget(self) -> None:
        self._read: OrderedDict[int, Counted] = OrderedDict()
        self._lock = Lock()

    # -- rows ----------------------------------------------------------------------------------
    def part(self, number: int) -> tuple[TableState, Floats]:
        """The rows of a part as an ordinary state, and their expected tails and heads."""
        found = self._read.get(number) or self._assembled([number])
        with self._lock:
            self._read[number] = found
            self._read.move_to_end(number)
            while len(self._read) > 1 and sum(map(_n_rows, self._read.values())) > _CACHED_ROWS:
                self._read.popitem(last=False)
        return found.state, found.counts

    def parts(self) -> Iterator[tuple[TableState, Floats]]:
        """All parts, one after the other."""
        for number in range(self.n_parts):
            found = self._assembled([number])
            yield found.state, found.counts

    def between(self, first: int, last: int) -> tuple[TableState, Floats]:
        """The parts from `first` up to but not including `last`, as one; nothing of it is kept."""
        if last == first + 1 and first in self._read:
            return self.part(first)
        found = self._assembled(range(first, last))
        return found.state, found.counts

    def whole(self) -> tuple[TableState, Floats]:
        """All rows in memory, which costs as much memory as they take."""
        return self.between(0, self.n_parts)

    def _assembled(self, numbers: Sequence[int]) -> Counted:
        # Parts without rows have nothing to say, perhaps not even all columns.
        filled = [number for number in numbers if self.files[number].n_rows]
        if not filled:
            return Counted(self.like, np.zeros((2, 0)))
        frames = [read_frame(self.source, self.files[number]) for number in filled]
        frame = frames[0] if len(frames) == 1 else pl.concat(frames)
        where = self.source.where(self.files[numbers[0]].name)
        data, others = to_data(self.form, self.like)
        lost = {*self.keys, "probability", TAILS, HEADS} - set(frame.columns)
        if self.like.priors is not None:
            lost |= {"*prior heads*", "*prior tails*"} - set(frame.columns)
        if lost:
            raise SavedModelError(f"{where} lacks {', '.join(sorted(lost))}.")
        try:
            _, state = from_data(type(self.form), data, {**others, "table": frame})
        except ModelError as problem:
            raise SavedModelError(f"{where} makes no sense ({problem}).") from None
        return Counted(state, frame.select(TAILS, HEADS).to_numpy().T.copy())

    # -- answers -------------------------------------------------------------------------------
    def predict(self, rows: Rows) -> Floats:
        """The probability of each row, also of rows never seen."""
        (found,) = self._asked(rows, lambda state, some: (self.form.predict(state, some),))
        return np.asarray(found, np.float64)

    def known(self, rows: Rows) -> NDArray[np.bool_]:
        """Which rows are there."""
        (found,) = self._asked(rows, lambda state, some: (self.form.known(state, some),))
        return np.asarray(found, bool)

    def unseen(self, rows: Rows) -> tuple[Floats, Floats | None, NDArray[np.str_]]:
        """What is believed of rows that the fit had no part of."""
        mean, spread, told = self._asked(rows, self.form.unseen)
        return mean, spread, told

    def summary(self) -> str:
        """A few words for `print(model)`."""
        words = f"{self.n_rows:,} rows in {self.n_parts:,} parts"
        if self.n_rows:
            words += f", mean {sum(file.total for file in self.files) / self.n_rows:.4f}"
        priors = self.like.priors
        if priors is None:
            return words
        return f"{words}; prior mean {priors.mean:.3f}, worth {priors.strength:.3g} flips"

    def penalty(self) -> float:
        """What the rows add to the objective."""
        return sum(self.form.penalty(state) for state, _ in self.parts())

    def remarks(self) -> list[str]:
        """What a user should know about a finished fit."""
        idle = [number for number, file in enumerate(self.files) if file.n_idle]
        if not idle or np.any(np.add(*self.like.pseudo) > 0) or self.like.priors is not None:
            return []
        state, counts = self.part(idle[0])
        never = counts.sum(axis=0) <= 0
        if state.is_fixed is not None:
            never &= ~state.is_fixed
        row = state.rows.frame.row(int(np.argmax(never)))
        return [
            f"{sum(file.n_idle for file in self.files):,} of {self.n_rows:,} rows were never "
            f"flipped and, without pseudo-counts, keep their start value {self.form.start:g} "
            f"(first: {dict(zip(self.keys, row, strict=True))})"
        ]

    def _asked(self, rows: Rows, ask: Callable[[TableState, Rows], Any]) -> list[Any]:
        """Answers of the parts that rows belong to, in the order of the rows."""
        if not len(rows):
            return list(ask(self.like, rows))
        if "query" not in rows.keys:  # as a log without results has them: any table will do
            some_part = next((n for n, file in enumerate(self.files) if file.n_rows), 0)
            return list(ask(self.part(some_part)[0], rows))
        places, answers = [], []
        for number, own in self.routed(rows.frame["query"]):
            chosen = pl.Series(own)
            some = Rows(self.keys, [rows.frame[key].gather(chosen) for key in self.keys], len(own))
            places.append(own)
            answers.append(ask(self.part(number)[0], some))
        return [_put(places, column) for column in zip(*answers, strict=True)]

    def routed(self, query: pl.Series) -> Iterator[tuple[int, Integers]]:
        """The parts that rows of these queries belong to, each with the places of its rows."""
        part = part_of(query, self.n_parts)
        order = np.argsort(part, kind="stable")
        numbers, starts = np.unique(part[order], return_index=True)
        for number, places in zip(numbers, np.split(order, starts[1:]), strict=False):
            yield int(number), places


def _put(places: Sequence[Integers], answers: Sequence[Any]) -> Any:
    """The answers of parts at their places; None if one of them cannot tell."""
    if any(answer is None for answer in answers):
        return None
    # Texts of one part may be longer than those of another.
    dtype = np.result_type(*(answer.dtype for answer in answers))
    whole = np.empty(sum(map(len, places)), dtype)
    for own, answer in zip(places, answers, strict=True):
        whole[own] = answer
    return whole


def part_of(query: pl.Series, n_parts: int) -> Integers:
    """The part that the rows of each query are in."""
    if n_parts == 1 or not len(query):
        return np.zeros(len(query), np.int64)
    distinct = query.unique(maintain_order=True)
    shift = np.uint64(64 - (n_parts.bit_length() - 1))
    part = (hash_values(distinct) >> shift).astype(np.int64)
    if len(distinct) == len(query):
        return part
    known = pl.DataFrame([distinct.alias("query"), pl.Series("part", part)])
    joined = (
        query.alias("query")
        .to_frame()
        .join(known, on="query", how="left", maintain_order="left", nulls_equal=True)
    )
    return joined["part"].to_numpy().astype(np.int64)


def write_part(
    folder: Any, coin: int, part: int, form: Table, state: TableState, counts: Floats
) -> PartFile:
    """Write the rows of a coin in one part, whole or not at all.

    Parameters
    ----------
    folder : that of the model; the file is `parted/<coin>/part-<part>.parquet` in it
    coin, part : their numbers
    form, state : the table with the rows of this part, as if there were no others
    counts : their expected tails and heads
    """
    frame = to_data(form, state)[1]["table"]
    frame = frame.with_columns(pl.Series(TAILS, counts[0]), pl.Series(HEADS, counts[1]))
    name = part_name(coin, part)
    sha256, size = write_frame(folder, name, frame)
    n_given = 0 if state.is_fixed is None else int(state.is_fixed.sum())
    is_idle = counts.sum(axis=0) <= 0
    if state.is_fixed is not None:
        is_idle &= ~state.is_fixed
    p = state.probability
    ends = (float(p.min()), float(p.max())) if len(p) else (1.0, 0.0)
    return PartFile(name, sha256, size, len(p), float(p.sum()), *ends, n_given, int(is_idle.sum()))


def split_table(
    folder: Any, coin: int, form: Table, state: TableState, counts: Floats | None, n_parts: int
) -> PartedTable:
    """Put a table that is in memory into files."""
    if counts is None:
        counts = np.zeros((2, len(state.rows)))
    part = part_of(state.rows.frame["query"], n_parts)
    files = []
    for number in range(n_parts):
        rows = np.flatnonzero(part == number)
        some = _some_rows(state, rows)
        files.append(write_part(folder, coin, number, form, some, counts[:, rows]))
    return PartedTable.open(folder, form, state, files)


def _some_rows(state: TableState, places: Integers) -> TableState:
    """A state of these rows only."""

    def of(values: Any) -> Any:
        return None if values is None else values[..., places]

    frame = state.rows.frame
    chosen = pl.Series(places)
    columns = [frame[key].gather(chosen) for key in state.rows.keys]
    typical, leans = state.typical, state.leans
    return replace(
        state,
        rows=Rows(state.rows.keys, columns, len(places)),
        probability=of(state.probability),
        is_fixed=of(state.is_fixed),
        pseudo=of(state.pseudo) if isinstance(state.pseudo, np.ndarray) else state.pseudo,
        spread=of(state.spread),
        centre=of(state.centre),
        evidence=of(state.evidence),
        typical=None if typical is None else {name: of(own) for name, own in typical.items()},
        leans=None if leans is None else {name: of(own) for name, own in leans.items()},
    )


def _without_rows(state: TableState) -> TableState:
    return _some_rows(state, np.zeros(0, np.int64))


def _n_rows(found: Counted) -> int:
    return len(found.state.rows)
