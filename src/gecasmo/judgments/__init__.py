"""Judgments from a fitted model: grades with intervals, files for ranking stacks, propensities."""

from gecasmo.judgments.files import JudgmentFormat, Written
from gecasmo.judgments.formats import FORMATS
from gecasmo.judgments.grade_tables import Grades
from gecasmo.judgments.grades import FIXED_CUTS, RULES, Grading, JudgmentsError
from gecasmo.judgments.judge import PairParts, Question, judge
from gecasmo.judgments.judged import Judgments
from gecasmo.judgments.judges import Judges
from gecasmo.judgments.pairs import relevance_frame
from gecasmo.judgments.propensity import propensities, write_propensities
from gecasmo.judgments.run_quality import RunQuality
from gecasmo.judgments.worth import WorthJudging

__all__ = [
    "FIXED_CUTS",
    "FORMATS",
    "RULES",
    "Grades",
    "Grading",
    "Judges",
    "JudgmentFormat",
    "Judgments",
    "JudgmentsError",
    "PairParts",
    "Question",
    "RunQuality",
    "WorthJudging",
    "Written",
    "judge",
    "propensities",
    "relevance_frame",
    "write_propensities",
]


def __dir__() -> list[str]:
    return sorted(__all__)
