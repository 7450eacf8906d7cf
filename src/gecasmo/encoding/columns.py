"""Key columns as integers, one alone or several together: codes, and what they stand for."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.features import usable
from gecasmo.errors import ClickLogError, either, has_flag, option
from gecasmo.frames import WIDE, fresh_categories
from gecasmo.language.parameter import HISTORY_KEYS, PAGE_KEYS
from gecasmo.logs import ClickLog
from gecasmo.logs.arrays import (
    dense,
    is_large,
    last_click_ranks,
    narrowest,
    numbers_of_clicks,
)
from gecasmo.logs.roles import search_column

# What turns integers into the values they stand for, a column for each key.
Values = Callable[[NDArray[Any]], list[pl.Series]]


class Coded(NamedTuple):
    """`values[codes[i]]` is the value of the column at result i."""

    codes: NDArray[np.uint32]
    values: pl.Series


_cache: WeakKeyDictionary[ClickLog, dict[tuple[str, bool], Coded]] = WeakKeyDictionary()


def coded(log: ClickLog, name: str, coin: str, nullable: bool = False) -> Coded:
    """The column `name` of the log as codes; `coin` is named if the log has no such column.

    With `nullable` a missing value is a value like others, and so is an infinite one.
    """
    known = _cache.setdefault(log, {})
    if (name, nullable) not in known:
        known[name, nullable] = _code(log, name, coin, nullable)
    return known[name, nullable]


def in_chain(log: ClickLog, values: NDArray[Any]) -> NDArray[Any]:
    """Values per row of the log, page by page and rank by rank."""
    return values if log.is_sorted else values[log.order]


def labels(log: ClickLog, name: str, coin: str, nullable: bool = False) -> NDArray[Any]:
    """Integers that are equal where the column has the same value, page by page and rank by rank.

    As `coded`, but no more work than needed to tell values from each other: integers are as good
    as any codes.
    """
    if name == "rank":
        return in_chain(log, log.rank)
    if name in log.columns and name != "session":
        column = log.column(name)
        if is_plain_integer(column):
            return in_chain(log, column.to_numpy())
    return in_chain(log, coded(log, name, coin, nullable).codes)


def is_plain_integer(column: pl.Series) -> bool:
    """Whether a column has nothing but integers that NumPy knows."""
    is_known = column.dtype.is_integer() and column.dtype not in WIDE
    return is_known and not column.null_count()


def require_columns(log: ClickLog, keys: Mapping[str, Sequence[str]]) -> None:
    """Refuse keys of coins that the log does not have, all coins at once."""
    made = ("session", "result", "rank", "page_length", *HISTORY_KEYS)
    for name in dict.fromkeys(key for listed in keys.values() for key in listed):
        if name in made or name in log.columns:
            continue
        coins = [coin for coin, listed in keys.items() if name in listed]
        others = [c for c in log.columns if c not in ("click", "rank", "session")]
        example = "doc" if "doc" in others and name != "doc" else (others or ["rank"])[0]
        subject = f"The coin {_quoted(coins)} has"
        if len(coins) > 1:
            subject = f"The coins {_quoted(coins)} have"
        flags = " ".join(f"--key {shlex.quote(f'{coin}={example}')}" for coin in coins)
        if not has_flag("key"):  # keys of a fit are what they are
            flags = f"`gecasmo fit MODEL LOG -o FILE {flags}`"
        advice = either(", ".join(f'{coin}=Table(key="{example}")' for coin in coins), flags)
        named = ""
        queries = search_column(log.to_frame().schema)
        if name == "query" and queries is not None:
            such = option("query", queries)
            named = f"  Perhaps the log should be read with {such}; else all queries share a row.\n"
        raise ClickLogError(
            f"{subject} a row per '{name}', and the log has no such column.\n"
            f"  It has: {', '.join(log.columns)}.\n{named}"
            f"  Perhaps another key: {advice}"
        )


def _quoted(names: list[str]) -> str:
    *others, last = [f"'{name}'" for name in names]
    return f"{', '.join(others)} and {last}" if others else last


def is_page_constant(log: ClickLog, name: str) -> bool:
    """Whether a key has one value per page, whatever the clicks."""
    if name in PAGE_KEYS and (name != "query" or log.has_query or name not in log.columns):
        return True
    if name in ("rank", "result", "doc", *HISTORY_KEYS) or name not in log.columns:
        return False
    return log.is_page_constant(name)


def _code(log: ClickLog, name: str, coin: str, nullable: bool) -> Coded:
    if name == "session":
        return Coded(log.page, log.sessions)
    if name == "result":
        every = np.arange(log.n_results, dtype=np.uint32)
        return Coded(every, pl.Series(name, every))
    if name == "rank":
        return code_integers(name, log.rank)
    if name == "page_length":
        return code_integers(name, log.lengths[log.page])
    if name in HISTORY_KEYS:
        return code_integers(name, history(log, name))
    column = log.column(name)
    if nullable:
        column = usable(column, coin, allow_missing=True)
        if column.null_count():
            return _code_values(column, name)
    return _code_column(column, name, coin)


def _code_column(column: pl.Series, name: str, coin: str) -> Coded:
    n_null = column.null_count()
    if n_null:
        first = int(column.is_null().arg_max() or 0)
        raise ClickLogError(
            f"The coin '{coin}' has a row per '{name}', but {n_null:,} of {len(column):,} results "
            f"have none (first: row {first}). Fill them or drop those pages."
        )
    if column.dtype.is_integer() and column.dtype not in WIDE and len(column):
        return code_integers(name, column.to_numpy())
    return _code_values(column, name)


def _code_values(column: pl.Series, name: str) -> Coded:
    if column.dtype == pl.String and is_large(len(column)) and not column.null_count():
        found = _code_texts(column, name)
        if found is not None:
            return found
    frame = pl.DataFrame({"value": column})
    distinct = frame.unique(maintain_order=True).with_row_index("code")
    codes = frame.join(distinct, on="value", how="left", maintain_order="left", nulls_equal=True)[
        "code"
    ]
    return Coded(codes.to_numpy().astype(np.uint32), distinct["value"].alias(name))


def _code_texts(column: pl.Series, name: str) -> Coded | None:
    """Texts as Polars itself codes them, in half the time; None if not in order of appearance."""
    codes = column.cast(fresh_categories()).to_physical().to_numpy().astype(np.uint32)
    highest = np.maximum.accumulate(codes)
    is_new = np.diff(highest, prepend=np.uint32(0)) != 0
    is_new[0] = True
    first_at = np.flatnonzero(is_new)
    if not np.array_equal(codes[first_at], np.arange(len(first_at))):
        return None
    return Coded(codes, column.gather(pl.Series(first_at)).alias(name))


def code_integers(name: str, values: NDArray[np.integer]) -> Coded:
    """Integers need no hashing as long as they are not spread too widely."""
    if not len(values):
        return Coded(np.zeros(0, np.uint32), pl.Series(name, values))
    codes, distinct = dense(values)
    return Coded(codes.astype(np.uint32, copy=False), pl.Series(name, distinct))


def history(log: ClickLog, key: str) -> NDArray[np.integer]:
    """What the clicks above each result say, per result in the order of the log's rows."""
    click, rank = in_chain(log, log.click), in_chain(log, log.rank)
    values = history_in_chain(key, click, rank, log.starts)
    if log.is_sorted:
        return values
    as_given: NDArray[np.integer] = np.empty_like(values)
    as_given[log.order] = values
    return as_given


def history_in_chain(
    key: str,
    click: NDArray[np.bool_],
    rank: NDArray[np.integer],
    starts: NDArray[np.int64],
) -> NDArray[np.integer]:
    """The same for pages that stand one after the other."""
    if key == "clicks_above":
        return numbers_of_clicks(click, starts)
    last = last_click_ranks(click, rank, starts)
    return last if key == "last_click" else rank - last


@dataclass(frozen=True)
class Labelled:
    """An integer for each place, equal where the value is, and what turns these into values.

    `size` is given where the integers are small: from 0, and below it.
    """

    labels: NDArray[Any]
    values: Callable[[NDArray[Any]], pl.Series]
    size: int | None = None

    def numbered(self) -> Labelled:
        """With small integers."""
        if self.size is not None:
            return self
        codes, distinct = dense(self.labels)
        return Labelled(codes, lambda which: self.values(distinct[which]), len(distinct))


def combined(parts: Sequence[Labelled]) -> tuple[NDArray[Any], Values]:
    """One integer for each place, equal where all parts are, and the values behind these."""
    if len(parts) == 1:
        (only,) = parts
        return only.labels, _alone(only)
    first = parts[0].numbered()
    found, size, values = first.labels, first.size or 1, _alone(first)
    for part in parts[1:]:
        numbered = part.numbered()
        if size * (numbered.size or 1) >= 2**62:
            codes, distinct = dense(found)
            found, size = codes, len(distinct)
            values = _after(values, distinct)
        found, values = _joined(found, size, values, numbered)
        size *= numbered.size or 1
    return found, values


def _alone(part: Labelled) -> Values:
    return lambda which: [part.values(which)]


def _joined(
    found: NDArray[Any], size: int, values: Values, part: Labelled
) -> tuple[NDArray[Any], Values]:
    n = part.size or 1
    joined = found.astype(narrowest(size * n + 1))
    joined *= joined.dtype.type(n)
    joined += part.labels.astype(joined.dtype, copy=False)

    def both(which: NDArray[Any]) -> list[pl.Series]:
        before, last = np.divmod(which.astype(np.int64), n)
        return [*values(before), part.values(last)]

    return joined, both


def _after(values: Values, distinct: NDArray[Any]) -> Values:
    return lambda which: values(distinct[which])


def integers(key: str, dtype: Any) -> Callable[[NDArray[Any]], pl.Series]:
    """The values of a key whose integers are its values."""
    return lambda which: pl.Series(key, which.astype(dtype))
