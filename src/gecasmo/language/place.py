"""Point into the user's program: file, line, function and the text of the line."""

from __future__ import annotations

import linecache
import os
import sys
from types import FrameType
from typing import NamedTuple

from gecasmo.errors import ModelError

# Frames of these packages run the user's program; they are never the place of a mistake in it.
_MACHINERY = ("gecasmo.language", "gecasmo.compiler")


class Place(NamedTuple):
    """A line of a program."""

    path: str
    line: int
    function: str

    def describe(self) -> str:
        """Name file, line and function, and show the line."""
        text = linecache.getline(self.path, self.line).strip()
        where = f"{os.path.basename(self.path)}, line {self.line}, in {self.function}"
        return f"{where}\n      {text}" if text else where


def callers_place() -> Place:
    """The line of the user's program that is being executed."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(_MACHINERY):
        frame = frame.f_back
    assert frame is not None
    return Place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def mistake(message: str, place: Place | None = None) -> ModelError:
    """An error that shows the line of the user's program and says what to do."""
    place = place or callers_place()
    return ModelError(f"{place.describe()}\n  {message}")
