"""A Spark data frame as a click log: which columns, which partitions, and what must hold for the
log as a whole.

All pages of a query go to one partition, whose number is the first bits of the query's hash, as in
a log that is stored on disk. `FrameReading` is what executors do to cut rows into partitions;
`FrameLog` asks them, and so whatever a model answers part by part it answers of a data frame.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import polars as pl

from gecasmo.errors import ClickLogError, ClickLogWarning
from gecasmo.estimation.packets import pack
from gecasmo.forms.parted_table import part_of
from gecasmo.kernels.threads import using_threads
from gecasmo.logs import ClickLog
from gecasmo.logs.assembly import assemble
from gecasmo.logs.notes import Faults, Note, in_one_message, merged_notes
from gecasmo.logs.roles import Given, Roles
from gecasmo.model.base import Model
from gecasmo.model.log_parts import part_view, require_pages
from gecasmo.spark.messages import ANSWERS, collected, hearing, record, telling, unpacked
from gecasmo.spark.session import quiet, require_frame
from gecasmo.spark.shipped_model import ShippedModel, columns_read

Answer = TypeVar("Answer")

# So many rows are cut at once: pieces for many partitions should not be tiny.
_ROWS_AT_ONCE = 500_000

# The column of sessions that have no ids of their own; they are numbered as in a stored log.
NUMBERED = "*session*"
_NUMBERS_IN_PART = 2**32


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

    def cut(self, batches: Iterable[Any]) -> Iterator[tuple[int, bytes]]:
        """Rows as pieces for partitions, each with its number."""
        waiting: list[pl.DataFrame] = []
        for batch in batches:
            waiting.append(pl.DataFrame(pl.from_arrow(batch)))
            if sum(map(len, waiting)) >= _ROWS_AT_ONCE:
                yield from self._pieces(pl.concat(waiting))
                waiting = []
        if any(map(len, waiting)):
            yield from self._pieces(pl.concat(waiting))

    def _pieces(self, frame: pl.DataFrame) -> Iterator[tuple[int, bytes]]:
        part = part_of(self.values(frame), self.n_parts)
        order = np.argsort(part, kind="stable")
        ordered = frame.select(pl.all().gather(pl.Series(order)))
        numbers, starts, lengths = np.unique(part[order], return_index=True, return_counts=True)
        for number, start, length in zip(numbers, starts, lengths, strict=True):
            yield int(number), pack(ordered.slice(int(start), int(length)))

    def table(self, pieces: Iterable[bytes]) -> pl.DataFrame:
        """The rows of a partition in an order that depends on nothing but themselves.

        Spark brings pieces in any order, and in another one when a partition has to be made anew.
        """
        name = "A piece of the data frame"
        frame: pl.DataFrame = pl.concat([unpacked(piece, name) for piece in pieces])
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

    def part(
        self, shipped: ShippedModel, number: int, table: pl.DataFrame
    ) -> tuple[Model, ClickLog]:
        """A partition as a log, and the model as far as it matters there."""
        return part_view(shipped.model(), number, self.n_parts), self.log(table, number)


# Results in a partition, unless the user says how many partitions there are to be.
RESULTS_IN_PART = 10_000_000
_RESULTS_ON_A_PAGE = 10

_NO_ORDER = "rows of a Spark data frame have no order, so a column must tell the rank"

# The columns of rows that are cut into pieces.
_PIECES = "part int, piece binary"


@dataclass(frozen=True)
class FrameLog:
    """A data frame that is read as a log, by executors; `columns` are those of each role.

    Answers that go over the parts of a log take it, such as `model.evaluate`, `model.score` and
    `model.expected_counts`.
    """

    frame: Any
    reading: FrameReading
    columns: Mapping[str, tuple[str, ...]]

    def over_parts(
        self, model: Model, ask: Callable[[Model, ClickLog], Answer]
    ) -> Iterator[Answer]:
        """What a function says of every partition that has rows, with the rows of the model that
        the partition can meet. It runs on executors, and what it says has to fit into a packet."""
        shipped, reading = ShippedModel.of(model), self.reading

        def answer(number: int, table: pl.DataFrame) -> tuple[Answer, Sequence[Note]]:
            view, log = reading.part(shipped, number, table)
            with using_threads(1):
                return ask(view, log), log.notes

        heard = self.ask(model, answer).values()
        tell_notes(notes for _, notes in heard)
        yield from (found for found, _ in heard)

    def ask(self, model: Model, function: Callable[[int, pl.DataFrame], Any]) -> dict[int, Any]:
        """What a function says of the number and the rows of each partition, by number."""

        def answer(number: int, table: pl.DataFrame) -> Any:
            return record(number, pack(function(number, table)))

        return collected(self.by_part(model, answer, ANSWERS))

    def by_part(
        self, model: Model, function: Callable[[int, pl.DataFrame], Any], schema: Any
    ) -> Any:
        """A data frame with what a function makes, in Arrow, of every partition that has rows.

        Columns that the model does not ask for are left behind.
        """
        require_pages(model)
        reading = self.reading
        # What has the name of a role without playing it would be left out with a note.
        wanted = {*columns_read(model), *(name for own in self.columns.values() for name in own)}
        frame = self.frame.select([f"`{n}`" for n in self.frame.columns if n in wanted])

        def cut(batches: Any) -> Iterator[Any]:
            for number, piece in reading.cut(batches):
                yield record(number, piece, "piece")

        def ask(key: Any, cuts: Any) -> Any:
            arrow: Any = importlib.import_module("pyarrow")
            number, pieces = key[0].as_py(), cuts["piece"].to_pylist()
            return arrow.table(telling(lambda: function(number, reading.table(pieces)))())

        with quiet():
            return frame.mapInArrow(cut, _PIECES).groupBy("part").applyInArrow(ask, schema)


def tell_notes(by_part: Iterable[Iterable[Note]]) -> None:
    """One warning with what was met in all partitions."""
    notes = merged_notes(note for notes in by_part for note in notes)
    if notes:
        warnings.warn(in_one_message("The Spark data frame", notes), ClickLogWarning, stacklevel=4)


def open_log(
    dataframe: Any,
    *,
    session: str | Sequence[str] | None = "session",
    query: str | None = "query",
    doc: str | Sequence[str] = "doc",
    rank: str | None = "rank",
    click: str | None = "click",
    weight: str | None = None,
    partitions: int | None = None,
    check: bool = True,
) -> FrameLog:
    """Read a Spark data frame as a click log, which stays where it is.

    `model.evaluate`, `model.score`, `model.expected_counts` and all other answers that go over the
    parts of a log take it; executors work them out, and the driver adds them up.

    Parameters
    ----------
    dataframe : Spark data frame
        One row a result, or one a page with lists of results.
    session, query, doc, rank, click, weight
        Its columns, as for `read_log`. Rows of a data frame have no order, so `rank` is needed
        unless there is one row a page.
    partitions : int, optional
        How many, a power of two up to 65536. By default so many that one has about ten million
        results, and every core has one.
    check : bool
        Look for sessions with several queries, which takes a second, smaller shuffle. Without it
        the parts of such a session count as pages of their own.
    """
    require_frame(dataframe)
    from pyspark.sql.pandas.types import to_arrow_schema

    given = roles_of(session, query, doc, rank, click, weight)
    with quiet():
        empty: Any = pl.from_arrow(to_arrow_schema(dataframe.schema).empty_table())
    roles, is_nested = checked_roles(given, empty.schema)
    columns = roles.columns
    by = columns["query"] or columns["session"]
    if not by:
        raise ClickLogError(
            "The Spark data frame has neither query nor session, by which pages could be put into "
            "partitions: name a column, query=... or session=..."
        )
    with hearing(), quiet():
        n_rows, lowest = _looked_over(dataframe, rank)
        if check:
            _check_sessions(dataframe, roles, is_nested)
    if not n_rows:
        raise ClickLogError("The Spark data frame cannot be read as a click log: it has no rows.")
    if partitions is None:
        n_results = n_rows * (_RESULTS_ON_A_PAGE if is_nested else 1)
        wanted = max(_n_cores(dataframe.sparkSession), -(-n_results // RESULTS_IN_PART))
        partitions = min(2**16, 1 << (wanted - 1).bit_length())
    if lowest == 0:
        warnings.warn(
            f"The Spark data frame: {roles.title('rank')}: ranks start at 0 here; they were "
            "shifted to start at 1.",
            ClickLogWarning,
            stacklevel=3,
        )
    first = [name for role in ("session", "rank", "doc", "click") for name in columns[role]]
    reading = FrameReading(
        given if columns["session"] else {**given, "session": NUMBERED},
        tuple(by),
        tuple(dict.fromkeys(first)),
        check_parts(partitions),
        shift=int(lowest == 0),
        is_struct=roles.is_struct("query" if columns["query"] else "session"),
    )
    return FrameLog(dataframe, reading, columns)


def roles_of(*given: Given) -> dict[str, Given]:
    """The columns by role, as `read_log` has them."""
    return dict(zip(("session", "query", "doc", "rank", "click", "weight"), given, strict=True))


def check_parts(n_parts: object) -> int:
    """A number of partitions, or a clear refusal."""
    if not isinstance(n_parts, int) or isinstance(n_parts, bool) or not 1 <= n_parts <= 2**16:
        raise ClickLogError(f"partitions={n_parts!r}: 1, 2, 4, 8, ... up to 65536.")
    if n_parts & (n_parts - 1):
        raise ClickLogError(
            f"partitions={n_parts}: a power of two is wanted, such as "
            f"{1 << n_parts.bit_length()}, since partitions are the first bits of a hash."
        )
    return n_parts


def _n_cores(spark: Any) -> int:
    """How many tasks Spark runs at once: into so many slices it cuts what nobody else cuts."""
    from pyspark.sql import functions as F

    with quiet():
        slices = spark.range(2**16).select(F.spark_partition_id().alias("slice"))
        return int(slices.agg(F.max("slice")).first()[0]) + 1


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


def _looked_over(frame: Any, rank: str | None) -> tuple[int, Any]:
    """How many rows there are, and the lowest rank of all; one look at all rows."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import ArrayType

    asked = [F.count(F.lit(1))]
    types = {field.name: field.dataType for field in frame.schema.fields}
    if rank in types:
        column = F.col(f"`{rank}`")
        asked.append(F.min(F.array_min(column) if isinstance(types[rank], ArrayType) else column))
    found = list(frame.agg(*asked).first())
    return found[0], found[1] if len(found) > 1 else None


def _check_sessions(frame: Any, roles: Roles, is_nested: bool) -> None:
    """Refuse sessions that are on pages of several queries: their parts would not be seen
    together by any partition."""
    from pyspark.sql import functions as F

    session, query = roles.columns["session"], roles.columns["query"]
    if not (session and query) or set(query) <= set(session):
        return
    column = F.col(f"`{query[0]}`")
    grouped = frame.groupBy(*(F.col(f"`{name}`") for name in session)).agg(
        F.count(F.lit(1)).alias("*n*"), F.min(column).alias("*a*"), F.max(column).alias("*b*")
    )
    several = F.col("*n*") > 1 if is_nested else F.col("*a*") != F.col("*b*")
    first = grouped.where(several).first()
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
