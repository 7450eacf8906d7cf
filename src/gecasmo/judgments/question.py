"""What is asked of judgments, and how pairs are graded by it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.judgments.cuts import Crowd, Relevances, cells
from gecasmo.judgments.grading import (
    FIXED_CUTS,
    INSUFFICIENT,
    JUDGED,
    ORDERED,
    BetaBeliefs,
    Grading,
    JudgmentsError,
    check_rule,
    grading_of,
)
from gecasmo.judgments.judged import Judgments
from gecasmo.judgments.order import order_of
from gecasmo.judgments.pairs import relevance_coins
from gecasmo.judgments.propensity import scale_remark
from gecasmo.report import printable

if TYPE_CHECKING:
    from gecasmo.model.base import Model

Floats = NDArray[np.float64]

_SLACK = 1e-9  # so that a probability that equals what is asked for is enough


@dataclass(frozen=True)
class Question:
    """The options of `judge`, checked when they are given."""

    rule: str
    grades: int
    thresholds: Sequence[float] | None
    level: float
    max_width: float | None
    min_examinations: float
    min_probability: float
    min_order: float

    def __post_init__(self) -> None:
        check_rule(self.rule, self.grades, self.thresholds)
        for name, most in (
            *(("max_width", None), ("min_examinations", None)),
            *(("min_probability", 1), ("min_order", 1)),
        ):
            value = getattr(self, name)
            if value is None and name == "max_width":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
                raise JudgmentsError(f"{name}={value!r}: a number that is not negative is wanted.")
            if most is not None and value > most:
                raise JudgmentsError(f"{name}={value!r}: a probability from 0 to 1 is wanted.")

    def seen(self, frame: pl.DataFrame) -> NDArray[Any]:
        """What cut points are found by, of some pairs; `cuts` takes it of all, in any order."""
        if self.rule in FIXED_CUTS:
            return np.zeros(0)
        enough = self.has_enough(frame)
        if self.rule != "informative":
            return frame.filter(enough)["relevance"].to_numpy()
        # What is judged without an interval is judged as if it were certain.
        sure = pl.when(enough & frame["low"].is_null()).then(0.0).otherwise(_spread(frame))
        return cells(BetaBeliefs.of(frame.with_columns(spread=sure)))

    def cuts(self, seen: Iterable[NDArray[Any]]) -> Sequence[float] | None:
        """The cut points over all pairs; None for equal steps."""
        known = Crowd() if self.rule == "informative" else Relevances()
        for some in seen:
            known.add(some)
        if self.rule in FIXED_CUTS:
            return self.thresholds
        return known.cuts(self.grades).tolist() if known.n else None

    def has_enough(self, frame: pl.DataFrame) -> pl.Series:
        """Which pairs there is enough data for."""
        too_few = (frame["examinations"] < self.min_examinations) & ~frame["is_given"]
        return ~(_too_wide(frame, self.max_width, self.rule) | too_few)

    def judgments(
        self, model: Model, frame: pl.DataFrame, cuts: Sequence[float] | None
    ) -> Judgments:
        """The graded pairs, sorted; `cuts` are the cut points over all pairs."""
        keys = [name for name in ("query", "relevance", "doc") if name in frame.columns]
        frame = frame.sort(keys, descending=[name == "relevance" for name in keys])
        frame = frame.with_columns(spread=_spread(frame))
        enough = self.has_enough(frame)
        grading = grading_of(self.rule, self.grades, cuts, frame.filter(enough))
        grades = _grades(grading, frame)
        chances, likely = grading.chances(frame), grades["by_relevance"].to_numpy()
        chance = np.take_along_axis(chances, likely[:, None], axis=1)[:, 0]
        # Where no interval is known, and none is asked for, there is nothing to be doubted.
        decided = pl.Series(~(chance < self.min_probability - _SLACK), dtype=pl.Boolean)
        is_judged = enough & decided
        order, above = order_of(frame, is_judged)
        is_ordered = ~is_judged & (order >= self.min_order - _SLACK).fill_null(False)
        if self.rule == "interval":  # what it claims is that the truth reaches the grade
            reached = np.cumsum(chances[:, ::-1], axis=1)[:, ::-1]
            given = grades["grade"].to_numpy()
            chance = np.take_along_axis(reached, given[:, None], axis=1)[:, 0].clip(0, 1)
        grade, rating = pl.col("grade"), pl.col("rating")
        graded = frame.with_columns(
            grades["grade"],
            pl.Series("rating", chances @ np.arange(self.grades)).fill_nan(None),
            pl.Series("grade_probability", chance).fill_nan(None),
            order,
            above,
            *(grades[name] for name in ("grade_low", "grade_high")),
            is_judged.alias("*judged*"),
            is_ordered.alias("*ordered*"),
        ).with_columns(
            pl.when("*judged*").then(grade).alias("grade"),
            pl.when("*judged*").then(rating.fill_null(grade)).otherwise(rating).alias("rating"),
            pl.when("*judged*")
            .then(pl.lit(JUDGED))
            .when("*ordered*")
            .then(pl.lit(ORDERED))
            .otherwise(pl.lit(INSUFFICIENT))
            .alias("verdict"),
        )
        return Judgments(
            frame=graded.select(
                *(name for name in ("query", "doc") if name in graded.columns),
                *("relevance", "low", "high", "examinations", "grade", "rating", "verdict"),
                *("rests_on", "grade_probability", "order", "above"),
                *("grade_low", "grade_high", "spread"),
            ),
            # Names may come from a file, and go into comments of others.
            model=printable(model.name),
            relevance_is=printable(" x ".join(relevance_coins(model))),
            grading=grading,
            level=self.level,
            max_width=self.max_width,
            min_examinations=self.min_examinations,
            min_probability=self.min_probability,
            min_order=self.min_order,
            why_no_interval=_why_no_interval(model, frame),
            n_given=int(frame["is_given"].sum()),
            n_undecided=int((enough & ~decided).sum()),
            remarks=tuple(filter(None, [scale_remark(model)])),
        )


def _spread(frame: pl.DataFrame) -> pl.Series:
    """Spreads of the pairs whose interval is known."""
    known = pl.when(pl.col("low").is_not_null()).then(pl.col("spread").fill_nan(None))
    return frame.select(spread=known)["spread"]


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


def _grades(grading: Grading, frame: pl.DataFrame) -> pl.DataFrame:
    """The grade of each pair by the rule, that of its relevance, and those of its interval."""
    sources = {
        "grade": "low" if grading.rule == "interval" else "relevance",
        "by_relevance": "relevance",
        "grade_low": "low",
        "grade_high": "high",
    }
    columns = []
    for name, source in sources.items():
        grade = grading.grade(frame[source].fill_null(0.0).to_numpy(), frame)
        columns.append(pl.Series(name, grade, dtype=pl.Int64))
    known = {"grade_low": frame["low"].is_not_null(), "grade_high": frame["high"].is_not_null()}
    return pl.DataFrame(columns).with_columns(
        pl.when(is_known).then(pl.col(name)).alias(name) for name, is_known in known.items()
    )
