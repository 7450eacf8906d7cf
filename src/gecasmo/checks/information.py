"""What a sample of pages tells about global parameters while all others are estimated too.

Global parameters are those of coins with few rows that are not about single queries or documents
(examination by rank, one continuation for all): the whole log has a say in them. All others, such
as attraction by query and document, are profiled out: they may make up for whatever shared ones do.

This also tells what showing a few pages in random order would buy. Pages of the log are shuffled
and given clicks by the model; standard errors of global parameters are compared with those of the
pages as they are. All other parameters are estimated at the same time, which is where random order
helps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.checks.findings import Findings
from gecasmo.checks.identified import Tangle
from gecasmo.checks.scores import Parameters, Scores, parameters_of, score_results
from gecasmo.checks.subject import (
    CheckedModel,
    Floats,
    PageSample,
    coin_to_give,
    is_about_things,
    pair_codes,
    shuffled,
)
from gecasmo.encoding import Rows
from gecasmo.logs import ClickLog
from gecasmo.report import counted

Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]

_MOST_SHARED = 60
# Probabilities at the very edge have no information of their own to compare.
_EDGE = 1e-4
# A learned prior takes results at all ranks to be of one kind. That is just what a log in which
# nothing moves cannot know, so a prior is worth no more than two flips here.
_STRONGEST = 2.0

# Gains below this are not worth anybody's while.
_HARDLY = 1.1
_FEW = 0.01


@dataclass(frozen=True)
class Information:
    """Information on all parameters of a sample, as it is and with its pages shuffled.

    Attributes
    ----------
    parameters : what the columns mean
    log : the pages as they are, followed by the same in random order
    weight : the weight of each page as it is, 0 for those in random order
    now, random : information of the pages as they are, and in random order
    shared, rest : numbers of the parameters that the whole log shares, and of the others
    anchors : parameters taken as known, since otherwise a product has no scale
    level : the probability behind each parameter (of coefficients: the mean of their rows)
    prior : what pseudo-counts say about each parameter
    ratio : how much more the log weighs than the sample
    """

    parameters: Parameters
    log: ClickLog
    weight: Floats
    now: Floats
    random: Floats
    shared: Integers
    rest: Integers
    anchors: Integers
    level: Floats
    prior: Floats
    ratio: float

    def profiled(self, matrix: Floats, ridge: Floats) -> Floats:
        """The information on global parameters that is left when all others are unknown."""
        own, between = matrix[np.ix_(self.shared, self.shared)], self._between(matrix)
        if not len(self.rest):
            return own
        return own - between @ np.linalg.solve(self._others(matrix, ridge), between.T)

    def response(self, matrix: Floats, ridge: Floats, move: Floats) -> Floats:
        """How the other parameters move to make up for a move of the global ones."""
        if not len(self.rest):
            return np.zeros(0)
        pull = self._between(matrix).T @ move
        return -np.asarray(np.linalg.solve(self._others(matrix, ridge), pull), np.float64)

    def _between(self, matrix: Floats) -> Floats:
        return matrix[np.ix_(self.shared, self.rest)]

    def _others(self, matrix: Floats, ridge: Floats) -> Floats:
        return matrix[np.ix_(self.rest, self.rest)] + np.diag(ridge[self.rest])

    def errors(self, matrix: Floats) -> Floats:
        """Standard errors of shared probabilities on the whole log, others unknown, with the prior.

        What is left of the information on global parameters adds up over pages, so that of the
        sample is scaled up to the log.
        """
        left = self.ratio * self.profiled(matrix, self.prior)
        covariance = np.linalg.inv(left + np.diag(self.prior[self.shared]))
        spread: Floats = self.width() * np.sqrt(np.maximum(np.diag(covariance), 0.0))
        return spread

    def errors_alone(self) -> Floats:
        """The same if all other parameters were known."""
        own = self.ratio * np.diag(self.now)[self.shared] + self.prior[self.shared]
        return np.asarray(self.width() / np.sqrt(own), np.float64)

    def width(self) -> Floats:
        """What a small step of each global parameter's logit means for its probability."""
        is_row = self.parameters.rows[self.shared] >= 0
        level = self.level[self.shared]
        return np.where(is_row, level * (1 - level), 1.0)

    def taken_as_known(self) -> str:
        """Words on the anchors, if there are any."""
        names = [self.parameters.names[number] for number in self.anchors]
        return f" ({', '.join(names)} taken as known)" if names else ""


def inform(
    subject: CheckedModel,
    sample: PageSample,
    tangles: Sequence[Tangle],
    n_rows: Sequence[int],
    seed: int,
) -> Information | None:
    """The information of a sample; None if no parameter is shared by the whole log.

    `n_rows` is the number of rows of each coin in the whole log.
    """

    def probabilities(rows: Sequence[Rows]) -> list[Floats]:
        return [np.clip(p, _EDGE, 1 - _EDGE) for p in subject.probabilities(tuple(rows))]

    together = _with_shuffled(subject, sample, seed)
    scores = score_results(subject.model, together, probabilities, np.tile(sample.weight, 2))
    parameters = parameters_of(subject.model, scores.rows, subject.states)
    if not parameters.names:
        return None
    sizes = dict(zip(subject.model.forms, n_rows, strict=True))
    is_shared = np.array(
        [
            row < 0 or _is_shared(subject, tie[0], sizes[tie[0]])
            for tie, row in zip(parameters.coins, parameters.rows, strict=True)
        ]
    )
    is_random = scores.session >= sample.log.n_sessions
    design = parameters.design
    now, random = (
        design.T @ scores.information(which) @ design for which in (~is_random, is_random)
    )
    anchors = _anchors(subject, parameters, tangles, scores)
    is_shared[anchors] = False
    is_rest = ~is_shared
    is_rest[anchors] = False
    # Rows that only random pages meet, or that nobody flips, cannot be compared.
    is_shared &= np.diag(now) > 1e-9
    if not is_shared.any():
        return None
    weight = np.abs(design).sum(axis=0)
    at = np.concatenate([np.zeros(0), *probabilities(scores.rows)])
    level = (at @ np.abs(design)) / np.maximum(weight, 1e-300)
    return Information(
        parameters=parameters,
        log=together,
        weight=np.concatenate([sample.weight, np.zeros(sample.n_pages)]),
        now=now,
        random=random,
        shared=np.flatnonzero(is_shared),
        rest=np.flatnonzero(is_rest),
        anchors=anchors,
        level=level,
        prior=_prior(subject, parameters, level),
        ratio=float(subject.log.weight.sum() / max(sample.weight.sum(), 1e-300)),
    )


def _is_shared(subject: CheckedModel, coin: str, n_rows: int) -> bool:
    """Whether the rows of a coin belong to the whole log, and not to single things in it."""
    return n_rows <= _MOST_SHARED and not is_about_things(subject.model.keys[coin])


def _with_shuffled(subject: CheckedModel, sample: PageSample, seed: int) -> ClickLog:
    """The pages of the sample followed by the same pages shuffled, with simulated clicks."""
    model, log = subject.model.copy(), sample.log
    model.states_ = subject.states
    random: ClickLog = model.simulate(shuffled(log, 1, seed), seed=seed)
    own = log.to_frame().select(log.columns)
    # Simulated signals that the log has as numbers come back as yes and no.
    other = random.to_frame().select(pl.col(name).cast(own[name].dtype) for name in own.columns)
    return ClickLog(
        pl.concat([own, other]),
        np.concatenate([log.page, random.page + np.uint32(log.n_sessions)]),
        pl.concat([log.sessions, log.sessions]),
        np.tile(log.weight, 2),
    )


def _prior(subject: CheckedModel, parameters: Parameters, level: Floats) -> Floats:
    """What pseudo-counts say about each parameter, at most; a trifle where there are none."""
    prior = np.full(len(parameters.names), 1e-6)
    for number, (tie, row) in enumerate(zip(parameters.coins, parameters.rows, strict=True)):
        if row >= 0:
            strength = subject.model.forms[tie[0]].prior_strength(subject.states[tie[0]])
            prior[number] += min(strength, _STRONGEST) * level[number] * (1 - level[number])
    return prior


def _anchors(
    subject: CheckedModel, parameters: Parameters, tangles: Sequence[Tangle], scores: Scores
) -> Integers:
    """A parameter to take as known for each product whose scale nothing fixes."""
    flips = scores.flips @ parameters.design
    anchors = []
    for tangle in tangles:
        numbers = [list(subject.model.forms).index(coin) for coin in tangle.coins]
        if any(subject.fixed[number].any() for number in numbers):
            continue
        coin = coin_to_give(subject, tangle.coins)
        own = [number for number, tie in enumerate(parameters.coins) if coin in tie]
        if own:
            anchors.append(max(own, key=lambda number: (float(flips[number]), -number)))
    return np.array(anchors, np.int64)


def check_randomising(
    subject: CheckedModel, sample: PageSample, known: Information, randomise: float, top: int
) -> Findings:
    """Standard errors of global parameters, now and with a share of the pages in random order."""
    part = Findings()
    if int(sample.log.lengths.max(initial=0)) < 2:
        return part
    before = known.errors(known.now)
    after = known.errors((1 - randomise) * known.now + randomise * known.random)
    worth = (before / after) ** 2
    table = pl.DataFrame(
        {
            "parameter": [known.parameters.names[number] for number in known.shared],
            "error_now": before,
            "error_with_random_pages": after,
            "worth_so_many_logs": worth,
        }
    )
    part.tables["randomising"] = table
    part.facts["randomising_worth"] = float(np.median(worth))
    _tell(part, subject, sample, known, table, randomise, top)
    return part


def _why_hardly(subject: CheckedModel, known: Information) -> str:
    """Why some random pages would not help: too few, not needed, or beside the point."""
    every = float(np.max((known.errors(known.now) / known.errors(known.random)) ** 2))
    if every >= _HARDLY:
        return (
            f"so few are not enough, while all pages in random order would be worth {every:.3g} "
            "logs like this one"
        )
    if _moves(subject):
        return "results already change their rank enough, or order is not what is missing"
    return "results hardly ever change their rank now, but order is not what is missing"


def _moves(subject: CheckedModel) -> bool:
    """Whether more than a few of the results that are shown again stand at another rank then."""
    seen = pl.DataFrame({"pair": pair_codes(subject.log), "rank": subject.log.rank})
    again = seen.group_by("pair").agg(n=pl.len(), ranks=pl.n_unique("rank")).filter(pl.col("n") > 1)
    return bool(len(again)) and float((again["ranks"] > 1).mean() or 0.0) > _FEW  # type: ignore[arg-type]


def _tell(
    part: Findings,
    subject: CheckedModel,
    sample: PageSample,
    known: Information,
    table: pl.DataFrame,
    randomise: float,
    top: int,
) -> None:
    table = table.sort("worth_so_many_logs", descending=True, maintain_order=True)
    best = table.row(0, named=True)
    percent = f"{100 * randomise:g} %"
    n_random = max(1, round(randomise * subject.log.n_sessions))
    looked = "" if sample.is_whole else f", judged by {counted(sample.n_pages, 'page')}"
    given = known.taken_as_known()
    if best["worth_so_many_logs"] < _HARDLY:
        why = _why_hardly(subject, known)
        part.add(
            "info",
            "randomising",
            f"Showing {percent} of the pages in random order would hardly sharpen the global "
            f"parameters{given}{looked}: {why}.",
        )
        return
    part.add(
        "info",
        "randomising",
        f"With {percent} of the pages in random order (about {n_random:,}), the standard error of "
        f"{best['parameter']} would go from {best['error_now']:.2g} to "
        f"{best['error_with_random_pages']:.2g}{given}{looked}: as much as "
        f"{best['worth_so_many_logs']:.3g} logs like this one would give. The median over all "
        f"global parameters is {part.facts['randomising_worth']:.3g} logs.",
        count=n_random,
        examples=[
            f"{row['parameter']}: {row['error_now']:.2g} to {row['error_with_random_pages']:.2g}"
            for row in table.head(top).to_dicts()[1:]
            if row["worth_so_many_logs"] >= _HARDLY
        ],
        advice="Shuffle the results of some pages, or swap neighbours on more of them, and log "
        "them as usual; remember which they were.",
    )
