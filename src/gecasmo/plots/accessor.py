"""`model.plot`: the charts of one model; and charts that belong together, by name.

Those are the charts of a log, of a fit and of a comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gecasmo.logs import ClickLog
from gecasmo.plots.convergence import convergence
from gecasmo.plots.examination import examination
from gecasmo.plots.pairs import pairs_by_impressions, relevance_against_ctr
from gecasmo.plots.predictions import Kind, calibration, ctr_by_rank, perplexity_by_rank
from gecasmo.plots.story import story
from gecasmo.plots.theme import Chart

if TYPE_CHECKING:
    from gecasmo.model.base import Model


class Plots:
    """Charts of a fitted model, as `model.plot.examination()`.

    Each is an Altair chart: interactive in a notebook, and written to a file by
    `gecasmo.plots.save(chart, "chart.png")` (or .svg, .html, .json).
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    def convergence(self) -> Chart:
        """Objective and log-likelihood by iteration, and the gap to the best."""
        return convergence(self._model)

    def examination(
        self,
        log: ClickLog | None = None,
        *,
        coin: str | None = None,
        level: float = 0.9,
        repeats: int = 0,
    ) -> Chart:
        """How often results are looked at, by rank (and last click)."""
        return examination(self._model, log, coin=coin, level=level, repeats=repeats)

    def ctr_by_rank(self, log: ClickLog) -> Chart:
        """Observed and predicted click-through rate by rank."""
        return ctr_by_rank(self._model, log)

    def perplexity_by_rank(self, log: ClickLog, *, kind: Kind = "conditional") -> Chart:
        """Perplexity by rank."""
        return perplexity_by_rank(self._model, log, kind=kind)

    def calibration(self, log: ClickLog, *, level: float = 0.9) -> Chart:
        """Observed click rate against predicted probability, with counts."""
        return calibration(self._model, log, level=level)

    def relevance_against_ctr(
        self,
        log: ClickLog,
        *,
        top: int | None = None,
        coin: str | None = None,
        level: float = 0.9,
    ) -> Chart:
        """Estimated relevance of pairs against their raw click-through rate."""
        return relevance_against_ctr(self._model, log, top=top, coin=coin, level=level)

    def story(self, log: ClickLog, session: Any) -> Chart:
        """One page: its clicks, and what probably happened behind them."""
        return story(self._model, log, session)

    def __dir__(self) -> list[str]:
        return [name for name in vars(type(self)) if not name.startswith("_")]

    def __repr__(self) -> str:
        lines = [f"Charts of {self._model.name}:"]
        for name in dir(self):
            first = (getattr(type(self), name).__doc__ or "").splitlines()[0]
            lines.append(f"  .{name + '()':<26}{first}")
        return "\n".join(lines)


def log_charts(log: ClickLog) -> dict[str, Chart]:
    """Draw what a log looks like before anything is fitted: charts by name, for `save_all`."""
    return {"ctr_by_rank": ctr_by_rank(log), "pairs_by_impressions": pairs_by_impressions(log)}


def fit_charts(model: Model, log: ClickLog) -> dict[str, Chart]:
    """Draw how a fit went and what it found: charts by name, for `save_all`.

    Charts that do not fit the model are left out: relevance if it names none, convergence if it was
    never fitted, examination if everything is seen.

    Parameters
    ----------
    model : fitted model
    log : ClickLog
        Pages to predict, mostly those of the fit.
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
    return charts


def comparison_charts(comparison: Any) -> dict[str, Chart]:
    """Draw all models of a comparison side by side: charts by name, for `save_all`."""
    return {
        "perplexity_conditional": perplexity_by_rank(comparison, kind="conditional"),
        "perplexity_marginal": perplexity_by_rank(comparison, kind="marginal"),
        "ctr_by_rank": ctr_by_rank(comparison),
        "calibration": calibration(comparison),
    }
