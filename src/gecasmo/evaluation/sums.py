"""What an evaluation is made of: sums that add up over the partitions of a log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gecasmo.evaluation.calibration import CalibrationSums
from gecasmo.evaluation.perplexity import Floats, PerplexitySums
from gecasmo.logs import ClickLog
from gecasmo.model.answers import marginal_clicks, per_session
from gecasmo.model.impossible import FLOOR, Filtered, Tally

if TYPE_CHECKING:
    from gecasmo.model.base import Impossible, Model


@dataclass(frozen=True)
class EvaluationSums:
    """The sums behind an `Evaluation`.

    `tally` counts sessions and results, `weighed` their weights: sessions that are kept, their
    results, and sessions that are impossible.
    """

    tally: Tally
    n_impossible: int
    weighed: tuple[float, float, float]
    log_likelihood: float
    marginal: PerplexitySums
    conditional: PerplexitySums
    calibration: CalibrationSums

    @classmethod
    def of(cls, model: Model, log: ClickLog, impossible: Impossible) -> EvaluationSums:
        """The sums of a log in memory."""
        filtered = Filtered(model, log, impossible, warn=False)  # the table says what was left out
        kept = filtered.kept[log.page]
        weight = log.weight[log.page][kept]
        marginal = np.asarray(marginal_clicks(model, log, encoded=filtered.encoded))
        conditional = filtered.click
        if impossible == "floor":
            marginal, conditional = (floored(log.click, p, FLOOR) for p in (marginal, conditional))
        marginal, conditional = marginal[kept], conditional[kept]
        click, rank = log.click[kept], log.rank[kept]
        logs = per_session(log, np.log(filtered.probability))[filtered.kept]
        weights = log.weight[filtered.kept]
        bad = np.unique(log.page[filtered.is_impossible])
        return cls(
            filtered.tally,
            len(bad),
            (float(weights.sum()), float(weight.sum()), float(log.weight[bad].sum())),
            float((logs * weights).sum()),
            PerplexitySums.of(click, marginal, rank, weight),
            PerplexitySums.of(click, conditional, rank, weight),
            CalibrationSums.of(click, marginal, weight),
        )

    def __add__(self, other: EvaluationSums) -> EvaluationSums:
        pages, results, bad = (a + b for a, b in zip(self.weighed, other.weighed, strict=True))
        return EvaluationSums(
            self.tally + other.tally,
            self.n_impossible + other.n_impossible,
            (pages, results, bad),
            self.log_likelihood + other.log_likelihood,
            self.marginal + other.marginal,
            self.conditional + other.conditional,
            self.calibration + other.calibration,
        )


def floored(click: NDArray[np.bool_], probability: Floats, floor: float) -> Floats:
    """Click probabilities by which nothing that happened had probability 0."""
    never = click & (probability <= 0)
    always = ~click & (probability >= 1)
    return np.where(never, floor, np.where(always, 1 - floor, probability))
