"""The charts that belong together: those of a log, of a fit and of a comparison, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gecasmo.logs import ClickLog
from gecasmo.plots.amounts import pairs_by_impressions
from gecasmo.plots.calibration import calibration
from gecasmo.plots.convergence import convergence
from gecasmo.plots.examination import examination
from gecasmo.plots.ranks import ctr_by_rank, perplexity_by_rank
from gecasmo.plots.relevance import relevance_against_ctr
from gecasmo.plots.theme import Chart

if TYPE_CHECKING:
    from gecasmo.model.base import Model


def log_charts(log: ClickLog) -> dict[str, Chart]:
    """What a log looks like before anything is fitted."""
    return {"ctr_by_rank": ctr_by_rank(log), "pairs_by_impressions": pairs_by_impressions(log)}


def fit_charts(model: Model, log: ClickLog) -> dict[str, Chart]:
    """How a fit went and what it found. Charts that do not fit the model are left out: relevance
    if it names none, convergence if it was never fitted, examination if everything is seen."""
    charts = {}
    if model.report_ is not None:
        charts["convergence"] = convergence(model)
    if "examination" in model.forms or model.structure.full.body.gone is not None:
        charts["examination"] = examination(model, log)
    charts["ctr_by_rank"] = ctr_by_rank(model, log)
    charts["calibration"] = calibration(model, log)
    if model.relevance:
        charts["relevance_against_ctr"] = relevance_against_ctr(model, log)
    return charts


def comparison_charts(comparison: Any) -> dict[str, Chart]:
    """All models of a comparison side by side."""
    return {
        "perplexity_conditional": perplexity_by_rank(comparison, kind="conditional"),
        "perplexity_marginal": perplexity_by_rank(comparison, kind="marginal"),
        "ctr_by_rank": ctr_by_rank(comparison),
        "calibration": calibration(comparison),
    }
