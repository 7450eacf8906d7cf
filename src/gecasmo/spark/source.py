"""A Spark data frame as a click log: which columns, which partitions, and what must hold for the
log as a whole.

All pages of a query go to one partition, whose number is the first bits of the query's hash, as in
a log that is stored on disk. `FrameReading` is what executors do to cut rows into partitions.
"""

from __future__ import annotations

import importlib
import io
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import ClickLogError, ClickLogWarning
from gecasmo.forms.parted_table import part_of
from gecasmo.logs import ClickLog
from gecasmo.logs.assembly import assemble
from gecasmo.logs.notes import Faults
from gecasmo.logs.roles import Given, Roles
from gecasmo.model.base import Model
from gecasmo.spark.messages import ANSWERS, collected, hearing, record, telling
from gecasmo.spark.session import quiet
from gecasmo.spark.shipped_model import columns_read

# So many rows are cut at once: pieces for many partitions should not be tiny.
_ROWS_AT_ONCE = 500_000

# The column of sessions that have no ids of their own; they are numbered as in a stored log.
NUMBERED = "*session*"
_NUMBERS_IN_PART = 2**32

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class FrameReading:
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

    def table(self, pieces: Iterable[bytes]) -> pl.DataFrame:
        """The rows of a partition in an order that depends on nothing but themselves.

        Spark brings pieces in any order, and in another one when a partition has to be made anew.
        """
        frame = pl.concat([pl.read_ipc(io.BytesIO(piece)) for piece in pieces])
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


# Results in a partition, unless the user says how many partitions there are to be.
RESULTS_IN_PART = 10_000_000
_RESULTS_ON_A_PAGE = 10

_NO_ORDER = "rows of a Spark data frame have no order, so a column must tell the rank"

# The columns of rows that are cut into pieces.
_PIECES = "part int, piece binary"


@dataclass(frozen=True)
class FrameSource:
    """A data frame that can be read as a log."""

    frame: Any
    reading: FrameReading
    columns: dict[str, tuple[str, ...]]

    @property
    def has_query(self) -> bool:
        return bool(self.columns["query"])

    def ask(self, function: Callable[[int, pl.DataFrame], bytes]) -> dict[int, bytes]:
        """What a function says of every partition that has rows, by number.

        The function runs on executors, with the number of the partition and its rows.
        """

        def answer(number: int, table: pl.DataFrame) -> Any:
            return record(number, function(number, table))

        return collected(self.by_part(answer, ANSWERS))

    def by_part(self, function: Callable[[int, pl.DataFrame], Any], schema: Any) -> Any:
        """A data frame with what a function makes, in Arrow, of every partition that has rows."""
        reading = self.reading

        def cut(batches: Any) -> Iterator[Any]:
            for number, piece in reading.cut(batches):
                yield record(number, piece, "piece")

        def ask(key: Any, cuts: Any) -> Any:
            arrow: Any = importlib.import_module("pyarrow")
            number, table = key[0].as_py(), reading.table(cuts["piece"].to_pylist())
            return arrow.table(telling(function)(number, table))

        with quiet():
            pieces = self.frame.mapInArrow(cut, _PIECES)
            return pieces.groupBy("part").applyInArrow(ask, schema)


def open_source(
    dataframe: Any,
    roles: dict[str, Given],
    model: Model,
    partitions: int | None,
    *,
    check: bool = True,
) -> FrameSource:
    """Find out how a data frame is to be read, and check what partitions cannot see.

    Parameters
    ----------
    dataframe : Spark data frame with one row a result, or one a page with lists
    roles : columns by role, as for `read_log`
    model : for whom it is read; columns that it does not ask for are left behind
    partitions : how many; by default so many that one has about ten million results
    check : look for sessions with several queries, which takes a shuffle of all sessions
    """
    frame, reading, columns, is_nested = _planned(dataframe, roles, model)
    with hearing(), quiet():
        found = _looked_over(frame, roles)
        if check:
            _check_sessions(frame, roles, is_nested, columns)
    if not found["rows"]:
        raise ClickLogError("The Spark data frame cannot be read as a click log: it has no rows.")
    if partitions is None:
        n_results = found["rows"] * (_RESULTS_ON_A_PAGE if is_nested else 1)
        wanted = max(_n_cores(dataframe.sparkSession), -(-n_results // RESULTS_IN_PART))
        partitions = min(2**16, 1 << (wanted - 1).bit_length())
    shift = 1 if found.get("lowest") == 0 else 0
    if shift:
        title = Roles(roles).title("rank")
        warnings.warn(
            f"The Spark data frame: {title}: ranks start at 0 here; they were shifted to start at "
            "1.",
            ClickLogWarning,
            stacklevel=3,
        )
    reading = replace(reading, n_parts=check_parts(partitions), shift=shift)
    return FrameSource(frame, reading, columns)


def _n_cores(spark: Any) -> int:
    """How many tasks Spark runs at once: into so many slices it cuts what nobody else cuts."""
    from pyspark.sql import functions as F

    with quiet():
        slices = spark.range(2**16).select(F.spark_partition_id().alias("slice"))
        return int(slices.agg(F.max("slice")).first()[0]) + 1


def _planned(
    dataframe: Any, given: dict[str, Given], model: Model
) -> tuple[Any, FrameReading, dict[str, tuple[str, ...]], bool]:
    """Check the columns by an empty table of the same types, and leave out what nobody reads."""
    from pyspark.sql.pandas.types import to_arrow_schema

    with quiet():
        empty: Any = pl.from_arrow(to_arrow_schema(dataframe.schema).empty_table())
    roles, is_nested = checked_roles(given, empty.schema)
    by = roles.columns["query"] or roles.columns["session"]
    if not by:
        raise ClickLogError(
            "The Spark data frame has neither query nor session, by which pages could be put into "
            "partitions: name a column, query=... or session=..."
        )
    used = [name for names in roles.columns.values() for name in names]
    wanted = {*used, *columns_read(model)}
    # What has the name of a role without playing it would be left out with a note.
    frame = dataframe.select([f"`{n}`" for n in dataframe.columns if n in wanted])
    first = ("session", "rank", "doc", "click")
    order = [name for role in first for name in roles.columns[role]]
    if not roles.columns["session"]:
        given = {**given, "session": NUMBERED}
    is_struct = roles.is_struct("query" if roles.columns["query"] else "session")
    reading = FrameReading(given, tuple(by), tuple(dict.fromkeys(order)), is_struct=is_struct)
    return frame, reading, roles.columns, is_nested


def checked_roles(given: dict[str, Given], schema: Mapping[str, pl.DataType]) -> tuple[Roles, bool]:
    """The roles of columns, and whether a row is a page; what is wrong is told in terms of Spark.

    What rows hold is seen by executors, after a long way; types are known before.
    """
    roles = Roles(given)
    is_nested = roles.is_nested(schema)
    faults = Faults("the Spark data frame")
    roles.settle(schema, is_nested, faults)
    if not is_nested and given["rank"] is None:
        faults.add(f"rank: {_NO_ORDER}")
    for name in roles.columns["rank"]:
        kind: Any = schema[name]
        kind = getattr(kind, "inner", kind)
        if not kind.is_numeric():
            faults.add(
                f"{roles.title('rank')}: the column holds {kind}, and ranks are whole numbers; "
                f'cast it, as in dataframe.withColumn("{name}", dataframe["{name}"].cast("int"))'
            )
    try:
        faults.raise_if_any()
    except ClickLogError as error:
        raise ClickLogError(_of_spark(str(error))) from None
    return roles, is_nested


def _of_spark(text: str) -> str:
    """Advice for files, in terms of a data frame."""
    text = text.replace(
        "Without ranks: rank=None takes the order of the rows.",
        f"{_NO_ORDER[0].upper()}{_NO_ORDER[1:]}: rank=...",
    )
    return re.sub(r"(?m)^(\s*Perhaps: )read_log\(data, (.*)\)$", r"\1\2", text)


def _looked_over(frame: Any, given: dict[str, Given]) -> dict[str, Any]:
    """How many rows there are, and the lowest rank of all; one look at all rows."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType, NumericType

    asked = [F.count(F.lit(1)).alias("rows")]
    rank = given["rank"]
    types = {field.name: field.dataType for field in frame.schema.fields}
    if isinstance(rank, str) and rank in types:
        kind, column = types[rank], F.col(f"`{rank}`")
        if isinstance(kind, NumericType):
            asked.append(F.min(column).alias("lowest"))
        elif isinstance(kind, ArrayType) and isinstance(kind.elementType, NumericType):
            asked.append(F.min(F.array_min(column)).alias("lowest"))
    found: dict[str, Any] = frame.agg(*asked).first().asDict()
    return found


def _check_sessions(
    frame: Any, given: dict[str, Given], is_nested: bool, columns: dict[str, tuple[str, ...]]
) -> None:
    """Refuse sessions that are on pages of several queries: their parts would not be seen
    together by any partition."""
    from pyspark.sql import functions as F

    roles = Roles(given)
    session, query = columns["session"], columns["query"]
    if not (session and query) or set(query) <= set(session):
        return
    keys = [F.col(f"`{name}`") for name in session]
    column = F.col(f"`{query[0]}`")
    if is_nested:
        bad = F.col("*n*") > 1
        grouped = frame.groupBy(*keys).agg(F.count(F.lit(1)).alias("*n*"))
    else:
        bad = F.col("*a*") != F.col("*b*")
        grouped = frame.groupBy(*keys).agg(F.min(column).alias("*a*"), F.max(column).alias("*b*"))
    first = grouped.where(bad).first()
    if first is None:
        return
    shown = ", ".join(repr(value) for value in list(first)[: len(session)])
    faults = Faults("the Spark data frame")
    if is_nested:
        faults.add(
            f"{roles.title('session')}: some values occur on more than one row, such as {shown}; "
            "a row is a page, and a page is a session"
        )
    else:
        quoted = ", ".join(f'"{name}"' for name in (*session, *query))
        faults.add(
            f"{roles.title('query')}: sessions with more than one query, such as {shown} with "
            f"{first['*a*']!r} and {first['*b*']!r}; if a session covers several searches, try "
            f"session=[{quoted}]"
        )
    faults.raise_if_any()
