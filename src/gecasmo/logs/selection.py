"""Choices from a log: sessions picked, sessions for a test part, and signals put into it.

What comes later is told by numbers, by times, or by texts that are either; in which form dates are
written is found from the whole column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from gecasmo.errors import ClickLogError, either, option
from gecasmo.logs.pages import number_by_first_appearance
from gecasmo.report import listed

if TYPE_CHECKING:
    from gecasmo.logs.clicklog import ClickLog

FIXED = ("session", "query", "doc", "rank", "weight")

# A date, and perhaps a time of the day.
_MOMENT = (
    r"^\s*(?:[A-Za-z]{3,9},\s+)?"
    r"(?<date>[0-9]{1,4}[-/. ](?:[0-9]{1,2}|[A-Za-z]{3,9})[-/. ][0-9]{1,4}"
    r"|[A-Za-z]{3,9} [0-9]{1,2},? [0-9]{4})"
    r"(?:(?:T|,?\s+)(?<hour>[0-9]{1,2}):(?<minute>[0-5][0-9])(?::(?<second>[0-5][0-9](?:\.[0-9]+)?))?"
    r"\s*(?<half>[AaPp][Mm])?\s*(?<zone>Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2})?)?\s*$"
)
# In which forms dates may be written that look so; letters stand for the name of a month.
_FORMS = {
    r"^[0-9]{4}.[0-9]{1,2}.[0-9]{1,2}$": ("%Y{}%m{}%d",),
    r"^[0-9]{1,2}.[0-9]{1,2}.[0-9]{4}$": ("%d{}%m{}%Y", "%m{}%d{}%Y"),
    r"^[0-9]{1,2}.[0-9]{1,2}.[0-9]{2}$": ("%d{}%m{}%y", "%m{}%d{}%y", "%y{}%m{}%d"),
    r"^[0-9]{1,2}.[A-Za-z]+.[0-9]{4}$": ("%d{}%b{}%Y", "%d{}%B{}%Y"),
    r"^[A-Za-z]+ [0-9]{1,2}, [0-9]{4}$": ("%b %d, %Y", "%B %d, %Y"),
    r"^[A-Za-z]+ [0-9]{1,2} [0-9]{4}$": ("%b %d %Y", "%B %d %Y"),
}
_MICROSECONDS = 1_000_000


def as_mask(chosen: ArrayLike, n_sessions: int) -> NDArray[np.bool_]:
    """Turn a choice of sessions, by booleans or indices, into a boolean for each session."""
    array = np.asarray(chosen)
    if array.dtype == np.bool_:
        if array.shape != (n_sessions,):
            raise ClickLogError(
                f"take: the mask has shape {array.shape}, but there are {n_sessions} sessions."
            )
        return array
    mask = np.zeros(n_sessions, np.bool_)
    if array.size == 0:
        return mask
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ClickLogError(
            f"take needs a boolean for each session or indices of sessions, not {array.dtype}."
        )
    beyond = (array < 0) | (array >= n_sessions)
    if beyond.any():
        raise ClickLogError(
            f"take: there is no session with index {array[beyond][0]}; "
            f"the log has {n_sessions} sessions, numbered from 0."
        )
    mask[array] = True
    if int(mask.sum()) < len(array):
        twice = int(np.argmax(np.bincount(array) > 1))
        raise ClickLogError(
            f"take: session {twice} is asked for more than once; a log has each session once."
        )
    return mask


def as_signal(name: str, values: ArrayLike, n_results: int) -> pl.Series:
    """Turn a signal, with a boolean (or 0 or 1) for each result, into a column."""
    if name in FIXED:
        raise ClickLogError(f"with_signals cannot replace {name!r}; pages keep their results.")
    array = np.asarray(values)
    if array.shape != (n_results,):
        raise ClickLogError(
            f"with_signals: {name!r} has shape {array.shape}, but there are {n_results} results."
        )
    if array.dtype != np.bool_ and not np.isin(array, (0, 1)).all():
        raise ClickLogError(f"with_signals: {name!r} has values that are neither 0 nor 1.")
    return pl.Series(name, array.astype(np.bool_), dtype=pl.Boolean)


def in_test_part(
    log: ClickLog, *, test: float, by: str, seed: int, time: str | None
) -> NDArray[np.bool_]:
    """Say which sessions go to the test part; `ClickLog.split` explains the arguments."""
    if not 0 < test < 1:
        asked = option("test", test, of="split")
        raise ClickLogError(f"{asked}: the share should be between 0 and 1.")
    if time is None:
        return _random_groups(log.session_column(by), test, by, seed)
    if by != "session":
        asked = either(f"split(by={by!r}, time={time!r})", "--by and --time")
        raise ClickLogError(f"{asked}: split by a column or by time.")
    name, form = time, ""
    if time not in log.columns and ":" in time:
        name, form = time.split(":", 1)
    times = log.session_column(name)
    return _latest(times, comparable_times(times, time, form), test, time)


def _random_groups(groups: pl.Series, test: float, by: str, seed: int) -> NDArray[np.bool_]:
    if isinstance(groups.dtype, pl.Categorical | pl.Enum):
        # Enums sort in an order of their own; the same names should give the same split.
        groups = groups.cast(pl.String)
    number, firsts = number_by_first_appearance(groups)
    n_groups = len(firsts)
    if n_groups < 2:
        raise ClickLogError(
            f"{option('by', by, of='split')}: needs at least two different values, and the log "
            f"has {n_groups}."
        )
    # Draw positions among the sorted values, so that the order of the rows plays no part.
    by_value = groups.gather(firsts).arg_sort().to_numpy()
    drawn = np.random.default_rng(seed).permutation(n_groups)[: _share(test, n_groups)]
    group_in_test = np.zeros(n_groups, np.bool_)
    group_in_test[by_value[drawn]] = True
    return group_in_test[number]


def has_no_time(times: pl.Series) -> pl.Series:
    """Tell where there is none: null, NaN, or a text without letters."""
    if times.dtype.is_float():
        return times.is_null() | times.is_nan()
    if isinstance(times.dtype, pl.String | pl.Categorical | pl.Enum):
        return times.is_null() | (times.cast(pl.String).str.strip_chars() == "")
    return times.is_null()


def comparable_times(
    times: pl.Series, name: str, form: str = "", reader: str | None = None
) -> pl.Series:
    """Read times that can be compared: numbers, times, or texts that are numbers or dates.

    Parameters
    ----------
    times
        One value a session.
    name
        How the column was asked for, for messages.
    form
        In which form dates are written, such as "%d/%m/%Y"; by default found from all of them.
    reader
        Who reads the column by itself, so that nobody can say in which form dates are, for
        messages; by default it is `split`, which was told the column.

    Raises
    ------
    ClickLogError
        When times are missing, are neither numbers nor dates, or can be read in several ways.
    """
    asked = f"{reader}, '{name}'" if reader else option("time", name, of="split")
    missing = has_no_time(times)
    if isinstance(times.dtype, pl.Categorical | pl.Enum):
        times = times.cast(pl.String)
    if missing.any():
        raise ClickLogError(f"{asked}: {int(missing.sum())} of {len(times)} sessions have no time.")
    if times.dtype.is_numeric() or times.dtype.is_temporal():
        return times
    if times.dtype != pl.String:
        raise ClickLogError(f"{asked}: the column holds {times.dtype}, and times are needed.")
    numbers = times.cast(pl.Float64, strict=False)
    if not form and numbers.is_finite().fill_null(False).all():
        return numbers
    parts = times.str.extract_groups(_MOMENT).struct.unnest()
    forms = [form] if form else _forms_of(parts["date"])
    read = {each: _moments(times, parts, each) for each in forms}
    sound = {each: found for each, found in read.items() if not found.null_count()}
    if not sound:
        best = min(read, key=lambda each: read[each].null_count(), default=None)
        odd, how = numbers.is_finite().fill_null(False).not_(), "neither a number nor a date"
        if best is not None:
            odd, how = read[best].is_null(), f"no date written as {best}"
        raise ClickLogError(
            f"{asked}: {times[odd.arg_max() or 0]!r} is {how}; times are numbers, or "
            "dates such as 2024-12-31, 31/12/2024 or 31 Dec 2024, all in one form."
        )
    ranks = [found.rank("dense") for found in sound.values()]
    if any((ranks[0] != other).any() for other in ranks[1:]):
        column = name.removesuffix(f":{form}")
        ways = [option("time", shown=f"'{column}:{each}'") for each in sound]
        todo = f"say which: {listed(ways, 'or')}"
        if reader:
            todo = "write them as 2024-12-31"
        raise ClickLogError(
            f"{asked}: {times[0]!r} and all others can be read in {len(sound)} ways; {todo}."
        )
    return next(iter(sound.values()))


def _forms_of(dates: pl.Series) -> list[str]:
    """In which forms dates may be written, by how the first looks."""
    first = dates.drop_nulls().head(1)
    for shape, forms in _FORMS.items():
        if len(first) and first.str.contains(shape)[0]:
            marks = "".join(mark for mark in first[0] if not mark.isalnum())
            return [form.format(*marks) for form in forms]
    return []


def _moments(times: pl.Series, parts: pl.DataFrame, form: str) -> pl.Series:
    """Read dates with their time of the day, in microseconds; null for what is in another form."""
    if "%H" in form or "%I" in form:
        return times.str.to_datetime(form, strict=False, time_unit="us").cast(pl.Int64)
    days = parts["date"].str.to_date(form, strict=False).cast(pl.Int64)
    hour, minute = (pl.col(name).cast(pl.Int64).fill_null(0) for name in ("hour", "minute"))
    is_pm = pl.col("half").str.to_lowercase() == "pm"
    hour = pl.when(is_pm.is_null()).then(hour).otherwise(hour % 12 + 12 * is_pm.cast(pl.Int64))
    seconds = pl.col("second").cast(pl.Float64).fill_null(0.0)
    digits = pl.col("zone").str.replace_all(r"[^0-9]", "")
    ahead = digits.str.head(2).cast(pl.Int64, strict=False).fill_null(0) * 60
    ahead += digits.str.tail(2).cast(pl.Int64, strict=False).fill_null(0)
    ahead = pl.when(pl.col("zone").str.starts_with("-")).then(-ahead).otherwise(ahead)
    since = (pl.lit(days) * 24 * 60 + hour * 60 + minute - ahead) * 60 * _MICROSECONDS
    moment = since + (seconds * _MICROSECONDS).round().cast(pl.Int64)
    return parts.select(pl.when(hour < 24).then(moment)).to_series()


def _latest(said: pl.Series, times: pl.Series, test: float, name: str) -> NDArray[np.bool_]:
    asked = option("time", name, of="split")
    if len(times) < 2:
        raise ClickLogError(f"{asked}: needs at least two sessions.")
    last = int(times.arg_sort()[len(times) - _share(test, len(times)) - 1])
    in_test: NDArray[np.bool_] = np.asarray((times > times[last]).to_numpy(), np.bool_)
    if not in_test.any():
        raise ClickLogError(
            f"{asked}: no session is later than the training part, because the latest sessions "
            f"all have the time {said[last]!r}; try a larger test."
        )
    return in_test


def _share(test: float, count: int) -> int:
    return min(max(round(test * count), 1), count - 1)
