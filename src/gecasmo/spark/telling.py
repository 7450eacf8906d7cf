"""Errors of executors, told by the driver as if they had happened there.

Spark brings a failure of a task to the driver as one long text. What gecasmo has to say is put
into that text between two marks, and found again.
"""

from __future__ import annotations

import base64
import functools
import json
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from gecasmo.errors import GecasmoError
from gecasmo.spark.needs import SparkError

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
    kind = next((k for k in _kinds(GecasmoError) if k.__name__ == name), SparkError)
    return kind(message)


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
    except GecasmoError:
        raise
    except Exception as error:
        told = found_in(str(error))
        if told is None:
            raise
        raise told from None


@contextmanager
def quiet() -> Iterator[None]:
    """Without PySpark's warning that it has not been tried with the newest pandas; pandas only
    has to be there for Spark to hand out Arrow, and is not used."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        yield
