"""Which pairs and queries are most worth a person's time."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.judgments.grading import JUDGED, Grading, JudgmentsError
from gecasmo.judgments.judged import Judgments, short
from gecasmo.judgments.printing import fitted, text_width
from gecasmo.model.streaming import all_pieces, is_stored

if TYPE_CHECKING:
    from gecasmo.logs import ClickLog

Floats = NDArray[np.float64]

_LEGEND = (
    "likely: the most likely grade; wrong: the probability that it is another (of a query: the "
    "number of its pairs to be expected with another); worth: traffic x wrong, the views to be "
    "expected under a wrong grade."
)
_DIGITS = {"relevance": 3, "chance_wrong": 2, "likely_wrong": 1, "traffic": 0, "worth": 1}


class WorthJudging(NamedTuple):
    """What to judge by hand, the most worthy first.

    `pairs` has `likely_grade`, `chance_wrong` (the probability that the grade is another),
    `traffic` and `worth`, their product; `queries` has sums of these over the pairs of a query, and
    is None if the judgments know no queries.
    """

    pairs: pl.DataFrame
    queries: pl.DataFrame | None

    def __str__(self) -> str:
        return self.text()

    def text(self, most: int | None = None) -> str:
        """Both tables with a legend; with `most` only so many lines of each."""
        blocks = [_text("pairs most worth judging by hand", self.pairs, most)]
        if self.queries is not None:
            blocks.append(_text("queries most worth judging by hand", self.queries, most))
        legend = textwrap.wrap(_LEGEND, text_width(), break_on_hyphens=False)
        return "\n\n".join([*blocks, "\n".join(legend)])


def worth_judging(judgments: Judgments, n: int, log: ClickLog | None) -> WorthJudging:
    """See `Judgments.worth_judging`."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise JudgmentsError(f"n={n!r}: how many pairs to name, at least 1.")
    frame = judgments.frame
    keys: list[str] = [name for name in ("query", "doc") if name in frame.columns]
    traffic = frame["examinations"] if log is None else _shown(frame, keys, log)
    likely, wrong = chance_wrong(judgments.grading, frame)
    pairs = frame.select(*keys, "relevance", "low", "high", "verdict").with_columns(
        pl.Series("likely_grade", likely),
        pl.Series("chance_wrong", wrong).fill_nan(None),
        traffic.alias("traffic"),
    )
    pairs = pairs.with_columns(worth=pl.col("traffic") * pl.col("chance_wrong"))
    queries = None
    if "query" in keys:
        queries = pairs.group_by("query", maintain_order=True).agg(
            pairs=pl.len(),
            without_grade=(pl.col("verdict") != JUDGED).sum(),
            likely_wrong=pl.col("chance_wrong").sum(),
            traffic=pl.col("traffic").sum(),
            worth=pl.col("worth").sum(),
        )
        queries = _first(queries, ["query"], n)
    return WorthJudging(_first(pairs, keys, n), queries)


def most_worthy(found: Sequence[WorthJudging], n: int) -> WorthJudging:
    """The most worthy of several parts that have no query in common."""
    pairs = pl.concat([part.pairs for part in found])
    keys: list[str] = [name for name in ("query", "doc") if name in pairs.columns]
    by_query = [part.queries for part in found if part.queries is not None]
    queries = _first(pl.concat(by_query), ["query"], n) if by_query else None
    return WorthJudging(_first(pairs, keys, n), queries)


def chance_wrong(grading: Grading, frame: pl.DataFrame) -> tuple[NDArray[np.int64], Floats]:
    """The most likely grade of each pair, and the probability that the truth has another."""
    chances = grading.chances(frame)
    own = grading.grade(frame["relevance"].to_numpy(), frame)
    likely = np.where(np.isnan(chances[:, 0]), own, np.argmax(np.nan_to_num(chances), axis=1))
    return likely, np.clip(1 - np.take_along_axis(chances, likely[:, None], axis=1)[:, 0], 0, 1)


def _first(frame: pl.DataFrame, keys: list[str], n: int) -> pl.DataFrame:
    descending = [True, *(False for _ in keys)]
    return frame.sort(["worth", *keys], descending=descending, nulls_last=True).head(n)


def _shown(frame: pl.DataFrame, keys: list[str], log: ClickLog) -> pl.Series:
    """How often each pair is shown in a log; sessions count with their weight."""
    if is_stored(log):
        total = pl.Series("shown", np.zeros(len(frame)))
        for _, pages in all_pieces(log):
            total = total + _shown(frame, keys, pages)
        return total
    lost = [key for key in keys if key not in log.columns]
    if lost:
        raise JudgmentsError(f"The log lacks {', '.join(lost)}, so traffic cannot be counted.")
    shown = pl.DataFrame([log.column(key) for key in keys])
    counts = (
        shown.with_columns(shown=pl.Series(log.weight[log.page]))
        .group_by(keys)
        .agg(pl.sum("shown"))
    )
    for key in keys:
        if counts[key].dtype != frame[key].dtype:
            raise JudgmentsError(
                f"'{key}' holds {counts[key].dtype} in the log and {frame[key].dtype} in the "
                "judgments; read the log with the same type of ids."
            )
    found = frame.select(keys).join(counts, on=keys, how="left", maintain_order="left")
    return found["shown"].fill_null(0.0)


def _text(title: str, frame: pl.DataFrame, most: int | None) -> str:
    names = {"likely_grade": "likely", "chance_wrong": "wrong", "likely_wrong": "wrong"}
    names |= {"without_grade": "no grade"}
    shown = [name for name in frame.columns if name not in ("low", "high", "verdict")]
    n_ids = sum(name in ("query", "doc") for name in shown)
    room = (text_width() - 2 - 10 * (len(shown) - n_ids)) // n_ids - 1
    widths = {name: min(20, room) if name in ("query", "doc") else 10 for name in shown}
    lines = [title, _line([names.get(name, name) for name in shown], widths)]
    for row in frame.select(shown).head(most or len(frame)).rows():
        cells = [_cell(value, name) for value, name in zip(row, shown, strict=True)]
        lines.append(_line(cells, widths))
    if most is not None and len(frame) > most:
        lines.append(f"  ... and {len(frame) - most:,} more")
    return "\n".join(lines)


def _cell(value: object, name: str) -> str:
    if value is None:
        return "unknown"
    return short(value, _DIGITS.get(name, 3)) if isinstance(value, float) else str(value)


def _line(cells: list[str], widths: dict[str, int]) -> str:
    parts = []
    for cell, (name, width) in zip(cells, widths.items(), strict=True):
        is_id = name in ("query", "doc")
        parts.append(fitted(cell, width) + " " if is_id else f"{cell:>{width}}")
    return ("  " + "".join(parts)).rstrip()
