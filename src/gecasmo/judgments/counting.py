"""What is told of judgments: numbers that add up over parts, and the pairs examined most."""

from __future__ import annotations

import html
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from gecasmo.judgments.grading import Grading

MOST_EXAMINED = 8


@dataclass(frozen=True)
class Counted:
    """Numbers of judgments; the grade of insufficient pairs is None."""

    pairs: int = 0
    without_interval: int = 0
    by_grade: dict[int | None, int] = field(default_factory=dict)
    examined: dict[int | None, float] = field(default_factory=dict)
    top: pl.DataFrame | None = None

    @classmethod
    def of(cls, frame: pl.DataFrame) -> Counted:
        """The numbers of a frame of judgments."""
        looks = frame.group_by("grade").agg(pl.len().alias("pairs"), pl.sum("examinations"))
        return cls(
            len(frame),
            frame["low"].null_count(),
            dict(looks.select("grade", "pairs").rows()),
            dict(looks.select("grade", "examinations").rows()),
            _top(frame),
        )

    def __add__(self, other: Counted) -> Counted:
        tops = [frame for frame in (self.top, other.top) if frame is not None]
        return Counted(
            self.pairs + other.pairs,
            self.without_interval + other.without_interval,
            _added(self.by_grade, other.by_grade),
            _added(self.examined, other.examined),
            _top(pl.concat(tops)) if tops else None,
        )


def _top(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.sort("examinations", descending=True, maintain_order=True).head(MOST_EXAMINED)


def _added(one: dict[Any, Any], other: dict[Any, Any]) -> dict[Any, Any]:
    return {grade: one.get(grade, 0) + other.get(grade, 0) for grade in {**one, **other}}


class Told:
    """What judgments tell of themselves, whether or not they are in memory."""

    model: str
    relevance_is: str
    grading: Grading
    level: float
    max_width: float | None
    min_examinations: float
    why_no_interval: str
    n_given: int
    n_undecided: int
    remarks: tuple[str, ...]

    @property
    def counted(self) -> Counted:
        raise NotImplementedError

    @property
    def n_judged(self) -> int:
        return len(self) - self.n_insufficient

    @property
    def n_insufficient(self) -> int:
        return self.counted.by_grade.get(None, 0)

    @property
    def examined_insufficient(self) -> float:
        """The share of all expected examinations that fell on insufficient pairs."""
        total = float(sum(self.counted.examined.values()))
        return self.counted.examined.get(None, 0.0) / total if total > 0 else 0.0

    @property
    def n_without_interval(self) -> int:
        return self.counted.without_interval

    @property
    def by_grade(self) -> dict[int, int]:
        """The number of judged pairs of each grade."""
        return {grade: self.counted.by_grade.get(grade, 0) for grade in range(self.grading.grades)}

    def summary(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        return {
            "model": self.model,
            "relevance_is": self.relevance_is,
            **self.grading.to_dict(),
            "level": self.level,
            "max_width": self.max_width,
            "min_examinations": self.min_examinations,
            "pairs": len(self),
            "judged": self.n_judged,
            "insufficient": self.n_insufficient,
            "undecided": self.n_undecided,
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
