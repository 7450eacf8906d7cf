"""`Judgments`: graded pairs with intervals, ready to be looked at and written."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.judgments.counting import Counted, Told
from gecasmo.judgments.grading import Grading
from gecasmo.judgments.verdicts import JUDGED

if TYPE_CHECKING:
    from gecasmo.judgments.formats import Written
    from gecasmo.judgments.worth import WorthJudging
    from gecasmo.logs import ClickLog


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
