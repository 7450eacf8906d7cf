"""`judge`: graded judgments from a fitted model, part by part.

A part of the pairs has all that is shown for its queries; in memory there is one. Two passes go
over the parts. The first works out relevances, and what cut points are found by; the second grades
by these. Each is a pure function of a part and of what all parts share, so that a cluster can run
it, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.errors import option
from gecasmo.judgments.grades import (
    FIXED_CUTS,
    INSUFFICIENT,
    JUDGED,
    ORDERED,
    BetaBeliefs,
    Crowd,
    Grading,
    JudgmentsError,
    Relevances,
    cells,
    check_rule,
    grading_of,
    most_likely,
)
from gecasmo.judgments.hearing import Hearing, possible_pairs, unknown_pairs
from gecasmo.judgments.judged import GradeCounts, Judgments, KeptFrames, cuts_name, pairs_name
from gecasmo.judgments.order import order_of
from gecasmo.judgments.pairs import all_pairs, relevance_factors, relevance_frame
from gecasmo.judgments.panel import BY_JUDGES
from gecasmo.judgments.propensity import scale_remark
from gecasmo.model.log_parts import is_stored, part_view, parted_coins, partitioned_by
from gecasmo.model.relevance import coins_of_relevance
from gecasmo.report import printable

if TYPE_CHECKING:
    from gecasmo.model.base import Model

_SLACK = 1e-9  # so that a probability that equals what is asked for is enough
# Pairs with as much data as this decide where quantiles are cut, and are what others are ordered
# against. Were it those that meet the limits, asking for less would move the grades of all pairs.
_STANDARD: dict[str, Any] = {"max_width": 0.4, "min_examinations": 10.0, "min_probability": 0.5}


def judge(
    model: Model,
    *,
    grades: int = 4,
    rule: str = "informative",
    thresholds: Sequence[float] | None = None,
    level: float = 0.9,
    max_width: float | None = 0.4,
    min_examinations: float = 10.0,
    min_probability: float = 0.5,
    min_order: float = 0.8,
    every_pair: bool = False,
    pairs: Any = None,
    features: Any = None,
    grades_from: Any = None,
) -> Judgments:
    """Grade pairs of query and document that a fitted model knows, where the data suffice.

    Limits are monotone: asking for less never takes a grade away. What they do not change are cut
    points, and the pairs that others are ordered against; both rest on pairs with an interval of at
    most 0.4 and 10 examinations, whatever the limits.

    Parameters
    ----------
    model : fitted model
        Its `relevance` names the coins whose product is relevance, or means of coins over a choice
        (`attraction[intent]`).
    grades : int
        How many grades there are, 2 to 10; 4 means grades 0, 1, 2 and 3.
    rule : str
        "informative": cut points where grades tell most about pairs (their mutual information),
        the beliefs about all pairs considered; with all pairs known exactly these make equal
        shares, and the wider the intervals, the farther apart they are. A pair gets its most
        probable grade, which can differ from that of its relevance, the mean. "quantile": grades
        hold equal shares of the pairs with enough data; pairs of equal relevance get that of the
        middle one of them, in doubt the lower. "quantile-per-query": the same
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
        rests on a form without intervals (a classifier, a network) can be judged, too.
    min_examinations : float
        A pair with fewer expected examinations is insufficient. That is not asked of a `Logistic`
        or a `Sum`: what features say rests on all pairs, and the interval tells what it is worth.
        For classifiers and networks say `max_width=None, min_examinations=0`.
    min_probability : float
        A pair whose truth lies in its grade with a smaller probability gets none; 0.5 asks that
        the grade is more likely right than wrong.
    min_order : float
        A pair without a grade is "ordered" if the order by relevance, against the pairs of its
        query with enough data (or all, if there are none), is right with at least this probability
        on average; else "insufficient".
    every_pair : bool
        Grade every pair, however little is known of it, whatever the limits: `grade_probability`
        says how sure each grade is (null where no interval is known).
    pairs : data frame, ClickLog or StoredLog, optional
        The pairs to be judged, with `query` and `doc` and whatever other columns the coins of
        relevance are found by; also pairs that were never shown. By default all pairs of the fit.
    features : data frame, optional
        Columns that forms of relevance read, by query and doc or by one of these, for pairs that
        lack them. Without `pairs` and with both, all pairs of this frame are judged if the model
        does not know those of its fit.
    grades_from : path, data frame, Grades, or a list or dictionary of these, optional
        Grades of other judges (people, language models), on any subset of pairs, in numbers or
        words. How far each is trusted is learned from pairs that were shown; then relevance,
        spread and interval are those by clicks and judges together, also of pairs that only judges
        have seen. Pairs that a trusted judge graded need no examinations.

    Returns
    -------
    Judgments
        Its `frame` is sorted by query, the most relevant document first. Of a stored log, or a
        model whose rows are in files, graded pairs are kept in temporary files, and sorted within
        each part; writing them takes no more memory than the largest part.
    """
    question = Question(
        rule=rule,
        grades=grades,
        thresholds=thresholds,
        level=level,
        max_width=max_width,
        min_examinations=min_examinations,
        min_probability=min_probability,
        min_order=min_order,
        every_pair=every_pair,
    )
    parts = PairParts.of(model, pairs)
    rows = KeptFrames(parts.in_files)
    numbers: list[int] = []
    hearing = None if grades_from is None else Hearing(parts, grades_from, level, rows, features)
    frames = parts.frames(level, features) if hearing is None else hearing.frames()

    def seen() -> Iterator[NDArray[Any]]:
        for number, frame in frames:
            numbers.append(number)
            rows[pairs_name(number)] = frame
            yield question.seen(frame)

    cuts = question.cuts(seen())
    if not numbers:
        raise JudgmentsError(
            f"{model.name} has no pairs to be judged: its tables and the log are empty."
        )
    counted = GradeCounts()
    for number in numbers:
        part = question.graded(rows[pairs_name(number)], cuts)
        rows[pairs_name(number)] = part.frame
        if part.grading.by_query is not None:
            rows[cuts_name(number)] = part.grading.by_query
        counted += part.counted
    return Judgments(
        rows=rows,
        numbers=tuple(numbers),
        n_parts=parts.n_parts,
        # Names may come from a file, and go into comments of others.
        model=printable(model.name),
        relevance_is=printable(" x ".join(factor.name for factor in relevance_factors(model))),
        grading=part.grading if len(numbers) == 1 else replace(part.grading, by_query=None),
        level=level,
        max_width=max_width,
        min_examinations=min_examinations,
        min_probability=min_probability,
        min_order=min_order,
        every_pair=every_pair,
        counted=counted,
        why_no_interval=_why_no_interval(model, counted),
        remarks=tuple(
            filter(
                None,
                [
                    scale_remark(model),
                    _features_remark(model, counted),
                    *(hearing.remarks if hearing else ()),
                ],
            )
        ),
        panel=None if hearing is None else hearing.panel,
        ask=partial(
            unknown_pairs, model, level, features, () if hearing is None else hearing.judges
        ),
        draws=partial(possible_pairs, model, features),
    )


@dataclass(frozen=True)
class PairParts:
    """The pairs to be judged, by the number of the part; all pairs of a query are in one.

    Iterating gives the number, the model with the rows that this part can meet, and its pairs.
    """

    model: Model
    pairs: Any  # None for the rows of the fit
    n_parts: int = 1
    in_files: bool = False  # if not, they are one part in memory

    @classmethod
    def of(cls, model: Model, pairs: Any) -> PairParts:
        """Find out how pairs come: from a stored log, from rows in files, or all at once."""
        if is_stored(pairs) and partitioned_by(pairs) == "query":
            return cls(model, pairs, pairs.n_partitions, in_files=True)
        if is_stored(pairs):  # a query is in many of its partitions
            return cls(model, all_pairs(model, pairs))
        parted = parted_coins(model)
        coins = coins_of_relevance(model)
        own = [parted[coin] for coin in coins if coin in parted]
        by_query = [
            coin
            for coin in coins
            if model.forms[coin].has_posterior and "query" in model.keys[coin]
        ]
        # If one of them has all its rows in memory anyway, there is nothing to be spared.
        if pairs is not None or not own or len(own) < len(by_query):
            return cls(model, pairs)
        return cls(model, None, max(table.n_parts for table in own), in_files=True)

    def __iter__(self) -> Iterator[tuple[int, Model, Any]]:
        if not self.in_files:
            yield 0, self.model, self.pairs
            return
        for number in range(self.n_parts):
            view = part_view(self.model, number, self.n_parts)
            if self.pairs is not None:
                pages = self.pairs.partition(number)
                if pages.n_results:
                    yield number, view, pages
            elif self._has_rows(view):
                yield number, view, None

    def frames(self, level: float, features: Any) -> Iterator[tuple[int, pl.DataFrame]]:
        """The relevance of the pairs of each part."""
        for number, view, asked in self:
            yield number, relevance_frame(view, asked, level, features)

    def _has_rows(self, view: Model) -> bool:
        states = view.states(whole=False)
        own = set(parted_coins(self.model)) & set(coins_of_relevance(self.model))
        return any(len(states[coin].rows) for coin in own)


class GradedPart(NamedTuple):
    """The graded pairs of a part, its cut points, and what is counted over all parts."""

    frame: pl.DataFrame
    grading: Grading
    counted: GradeCounts


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
    every_pair: bool = False

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
                wanted = "a number that is not negative is wanted"
                raise JudgmentsError(f"{option(name, value)}: {wanted}.")
            if most is not None and value > most:
                wanted = "a probability from 0 to 1 is wanted"
                raise JudgmentsError(f"{option(name, value)}: {wanted}.")

    def seen(self, frame: pl.DataFrame) -> NDArray[Any]:
        """What cut points are found by, of some pairs; `cuts` takes it of all, in any order."""
        if self.rule in FIXED_CUTS:
            return np.zeros((2, 0))
        if self.rule != "informative":
            is_known = frame["low"].is_not_null() | frame["lacks_by_features"]
            both = frame.with_columns(standard=self.is_standard(frame)).filter(is_known)
            return both.select("relevance", pl.col("standard").cast(pl.Float64)).to_numpy().T
        # What can only be judged without an interval is judged as if it were certain.
        sure = pl.when(frame["lacks_by_features"]).then(0.0).otherwise(_spread(frame))
        return cells(BetaBeliefs.of(frame.with_columns(spread=sure)))

    def cuts(self, seen: Iterable[NDArray[Any]]) -> Sequence[float] | None:
        """The cut points over all pairs; None for equal steps."""
        if self.rule == "informative":
            crowd = Crowd()
            for some in seen:
                crowd.add(some)
            return crowd.cuts(self.grades).tolist() if crowd.n else None
        every, standard = Relevances(), Relevances()
        for relevance, is_standard in seen:
            every.add(relevance)
            standard.add(relevance[is_standard > 0])
        if self.rule in FIXED_CUTS:
            return self.thresholds
        known = standard if standard.n >= self.grades else every
        return known.cuts(self.grades).tolist() if known.n else None

    def is_standard(self, frame: pl.DataFrame) -> pl.Series:
        """Which pairs there is enough data for by a standard that no limit changes."""
        standard = replace(self, **_STANDARD, every_pair=False)
        return standard.has_enough(frame) | frame["lacks_by_features"]

    def has_enough(self, frame: pl.DataFrame) -> pl.Series:
        """Which pairs there is enough data for."""
        if self.every_pair:
            return pl.repeat(True, len(frame), eager=True)
        # What features say rests on all pairs: its interval tells how much that is worth.
        needs = ~(frame["is_given"] | frame["by_features"])
        too_few = (frame["examinations"] < self.min_examinations) & needs
        if BY_JUDGES in frame.columns:
            too_few &= ~frame[BY_JUDGES]
        return ~(_too_wide(frame, self.max_width, self.rule) | too_few)

    def graded(self, frame: pl.DataFrame, cuts: Sequence[float] | None) -> GradedPart:
        """Grade the pairs of a part, sorted; `cuts` are the cut points over all pairs."""
        keys = [name for name in ("query", "relevance", "doc") if name in frame.columns]
        frame = frame.sort(keys, descending=[name == "relevance" for name in keys])
        frame = frame.with_columns(spread=_spread(frame))
        enough, standard = self.has_enough(frame), self.is_standard(frame)
        grading = grading_of(self.rule, self.grades, cuts, frame.filter(standard))
        grades, chances = _grades(grading, frame), grading.chances(frame)
        likely = grades["by_relevance"].to_numpy()
        if self.rule == "informative":
            likely = most_likely(chances, likely)
            grades = grades.with_columns(pl.Series("grade", likely))
        chance = np.take_along_axis(chances, likely[:, None], axis=1)[:, 0]
        # Where no interval is known, and none is asked for, there is nothing to be doubted.
        least = 0.0 if self.every_pair else self.min_probability
        decided = pl.Series(~(chance < least - _SLACK), dtype=pl.Boolean)
        is_judged = enough & decided
        sure = pl.Series(~(chance < _STANDARD["min_probability"] - _SLACK), dtype=pl.Boolean)
        order, above = order_of(frame, _or_all_of_query(frame, standard & sure))
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
        names = [
            *(name for name in ("query", "doc") if name in graded.columns),
            *("relevance", "low", "high", "examinations", "grade", "rating", "verdict"),
            *("rests_on", "grade_probability", "order", "above"),
            *("grade_low", "grade_high", "spread"),
        ]
        counted = GradeCounts.of(
            graded,
            unexplained=int((frame["low"].is_null() & ~frame["lacks_by_features"]).sum()),
            given=int(frame["is_given"].sum()),
            undecided=int((enough & ~decided).sum()),
            by_features=int(frame["by_features"].sum()),
        )
        return GradedPart(graded.select(names), grading, counted)


def _or_all_of_query(frame: pl.DataFrame, chosen: pl.Series) -> pl.Series:
    """The chosen pairs; of queries that have none, all pairs."""
    some = pl.col("chosen").any()
    some = some.over("query") if "query" in frame.columns else some
    return frame.with_columns(chosen=chosen).select(pl.col("chosen") | ~some).to_series()


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


def _features_remark(model: Model, counted: GradeCounts) -> str:
    """What intervals of a regression leave out."""
    bare = [
        coin
        for coin in coins_of_relevance(model)
        if model.forms[coin].has_errors and not model.forms[coin].has_beliefs
    ]
    if not bare or counted.without_interval == counted.pairs:
        return ""
    return (
        f"The relevance of {' and '.join(bare)} rests on features alone: intervals tell how well "
        "the regression is known, and not how far a pair strays from it; Sum(Logistic(...)) tells "
        "that, too."
    )


def _why_no_interval(model: Model, counted: GradeCounts) -> str:
    """Why pairs have no interval, if some have none."""
    report = model.report_
    if not counted.without_interval:
        return ""
    if not counted.unexplained:
        return "this form on features has no intervals (Logistic, and Sum of it, have)"
    if report is None:
        return "given values have no intervals"
    if report.interrupted:
        return "the fit was interrupted, so there are no intervals"
    if not report.converged:
        return "the fit did not converge, so there are no intervals"
    return (
        "this fit worked out no intervals, which takes EM and intervals=True, or VB() where rows "
        "span the partitions of a stored log"
    )


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
