"""How well a model predicts: log-likelihood and perplexity."""

from gecasmo.evaluation.evaluate import Evaluation, evaluate
from gecasmo.evaluation.perplexity import Perplexity, perplexity

__all__ = ["Evaluation", "Perplexity", "evaluate", "perplexity"]
