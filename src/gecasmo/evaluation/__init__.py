"""How well models predict: likelihood, perplexity, calibration, and honest comparisons."""

from gecasmo.evaluation.compare import compare, rank_perplexities
from gecasmo.evaluation.comparison import Comparison, Setting
from gecasmo.evaluation.evaluate import Evaluation, EvaluationSums, evaluate, finished
from gecasmo.evaluation.leaks import LeakTest, leak_test
from gecasmo.evaluation.metrics import Calibration, Perplexity, calibration, perplexity

__all__ = [
    "Calibration",
    "Comparison",
    "Evaluation",
    "EvaluationSums",
    "LeakTest",
    "Perplexity",
    "Setting",
    "calibration",
    "compare",
    "evaluate",
    "finished",
    "leak_test",
    "perplexity",
    "rank_perplexities",
]
