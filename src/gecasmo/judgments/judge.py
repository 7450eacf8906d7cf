"""`judge`: graded judgments from a fitted model.

More pairs than memory holds are graded part by part, and kept in files until written.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from gecasmo.judgments.grading import JUDGED, Grading, JudgmentsError
from gecasmo.judgments.judged import Counted, Judgments, Told
from gecasmo.judgments.pairs import relevance_frame
from gecasmo.judgments.question import Question
from gecasmo.logs.clicklog import joined
from gecasmo.model.streaming import is_stored, overlap, part_view, parted_coins

if TYPE_CHECKING:
    from gecasmo.judgments.formats import Written
    from gecasmo.judgments.worth import WorthJudging
    from gecasmo.model.base import Model


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
    pairs: Any = None,
) -> Judgments | PartedJudgments:
    """Grade every pair of query and document that a fitted model knows.

    Parameters
    ----------
    model : fitted model
        Its `relevance` names the coins whose product is relevance.
    grades : int
        How many grades there are, 2 to 10; 4 means grades 0, 1, 2 and 3.
    rule : str
        "informative": cut points where grades tell most about pairs (their mutual information),
        the beliefs about all pairs considered; with all pairs known exactly these make equal
        shares, and the wider the intervals, the farther apart they are. "quantile": grades hold
        equal shares of the pairs with enough data; pairs of equal relevance get the grade of the
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
        rests on features (a `Logistic`, say, which has no intervals) can be judged, too.
    min_examinations : float
        A pair with fewer expected examinations is insufficient. Forms on features count none: to
        judge by them say `max_width=None, min_examinations=0`.
    min_probability : float
        A pair whose truth lies in the grade of its relevance with a smaller probability gets no
        grade; 0.5 asks that the grade is more likely right than wrong.
    min_order : float
        A pair without a grade is "ordered" if the order by relevance, against the judged pairs of
        its query, is right with at least this probability on average; else "insufficient".
    pairs : data frame, ClickLog or StoredLog, optional
        The pairs to be judged, with `query` and `doc` and whatever other columns the coins of
        relevance are found by. By default all rows of the fit.

    Returns
    -------
    Judgments
        Its `frame` is sorted by query, the most relevant document first. For a stored log, or a
        model whose rows are in files, these are `PartedJudgments`, which do the same with bounded
        memory.
    """
    question = Question(
        *(rule, grades, thresholds, level),
        *(max_width, min_examinations, min_probability, min_order),
    )
    sources = in_parts(model, pairs)
    if sources is not None:
        return judge_parts(model, sources, question)
    frame = relevance_frame(model, pairs, level)
    return question.judgments(model, frame, question.cuts([question.seen(frame)]))


class Scratch:
    """A temporary folder that is gone with this object."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="gecasmo-judgments-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(frozen=True)
class Sources:
    """What is to be judged, by the number of the part; all pairs of a query are in one."""

    model: Model
    pairs: Any  # a stored log, or None for the rows of the fit
    n_parts: int

    def __iter__(self) -> Iterator[tuple[int, Model, Any]]:
        for number in range(self.n_parts):
            if self.pairs is not None:
                pages = self.pairs.partition(number)
                if pages.n_results:
                    yield number, part_view(self.model, number, self.n_parts), pages
                continue
            view = part_view(self.model, number, self.n_parts)
            states = view.states(whole=False)
            own = set(parted_coins(self.model)) & set(self.model.relevance)
            if any(len(states[coin].rows) for coin in own):
                yield number, view, None


def in_parts(model: Model, pairs: Any) -> Sources | None:
    """The parts in which pairs have to be judged, or None where it can be done at once."""
    if is_stored(pairs):
        return Sources(model, pairs, pairs.n_partitions)
    if pairs is not None:
        return None
    own = {coin: table for coin, table in parted_coins(model).items() if coin in model.relevance}
    if not own:
        return None
    by_query = [
        coin
        for coin in model.relevance
        if model.forms[coin].has_posterior and "query" in model.keys[coin]
    ]
    if set(by_query) != set(own):  # others have all their rows in memory anyway
        return None
    return Sources(model, None, max(table.n_parts for table in own.values()))


@dataclass(frozen=True, repr=False)
class PartedJudgments(Told):
    """What `judge` found, in files: graded pairs, all of a query together, sorted within a part.

    Attributes are those of `Judgments`; `frame` reads everything into memory, and `parts()` one
    part after the other. Cut points of "quantile" are exact for up to 10 million pairs, and right
    to a millionth beyond. The files are temporary, and gone with this object.
    """

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
    totals: Counted
    numbers: tuple[int, ...]  # of the parts that have pairs
    n_parts: int
    folder: Scratch = field(compare=False)

    @property
    def counted(self) -> Counted:
        return self.totals

    def parts(self) -> Iterator[Judgments]:
        """The judgments of each part, as judgments in memory."""
        for number in self.numbers:
            frame = pl.read_parquet(_graded(self.folder, number))
            cuts = _cuts(self.folder, number)
            by_query = pl.read_parquet(cuts) if cuts.exists() else None
            yield Judgments(
                frame,
                self.model,
                self.relevance_is,
                replace(self.grading, by_query=by_query),
                self.level,
                self.max_width,
                self.min_examinations,
                self.min_probability,
                self.min_order,
                self.why_no_interval,
                remarks=self.remarks,
            )

    @cached_property
    def frame(self) -> pl.DataFrame:
        """All pairs in memory, which costs what they take."""
        return pl.concat([part.frame for part in self.parts()])

    @property
    def judged(self) -> pl.DataFrame:
        """All pairs that have a grade, in memory."""
        return pl.concat([part.frame.filter(pl.col("verdict") == JUDGED) for part in self.parts()])

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
        """Write the judgments for those who read them, as `Judgments.write` does."""
        from gecasmo.judgments.formats import Options, write_parted

        options = Options(features, query, ids, name, ratings, include)
        return write_parted(self, path, format, options)

    def worth_judging(self, n: int = 20, *, log: Any = None) -> WorthJudging:
        """The pairs and queries most worth judging by hand, as `Judgments.worth_judging` does.

        The log that tells the traffic may be a stored one.
        """
        from gecasmo.judgments.worth import most_worthy, worth_judging

        found = []
        for number, part in zip(self.numbers, self.parts(), strict=True):
            pages = log
            if is_stored(log):
                near = range(*overlap(number, number + 1, self.n_parts, log.n_partitions))
                pages = joined([log.partition(each) for each in near])
            found.append(worth_judging(part, n, pages))
        return most_worthy(found, n)

    def to_dict(self, rows: bool = False) -> dict[str, Any]:
        """The summary, ready for JSON; with `rows=True` also every pair."""
        summary = self.summary()
        return {**summary, "judgments": self.frame.to_dicts()} if rows else summary


def judge_parts(model: Model, sources: Sources, question: Question) -> PartedJudgments:
    """Judge part by part: first the relevance of all pairs, then, with the cut points, grades."""
    folder = Scratch()
    numbers = list[int]()

    def seen() -> Iterator[Any]:
        for number, view, pairs in sources:
            frame = relevance_frame(view, pairs, question.level)
            numbers.append(number)
            frame.write_parquet(_graded(folder, number))
            yield question.seen(frame)

    cuts = question.cuts(seen())
    if not numbers:
        raise JudgmentsError(
            f"{model.name} has no pairs to be judged: its tables and the log are empty."
        )
    total: Judgments | None = None
    counted = Counted()
    for number in numbers:
        frame = pl.read_parquet(_graded(folder, number))
        part = question.judgments(model, frame, cuts)
        part.frame.write_parquet(_graded(folder, number))
        if part.grading.by_query is not None:
            part.grading.by_query.write_parquet(_cuts(folder, number))
        counted += part.counted
        total = part if total is None else _together(total, part)
    assert total is not None
    return PartedJudgments(
        total.model,
        total.relevance_is,
        replace(total.grading, by_query=None),
        total.level,
        total.max_width,
        total.min_examinations,
        total.min_probability,
        total.min_order,
        total.why_no_interval,
        total.n_given,
        total.n_undecided,
        total.remarks,
        counted,
        tuple(numbers),
        sources.n_parts,
        folder,
    )


def _together(one: Judgments, other: Judgments) -> Judgments:
    """What is told of two parts; the frame is that of one."""
    reasons = [why for why in (one.why_no_interval, other.why_no_interval) if why]
    # That forms on features have none is only the reason if it is so for all pairs.
    reasons.sort(key=lambda why: "features" in why)
    return replace(
        one,
        why_no_interval=reasons[0] if reasons else "",
        n_given=one.n_given + other.n_given,
        n_undecided=one.n_undecided + other.n_undecided,
    )


def _graded(folder: Scratch, number: int) -> Path:
    return folder.path / f"part-{number:05d}.parquet"


def _cuts(folder: Scratch, number: int) -> Path:
    return folder.path / f"cuts-{number:05d}.parquet"
