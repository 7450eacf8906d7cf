"""Feature columns of a coin's rows: where they come from, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding.match import match
from gecasmo.encoding.rows import Rows
from gecasmo.errors import ClickLogError, ModelError, either
from gecasmo.language.parameter import HISTORY_KEYS, POSITION_KEYS
from gecasmo.logs import ClickLog

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Wanted:
    """The feature columns that the form of a coin reads.

    Coins that share a form share this object. `frame` is a table of features by key, for columns
    that are not in the log. With `allow_missing`, missing and infinite values become nulls. With
    `pages` rows are told on which page they are, and which results above them were clicked.
    """

    columns: tuple[str, ...]
    allow_missing: bool = False
    frame: pl.DataFrame | None = None
    pages: bool = False

    def from_frame(self, keys: Sequence[str]) -> list[str]:
        """The columns that the frame supplies."""
        given = () if self.frame is None else self.frame.columns
        return [c for c in self.columns if c in given and c not in keys]

    def from_log(self, keys: Sequence[str]) -> list[str]:
        """The columns that the log supplies beside the keys."""
        there = self.from_frame(keys)
        return [c for c in self.columns if c not in keys and c not in there]


def check_features(
    log: ClickLog, keys: Mapping[str, Sequence[str]], wanted: Mapping[str, Wanted]
) -> None:
    """Refuse features that are not there, or hold values that no form can use."""
    for coin, need in wanted.items():
        if "click" in need.columns:
            raise ModelError(
                f"The form of '{coin}' reads 'click', which is what the model is to explain."
            )
        for name in need.from_log(keys[coin]):
            if name in HISTORY_KEYS:
                listed = ", ".join(f'"{key}"' for key in (*keys[coin], name))
                raise ModelError(
                    f"The form of '{coin}' reads '{name}', which depends on the clicks above a "
                    f"result and so must be part of its key: key=({listed})."
                )
        made = (*POSITION_KEYS, *HISTORY_KEYS, *need.from_frame(keys[coin]))
        for name in need.columns:
            if name not in log.columns and name not in made:
                raise ClickLogError(
                    f"The form of '{coin}' reads the column '{name}', and the log has no such "
                    f"column.\n  It has: {', '.join(log.columns)}.\n"
                    + either(
                        f'  Perhaps a table of features: fit(log, features={{"{coin}": frame}})',
                        "  Perhaps another log, which has it; a separate table of features can "
                        "only be given in Python.",
                    )
                )
        for key in keys[coin]:
            beside = () if need.frame is None else need.frame.columns
            if key in beside and key not in log.columns and key not in made:
                raise ClickLogError(
                    f"The features of '{coin}' are taken to be by {', '.join(keys[coin])}, and the "
                    f"log has no column '{key}'.\n  It has: {', '.join(log.columns)}.\n"
                    "  Perhaps rename or drop columns of the frame, or name the key in the form: "
                    'key="doc"'
                )
        for name in need.columns:
            if name in log.columns and name not in need.from_frame(keys[coin]):
                usable(log.column(name), coin, need.allow_missing)


def usable(column: pl.Series, coin: str, allow_missing: bool, what: str = "results") -> pl.Series:
    """A feature column with missing and infinite values as nulls, which may be refused."""
    dtype = column.dtype
    textual = (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Null)
    if not (dtype.is_numeric() or dtype in textual):
        raise ClickLogError(
            f"The column '{column.name}' cannot be a feature of '{coin}': it holds {dtype}. A "
            "feature is a number, a text or a truth value."
        )
    is_infinite = column.is_infinite() if dtype.is_float() else None
    cleaned = column
    if dtype.is_float():
        cleaned = column.fill_nan(None)
        if is_infinite is not None and is_infinite.any():
            cleaned = cleaned.set(is_infinite.fill_null(False), None)
    if allow_missing or not cleaned.null_count():
        return cleaned
    n_infinite = 0 if is_infinite is None else int(is_infinite.sum() or 0)
    n_missing = cleaned.null_count() - n_infinite
    numbers = {"missing": n_missing, "infinite": n_infinite}
    faults = [f"{n:,} {word}" for word, n in numbers.items() if n]
    first = int(cleaned.is_null().arg_max() or 0)
    raise ClickLogError(
        f"The column '{column.name}', a feature of '{coin}', has {' and '.join(faults)} values in "
        f"{len(column):,} {what} (first: row {first}). Fill them, or let the form put in the mean "
        '(for texts: a level of their own) with missing="mean".'
    )


def is_missing(column: pl.Series) -> NDArray[np.bool_]:
    """Where a column of numbers has none: null, or not a number."""
    missing = column.is_null()
    if column.dtype.is_float():
        missing |= column.is_nan().fill_null(True)
    return missing.to_numpy()


def looked_up(rows: Rows, coin: str, need: Wanted) -> dict[str, pl.Series]:
    """The features that a separate frame has for these rows."""
    columns = need.from_frame(rows.keys)
    if not columns:
        return {}
    assert need.frame is not None
    by = [key for key in rows.keys if key in need.frame.columns]
    _check_frame(need.frame, by, coin)
    place = match(rows.frame, need.frame, by)
    lost = place < 0
    if lost.any():
        first = rows.frame.select(by).row(int(np.argmax(lost)))
        raise ClickLogError(
            f"The features of '{coin}' lack {int(lost.sum()):,} of {len(rows):,} rows (first: "
            f"{_named(by, first)}). Add them to the frame; for answers about new rows: "
            f"model.with_features({coin}=frame)."
        )
    number = pl.Series(place)
    return {
        name: usable(need.frame[name], coin, need.allow_missing, "rows of its frame").gather(number)
        for name in columns
    }


def _check_frame(frame: pl.DataFrame, by: Sequence[str], coin: str) -> None:
    if not by or any(key in HISTORY_KEYS for key in by):
        raise ModelError(
            f"The features of '{coin}' have no column by which to find a row; the frame has: "
            f"{', '.join(frame.columns)}."
        )
    twice = frame.select(by).is_duplicated()
    if twice.any():
        key = frame.select(by).filter(twice).row(0)
        raise ModelError(
            f"The features of '{coin}' have {int(twice.sum()):,} rows with a key that occurs more "
            f"than once (first: {_named(by, key)})."
        )


def refuse_disagreement(
    coin: str, name: str, rows: Rows, row: int, values: tuple[object, object]
) -> None:
    """Say which key has two values of a feature, and what to do."""
    key = _named(rows.keys, rows.frame.row(row)) if rows.keys else "the only row"
    raise ClickLogError(
        f"The column '{name}', a feature of '{coin}', is not the same wherever its key is: "
        f"{key} has {values[0]!r} and {values[1]!r}.\n"
        '  Perhaps key="result", by which every shown result is a row of its own, or no key at '
        "all (a row per combination of the columns)."
    )


def _named(keys: Sequence[str], values: Sequence[object]) -> str:
    return ", ".join(f"{key} {value!r}" for key, value in zip(keys, values, strict=True))
