"""A table whose rows live in files, part by part: the state of a coin with more rows than memory.

All rows of a query are in one part, whose number is the first bits of the query's hash. Every part
is an ordinary table in a file; whatever is asked is asked of the parts that it is about.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.rows import Rows
from gecasmo.errors import ModelError, SavedModelError
from gecasmo.files import whole_file
from gecasmo.forms import saved
from gecasmo.forms.form import Floats
from gecasmo.forms.table_state import TableState, read_rows, state_to_data
from gecasmo.hashes import hash_values

Integers = NDArray[np.int64]

# Columns of expected counts in a part file, beside those of a saved table.
TAILS, HEADS = "*counted tails*", "*counted heads*"
# So many rows at most are kept in memory from one question to the next.
_CACHED_ROWS = 500_000
_OWN = ("_read", "_lock")  # what a copy makes anew

# The rows of some parts as an ordinary state, and their expected tails and heads.
Counted = tuple[TableState, Floats]


@dataclass(frozen=True)
class PartFile:
    """One file of rows, and what has to be known of them without looking.

    Parameters
    ----------
    name : where it is, relative to its folder or zip file
    sha256, size : its content, and how many bytes that is
    n_rows : how many rows it has
    total, lowest, highest : sum and range of their probabilities
    n_given : rows that were given, not estimated
    n_idle : rows that were never flipped and not given either
    """

    name: str
    sha256: str
    size: int
    n_rows: int
    total: float = 0.0
    lowest: float = 1.0
    highest: float = 0.0
    n_given: int = 0
    n_idle: int = 0

    def to_data(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> PartFile:
        """What `to_data` described."""
        name, sha256, told = data["name"], data["sha256"], "'{}' of a part file"
        if not (isinstance(name, str) and isinstance(sha256, str)):
            raise SavedModelError("The name and the sum of a part file are texts.")
        n_rows = saved.whole_number(data["n_rows"], told.format("n_rows"))

        def counted(field: str, most: float = 2.0**53) -> int:
            return saved.whole_number(data[field], told.format(field), most)

        def measured(field: str, most: float = 1.0) -> float:
            return saved.number(data[field], told.format(field), least=0, most=most)

        return cls(
            name,
            sha256,
            counted("size"),
            n_rows,
            measured("total", n_rows),
            measured("lowest"),
            measured("highest"),
            counted("n_given", n_rows),
            counted("n_idle", n_rows),
        )


def part_name(coin: int, part: int) -> str:
    """Where the rows of a coin in one part are, relative to the folder of a model."""
    return f"parted/{coin}/part-{part:05d}.parquet"


def _write_frame(folder: Any, name: str, frame: pl.DataFrame) -> tuple[str, int]:
    """Write a Parquet file, whole or not at all; its SHA-256 and size."""
    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    content = buffer.getbuffer()
    target = Path(folder).expanduser() / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise SavedModelError(
            f"{target.parent} cannot be made: {problem.strerror or problem}."
        ) from problem
    with whole_file(target, SavedModelError) as temporary:
        temporary.write_bytes(content)
    return hashlib.sha256(content).hexdigest(), len(content)


class RowFiles(Protocol):
    """Where part files are."""

    def read(self, name: str) -> bytes:
        """The content of a file; OSError or KeyError if there is none."""

    def where(self, name: str) -> str:
        """The file in words."""


@dataclass(frozen=True)
class FolderSource:
    """Files in a folder."""

    folder: Path

    def read(self, name: str) -> bytes:
        """Read a file of the folder."""
        return (self.folder / name).read_bytes()

    def where(self, name: str) -> str:
        """Name a file, for messages."""
        return str(self.folder / name)


@dataclass(frozen=True)
class ZipSource:
    """Members of a zip file."""

    path: Path

    def read(self, name: str) -> bytes:
        """Read a member of the archive, if it does not unpack to more than it says."""
        with zipfile.ZipFile(self.path) as archive:
            saved.check_packed(self.path, [archive.getinfo(name)])
            return archive.read(name)

    def where(self, name: str) -> str:
        """Name a member, for messages."""
        return f"{name} in {self.path}"


def read_content(source: RowFiles, file: PartFile) -> bytes:
    """The content of a part file, if it is what was written."""
    where = source.where(file.name)
    try:
        content = source.read(file.name)
    except SavedModelError:
        raise
    except Exception as problem:  # zipfile has no list of what a damaged header ends in
        reason = getattr(problem, "strerror", None) or str(problem) or type(problem).__name__
        raise SavedModelError(
            f"{where} cannot be read ({reason}). Rows of this model are there: bring the file "
            "back, or fit again."
        ) from None
    if len(content) != file.size or hashlib.sha256(content).hexdigest() != file.sha256:
        raise SavedModelError(
            f"{where} is damaged: it is not what was written with this model. Bring the right file "
            "back, or fit again."
        )
    return content


def read_frame(source: RowFiles, file: PartFile) -> pl.DataFrame:
    """The rows of a part."""
    frame = saved.read_parquet(read_content(source, file), source.where(file.name))
    if len(frame) != file.n_rows:
        raise SavedModelError(
            f"{source.where(file.name)} has {len(frame):,} rows; {file.n_rows:,} belong there."
        )
    return frame


class PartedTable:
    """The state of a `Table` whose rows are in files.

    Parameters
    ----------
    like : a state of it; what all rows have in common is taken from there, its rows are not
    files : a file for each part, in their order
    source : where these files are
    """

    def __init__(self, like: TableState, files: Sequence[PartFile], source: RowFiles) -> None:
        n_parts = len(files)
        if n_parts < 1 or n_parts & (n_parts - 1):
            raise ModelError(f"A table has 1, 2, 4, 8, ... parts, not {n_parts}.")
        if "query" not in like.rows.keys:
            raise ModelError("Only a table by query can be kept in parts.")
        self.files = tuple(files)
        self.source = source
        self.like = like.of_rows(np.zeros(0, np.int64))
        self._forget()

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns whose values tell rows apart."""
        return self.like.rows.keys

    @property
    def n_parts(self) -> int:
        """Number of files."""
        return len(self.files)

    @property
    def n_rows(self) -> int:
        """Number of rows in all files."""
        return sum(file.n_rows for file in self.files)

    @property
    def has_prior(self) -> bool:
        """Whether rows without data have a probability."""
        return self.like.has_prior

    @property
    def has_given(self) -> bool:
        """Whether some rows were given by the user instead of estimated."""
        return any(file.n_given for file in self.files)

    @property
    def in_files(self) -> PartedTable:
        """Return itself: the rows are in files already."""
        return self

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
    def part(self, number: int) -> Counted:
        """The rows of a part as an ordinary state, and their expected tails and heads."""
        found = self._read.get(number) or self._assembled([number])
        with self._lock:
            self._read[number] = found
            self._read.move_to_end(number)
            while len(self._read) > 1 and (
                sum(state.n_rows for state, _ in self._read.values()) > _CACHED_ROWS
            ):
                self._read.popitem(last=False)
        return found

    def parts(self) -> Iterator[Counted]:
        """All parts, one after the other."""
        return (self._assembled([number]) for number in range(self.n_parts))

    def between(self, first: int, last: int) -> Counted:
        """The parts from `first` up to but not including `last`, as one; nothing of it is kept."""
        if last == first + 1 and first in self._read:
            return self.part(first)
        return self._assembled(range(first, last))

    def whole(self) -> Counted:
        """All rows in memory, which costs as much memory as they take."""
        return self.between(0, self.n_parts)

    def _assembled(self, numbers: Sequence[int]) -> Counted:
        # Parts without rows have nothing to say, perhaps not even all columns.
        filled = [number for number in numbers if self.files[number].n_rows]
        if not filled:
            return self.like, np.zeros((2, 0))
        frames = [read_frame(self.source, self.files[number]) for number in filled]
        frame = frames[0] if len(frames) == 1 else pl.concat(frames)
        try:
            counts = [saved.column(frame, name, "a table", least=0) for name in (TAILS, HEADS)]
            return read_rows(frame, self.like), np.stack(counts)
        except SavedModelError as problem:
            where = self.source.where(self.files[numbers[0]].name)
            raise SavedModelError(f"{where} makes no sense. {problem}") from None

    # -- answers -------------------------------------------------------------------------------
    def ask(self, question: Callable[[TableState, Rows], Any], rows: Rows) -> Any:
        """Answers of the parts that rows belong to, in the order of the rows."""
        if not len(rows):
            return question(self.like, rows)
        if "query" not in rows.keys:  # as a log without results has them: any table will do
            some_part = next((n for n, file in enumerate(self.files) if file.n_rows), 0)
            return question(self.part(some_part)[0], rows)
        places, answers = [], []
        for number, own in self.routed(rows.frame["query"]):
            chosen = pl.Series(own)
            some = Rows(self.keys, [rows.frame[key].gather(chosen) for key in self.keys], len(own))
            places.append(own)
            answers.append(question(self.part(number)[0], some))
        if isinstance(answers[0], tuple):
            return tuple(_put(places, column) for column in zip(*answers, strict=True))
        return _put(places, answers)

    def routed(self, query: pl.Series) -> Iterator[tuple[int, Integers]]:
        """The parts that rows of these queries belong to, each with the places of its rows."""
        part = part_of(query, self.n_parts)
        order = np.argsort(part, kind="stable")
        numbers, starts = np.unique(part[order], return_index=True)
        for number, places in zip(numbers, np.split(order, starts[1:]), strict=False):
            yield int(number), places

    def idle(self, flips: Floats) -> tuple[int, dict[str, Any]]:
        """Count the rows without flips that were not given, and show the first."""
        some = next((number for number, file in enumerate(self.files) if file.n_idle), None)
        if some is None:
            return 0, {}
        state, counts = self.part(some)
        return sum(file.n_idle for file in self.files), state.idle(counts.sum(axis=0))[1]

    def summary(self) -> str:
        """Say in a few words what was learned."""
        words = f"{self.n_rows:,} rows in {self.n_parts:,} parts"
        if self.n_rows:
            words += f", mean {sum(file.total for file in self.files) / self.n_rows:.4f}"
        priors = self.like.priors
        if priors is None:
            return words
        return f"{words}; prior mean {priors.mean:.3f}, worth {priors.strength:.3g} flips"


def _put(places: Sequence[Integers], answers: Sequence[Any]) -> Any:
    """The answers of parts at their places; None if one of them cannot tell."""
    if any(answer is None for answer in answers):
        return None
    # Texts of one part may be longer than those of another.
    whole = np.empty(sum(map(len, places)), np.result_type(*(answer.dtype for answer in answers)))
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


def write_part(folder: Any, coin: int, part: int, state: TableState, counts: Floats) -> PartFile:
    """Write the rows of a coin in one part, whole or not at all.

    Parameters
    ----------
    folder : that of the model; the file is `parted/<coin>/part-<part>.parquet` in it
    coin, part : their numbers
    state : the table with the rows of this part, as if there were no others
    counts : their expected tails and heads
    """
    frame = state_to_data(state)[1]["table"]
    frame = frame.with_columns(pl.Series(TAILS, counts[0]), pl.Series(HEADS, counts[1]))
    name = part_name(coin, part)
    sha256, size = _write_frame(folder, name, frame)
    n_given = 0 if state.is_fixed is None else int(state.is_fixed.sum())
    n_idle, _ = state.idle(counts.sum(axis=0))
    p = state.probability
    ends = (float(p.min()), float(p.max())) if len(p) else (1.0, 0.0)
    return PartFile(name, sha256, size, len(p), float(p.sum()), *ends, n_given, n_idle)
