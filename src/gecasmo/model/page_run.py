"""Run a page kernel of a model over a log and put the answers into the order of its rows.

Some pages a model says cannot happen: they are found, named and dealt with here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from itertools import pairwise
from math import prod
from operator import add
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import polars as pl
from numpy.typing import NDArray

from gecasmo.encoding import EncodedLog, Rows
from gecasmo.encoding.rows import history_of, lift
from gecasmo.errors import (
    ClickLogError,
    GecasmoWarning,
    ImpossibleSessionError,
    ModelError,
    either,
    option,
    tell,
)
from gecasmo.estimation.coins import as_weights
from gecasmo.forms import Form, FormState
from gecasmo.kernels.library import LIFTED_KERNELS, Structure
from gecasmo.kernels.plan import CoinPlan
from gecasmo.kernels.threads import default_threads, run_jobs
from gecasmo.logs import ClickLog
from gecasmo.logs.views.view import ViewedLog, Visits

if TYPE_CHECKING:
    from gecasmo.model.base import Impossible, Model

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

# Rows of a coin under all click histories; each takes 16 bytes.
_MOST_LIFTED = 1 << 28


class PageRun:
    """One log under one kernel, with the weights of all coins.

    `states` are those of the model unless others are given. `encoded` saves work where another
    kernel on the same automaton has encoded the log already and no coin depends on clicks above.
    `counting` runs on the automaton that fits run on. Results that are `missing` are not looked at.
    """

    def __init__(
        self,
        model: Model,
        log: ClickLog,
        kernel: str,
        states: Mapping[str, FormState] | None = None,
        merge: bool = True,
        threads: int | None = None,
        encoded: EncodedLog | None = None,
        counting: bool = False,
        missing: Bools | None = None,
    ) -> None:
        self.model, self.log, self.kernel = model, log, kernel
        self.has_missing = missing is not None
        self.states = model.states(whole=False) if states is None else states
        self.threads = threads or default_threads()
        if encoded is None:
            lifted = kernel in LIFTED_KERNELS
            encoded = model.encode(
                log,
                kernel,
                merge=merge,
                lifted=lifted,
                counting=counting,
                with_missing=self.has_missing,
                missing=missing,
            )
        self.counting = counting
        self.encoded = encoded
        assert encoded.log is not None
        self.viewed = encoded.log  # the log itself, or in the order of the model's view
        self.keys = model.answer_keys(self.viewed.columns)
        self.rank_size = int(self.viewed.rank.max(initial=0)) + 1
        self.count_size = int(self.viewed.lengths.max(initial=0)) + 1
        self._places: dict[str, NDArray[np.int64] | None] | None = None
        self.weights = [
            self._coin_weights(coin, form, rows)
            for (coin, form), rows in zip(model.forms.items(), encoded.rows, strict=True)
        ]

    def change(self, states: Mapping[str, FormState]) -> None:
        """Go on with other states of the model's forms, whose tables have the same rows."""
        forms = self.model.forms.items()
        if self._places is None:
            # Where rows stand is looked up once: they are the same in all draws of a posterior.
            self._places = {
                coin: self._places_of(coin, form, rows, states[coin])
                for (coin, form), rows in zip(forms, self.encoded.rows, strict=True)
            }
        self.states = states
        for number, (coin, form) in enumerate(forms):
            places = self._places[coin]
            if places is None:
                self.weights[number] = self._coin_weights(coin, form, self.encoded.rows[number])
                continue
            seen = places >= 0
            known = states[coin].probability[places[seen]]
            self.weights[number][:, seen] = as_weights(known)

    @property
    def structure(self) -> Structure:
        """The automaton that the kernel runs on, with all that follows from it."""
        return self.model.library(self.encoded.plan, self.counting).structure

    def run(self, *outputs: Any) -> None:
        """Fill the output arrays of the kernel."""
        encoded = self.encoded
        lift = []
        if self.kernel in LIFTED_KERNELS:
            lift = [encoded.ranks, self.rank_size, self.count_size]
        jobs = [
            [*encoded.page_arguments(first, last), *self.weights, *lift, *outputs]
            for first, last in self._ranges()
        ]
        library = self.model.library(encoded.plan, self.counting)
        run_jobs(library.get(self.kernel, jobs[0], "minimal", self.has_missing), jobs)

    def results(self, answers: NDArray[Any], visits: Visits | None = "any") -> NDArray[Any]:
        """Answers per encoded result, in the order of the log's rows.

        Where users come by a row several times, these are probabilities of something at "any" of
        the visits, or at "all" of them.
        """
        return brought_back(self.log, self.encoded, answers[self.encoded.result_places()], visits)

    def sessions(self, answers: NDArray[Any]) -> NDArray[Any]:
        """Answers per encoded page, in the order of the log's sessions."""
        found = answers[self.encoded.page_of_session]
        viewed = self.viewed
        if isinstance(viewed, ViewedLog) and viewed is not self.log:
            return viewed.back_from_walks(found)
        return found

    def log_scales(self) -> Floats:
        """By which factor the weights of each encoded result are too small, as a logarithm: numbers
        that users are seen through weigh as much as they do in comparison."""
        found = np.zeros(self.encoded.n_results)
        forms = list(self.model.forms.items())
        told = set()
        for (coin, form), rows, plan in zip(
            forms, self.encoded.rows, self.encoded.plan.coins, strict=True
        ):
            if not form.is_joint or id(form) in told or plan.codes < 0:
                continue
            told.add(id(form))
            scale = form.log_scale(self.states[coin], rows)
            if scale is not None:
                found += scale[result_rows(self.encoded, plan)]
        return found

    def _ranges(self) -> list[tuple[int, int]]:
        starts = self.encoded.obs_start
        pieces = 1 if self.encoded.n_results < 20_000 else 2 * self.threads
        wanted = np.linspace(0, starts[-1], pieces + 1)[1:-1]
        cuts = np.searchsorted(starts, wanted)
        borders = sorted({0, self.encoded.n_pages, *map(int, cuts)})
        return list(pairwise(borders)) or [(0, 0)]

    def _is_lifted(self, coin: str) -> bool:
        """Whether a coin has a row for each click history that it could meet."""
        if self.kernel not in LIFTED_KERNELS or not self.viewed.n_results:
            return False
        return bool(history_of(self.keys[coin]))

    def _coin_weights(self, coin: str, form: Form, rows: Rows) -> Floats:
        if self._is_lifted(coin):
            return self._lifted_weights(coin, form, rows, self.keys[coin])
        return as_weights(self._predict(coin, form, rows))

    def _predict(self, coin: str, form: Form, rows: Rows) -> Floats:
        return form.probabilities(self.states[coin], rows, coin)

    def _places_of(
        self, coin: str, form: Form, rows: Rows, state: FormState
    ) -> NDArray[np.int64] | None:
        """Where the rows of a coin stand among those of a state, under every click history."""
        if not self._is_lifted(coin):
            return form.places(state, rows)
        found = np.full(self.weights[list(self.model.forms).index(coin)].shape[1], -1, np.int64)
        for place, part in lift(rows, self.keys[coin], self._sizes()):
            own = form.places(state, part)
            if own is None:
                return None
            found[place] = own
        return found

    def _sizes(self) -> dict[str, int]:
        """How many values the keys of click histories can have."""
        return {
            "last_click": self.rank_size,
            "distance": self.rank_size,
            "clicks_above": self.count_size,
        }

    def _lifted_weights(self, coin: str, form: Form, rows: Rows, keys: tuple[str, ...]) -> Floats:
        """The weights of every row under every click history it could meet."""
        sizes = self._sizes()
        n_lifted = max(len(rows), 1) * prod(sizes[key] for key in history_of(keys))
        if n_lifted > _MOST_LIFTED:
            raise ClickLogError(
                f"If no click is known, '{coin}' (by {', '.join(keys)}) needs {n_lifted:,} "
                f"rows, one for each click history that pages up to rank {self.rank_size - 1:,} "
                "could have. Number ranks from 1 on within pages, or leave out the longest pages."
            )
        weights = np.empty((2, n_lifted))
        for place, part in lift(rows, keys, sizes):
            weights[:, place] = as_weights(self._predict(coin, form, part))
        return weights


def result_rows(encoded: EncodedLog, plan: CoinPlan) -> NDArray[np.uint32]:
    """The row of a coin at every encoded result."""
    if plan.scope == "page":
        return np.repeat(encoded.page_rows(plan.codes), encoded.lengths)
    return encoded.result_rows(plan.codes, bool(plan.history))


def brought_back(
    log: ClickLog, encoded: EncodedLog, answers: NDArray[Any], visits: Visits | None = "any"
) -> NDArray[Any]:
    """Answers per row of the log that was encoded, in the order of the rows of the user's log."""
    viewed = encoded.log
    if isinstance(viewed, ViewedLog) and viewed is not log:
        return viewed.back(answers, visits)
    return answers


def whole_walks(log: ClickLog, encoded: EncodedLog, sessions: Bools) -> Bools:
    """Some sessions of a log, with all others that one of their users went over."""
    viewed = encoded.log
    if isinstance(viewed, ViewedLog) and viewed is not log:
        return viewed.whole(sessions)
    return sessions


def result_frame(log: ClickLog) -> pl.DataFrame:
    """The columns that say which result a row of an answer is about."""
    names = [name for name in ("session", "query", "doc", "rank", "click") if name in log.columns]
    return pl.DataFrame([log.column(name).alias(name) for name in names])


FLOOR = 1e-8


@dataclass(frozen=True)
class Tally:
    """How many sessions there were, how many were kept, and what these have; tallies add up.

    A page that stands for several equal ones counts as so many.
    """

    n_sessions: int = 0
    n_kept: int = 0
    n_results: int = 0
    n_results_kept: int = 0
    weight: float = 0.0  # of the sessions that are kept

    def __add__(self, other: Tally) -> Tally:
        return Tally(*map(add, astuple(self), astuple(other)))

    def tell(self, name: str) -> None:
        """Warn of sessions that were left out, if there are any."""
        if self.n_kept < self.n_sessions:
            tell(
                f"{self.n_sessions - self.n_kept:,} of {self.n_sessions:,} sessions are impossible "
                f"under {name} and were left out.",
                GecasmoWarning,
            )

    def require_some(self, name: str) -> None:
        """Refuse a mean over nothing."""
        if self.n_results and not self.n_kept:
            raise ImpossibleSessionError(
                f"All {self.n_sessions:,} sessions are impossible under {name}."
            )
        if not self.weight > 0 or not self.n_results_kept:
            raise ClickLogError(
                "There is nothing to evaluate: the log has no results, or all its pages weigh 0."
            )


def check_impossible(impossible: Any) -> None:
    """Refuse what is no way to deal with impossible pages."""
    if impossible not in ("raise", "drop", "floor"):
        raise ModelError(f"{option('impossible', impossible)}: choose 'raise', 'drop' or 'floor'.")


class Filtered:
    """What the filter says of each result, with impossible observations dealt with.

    `probability` is that of what was shown, `click` that of a click, both given the signals
    above. `kept` says which sessions are left. Where numbers are observed as well, `log_scale` is
    what has to be added to the logarithm of `probability` for their density.
    """

    def __init__(
        self,
        model: Model,
        log: ClickLog,
        impossible: Impossible,
        states: Mapping[str, FormState] | None = None,
        threads: int | None = None,
        counting: bool = False,
        warn: bool = True,
    ) -> None:
        self.log = log
        check_impossible(impossible)
        run = PageRun(model, log, "filter", states, threads=threads, counting=counting)
        probability = np.zeros(run.encoded.n_results)
        click = np.zeros(run.encoded.n_results)
        run.run(probability, click)
        self.encoded = run.encoded
        self.probability = run.results(probability, "all")
        self.log_scale: Floats = np.zeros(log.n_results)
        if run.encoded.plan.observed:
            self.log_scale = np.log(run.results(np.exp(run.log_scales()), "all"))
        self.click = np.clip(run.results(click), 0.0, 1.0)
        self.is_impossible: Bools = self.probability <= 0
        self.kept = np.ones(log.n_sessions, bool)
        if not self.is_impossible.any():
            return
        if impossible == "raise":
            _refuse(model, log, self.is_impossible)
        if impossible == "drop":
            self.kept = ~whole_walks(log, self.encoded, self._with_impossible())
        if warn:
            self.tally.tell(model.name)
        self.probability = np.where(self.is_impossible, FLOOR, self.probability)
        self.log_scale = np.where(self.is_impossible, 0.0, self.log_scale)

    def _with_impossible(self) -> Bools:
        sessions = np.zeros(self.log.n_sessions, bool)
        sessions[self.log.page[self.is_impossible]] = True
        return sessions

    @property
    def log_density(self) -> Floats:
        """The logarithm of the probability, or of the density, of what was seen at each result."""
        found: Floats = np.log(self.probability) + self.log_scale
        return found

    @property
    def tally(self) -> Tally:
        """How many sessions are left."""
        log = self.log
        return Tally(
            log.n_sources(),
            log.n_sources(self.kept),
            n_source_results(log, np.ones(log.n_sessions, bool)),
            n_source_results(log, self.kept),
            float(log.weight[self.kept].sum()),
        )


def n_source_results(log: ClickLog, chosen: Bools) -> int:
    """How many results of the source some sessions stand for."""
    lengths = log.lengths[chosen]
    if not log.is_folded:
        return int(lengths.sum())
    return round(float((lengths * log.weight[chosen]).sum()))


def counts_of_source(log: Any, tally: Tally) -> tuple[int, int] | None:
    """Sessions and results of the source of a stored log that was used as a whole, where the
    weights of its pages do not tell them; else None.

    Equal pages are then stored once, with the sum of weights that their source gave them.
    """
    is_untold = getattr(log, "is_folded", False) and not getattr(log, "weights_are_counts", True)
    if not is_untold or tally.n_kept < tally.n_sessions:
        return None
    return int(log.n_sessions), int(log.n_source_results)


def find_impossible(
    model: Model, log: ClickLog, states: Mapping[str, FormState], threads: int | None
) -> tuple[Bools, Bools]:
    """Which results show something of probability zero, and which sessions contain one, with all
    that are in a walk with such a one."""
    filtered = Filtered(model, log, "floor", states, threads, counting=True)
    return filtered.is_impossible, whole_walks(log, filtered.encoded, filtered._with_impossible())


def refuse(
    model: Model, log: ClickLog, states: Mapping[str, FormState], threads: int | None
) -> NoReturn:
    """Raise with the number of impossible sessions and the first of them."""
    results, _ = find_impossible(model, log, states, threads)
    _refuse(model, log, results)


def _refuse(model: Model, log: ClickLog, is_impossible: Bools) -> NoReturn:
    sessions = np.zeros(log.n_sessions, bool)
    sessions[log.page[is_impossible]] = True
    in_chain = log.order[np.argmax(is_impossible[log.order])]
    session = log.sessions[int(log.page[in_chain])]
    shown = "a click" if log.click[in_chain] else "no click"
    raise ImpossibleSessionError(
        f"{log.n_sources(sessions):,} of {log.n_sources():,} sessions are impossible under "
        f"{model.name}: they have probability 0.\n"
        f"  First: session {session!r} shows {shown} at rank {log.rank[in_chain]}, which the "
        "model rules out after what it shows above.\n"
        f"  Perhaps another model, or {either('log.take(...)', 'a log')} without them; "
        f"{either('fit, score and evaluate', 'fit and evaluate')} also take "
        f"{option('impossible', 'drop')} (leave them out) and 'floor' (count the observation as "
        "1e-8)."
    )
