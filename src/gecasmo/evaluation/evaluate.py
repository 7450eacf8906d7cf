"""Evaluate a fitted model on a log, and show the figures as a table.

What an evaluation is made of are sums that add up over the partitions of a log. A comparison wants
to know more: what a model says of each session and each result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.evaluation.metrics import (
    Calibration,
    CalibrationSums,
    Perplexity,
    PerplexitySums,
)
from gecasmo.logs import ClickLog
from gecasmo.logs.views import ViewedLog, as_view
from gecasmo.model.answers import marginal_array, per_session, told_unseen, unseen_weights
from gecasmo.model.log_parts import is_stored, over_parts
from gecasmo.model.page_run import FLOOR, Filtered, Tally, counts_of_source
from gecasmo.report import Column, TextTable, counted, html_of, listed, wrapped

if TYPE_CHECKING:
    from gecasmo.logs.store import StoredLog
    from gecasmo.model.base import Impossible, Model

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Evaluation:
    """What `model.evaluate(log)` found.

    `log_likelihood` is per session and `log_likelihood_per_result` per shown result, both natural
    logarithms. `marginal` perplexity knows no clicks, `conditional` those above each result.
    `calibration` is that of the marginal click probabilities. `unseen` says per coin which share
    of the results has a row that was never fitted: there a model can only answer from its prior.
    Where numbers are `observed`, log-likelihoods are of clicks and of the density of these numbers;
    perplexities are always of clicks.
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
    unseen: Mapping[str, float] = field(default_factory=dict)
    observed: tuple[str, ...] = ()

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

    @property
    def perplexity(self) -> pl.DataFrame:
        """Marginal and conditional perplexity: arithmetic mean over ranks, pooled, and by rank."""
        ranks = self.by_rank
        overall = pl.DataFrame(
            {
                "of": ["arithmetic", "pooled"],
                "marginal": [self.marginal.arithmetic, self.marginal.pooled],
                "conditional": [self.conditional.arithmetic, self.conditional.pooled],
            }
        )
        each = ranks.select(pl.format("rank {}", "rank").alias("of"), "marginal", "conditional")
        return pl.concat([overall, each])

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
        lines = [self._headline()]
        for remark in self._remarks():
            lines += wrapped(remark, "  ", "    ")
        lines += [f"  {name:<26}{value:12.4f}" for name, value in self._figures().items()]
        lines += ["", *self._table().lines()]
        for infinite in self._infinite():
            lines += wrapped(infinite, "  ", "    ")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        figures = self._figures()
        overall = TextTable(
            [
                Column("figure", list(figures), is_text=True),
                Column("value", [f"{value:.4f}" for value in figures.values()]),
            ]
        )
        notes = [*self._remarks(), *self._infinite()]
        return html_of(self._headline(), notes, overall, self._table())

    def _headline(self) -> str:
        pages = f"{counted(self.n_sessions, 'session')}, {counted(self.n_results, 'result')}"
        return f"{self.model} on {pages}"

    def _remarks(self) -> list[str]:
        did = "left out" if self.impossible == "drop" else "an observation counted as 1e-8"
        impossible = f"impossible sessions: {self.n_impossible:,} ({did})"
        observed = f"log-likelihoods are of clicks and of the density of {listed(self.observed)}"
        told = [impossible * bool(self.n_impossible), told_unseen(self.unseen)]
        return [*filter(None, [*told, observed * bool(self.observed)])]

    def _figures(self) -> dict[str, float]:
        return {
            "log-likelihood per session": self.log_likelihood,
            "log-likelihood per result": self.log_likelihood_per_result,
            "Brier score": self.brier,
            "calibration error (ECE)": self.ece,
        }

    def _infinite(self) -> list[str]:
        kinds = {"marginal": self.marginal, "conditional": self.conditional}
        return [
            f"{name} perplexity is infinite: {counted(figures.n_infinite, 'result')} happened that "
            "were given probability 0"
            for name, figures in kinds.items()
            if figures.n_infinite
        ]

    def _table(self) -> TextTable:
        names = {"of": "perplexity"}
        formats = dict.fromkeys(("marginal", "conditional"), "{:.4f}".format)
        return TextTable.of(self.perplexity, headings=names, formats=formats)


def evaluate(
    model: Model, log: ClickLog | StoredLog, impossible: Impossible = "raise"
) -> Evaluation:
    """Measure how well a fitted model foretells a log.

    Parameters
    ----------
    model : fitted model
    log : ClickLog or StoredLog
        A stored log is evaluated partition by partition, one in memory as a single one.
    impossible : "raise", "drop" or "floor"
        What to do with pages of probability zero: refuse them, leave them out, or count the
        impossible observation as 1e-8.

    Returns
    -------
    Evaluation
        Log-likelihood, perplexities and calibration; prints as a table.
    """
    total = reduce(
        add,
        over_parts(model, log, lambda view, pages: EvaluationSums.of(view, pages, impossible)),
    )
    found = finished(total, model.name, impossible, is_folded(log))
    counts = counts_of_source(log, total.tally)
    if counts is None:
        return found
    return replace(found, n_sessions=counts[0], n_results=counts[1])


def is_folded(log: Any) -> bool:
    """Whether the weight of a stored page says how many sessions of the source it stands for."""
    if not is_stored(log):  # of other logs weights are whatever the user says
        return False
    n_sessions = getattr(log, "n_sessions", -1)
    return bool(getattr(log, "total_weight", None) == n_sessions)


def finished(
    sums: EvaluationSums, name: str, impossible: str, is_folded: bool = False
) -> Evaluation:
    """Make an evaluation of the sums over all parts of a log.

    Parameters
    ----------
    sums : EvaluationSums
    name : str
        Of the model.
    impossible : str
        How pages of probability zero were treated.
    is_folded : bool
        Whether a page that occurred several times counts as so many sessions.
    """
    sums.tally.require_some(name)
    pages, results, bad = sums.weighed
    counts = (sums.tally.n_kept, sums.tally.n_results_kept, sums.n_impossible)
    if is_folded:
        counts = (round(pages), round(results), round(bad))
    return Evaluation(
        name,
        *counts,
        impossible=impossible,
        log_likelihood=sums.log_likelihood / pages,
        log_likelihood_per_result=sums.log_likelihood / results,
        marginal=sums.marginal.finish(),
        conditional=sums.conditional.finish(),
        calibration=sums.calibration.finish(),
        unseen={coin: weight / results for coin, weight in sums.unseen.items()},
        observed=sums.observed,
    )


@dataclass(frozen=True)
class EvaluationSums:
    """The sums behind an `Evaluation`.

    `tally` counts sessions and results, `weighed` their weights: sessions that are kept, their
    results, and sessions that are impossible. `unseen` is, per coin, the weight of results whose
    row was never fitted.
    """

    tally: Tally
    n_impossible: int
    weighed: tuple[float, float, float]
    log_likelihood: float
    marginal: PerplexitySums
    conditional: PerplexitySums
    calibration: CalibrationSums
    unseen: Mapping[str, float]
    observed: tuple[str, ...] = ()

    @classmethod
    def of(cls, model: Model, log: ClickLog, impossible: Impossible) -> EvaluationSums:
        """Sum up what a model says of the pages of one part, or of the walks of its users."""
        model, log = _walk_by_walk(model, log)
        filtered = Filtered(model, log, impossible, warn=False)  # the table says what was left out
        kept = filtered.kept[log.page]
        weight = log.weight[log.page][kept]
        marginal = np.asarray(marginal_array(model, log, filtered.encoded))
        conditional = filtered.click
        if impossible == "floor":
            marginal, conditional = (floored(log.click, p, FLOOR) for p in (marginal, conditional))
        marginal, conditional = marginal[kept], conditional[kept]
        click, rank = log.click[kept], log.rank[kept]
        logs = per_session(log, filtered.log_density)[filtered.kept]
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
            unseen_weights(model, log, filtered.encoded, kept),
            filtered.encoded.plan.observed or (),
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
            {coin: weight + other.unseen[coin] for coin, weight in self.unseen.items()},
            tuple(dict.fromkeys((*self.observed, *other.observed))),
        )


def _walk_by_walk(model: Model, log: ClickLog) -> tuple[Model, ClickLog]:
    """A model of walks that follow one another is judged by where each of them ends.

    Whoever foretells that does not know how far a walk goes, so it has all results.
    """
    view = as_view(model.view)
    if not view.is_sequential or isinstance(log, ViewedLog):
        return model, log
    if not model.foreseen:
        model._both_structures()
        model = model.copy()
        model.view = replace(view, extent="all")  # type: ignore[call-arg]
    return model, model.viewed(log)


def floored(click: NDArray[np.bool_], probability: Floats, floor: float) -> Floats:
    """Click probabilities by which nothing that happened had probability 0."""
    never = click & (probability <= 0)
    always = ~click & (probability >= 1)
    return np.where(never, floor, np.where(always, 1 - floor, probability))


@dataclass(frozen=True)
class Predictions:
    """`log_likelihood` and `is_impossible` per session; click probabilities per result.

    Nothing that happened has probability 0 in them: it counts as 1e-8.
    """

    log_likelihood: Floats
    is_impossible: Bools
    conditional: Floats
    marginal: Floats


def predictions(model: Model, log: ClickLog, impossible: Impossible = "floor") -> Predictions:
    """Score every session; `impossible` is "raise" or "floor"."""
    filtered = Filtered(model, log, impossible, warn=False)
    marginal = np.asarray(marginal_array(model, log, filtered.encoded))
    return Predictions(
        log_likelihood=_of_clicks(model, log, filtered),
        is_impossible=_sessions_with(filtered.is_impossible, log),
        conditional=floored(log.click, filtered.click, FLOOR),
        marginal=floored(log.click, marginal, FLOOR),
    )


def click_log_likelihood(model: Model, log: ClickLog) -> Floats:
    """The logarithm of the probability of each session's clicks, as a comparison scores them."""
    return _of_clicks(model, log, Filtered(model, log, "floor", warn=False))


def _of_clicks(model: Model, log: ClickLog, filtered: Filtered) -> Floats:
    """Per session. A model that sees users through numbers as well may foretell each click from
    those above it; how likely these are themselves is no figure of clicks."""
    if not model.structure.traced.observes:
        return per_session(log, np.log(filtered.probability))
    click = floored(log.click, filtered.click, FLOOR)
    return per_session(log, np.log(np.where(log.click, click, 1 - click)))


def impossible_sessions(model: Model, log: ClickLog) -> Bools:
    """Which sessions the model says cannot happen."""
    return _sessions_with(Filtered(model, log, "floor", warn=False).is_impossible, log)


def _sessions_with(results: Bools, log: ClickLog) -> Bools:
    sessions = np.zeros(log.n_sessions, bool)
    sessions[log.page[results]] = True
    return sessions
