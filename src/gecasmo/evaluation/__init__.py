"""How well models predict: likelihood, perplexity, calibration, and honest comparisons."""

from gecasmo.evaluation.compare import compare, rank_perplexities
from gecasmo.evaluation.comparison import Comparison, Setting
from gecasmo.evaluation.evaluate import Evaluation, EvaluationSums, evaluate, finished
from gecasmo.evaluation.leaks import LeakTest, leak_test
from gecasmo.evaluation.metrics import Calibration, Perplexity, calibration, perplexity
from gecasmo.evaluation.selection import Selection, select_model

__all__ = [
    "Calibration",
    "Comparison",
    "Evaluation",
    "EvaluationSums",
    "LeakTest",
    "Perplexity",
    "Selection",
    "Setting",
    "calibration",
    "compare",
    "evaluate",
    "finished",
    "leak_test",
    "perplexity",
    "rank_perplexities",
    "select_model",
]
