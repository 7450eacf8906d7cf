"""`Judgments`: graded pairs with intervals, ready to be looked at and written."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.judgments.grading import Grading

if TYPE_CHECKING:
    from gecasmo.judgments.formats import Written
    from gecasmo.judgments.worth import WorthJudging
    from gecasmo.logs import ClickLog

JUDGED, INSUFFICIENT = "judged", "insufficient"


@dataclass(frozen=True, repr=False)
class Judgments:
    """What `judge(model)` found.

    Attributes
    ----------
    frame : pl.DataFrame
        A row per pair: `query` (unless the model knows none), `doc`, `relevance`, its interval
        from `low` to `high`, `examinations` (expected number behind it), `grade` (null where the
        data do not suffice), `verdict` ("judged" or "insufficient"), `rests_on`, the grades at the
        ends of the interval (`grade_low`, `grade_high`), and `spread`, the standard deviation.
    model : name of the model
    relevance_is : which coins relevance is the product of
    grading : the rule with its cut points
    level, max_width, min_examinations : as they were asked for
    why_no_interval : why some pairs have no interval; empty if all have one
    n_given : pairs whose relevance was given, not estimated; it counts as certain
    n_undecided : pairs that are insufficient for the one reason that their interval covers all
        grades
    remarks : what a reader of the grades should know, in sentences
    """

    frame: pl.DataFrame
    model: str
    relevance_is: str
    grading: Grading
    level: float
    max_width: float | None
    min_examinations: float
    why_no_interval: str = ""
    n_given: int = 0
    n_undecided: int = 0
    remarks: tuple[str, ...] = ()

    @property
    def judged(self) -> pl.DataFrame:
        """The pairs that have a grade."""
        return self.frame.filter(pl.col("verdict") == JUDGED)

    @property
    def n_judged(self) -> int:
        return int((self.frame["verdict"] == JUDGED).sum())

    @property
    def n_insufficient(self) -> int:
        return len(self.frame) - self.n_judged

    @property
    def examined_insufficient(self) -> float:
        """The share of all expected examinations that fell on insufficient pairs."""
        total = float(self.frame["examinations"].sum())
        lost = self.frame.filter(pl.col("verdict") == INSUFFICIENT)["examinations"].sum()
        return float(lost) / total if total > 0 else 0.0

    @property
    def n_without_interval(self) -> int:
        return self.frame["low"].null_count()

    @property
    def by_grade(self) -> dict[int, int]:
        """The number of judged pairs of each grade."""
        found = dict(self.judged["grade"].value_counts().rows())
        return {grade: found.get(grade, 0) for grade in range(self.grading.grades)}

    def write(
        self,
        path: Any,
        format: str | None = None,
        *,
        features: Any = None,
        query: str | None = None,
        ids: str = "refuse",
        name: str | None = None,
    ) -> Written:
        """Write the judgments for those who read them.

        Graded formats hold judged pairs only: what the data do not suffice for is left out and
        counted, never written as grade 0.

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

        Returns
        -------
        Written
            How many judgments were written, how many pairs were left out, and remarks.
        """
        from gecasmo.judgments.formats import Options, write_judgments

        return write_judgments(self, path, format, Options(features, query, ids, name))

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
        summary: dict[str, Any] = {
            "model": self.model,
            "relevance_is": self.relevance_is,
            **self.grading.to_dict(),
            "level": self.level,
            "max_width": self.max_width,
            "min_examinations": self.min_examinations,
            "pairs": len(self.frame),
            "judged": self.n_judged,
            "insufficient": self.n_insufficient,
            "undecided": self.n_undecided,
            "examinations_insufficient": self.examined_insufficient,
            "without_interval": self.n_without_interval,
            "why_no_interval": self.why_no_interval or None,
            "by_grade": {str(grade): count for grade, count in self.by_grade.items()},
            "remarks": list(self.remarks),
        }
        return {**summary, "judgments": self.frame.to_dicts()} if rows else summary

    def __len__(self) -> int:
        return len(self.frame)

    def __str__(self) -> str:
        from gecasmo.judgments.display import as_text

        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"
