"""`judge`: graded judgments from a fitted model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gecasmo.judgments.errors import JudgmentsError
from gecasmo.judgments.grading import check_rule
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
    rule: str = "quantile",
    thresholds: Sequence[float] | None = None,
    level: float = 0.9,
    max_width: float | None = 0.4,
    min_examinations: float = 10.0,
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
        "quantile": grades hold equal shares of the pairs with enough data; pairs of equal relevance
        get the grade of the middle one of them, in doubt the lower. "quantile-per-query": the same
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
    pairs : data frame, ClickLog or StoredLog, optional
        The pairs to be judged, with `query` and `doc` and whatever other columns the coins of
        relevance are found by. By default all rows of the fit.

    Returns
    -------
    Judgments
        Its `frame` is sorted by query, the most relevant document first. A pair whose interval
        reaches from the lowest to the highest grade is insufficient, however narrow it is: any
        grade could be right. For a stored log, or a model whose rows are in files, these are
        `PartedJudgments`, which do the same with bounded memory.
    """
    check_rule(rule, grades, thresholds)
    limits = {"max_width": max_width, "min_examinations": min_examinations}
    for name, value in limits.items():
        if value is None and name == "max_width":
            continue
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
            raise JudgmentsError(f"{name}={value!r}: a number that is not negative is wanted.")
    width = None if max_width is None else float(max_width)
    question = Question(rule, int(grades), thresholds, level, width, float(min_examinations))
    sources = in_parts(model, pairs)
    if sources is not None:
        return judge_parts(model, sources, question)
    frame = relevance_frame(model, pairs, level)
    enough = question.has_enough(frame)
    return question.judgments(model, frame, enough, question.grading(frame.filter(enough)))
