"""Which pairs and queries are most worth a person's time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import option
from gecasmo.judgments.grades import JUDGED, Grading, JudgmentsError, most_likely
from gecasmo.judgments.judged import JudgedPart, Judgments, id_columns, short
from gecasmo.model.log_parts import in_memory, is_stored, overlap, partitioned_by
from gecasmo.report import Column, TextTable, wrapped

if TYPE_CHECKING:
    from gecasmo.logs import ClickLog
    from gecasmo.logs.store import StoredLog

Floats = NDArray[np.float64]

_LEGEND = (
    "likely: the most likely grade; wrong: the probability that it is another (of a query: the "
    "number of its pairs to be expected with another); worth: traffic x wrong, the views to be "
    "expected under a wrong grade."
)
_CHANGE = (
    "likely: the most likely grade; wrong: the probability that it is another (of a query: the "
    "number of its pairs to be expected with another); traffic: examinations of the query's most "
    "examined pair; change: how far a sure grade is expected to be from the rating; worth: traffic "
    "x change."
)
_NAMES = {"likely_grade": "likely", "chance_wrong": "wrong", "likely_wrong": "wrong"}
_NAMES |= {"without_grade": "no grade"}
_DIGITS = {"relevance": 3, "chance_wrong": 2, "likely_wrong": 1, "traffic": 0, "worth": 1}
_DIGITS |= {"change": 2}


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
        """Lay out both tables with a legend; with `most` only so many lines of each."""
        blocks = [str(_table("pairs most worth judging by hand", self.pairs, most))]
        if self.queries is not None:
            blocks.append(str(_table("queries most worth judging by hand", self.queries, most)))
        legend = _CHANGE if "change" in self.pairs.columns else _LEGEND
        return "\n\n".join([*blocks, "\n".join(wrapped(legend))])


def worth_judging(
    judgments: Judgments, n: int, log: ClickLog | StoredLog | None, judge: str | None = None
) -> WorthJudging:
    """See `Judgments.worth_judging`."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise JudgmentsError(f"n={n!r}: how many pairs to name, at least 1.")
    done = None if judge is None else _done(judgments, judge)
    with_judges = judgments.panel is not None
    found = [
        _of_part(
            part,
            n,
            None if log is None else _pages(log, part.number, judgments.n_parts),
            with_judges,
            done,
        )
        for part in judgments.parts()
    ]
    # No query is in two parts.
    pairs = pl.concat([part.pairs for part in found])
    keys: list[str] = [name for name in ("query", "doc") if name in pairs.columns]
    by_query = [part.queries for part in found if part.queries is not None]
    queries = _first(pl.concat(by_query), ["query"], n) if by_query else None
    return WorthJudging(_first(pairs, keys, n), queries)


def _done(judgments: Judgments, judge: str) -> pl.DataFrame:
    """The pairs that a judge has graded."""
    heard = () if judgments.panel is None else judgments.panel.judges
    for one in heard:
        if one.judge.name == judge:
            return one.judge.frame
    known = ", ".join(one.judge.name for one in heard) or "none"
    raise JudgmentsError(f"{option('judge', judge)}: there is no such judge, only: {known}.")


def _of_part(
    part: JudgedPart,
    n: int,
    pages: Iterable[ClickLog] | None,
    with_judges: bool,
    done: pl.DataFrame | None,
) -> WorthJudging:
    frame = part.frame
    keys: list[str] = [name for name in ("query", "doc") if name in frame.columns]
    traffic = frame["examinations"] if pages is None else _shown(frame, keys, pages)
    likely, wrong = chance_wrong(part.grading, frame)
    pairs = frame.select(*keys, "relevance", "low", "high", "verdict").with_columns(
        pl.Series("likely_grade", likely),
        pl.Series("chance_wrong", wrong).fill_nan(None),
        traffic.alias("traffic"),
    )
    lost = pl.col("chance_wrong")
    if with_judges:
        grades = np.arange(part.grading.grades)
        far = np.abs(grades - frame["rating"].fill_null(0.0).to_numpy()[:, None])
        change = (part.grading.chances(frame) * far).sum(axis=1)
        busiest = pl.max("traffic")
        busiest = busiest.over("query") if "query" in keys else busiest
        pairs = pairs.with_columns(
            pl.max_horizontal(busiest, 1.0).alias("traffic"),
            pl.Series("change", change).fill_nan(None),
        )
        lost = pl.col("change")
    pairs = pairs.with_columns(worth=pl.col("traffic") * lost)
    if done is not None:
        pairs = pairs.join(done, on=keys, how="anti", maintain_order="left")
    queries = None
    if "query" in keys:
        queries = pairs.group_by("query", maintain_order=True).agg(
            pairs=pl.len(),
            without_grade=(pl.col("verdict") != JUDGED).sum(),
            likely_wrong=pl.col("chance_wrong").sum(),
            traffic=pl.col("traffic").max() if with_judges else pl.col("traffic").sum(),
            worth=pl.col("worth").sum(),
        )
        queries = _first(queries, ["query"], n)
    return WorthJudging(_first(pairs, keys, n), queries)


def _pages(log: ClickLog | StoredLog, number: int, n_parts: int) -> Iterator[ClickLog]:
    """The pages on which pairs of a part can be shown, some at a time."""
    if not is_stored(log):
        yield in_memory(log)
        return
    near_by = overlap(number, number + 1, n_parts, log.n_partitions)
    if partitioned_by(log) != "query":
        near_by = 0, log.n_partitions
    for near in range(*near_by):
        yield log.partition(near)


def chance_wrong(grading: Grading, frame: pl.DataFrame) -> tuple[NDArray[np.int64], Floats]:
    """The most likely grade of each pair, and the probability that the truth has another."""
    chances = grading.chances(frame)
    own = grading.grade(frame["relevance"].to_numpy(), frame)
    likely = most_likely(chances, own)
    return likely, np.clip(1 - np.take_along_axis(chances, likely[:, None], axis=1)[:, 0], 0, 1)


def _first(frame: pl.DataFrame, keys: list[str], n: int) -> pl.DataFrame:
    descending = [True, *(False for _ in keys)]
    return frame.sort(["worth", *keys], descending=descending, nulls_last=True).head(n)


def _shown(frame: pl.DataFrame, keys: list[str], logs: Iterable[ClickLog]) -> pl.Series:
    """How often each pair is shown in logs; sessions count with their weight."""
    total = pl.Series("shown", np.zeros(len(frame)))
    for log in logs:
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
        total = total + found["shown"].fill_null(0.0)
    return total


def _table(title: str, frame: pl.DataFrame, most: int | None) -> TextTable:
    rows = frame.head(most or len(frame))
    others = [
        Column(_NAMES.get(name, name), [_cell(value, name) for value in rows[name]])
        for name in rows.columns
        if name not in ("query", "doc", "low", "high", "verdict")
    ]
    return TextTable([*id_columns(rows), *others], title, len(frame) - len(rows))


def _cell(value: object, name: str) -> str:
    if value is None:
        return "unknown"
    return short(value, _DIGITS.get(name, 3)) if isinstance(value, float) else str(value)
