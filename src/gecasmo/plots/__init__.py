"""Pictures of logs, fits and comparisons; made with Altair, which is imported when one is drawn.

`model.plot` has the charts of one model; charts that belong together come by name, for `save_all`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from gecasmo.logs import ClickLog
from gecasmo.plots.convergence import convergence
from gecasmo.plots.examination import examination
from gecasmo.plots.files import save, save_all
from gecasmo.plots.fit_check import fit_check
from gecasmo.plots.pairs import pairs_by_impressions, relevance_against_ctr
from gecasmo.plots.predictions import calibration, ctr_by_rank, perplexity_by_rank
from gecasmo.plots.story import story
from gecasmo.plots.theme import Chart, remarked

if TYPE_CHECKING:
    from gecasmo.model.base import Model

__all__ = [
    "ComparisonPlots",
    "Plots",
    "calibration",
    "comparison_charts",
    "convergence",
    "ctr_by_rank",
    "examination",
    "fit_charts",
    "fit_check",
    "log_charts",
    "pairs_by_impressions",
    "perplexity_by_rank",
    "relevance_against_ctr",
    "save",
    "save_all",
    "story",
]

P = ParamSpec("P")
_TRAINING = "Training pages: the model was fitted to these, and predicts others less well."
_HELD_OUT = "Held-out pages, which the model was not fitted to."


def _of_its_source(
    draw: Callable[Concatenate[Any, P], Chart],
) -> Callable[Concatenate[_Charts, P], Chart]:
    """Make a method of a function whose first argument is what charts are drawn of."""

    @wraps(draw)
    def method(self: _Charts, /, *args: P.args, **options: P.kwargs) -> Chart:
        return draw(self._source, *args, **options)

    return method


class _Charts:
    """Charts of something; print it to see which there are."""

    def __init__(self, source: Any, name: str) -> None:
        self._source, self._name = source, name

    def __dir__(self) -> list[str]:
        return [name for name in vars(type(self)) if not name.startswith("_")]

    def __repr__(self) -> str:
        lines = [f"Charts of {self._name}:"]
        for name in dir(self):
            first = (getattr(type(self), name).__doc__ or "").splitlines()[0]
            lines.append(f"  .{name + '()':<26}{first}")
        return "\n".join(lines)


class Plots(_Charts):
    """Charts of a fitted model, as `model.plot.examination()`.

    Each is an Altair chart: interactive in a notebook, and written to a file by
    `gecasmo.plots.save(chart, "chart.png")` (or .svg, .html, .json).
    """

    convergence = _of_its_source(convergence)
    examination = _of_its_source(examination)
    ctr_by_rank = _of_its_source(ctr_by_rank)
    perplexity_by_rank = _of_its_source(perplexity_by_rank)
    calibration = _of_its_source(calibration)
    relevance_against_ctr = _of_its_source(relevance_against_ctr)
    story = _of_its_source(story)
    fit_check = _of_its_source(fit_check)


class ComparisonPlots(_Charts):
    """Charts of all models of a comparison, as `comparison.plot.perplexity_by_rank()`."""

    perplexity_by_rank = _of_its_source(perplexity_by_rank)
    ctr_by_rank = _of_its_source(ctr_by_rank)
    calibration = _of_its_source(calibration)


def log_charts(log: ClickLog) -> dict[str, Chart]:
    """Draw what a log looks like before anything is fitted: charts by name, for `save_all`."""
    return {"ctr_by_rank": ctr_by_rank(log), "pairs_by_impressions": pairs_by_impressions(log)}


def fit_charts(model: Model, log: ClickLog, *, held_out: bool = False) -> dict[str, Chart]:
    """Draw how a fit went and what it found: charts by name, for `save_all`.

    Charts that do not fit the model are left out: relevance if it names none, convergence if it was
    never fitted, examination if everything is seen. Predictions of pages that a model was fitted to
    look better than those of others, so the charts say which they are.

    Parameters
    ----------
    model : fitted model
    log : ClickLog
        Pages to predict.
    held_out : bool
        Whether these are other pages than those of the fit.
    """
    charts = {}
    if model.report_ is not None:
        charts["convergence"] = convergence(model)
    if "examination" in model.forms or model.structure.full.body.gone is not None:
        charts["examination"] = examination(model, log)
    charts["ctr_by_rank"] = ctr_by_rank(model, log)
    charts["calibration"] = calibration(model, log)
    if model.relevance:
        charts["relevance_against_ctr"] = relevance_against_ctr(model, log)
    pages = _HELD_OUT if held_out else _TRAINING
    return {
        name: chart if name in ("convergence", "examination") else remarked(chart, pages)
        for name, chart in charts.items()
    }


def comparison_charts(comparison: Any) -> dict[str, Chart]:
    """Draw all models of a comparison side by side: charts by name, for `save_all`."""
    return {
        "perplexity_conditional": perplexity_by_rank(comparison, kind="conditional"),
        "perplexity_marginal": perplexity_by_rank(comparison, kind="marginal"),
        "ctr_by_rank": ctr_by_rank(comparison),
        "calibration": calibration(comparison),
    }


def __dir__() -> list[str]:
    return sorted(__all__)
