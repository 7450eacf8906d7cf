"""Values from JSON, whose types can change from line to line."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Sequence
from typing import Any

import polars as pl

from gecasmo.logs.lines import Lines

MOST_CLICKS = 2**31


def column_of(name: str, values: Sequence[Any]) -> pl.Series:
    """Make a column of JSON values: integers, booleans, floats where all are, else text.

    Parameters
    ----------
    name
        The name of the column.
    values
        What `json.loads` gave; None is null.

    Returns
    -------
    pl.Series
    """
    kinds = {type(value) for value in values if value is not None}
    for kind, dtype in ((bool, pl.Boolean), (int, pl.Int64), (str, pl.String)):
        if kinds == {kind} and (kind is not int or _fits(values)):
            return pl.Series(name, values, dtype)
    if float in kinds and kinds <= {int, float}:
        return pl.Series(name, values, pl.Float64, strict=False)
    return pl.Series(name, [as_text(value) for value in values], pl.String)


def as_text(value: Any) -> str | None:
    """Write a JSON value as text; a text stays as it is."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def flat(value: Any, lines: Lines, row: int) -> Any:
    """Write lists and objects of a line as text, which is what a column keeps; others stay."""
    if not isinstance(value, list | dict):
        return value
    try:
        return as_text(value)
    except RecursionError:
        raise lines.error(row, "JSON nested too deeply") from None


def click_counts(values: Sequence[Any], lines: Lines, row: int) -> list[int]:
    """Read numbers of clicks.

    Parameters
    ----------
    values
        Whole numbers from 0, or booleans.
    lines, row
        The line they stand in, for the message.

    Returns
    -------
    list of int

    Raises
    ------
    ClickLogError
        When a value is something else.
    """
    for value in values:
        # Not every whole number has a float to ask: 10**400 has none.
        is_number = isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))
        if not is_number or value != int(value) or not 0 <= value < MOST_CLICKS:
            shown = reprlib.repr(value)
            raise lines.error(row, f"clicks are whole numbers from 0, not {shown}")
    return [int(value) for value in values]


def _fits(values: Sequence[Any]) -> bool:
    return all(-(2**63) <= value < 2**63 for value in values if value is not None)
