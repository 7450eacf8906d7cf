"""Fits and answers on Spark: the same models, the same kernels, the same numbers.

Needs the extra `gecasmo[spark]` and Java 17; docs/scale.md says how to run it on a cluster.
"""

from gecasmo.spark.answers import evaluate, judgments, predict
from gecasmo.spark.frame_log import open_log
from gecasmo.spark.session import SparkError, start
from gecasmo.spark.spark_fit import fit

__all__ = ["SparkError", "evaluate", "fit", "judgments", "open_log", "predict", "start"]


def __dir__() -> list[str]:
    return sorted(__all__)
