"""What is told of judgments: numbers that add up over parts, and the pairs examined most."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from gecasmo.judgments.grading import Grading
from gecasmo.judgments.verdicts import INSUFFICIENT, ORDERED

MOST_EXAMINED = 8


@dataclass(frozen=True)
class GradeSums:
    """Numbers of the pairs of one grade, or without one: sums, and of how many."""

    pairs: int = 0
    examinations: float = 0.0
    right: float = 0.0
    with_right: int = 0
    order: float = 0.0
    with_order: int = 0

    def __add__(self, other: GradeSums) -> GradeSums:
        return GradeSums(*(getattr(self, name) + getattr(other, name) for name in vars(self)))

    @property
    def mean_right(self) -> float | None:
        """The mean probability that the grade is right."""
        return self.right / self.with_right if self.with_right else None

    @property
    def mean_order(self) -> float | None:
        """The mean probability that the order within the query is right."""
        return self.order / self.with_order if self.with_order else None


@dataclass(frozen=True)
class Counted:
    """Numbers of judgments, by grade or else by verdict."""

    pairs: int = 0
    without_interval: int = 0
    groups: dict[int | str, GradeSums] = field(default_factory=dict)
    top: pl.DataFrame | None = None

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Counted:
        """The numbers of a frame of judgments."""
        found = frame.group_by("grade", "verdict").agg(
            pl.len(),
            pl.sum("examinations"),
            pl.sum("grade_probability"),
            pl.count("grade_probability").alias("with_right"),
            pl.sum("order"),
            pl.count("order").alias("with_order"),
        )
        groups = {
            verdict if grade is None else grade: GradeSums(*numbers)
            for grade, verdict, *numbers in found.rows()
        }
        return cls(len(frame), frame["low"].null_count(), groups, _top(frame))

    def __add__(self, other: Counted) -> Counted:
        tops = [frame for frame in (self.top, other.top) if frame is not None]
        return Counted(
            self.pairs + other.pairs,
            self.without_interval + other.without_interval,
            {name: self[name] + other[name] for name in {**self.groups, **other.groups}},
            _top(pl.concat(tops)) if tops else None,
        )

    def __getitem__(self, name: int | str) -> GradeSums:
        return self.groups.get(name, GradeSums())

    @property
    def judged(self) -> GradeSums:
        """All pairs that have a grade."""
        grades = sorted(name for name in self.groups if isinstance(name, int))
        return sum((self[grade] for grade in grades), GradeSums())

    @property
    def all(self) -> GradeSums:
        """All pairs."""
        return self.judged + self[ORDERED] + self[INSUFFICIENT]


def _top(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sort("examinations", descending=True, maintain_order=True).head(MOST_EXAMINED)


class Told:
    """What judgments tell of themselves, whether or not they are in memory."""

    model: str
    relevance_is: str
    grading: Grading
    level: float
    max_width: float | None
    min_examinations: float
    min_probability: float
    min_order: float
    why_no_interval: str
    n_given: int
    n_undecided: int
    remarks: tuple[str, ...]

    @property
    def counted(self) -> Counted:
        raise NotImplementedError

    @property
    def n_judged(self) -> int:
        """Pairs that have a grade."""
        return self.counted.judged.pairs

    @property
    def n_ordered(self) -> int:
        """Pairs without a grade whose order within their query is sure enough."""
        return self.counted[ORDERED].pairs

    @property
    def n_insufficient(self) -> int:
        """Pairs that have neither."""
        return self.counted[INSUFFICIENT].pairs

    @property
    def examined_insufficient(self) -> float:
        """The share of all expected examinations that fell on insufficient pairs."""
        total = self.counted.all.examinations
        return self.counted[INSUFFICIENT].examinations / total if total > 0 else 0.0

    @property
    def n_without_interval(self) -> int:
        return self.counted.without_interval

    @property
    def by_grade(self) -> dict[int, int]:
        """The number of judged pairs of each grade."""
        return {grade: self.counted[grade].pairs for grade in range(self.grading.grades)}

    def summary(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        return {
            "model": self.model,
            "relevance_is": self.relevance_is,
            **self.grading.to_dict(),
            "level": self.level,
            "max_width": self.max_width,
            "min_examinations": self.min_examinations,
            "min_probability": self.min_probability,
            "min_order": self.min_order,
            "pairs": len(self),
            "judged": self.n_judged,
            "ordered": self.n_ordered,
            "insufficient": self.n_insufficient,
            "undecided": self.n_undecided,
            "grade_probability": self.counted.judged.mean_right,
            "order": self.counted.all.mean_order,
            "examinations_insufficient": self.examined_insufficient,
            "without_interval": self.n_without_interval,
            "why_no_interval": self.why_no_interval or None,
            "by_grade": {str(grade): count for grade, count in self.by_grade.items()},
            "remarks": list(self.remarks),
        }

    def __len__(self) -> int:
        return self.counted.pairs

    def __str__(self) -> str:
        from gecasmo.judgments.display import as_text

        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
