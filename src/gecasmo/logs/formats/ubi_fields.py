"""The fields of the records of User Behavior Insights: where they stand, and what they mean."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
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
