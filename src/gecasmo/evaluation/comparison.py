"""What a comparison of models found."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from gecasmo.model.base import Model


@dataclass(frozen=True)
class Setting:
    """What the models were compared on, and how."""

    split: str
    n_train_sessions: int
    n_train_results: int
    n_test_sessions: int
    n_test_results: int
    seed: int
    impossible: str
    bootstrap: int
    over: str
    n_clusters: int
    level: float
    baseline: str
    best: str
    ndcg_at: int | None = None
    n_judged_queries: int | None = None


@dataclass(frozen=True)
class Comparison:
    """Models on the same sessions; prints as tables, and is one in a notebook.

    Attributes
    ----------
    table : one line per model, the highest log-likelihood first. Where a metric has an interval,
        it is in the columns `<metric>_low` and `<metric>_high`. What is undefined is null, and
        `reasons` says why.
    by_rank : model, rank, results, conditional and marginal perplexity
    differences : model, against, metric, difference, low, high and verdict: every model against
        the one with the highest log-likelihood and against the click rate by rank, on the same
        bootstrap samples. "better" and "worse" mean that the interval excludes zero.
    calibration : model, bin, low, high, results, predicted, observed: reliability of the marginal
        click probabilities
    ctr_by_rank : model, rank, results, observed, predicted
    models : the fitted models by name
    notes : what a reader of the numbers should know, in sentences
    reasons : by model and column, why a number is undefined
    setting : parts, split and bootstrap
    """

    table: pl.DataFrame
    by_rank: pl.DataFrame
    differences: pl.DataFrame
    calibration: pl.DataFrame
    ctr_by_rank: pl.DataFrame
    models: dict[str, Model]
    notes: list[str]
    setting: Setting
    reasons: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def best(self) -> str:
        """The model with the highest log-likelihood; whether clearly so, `differences` tells."""
        return self.setting.best

    def verdict(self, model: str, against: str, metric: str = "log_likelihood") -> str | None:
        """The verdict on one model against one of the two references; None if it is the same."""
        found = self.differences.filter(model=model, against=against, metric=metric)
        return None if found.is_empty() else str(found["verdict"][0])

    def to_dict(self) -> dict[str, Any]:
        """Everything but the models, as JSON can hold it: what is undefined is null."""
        return {
            "setting": dict(vars(self.setting)),
            "table": _records(self.table),
            "by_rank": _records(self.by_rank),
            "differences": _records(self.differences),
            "calibration": _records(self.calibration),
            "ctr_by_rank": _records(self.ctr_by_rank),
            "notes": list(self.notes),
            "reasons": {model: dict(told) for model, told in self.reasons.items()},
        }

    def __str__(self) -> str:
        from gecasmo.evaluation.showing import as_text

        return as_text(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from gecasmo.evaluation.showing import as_html

        return as_html(self)


def _records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    return [
        {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in row.items()
        }
        for row in frame.to_dicts()
    ]
