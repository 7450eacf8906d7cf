"""Flags with a few allowed values."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer


class Impossible(StrEnum):
    """What to do with pages of probability zero."""

    refuse = "raise"
    drop = "drop"
    floor = "floor"


ImpossibleFlag = Annotated[
    Impossible,
    typer.Option(
        "--impossible",
        help="Pages that cannot happen under the model: an error, left out, or counted as 1e-8.",
    ),
]
