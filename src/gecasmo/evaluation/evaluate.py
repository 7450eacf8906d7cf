"""Evaluate a fitted model on a log, and show the figures as a table."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.evaluation.calibration import Calibration, calibration
from gecasmo.evaluation.perplexity import Floats, Perplexity, perplexity
from gecasmo.evaluation.words import counted
from gecasmo.logs import ClickLog

if TYPE_CHECKING:
    from gecasmo.model.base import Impossible, Model


@dataclass(frozen=True)
class Evaluation:
    """What `model.evaluate(log)` found.

    `log_likelihood` is per session and `log_likelihood_per_result` per shown result, both natural
    logarithms. `marginal` perplexity knows no clicks, `conditional` those above each result.
    `calibration` is that of the marginal click probabilities.
    """

    model: str
    n_sessions: int
    n_results: int
    n_impossible: int
    impossible: str
    log_likelihood: float
    log_likelihood_per_result: float
    marginal: Perplexity
    conditional: Perplexity
    calibration: Calibration

    @property
    def brier(self) -> float:
        """The mean squared distance of clicks and marginal click probabilities."""
        return self.calibration.brier

    @property
    def ece(self) -> float:
        """The expected calibration error of the marginal click probabilities."""
        return self.calibration.ece

    @property
    def by_rank(self) -> pl.DataFrame:
        """Marginal and conditional perplexity per rank."""
        marginal, conditional = self.marginal.by_rank, self.conditional.by_rank
        return pl.DataFrame(
            {
                "rank": marginal["rank"],
                "results": marginal["results"],
                "marginal": marginal["perplexity"],
                "conditional": conditional["perplexity"],
            }
        )

    def to_dict(self) -> dict[str, float]:
        """The overall figures by name."""
        return {
            "log_likelihood": self.log_likelihood,
            "log_likelihood_per_result": self.log_likelihood_per_result,
            "marginal_perplexity_arithmetic": self.marginal.arithmetic,
            "marginal_perplexity_pooled": self.marginal.pooled,
            "conditional_perplexity_arithmetic": self.conditional.arithmetic,
            "conditional_perplexity_pooled": self.conditional.pooled,
            "brier": self.brier,
            "ece": self.ece,
        }

    def __str__(self) -> str:
        pages = f"{counted(self.n_sessions, 'session')}, {counted(self.n_results, 'result')}"
        lines = [f"{self.model} on {pages}"]
        if self.n_impossible:
            did = "left out" if self.impossible == "drop" else "an observation counted as 1e-8"
            lines.append(f"  impossible sessions: {self.n_impossible:,} ({did})")
        lines += [
            f"  log-likelihood per session  {self.log_likelihood:10.4f}",
            f"  log-likelihood per result   {self.log_likelihood_per_result:10.4f}",
            f"  Brier score                 {self.brier:10.4f}",
            f"  calibration error (ECE)     {self.ece:10.4f}",
            "",
            f"  {'perplexity':<12}{'marginal':>12}{'conditional':>14}",
        ]
        for name in ("arithmetic", "pooled"):
            marginal, conditional = getattr(self.marginal, name), getattr(self.conditional, name)
            lines.append(f"  {name:<12}{marginal:>12.4f}{conditional:>14.4f}")
        for rank, _, marginal, conditional in self.by_rank.rows():
            lines.append(f"  rank {rank:<7}{marginal:>12.4f}{conditional:>14.4f}")
        for name, figures in (("marginal", self.marginal), ("conditional", self.conditional)):
            if figures.n_infinite:
                lines.append(
                    f"  {name} perplexity is infinite: {counted(figures.n_infinite, 'result')} "
                    "happened that were given probability 0"
                )
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def evaluate(model: Model, log: ClickLog, impossible: Impossible = "raise") -> Evaluation:
    """Log-likelihood and perplexities; pages of probability zero are treated as asked."""
    from gecasmo.model.answers import marginal_clicks, per_session
    from gecasmo.model.impossible import FLOOR, Filtered

    filtered = Filtered(model, log, impossible, warn=False)  # the table says what was left out
    filtered.require_some()
    kept = filtered.kept[log.page]
    weight = log.weight[log.page]
    marginal = np.asarray(marginal_clicks(model, log, encoded=filtered.encoded))
    conditional = filtered.click
    if impossible == "floor":
        marginal, conditional = (floored(log.click, p, FLOOR) for p in (marginal, conditional))
    click, rank = log.click[kept], log.rank[kept]
    logs = per_session(log, np.log(filtered.probability))[filtered.kept]
    weights = log.weight[filtered.kept]
    n_bad = len(np.unique(log.page[filtered.is_impossible]))
    total = float((logs * weights).sum())
    return Evaluation(
        model=model.name,
        n_sessions=int(filtered.kept.sum()),
        n_results=int(kept.sum()),
        n_impossible=n_bad,
        impossible=impossible,
        log_likelihood=total / float(weights.sum()),
        log_likelihood_per_result=total / float(weight[kept].sum()),
        marginal=perplexity(click, marginal[kept], rank, weight[kept]),
        conditional=perplexity(click, conditional[kept], rank, weight[kept]),
        calibration=calibration(click, marginal[kept], weight[kept]),
    )


def floored(click: NDArray[np.bool_], probability: Floats, floor: float) -> Floats:
    """Click probabilities by which nothing that happened had probability 0."""
    never = click & (probability <= 0)
    always = ~click & (probability >= 1)
    return np.where(never, floor, np.where(always, 1 - floor, probability))
