"""`Judgments`: graded pairs with intervals, ready to be looked at and written.

What is told of judgments are numbers that add up over parts, and the pairs examined most. In a
terminal they are never wider than it is, nor than 100 columns.
"""

from __future__ import annotations

import html
import textwrap
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.judgments.grading import INSUFFICIENT, JUDGED, ORDERED, Grading
from gecasmo.judgments.printing import fitted, printable, text_width

if TYPE_CHECKING:
    from gecasmo.judgments.formats import Written
    from gecasmo.judgments.worth import WorthJudging
    from gecasmo.logs import ClickLog

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
        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


@dataclass(frozen=True, repr=False)
class Judgments(Told):
    """What `judge(model)` found.

    Attributes
    ----------
    frame : pl.DataFrame
        A row per pair: `query` (unless the model knows none), `doc`, `relevance`, its interval
        from `low` to `high`, `examinations` (expected number behind it), `grade` (null where the
        data do not suffice), `rating` (the expected grade, a number from 0 to the highest grade),
        `verdict` ("judged", "ordered" or "insufficient"), `rests_on`, `grade_probability` (that
        the truth lies in the grade of the relevance), `order` (the mean probability, over the
        other judged pairs of the query, that the order by relevance is right), `above` (the
        probability that the truth is above that of the query's next pair), the grades at the ends
        of the interval (`grade_low`, `grade_high`), and `spread`, the standard deviation.
    model : name of the model
    relevance_is : which coins relevance is the product of
    grading : the rule with its cut points
    level, max_width, min_examinations, min_probability, min_order : as they were asked for
    why_no_interval : why some pairs have no interval; empty if all have one
    n_given : pairs whose relevance was given, not estimated; it counts as certain
    n_undecided : pairs without a grade for the one reason that it would not be probable enough
    remarks : what a reader of the grades should know, in sentences
    """

    frame: pl.DataFrame
    model: str
    relevance_is: str
    grading: Grading
    level: float
    max_width: float | None
    min_examinations: float
    min_probability: float
    min_order: float
    why_no_interval: str = ""
    n_given: int = 0
    n_undecided: int = 0
    remarks: tuple[str, ...] = ()

    @property
    def judged(self) -> pl.DataFrame:
        """The pairs that have a grade."""
        return self.frame.filter(pl.col("verdict") == JUDGED)

    @cached_property
    def counted(self) -> Counted:
        """Numbers of pairs, by grade."""
        return Counted.of(self.frame)

    def write(
        self,
        path: Any,
        format: str | None = None,
        *,
        features: Any = None,
        query: str | None = None,
        ids: str = "refuse",
        name: str | None = None,
        ratings: str = "grade",
        include: str = "judged",
    ) -> Written:
        """Write the judgments for those who read them.

        Graded formats hold judged pairs only, unless ratings of ordered ones are asked for: what
        the data do not suffice for is left out and counted, never written as grade 0.

        Parameters
        ----------
        path : where to
        format : str, optional
            "quepid", "opensearch", "ranklib", "qrels", "csv" or "parquet"; by default the suffix
            tells: .quepid.csv, .json, .txt (also .ranklib, .libsvm, .svm), .qrels, .csv, .parquet.
        features : data frame, optional
            For "ranklib": `doc`, mostly `query`, and numeric columns, which become the features
            1, 2, ... in their order.
        query : str, optional
            What to write as query if the judgments have none.
        ids : "refuse" or "encode"
            What "qrels" and "ranklib" do with ids that hold white space, which they cannot: refuse
            them, or write "red shoes" as "red%20shoes" (`urllib.parse.unquote` reads it back).
        name : str, optional
            For "opensearch": the name of the judgment list.
        ratings : "grade" or "float"
            What "quepid" and "opensearch" hold: whole grades, or the expected grade (`rating`).
        include : "judged" or "ordered"
            "ordered" adds the pairs without a grade whose order within their query is sure enough;
            they have nothing but a rating, so this takes `ratings="float"`.

        Returns
        -------
        Written
            How many judgments were written, how many pairs were left out, and remarks.
        """
        from gecasmo.judgments.formats import Options, write_judgments

        return write_judgments(
            self, path, format, Options(features, query, ids, name, ratings, include)
        )

    def worth_judging(self, n: int = 20, *, log: ClickLog | None = None) -> WorthJudging:
        """The pairs and queries most worth judging by hand.

        The worth of a pair is its traffic times the probability that its grade is another than its
        most likely one, under the Beta distribution with the pair's relevance and spread: the
        expected number of views under a wrong grade. Traffic is the expected number of
        examinations, or with a `log` how often the pair is shown there. The worth of a query is the
        sum over its pairs. Pairs without an interval have no worth (null) and come last.

        Returns
        -------
        WorthJudging
            `.pairs` and `.queries`, frames of at most `n` rows each, the most worthy first.
        """
        from gecasmo.judgments.worth import worth_judging

        return worth_judging(self, n, log)

    def to_dict(self, rows: bool = False) -> dict[str, Any]:
        """The summary, ready for JSON; with `rows=True` also every pair."""
        summary = self.summary()
        return {**summary, "judgments": self.frame.to_dicts()} if rows else summary


def as_text(judgments: Told) -> str:
    """Counts per grade and verdict, how sure they are, the rule, and the most examined pairs."""
    lines = [
        f"{len(judgments):,} judgments by {judgments.model}: relevance is {judgments.relevance_is}",
        f"rule {judgments.grading}",
        f"no grade: {_limits(judgments)}",
        "ordered: no grade, but against the judged pairs of the query the order by relevance is "
        f"right with a probability of at least {judgments.min_order:g}, on average",
    ]
    if judgments.n_undecided:
        lines.append(f"no grade for doubt alone: {counted(judgments.n_undecided)}")
    if judgments.why_no_interval:
        lines.append(
            f"no interval: {counted(judgments.n_without_interval)}; {judgments.why_no_interval}"
        )
    if judgments.n_given:
        lines.append(f"given, not estimated: {counted(judgments.n_given)}; counted as certain")
    lines += [f"note: {remark}" for remark in judgments.remarks]
    lines = list(map(printable, lines))
    lines = [
        part for line in lines for part in textwrap.wrap(line, text_width(), subsequent_indent="  ")
    ]
    lines += ["", *_groups(judgments)]
    top = judgments.counted.top
    if top is not None and len(top):
        lines += ["", "most examined", *_table(top)]
    return "\n".join(lines)


def _groups(judgments: Told) -> list[str]:
    """A line for each grade and each other verdict."""
    every = judgments.counted.all
    head = f"  {'grade':<14}{'pairs':>10}{'of pairs':>10}{'of examinations':>17}"
    lines = [f"{head}{'right':>8}{'order':>8}"]
    names: list[int | str] = [*judgments.by_grade, ORDERED, INSUFFICIENT]
    for name in names:
        group = judgments.counted[name]
        pairs = percent(group.pairs / max(every.pairs, 1))
        seen = percent(group.examinations / max(every.examinations, 1e-300))
        right = group.mean_right if isinstance(name, int) else None
        sure = "".join(f"{_chance(chance):>8}" for chance in (right, group.mean_order))
        lines.append(f"  {name:<14}{group.pairs:>10,}{pairs:>10}{seen:>17}{sure}")
    legend = (
        "right: mean probability that the grade is right; order: that the order against the judged "
        "pairs of the query is"
    )
    return [
        *lines,
        *textwrap.wrap(legend, text_width() - 2, initial_indent="  ", subsequent_indent="  "),
    ]


def _chance(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def counted(number: int) -> str:
    """A number of pairs."""
    return f"{number:,} {'pair' if number == 1 else 'pairs'}"


def percent(share: float) -> str:
    """A share that is neither none nor all does not look as if it were."""
    if 0 < share < 0.0005:
        return "< 0.1 %"
    if 0.9995 < share < 1:
        return "> 99.9 %"
    return f"{100 * share:.1f} %"


def _limits(judgments: Told) -> str:
    doubt = f"a grade right with a probability below {judgments.min_probability:g}"
    few = f"fewer than {judgments.min_examinations:g} examinations"
    if judgments.max_width is None:
        return f"{few}, or no interval, unless it rests on features; or {doubt}"
    return (
        f"interval of {judgments.level:.0%} wider than {judgments.max_width:g} or unknown, or "
        f"{few}, or {doubt}"
    )


def _table(frame: pl.DataFrame) -> list[str]:
    names = [name for name in ("query", "doc") if name in frame.columns]
    room = min(24, (text_width() - 43) // len(names) - 2)
    head = "".join(f"  {fitted(name, room)}" for name in names)
    lines = [f"{head}{'relevance':>11}{'interval':>15}{'examined':>10}  grade"]
    for row in frame.rows(named=True):
        ids = "".join(f"  {fitted(row[name], room)}" for name in names)
        interval = "unknown" if row["low"] is None else f"{row['low']:.3f}-{row['high']:.3f}"
        lines.append(
            f"{ids}{row['relevance']:>11.3f}{interval:>15}{short(row['examinations']):>10}"
            f"  {'-' if row['grade'] is None else row['grade']}"
        )
    return lines


def short(number: float, digits: int = 1) -> str:
    """A number of at most ten characters."""
    return f"{number:,.{digits}f}" if number < 1e5 else f"{number:.4g}"
