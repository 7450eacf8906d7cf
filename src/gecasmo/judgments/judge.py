"""`judge`: graded judgments from a fitted model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gecasmo.judgments.judged import Judgments
from gecasmo.judgments.pairs import relevance_frame
from gecasmo.judgments.parted import PartedJudgments, in_parts, judge_parts
from gecasmo.judgments.question import Question

if TYPE_CHECKING:
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
