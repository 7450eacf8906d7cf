"""Published experiments, done again from start to end."""

from gecasmo.experiments.paper import CONTENDERS, PUBLISHED, Contender, PaperResult, run_paper

__all__ = ["CONTENDERS", "PUBLISHED", "Contender", "PaperResult", "run_paper"]
