"""What driver and executors say to each other, with nothing but data frames: functions that run on
executors, their answers as bytes, and their errors.

An answer is a packet (`estimation/packets.py`), so that reading one never runs anything, and what
is not as it was written is refused. Executors keep what they write down in packets, too.

Errors of executors are told by the driver as if they had happened there. Spark brings a failure of
a task to the driver as one long text. What gecasmo has to say is put into that text between two
marks, and found again.
"""

from __future__ import annotations

import base64
import functools
import importlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec, TypeVar

from gecasmo.errors import GecasmoError
from gecasmo.estimation.packets import pack, unpack
from gecasmo.spark.session import SparkError, quiet

# The columns of a data frame with what executors answer.
ANSWERS = "part int, answer binary"


def ask_parts(spark: Any, numbers: Sequence[int], function: Callable[[int], Any]) -> dict[int, Any]:
    """Run a function of the number of a part on executors, each part as a task of its own."""

    def run(batches: Any) -> Iterator[Any]:
        for batch in batches:
            for place in batch["id"].to_pylist():
                number = int(numbers[place])
                yield record(number, pack(telling(function)(number)))

    with quiet():
        return collected(spark.range(0, len(numbers), 1, len(numbers)).mapInArrow(run, ANSWERS))


def record(number: int, content: bytes, name: str = "answer") -> Any:
    """One row of Arrow: the number of a part, and bytes."""
    arrow: Any = importlib.import_module("pyarrow")
    column = arrow.array([content], arrow.binary())
    return arrow.RecordBatch.from_pydict(
        {"part": arrow.array([number], arrow.int32()), name: column}
    )


def collected(answers: Any) -> dict[int, Any]:
    """What a data frame with the columns of `ANSWERS` holds, by number, in order."""
    with hearing(), quiet():
        table = answers.toArrow()
    packets = dict(zip(table["part"].to_pylist(), table["answer"].to_pylist(), strict=True))
    return {
        number: unpacked(packets.pop(number), f"The answer of part {number}")
        for number in sorted(packets)
    }


def unpacked(data: bytes | bytearray, name: str) -> Any:
    """What a packet holds, which is told by its name if it is damaged."""
    with telling_damage(name):
        return unpack(data)


@contextmanager
def telling_damage(name: str) -> Iterator[None]:
    """Tell that what has this name is not what was written."""
    try:
        yield
    except GecasmoError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as problem:
        raise SparkError(f"{name} is damaged: {problem}. Run the same again.") from None


# -- errors -------------------------------------------------------------------------------------
P = ParamSpec("P")
T = TypeVar("T")

_BEGIN, _END = "<<gecasmo:", ":gecasmo>>"
_MARKED = re.compile(re.escape(_BEGIN) + r"([A-Za-z0-9+/=]*)" + re.escape(_END))


class ToldByExecutor(RuntimeError):
    """An error of gecasmo on its way to the driver; the text in brackets is for the driver."""


def telling(function: Callable[P, T]) -> Callable[P, T]:
    """Run on an executor: what gecasmo says there is heard at the driver."""

    @functools.wraps(function)
    def told(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except GecasmoError as error:
            raise ToldByExecutor(f"{error}\n{marked(error)}") from None

    return told


def marked(error: GecasmoError) -> str:
    """An error as letters that survive any quoting."""
    said = json.dumps([type(error).__name__, str(error)])
    return f"{_BEGIN}{base64.b64encode(said.encode()).decode()}{_END}"


def found_in(text: str) -> GecasmoError | None:
    """The error of gecasmo that a text of Spark's brings along."""
    found = _MARKED.search(text)
    if found is None:
        return None
    name, message = json.loads(base64.b64decode(found.group(1)))
    return next((k for k in _kinds(GecasmoError) if k.__name__ == name), SparkError)(message)


def _kinds(kind: type[GecasmoError]) -> Iterator[type[GecasmoError]]:
    """An error and all more special ones."""
    yield kind
    for special in kind.__subclasses__():
        yield from _kinds(special)


@contextmanager
def hearing() -> Iterator[None]:
    """Run Spark jobs: errors of gecasmo on executors are raised here as what they were."""
    try:
        yield
    except Exception as error:
        told = None if isinstance(error, GecasmoError) else found_in(str(error))
        if told is None:
            raise
        raise told from None
