"""Judgments from a fitted model: grades with intervals, files for ranking stacks, propensities."""

from gecasmo.judgments.formats import FORMATS, JudgmentFormat, Written
from gecasmo.judgments.grading import RULES, Grading, JudgmentsError
from gecasmo.judgments.judge import PartedJudgments, judge
from gecasmo.judgments.judged import Judgments
from gecasmo.judgments.propensity import propensities, write_propensities
from gecasmo.judgments.worth import WorthJudging

__all__ = [
    "FORMATS",
    "RULES",
    "Grading",
    "JudgmentFormat",
    "Judgments",
    "JudgmentsError",
    "PartedJudgments",
    "WorthJudging",
    "Written",
    "judge",
    "propensities",
    "write_propensities",
]
