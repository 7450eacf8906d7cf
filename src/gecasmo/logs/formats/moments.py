"""Times as sources write them: numbers since 1970, ISO 8601, or times already; read all at once."""

from __future__ import annotations

import datetime
from typing import Any

import polars as pl

MOMENT = pl.Datetime("us", "UTC")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# The years 1 to 9999, in milliseconds since 1970.
_FIRST_MOMENT, _LAST_MOMENT = -62_135_596_800_000, 253_402_300_799_999
_ISO = (
    r"^[12][0-9]{3}-[01][0-9]-[0-3][0-9]T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
    r"(?:\.[0-9]{3}|\.[0-9]{6})?(?:Z|\+00:00)?$"
)
_MILLISECONDS = r"^[0-9]{1,18}$"


def where(chosen: pl.Series, values: pl.Series) -> pl.Series:
    """Keep the chosen values, null for the others."""
    return pl.select(pl.when(chosen).then(values)).to_series()


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
    known = where(numbers.is_between(_FIRST_MOMENT, _LAST_MOMENT), numbers)
    return known.cast(pl.Datetime("ms", "UTC")).cast(MOMENT)


def moments_of_texts(values: pl.Series) -> pl.Series:
    """Read times written as texts, the usual ones all at once; null as in `read_moment`."""
    digits = where(values.str.contains(_MILLISECONDS), values)
    if digits.null_count() == values.null_count():
        return moments_of_numbers(digits)
    plain = values.str.strip_suffix("Z").str.strip_suffix("+00:00")
    texts = where(values.str.contains(_ISO), plain)
    found = texts.str.to_datetime("%Y-%m-%dT%H:%M:%S%.f", time_unit="us", strict=False)
    found = found.dt.replace_time_zone("UTC")
    if found.null_count() == values.null_count():
        return found
    found = found.zip_with(found.is_not_null(), moments_of_numbers(digits))
    odd = (found.is_null() & values.is_not_null() & digits.is_null()).arg_true()
    if len(odd):
        read = [read_moment(value) for value in values.gather(odd)]
        found = found.scatter(odd, pl.Series(read, dtype=MOMENT))
    return found
