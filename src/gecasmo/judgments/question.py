"""What is asked of judgments, and how pairs are graded by it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from gecasmo.judgments.examination import scale_remark
from gecasmo.judgments.grading import Grading, grading_of
from gecasmo.judgments.judged import INSUFFICIENT, JUDGED, Judgments
from gecasmo.judgments.pairs import relevance_coins
from gecasmo.judgments.printing import printable

if TYPE_CHECKING:
    from gecasmo.model.base import Model


@dataclass(frozen=True)
class Question:
    """The options of `judge`, checked."""

    rule: str
    grades: int
    thresholds: Sequence[float] | None
    level: float
    max_width: float | None
    min_examinations: float

    def grading(self, judged: pl.DataFrame) -> Grading:
        """The rule with its cut points; `judged` are the pairs there is enough data for."""
        return grading_of(self.rule, self.grades, self.thresholds, judged)

    def has_enough(self, frame: pl.DataFrame) -> pl.Series:
        """Which pairs there is enough data for."""
        too_few = (frame["examinations"] < self.min_examinations) & ~frame["is_given"]
        return ~(_too_wide(frame, self.max_width, self.rule) | too_few)

    def judgments(
        self, model: Model, frame: pl.DataFrame, enough: pl.Series, grading: Grading
    ) -> Judgments:
        """The graded pairs, sorted."""
        undecided = enough & _covers_all_grades(grading, frame)
        enough = enough & ~undecided
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
            level=self.level,
            max_width=self.max_width,
            min_examinations=self.min_examinations,
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
