"""`judge`: graded judgments from a fitted model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from gecasmo.judgments.errors import JudgmentsError
from gecasmo.judgments.examination import scale_remark
from gecasmo.judgments.grading import Grading, check_rule, grading_of
from gecasmo.judgments.judged import INSUFFICIENT, JUDGED, Judgments
from gecasmo.judgments.pairs import relevance_coins, relevance_frame
from gecasmo.judgments.printing import printable

if TYPE_CHECKING:
    from gecasmo.model.base import Model


def judge(
    model: Model,
    *,
    grades: int = 4,
    rule: str = "quantile",
    thresholds: Sequence[float] | None = None,
    level: float = 0.9,
    max_width: float | None = 0.4,
    min_examinations: float = 10.0,
    pairs: Any = None,
) -> Judgments:
    """Grade every pair of query and document that a fitted model knows.

    Parameters
    ----------
    model : fitted model
        Its `relevance` names the coins whose product is relevance.
    grades : int
        How many grades there are, 2 to 10; 4 means grades 0, 1, 2 and 3.
    rule : str
        "quantile": grades hold equal shares of the pairs with enough data; pairs of equal relevance
        get the grade of the middle one of them, in doubt the lower. "quantile-per-query": the same
        within each query; a query with fewer such pairs than grades is graded by the cut points
        over all. "threshold": relevance against cut points. "interval": the lower end of the
        interval against cut points, so that a high grade is only given where it is sure.
    thresholds : numbers, optional
        The cut points of "threshold" and "interval", ascending, one fewer than there are grades; a
        value that equals a cut point has reached it. By default equal steps.
    level : float
        The level of the intervals.
    max_width : float or None
        A pair whose interval is wider, or unknown, is insufficient. 0.4 asks for some 15
        examinations in the middle of the scale. None asks for no width at all; then relevance that
        rests on features (a `Logistic`, say, which has no intervals) can be judged, too.
    min_examinations : float
        A pair with fewer expected examinations is insufficient. Forms on features count none: to
        judge by them say `max_width=None, min_examinations=0`.
    pairs : data frame or ClickLog, optional
        The pairs to be judged, with `query` and `doc` and whatever other columns the coins of
        relevance are found by. By default all rows of the fit.

    Returns
    -------
    Judgments
        Its `frame` is sorted by query, the most relevant document first. A pair whose interval
        reaches from the lowest to the highest grade is insufficient, however narrow it is: any
        grade could be right.
    """
    check_rule(rule, grades, thresholds)
    limits = {"max_width": max_width, "min_examinations": min_examinations}
    for name, value in limits.items():
        if value is None and name == "max_width":
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise JudgmentsError(f"{name}={value!r}: a number that is not negative is wanted.")
    frame = relevance_frame(model, pairs, level)
    too_few = (frame["examinations"] < min_examinations) & ~frame["is_given"]
    enough = ~(_too_wide(frame, max_width, rule) | too_few)
    grading = grading_of(rule, grades, thresholds, frame.filter(enough))
    undecided = enough & _covers_all_grades(grading, frame)
    enough &= ~undecided
    order = [name for name in ("query", "relevance", "doc") if name in frame.columns]
    graded = (
        frame.drop("is_given", "lacks_by_features")
        .with_columns(_grades(grading, frame, enough))
        .with_columns(
            verdict=pl.Series(
                np.where(enough.to_numpy(), JUDGED, INSUFFICIENT).tolist(), dtype=pl.String
            )
        )
        .sort(order, descending=[name == "relevance" for name in order])
    )
    columns = [name for name in ("query", "doc") if name in graded.columns]
    return Judgments(
        frame=graded.select(
            *columns,
            *("relevance", "low", "high", "examinations", "grade", "verdict", "rests_on"),
            *("grade_low", "grade_high", "spread"),
        ),
        # Names may come from a file, and go into comments of others.
        model=printable(model.name),
        relevance_is=printable(" x ".join(relevance_coins(model))),
        grading=grading,
        level=level,
        max_width=None if max_width is None else float(max_width),
        min_examinations=float(min_examinations),
        why_no_interval=_why_no_interval(model, frame),
        n_given=int(frame["is_given"].sum()),
        n_undecided=int(undecided.sum()),
        remarks=tuple(filter(None, [scale_remark(model)])),
    )


def _covers_all_grades(grading: Grading, frame: pl.DataFrame) -> pl.Series:
    """Which intervals reach from the lowest to the highest grade, and so tell nothing."""
    low, high = (frame[name].fill_null(0.0).to_numpy() for name in ("low", "high"))
    widest = (grading.grade(low, frame) == 0) & (grading.grade(high, frame) == grading.grades - 1)
    return pl.Series(widest, dtype=pl.Boolean) & frame["low"].is_not_null()


def _too_wide(frame: pl.DataFrame, max_width: float | None, rule: str) -> pl.Series:
    """Which intervals are too wide; nobody knows how wide an unknown one is."""
    unknown = frame["low"].is_null()
    if max_width is not None:
        return unknown | (frame["high"] - frame["low"] > max_width).fill_null(True)
    return unknown if rule == "interval" else unknown & ~frame["lacks_by_features"]


def _why_no_interval(model: Model, frame: pl.DataFrame) -> str:
    """Why pairs have no interval, if some have none."""
    unknown = frame["low"].is_null()
    if not unknown.any():
        return ""
    report = model.report_
    if not (unknown & ~frame["lacks_by_features"]).any():
        return "forms on features have no intervals"
    if report is None:
        return "given values have no intervals"
    if report.interrupted:
        return "the fit was interrupted, so there are no intervals"
    if not report.converged:
        return "the fit did not converge, so there are no intervals"
    return "this fit worked out no intervals, which takes EM and intervals=True"


def _grades(grading: Grading, frame: pl.DataFrame, enough: pl.Series) -> list[pl.Series]:
    """The grade where there is enough data, and the grades at both ends of the interval."""
    by = "low" if grading.rule == "interval" else "relevance"
    columns = []
    for name, source, known in (
        ("grade", by, enough),
        ("grade_low", "low", frame["low"].is_not_null()),
        ("grade_high", "high", frame["high"].is_not_null()),
    ):
        values = frame[source].fill_null(0.0).to_numpy()
        grades = pl.Series(name, grading.grade(values, frame), dtype=pl.Int64)
        columns.append(grades.to_frame().select(pl.when(known).then(pl.col(name)))[name])
    return columns
