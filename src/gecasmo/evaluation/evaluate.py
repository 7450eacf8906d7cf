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

from gecasmo.errors import ImpossibleSessionError
from gecasmo.evaluation.metrics import (
    Calibration,
    CalibrationSums,
    Perplexity,
    PerplexitySums,
)
from gecasmo.language.parameter import HISTORY_KEYS
from gecasmo.logs import ClickLog
from gecasmo.logs.views import ViewedLog, as_view
from gecasmo.logs.views.view import changes, runs_within
from gecasmo.model.answers import marginal_array, per_session, told_unseen, unseen_weights
from gecasmo.model.click_sets import click_sets
from gecasmo.model.log_parts import is_stored, over_parts
from gecasmo.model.page_run import FLOOR, Filtered, PageRun, Tally, counts_of_source
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
    perplexities are always of clicks. `notes` say what figures of this model must not be taken for.
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
    notes: tuple[str, ...] = ()

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
        return [*filter(None, [*self.notes, *told, observed * bool(self.observed)])]

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
    found = replace(found, notes=_notes(model))
    counts = counts_of_source(log, total.tally)
    if counts is None:
        return found
    return replace(found, n_sessions=counts[0], n_results=counts[1])


def _notes(model: Model) -> tuple[str, ...]:
    """What figures of a model that goes from click to click are about."""
    if not as_view(model.view).is_sequential:
        return ()
    walks = "a session is a walk from one click to the next; compare() scores whole pages"
    known = [
        f"where the next click is ({key}) is given, so no other model compares with this"
        for key in model.foreseen
    ]
    return (walks, *known)


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

    Nothing that happened has probability 0 in them: it counts as 1e-8. `lost` is the largest share
    of a session's probability that was not looked at.
    """

    log_likelihood: Floats
    is_impossible: Bools
    conditional: Floats
    marginal: Floats
    lost: float = 0.0


def predictions(model: Model, log: ClickLog, impossible: Impossible = "floor") -> Predictions:
    """Score every session by the clicks of its page; `impossible` is "raise" or "floor"."""
    if as_view(model.view).is_sequential:
        return _set_predictions(model, log, impossible)
    filtered = Filtered(model, log, impossible, warn=False)
    if as_view(model.view).spans_pages:
        marginal = given_earlier_pages(model, log)
    else:
        marginal = np.asarray(marginal_array(model, log, filtered.encoded))
    conditional = floored(log.click, filtered.click, FLOOR)
    seen, bad = filtered.probability, filtered.is_impossible
    if as_view(model.view).signals or model.structure.traced.observes:  # known, and not scored
        seen = np.where(log.click, conditional, 1 - conditional)
        bad = np.where(log.click, filtered.click <= 0, filtered.click >= 1)
    return Predictions(
        log_likelihood=per_session(log, np.log(seen)),
        is_impossible=_sessions_with(bad, log),
        conditional=conditional,
        marginal=floored(log.click, marginal, FLOOR),
    )


def given_earlier_pages(model: Model, log: ClickLog) -> Floats:
    """P(click) of each result with no click of its page known, but all of earlier pages of the same
    walk. Of a model that remembers clicks by its keys: with no click of any page known."""
    viewed = model.viewed(log)
    depends_on_clicks = any(key in HISTORY_KEYS for keys in model.keys.values() for key in keys)
    if depends_on_clicks or not isinstance(viewed, ViewedLog) or viewed is log:
        return marginal_array(model, log)
    session = log.page[viewed.rows]
    begins = np.zeros(viewed.n_results, bool)
    begins[viewed.starts[:-1][viewed.lengths > 0]] = True
    turn = np.empty(log.n_results, np.int64)  # of the page in its walk
    turn[viewed.rows] = runs_within(begins | changes(session), begins)
    found = np.zeros(log.n_results)
    last = np.zeros(log.n_sessions, np.int64)
    np.maximum.at(last, log.page, turn)
    for number in range(int(turn.max(initial=-1)) + 1):
        chosen = viewed.whole(last >= number)
        rows = chosen[log.page]
        run = PageRun(model, log.take(chosen), "filter", missing=turn[rows] == number)
        answers = np.zeros((2, run.encoded.n_results))
        run.run(*answers)
        found[rows] = np.where(turn[rows] == number, run.results(answers[1]), found[rows])
    return np.clip(found, 0.0, 1.0)


def _set_predictions(model: Model, log: ClickLog, impossible: Impossible) -> Predictions:
    """Score every session by which results are clicked, whatever the order."""
    found = click_sets(model, log)
    bad = found.probability <= 0
    if impossible == "raise" and bad.any():
        raise ImpossibleSessionError(
            f"{log.n_sources(bad):,} of {log.n_sources():,} sessions are impossible under "
            f"{model.name}: they have probability 0. First: session "
            f"{log.sessions[int(bad.argmax())]!r}."
        )
    said = (found.conditional, found.marginal)
    conditional, marginal = (floored(log.click, p, FLOOR) for p in said)
    seen = np.log(np.where(log.click, conditional, 1 - conditional))
    own = np.where(bad, per_session(log, seen), np.log(np.where(bad, 1.0, found.probability)))
    return Predictions(own, bad, conditional, marginal, float(found.lost.max(initial=0.0)))


def impossible_sessions(model: Model, log: ClickLog) -> Bools:
    """Which sessions the model says cannot happen."""
    if as_view(model.view).is_sequential:
        return click_sets(model, log).probability <= 0
    return _sessions_with(Filtered(model, log, "floor", warn=False).is_impossible, log)


def _sessions_with(results: Bools, log: ClickLog) -> Bools:
    sessions = np.zeros(log.n_sessions, bool)
    sessions[log.page[results]] = True
    return sessions
