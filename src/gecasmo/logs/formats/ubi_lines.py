"""The plain records among JSON lines of User Behavior Insights, read all at once.

Machines write their lines in few shapes: the same keys in the same order, with other values. A
line is a sample of its shape. All lines of that shape match one regular expression, made of the
sample with a pattern in the place of each value, and that expression takes the values out of them.
What each value is, the slow reader says: it reads the sample with marks in the place of values.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from gecasmo.logs.formats.ubi_fields import (
    SCHEMAS,
    fields_of,
    is_bulk_line,
    moments_of_numbers,
    moments_of_texts,
    source_of,
)

MOST_SHAPES = 32
MOST_VALUES = 60
MOST_IN_VAIN = 6
WORTH_IT = 0.01
FEW = 200
_SPREAD = 0.618  # the golden ratio spreads the samples over the lines

_PLAIN_TEXT = r"[^\"\\\x00-\x1f]*"
# Halves of characters, such as \ud83d, are left to the slow reader, which refuses those alone.
_HEX = "[0-9a-fA-F]"
_UNICODE = rf"u(?:[0-9a-cA-CefEF]{_HEX}{{3}}|[dD][0-7]{_HEX}{{2}})"
_TEXT = rf'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|{_UNICODE}))*"'
_COUNT = r"[1-9][0-9]{0,17}|0"
_WHOLE = r"-?[1-9][0-9]{0,17}|0"
_NUMBER = r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_SPACE = r"[ \t\r\n]*"
_ITEM = rf'(?:"{_PLAIN_TEXT}"|{_WHOLE})'
_LIST = rf"\[{_SPACE}(?:{_ITEM}(?:{_SPACE},{_SPACE}{_ITEM})*)?{_SPACE}\]"
_TOKEN = re.compile(
    rf"(?P<key>{_TEXT}{_SPACE}:)|(?P<list>{_LIST})|(?P<text>{_TEXT})|(?P<number>{_NUMBER})"
    r"|(?P<other>[{}\[\],]|[ \t\r\n]+|true|false|null)"
)
_ANY = {"list": _LIST, "text": f"(?:{_TEXT}|{_NUMBER})", "number": f"(?:{_TEXT}|{_NUMBER})"}
_FIRST_MARK = 10**17


@dataclass
class Plain:
    """The records that were read all at once.

    Attributes
    ----------
    frames
        The records of each kind, in any order.
    undated
        The rows whose time cannot be read.
    rest
        The rows that are left, in order.
    """

    frames: dict[str, list[pl.DataFrame]] = field(
        default_factory=lambda: {kind: [] for kind in SCHEMAS}
    )
    undated: list[int] = field(default_factory=list)
    rest: pl.Series = field(default_factory=lambda: pl.Series(dtype=pl.Int64))


@dataclass(frozen=True)
class Shape:
    """What lines of one shape have in common.

    Attributes
    ----------
    kind
        "event", "query", or "bulk" for lines that hold no record.
    pattern
        The regular expression that matches these lines.
    groups
        The number of the group of each column, and whether it is a number there.
    """

    kind: str
    pattern: str
    groups: dict[str, tuple[int, bool]]


def read_plain_lines(texts: pl.Series) -> Plain:
    """Read the lines of the commonest shapes.

    Parameters
    ----------
    texts
        The lines.

    Returns
    -------
    Plain
    """
    plain = Plain()
    in_vain = 0
    left = pl.DataFrame({"line": texts.rechunk()})
    left = left.select(pl.int_range(pl.len(), dtype=pl.Int64).alias("row"), "line")
    # Not the first line, which is mostly a query: the commonest shape should be the first to go.
    for attempt in range(1, MOST_SHAPES + 1):
        if left.height < max(FEW, 1) or in_vain == MOST_IN_VAIN:
            break
        before = left.height
        sample = left["line"][int(before * (attempt * _SPREAD % 1))]
        shape = shape_of(sample)
        if shape is not None:
            left = _take(left, shape, plain)
        # Where every line has a shape of its own, looking for more only costs time.
        in_vain = in_vain + 1 if before - left.height < before * WORTH_IT else 0
    plain.rest = left["row"]
    return plain


def shape_of(line: str) -> Shape | None:
    """Find the shape of a line.

    Parameters
    ----------
    line
        A line of a file.

    Returns
    -------
    Shape or None
        None for what only the slow reader reads.
    """
    tokens = list(_TOKEN.finditer(line))
    values = [token for token in tokens if token.lastgroup in _ANY]
    if sum(len(token[0]) for token in tokens) < len(line) or len(values) > MOST_VALUES:
        return None
    marked = "".join(_mark(number, token) for number, token in enumerate(tokens))
    try:
        record = json.loads(marked)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    inner = source_of(record)
    if inner is record and is_bulk_line(record):
        return Shape("bulk", _pattern(tokens, {}), {})
    kind, fields = fields_of(inner)
    if kind == "neither" or isinstance(inner.get("event_attributes"), str | int | float):
        return None
    marks = {name: _read_mark(value) for name, value in fields.items() if value is not None}
    taken = {}
    for name, (number, found) in marks.items():
        wanted = _group(name, found)
        # A list of one text is a list only where it was marked as one. Escapes are not undone here.
        if wanted is None or tokens[number].lastgroup != found or "\\" in tokens[number][0]:
            return None
        taken[number] = wanted
    in_order = sorted(taken)
    groups = {
        name: (in_order.index(number) + 1, found == "number")
        for name, (number, found) in marks.items()
    }
    return Shape(kind, _pattern(tokens, taken), groups)


def _mark(number: int, token: re.Match[str]) -> str:
    """Put a mark with the number of the token in the place of a value."""
    # Spaces around it, so that what is no number in JSON, such as 007, is not made one.
    marks = {
        "list": f' ["{number}"] ',
        "text": f' "{number}" ',
        "number": f" {_FIRST_MARK + number} ",
    }
    return marks.get(str(token.lastgroup), token[0])


def _read_mark(value: Any) -> tuple[int, str]:
    """Return the number of the token that a value came from, and what it is there."""
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return int(value[0]), "list"
    if isinstance(value, str):
        return int(value), "text"
    if isinstance(value, int) and value >= _FIRST_MARK:
        return value - _FIRST_MARK, "number"
    return 0, "other"


def _group(column: str, token: str) -> str | None:
    """Return the pattern with the group of a column, None where the slow reader has to decide."""
    if column == "hits":
        return f"({_LIST})" if token == "list" else None
    if column == "ordinal":
        return f"({_COUNT})" if token == "number" else None
    return {"number": f"({_WHOLE})", "text": f'"({_PLAIN_TEXT})"'}.get(token)


def _pattern(tokens: list[re.Match[str]], taken: dict[int, str]) -> str:
    parts = (
        taken.get(number) or _ANY.get(str(token.lastgroup)) or pl.escape_regex(token[0])
        for number, token in enumerate(tokens)
    )
    return f"^{''.join(parts)}$"


def _take(left: pl.DataFrame, shape: Shape, plain: Plain) -> pl.DataFrame:
    """Read the lines of a shape, and return the others."""
    if shape.kind == "bulk":
        return left.filter(~pl.col("line").str.contains(shape.pattern))
    groups = left["line"].str.extract_groups(shape.pattern).struct.unnest()
    matches = groups["1"].is_not_null()
    found, rows = groups.filter(matches), left["row"].filter(matches)
    columns = [rows]
    for name, dtype in SCHEMAS[shape.kind].items():
        if name in shape.groups:
            number, is_number = shape.groups[name]
            columns.append(_column(name, found[str(number)], is_number))
        elif name != "row":
            columns.append(pl.Series(name, [None], dtype).new_from_index(0, len(rows)))
    plain.frames[shape.kind].append(pl.DataFrame(columns))
    if "timestamp" in shape.groups:
        undated = next(c for c in columns if c.name == "timestamp").is_null()
        plain.undated += rows.filter(undated).to_list()
    return left.filter(~matches)


def _column(name: str, texts: pl.Series, is_number: bool) -> pl.Series:
    if name == "timestamp":
        read = moments_of_numbers if is_number else moments_of_texts
        return read(texts).alias(name)
    if name == "ordinal":
        return texts.cast(pl.Int64).alias(name)
    if name == "hits":
        items = texts.str.extract_all(_ITEM)
        return items.list.eval(pl.element().str.strip_chars('"')).alias(name)
    return texts.alias(name)
