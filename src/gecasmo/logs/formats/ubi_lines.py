"""The fields of the records of User Behavior Insights, and its plain JSON lines, read all at once.

The first half says where the fields of a record stand and what they mean; the slow reader goes by
it, a record at a time.

The second half is the fast reader. Machines write their lines in few shapes: the same keys in the
same order, with other values. A line is a sample of its shape. All lines of that shape match one
regular expression, made of the sample with a pattern in the place of each value, and that
expression takes the values out of them. What each value is, the slow reader says: it reads the
sample with marks in the place of values.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.logs.lines import whole_json

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

MOMENT = pl.Datetime("us", "UTC")
QUERIES: dict[str, PolarsDataType] = {
    "row": pl.Int64,
    "page": pl.String,
    "query": pl.String,
    "client_id": pl.String,
    "session_id": pl.String,
    "timestamp": MOMENT,
    "hits": pl.List(pl.String),
}
EVENTS: dict[str, PolarsDataType] = {
    "row": pl.Int64,
    "page": pl.String,
    "action": pl.String,
    "client_id": pl.String,
    "session_id": pl.String,
    "timestamp": MOMENT,
    "doc": pl.String,
    "ordinal": pl.Int64,
}
SCHEMAS = {"query": QUERIES, "event": EVENTS}
BULK = {"index", "create", "update", "delete"}
FLAT = "event_attributes."
LARGEST_ORDINAL = 2**62
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# The years 1 to 9999, in milliseconds since 1970.
_FIRST_MOMENT, _LAST_MOMENT = -62_135_596_800_000, 253_402_300_799_999
_ISO = (
    r"^[12][0-9]{3}-[01][0-9]-[0-3][0-9]T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    r"(?:\.[0-9]{3}|\.[0-9]{6})?(?:Z|\+00:00)?$"
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


def is_bulk_line(record: Mapping[str, Any]) -> bool:
    """Whether a record is the line before a record in a file for the bulk interface."""
    return len(record) == 1 and set(record) <= BULK


def source_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the record itself, also from what a scroll or a dump of an index wraps around it."""
    inner = record.get("_source")
    return inner if isinstance(inner, dict) else record


def fields_of(record: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Find the fields of a record, as they stand in it.

    Where a field is found depends on the keys of the record and on what is an object in it, never
    on texts and numbers (but for attributes in a text of JSON); the fast reader rests on that.

    Parameters
    ----------
    record
        A record, without what was wrapped around it.

    Returns
    -------
    kind : str
        "event", "query", or "neither".
    fields : dict
        The columns of `EVENTS` or `QUERIES`, but for the row.
    """
    shared = {name: record.get(name) for name in ("client_id", "session_id", "timestamp")}
    page = record.get("query_id")
    if record.get("action_name") is not None:
        target, position = _object(record, "object"), _object(record, "position")
        return "event", {
            "page": page,
            "action": record["action_name"],
            **shared,
            "doc": target.get("object_id", record.get("object_id")),
            "ordinal": position.get("ordinal", record.get("position.ordinal")),
        }
    if page is not None:
        words, hits = record.get("user_query"), record.get("query_response_hit_ids")
        return "query", {"page": page, "query": words, **shared, "hits": hits}
    return "neither", {}


def _object(record: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Find an object within the attributes of an event, also in columns with dotted names."""
    attributes = record.get("event_attributes")
    if isinstance(attributes, str):
        attributes = _json_or_nothing(attributes)  # as exports to flat tables have it
    found = attributes.get(name) if isinstance(attributes, dict) else None
    if isinstance(found, dict):
        return found
    start = f"{FLAT}{name}."
    return {key[len(start) :]: value for key, value in record.items() if key.startswith(start)}


def _json_or_nothing(text: str) -> Any:
    try:
        return whole_json(text)
    except (ValueError, RecursionError):
        return None


def as_text(value: Any) -> str | None:
    """Write an id or a query as text."""
    return value if value is None or isinstance(value, str) else str(value)


def read_moment(value: Any) -> datetime.datetime | None:
    """Read a time: milliseconds since 1970, ISO 8601, or a time already; UTC where none is said."""
    try:
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _EPOCH + datetime.timedelta(milliseconds=value)
        if isinstance(value, str):
            value = datetime.datetime.fromisoformat(value)
        if isinstance(value, datetime.datetime):
            if value.tzinfo is None:
                return value.replace(tzinfo=datetime.UTC)
            return value.astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return None
    return None


def moments_of_numbers(values: pl.Series) -> pl.Series:
    """Read milliseconds since 1970, all at once; null where `read_moment` finds no time."""
    numbers = values.cast(pl.Int64)
    sound = numbers.is_between(_FIRST_MOMENT, _LAST_MOMENT)
    known = pl.select(pl.when(sound).then(numbers)).to_series()
    return known.cast(pl.Datetime("ms", "UTC")).cast(MOMENT)


def moments_of_texts(values: pl.Series) -> pl.Series:
    """Read times written as texts, the usual ones all at once; null as in `read_moment`."""
    usual = values.str.contains(_ISO)
    plain = values.str.strip_suffix("Z").str.strip_suffix("+00:00")
    texts = pl.select(pl.when(usual).then(plain)).to_series()
    found = texts.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False)
    found = found.dt.replace_time_zone("UTC")
    odd = (found.is_null() & values.is_not_null()).arg_true()
    if len(odd):
        read = [read_moment(value) for value in values.gather(odd)]
        found = found.scatter(odd, pl.Series(read, dtype=MOMENT))
    return found


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
