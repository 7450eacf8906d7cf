"""Numbers, rows and lists in plain words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecasmo.encoding import Rows
from gecasmo.logs import ClickLog


def counted(number: float, one: str = "", many: str | None = None) -> str:
    """A number with its noun: "1 page", "2,000 pages"."""
    shown = f"{number:,.0f}" if float(number).is_integer() else f"{number:,.1f}"
    return f"{shown} {one if number == 1 else many or one + 's'}" if one else shown


def share(part: float, whole: float) -> str:
    """A part in percent, with as many digits as tell it apart from none and all."""
    if whole <= 0:
        return "0 %"
    percent = 100 * part / whole
    if percent == 0 or percent == 100:
        return f"{percent:.0f} %"
    if percent < 0.01:
        return "< 0.01 %"
    if percent > 99.99:
        return "> 99.99 %"
    return f"{percent:.3g} %" if percent < 10 or percent > 99 else f"{percent:.0f} %"


def listed(items: Iterable[str], last: str = "and") -> str:
    """Items in a row: "a, b and c"."""
    *others, final = list(items)
    return f"{', '.join(others)} {last} {final}" if others else final


def summed_up(names: Sequence[str], most: int = 3) -> str:
    """Names of parameters such as "examination of rank 2", those of one coin together."""
    coins: dict[str, list[str]] = {}
    for name in names:
        coin, _, row = name.partition(" of ")
        coins.setdefault(coin, []).append(row)
    texts = []
    for coin, rows in coins.items():
        if rows == [""]:
            texts.append(coin)
            continue
        more = f" and {len(rows) - most:,} more" if len(rows) > most else ""
        texts.append(f"{coin} of {'; '.join(rows[:most])}{more}")
    return listed(texts)


def shortened(text: str, width: int = 60) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def value_text(value: Any) -> str:
    """A value of the log, so that text and numbers can be told apart."""
    return shortened(repr(value) if isinstance(value, str) else str(value), 40)


def row_text(rows: Rows, number: int) -> str:
    """A row of a coin: "rank 3", "query 'q1', doc 'd7'"; empty for a coin without key."""
    if not rows.keys:
        return ""
    values = rows.frame.row(int(number))
    return ", ".join(f"{key} {value_text(v)}" for key, v in zip(rows.keys, values, strict=True))


def rows_text(rows: Rows, numbers: Sequence[int] | NDArray[np.int64], most: int = 3) -> str:
    """Some rows of a coin, and how many more there are."""
    shown = [row_text(rows, number) for number in list(numbers)[:most]]
    more = len(numbers) - len(shown)
    return "; ".join(shown) + (f"; and {more:,} more" if more > 0 else "")


def session_text(log: ClickLog, session: int) -> str:
    return f"session {value_text(log.sessions[int(session)])}"
