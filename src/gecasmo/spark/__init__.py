"""Fits and answers on Spark: the same models, the same kernels, the same numbers.

Needs the extra `gecasmo[spark]` and Java 17; docs/scale.md says how to run it on a cluster.
"""

from gecasmo.spark.answers import evaluate, predict
from gecasmo.spark.fitting import fit
from gecasmo.spark.java import start
from gecasmo.spark.judging import judgments
from gecasmo.spark.needs import SparkError

__all__ = ["SparkError", "evaluate", "fit", "judgments", "predict", "start"]
