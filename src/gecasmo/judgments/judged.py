"""`Judgments`: graded pairs with intervals, ready to be looked at and written.

What is told of judgments are numbers that add up over parts, and the pairs examined most. In a
terminal they are never wider than it is, nor than 100 columns.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from gecasmo.errors import option
from gecasmo.judgments.grades import INSUFFICIENT, JUDGED, ORDERED, Grading, JudgmentsError
from gecasmo.report import Column, TextTable, counted, html_of, percent, printable, wrapped

if TYPE_CHECKING:
    from gecasmo.judgments.files import Written
    from gecasmo.judgments.judges import Judges
    from gecasmo.judgments.panel import Draws, Panel
    from gecasmo.judgments.run_quality import RunQuality
    from gecasmo.judgments.worth import WorthJudging
    from gecasmo.logs import ClickLog
    from gecasmo.logs.store import StoredLog

MOST_EXAMINED = 8
_LEGEND = (
    "right: mean probability that the grade is right; order: that the order against the query's "
    "pairs with enough data is"
)


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
class GradeCounts:
    """Numbers of judgments, by grade or else by verdict; those of several parts add up.

    `unexplained` pairs lack an interval for another reason than that forms on features have none;
    `given` ones were not estimated; `undecided` ones have no grade for doubt alone; those
    `by_features` have their interval from features. `top` has the pairs that are examined most.
    """

    pairs: int = 0
    without_interval: int = 0
    unexplained: int = 0
    given: int = 0
    undecided: int = 0
    groups: dict[int | str, GradeSums] = field(default_factory=dict)
    top: pl.DataFrame | None = None
    by_features: int = 0

    @classmethod
    def of(
        cls, frame: pl.DataFrame, unexplained: int, given: int, undecided: int, by_features: int
    ) -> GradeCounts:
        """Count a frame of judgments."""
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
        numbers = (len(frame), frame["low"].null_count(), unexplained, given, undecided)
        return cls(*numbers, groups, _top(frame), by_features)

    def __add__(self, other: GradeCounts) -> GradeCounts:
        tops = [frame for frame in (self.top, other.top) if frame is not None]
        return GradeCounts(
            self.pairs + other.pairs,
            self.without_interval + other.without_interval,
            self.unexplained + other.unexplained,
            self.given + other.given,
            self.undecided + other.undecided,
            {name: self[name] + other[name] for name in {**self.groups, **other.groups}},
            _top(pl.concat(tops)) if tops else None,
            self.by_features + other.by_features,
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


class KeptFrames:
    """Data frames by name: in memory, or in temporary files that are gone with this object."""

    def __init__(self, in_files: bool) -> None:
        self.path: Path | None = None
        self._frames: dict[str, pl.DataFrame] = {}
        if in_files:
            self.path = Path(tempfile.mkdtemp(prefix="gecasmo-judgments-"))
            weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)

    def __setitem__(self, name: str, frame: pl.DataFrame) -> None:
        if self.path is None:
            self._frames[name] = frame
        else:
            frame.write_parquet(self.path / f"{name}.parquet")

    def __getitem__(self, name: str) -> pl.DataFrame:
        if self.path is None:
            return self._frames[name]
        return pl.read_parquet(self.path / f"{name}.parquet")

    def __contains__(self, name: str) -> bool:
        if self.path is None:
            return name in self._frames
        return (self.path / f"{name}.parquet").exists()


def pairs_name(number: int) -> str:
    """The name under which the pairs of a part are kept."""
    return f"part-{number:05d}"


def said_name(number: int) -> str:
    """The name under which is kept what clicks alone and judges say of the pairs of a part."""
    return f"said-{number:05d}"


def cuts_name(number: int) -> str:
    """The name of the cut points of queries that have their own."""
    return f"cuts-{number:05d}"


class JudgedPart(NamedTuple):
    """The judgments of a part: its number, its pairs, and the cut points of their grades."""

    number: int
    frame: pl.DataFrame
    grading: Grading


@dataclass(frozen=True, repr=False)
class Judgments:
    """What `judge(model)` found: graded pairs, in memory or in temporary files.

    Attributes
    ----------
    frame : pl.DataFrame
        All pairs, read into memory: a row per pair with `query` (unless the model knows none),
        `doc`, `relevance`, its interval from `low` to `high`, `examinations` (expected number
        behind it), `grade` (null where the data do not suffice), `rating` (the expected grade, a
        number from 0 to the highest grade),
        `verdict` ("judged", "ordered" or "insufficient"), `rests_on`, `grade_probability` (that
        the truth lies in the grade), `order` (the mean probability, over the other pairs of the
        query with enough data, that the order by relevance is right), `above` (the
        probability that the truth is above that of the query's next pair), the grades at the ends
        of the interval (`grade_low`, `grade_high`), and `spread`, the standard deviation.
    model : name of the model
    relevance_is : which coins relevance is the product of
    grading : the rule with its cut points. Those of "quantile" are exact for up to 10 million
        pairs, and right to a millionth beyond.
    level, max_width, min_examinations, min_probability, min_order, every_pair : as asked for
    counted : numbers of pairs, by grade and by verdict
    why_no_interval : why some pairs have no interval; empty if all have one
    remarks : what a reader of the grades should know, in sentences
    """

    rows: KeptFrames = field(compare=False)
    numbers: tuple[int, ...]  # of the parts that have pairs
    n_parts: int
    model: str
    relevance_is: str
    grading: Grading
    level: float
    max_width: float | None
    min_examinations: float
    min_probability: float
    min_order: float
    every_pair: bool
    counted: GradeCounts
    why_no_interval: str = ""
    remarks: tuple[str, ...] = ()
    panel: Panel | None = field(default=None, compare=False)  # other judges, if there are any
    ask: Callable[[pl.DataFrame], pl.DataFrame] | None = field(default=None, compare=False)
    # What clicks might say of pairs, when what they have in common is drawn.
    draws: Draws | None = field(default=None, compare=False)

    def parts(self) -> Iterator[JudgedPart]:
        """Read one part after the other; all pairs of a query are in one."""
        for number in self.numbers:
            grading, own = self.grading, cuts_name(number)
            if own in self.rows:
                grading = replace(grading, by_query=self.rows[own])
            yield JudgedPart(number, self.rows[pairs_name(number)], grading)

    @cached_property
    def frame(self) -> pl.DataFrame:
        """All pairs in memory, which costs what they take."""
        return pl.concat([part.frame for part in self.parts()])

    @property
    def judged(self) -> pl.DataFrame:
        """The pairs that have a grade."""
        return pl.concat([part.frame.filter(pl.col("verdict") == JUDGED) for part in self.parts()])

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
        """Pairs whose interval is not known."""
        return self.counted.without_interval

    @property
    def n_given(self) -> int:
        """Pairs whose relevance was given, not estimated; it counts as certain."""
        return self.counted.given

    @property
    def n_undecided(self) -> int:
        """Pairs without a grade for the one reason that it would not be probable enough."""
        return self.counted.undecided

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
            "every_pair": self.every_pair,
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
            **({} if self.panel is None else {"judges": self.judges.to_dict()}),
        }

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
        index: str | None = None,
    ) -> Written:
        """Write the judgments for those who read them.

        Graded formats hold judged pairs only, unless ratings of ordered ones are asked for: what
        the data do not suffice for is left out and counted, never written as grade 0.

        Parameters
        ----------
        path : where to
        format : str, optional
            "quepid", "quepid-book", "opensearch", "elasticsearch", "ranklib", "lightgbm",
            "xgboost", "qrels", "csv" or "parquet", or the name of a tool that reads one of these,
            such as "ranx"; by default the suffix tells: .quepid.csv, .book.json, .json,
            .rank_eval.json, .txt, .train, .libsvm, .qrels, .csv, .parquet.
        features : data frame, optional
            For "ranklib", "lightgbm" and "xgboost": `doc`, mostly `query`, and numeric columns,
            which become the features in their order.
        query : str, optional
            What to write as query if the judgments have none.
        ids : "refuse" or "encode"
            What "qrels" and "ranklib" do with ids that hold white space, which they cannot: refuse
            them, or write "red shoes" as "red%20shoes" (`urllib.parse.unquote` reads it back).
        name : str, optional
            For "opensearch" and "quepid-book": the name of the list.
        ratings : "grade" or "float"
            What files for Quepid and OpenSearch hold: whole grades, or the expected grade.
        include : "judged" or "ordered"
            "ordered" adds the pairs without a grade whose order within their query is sure enough;
            they have nothing but a rating, so this takes `ratings="float"`.
        index : str, optional
            For "elasticsearch": the index that holds the documents.

        Returns
        -------
        Written
            How many judgments were written, how many pairs were left out, and remarks.
        """
        from gecasmo.judgments.files import WriteOptions
        from gecasmo.judgments.formats import write_judgments

        options = WriteOptions(features, query, ids, name, ratings, include, index)
        return write_judgments(self, path, format, options)

    def worth_judging(
        self,
        n: int = 20,
        *,
        log: ClickLog | StoredLog | None = None,
        judge: str | None = None,
    ) -> WorthJudging:
        """The pairs and queries most worth judging by hand.

        The worth of a pair is its traffic times the probability that its grade is another than its
        most likely one, under the Beta distribution with the pair's relevance and spread: the
        expected number of views under a wrong grade. Traffic is the expected number of
        examinations, or with a `log` how often the pair is shown there. The worth of a query is the
        sum over its pairs. Pairs without an interval have no worth (null) and come last.

        With other judges (`grades_from`) worth is how much a sure grade is expected to change: the
        traffic of the query (that of its most examined pair, at least 1, so that pairs never shown
        count) times `change`, the expected distance of the true grade from the rating.

        Parameters
        ----------
        n : int
            How many pairs and queries to name.
        log : ClickLog or StoredLog, optional
            Where traffic is counted.
        judge : str, optional
            The judge who will do it: pairs that it has graded already are left out.

        Returns
        -------
        WorthJudging
            `.pairs` and `.queries`, frames of at most `n` rows each, the most worthy first.
        """
        from gecasmo.judgments.worth import worth_judging

        return worth_judging(self, n, log, judge)

    @cached_property
    def judges(self) -> Judges:
        """What clicks say of other judges; there are some if `grades_from` named them."""
        from gecasmo.judgments.judges import Judges

        assert self.draws is not None
        return Judges.of(self._heard(), self.grading, self.level, self.draws, self.n_coins)

    @property
    def n_coins(self) -> int:
        """How many coins relevance is the product of."""
        return self.relevance_is.count(" x ") + 1

    def disagreements(self, n: int = 20) -> pl.DataFrame:
        """The pairs where clicks and a trusted judge are farthest apart, to be looked at by hand.

        Per pair: `judge`, what it `said`, the relevance that this means (`by_judge`), that of
        clicks alone (`by_clicks`, from `low` to `high`), `examinations`, and how many standard
        deviations both are `apart`, on the scale of logits.
        """
        from gecasmo.judgments.judges import disagreements

        return disagreements(self._heard(), self._said(), n)

    def ndcg(self, runs: Any, *, at: int = 10) -> RunQuality:
        """The nDCG of rankers by what clicks and judges say, with intervals.

        Gains are relevances; the ideal order is that of all pairs of a query that clicks, judges or
        a run have seen. Judges speak for pairs without clicks, as far as they are trusted, and
        pairs that nobody has seen have the model's prior.

        Parameters
        ----------
        runs : path or data frame, or a dictionary of them by name
            A run has query, doc, and rank (1 is the first) or score; or is a file of TREC. Queries
            that all runs have count.
        at : int
            How many places count.
        """
        from gecasmo.judgments.run_quality import ndcg

        assert self.ask is not None
        return ndcg(self, runs, at, self._said(), self.ask, self.panel)

    def _heard(self) -> Panel:
        if self.panel is None:
            raise JudgmentsError(f"There are no judges: name them with {option('grades_from')}.")
        return self.panel

    def _said(self) -> Iterator[pl.DataFrame]:
        """What clicks alone, and judges, say of the pairs of each part."""
        names = said_name if self.panel is not None else pairs_name
        return (self.rows[names(number)] for number in self.numbers)

    def to_dict(self, rows: bool = False) -> dict[str, Any]:
        """The summary, ready for JSON; with `rows=True` also every pair."""
        summary = self.summary()
        return {**summary, "judgments": self.frame.to_dicts()} if rows else summary

    def __len__(self) -> int:
        return self.counted.pairs

    def __str__(self) -> str:
        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        first, *others = map(printable, _said(self))
        top = self.counted.top
        tables = [] if top is None or top.is_empty() else [_most_examined(top)]
        return html_of(first, others, _groups(self), _LEGEND, *tables)


def _said(judgments: Judgments) -> list[str]:
    """What the judgments are, which limits there were, and what to know about them."""
    lines = [
        f"{len(judgments):,} judgments by {judgments.model}: relevance is {judgments.relevance_is}",
        f"rule {judgments.grading}",
        *_limits(judgments),
    ]
    if judgments.n_undecided:
        lines.append(f"no grade for doubt alone: {counted(judgments.n_undecided, 'pair')}")
    if judgments.why_no_interval:
        unknown = counted(judgments.n_without_interval, "pair")
        lines.append(f"no interval: {unknown}; {judgments.why_no_interval}")
    if judgments.n_given:
        given = counted(judgments.n_given, "pair")
        lines.append(f"given, not estimated: {given}; counted as certain")
    return lines + [f"note: {remark}" for remark in judgments.remarks]


def as_text(judgments: Judgments) -> str:
    """Tell counts per grade and verdict, how sure they are, the rule, and the most examined."""
    lines = [part for line in _said(judgments) for part in wrapped(printable(line), later="  ")]
    lines += ["", *_groups(judgments).lines(), *wrapped(_LEGEND, "  ", "  ")]
    top = judgments.counted.top
    if top is not None and len(top):
        lines += ["", *_most_examined(top).lines()]
    return "\n".join(lines)


def _limits(judgments: Judgments) -> list[str]:
    if judgments.every_pair:
        return ["every pair is graded, however little is known about it; see grade_probability"]
    return [
        f"no grade: {_no_grade(judgments)}",
        "ordered: no grade, but against the pairs of the query with enough data the order by "
        f"relevance is right with a probability of at least {judgments.min_order:g}, on average",
    ]


def _no_grade(judgments: Judgments) -> str:
    doubt = f"a grade right with a probability below {judgments.min_probability:g}"
    few = f"fewer than {judgments.min_examinations:g} examinations"
    if judgments.counted.by_features:
        few += " unless features tell"
    if judgments.max_width is None:
        return f"{few}, or no interval, unless it rests on features; or {doubt}"
    return (
        f"interval of {judgments.level:.0%} wider than {judgments.max_width:g} or unknown, or "
        f"{few}, or {doubt}"
    )


def _groups(judgments: Judgments) -> TextTable:
    """A line for each grade and each other verdict."""
    every = judgments.counted.all
    names: list[int | str] = [*judgments.by_grade, ORDERED, INSUFFICIENT]
    groups = [judgments.counted[name] for name in names]
    of_pairs = [percent(group.pairs, every.pairs, decimals=1) for group in groups]
    seen = [percent(group.examinations, every.examinations, decimals=1) for group in groups]
    right = [
        group.mean_right if isinstance(name, int) else None
        for name, group in zip(names, groups, strict=True)
    ]
    return TextTable(
        [
            Column("grade", list(map(str, names)), is_text=True),
            Column("pairs", [f"{group.pairs:,}" for group in groups]),
            Column("of pairs", of_pairs),
            Column("of examinations", seen),
            Column("right", list(map(_chance, right))),
            Column("order", [_chance(group.mean_order) for group in groups]),
        ]
    )


def _chance(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _most_examined(frame: pl.DataFrame) -> TextTable:
    ends = frame.select("low", "high").rows()
    return TextTable(
        [
            *id_columns(frame),
            Column("relevance", [f"{value:.3f}" for value in frame["relevance"]]),
            Column(
                "interval",
                ["unknown" if low is None else f"{low:.3f}-{high:.3f}" for low, high in ends],
            ),
            Column("examined", [short(value) for value in frame["examinations"]]),
            Column("grade", ["-" if grade is None else str(grade) for grade in frame["grade"]]),
        ],
        "most examined",
    )


def id_columns(frame: pl.DataFrame) -> list[Column]:
    """The columns that say which pairs a table is about."""
    return [
        Column(name, list(map(printable, frame[name])), is_text=True, least=8, most=24)
        for name in ("query", "doc")
        if name in frame.columns
    ]


def short(number: float, digits: int = 1) -> str:
    """Write a number in at most ten characters."""
    return f"{number:,.{digits}f}" if number < 1e5 else f"{number:.4g}"
