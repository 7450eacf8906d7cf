"""Pictures of logs, fits and comparisons; made with Altair, which is imported when one is drawn."""

from gecasmo.plots.accessor import Plots, comparison_charts, fit_charts, log_charts
from gecasmo.plots.convergence import convergence
from gecasmo.plots.examination import examination
from gecasmo.plots.files import save, save_all
from gecasmo.plots.pairs import pairs_by_impressions, relevance_against_ctr
from gecasmo.plots.predictions import calibration, ctr_by_rank, perplexity_by_rank
from gecasmo.plots.story import story

__all__ = [
    "Plots",
    "calibration",
    "comparison_charts",
    "convergence",
    "ctr_by_rank",
    "examination",
    "fit_charts",
    "log_charts",
    "pairs_by_impressions",
    "perplexity_by_rank",
    "relevance_against_ctr",
    "save",
    "save_all",
    "story",
]
